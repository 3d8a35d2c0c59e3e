"""Events come out of a stream of bytes the same way however it is cut."""

from hypothesis import given
from hypothesis import strategies as st

from baton.models.openai.transport import SSEDecoder

_LINES = st.sampled_from(
    [b"data: one", b"data:two", b"data: ", b"", b"", b": a comment", b"event: x", b"id: 1", b"data"]
)
_ENDS = st.sampled_from([b"\n", b"\r\n", b"\r"])


def _read(*pieces: bytes) -> list[bytes]:
    stream = SSEDecoder()
    events = [event for piece in pieces for event in stream.feed(piece)]
    return events + stream.rest()


def test_an_event_ends_with_an_empty_line() -> None:
    stream = SSEDecoder()
    assert stream.feed(b"data: one\n") == []
    assert stream.feed(b"\ndata: two\n\ndata: th") == [b"one", b"two"]
    assert stream.feed(b"ree\n\n") == [b"three"]
    assert stream.rest() == []


def test_several_lines_of_data_are_one_event() -> None:
    assert _read(b"data: a\ndata:b\n\n") == [b"a\nb"]


def test_what_is_no_data_is_passed_over() -> None:
    assert _read(b"\xef\xbb\xbf: hello\nevent: x\nid: 7\nretry: 3\ndata: a\n\n\n\n: bye\n\n") == [b"a"]


def test_the_last_event_need_not_be_closed() -> None:
    assert _read(b"data: a\n\ndata: [DONE]") == [b"a", b"[DONE]"]


def test_a_carriage_return_may_be_parted_from_its_line_feed() -> None:
    assert _read(b"data: a\r", b"\n\r", b"\ndata: b\r", b"\r", b"data: c\r\r") == [b"a", b"b", b"c"]


def test_a_long_line_in_many_pieces() -> None:
    assert _read(b"data: ", *[b"x" * 1000] * 50, b"\n", b"\n") == [b"x" * 50_000]


@given(st.lists(st.tuples(_LINES, _ENDS)), st.data())
def test_where_the_network_cuts_does_not_matter(lines: list[tuple[bytes, bytes]], data: st.DataObject) -> None:
    whole = b"".join(line + end for line, end in lines)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)))))
    pieces = [whole[start:end] for start, end in zip([0, *cuts], [*cuts, len(whole)], strict=True)]
    assert _read(*[piece for piece in pieces if piece]) == _read(whole)
