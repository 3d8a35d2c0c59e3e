"""One open websocket: its events in both directions, and faults that are injected into it."""

import asyncio
import time
from base64 import b64decode
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any, TypeAlias
from uuid import uuid4

import msgspec
from aiohttp import WSMsgType, web
from msgspec import Struct
from tests.waiting import PATIENCE


def new_id(kind: str) -> str:
    """Return a new id that starts with `kind`."""
    return f"{kind}_{uuid4().hex[:20]}"


class CutConnection(Struct, frozen=True):
    """End the connection after the nth event of a type, or before it.

    With a code the connection is closed with it, otherwise it is aborted.
    """

    at: str
    nth: int = 1
    before: bool = False
    code: int | None = None
    reason: str = ""


class DelayEvent(Struct, frozen=True):
    """Delay the nth event of a type, and all events after it."""

    at: str
    seconds: float
    nth: int = 1


class RepeatEvent(Struct, frozen=True):
    """Send the nth event of a type twice; with `new_id`, the second time under another event id."""

    at: str
    nth: int = 1
    new_id: bool = False


class SwapEvents(Struct, frozen=True):
    """Send the nth event of a type after the event that follows it."""

    at: str
    nth: int = 1


class DropEvent(Struct, frozen=True):
    """Do not send the nth event of a type."""

    at: str
    nth: int = 1


class IgnoreCommand(Struct, frozen=True):
    """Do not execute the nth command of a type, and send nothing about it."""

    command: str
    nth: int = 1


class RefuseCommand(Struct, frozen=True):
    """Do not execute the nth command of a type, and send an `error` event."""

    command: str
    code: str = "server_error"
    message: str = "scripted to be refused"
    kind: str = "server_error"
    nth: int = 1


SendingFault: TypeAlias = CutConnection | DelayEvent | RepeatEvent | SwapEvents | DropEvent
CommandFault: TypeAlias = IgnoreCommand | RefuseCommand
Fault: TypeAlias = SendingFault | CommandFault


class FaultPlan:
    """The faults that have not happened yet.

    The events of all connections are counted, starting when a fault is added.
    """

    def __init__(self, faults: Iterable[Fault] = ()) -> None:
        self._sending: list[tuple[SendingFault, list[int]]] = []
        self._commands: list[tuple[CommandFault, list[int]]] = []
        self.add(*faults)

    def add(self, *faults: Fault) -> None:
        """Add faults."""
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
        """Count an event that is about to be sent, and return its faults."""
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
        """Count a command that was received, and return its fault, if any."""
        due: CommandFault | None = None
        for planned in list(self._commands):
            fault, seen = planned
            if fault.command == kind:
                seen[0] += 1
                if seen[0] == fault.nth and due is None:
                    self._commands.remove(planned)
                    due = fault
        return due


_MAX_BYTES = 32 * 1024 * 1024
_ABORTED = 1006
_AUDIO_DELTA = "response.output_audio.delta"
_encode = msgspec.json.Encoder().encode


class RecordedEvent(Struct, frozen=True):
    """One event on the wire, with the time of the monotonic clock."""

    at: float
    type: str
    raw: bytes

    @property
    def event(self) -> dict[str, Any]:
        """The decoded event."""
        return msgspec.json.decode(self.raw)


