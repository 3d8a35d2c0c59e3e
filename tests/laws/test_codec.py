"""The JSON encoding of a log loses nothing, keeps unknown events, and detects damage."""

from dataclasses import dataclass
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from tests.laws.conversations import json_values, texts
from tests.laws.logs import ALL_KINDS, logs

from batonkit import log as events_module
from batonkit.context.values import to_json_value
from batonkit.errors import LogError, NotEncodableError
from batonkit.log import Event, Origin, StepCompleted, UnknownEvent, decode_event, decode_log, encode_event, encode_log


def test_the_strategy_generates_every_kind_of_event() -> None:
    public = {getattr(events_module, name) for name in events_module.__all__}
    kinds = {kind for kind in public if isinstance(kind, type) and issubclass(kind, Event)}

    assert kinds - {Event, UnknownEvent} == ALL_KINDS, "add the fields of the new class to tests/laws/logs.py"


@given(log=logs())
def test_a_log_round_trips(log: list[Event]) -> None:
    read = decode_log(encode_log(log))

    assert read == log
    assert [event.path for event in read] == [event.path for event in log]
    assert encode_log(read) == encode_log(log)


@given(log=logs())
def test_decoded_events_of_an_activation_share_one_origin(log: list[Event]) -> None:
    read = decode_log(encode_log(log))

    origins = {event.origin.id: event.origin for event in read}
    assert all(event.origin is origins[event.origin.id] for event in read)


@given(log=logs())
def test_an_event_is_encoded_as_one_line(log: list[Event]) -> None:
    for event in log:
        line = encode_event(event)

        assert b"\n" not in line
        assert decode_event(line) == event


@given(
    log=logs(), kind=texts.map("New".__add__), facts=st.dictionaries(texts.map("_".__add__), json_values, max_size=3)
)
def test_unknown_events_are_kept_byte_for_byte(log: list[Event], kind: str, facts: dict[str, Any]) -> None:
    origin = log[-1].origin
    parent = None if origin.parent is None else origin.parent.id
    future = {"type": kind, "key": "future", "origin": [origin.id, origin.agent, parent], "timestamp": 1.5, **facts}
    line = msgspec.json.encode(future)
    data = encode_log(log) + line + b"\n"

    *known, last = decode_log(data)

    assert known == log
    assert isinstance(last, UnknownEvent)
    assert (last.event_type, last.key, last.path) == (kind, "future", origin.path)
    assert encode_log([*known, last]) == data


@given(log=logs(), share=st.floats(0, 1, exclude_max=True))
def test_a_truncated_log_raises_or_decodes_to_a_prefix(log: list[Event], share: float) -> None:
    data = encode_log(log)
    read = _read(data[: int(len(data) * share)])

    assert read is None or read == log[: len(read)]


@given(log=logs(), place=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7))
def test_a_log_with_a_flipped_bit_raises_or_decodes_to_a_valid_log(log: list[Event], place: float, bit: int) -> None:
    data = bytearray(encode_log(log))
    data[int(len(data) * place)] ^= 1 << bit
    read = _read(bytes(data))

    if read is not None:
        again = decode_log(encode_log(read))
        assert again == read
        assert [event.path for event in again] == [event.path for event in read]
        assert all(isinstance(name, str) for event in read for name in (event.key, event.agent, *event.path))


@given(data=st.binary(max_size=40) | st.text(max_size=40).map(str.encode))
def test_arbitrary_bytes_raise_or_decode_to_a_valid_log(data: bytes) -> None:
    read = _read(data)

    assert read is None or encode_log(read)


@dataclass(frozen=True)
class _Point:
    x: Any


_python_values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | texts | st.binary(max_size=4) | st.dates() | st.uuids(),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.tuples(inner, inner),
        st.dictionaries(texts | st.integers(), inner, max_size=3),
        st.builds(_Point, inner),
        st.frozensets(st.integers(), max_size=2),
    ),
    max_leaves=6,
)


@given(value=_python_values)
def test_a_value_is_refused_or_round_trips(value: Any) -> None:
    """A first run and a resumed run must see equal values."""
    try:
        plain = to_json_value("it", value)
    except NotEncodableError:
        return
    stepped = StepCompleted("k", Origin("1", "A"), 0.0, "n", plain)

    assert decode_event(encode_event(stepped)) == stepped
    assert to_json_value("it", plain) == plain


def _read(data: bytes) -> list[Event] | None:
    """Decode a log; None if that raises a `LogError`."""
    try:
        return decode_log(data)
    except LogError:
        return None
