"""JSON encoding of events: one line per event, after a header line that names the format.

An origin is encoded as [activation id, agent, parent activation id], so that the size of a line does not depend on the
length of the path. Events of unknown classes are kept as they were read.
"""

from collections.abc import Iterable, Sequence
from typing import Any, cast

import msgspec

from ..errors import LogError, NotEncodableError
from .event import RUN_ORIGIN, Delta, Event, Origin
from .events import AnyEvent, KnownDelta, KnownEvent, UnknownEvent

READER_VERSION = 1
"""The events that this version of Baton knows: raised with every new event, and recorded in `RunRecord.reader`."""
LOG_FORMAT = 2
"""The version of the log format that this version of Baton writes and reads."""

_UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
_KNOWN_TYPES = frozenset(kind.__name__ for kind in KnownEvent.__args__)


class _Header(msgspec.Struct):
    format: int


class _EventHead(msgspec.Struct):
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
    """Encode an event or delta as one line of JSON, without the line break.

    Args:
        event: The event.

    Raises:
        NotEncodableError: It holds a value that JSON cannot represent.
    """
    if isinstance(event, UnknownEvent):
        return bytes(event.raw)
    try:
        return _encoder.encode(event)
    except (TypeError, NotImplementedError, UnicodeEncodeError, RecursionError, msgspec.MsgspecError) as error:
        raise NotEncodableError(f"{type(event).__name__} event", event, str(error)) from None


def encode_header() -> bytes:
    """Encode the first line of a log, which names the format."""
    return _encoder.encode(_Header(LOG_FORMAT))


def encode_log(events: Iterable[Event]) -> bytes:
    """Encode a whole log: the header line, then a line for each event.

    Args:
        events: The events of one run.
    """
    lines = [encode_header(), *map(encode_event, events)]
    return b"\n".join(lines) + b"\n"


class EventDecoder:
    """A decoder for the events of one log, in order; events of an activation share their origin."""

    def __init__(self) -> None:
        self._decoder = msgspec.json.Decoder(KnownEvent, dec_hook=self._decode_special)
        self._list_decoder = msgspec.json.Decoder(list[KnownEvent], dec_hook=self._decode_special)
        self._count = 0
        self._known: Sequence[Origin] = ()
        self._origins: dict[str, Origin] = {}
        self.restart()

    def restart(self, known: Sequence[Origin] = (), *, count: int = 0) -> None:
        """Begin with another log.

        Args:
            known: Origins of earlier events, if these are not read.
            count: The number of those events.
        """
        self._known = known
        self._count = count
        self._forget_origins()

    def _forget_origins(self) -> None:
        self._origins = {RUN_ORIGIN.id: RUN_ORIGIN, **{origin.id: origin for origin in self._known}}

    def read_all(self, lines: Sequence[bytes]) -> list[Event]:
        """Decode several lines.

        Args:
            lines: The next lines of the log.

        Raises:
            LogError: A line is not an event.
        """
        # One call is several times cheaper than one per line. Whatever it cannot read is read line by line.
        try:
            events = self._list_decoder.decode(b"[" + b",".join(lines) + b"]")
        except _UNREADABLE:
            events = []
        if len(events) == len(lines):
            self._count += len(lines)
            return cast("list[Event]", events)
        self._forget_origins()
        return [self.read(line) for line in lines]

    def read(self, line: bytes | str) -> Event:
        """Decode one line.

        Args:
            line: The next line of the log.

        Raises:
            LogError: The line is not an event.
        """
        position = self._count
        self._count = self._count + 1
        try:
            return self._decoder.decode(line)
        except _UNREADABLE as error:
            return self._read_unknown(line, position, error)

    def read_delta(self, line: bytes) -> Delta:
        """Decode a delta of the same run, which is not part of the log.

        Args:
            line: The delta, as `encode_event` wrote it.

        Raises:
            LogError: It is not a delta that this version knows.
        """
        try:
            return msgspec.json.Decoder(KnownDelta, dec_hook=self._decode_special).decode(line)
        except _UNREADABLE as error:
            raise LogError(self._count, str(error)) from None

    def _read_unknown(self, line: bytes | str, position: int, error: Exception) -> Event:
        try:
            head = msgspec.json.decode(line, type=_EventHead)
        except _UNREADABLE:
            raise LogError(position, str(error)) from None
        if head.type in _KNOWN_TYPES:
            raise LogError(position, str(error)) from None
        raw = msgspec.Raw(line.encode() if isinstance(line, str) else bytes(line))
        return UnknownEvent(head.key, self._origin(*head.origin), head.timestamp, head.type, raw)

    def _origin(self, id: str, agent: str, parent: str | None) -> Origin:
        known = self._origins.get(id)
        if known is None:
            before = self._origins.get(parent) if parent is not None else None
            known = self._origins[id] = Origin(id, agent, before)
        return known

    def _decode_special(self, kind: type, value: Any) -> Any:
        if kind is Origin:
            # Nearly always a known origin, which need not be validated again.
            if type(value) is list and value and value[0] in self._origins:
                return self._origins[value[0]]
            return self._origin(*msgspec.convert(value, tuple[str, str, str | None]))
        raise NotImplementedError(kind)


