"""Broadcast of task updates: one projection per run that this process drives, and any number of subscribers."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from time import time

from a2a.types.a2a_pb2 import Task

from ... import log as events
from ...errors import BatonError
from ...runs import BackgroundRunner
from .projection import TaskProjection, Update

_logger = logging.getLogger("baton.a2a")
_FLUSH_SECONDS = 0.1
_MAX_CHUNK = 600
_MAX_PENDING = 2000
_SETUP_EVENTS = (events.RunStarted, events.RunResumed, events.InterruptAnswered, events.AgentStarted)


class TaskSubscriber:
    """The pending updates of one subscriber.

    A slow subscriber is disconnected, because a client cannot detect a missing chunk of an artifact; it can subscribe
    again and begins with a snapshot. (The runner's `Subscriber` drops deltas instead.)
    """

    def __init__(self) -> None:
        self._pending: asyncio.Queue[Update | None] = asyncio.Queue()
        self.is_closed = False

    def put(self, update: Update | None) -> None:
        """Add an update."""
        if self.is_closed:
            return
        self.is_closed = update is None or self._pending.qsize() >= _MAX_PENDING
        self._pending.put_nowait(None if self.is_closed else update)

    async def next(self, timeout: float | None = None) -> Update | None:
        """Return the next update, or None at the end.

        Raises:
            TimeoutError: There was no update within `timeout`.
        """
        async with asyncio.timeout(timeout):
            return await self._pending.get()

    async def __aiter__(self) -> AsyncIterator[Update]:
        while (update := await self.next()) is not None:
            yield update


class TaskBroadcast:
    """The updates of one run that is driven here."""

    def __init__(
        self, background: BackgroundRunner, projection: TaskProjection, push: Callable[[Update], None]
    ) -> None:
        self.projection = projection
        self.subscribers: set[TaskSubscriber] = set()
        self.first_snapshot: asyncio.Future[Task] = asyncio.get_running_loop().create_future()
        """The task after the first event."""
        self.acted = asyncio.Event()
        """Set when an agent has acted, or the run has stopped."""
        self._background = background
        self._push = push
        self._texts: dict[str, tuple[events.Origin, list[str]]] = {}
        self._size = 0
        self._timer: asyncio.TimerHandle | None = None

    def subscribe(self, subscriber: TaskSubscriber) -> Task:
        """Add a subscriber and return the current state of the task."""
        self._flush()
        self.subscribers.add(subscriber)
        return self.projection.copy_task()

    async def run(self) -> None:
        """Broadcast updates until the run stops."""
        run_id = self.projection.task.id
        try:
            async for number, item in self._background.subscribe(run_id, after=self.projection.position):
                if isinstance(item, events.Delta):
                    self._handle_delta(item)
                elif number > self.projection.position:
                    self._flush()
                    # Some events of the log are not delivered.
                    self.projection.position = number - 1
                    updates = self.projection.apply(item)
                    self._set_first_snapshot()
                    for update in updates:
                        self._send(update)
                if not isinstance(item, _SETUP_EVENTS):
                    self.acted.set()
        except BatonError:
            _logger.exception("the updates of run `%s` can no longer be broadcast", run_id)
        finally:
            self._flush()
            self._set_first_snapshot()
            self.acted.set()

    def _set_first_snapshot(self) -> None:
        if not self.first_snapshot.done():
            self.first_snapshot.set_result(self.projection.copy_task())

    def _handle_delta(self, delta: events.Delta) -> None:
        match delta:
            case events.TextDelta():
                self._texts.setdefault(delta.origin.id, (delta.origin, []))[1].append(delta.text)
                self._size += len(delta.text)
                if self._size >= _MAX_CHUNK:
                    self._flush()
                elif self._timer is None:
                    self._timer = asyncio.get_running_loop().call_later(_FLUSH_SECONDS, self._flush)
            case events.ResponseRestarted():
                self._texts.pop(delta.origin.id, None)
                self.projection.discard_text(delta.origin)
            case events.ProgressDelta():
                self._send(self.projection.apply_progress(delta, time()))
            case events.ReasoningDelta() | events.ToolCallDelta() | events.CustomDelta():
                pass  # A2A has no update for these.
            case _:
                raise TypeError(f"A2A has no case for {type(delta).__name__}")

    def _flush(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        texts = self._texts
        self._texts = {}
        self._size = 0
        for origin, chunks in texts.values():
            self._send(self.projection.apply_text(origin, "".join(chunks)))

    def _send(self, update: Update | None) -> None:
        if update is not None:
            for subscriber in self.subscribers:
                subscriber.put(update)
            self._push(update)


class TaskBroadcasts:
    """The broadcasts of all runs that are driven here, and the subscribers of suspended runs."""

    def __init__(self, background: BackgroundRunner, push: Callable[[Update], None]) -> None:
        self._background = background
        self._push = push
        self._broadcasts: dict[str, TaskBroadcast] = {}
        self._waiting: dict[str, set[TaskSubscriber]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def get(self, run_id: str) -> TaskBroadcast | None:
        """Return the broadcast of a run that is driven here."""
        return self._broadcasts.get(run_id)

    def wait(self, run_id: str, subscriber: TaskSubscriber) -> None:
        """Subscribe to a suspended run in case it is resumed here."""
        self._waiting.setdefault(run_id, set()).add(subscriber)

    def unsubscribe(self, run_id: str, subscriber: TaskSubscriber) -> None:
        """Remove a subscriber."""
        waiting = self._waiting.get(run_id, set())
        waiting.discard(subscriber)
        if not waiting:
            self._waiting.pop(run_id, None)
        if (broadcast := self._broadcasts.get(run_id)) is not None:
            broadcast.subscribers.discard(subscriber)

    def start(self, projection: TaskProjection, subscriber: TaskSubscriber | None = None) -> TaskBroadcast:
        """Start to broadcast the updates of a run; call it once each time that the run is driven."""
        run_id = projection.task.id
        broadcast = self._broadcasts[run_id] = TaskBroadcast(self._background, projection, self._push)
        broadcast.subscribers |= self._waiting.pop(run_id, set()) | ({subscriber} if subscriber is not None else set())
        task = asyncio.create_task(self._run(run_id, broadcast), name=f"baton a2a {run_id}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return broadcast

    async def _run(self, run_id: str, broadcast: TaskBroadcast) -> None:
        try:
            await broadcast.run()
        finally:
            if self._broadcasts.get(run_id) is broadcast:
                del self._broadcasts[run_id]
            for subscriber in broadcast.subscribers:
                subscriber.put(None)

    async def close(self) -> None:
        """Wait until all broadcasts have ended, as they do when their runs stop."""
        if self._tasks:
            await asyncio.wait(self._tasks)
