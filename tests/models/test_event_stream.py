"""Decoding server-sent events does not depend on how the bytes are split."""

from hypothesis import given
from hypothesis import strategies as st

from batonkit.models.event_stream import SSEDecoder

_LINES = st.sampled_from(
    [b"data: one", b"data:two", b"data: ", b"", b"", b": a comment", b"event: x", b"id: 1", b"data"]
)
_ENDS = st.sampled_from([b"\n", b"\r\n", b"\r"])


def _read(*parts: bytes) -> list[bytes]:
    stream = SSEDecoder()
    events = [event for part in parts for event in stream.feed(part)]
    return events + stream.rest()


def test_an_event_ends_with_an_empty_line() -> None:
    stream = SSEDecoder()
    assert stream.feed(b"data: one\n") == []
    assert stream.feed(b"\ndata: two\n\ndata: th") == [b"one", b"two"]
    assert stream.feed(b"ree\n\n") == [b"three"]
    assert stream.rest() == []


def test_several_lines_of_data_are_one_event() -> None:
    assert _read(b"data: a\ndata:b\n\n") == [b"a\nb"]


def test_other_fields_and_comments_are_ignored() -> None:
    assert _read(b"\xef\xbb\xbf: hello\nevent: x\nid: 7\nretry: 3\ndata: a\n\n\n\n: bye\n\n") == [b"a"]


def test_the_last_event_needs_no_empty_line() -> None:
    assert _read(b"data: a\n\ndata: [DONE]") == [b"a", b"[DONE]"]


def test_a_carriage_return_and_its_line_feed_may_be_split() -> None:
    assert _read(b"data: a\r", b"\n\r", b"\ndata: b\r", b"\r", b"data: c\r\r") == [b"a", b"b", b"c"]


def test_a_long_line_in_many_parts() -> None:
    assert _read(b"data: ", *[b"x" * 1000] * 50, b"\n", b"\n") == [b"x" * 50_000]


@given(st.lists(st.tuples(_LINES, _ENDS)), st.data())
def test_the_split_positions_do_not_matter(lines: list[tuple[bytes, bytes]], data: st.DataObject) -> None:
    data_sent = b"".join(line + end for line, end in lines)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(data_sent)))))
    parts = [data_sent[start:end] for start, end in zip([0, *cuts], [*cuts, len(data_sent)], strict=True)]
    assert _read(*[part for part in parts if part]) == _read(data_sent)
