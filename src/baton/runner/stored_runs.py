"""Runs in a store: the backends that create and reopen them, and the operations on them."""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from copy import copy
from functools import partial
from time import monotonic, time
from typing import Any

from msgspec.structs import replace

from ..agents.request_records import RequestRecorder
from ..context import HistoryEntry
from ..errors import (
    InboxFullError,
    LogError,
    RunConflictError,
    RunError,
    RunExistsError,
    RunNotFoundError,
    ThreadBusyError,
)
from ..events import (
    Event,
    InterruptRaised,
    RunCancelled,
    RunCompleted,
    RunStarted,
    decode_lines,
    encode_event,
)
from ..events.base import RUN_ORIGIN
from ..events.codec import READER_VERSION, encode_header, require_known_events
from ..flow.follow import FlowConfig, TeamFlow
from ..flow.requests import RecordedRequest, read_requests
from ..flow.tasks import known_tasks
from ..flow.team import fingerprint_hash
from ..log import EventSink, Log
from ..stores import FINISHED_STATUSES, CancelWhen, Lease, RunRecord, RunStatus, Store
from ..stores.records import check_is_last
from .answers import resume_events
from .arguments import ResumeArgs, RunArgs, UserText
from .backends import OpenRun, StoppedRun, check_team, new_id, open_run, run_started_event
from .inbox import Inbox
from .journal import Journal, LeaseHeartbeat, SupportsStop
from .observers import Observer
from .relay import RunRelay
from .result import Interrupt, StoppedStatus
from .summaries import summary_note
from .threads import ThreadReader
from .waiting_messages import ANY_TIME, Schedule

_logger = logging.getLogger("baton.runner")
_MAX_LOCAL_STATES = 1000
_RETRY_INTERVAL = 0.02