class ServedConnection:
    """The server's side of a websocket.

    Events are queued, and a task writes them in order, so that sending never waits.
    """

    def __init__(self, plan: FaultPlan, *, record: bool = True) -> None:
        self.opened_at = time.monotonic()
        self.received: list[RecordedEvent] = []
        """All events received, in order, including rejected ones; without their bytes if nothing is recorded."""
        self.sent: list[RecordedEvent] = []
        """All events sent, in order."""
        self.audio_sent: defaultdict[str, bytearray] = defaultdict(bytearray)
        """All audio sent, by item id."""
        self.is_closed = False
        self.is_cut = False
        """True if the server ended the connection because a test or a fault said so."""
        self.has_left = False
        """True if the client disconnected without closing the websocket."""
        self.close_code: int | None = None
        """Close code of either side; None while the connection is open."""
        self._plan = plan
        self._record = record
        self._websocket = web.WebSocketResponse(max_msg_size=_MAX_BYTES, compress=False, timeout=1.0)
        self._transport: asyncio.Transport | None = None
        self._outbox: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue()
        """Events to be written; None cuts the connection."""
        self._writer: asyncio.Task[None] | None = None
        self._held: dict[str, Any] | None = None
        self._changed = asyncio.Event()

    async def accept(self, http: web.BaseRequest) -> web.WebSocketResponse:
        """Perform the handshake and start to write."""
        await self._websocket.prepare(http)
        self._transport = http.transport
        self._writer = asyncio.create_task(self._write_queued())
        return self._websocket

    async def next_frame(self) -> bytes | None:
        """Wait for the next frame of the client; return None if the connection has ended."""
        message = await self._websocket.receive()
        if message.type in (WSMsgType.TEXT, WSMsgType.BINARY):
            return message.data.encode() if isinstance(message.data, str) else message.data
        return None

    def ended(self, *, by_server: bool) -> None:
        """Handle the end of the connection."""
        self.is_closed = True
        if self._writer is not None:
            self._writer.cancel()
        if self.close_code is None:
            self.close_code = self._websocket.close_code or _ABORTED
        self.has_left = self.close_code == _ABORTED and not (self.is_cut or by_server)
        self._changed.set()

    def record(self, kind: str, raw: bytes) -> None:
        """Record an event of the client."""
        self.received.append(RecordedEvent(time.monotonic(), kind, raw if self._record else b""))
        self._changed.set()

    def send_event(self, kind: str, fields: Mapping[str, Any]) -> None:
        """Queue an event to be sent."""
        self._outbox.put_nowait({"type": kind, "event_id": new_id("event"), **fields})

    def cut_after_events(self) -> None:
        """Cut the connection once the queued events are sent."""
        self._outbox.put_nowait(None)

    async def drain(self) -> None:
        """Wait until the queued events are sent."""
        await self._outbox.join()

    async def abort(self) -> None:
        """Abort the connection at once; events sent before still arrive."""
        self.is_cut = True
        self.close_code = _ABORTED
        if self._transport is not None:
            self._transport.close()

    async def close(self, code: int = 1000, reason: str = "") -> None:
        """Close the connection with a code."""
        self.is_cut = True
        self.close_code = code
        with suppress(ConnectionError):
            await self._websocket.close(code=code, message=reason.encode())

    async def until_received(self, kind: str, nth: int = 1, *, within: float = PATIENCE) -> RecordedEvent:
        """Wait for the nth event of a type from the client. Raises AssertionError on timeout."""
        return await self._until(lambda: self.received, kind, nth=nth, within=within)

    async def until_sent(self, kind: str, nth: int = 1, *, within: float = PATIENCE) -> RecordedEvent:
        """Wait until the nth event of a type was sent. Raises AssertionError on timeout."""
        return await self._until(lambda: self.sent, kind, nth=nth, within=within)

    async def until_closed(self, *, within: float = PATIENCE) -> int:
        """Wait until the connection is closed, and return the close code; 1006 if it was aborted."""
        await self._wait(lambda: self.is_closed, within, "the connection was not closed")
        assert self.close_code is not None
        return self.close_code

    async def raw(self, text: str) -> None:
        """Send text that need not be a valid event."""
        await self.drain()
        await self._put("", text.encode())

    async def _write_queued(self) -> None:
        with suppress(ConnectionError):
            while (event := await self._outbox.get()) is not None:
                await self._write_with_faults(event)
                self._outbox.task_done()
            await self.abort()

    async def _write_with_faults(self, event: dict[str, Any]) -> None:
        faults = self._plan.for_sending(event["type"])
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

    async def _write(self, event: dict[str, Any]) -> None:
        if self.is_cut or self._websocket.closed:
            raise ConnectionResetError("the connection is closed")
        if event["type"] == _AUDIO_DELTA:
            self.audio_sent[event["item_id"]] += b64decode(event["delta"])
        await self._put(event["type"], _encode(event))

    async def _put(self, kind: str, raw: bytes) -> None:
        self.sent.append(RecordedEvent(time.monotonic(), kind, raw if self._record else b""))
        self._changed.set()
        await self._websocket.send_str(raw.decode())

    async def _end(self, fault: CutConnection) -> None:
        if fault.code is None:
            await self.abort()
        else:
            await self.close(fault.code, fault.reason)
        raise ConnectionResetError("cut as planned")

    async def _until(
        self, events: Callable[[], list[RecordedEvent]], kind: str, *, nth: int, within: float
    ) -> RecordedEvent:
        def found() -> list[RecordedEvent]:
            return [recorded for recorded in events() if recorded.type == kind]

        await self._wait(lambda: len(found()) >= nth, within, f"there was no {nth}. `{kind}`")
        return found()[nth - 1]

    async def _wait(self, is_so: Callable[[], bool], within: float, what: str) -> None:
        try:
            async with asyncio.timeout(within):
                while not is_so():
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            there = ", ".join(recorded.type for recorded in self.received[-20:])
            raise AssertionError(f"{what} within {within:g} s; the last events: {there or 'none'}") from None
