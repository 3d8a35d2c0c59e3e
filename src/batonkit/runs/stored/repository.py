"""Runs in a store, and the operations on them."""

import asyncio
import logging
from collections import OrderedDict, deque
from collections.abc import AsyncGenerator, Collection, Generator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from copy import copy
from time import monotonic, time
from typing import Any, Unpack

from msgspec.structs import replace

from ...errors import (
    InboxFullError,
    LogError,
    RunConflictError,
    RunError,
    RunExistsError,
    RunNotFoundError,
    RunNotSuspendedError,
    ThreadBusyError,
    ThreadExistsError,
)
from ...log import Event, InterruptRaised, RunCancelled, RunCompleted, RunStarted, decode_lines, encode_event, keys
from ...log.codec import READER_VERSION, encode_header
from ...log.event import RUN_ORIGIN
from ...log.log import Log
from ...stores import (
    FINISHED_STATUSES,
    CancelWhen,
    CreateOptions,
    FullStore,
    Lease,
    RunRecord,
    RunStatus,
    SupportsInbox,
)
from ...stores.parts import require_part
from ...stores.records import check_is_last, origins_left_by, origins_of
from ...team.follow import FlowConfig, TeamFlow
from ...team.requests import RecordedRequest, read_requests
from ...team.tasks import known_tasks
from ...team.team import fingerprint_hash, history_policies
from ..answers import resume_events
from ..background.relay import RunRelay
from ..observers import Observer
from ..opening import StoppedRun, new_id, run_started_event
from ..result import Interrupt, StoppedStatus
from ..run_args import ResumeArgs, RunArgs, UserText
from ..stream import STATUS_BY_EVENT
from ..threads.inbox import Inbox
from ..threads.parts import part_from_log, thread_note
from ..threads.thread import NO_THREAD, ThreadReader, ThreadState
from ..threads.waiting_messages import ANY_TIME, Schedule
from .journal import Journal, LeaseHeartbeat
from .summaries import summary_note

_logger = logging.getLogger("baton.runner")
_MAX_LOCAL_STATES = 1000
_MAX_COMPLETED = 1000
"""The number of completed runs that a runner without a store keeps, besides those of threads."""
_OWN_MEMORY = "the memory of this runner, which has no store and only keeps runs that stopped before their end"
_RETRY_INTERVAL = 0.02
_PATIENCE = 2.0
"""Seconds to wait for the lease of a suspended run."""