class RunRepository:
    """A runner's access to the runs in its store."""

    def __init__(
        self,
        store: Store,
        config: FlowConfig,
        fingerprint: Mapping[str, str],
        *,
        ttl: float,
        observers: Sequence[Observer] = (),
    ) -> None:
        self.store = store
        self.config = config
        self.ttl = ttl
        self.heartbeat = LeaseHeartbeat(store, ttl)
        self.threads = ThreadReader(store)
        self.fingerprint = fingerprint
        self.local_states: OrderedDict[str, StoppedRun] = OrderedDict()
        """States of the runs that stopped here most recently, by run id."""
        self.observers = observers
        self._driven: dict[str, asyncio.Task[Any]] = {}
        """The tasks that drive runs, by run id."""
        self.relay = RunRelay(store)
        """Tells other processes of events and deltas."""
        self.inbox = Inbox(store, self.prepare, self.create)
        """The messages that wait for threads."""

    def with_config(self, config: FlowConfig) -> "RunRepository":
        """Return a repository of the same runs that drives them with another configuration."""
        other = copy(self)
        other.config = config
        return other

    def claim(self, run_id: str) -> None:
        """Register the current task as the driver of a run. Raises RunConflictError if it has one."""
        known, driver = self._driven.get(run_id), asyncio.current_task()
        assert driver is not None
        # The driver of an event loop that was closed has stopped without a trace.
        if known is not None and not known.done() and not known.get_loop().is_closed():
            raise RunConflictError(run_id, "this process drives it already")
        self._driven[run_id] = driver

    def disclaim(self, run_id: str) -> None:
        """Forget the driver of a run."""
        self._driven.pop(run_id, None)

    async def record(self, run_id: str) -> RunRecord:
        """Return the record of a run.

        Raises:
            RunNotFoundError: There is no such run.
            RunConflictError: It is a message that waits.
        """
        record = await self.store.record(run_id)
        if record is None:
            if (message := await self.store.waiting(run_id)) is None:
                raise RunNotFoundError(run_id, store=str(self.store))
            reason = f"thread `{message.thread}` has an unfinished run, or older messages"
            raise RunConflictError(run_id, reason, problem="has not started and waits")
        return record

    async def events(self, run_id: str) -> list[Event]:
        """Load the log of a run. Raises LogError if it cannot be read."""
        events = decode_lines(await self.store.load(run_id))
        if run_started_event(events).run_id != run_id:
            raise LogError(0, f"it is not the log of run `{run_id}`")
        return events

    async def requests(self, run_id: str, keys: Collection[str] | None) -> dict[str, RecordedRequest]:
        """Restore model requests of a run from the logs of its thread."""
        events = await self.events(run_id)
        earlier: list[Sequence[Event]] = []
        previous = run_started_event(events).previous_run_id
        while previous and await self.store.record(previous) is not None:
            earlier.append(await self.events(previous))
            previous = run_started_event(earlier[-1]).previous_run_id
        return read_requests(events, reversed(earlier), keys=keys)

    async def create(
        self,
        started: RunStarted,
        lines: Sequence[bytes],
        *,
        worker: str = "",
        ttl: float = 0.0,
        status: RunStatus = "running",
        schedule: Schedule = ANY_TIME,
        from_inbox: bool = False,
        is_first: bool = False,
    ) -> Lease:
        """Create a run in the store with its first lines; it must follow the last run of its thread.

        With `is_first` it is the first one of its thread, and follows a run of another one.
        """
        return await self.store.create(
            started.run_id,
            lines,
            status=status,
            thread=started.thread,
            previous="" if is_first else started.previous_run_id,
            owner=started.owner,
            worker=worker,
            ttl=ttl,
            team=fingerprint_hash(started.team_fingerprint),
            priority=schedule.priority,
            wake_at=schedule.wake_at,
            from_inbox=from_inbox,
            reader=READER_VERSION,
            notes=summary_note([started]),
        )

    async def finish(self, flow: TeamFlow, journal: Journal, status: StoppedStatus) -> StoppedStatus:
        """Store the final status of a run and release its lease; return the status.

        A run that was to be cancelled is not suspended but cancelled.
        """
        self.heartbeat.remove(journal)
        journal.run = None
        try:
            if status == "completed" and flow.run.signals.messages and journal.thread:
                await self._keep_unread(flow, journal)
            wake_at = first_deadline(flow.run.log.open_interrupts().values()) if status == "suspended" else 0.0
            notes = summary_note(flow.run.log.events) if journal.failure is None else None
            await journal.finish(status, wake_at=wake_at, notes=notes)
            if status == "suspended" and journal.cancel_requested and journal.failure is None:
                status = "cancelled"
                flow.run.log.write(RunCancelled(f"cancelled{len(flow.run.log.events)}", RUN_ORIGIN, time()))
                await journal.finish(status)
        finally:
            await journal.release()
            self.relay.leave(flow.run.id)
            if journal.lease is not None and (status != "completed" or journal.failure is not None):
                run, worker = flow.run, "" if journal.is_released else journal.lease.worker
                options = flow.config.options.run_options
                self.local_states[run.id] = StoppedRun(
                    run.context, run.dynamic_agents, run.meter.limits, worker, options=options
                )
                while len(self.local_states) > _MAX_LOCAL_STATES:
                    self.local_states.popitem(last=False)
        if journal.inbox and status in FINISHED_STATUSES and journal.failure is None:
            await self.inbox.promote_safely(journal.thread)
        return status

    async def _keep_unread(self, flow: TeamFlow, journal: Journal) -> None:
        """Let messages that came with a resumption wait for the next run: no agent has read them."""
        run, started = flow.run, run_started_event(flow.run.log.events)
        for sent in run.signals.messages:
            # The id is the same if the process dies before the end of the run is stored.
            run_id = f"{run.id}.{sent.id}"
            following = replace(started, run_id=run_id, input=(sent.message,), values={}, previous_run_id="")
            try:
                await self.inbox.send(following, RunArgs(), "queue")
            except RunExistsError:
                continue
            except InboxFullError:
                _logger.warning("a message that came with the resumption of run `%s` is lost", run.id, exc_info=True)
        journal.inbox = journal.inbox or "waiting"

    async def prepare(self, started: RunStarted, args: RunArgs[Any]) -> tuple[RunStarted, Sequence[HistoryEntry]]:
        """Complete the first event of a new run; return it and the history of its thread."""
        if not started.thread:
            return started, ()
        state = await self.threads.latest(started.thread)
        goes_on = args.get("start_at", "active") == "active"
        tasks = known_tasks(state.tasks, self.config.team.members) if goes_on else ()
        active = state.active_agent if goes_on else ""
        if tasks != state.tasks and goes_on:
            # The team has changed: the outermost tasks whose agents are left continue.
            active = tasks[-1].agent if tasks else state.tasks[0].return_to
            _logger.warning("thread `%s` has open tasks of agents that are not part of the team", started.thread)
        root = active if active in self.config.team.members else started.root_agent
        if active and root != active:
            _logger.warning(
                "thread `%s` continues with the root agent `%s`: its active agent `%s` is not part of the team; "
                "list it in Runner(extra_agents=[…]) if a function looks it up",
                started.thread,
                root,
                active,
            )
        values = {**state.values, **started.values}
        started = replace(
            started,
            root_agent=root,
            values=values,
            previous_run_id=state.last_run,
            summaries=state.summaries,
            tasks=tasks,
        )
        return started, state.entries

    async def submit(self, started: RunStarted, args: RunArgs[Any], schedule: Schedule = ANY_TIME) -> str:
        """Create a run for another worker to drive, or a message that waits for its thread."""
        mode = args.get("when_busy", "error")
        try:
            prepared, _ = await self.prepare(started, args)
            await self.create(prepared, [encode_header(), encode_event(prepared)], schedule=schedule)
        except ThreadBusyError:
            if mode == "error":
                raise
            await self.inbox.send(started, args, mode, schedule)
        return started.run_id

    async def import_log(self, events: Sequence[Event], *, thread: str = "") -> str:
        """Store a log as a suspended run, so that no worker drives it unasked.

        Args:
            events: The log.
            thread: A new thread, which the run is the first one of.
        """
        started = run_started_event(events)
        if thread:
            started = replace(started, thread=thread)
        lines = [encode_header(), encode_event(started), *map(encode_event, events[1:])]
        await self.create(started, lines, status="suspended", is_first=bool(thread))
        return started.run_id

    async def check_last(self, record: RunRecord) -> None:
        """Check that a run that is resumed has no successor in its thread.

        The store checks it again when the run continues: a successor may come and end meanwhile.

        Raises:
            RunConflictError: It has a successor.
            ThreadBusyError: Its successor has not finished.
        """
        if record.thread and record.status in FINISHED_STATUSES:
            page = await self.store.list(thread=record.thread, limit=1)
            if page.records and page.records[0].run_id != record.run_id:
                if page.records[0].status not in FINISHED_STATUSES:
                    raise ThreadBusyError(record.thread, page.records[0].run_id, page.records[0].status)
                check_is_last(record.run_id, page.records[0].run_id)

    async def answer(
        self, run_id: str, answers: Any, *, values: Mapping[str, Any] | None = None, message: UserText | None = None
    ) -> None:
        """Store answers to a run and set its status to `running`, for another worker to drive."""
        lease = await self.store.acquire(run_id, new_id(), ttl=self.ttl)
        try:
            if lease.cancel_requested:
                await self.store_cancelled(await self.record(run_id), lease)
                raise RunConflictError(run_id, "its cancellation was requested; it is cancelled now")
            events = await self.events(run_id)
            if isinstance(events[-1], RunCompleted):
                raise RunError(f"run `{run_id}` has completed and has no open interrupts")
            await self.check_last(await self.record(run_id))
            log, args = Log(events), ResumeArgs(values=values, message=message)
            first = resume_events(log, await self.time_for(log), answers=answers, args=args)
            lines = [encode_event(event) for event in first]
            await self.store.append(run_id, len(events) + 1, lines, status="running", fence=lease.fence, wake_at=0.0)
        finally:
            await self.store.release(lease)

    async def time_for(self, log: Log) -> float:
        """Return the store's time if the log has an open interrupt with a deadline, else 0."""
        return await self.store.now() if first_deadline(log.open_interrupts().values()) else 0.0

    async def cancel(self, run_id: str, when: CancelWhen) -> RunStatus:
        """Request cancellation from the run's driver, or cancel it directly if it has none.

        A message that still waits is withdrawn.
        """
        while True:
            record = await self.store.record(run_id)
            if record is None:
                if await self.store.withdraw(run_id):
                    return "cancelled"
                # It may have become a run meanwhile.
                record = await self.record(run_id)
            if record.status not in ("running", "suspended"):
                return record.status
            try:
                lease = await self.store.acquire(run_id, new_id(), ttl=self.ttl)
                break
            except RunConflictError:
                # If it is leased but not running, its driver has just stopped or is about to start.
                await self.store.request_cancel(run_id, when)
                if (await self.record(run_id)).status == "running":
                    return "running"
                await asyncio.sleep(_RETRY_INTERVAL)
        try:
            record = await self.record(run_id)
            if record.status not in ("running", "suspended"):
                return record.status
            await self.store_cancelled(record, lease)
            return "cancelled"
        finally:
            await self.store.release(lease)

    async def store_cancelled(self, record: RunRecord, lease: Lease) -> None:
        """Store that a run that no one drives is cancelled."""
        line = encode_event(RunCancelled(f"cancelled{record.seq - 1}", RUN_ORIGIN, time()))
        flags = await self.store.append(
            record.run_id, record.seq, [line], status="cancelled", fence=lease.fence, wake_at=0.0
        )
        if flags.inbox:
            await self.inbox.promote_safely(record.thread)


