"""Lines that were appended together as one piece of bytes with a checksum, as stores keep them.

A piece is a checksum, the number of lines, the length of each, and the lines: 8 bytes and 4 for each line. Lines may
hold any bytes. One flipped bit anywhere is noticed.
"""

from collections.abc import Iterable, Sequence
from struct import Struct, pack, unpack_from
from zlib import crc32

from ..errors import LogError

_HEAD = Struct("<II")
_HEAD_OF_ONE = Struct("<III")


def packed(lines: Sequence[bytes]) -> bytes:
    """The lines as one piece."""
    count = len(lines)
    body = pack(f"<{count + 1}I", count, *map(len, lines)) + b"".join(lines)
    return crc32(body).to_bytes(4, "little") + body


def unpacked(piece: bytes) -> list[bytes]:
    """The lines of a piece. ValueError if it is not what was packed."""
    if len(piece) < _HEAD.size:
        raise ValueError(f"a piece of {len(piece)} bytes is cut off")
    checksum, count = _HEAD.unpack_from(piece)
    if crc32(piece[4:]) != checksum:
        raise ValueError(f"the checksum of a piece of {len(piece)} bytes does not fit: it was damaged")
    if count == 1:
        return [piece[_HEAD_OF_ONE.size :]]
    lines: list[bytes] = []
    begin = _HEAD.size + 4 * count
    for length in unpack_from(f"<{count}I", piece, _HEAD.size):
        lines.append(piece[begin : begin + length])
        begin += length
    return lines


def log_of(pieces: Iterable[tuple[int, bytes]], *, start: int, end: int) -> list[bytes]:
    """Lines `start` to `end` of a log, out of pieces with the number of their first line. LogError if any are missing.

    The first piece may begin before `start`: a piece is kept whole.
    """
    lines: list[bytes] = []
    first = -1
    for number, piece in pieces:
        if first < 0:
            first = min(number, start)
        known = first + len(lines)
        if number != known:
            raise LogError(known, f"the next line that is kept is number {number}")
        try:
            lines += unpacked(piece)
        except ValueError as problem:
            raise LogError(number, str(problem)) from problem
    known = first + len(lines) if first >= 0 else min(start, end)
    if known != end:
        raise LogError(min(known, end), f"{known} lines are kept, and the record of the run tells of {end}")
    return lines[start - first :] if first >= 0 else lines
