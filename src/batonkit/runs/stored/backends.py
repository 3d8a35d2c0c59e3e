"""The backends of runs in a store: they create a run or reopen it, and let it write to the store."""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from time import monotonic
from typing import Any

from ...agents.request_records import RequestRecorder
from ...errors import RunConflictError, RunError
from ...log import Event, RunCompleted, RunStarted, encode_event
from ...log.codec import READER_VERSION, encode_header, require_known_events
from ...log.log import EventSink, Log
from ...stores import Lease, RunRecord
from ...team.follow import TeamFlow
from ..answers import resume_events
from ..opening import OpenRun, StoppedRun, check_team, new_id, open_run, run_started_event
from ..result import StoppedStatus
from ..run_args import ResumeArgs, RunArgs
from .journal import Journal, SupportsStop
from .repository import RunRepository, is_drivable, was_cancelled


class _StoredBackend:
    """The common part of the backends for new and reopened runs."""

    is_waiting = False

    def __init__(self, repository: RunRepository, run_id: str) -> None:
        self.run_id = run_id
        self._repository = repository
        self._journal: Journal | None = None
        self._driver: asyncio.Task[Any] | None = None
        """The task that drives the run."""

    def _attach(self, opened: OpenRun, journal: Journal, run: SupportsStop) -> OpenRun:
        """Let the run write to the store from now on, and renew its lease."""
        repository = self._repository
        state = opened.flow.run
        if not repository.is_own_memory:
            # A log is the same whether a run without a store was stopped and resumed or not.
            opened.flow.services.requests = RequestRecorder(state.log.events)
        state.log.attach(journal)
        state.signals.lease = journal
        run._driver = self._driver = asyncio.current_task()
        repository.heartbeat.add(journal, run)
        journal.relay = repository.relay
        journal.relay.drive(self.run_id, state.log.count)
        return opened

    async def close(self, flow: TeamFlow, status: StoppedStatus) -> StoppedStatus:
        """Store the final status and release the lease; return the status that was stored."""
        if self._journal is None:
            return status
        with self._repository.closing(self.run_id):
            try:
                return await self._repository.finish(flow, self._journal, status)
            finally:
                self.leave(flow)

    def leave(self, flow: TeamFlow) -> None:
        """Renew the lease no more, and let others in this process drive the run."""
        journal, self._journal = self._journal, None
        if journal is not None:
            self._repository.leave(flow, journal, self._driver)

    async def cancel_suspended(self, flow: TeamFlow) -> Sequence[Event]:
        """Cancel the run, which is suspended; return its events since."""
        return await self._repository.cancel_suspended(flow)


class NewRun(_StoredBackend):
    """The backend of a run that is created in a store."""

    def __init__(self, repository: RunRepository, started: RunStarted, args: RunArgs[Any]) -> None:
        super().__init__(repository, started.run_id)
        self._started = started
        self._args = args

    async def open(self, sink: EventSink | None, run: SupportsStop) -> OpenRun:
        """Open the run; its first lines are stored before any agent runs."""
        repository = self._repository
        started, thread = await repository.prepare(self._started, self._args)
        journal = self._journal = Journal(
            repository.store,
            create=partial(self._create, started, thread.origins),
            sink=sink,
            thread=started.thread,
            run=run,
        )
        opened = open_run(
            started,
            Log(),
            repository.config,
            self._args,
            first_events=[started],
            prior_entries=thread.entries,
            is_whole=thread.is_whole,
        )
        return self._attach(opened, journal, run)

    async def create_and_open(self, sink: EventSink | None, run: SupportsStop) -> OpenRun:
        """Create the run at once and open it. Raises ThreadBusyError."""
        repository = self._repository
        deadline = monotonic() + self._repository.ttl
        started, thread = await repository.prepare(self._started, self._args)
        lease = await self._create(started, thread.origins, [encode_header(), encode_event(started)])
        log = Log()
        opened = open_run(
            started, log, repository.config, self._args, prior_entries=thread.entries, is_whole=thread.is_whole
        )
        log.add_stored(started)
        journal = self._journal = Journal(
            repository.store,
            lease=lease,
            lease_deadline=deadline,
            seq=2,
            sink=sink,
            thread=started.thread,
            run=run,
        )
        if sink is not None:
            sink.put(started)
        return self._attach(opened, journal, run)

    async def _create(self, started: RunStarted, origins: tuple[str, ...], lines: Sequence[bytes]) -> Lease:
        repository = self._repository
        sent = monotonic()
        lease = await repository.create(started, lines, origins=origins, worker=new_id(), ttl=repository.ttl)
        if self._journal is not None:
            self._journal.lease_deadline = sent + repository.ttl
        return lease