def first_deadline(interrupts: Iterable[InterruptRaised | Interrupt]) -> float:
    """Return the earliest deadline of open interrupts; 0 if they have none."""
    return min([asked.deadline for asked in interrupts if asked.deadline], default=0.0)


def is_drivable(record: RunRecord) -> bool:
    """Return whether a worker should drive a run, apart from its lease."""
    return record.is_due and (record.status == "running" or (record.status == "suspended" and record.wake_at > 0))


class _StoredBackend:
    """The common part of the backends for new and reopened runs."""

    is_waiting = False

    def __init__(self, repository: RunRepository, run_id: str) -> None:
        self.run_id = run_id
        self._repository = repository
        self._journal: Journal | None = None

    def _attach(self, opened: OpenRun, journal: Journal, run: SupportsStop) -> OpenRun:
        """Let the run write to the store from now on, and renew its lease."""
        state = opened.flow.run
        state.requests = RequestRecorder(state.log, opened.flow.history)
        state.log.attach(journal)
        state.signals.lease = journal
        self._repository.heartbeat.add(journal, run)
        journal.relay = self._repository.relay
        journal.relay.drive(self.run_id, len(state.log.events))
        return opened

    async def close(self, flow: TeamFlow, status: StoppedStatus) -> StoppedStatus:
        """Store the final status and release the lease; return the status that was stored."""
        return await self._repository.finish(flow, self._journal, status) if self._journal is not None else status


