"""Events and deltas across processes: one channel of the store tells watchers of a run what its driver does.

Processes that watch runs say so on the channel, and the process that drives such a run answers with the number of
events that it has stored, and with deltas. Nothing is sent for runs that no one watches elsewhere. Messages may be
lost: the log is the truth, and watchers poll the store as well.
"""

import asyncio
import logging
import os
from collections import deque
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from time import monotonic

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from ...errors import StoreError
from ...log import Delta, ReasoningDelta, TextDelta, encode_event
from ...stores import Store, SupportsChannel
from ...stores.parts import innermost_store

_logger = logging.getLogger("baton.runner")
MAX_PAYLOAD = 7900
"""The largest message in bytes; PostgreSQL allows 7,999."""
FLUSH_SECONDS = 0.05
"""Seconds between two messages about a run."""
_ANNOUNCE_SECONDS = 10.0
_INTEREST_SECONDS = 30.0
_MAX_PENDING = 1024
_MAX_BACKOFF = 30.0
_MAX_PIECE = 1500
"""The largest text of one delta in a message; in JSON a character may take up to four times its bytes."""


class RelayMessage(Struct, frozen=True, omit_defaults=True):
    """A message on the channel."""

    sender: str
    """The process that sent it."""
    watched: tuple[str, ...] = ()
    """Runs that the sender watches."""
    stored: dict[str, int] = {}
    """The number of stored events of runs that the sender drives."""
    run_id: str = ""
    """The run that the deltas belong to."""
    deltas: tuple[tuple[int, msgspec.Raw], ...] = ()
    """Deltas with the number of the event before them."""
    asks: bool = False
    """True if the sender asks which runs are watched."""


_decoder = msgspec.json.Decoder(RelayMessage)


class Watcher:
    """The messages of the channel about one watched run."""

    def __init__(self) -> None:
        self.is_relayed = False
        """True once the driver has answered: it tells of every change."""
        self.deltas: deque[tuple[int, bytes]] = deque(maxlen=_MAX_PENDING)
        """Encoded deltas with the number of the event before them."""
        self._changed = asyncio.Event()

    def wake(self) -> None:
        """End the wait."""
        self._changed.set()

    async def wait(self, seconds: float) -> None:
        """Wait for a message about the run, at most some seconds."""
        try:
            async with asyncio.timeout(seconds):
                await self._changed.wait()
        except TimeoutError:
            return
        finally:
            self._changed.clear()


