"""Packing lines into bytes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batonkit.errors import LogError
from batonkit.stores.records import join_pieces, pack_lines, unpack_lines


@given(st.lists(st.binary(max_size=300), max_size=12))
def test_packed_lines_can_be_unpacked(lines: list[bytes]) -> None:
    piece = pack_lines(lines)
    assert unpack_lines(piece) == lines
    assert len(piece) == 8 + 4 * len(lines) + sum(map(len, lines))


@given(st.lists(st.binary(max_size=30), max_size=4), st.data())
def test_flipped_bits_and_truncation_are_detected(lines: list[bytes], data: st.DataObject) -> None:
    piece = bytearray(pack_lines(lines))
    bit = data.draw(st.integers(0, len(piece) * 8 - 1))
    piece[bit // 8] ^= 1 << bit % 8
    with pytest.raises(ValueError, match="checksum"):
        unpack_lines(bytes(piece))
    cut = data.draw(st.integers(0, len(piece) - 1))
    with pytest.raises(ValueError, match=r"truncated|checksum"):
        unpack_lines(pack_lines(lines)[:cut])


@given(st.lists(st.lists(st.binary(max_size=3), min_size=1, max_size=4), max_size=6), st.integers(0, 30))
def test_pieces_are_joined_to_a_log(portions: list[list[bytes]], start: int) -> None:
    lines = [line for portion in portions for line in portion]
    pieces: list[tuple[int, bytes]] = []
    begin = 0
    for portion in portions:
        pieces.append((begin, pack_lines(portion)))
        begin += len(portion)
    ends = [*(begin for begin, _ in pieces[1:]), len(lines)]
    wanted = [piece for piece, end in zip(pieces, ends, strict=False) if end > start]
    assert join_pieces(wanted, start=start, end=len(lines)) == lines[start:]
    for missing in range(len(wanted)):
        with pytest.raises(LogError):
            join_pieces(wanted[:missing] + wanted[missing + 1 :], start=start, end=len(lines))