def decode_event(line: bytes | str) -> Event:
    """Decode a single event; its path has only the agents that the line itself names.

    Args:
        line: The line, as `encode_event` wrote it.

    Raises:
        LogError: The line is not an event.
    """
    return EventDecoder().read(line)


def decode_log(data: bytes) -> list[Event]:
    """Decode a log that was written by `encode_log`.

    Args:
        data: The whole log.

    Raises:
        LogError: The log is damaged or has another format; it names the position.
    """
    lines = data.split(b"\n")
    if lines[-1]:
        raise LogError(len(lines) - 2, "the last line is cut off")
    return decode_lines(lines[:-1])


def decode_lines(lines: Sequence[bytes]) -> list[Event]:
    """Decode a log that is split into lines.

    Args:
        lines: The header line and the event lines, without line breaks.

    Raises:
        LogError: The log is damaged or has another format; it names the position.
    """
    try:
        header = msgspec.json.decode(lines[0] if lines else b"", type=_Header)
    except _UNREADABLE:
        raise LogError(0, "it does not start with a line that names its format") from None
    if header.format < LOG_FORMAT:
        written = "written by a version before the first release"
        raise LogError(0, f"it has format {header.format}, {written}; this version reads format {LOG_FORMAT}")
    if header.format > LOG_FORMAT:
        hint = f"this version of Baton reads format {LOG_FORMAT}; install a newer version"
        raise LogError(0, f"it has format {header.format}; {hint}")
    return decode_tail(lines[1:])


def decode_tail(lines: Sequence[bytes], origins: Sequence[Origin] = (), *, count: int = 0) -> list[Event]:
    """Decode the last lines of a log.

    Raises:
        LogError: The log is damaged; it names the position.
    """
    # Making the decoder of all events costs more than reading a short log.
    try:
        decoder = _free_decoders.pop()
    except IndexError:
        decoder = EventDecoder()
    try:
        decoder.restart(origins, count=count)
        return decoder.read_all(lines)
    finally:
        decoder.restart()
        _free_decoders.append(decoder)


_free_decoders: list[EventDecoder] = []
"""Decoders that no thread uses at the moment."""


def require_known_events(events: Sequence[Event]) -> Sequence[AnyEvent]:
    """Check that this version knows every event; resuming and replaying require it.

    Returns:
        The same events.

    Raises:
        LogError: The log holds an `UnknownEvent`; it names the event type and the position.
    """
    for position, event in enumerate(events):
        if type(event) is UnknownEvent:
            raise LogError(
                position,
                f"this version of Baton does not know the event type `{event.event_type}`; "
                "install the version that wrote the log, or a newer one",
            )
    return cast("Sequence[AnyEvent]", events)