class NewStoredRun(_StoredBackend):
    """The backend of a run that is created in a store."""

    def __init__(self, repository: RunRepository, started: RunStarted, args: RunArgs[Any]) -> None:
        super().__init__(repository, started.run_id)
        self._started = started
        self._args = args

    async def open(self, sink: EventSink | None, run: SupportsStop) -> OpenRun:
        """Open the run; its first lines are stored before any agent runs."""
        repository = self._repository
        started, prior_entries = await repository.prepare(self._started, self._args)
        journal = self._journal = Journal(
            repository.store, create=partial(self._create, started), sink=sink, thread=started.thread, run=run
        )
        opened = open_run(
            started, Log(), repository.config, self._args, first_events=[started], prior_entries=prior_entries
        )
        return self._attach(opened, journal, run)

    async def create_and_open(self, sink: EventSink | None, run: SupportsStop) -> OpenRun:
        """Create the run at once and open it. Raises ThreadBusyError."""
        repository, deadline = self._repository, monotonic() + self._repository.ttl
        started, prior_entries = await repository.prepare(self._started, self._args)
        lease = await self._create(started, [encode_header(), encode_event(started)])
        log = Log()
        opened = open_run(started, log, repository.config, self._args, prior_entries=prior_entries)
        log.events.append(started)
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

    async def _create(self, started: RunStarted, lines: Sequence[bytes]) -> Lease:
        repository, sent = self._repository, monotonic()
        lease = await repository.create(started, lines, worker=new_id(), ttl=repository.ttl)
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
        """Create the backend.

        Args:
            repository: Access to the stored runs.
            run_id: The run to reopen.
            first_events: Returns the events to write first; None for none.
            args: The arguments that the caller passed.
            only_if_due: Raise RunConflictError in `open` if no worker should drive the run now.
            worker: The name to hold the lease by; a lease with this name is taken at once.
        """
        super().__init__(repository, run_id)
        self._first_events = first_events
        self._args = args
        self._only_if_due = only_if_due
        self._worker = worker

    async def open(self, sink: EventSink | None, run: SupportsStop) -> OpenRun:
        """Acquire the lease, so that no one else writes, and load the log."""
        repository = self._repository
        repository.claim(self.run_id)
        if self._only_if_due:
            # Such a run is driven for readers in other processes.
            repository.relay.start()
        try:
            return await self._open(sink, run)
        except BaseException:
            repository.disclaim(self.run_id)
            raise

    async def _open(self, sink: EventSink | None, run: SupportsStop) -> OpenRun:
        repository = self._repository
        local = repository.local_states.get(self.run_id) or StoppedRun()
        before = await repository.record(self.run_id)
        deadline = monotonic() + repository.ttl
        lease = await self._acquire(self._worker or local.worker or new_id())
        try:
            record = await repository.record(self.run_id)
            if self._only_if_due and not is_drivable(record):
                raise RunConflictError(self.run_id, f"another worker drove it meanwhile; it is {record.status}")
            if lease.cancel_requested and record.status in ("running", "suspended"):
                # Its driver stopped before it saw the request, which is still valid.
                await repository.store_cancelled(record, lease)
                raise RunConflictError(self.run_id, "its cancellation was requested; it is cancelled now")
            await repository.check_last(record)
            opened, seq = await self._load(record, local)
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
            seq=seq,
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

    async def _acquire(self, worker: str) -> Lease:
        """Acquire the lease; if the task is cancelled meanwhile, the lease is released."""
        store = self._repository.store
        acquiring = asyncio.ensure_future(store.acquire(self.run_id, worker, ttl=self._repository.ttl))
        try:
            return await asyncio.shield(acquiring)
        except asyncio.CancelledError:
            await asyncio.wait([acquiring])
            if not acquiring.cancelled() and acquiring.exception() is None:
                await store.release(acquiring.result())
            raise

    async def close(self, flow: TeamFlow, status: StoppedStatus) -> StoppedStatus:
        """Store the final status and release the lease; return the status that was stored."""
        try:
            return await super().close(flow, status)
        finally:
            self._repository.disclaim(self.run_id)

    async def _load(self, record: RunRecord, local: StoppedRun) -> tuple[OpenRun, int]:
        repository = self._repository
        events = await repository.events(self.run_id)
        require_known_events(events)
        started = run_started_event(events)
        if isinstance(events[-1], RunCompleted):
            raise RunError(f"run `{self.run_id}` has completed and cannot be resumed")
        if len(events) == 1 and started.thread and record.previous != started.previous_run_id:
            raise RunConflictError(self.run_id, f"it does not follow the last run of thread `{started.thread}`")
        check_team(started, repository.fingerprint, self._args)
        log = Log(events)
        # A suspended run that is driven is one of whose interrupts has expired.
        first = resume_events if self._first_events is None and record.status == "suspended" else self._first_events
        first_events = () if first is None else first(log, await repository.time_for(log))
        previous = started.previous_run_id
        entries = await repository.threads.entries_until(previous) if previous else ()
        opened = open_run(
            started,
            log,
            repository.config,
            self._args,
            first_events=first_events,
            prior_entries=entries,
            stopped=local,
            record=record,
        )
        return opened, len(events) + 1
