"""The backend of runs that may have to wait for the unfinished run of their thread."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from time import monotonic
from typing import Any

from ...errors import MessageGoneError, RunConflictError, RunError, RunNotFoundError, ThreadBusyError
from ...log import Event, RunFailed, RunStarted, UserMessageAdded
from ...log.fold import fold
from ...log.history import History
from ...log.log import EventSink, Log, ReadOnlyLog
from ...stores import RunRecord, SupportsInbox, WaitMode, iter_records
from ...stores.parts import require_part
from ...team.follow import TeamFlow
from ...team.tasks import last_active_agent
from ..background.watching import watch_batches
from ..opening import FollowedRun, NullBackend, OpenRun, open_run, run_started_event
from ..result import RunResult, StoppedStatus
from ..run_args import ResumeArgs, RunArgs
from ..stored.backends import NewRun, ReopenedRun
from ..stored.driving import drive_run
from ..stored.journal import SupportsStop
from ..stored.repository import RunRepository
from ..stream import RunStream

_logger = logging.getLogger("baton.runner")
_MIN_PAUSE = 0.02
_MAX_PAUSE = 0.5
_ABANDONED_AFTER = 2.0
"""Seconds without a driver after which the run that the message waits for is driven here."""


def backend_of_new_run(repository: RunRepository, started: RunStarted, args: RunArgs[Any]) -> "NewRun | WaitingRun":
    """Return the backend of a new run: what it does in a busy thread is up to `when_busy`."""
    mode = args.get("when_busy", "error")
    return NewRun(repository, started, args) if mode == "error" else WaitingRun(repository, started, args, mode)


class WaitingRun:
    """The backend of a run that starts at once, or waits for the unfinished run of its thread.

    While it waits, its message is in the inbox of the thread. When the message has become a run, this process drives
    it, unless another one is faster; then its events are read from the store. A message that steers the unfinished run
    becomes part of that run, and the events and the result of that run are read.
    """

    def __init__(self, repository: RunRepository, started: RunStarted, args: RunArgs[Any], mode: WaitMode) -> None:
        require_part(repository.store, SupportsInbox, f'when_busy="{mode}"')
        self.run_id = started.run_id
        self.is_waiting = False
        """True while the message waits, or another process drives the run."""
        self._repository = repository
        self._started = started
        self._args = args
        self._mode: WaitMode = mode
        self._driven: NewRun | ReopenedRun | None = None
        self._abandoned: tuple[str, float] = ("", 0.0)
        """The run of the thread that has no driver, and since when."""

    async def open(self, sink: EventSink | None, run: SupportsStop) -> OpenRun | FollowedRun:
        """Create the run or wait for it."""
        driven = NewRun(self._repository, self._started, self._args)
        try:
            opened = await driven.create_and_open(sink, run)
        except ThreadBusyError:
            self.is_waiting = True
        else:
            self._driven = driven
            return opened
        await self._repository.inbox.send(self._started, self._args, self._mode)
        try:
            opened = await self._wait(sink, run)
        except asyncio.CancelledError:
            await self._give_up()
            raise
        self.is_waiting = isinstance(opened, FollowedRun)
        return opened

    async def close(self, flow: TeamFlow, status: StoppedStatus) -> StoppedStatus:
        """Store the final status and release the lease; return the status that was stored."""
        return await self._driven.close(flow, status) if self._driven is not None else status

    def leave(self, flow: TeamFlow) -> None:
        """Give the run up if it was not closed."""
        if self._driven is not None:
            self._driven.leave(flow)

    async def cancel_suspended(self, flow: TeamFlow) -> Sequence[Event]:
        """Cancel the run, which is suspended; return its events since."""
        return await self._repository.cancel_suspended(flow)

    async def _wait(self, sink: EventSink | None, run: SupportsStop) -> OpenRun | FollowedRun:
        repository = self._repository
        store = self._repository.store
        thread = self._started.thread
        pause = _MIN_PAUSE
        with repository.inbox.notified(thread) as promoted:
            while True:
                promoted.clear()
                record = await store.record(self.run_id)
                if record is not None:
                    return await self._open_own(record, sink, run)
                if await store.waiting(self.run_id) is None:
                    if await store.record(self.run_id) is not None:
                        continue
                    return await self._follow_steered()
                await self._look_after_thread(thread)
                try:
                    async with asyncio.timeout(pause):
                        await promoted.wait()
                except TimeoutError:
                    pause = min(pause * 1.5, _MAX_PAUSE)

    async def _look_after_thread(self, thread: str) -> None:
        """Do what processes that died should have done: make runs of messages, and drive them."""
        record = await self._repository.inbox.promote_if_idle(thread)
        if record is None or record.status != "running" or record.is_leased:
            self._abandoned = ("", 0.0)
        elif self._abandoned[0] != record.run_id:
            self._abandoned = (record.run_id, monotonic())
        elif monotonic() - self._abandoned[1] > _ABANDONED_AFTER:
            self._abandoned = ("", 0.0)
            try:
                await drive_run(self._repository, record.run_id, ResumeArgs(context=self._args.get("context")))
            except (RunConflictError, RunNotFoundError):
                pass  # Another worker was faster.
            except Exception:
                _logger.warning("could not drive run `%s`, which a message waits for", record.run_id, exc_info=True)

    async def _open_own(self, record: RunRecord, sink: EventSink | None, run: SupportsStop) -> OpenRun | FollowedRun:
        if record.status == "running":
            args = ResumeArgs(context=self._args.get("context"))
            driven = ReopenedRun(self._repository, self.run_id, None, args, only_if_due=True)
            try:
                opened = await driven.open(sink, run)
            except RunConflictError:
                return self._follow(self.run_id)
            self._driven = driven
            if sink is not None and record.seq == 2:
                # No one has read the first event; later ones are those of a worker that died.
                sink.put(opened.flow.run.log.events[0])
            return opened
        return self._follow(self.run_id)

    async def _follow_steered(self) -> FollowedRun:
        """Follow the run that took the message."""
        async for record in iter_records(self._repository.store, thread=self._started.thread, limit=10):
            events = await self._repository.events(record.run_id)
            if any(isinstance(one, UserMessageAdded) and one.message_id == self.run_id for one in events):
                return self._follow(record.run_id)
        raise MessageGoneError(self.run_id)

    def _follow(self, run_id: str) -> FollowedRun:
        async def finish() -> tuple[OpenRun, RunResult[Any]]:
            return await self._stopped_run(run_id)

        async def cancel() -> None:
            if run_id == self.run_id:
                # Shielded, because the task that reads the events has been cancelled.
                await asyncio.shield(self._repository.cancel(run_id, "now"))

        return FollowedRun(self._watch(run_id), finish, cancel)

    async def _watch(self, run_id: str) -> AsyncGenerator[Event]:
        async with aclosing(watch_batches(self._repository, run_id, after=0)) as batches:
            async for batch in batches:
                for _, event in batch:
                    if isinstance(event, Event):
                        yield event

    async def _give_up(self) -> None:
        """Withdraw the message, or cancel the run that it has become."""
        # Shielded, because the task that waits has been cancelled.
        store = self._repository.store
        if not await asyncio.shield(store.withdraw(self.run_id)) and await store.record(self.run_id) is not None:
            await asyncio.shield(self._repository.cancel(self.run_id, "now"))

    async def _stopped_run(self, run_id: str) -> tuple[OpenRun, RunResult[Any]]:
        """Return the state and the result of a run that another worker has driven until it stopped."""
        repository = self._repository
        record = await repository.record(run_id)
        events = await repository.events(run_id)
        started = run_started_event(events)
        args = ResumeArgs[Any](context=self._args.get("context"))
        thread = await repository.threads.state_before(started)
        entries = thread.entries
        is_completed = record.status == "completed"
        log = ReadOnlyLog(events) if is_completed else Log(events)
        opened = open_run(started, log, repository.config, args, prior_entries=entries, is_whole=thread.is_whole)
        if is_completed:
            stream: RunStream[Any] = RunStream(NullBackend(run_id, opened))
            await stream._drive()
            return opened, stream.result
        failed = next((one for one in reversed(events) if isinstance(one, RunFailed)), None)
        error = None
        if record.status == "failed" and failed is not None:
            error = RunError(f"run `{run_id}` failed in another worker: {failed.error_type}: {failed.message}")
        status: StoppedStatus = "cancelled" if record.status in ("running", "completed") else record.status
        folded = fold(events, History(entries, is_whole=thread.is_whole))
        folded.join_branches()
        result: RunResult[Any] = RunResult(
            opened.flow.run,
            folded.main,
            status=status,
            output=None,
            agent=last_active_agent(events) or started.root_agent,
            error=error,
        )
        return opened, result
