"""One open websocket: what came in and went out on it, and when; and what is made to go wrong with it.

What can be made to go wrong on an open connection, and when. Each happens once, unless it says otherwise.
"""

import asyncio
import time
from base64 import b64decode
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any, TypeAlias

import msgspec
from aiohttp import WSMsgType, web
from msgspec import Struct
from tests.servers.realtime.conversation import new_id


class CutConnection(Struct, frozen=True):
    """The connection ends after the nth event of a type was sent, or before; without a code, it is torn."""

    at: str
    nth: int = 1
    before: bool = False
    code: int | None = None
    reason: str = ""


class DelayEvent(Struct, frozen=True):
    """The nth event of a type, and all after it, are sent so many seconds later."""

    at: str
    seconds: float
    nth: int = 1


class RepeatEvent(Struct, frozen=True):
    """The nth event of a type is sent twice; with `new_id`, as if it were another."""

    at: str
    nth: int = 1
    new_id: bool = False


class SwapEvents(Struct, frozen=True):
    """The nth event of a type is sent only after the one that follows it."""

    at: str
    nth: int = 1


class DropEvent(Struct, frozen=True):
    """The nth event of a type is never sent."""

    at: str
    nth: int = 1


class IgnoreCommand(Struct, frozen=True):
    """The nth command of a type is not carried out, and nothing is said about it."""

    command: str
    nth: int = 1


class RefuseCommand(Struct, frozen=True):
    """The nth command of a type is not carried out; an `error` event says so."""

    command: str
    code: str = "server_error"
    message: str = "scripted to be refused"
    kind: str = "server_error"
    nth: int = 1


SendingFault: TypeAlias = CutConnection | DelayEvent | RepeatEvent | SwapEvents | DropEvent
CommandFault: TypeAlias = IgnoreCommand | RefuseCommand
Fault: TypeAlias = SendingFault | CommandFault


class FaultPlan:
    """The faults that are still to come. Events are counted from when a fault is planned, over all connections."""

    def __init__(self, faults: Iterable[Fault] = ()) -> None:
        self._sending: list[tuple[SendingFault, list[int]]] = []
        self._commands: list[tuple[CommandFault, list[int]]] = []
        self.add(*faults)

    def add(self, *faults: Fault) -> None:
        """Let these happen too."""
        for fault in faults:
            if isinstance(fault, IgnoreCommand | RefuseCommand):
                self._commands.append((fault, [0]))
            else:
                self._sending.append((fault, [0]))

    @property
    def left(self) -> list[Fault]:
        """The faults that have not happened."""
        return [fault for fault, _ in (*self._sending, *self._commands)]

    def for_sending(self, kind: str) -> list[SendingFault]:
        """What goes wrong with the event of this type that is about to be sent."""
        due: list[SendingFault] = []
        for planned in list(self._sending):
            fault, seen = planned
            if fault.at == kind:
                seen[0] += 1
                if seen[0] == fault.nth:
                    self._sending.remove(planned)
                    due.append(fault)
        return due

    def for_command(self, kind: str) -> CommandFault | None:
        """What goes wrong with the command of this type that has just come."""
        due: CommandFault | None = None
        for planned in list(self._commands):
            fault, seen = planned
            if fault.command == kind:
                seen[0] += 1
                if seen[0] == fault.nth and due is None:
                    self._commands.remove(planned)
                    due = fault
        return due


_MOST_BYTES = 32 * 1024 * 1024
_TORN = 1006
_SOUND = "response.output_audio.delta"
_encode = msgspec.json.Encoder().encode


class RecordedEvent(Struct, frozen=True):
    """One event on the wire, at a time of this process's monotonic clock."""

    at: float
    type: str
    raw: bytes

    @property
    def event(self) -> dict[str, Any]:
        """The event itself."""
        return msgspec.json.decode(self.raw)


