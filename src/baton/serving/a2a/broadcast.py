"""Passes on what happens in the runs that this process drives: text in chunks, everything to everybody who listens."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from time import time

from a2a.types.a2a_pb2 import Task, TaskStatusUpdateEvent

from ...errors import BatonError
from ...events import AgentStarted, Delta, InterruptAnswered, Origin, ProgressDelta, RunResumed, RunStarted, TextDelta
from ...runner import BackgroundRunner
from .projection import TaskProjection, Update

_logger = logging.getLogger("baton.a2a")
_LONGEST_WAIT = 0.1
_LARGEST_CHUNK = 600
_MOST_WAITING = 2000
_OPENINGS = (RunStarted, RunResumed, InterruptAnswered, AgentStarted)


class TaskSubscriber:
    """One listener. One that is too slow is left behind: it can subscribe again, and begins with a snapshot."""

    def __init__(self) -> None:
        self._waiting: asyncio.Queue[Update | None] = asyncio.Queue()
        self.is_closed = False

    def hear(self, update: Update | None) -> None:
        """Take one update, or None: no more will come for now."""
        if self.is_closed:
            return
        self.is_closed = update is None or self._waiting.qsize() >= _MOST_WAITING
        self._waiting.put_nowait(None if self.is_closed else update)

    async def next(self, patience: float | None = None) -> Update | None:
        """The next update; None if no more will come. Raises TimeoutError if that takes longer than `patience`."""
        async with asyncio.timeout(patience):
            return await self._waiting.get()


class TaskBroadcast:
    """One run under way here, and those who listen to it."""

    def __init__(self, hub: BackgroundRunner, telling: TaskProjection, push: Callable[[Update], None]) -> None:
        self.telling = telling
        self.ears: set[TaskSubscriber] = set()
        self.begun = asyncio.Event()
        """Set when something of the run has been heard."""
        self.opening: Task | None = None
        """How the task stood then."""
        self.acted = asyncio.Event()
        """Set when an agent has done something in the run, or it has stopped."""
        self._hub = hub
        self._push = push
        self._texts: dict[str, tuple[Origin, list[str]]] = {}
        self._size = 0
        self._timer: asyncio.TimerHandle | None = None

    def snapshot(self, ear: TaskSubscriber) -> Task:
        """How the task stands now; from here on, the ear is told everything."""
        self._flush()
        self.ears.add(ear)
        return copied(self.telling)

    async def run(self) -> None:
        """Read along until the run stops."""
        run_id = self.telling.task.id
        try:
            async for number, item in self._hub.subscribe(run_id, after=self.telling.heard):
                if isinstance(item, Delta):
                    self._hear_delta(item)
                elif number > self.telling.heard:
                    self._flush()
                    # Events that nobody is told are in the log all the same.
                    self.telling.heard = number - 1
                    updates = self.telling.hear(item)
                    if self.opening is None:
                        self.opening = copied(self.telling)
                        self.begun.set()
                    for update in updates:
                        self._tell(update)
                if not isinstance(item, _OPENINGS):
                    self.acted.set()
        except BatonError:
            _logger.exception("what happens in run `%s` cannot be passed on any more", run_id)
        finally:
            self._flush()
            self.opening = self.opening or copied(self.telling)
            self.begun.set()
            self.acted.set()

    def _hear_delta(self, delta: Delta) -> None:
        if isinstance(delta, TextDelta):
            self._texts.setdefault(delta.origin.id, (delta.origin, []))[1].append(delta.text)
            self._size += len(delta.text)
            if self._size >= _LARGEST_CHUNK:
                self._flush()
            elif self._timer is None:
                self._timer = asyncio.get_running_loop().call_later(_LONGEST_WAIT, self._flush)
        elif isinstance(delta, ProgressDelta):
            update = self.telling.hear_progress(delta, time())
            if update is not None:
                self._tell(update)

    def _flush(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        texts, self._texts, self._size = self._texts, {}, 0
        for origin, pieces in texts.values():
            update = self.telling.hear_text(origin, "".join(pieces))
            if update is not None:
                self._tell(update)

    def _tell(self, update: Update) -> None:
        for ear in self.ears:
            ear.hear(update)
        self._push(update)


class TaskBroadcasts:
    """All of them, by run; and those who wait for a run that has stopped to go on."""

    def __init__(self, hub: BackgroundRunner, push: Callable[[Update], None]) -> None:
        self._hub = hub
        self._push = push
        self._relays: dict[str, TaskBroadcast] = {}
        self._waiting: dict[str, set[TaskSubscriber]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def get(self, run_id: str) -> TaskBroadcast | None:
        """The relay of a run that is under way here."""
        return self._relays.get(run_id)

    def wait(self, run_id: str, ear: TaskSubscriber) -> None:
        """Have an ear told when a run that has stopped goes on here."""
        self._waiting.setdefault(run_id, set()).add(ear)

    def leave(self, run_id: str, ear: TaskSubscriber) -> None:
        """Tell an ear no more."""
        waiting = self._waiting.get(run_id)
        if waiting is not None:
            waiting.discard(ear)
            if not waiting:
                del self._waiting[run_id]
        relay = self._relays.get(run_id)
        if relay is not None:
            relay.ears.discard(ear)

    def begin(self, telling: TaskProjection, ear: TaskSubscriber | None = None) -> TaskBroadcast:
        """Pass on what happens in a run from where it has been told to. Not to be called twice for one drive."""
        run_id = telling.task.id
        relay = self._relays[run_id] = TaskBroadcast(self._hub, telling, self._push)
        relay.ears |= self._waiting.pop(run_id, set()) | ({ear} if ear is not None else set())
        task = asyncio.create_task(self._run(run_id, relay), name=f"baton a2a {run_id}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return relay

    def tell_of(self, telling: TaskProjection) -> None:
        """Tell webhooks how a task has ended that nobody was driving."""
        task = telling.task
        self._push(TaskStatusUpdateEvent(task_id=task.id, context_id=task.context_id, status=task.status))

    async def _run(self, run_id: str, relay: TaskBroadcast) -> None:
        try:
            await relay.run()
        finally:
            if self._relays.get(run_id) is relay:
                del self._relays[run_id]
            for ear in relay.ears:
                ear.hear(None)

    async def close(self) -> None:
        """Return when all have ended: they do when their runs stop."""
        if self._tasks:
            await asyncio.wait(self._tasks)


async def told(ear: TaskSubscriber) -> AsyncIterator[Update]:
    """What an ear hears until no more will come."""
    while (update := await ear.next()) is not None:
        yield update


def copied(telling: TaskProjection) -> Task:
    """How a task stands now, apart from how it goes on."""
    copy = Task()
    copy.CopyFrom(telling.task)
    return copy
