"""Messages that wait for threads: sending them, and making runs of them when the run before has finished."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

from ...errors import MessageGoneError, RunExistsError, ThreadBusyError
from ...log import RunStarted, encode_event
from ...log.codec import encode_header
from ...stores import FINISHED_STATUSES, FullStore, Lease, RunRecord, WaitingMessage, WaitMode
from ..run_args import RunArgs
from .thread import ThreadState
from .waiting_messages import ANY_TIME, Schedule, from_message, to_message

_logger = logging.getLogger("baton.runner")
MAX_WAITING = 100
"""The number of messages that may wait for a thread."""


class CreateRun(Protocol):
    """Creates a run in the store; see `RunRepository.create`."""

    def __call__(
        self,
        started: RunStarted,
        lines: Sequence[bytes],
        *,
        schedule: Schedule,
        from_inbox: bool,
        origins: tuple[str, ...],
    ) -> Awaitable[Lease]:
        """Create the run."""
        ...


PrepareRun = Callable[[RunStarted, RunArgs[Any]], Awaitable[tuple[RunStarted, ThreadState]]]
"""Completes the first event of a run; see `RunRepository.prepare`."""


class Inbox:
    """The messages that wait for the threads of a store.

    A message becomes a run as soon as its thread has no unfinished run. Each of these makes the run when it finds that
    out: the driver of the run that has finished, the sender of the message, a caller that waits for it, and recovery.
    """

    def __init__(self, store: FullStore, prepare: PrepareRun, create: CreateRun) -> None:
        self.on_promoted: list[Callable[[WaitingMessage], None]] = []
        """Called when a message has become a run, which no worker drives yet."""
        self._store = store
        self._prepare = prepare
        self._create = create
        self._waiters: dict[str, set[asyncio.Event]] = {}

    async def send(
        self, started: RunStarted, args: RunArgs[Any], mode: WaitMode, schedule: Schedule = ANY_TIME
    ) -> None:
        """Add a message to the inbox of its thread, and make a run of it if nothing precedes it.

        Raises:
            InboxFullError: Too many messages wait.
            RunExistsError: The id is taken.
        """
        message = to_message(started, mode, args.get("start_at", "active"), schedule)
        if not await self._store.enqueue(message, limit=MAX_WAITING):
            await self.promote(started.thread)

    async def promote(self, thread: str) -> str:
        """Make a run of the oldest message if the thread has no unfinished run.

        Returns:
            The id of the run; "" if there is none.
        """
        while True:
            waiting = await self._store.inbox(thread, limit=1)
            if not waiting:
                return ""
            message = waiting[0]
            started, start_at, schedule = from_message(message)
            try:
                started, state = await self._prepare(started, RunArgs(start_at=start_at))
                lines = [encode_header(), encode_event(started)]
                await self._create(started, lines, schedule=schedule, from_inbox=True, origins=state.origins)
            except ThreadBusyError:
                # The unfinished run must learn of the message, or else its end would be the end of the thread.
                if await self._store.notify(thread):
                    return ""
            except MessageGoneError:
                continue
            except RunExistsError:
                if await self._store.withdraw(message.run_id):
                    _logger.error("message `%s` is dropped: another run has its id", message.run_id)
            else:
                self._wake(thread)
                for callback in self.on_promoted:
                    callback(message)
                return message.run_id

    async def promote_idle(self) -> None:
        """Make runs of the messages of all threads without an unfinished run."""
        for thread in await self._store.idle_threads():
            await self.promote_safely(thread)

    async def promote_safely(self, thread: str) -> None:
        """Promote like `promote`, but log errors: the messages stay, and recovery tries again."""
        try:
            await self.promote(thread)
        except Exception:
            _logger.warning("could not make a run of the next message of thread `%s`", thread, exc_info=True)

    async def promote_if_idle(self, thread: str) -> RunRecord | None:
        """Promote if the last run of the thread has finished; return its record if it has not."""
        page = await self._store.list(thread=thread, limit=1)
        if page.records and page.records[0].status not in FINISHED_STATUSES:
            return page.records[0]
        await self.promote(thread)
        return None

    @contextmanager
    def notified(self, thread: str) -> Generator[asyncio.Event]:
        """Return an event that is set whenever this process makes a run of a message of the thread."""
        event = asyncio.Event()
        self._waiters.setdefault(thread, set()).add(event)
        try:
            yield event
        finally:
            waiters = self._waiters[thread]
            waiters.discard(event)
            if not waiters:
                del self._waiters[thread]

    def _wake(self, thread: str) -> None:
        for event in self._waiters.get(thread, ()):
            event.set()