class ServedConnection:
    """A connection as the server sees it."""

    def __init__(self, plan: FaultPlan, *, record: bool = True) -> None:
        self.opened_at = time.monotonic()
        self.received: list[RecordedEvent] = []
        """Every event that came, in order, also those that were refused; without its bytes if nothing is recorded."""
        self.sent: list[RecordedEvent] = []
        """Every event that was sent, in order."""
        self.audio_sent: defaultdict[str, bytearray] = defaultdict(bytearray)
        """All the sound that was sent, byte by byte, by the item that it belongs to."""
        self.is_closed = False
        self.is_cut = False
        """Whether the server tore it or closed it because it was told to."""
        self.has_left = False
        """Whether the client was gone without a word."""
        self.close_code: int | None = None
        """The code that the client closed with, or the server; None as long as it is open."""
        self._plan = plan
        self._record = record
        self._websocket = web.WebSocketResponse(max_msg_size=_MOST_BYTES, compress=False, timeout=1.0)
        self._transport: asyncio.Transport | None = None
        self._turn = asyncio.Lock()
        self._held: dict[str, Any] | None = None
        self._news = asyncio.Event()

    async def accept(self, http: web.BaseRequest) -> web.WebSocketResponse:
        """Shake hands."""
        await self._websocket.prepare(http)
        self._transport = http.transport
        return self._websocket

    async def next_frame(self) -> bytes | None:
        """What the client sends next; None when nothing more will come."""
        message = await self._websocket.receive()
        if message.type in (WSMsgType.TEXT, WSMsgType.BINARY):
            return message.data.encode() if isinstance(message.data, str) else message.data
        return None

    def ended(self, *, by_server: bool) -> None:
        """Nothing more will come or go."""
        self.is_closed = True
        if self.close_code is None:
            self.close_code = self._websocket.close_code or _TORN
        self.has_left = self.close_code == _TORN and not (self.is_cut or by_server)
        self._tell_news()

    def note(self, kind: str, raw: bytes) -> None:
        """Put down what came."""
        self.received.append(RecordedEvent(time.monotonic(), kind, raw if self._record else b""))
        self._tell_news()

    async def tell(self, kind: str, **fields: Any) -> None:
        """Send one event, unless the plan is to do something else. ConnectionError if the line is gone."""
        event = {"type": kind, "event_id": new_id("event"), **fields}
        async with self._turn:
            faults = self._plan.for_sending(kind)
            for fault in faults:
                if isinstance(fault, DelayEvent):
                    await asyncio.sleep(fault.seconds)
                elif isinstance(fault, CutConnection) and fault.before:
                    await self._end(fault)
                elif isinstance(fault, DropEvent):
                    return
                elif isinstance(fault, SwapEvents):
                    self._held = event
                    return
            await self._write(event)
            for fault in faults:
                if isinstance(fault, RepeatEvent):
                    await self._write({**event, "event_id": new_id("event")} if fault.new_id else event)
            if self._held is not None:
                held, self._held = self._held, None
                await self._write(held)
            for fault in faults:
                if isinstance(fault, CutConnection):
                    await self._end(fault)

    async def cut(self) -> None:
        """Tear the connection without a word; what was sent before still arrives."""
        self.is_cut = True
        self.close_code = _TORN
        if self._transport is not None:
            self._transport.close()

    async def close(self, code: int = 1000, reason: str = "") -> None:
        """Close the connection in good order, with this code."""
        self.is_cut = True
        self.close_code = code
        with suppress(ConnectionError):
            await self._websocket.close(code=code, message=reason.encode())

    async def until_received(self, kind: str, nth: int = 1, *, within: float = 5.0) -> RecordedEvent:
        """The nth event of a type from the client, as soon as it is there; AssertionError if it is not in time."""
        return await self._until(lambda: self.received, kind, nth=nth, within=within)

    async def until_sent(self, kind: str, nth: int = 1, *, within: float = 5.0) -> RecordedEvent:
        """The nth event of a type from the server, as soon as it was sent; AssertionError if it is not in time."""
        return await self._until(lambda: self.sent, kind, nth=nth, within=within)

    async def until_closed(self, *, within: float = 5.0) -> int:
        """The code it was closed with, as soon as it is closed; 1006 if it was torn."""
        await self._waited(lambda: self.is_closed, within, "the connection was not closed")
        assert self.close_code is not None
        return self.close_code

    async def raw(self, text: str) -> None:
        """Send a text that need not be an event at all."""
        async with self._turn:
            await self._put("", text.encode())

    async def _write(self, event: dict[str, Any]) -> None:
        await self._put(event["type"], _encode(event), event)

    async def _put(self, kind: str, raw: bytes, event: Mapping[str, Any] | None = None) -> None:
        if self.is_cut or self._websocket.closed:
            raise ConnectionResetError("the connection is gone")
        if kind == _SOUND and event is not None:
            self.audio_sent[event["item_id"]] += b64decode(event["delta"])
        self.sent.append(RecordedEvent(time.monotonic(), kind, raw if self._record else b""))
        self._tell_news()
        await self._websocket.send_str(raw.decode())

    async def _end(self, fault: CutConnection) -> None:
        if fault.code is None:
            await self.cut()
        else:
            await self.close(fault.code, fault.reason)
        raise ConnectionResetError("cut as planned")

    async def _until(
        self, events: Callable[[], list[RecordedEvent]], kind: str, *, nth: int, within: float
    ) -> RecordedEvent:
        def found() -> list[RecordedEvent]:
            return [recorded for recorded in events() if recorded.type == kind]

        await self._waited(lambda: len(found()) >= nth, within, f"there was no {nth}. `{kind}`")
        return found()[nth - 1]

    async def _waited(self, is_so: Callable[[], bool], within: float, what: str) -> None:
        try:
            async with asyncio.timeout(within):
                while not is_so():
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError:
            there = ", ".join(recorded.type for recorded in self.received[-20:])
            raise AssertionError(f"{what} within {within:g} s; the last that came: {there or 'nothing'}") from None

    def _tell_news(self) -> None:
        self._news.set()