class RunRepository:
    """A runner's access to the runs in its store."""

    def __init__(
        self,
        store: FullStore,
        config: FlowConfig,
        fingerprint: Mapping[str, str],
        *,
        ttl: float,
        observers: Sequence[Observer] = (),
        is_own_memory: bool = False,
    ) -> None:
        self.store = store
        self.config = config
        self.ttl = ttl
        self.heartbeat = LeaseHeartbeat(store, ttl)
        self.reads_all = _reads_all(config)
        """True if an agent may read entries that a summary for all readers replaces."""
        self.threads = ThreadReader(store, reads_all=self.reads_all)
        self.fingerprint = fingerprint
        self.team = fingerprint_hash(fingerprint)
        """The hash of the team."""
        self.local_states: OrderedDict[str, StoppedRun] = OrderedDict()
        """States of the runs that stopped here most recently, by run id."""
        self.observers = observers
        self.is_own_memory = is_own_memory
        """True if the store is the memory of a runner without a store."""
        self._completed: deque[str] = deque()
        """The runs in the runner's own memory that have completed, oldest first."""
        self._driven: dict[str, asyncio.Task[Any]] = {}
        """The tasks that drive runs, by run id."""
        self._closing: dict[str, asyncio.Future[None]] = {}
        """The runs whose end is being stored here, by run id; done when this process has forgotten the driver."""
        self.relay = RunRelay(store)
        """Tells other processes of events and deltas."""
        self.inbox = Inbox(store, self.prepare, self.create)
        """The messages that wait for threads."""

    def with_config(self, config: FlowConfig, observers: Sequence[Observer]) -> "RunRepository":
        """Return a repository of the same runs that drives them with another configuration."""
        other = copy(self)
        other.config = config
        other.observers = observers
        return other

    def claim(self, run_id: str) -> None:
        """Register the current task as the driver of a run. Raises RunConflictError if it has one."""
        other = self._driven.get(run_id)
        driver = asyncio.current_task()
        assert driver is not None
        # The driver of an event loop that was closed has stopped without a trace.
        if other is not None and not other.done() and not other.get_loop().is_closed():
            raise RunConflictError(run_id, "this process drives it already", problem="cannot be driven twice")
        self._driven[run_id] = driver

    def disclaim(self, run_id: str, driver: "asyncio.Task[Any] | None") -> None:
        """Forget the driver of a run, unless it has another one by now."""
        if self._driven.get(run_id) is driver:
            self._driven.pop(run_id, None)

    @contextmanager
    def closing(self, run_id: str) -> Generator[None]:
        """Let others in this process who reopen a run wait while its driver stores that it stops."""
        closed = asyncio.get_running_loop().create_future()
        self._closing[run_id] = closed
        try:
            yield
        finally:
            if self._closing.get(run_id) is closed:
                del self._closing[run_id]
            closed.set_result(None)

    async def wait_until_closed(self, run_id: str) -> None:
        """Wait while a driver in this process stores that a run stops.

        Others may see the run stopped before this process has kept what it needs to resume it, such as its context.
        """
        closed = self._closing.get(run_id)
        if closed is not None and closed.get_loop() is asyncio.get_running_loop():
            await asyncio.wait([closed])

    async def acquire(self, run_id: str, worker: str) -> tuple[Lease, float]:
        """Acquire the lease of a run; if the run is suspended and leased, wait for a while.

        The holder is not its driver, which released the lease when it suspended the run, but validates an answer or
        found nothing to drive. Either takes a moment.

        Returns:
            The lease, and the monotonic time until which it is valid for certain.

        Raises:
            RunConflictError: Another worker drives it, or holds the lease for longer.
        """
        give_up_at = monotonic() + _PATIENCE
        while True:
            deadline = monotonic() + self.ttl
            try:
                return await self._try_to_acquire(run_id, worker), deadline
            except RunConflictError:
                record = await self.record(run_id)
                if record.status != "suspended" or record.cancel_requested or monotonic() >= give_up_at:
                    raise
            await asyncio.sleep(_RETRY_INTERVAL)

    async def _try_to_acquire(self, run_id: str, worker: str) -> Lease:
        """Acquire the lease; if the task is cancelled meanwhile, the lease is released."""
        acquiring = asyncio.ensure_future(self.store.acquire(run_id, worker, ttl=self.ttl))
        try:
            return await asyncio.shield(acquiring)
        except asyncio.CancelledError:
            await asyncio.wait([acquiring])
            if not acquiring.cancelled() and acquiring.exception() is None:
                await self.store.release(acquiring.result())
            raise

    async def record(self, run_id: str) -> RunRecord:
        """Return the record of a run.

        Raises:
            RunNotFoundError: There is no such run.
            RunConflictError: It is a message that waits.
        """
        record = await self.store.record(run_id)
        if record is None:
            if (message := await self.store.waiting(run_id)) is None:
                raise RunNotFoundError(run_id, store=_OWN_MEMORY if self.is_own_memory else str(self.store))
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
        started = run_started_event(events)
        while (record := await self.threads.run_before(started)) is not None:
            before = await self.events(record.run_id)
            earlier.append(before)
            started = run_started_event(before)
        return read_requests(events, reversed(earlier), keys=keys)

    async def create(
        self,
        started: RunStarted,
        lines: Sequence[bytes],
        *,
        schedule: Schedule = ANY_TIME,
        **options: Unpack[CreateOptions],
    ) -> Lease:
        """Create a run in the store with its first lines; it must follow the last run of its thread.

        `origins` are those of the data that its thread passes on, such as values and summaries: `erase` must find it.
        """
        fields = CreateOptions(
            thread=started.thread,
            previous=started.previous_run_id,
            owner=started.owner,
            team=fingerprint_hash(started.team_fingerprint),
            priority=schedule.priority,
            wake_at=schedule.wake_at,
            reader=READER_VERSION,
            notes=summary_note([started]),
        )
        fields.update(options)
        own_origins = origins_of(started.owner, started.thread)
        inherited = [origin for origin in fields.get("origins", ()) if origin not in own_origins]
        fields["origins"] = tuple(dict.fromkeys(inherited))
        return await self.store.create(started.run_id, lines, **fields)

    async def finish(self, flow: TeamFlow, journal: Journal, status: StoppedStatus) -> StoppedStatus:
        """Store the final status of a run and release its lease; return the status.

        A run that was to be cancelled is not suspended but cancelled.
        """
        self._release_driver(journal)
        try:
            status = await self._store_end(flow, journal, status)
        finally:
            await journal.release()
        if journal.inbox and status in FINISHED_STATUSES and journal.failure is None:
            await self.inbox.promote_safely(journal.thread)
        if self.is_own_memory and status == "completed" and not journal.thread:
            await self._forget_oldest(flow.run.id)
        return status

    def leave(self, flow: TeamFlow, journal: Journal, driver: "asyncio.Task[Any] | None") -> None:
        """Forget that this process drives a run, whatever is stored of its end."""
        self._release_driver(journal)
        self.relay.leave(flow.run.id)
        self.disclaim(flow.run.id, driver)
        events = flow.run.log.events
        if journal.failure is not None or not events or not isinstance(events[-1], RunCompleted):
            self._keep_local_state(flow, journal)

    def _release_driver(self, journal: Journal) -> None:
        """Neither renew the lease nor stop the driver any more: it stops by itself."""
        self.heartbeat.remove(journal)
        journal.run = None

    async def _forget_oldest(self, completed: str) -> None:
        """Keep the memory of a runner without a store from growing with every run that is resumed."""
        self._completed.append(completed)
        if len(self._completed) > _MAX_COMPLETED:
            await self.store.delete(self._completed.popleft())

    async def _store_end(self, flow: TeamFlow, journal: Journal, status: StoppedStatus) -> StoppedStatus:
        """Store the status with the notes of the run; return the status that was stored."""
        log = flow.run.log
        if status == "completed" and flow.run.signals.messages and journal.thread:
            await self._keep_unread(flow, journal)
        wake_at = first_deadline(log.open_interrupts().values()) if status == "suspended" else 0.0
        if journal.failure is not None:
            return status
        notes = summary_note(log.events)
        is_part = bool(journal.thread) and status in FINISHED_STATUSES
        part = part_from_log(log.events) if is_part else None
        if part is not None:
            notes |= thread_note(part, log.count + 1)
        await journal.finish(status, wake_at=wake_at, notes=notes)
        if part is not None:
            self.threads.remember(part, log.count + 1)
        if status == "suspended" and journal.cancel_requested:
            # The lease is still held, so that no answer comes first.
            log.write(RunCancelled(keys.run_event("cancelled", log.count), RUN_ORIGIN, time()))
            await journal.finish("cancelled")
            return "cancelled"
        return status

    def _keep_local_state(self, flow: TeamFlow, journal: Journal) -> None:
        """Keep what no store can hold, in case that this process resumes the run."""
        if journal.lease is not None:
            self._keep_local(flow, "" if journal.is_released else journal.lease.worker)

    def _keep_local(self, flow: TeamFlow, worker: str = "") -> None:
        run = flow.run
        self.local_states[run.id] = StoppedRun(run.context, run.dynamic_agents, run.meter.limits, worker)
        # The runner's own memory keeps the runs themselves for as long.
        while len(self.local_states) > _MAX_LOCAL_STATES and not self.is_own_memory:
            self.local_states.popitem(last=False)

    async def _keep_unread(self, flow: TeamFlow, journal: Journal) -> None:
        """Let messages that came with a resumption wait for the next run: no agent has read them."""
        run = flow.run
        started = run_started_event(flow.run.log.events)
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

    async def prepare(self, started: RunStarted, args: RunArgs[Any]) -> tuple[RunStarted, ThreadState]:
        """Complete the first event of a new run; return it and the state of its thread."""
        if not started.thread:
            return started, NO_THREAD
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
            calls_in_doubt=state.calls_in_doubt,
            input_guardrails=self.config.team.members[root].agent._guardrail_names()[0],
        )
        return started, state

    async def submit(self, started: RunStarted, args: RunArgs[Any], schedule: Schedule = ANY_TIME) -> str:
        """Create a run for another worker to drive, or a message that waits for its thread."""
        mode = args.get("when_busy", "error")
        if mode != "error":
            require_part(self.store, SupportsInbox, f'when_busy="{mode}"')
        try:
            prepared, thread = await self.prepare(started, args)
            lines = [encode_header(), encode_event(prepared)]
            await self.create(prepared, lines, schedule=schedule, origins=thread.origins)
        except ThreadBusyError:
            if mode == "error":
                raise
            await self.inbox.send(started, args, mode, schedule)
        return started.run_id

    async def keep(self, flow: TeamFlow, status: StoppedStatus) -> None:
        """Store a run that ran without a store and has stopped before its end."""
        await self._create_stopped(flow.run.log, status)
        self._keep_local(flow)

    async def load(self, events: Sequence[Event]) -> None:
        """Store the log of a run that has not completed and that no one drives."""
        # One that was being driven becomes suspended, so that no worker drives it unasked.
        await self._create_stopped(Log(events), STATUS_BY_EVENT.get(type(events[-1]), "suspended"))

    async def _create_stopped(self, log: Log, status: StoppedStatus) -> None:
        events = log.events
        started = run_started_event(events)
        await self.create(
            started,
            [encode_header(), *map(encode_event, events)],
            status=status,
            previous=None,
            wake_at=first_deadline(log.open_interrupts().values()) if status == "suspended" else 0.0,
            origins=await self._origins_before(started),
            notes=summary_note(events),
        )

    async def _origins_before(self, started: RunStarted) -> tuple[str, ...]:
        """Return the origins that a run with a finished log inherited from the run before it."""
        previous = await self.store.record(started.previous_run_id) if started.previous_run_id else None
        return () if previous is None else origins_left_by(previous)

    async def delete(self, run_id: str) -> bool:
        """Delete a run; return whether it existed. Raises RunConflictError if it is being driven."""
        record = await self.store.record(run_id)
        if record is not None and record.status == "running" and record.is_leased:
            raise RunConflictError(run_id, "cancel it, or wait until it has stopped", problem="is being driven")
        self.local_states.pop(run_id, None)
        return await self.store.delete(run_id)

    async def create_fork(self, events: Sequence[Event], source: RunStarted, *, thread: str = "") -> str:
        """Store an edited copy of a log as a suspended run, so that no worker drives it unasked."""
        started = run_started_event(events)
        previous = started.previous_run_id
        if thread:
            started = replace(started, thread=thread)
            previous = ""
        lines = [encode_header(), encode_event(started), *map(encode_event, events[1:])]
        is_stored = await self.store.record(source.run_id) is not None
        try:
            await self.create(
                started,
                lines,
                status="suspended",
                previous=previous,
                forked_from=source.run_id if is_stored else "",
                origins=(*origins_of(source.owner, source.thread), *await self._origins_before(started)),
            )
        except ThreadBusyError as error:
            raise ThreadExistsError(thread, error.run_id) from None
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
        async with self._leased(run_id) as lease:
            record = await self.record(run_id)
            if lease.cancel_requested and record.status in ("running", "suspended"):
                await self.store_cancelled(record, lease)
                raise was_cancelled(run_id)
            if record.status == "completed":
                raise RunError(f"run `{run_id}` has completed and has no open interrupts")
            if record.status in FINISHED_STATUSES:
                status = "has failed" if record.status == "failed" else "was cancelled"
                reason = "resume or retry it if it should continue"
                raise RunNotSuspendedError(run_id, reason, problem=f"{status} and cannot be answered")
            await self._continue(record, lease, answers, ResumeArgs(values=values, message=message))

    async def retry(self, run_id: str) -> None:
        """Set the status of a failed or cancelled run to `running`, for another worker to drive."""
        async with self._leased(run_id) as lease:
            record = await self.record(run_id)
            if record.status not in ("failed", "cancelled"):
                raise RunError(f"run `{run_id}` is {record.status}; only failed and cancelled runs can be retried")
            await self.check_last(record)
            await self._continue(record, lease, None, ResumeArgs())

    async def _continue(self, record: RunRecord, lease: Lease, answers: Any, args: ResumeArgs[Any]) -> None:
        """Store that a run that no one drives continues."""
        log = Log(await self.events(record.run_id))
        first = resume_events(log, await self.time_for(log), answers=answers, args=args)
        lines = [encode_event(event) for event in first]
        await self.store.append(
            record.run_id, log.count + 1, lines, status="running", fence=lease.fence, wake_at=0.0, release=True
        )

    @asynccontextmanager
    async def _leased(self, run_id: str) -> AsyncGenerator[Lease]:
        """Hold the lease of a run that is changed without being driven."""
        lease, _ = await self.acquire(run_id, new_id())
        try:
            yield lease
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
                lease = await self._try_to_acquire(run_id, new_id())
                break
            except RunConflictError:
                # If it is suspended, the holder is about to drive it, or releases it in a moment.
                await self.store.request_cancel(run_id, when)
                self.heartbeat.pass_on(run_id, when)
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

    async def cancel_suspended(self, flow: TeamFlow) -> Sequence[Event]:
        """Cancel a run that was suspended here; return its events since.

        There are none if another worker has continued it.
        """
        run = flow.run
        if await self.cancel(run.id, "now") != "cancelled":
            return ()
        return (await self.events(run.id))[run.log.count :]

    async def store_cancelled(self, record: RunRecord, lease: Lease) -> None:
        """Store that a run that no one drives is cancelled."""
        line = encode_event(RunCancelled(keys.run_event("cancelled", record.seq - 1), RUN_ORIGIN, time()))
        flags = await self.store.append(
            record.run_id, record.seq, [line], status="cancelled", fence=lease.fence, wake_at=0.0, release=True
        )
        if flags.inbox:
            await self.inbox.promote_safely(record.thread)


def was_cancelled(run_id: str) -> RunNotSuspendedError:
    """Return the error of a run that is cancelled instead of being resumed."""
    reason = "its cancellation was requested before; resume it once more if it should continue"
    return RunNotSuspendedError(run_id, reason, problem="is cancelled now")


def _reads_all(config: FlowConfig) -> bool:
    """Return whether an agent may read entries that a summary for all readers replaces."""
    policies = {config.history, *history_policies(config.team)}
    return not policies.isdisjoint({"lineage", "answers", "none"})


def first_deadline(interrupts: Iterable[InterruptRaised | Interrupt]) -> float:
    """Return the earliest deadline of open interrupts; 0 if they have none."""
    return min([asked.deadline for asked in interrupts if asked.deadline], default=0.0)


def is_drivable(record: RunRecord) -> bool:
    """Return whether a worker should drive a run, apart from its lease."""
    return record.is_due and (record.status == "running" or (record.status == "suspended" and record.wake_at > 0))