class RunRelay:
    """The channel of a store, for the runs that a runner drives and watches."""

    def __init__(self, store: Store) -> None:
        self.is_live = False
        """True while this process listens to the channel."""
        keeper = innermost_store(store)
        self._channel = keeper if isinstance(keeper, SupportsChannel) else None
        self._sender = ""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._listening: set[asyncio.Task[None]] = set()
        """The tasks from `start` to `close`."""
        self._publishing: set[asyncio.Task[None]] = set()
        self._watchers: dict[str, set[Watcher]] = {}
        self._interest: dict[str, float] = {}
        """The runs that other processes watch, and until when they do."""
        self._driven: dict[str, int] = {}
        """The number of stored events of the runs that are driven here."""
        self._changed: dict[str, int] = {}
        self._deltas: dict[str, list[tuple[int, Delta]]] = {}
        """Deltas that are sent next, by run."""
        self._partial: dict[str, list[tuple[int, Delta]]] = {}
        """Deltas since the last stored event of each run, for those who begin to watch it."""
        self._flush_timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Listen to the channel until the event loop ends or `close`; safe to call again."""
        loop = asyncio.get_running_loop()
        if self._channel is None or (self._loop is loop and self._listening):
            return
        # A new name for each event loop: it may be that of a forked process.
        self._loop = loop
        self._flush_timer = None
        self._publishing = set()
        self._sender = os.urandom(8).hex()
        self._listening = {
            asyncio.create_task(self._listen(self._channel), name="baton relay"),
            asyncio.create_task(self._announce_often(), name="baton relay announcements"),
        }

    async def close(self) -> None:
        """Send what watchers have not been told yet, and stop listening."""
        listening = self._listening
        self._listening = set()
        if self._loop is asyncio.get_running_loop():
            if self._flush_timer is not None:
                self._flush_timer.cancel()
                self._flush()
            for task in listening:
                task.cancel()
            if tasks := listening | self._publishing:
                await asyncio.wait(tasks)
        self._loop = None
        self.is_live = False

    @contextmanager
    def watching(self, run_id: str) -> Generator[Watcher]:
        """Receive messages about a run in the block."""
        watcher = Watcher()
        self._watchers.setdefault(run_id, set()).add(watcher)
        self.start()
        if self._channel is not None:
            self._spawn([RelayMessage(self._sender, watched=(run_id,))])
        try:
            yield watcher
        finally:
            watchers = self._watchers[run_id]
            watchers.discard(watcher)
            if not watchers:
                del self._watchers[run_id]

    def drive(self, run_id: str, count: int) -> None:
        """Tell watchers of this run from now on, which has some stored events."""
        self._driven[run_id] = count

    def leave(self, run_id: str) -> None:
        """Tell watchers of this run no more."""
        self._driven.pop(run_id, None)
        self._deltas.pop(run_id, None)
        self._partial.pop(run_id, None)

    def is_watched(self, run_id: str) -> bool:
        """Return whether another process watches a run that is driven here."""
        return bool(self._interest) and run_id in self._driven and self._interest.get(run_id, 0.0) > monotonic()

    def stored(self, run_id: str, count: int) -> None:
        """Tell watchers that the run has so many stored events."""
        self._driven[run_id] = count
        if run_id in self._partial:
            self._partial[run_id] = [item for item in self._partial[run_id] if item[0] >= count]
        for watcher in self._watchers.get(run_id, ()):
            watcher.wake()
        if self.is_watched(run_id):
            self._changed[run_id] = count
            self._schedule()

    def put(self, run_id: str, number: int, delta: Delta) -> None:
        """Send a delta to watchers, together with those of the next moment."""
        _add(self._partial.setdefault(run_id, []), number, delta)
        if self.is_watched(run_id):
            _add(self._deltas.setdefault(run_id, []), number, delta)
            self._schedule()

    def _schedule(self) -> None:
        if self._flush_timer is None and self._loop is not None:
            self._flush_timer = self._loop.call_later(FLUSH_SECONDS, self._flush)

    def _flush(self) -> None:
        self._flush_timer = None
        counts = self._changed
        deltas = self._deltas
        self._changed = {}
        self._deltas = {}
        messages = [RelayMessage(self._sender, stored=part) for part in _split(counts)]
        for run_id, pending in deltas.items():
            messages += [RelayMessage(self._sender, run_id=run_id, deltas=part) for part in _pack(run_id, pending)]
        if messages:
            self._spawn(messages)

    def _spawn(self, messages: Sequence[RelayMessage]) -> None:
        task = asyncio.ensure_future(self._publish(messages))
        self._publishing.add(task)
        task.add_done_callback(self._publishing.discard)

    async def _publish(self, messages: Sequence[RelayMessage]) -> None:
        if self._channel is None or not messages:
            return
        encoded = [msgspec.json.encode(message).decode() for message in messages]
        try:
            await self._channel.publish([text for text in encoded if len(text.encode()) <= MAX_PAYLOAD])
        except StoreError:
            # Watchers poll the store.
            _logger.debug("could not send to the channel of the store", exc_info=True)

    async def _announce_often(self) -> None:
        while True:
            await asyncio.sleep(_ANNOUNCE_SECONDS)
            await self._announce()

    async def _announce(self) -> None:
        """Say which runs are watched here, and forget those that others no longer watch."""
        now = monotonic()
        self._interest = {run_id: until for run_id, until in self._interest.items() if until > now}
        await self._publish([RelayMessage(self._sender, watched=tuple(part)) for part in self._watched_parts()])

    def _watched_parts(self) -> Sequence[dict[str, int]]:
        return _split(dict.fromkeys(self._watchers, 0))

    async def _listen(self, channel: SupportsChannel) -> None:
        pause = 1.0
        while True:
            try:
                async for text in channel.listen():
                    pause = 1.0
                    if text:
                        self._receive(text)
                    else:
                        self.is_live = True
                        await self._publish([RelayMessage(self._sender, asks=True)])
                        await self._announce()
            except Exception:
                # Whatever fails, watchers poll the store.
                _logger.warning("lost the channel of the store; polling it meanwhile", exc_info=True)
            self.is_live = False
            for watchers in self._watchers.values():
                for watcher in watchers:
                    watcher.is_relayed = False
            await asyncio.sleep(pause)
            pause = min(pause * 2, _MAX_BACKOFF)

    def _receive(self, text: str) -> None:
        try:
            message = _decoder.decode(text)
        except msgspec.MsgspecError:
            _logger.debug("the channel of the store has a message that is not of this version")
            return
        if message.sender == self._sender:
            return
        if message.asks:
            self._spawn([RelayMessage(self._sender, watched=tuple(part)) for part in self._watched_parts()])
        for run_id in message.watched:
            is_new = not self.is_watched(run_id)
            self._interest[run_id] = monotonic() + _INTEREST_SECONDS
            if run_id in self._driven:
                self._changed[run_id] = self._driven[run_id]
                if is_new and run_id in self._partial:
                    self._deltas[run_id] = [*self._partial[run_id]]
                self._schedule()
        for run_id in message.stored:
            for watcher in self._watchers.get(run_id, ()):
                watcher.is_relayed = True
                watcher.wake()
        for watcher in self._watchers.get(message.run_id, ()) if message.deltas else ():
            watcher.is_relayed = True
            watcher.deltas.extend([(number, bytes(delta)) for number, delta in message.deltas])
            watcher.wake()


def _split(counts: dict[str, int]) -> list[dict[str, int]]:
    """Split runs so that each part fits into a message."""
    parts: list[dict[str, int]] = []
    size = MAX_PAYLOAD
    for run_id, count in counts.items():
        length = 24 + len(msgspec.json.encode(run_id))
        if size + length > MAX_PAYLOAD - 200:
            parts.append({})
            size = 0
        parts[-1][run_id] = count
        size += length
    return parts


def _pack(run_id: str, pending: Sequence[tuple[int, Delta]]) -> list[tuple[tuple[int, msgspec.Raw], ...]]:
    """Encode deltas so that each part fits into a message; one that is too large is left out."""
    parts: list[list[tuple[int, msgspec.Raw]]] = []
    most = MAX_PAYLOAD - 200 - len(msgspec.json.encode(run_id))
    size = MAX_PAYLOAD
    for number, delta in pending:
        for piece in _pieces(delta):
            encoded = encode_event(piece)
            if len(encoded) > most:
                continue
            if size + len(encoded) + 16 > most:
                parts.append([])
                size = 0
            parts[-1].append((number, msgspec.Raw(encoded)))
            size += len(encoded) + 16
    return [tuple(part) for part in parts]


def _add(pending: list[tuple[int, Delta]], number: int, delta: Delta) -> None:
    """Add a delta to others; beyond a limit it is left out."""
    if pending and pending[-1][0] == number and (joined := _join(pending[-1][1], delta)) is not None:
        pending[-1] = (number, joined)
    elif len(pending) < _MAX_PENDING:
        pending.append((number, delta))


def _join(last: Delta, delta: Delta) -> Delta | None:
    """Join the text of two deltas of one activation; None if they do not fit together."""
    if last.origin is not delta.origin or not isinstance(last, TextDelta | ReasoningDelta):
        return None
    if not isinstance(delta, type(last)) or len(last.text) > _MAX_PIECE:
        return None
    return replace(last, text=last.text + delta.text)


def _pieces(delta: Delta) -> Sequence[Delta]:
    if isinstance(delta, TextDelta | ReasoningDelta) and len(delta.text) > _MAX_PIECE:
        text = delta.text
        return [replace(delta, text=text[at : at + _MAX_PIECE]) for at in range(0, len(text), _MAX_PIECE)]
    return [delta]