FirstEvents = Callable[[Log, float], Sequence[Event]]
"""Returns the events to write first, from the log and the store's time; raises if they are not valid for the log."""


class ReopenedRun(_StoredBackend):
    """The backend of a run that is loaded from a store."""

    def __init__(
        self,
        repository: RunRepository,
        run_id: str,
        first_events: FirstEvents | None,
        args: ResumeArgs[Any],
        *,
        only_if_due: bool = False,
        worker: str | None = None,
    ) -> None:
        """Create the backend."""
        super().__init__(repository, run_id)
        self._first_events = first_events
        self._args = args
        self._only_if_due = only_if_due
        self._worker = worker

    async def open(self, sink: EventSink | None, run: SupportsStop) -> OpenRun:
        """Acquire the lease, so that no one else writes, and load the log."""
        repository = self._repository
        await repository.wait_until_closed(self.run_id)
        repository.claim(self.run_id)
        if self._only_if_due:
            # Such a run is driven for readers in other processes.
            repository.relay.start()
        try:
            return await self._open(sink, run)
        except BaseException:
            repository.disclaim(self.run_id, asyncio.current_task())
            raise

    async def _open(self, sink: EventSink | None, run: SupportsStop) -> OpenRun:
        repository = self._repository
        local = repository.local_states.get(self.run_id) or StoppedRun()
        before = await repository.record(self.run_id)
        lease, deadline = await repository.acquire(self.run_id, self._worker or local.worker or new_id())
        try:
            record = await repository.record(self.run_id)
            if self._only_if_due and not is_drivable(record):
                raise RunConflictError(self.run_id, f"another worker drove it meanwhile; it is {record.status}")
            if lease.cancel_requested and record.status in ("running", "suspended"):
                # Its driver stopped before it saw the request, which is still valid.
                await repository.store_cancelled(record, lease)
                raise was_cancelled(self.run_id)
            await repository.check_last(record)
            opened = await self._load(record, local)
        except BaseException:
            await repository.store.release(lease)
            raise
        repository.local_states.pop(self.run_id, None)
        # From the first new line on the status is `running`, so that the run is recovered if this process dies.
        status = None if record.status == "running" and not record.wake_at else "running"
        journal = self._journal = Journal(
            repository.store,
            lease=lease,
            lease_deadline=deadline,
            seq=opened.flow.run.log.count + 1,
            status=status,
            sink=sink,
            thread=record.thread,
            run=run,
        )
        journal.reader = READER_VERSION if record.reader < READER_VERSION else 0
        if before.status == "running" and before.lease_until:
            journal.previous_worker = before.worker
            journal.last_heartbeat = before.lease_until - before.lease_seconds
        return self._attach(opened, journal, run)

    async def _load(self, record: RunRecord, local: StoppedRun) -> OpenRun:
        repository = self._repository
        log = Log(await repository.events(self.run_id))
        require_known_events(log.events)
        started = run_started_event(log.events)
        if isinstance(log.events[-1], RunCompleted):
            raise RunError(f"run `{self.run_id}` has completed and cannot be resumed")
        check_team(started, repository.fingerprint, self._args)
        # If a suspended run is driven, one of its interrupts has expired.
        first = resume_events if self._first_events is None and record.status == "suspended" else self._first_events
        first_events = () if first is None else first(log, await repository.time_for(log))
        thread = await repository.threads.state_before(started)
        return open_run(
            started,
            log,
            repository.config,
            self._args,
            first_events=first_events,
            prior_entries=thread.entries,
            is_whole=thread.is_whole,
            stopped=local,
            record=record,
        )
