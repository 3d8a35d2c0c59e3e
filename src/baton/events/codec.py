"""Events as JSON: one line an event, never pickle. A log starts with a line that names the format.

An origin is written as [activation id, agent, id of the activation its path goes on from], so that a line stays
the same size however long the path is. Kinds of events this version does not know are kept as they were read.
"""

from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias, cast

import msgspec

from ..errors import LogError, NotEncodableError
from .base import RUN_ORIGIN, Delta, Event, Origin
from .types import (
    AgentFinished,
    AgentResponded,
    AgentStarted,
    ControlTransferred,
    InterruptAnswered,
    InterruptRaised,
    ResponseTruncated,
    RunCancelled,
    RunCompleted,
    RunFailed,
    RunResumed,
    RunStarted,
    RunSuspended,
    StepCompleted,
    ToolReturned,
    UnknownEvent,
    UserMessageAdded,
)

LOG_FORMAT = 2
"""The version of the log format this code writes. It reads this one and every older one."""

_Fact: TypeAlias = (
    RunStarted
    | RunResumed
    | AgentStarted
    | AgentResponded
    | UserMessageAdded
    | ResponseTruncated
    | ToolReturned
    | StepCompleted
    | ControlTransferred
    | InterruptRaised
    | InterruptAnswered
    | AgentFinished
    | RunCompleted
    | RunSuspended
    | RunFailed
    | RunCancelled
)
_UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
_KINDS = frozenset(kind.__name__ for kind in _Fact.__args__)


class _Head(msgspec.Struct):
    format: int


class _Kind(msgspec.Struct):
    type: str
    key: str
    origin: tuple[str, str, str | None]
    timestamp: float


def _encode_special(value: Any) -> Any:
    if isinstance(value, Origin):
        return (value.id, value.agent, value.parent.id if value.parent is not None else None)
    raise NotImplementedError(f"{type(value).__name__} is not JSON")


_encoder = msgspec.json.Encoder(enc_hook=_encode_special)


def encode_event(event: Event | Delta) -> bytes:
    """One event as one line of JSON, without the line break."""
    if isinstance(event, UnknownEvent):
        return bytes(event.raw)
    try:
        return _encoder.encode(event)
    except (TypeError, NotImplementedError, UnicodeEncodeError, RecursionError, msgspec.MsgspecError) as error:
        raise NotEncodableError(f"{type(event).__name__} event", event, str(error)) from None


def encode_header() -> bytes:
    """The line that a log begins with: it names the format."""
    return _encoder.encode(_Head(LOG_FORMAT))


def encode_log(events: Iterable[Event]) -> bytes:
    """A whole log: a line with the format, then a line for each event."""
    lines = [encode_header(), *map(encode_event, events)]
    return b"\n".join(lines) + b"\n"


class EventDecoder:
    """Reads the events of one log in order, so that events of an activation share their origin."""

    def __init__(self) -> None:
        self._origins: dict[str, Origin] = {RUN_ORIGIN.id: RUN_ORIGIN}
        self._decoder = msgspec.json.Decoder(_Fact, dec_hook=self._decode_special)
        self._count = 0

    def read_all(self, lines: Sequence[bytes]) -> list[Event]:
        """The events on these lines. Raises LogError if one of them is none."""
        # All at once is several times cheaper. Whatever is odd about it is found out line by line.
        whole = msgspec.json.Decoder(list[_Fact], dec_hook=self._decode_special)
        try:
            events = whole.decode(b"[" + b",".join(lines) + b"]")
        except _UNREADABLE:
            events = []
        if len(events) == len(lines):
            self._count += len(lines)
            return cast("list[Event]", events)
        self._origins = {RUN_ORIGIN.id: RUN_ORIGIN}
        return [self.read(line) for line in lines]

    def read(self, line: bytes | str) -> Event:
        """The event on this line. Raises LogError if it is none."""
        where, self._count = self._count, self._count + 1
        try:
            return self._decoder.decode(line)
        except _UNREADABLE as error:
            return self._read_unknown(line, where, error)

    def _read_unknown(self, line: bytes | str, where: int, error: Exception) -> Event:
        try:
            kind = msgspec.json.decode(line, type=_Kind)
        except _UNREADABLE:
            raise LogError(where, str(error)) from None
        if kind.type in _KINDS:
            raise LogError(where, str(error)) from None
        raw = msgspec.Raw(line.encode() if isinstance(line, str) else bytes(line))
        return UnknownEvent(kind.key, self._origin(*kind.origin), kind.timestamp, kind.type, raw)

    def _origin(self, id: str, agent: str, parent: str | None) -> Origin:
        known = self._origins.get(id)
        if known is None:
            before = self._origins.get(parent) if parent is not None else None
            known = self._origins[id] = Origin(id, agent, before)
        return known

    def _decode_special(self, kind: type, value: Any) -> Any:
        if kind is Origin:
            # Nearly always one that is known: then it need not be checked again.
            if type(value) is list and value and value[0] in self._origins:
                return self._origins[value[0]]
            return self._origin(*msgspec.convert(value, tuple[str, str, str | None]))
        raise NotImplementedError(kind)


def decode_event(line: bytes | str) -> Event:
    """One event on its own; its path is only as long as its line tells."""
    return EventDecoder().read(line)


def decode_log(data: bytes) -> list[Event]:
    """The events of a log written by `encode_log`. Raises LogError, naming the place, if it is damaged or newer."""
    lines = data.split(b"\n")
    if lines[-1]:
        raise LogError(len(lines) - 2, "the last line is cut off")
    return decode_lines(lines[:-1])


def decode_lines(lines: Sequence[bytes]) -> list[Event]:
    """The same, for a log that is split into its lines."""
    try:
        head = msgspec.json.decode(lines[0] if lines else b"", type=_Head)
    except _UNREADABLE:
        raise LogError(0, "it does not start with a line that names its format") from None
    if head.format > LOG_FORMAT:
        raise LogError(0, f"it has format {head.format}; this version of Baton reads up to {LOG_FORMAT}")
    return EventDecoder().read_all(lines[1:])
