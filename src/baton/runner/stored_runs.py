"""Runs in a store: the backends that create and reopen them, and the operations on them."""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from copy import copy
from functools import partial
from time import time
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from ..context import HistoryEntry, Limits
from ..errors import LogError, RunConflictError, RunError, RunNotFoundError, StoreError, TeamChangedError
from ..events import Event, EventDecoder, RunCancelled, RunCompleted, RunStarted, decode_lines, encode_event
from ..events.base import RUN_ORIGIN
from ..events.codec import encode_header, require_known_events
from ..flow.follow import FlowConfig, TeamFlow
from ..flow.team import diff_fingerprints, team_fingerprint
from ..log import EventSink, Log
from ..stores import Lease, RunRecord, RunStatus, Store, iter_records
from .answers import resume_events
from .arguments import StartAt
from .backends import OpenRun, create_flow, limits_of_run, new_id, run_started_event
from .journal import Journal, LeaseHeartbeat, SupportsStop
from .observers import Observer, with_observers
from .result import StoppedStatus
from .stream import RunStream
from .threads import ThreadReader

_logger = logging.getLogger("baton.runner")
_MAX_LOCAL_STATES = 1000
_RETRY_INTERVAL = 0.02
_MIN_POLL_INTERVAL = 0.02
_MAX_POLL_INTERVAL = 0.5


class LocalRunState(Struct, frozen=True):
    """The parts of a stopped run that no store can keep."""

    context: Any = None
    guests: Mapping[str, Any] = {}
    limits: Limits | None = None
    worker: str = ""
    """The worker that still holds the lease because the store failed to release it, else ""."""


class RunRepository:
    """A runner's access to the runs in its store."""

    def __init__(
        self, store: Store, config: FlowConfig, *, limits: Limits, ttl: float, observers: Sequence[Observer] = ()
    ) -> None:
        self.store = store
        self.config = config
        self.limits = limits
        self.ttl = ttl
        self.heartbeat = LeaseHeartbeat(store, ttl)
        self.threads = ThreadReader(store)
        self.fingerprint = team_fingerprint(config.team)
        self.local_states: OrderedDict[str, LocalRunState] = OrderedDict()
        """States of the runs that stopped here most recently, by run id."""
        self._observers = observers

    def with_config(self, config: FlowConfig) -> "RunRepository":
        """Return a repository of the same runs that drives them with another configuration."""
        other = copy(self)
        other.config = config
        return other

    async def record(self, run_id: str) -> RunRecord:
        """Return the record of a run. Raises RunNotFoundError."""
        record = await self.store.record(run_id)
        if record is None:
            raise RunNotFoundError(run_id, store=str(self.store))
        return record

    async def events(self, run_id: str) -> list[Event]:
        """Load the log of a run. Raises LogError if it cannot be read."""
        events = decode_lines(await self.store.load(run_id))
        if not events or not isinstance(events[0], RunStarted) or events[0].run_id != run_id:
            raise LogError(0, f"it is not the log of run `{run_id}`")
        return events

    async def create(self, started: RunStarted, lines: Sequence[bytes], *, worker: str, ttl: float) -> Lease:
        """Create a run in the store with its first lines."""
        lease = await self.store.create(
            started.run_id, lines, thread=started.thread, owner=started.owner, worker=worker, ttl=ttl
        )
        if started.thread:
            try:
                await self.threads.check_previous_run(started.thread, started.run_id, started.previous_run_id)
            except StoreError:
                # No one knows of the run yet; it must not keep its thread busy.
                await self.store.delete(started.run_id)
                raise
        return lease

    async def finish(self, flow: TeamFlow, journal: Journal, status: StoppedStatus) -> None:
        """Store the final status of a run and release its lease."""
        self.heartbeat.remove(journal)
        try:
            await journal.finish(status)
        finally:
            if journal.lease is not None and (status != "completed" or journal.failure is not None):
                run, worker = flow.run, "" if journal.is_released else journal.lease.worker
                self.local_states[run.id] = LocalRunState(run.context, run.dynamic_agents, run.meter.limits, worker)
                while len(self.local_states) > _MAX_LOCAL_STATES:
                    self.local_states.popitem(last=False)

    async def submit(self, started: RunStarted, *, start_at: StartAt) -> str:
        """Create a run for another worker to drive."""
        started, _ = await NewStoredRun(self, started, start_at=start_at, worker="").prepare()
        await self.create(started, [encode_header(), encode_event(started)], worker="", ttl=0)
        return started.run_id

    async def import_log(self, events: Sequence[Event]) -> str:
        """Store a log as a suspended run."""
        started = run_started_event(events)
        lines = [encode_header(), *map(encode_event, events)]
        lease = await self.store.create(
            started.run_id, lines, thread=started.thread, owner=started.owner, worker=new_id(), ttl=self.ttl
        )
        await self.store.append(started.run_id, len(lines), (), status="suspended", fence=lease.fence)
        await self.store.release(lease)
        return started.run_id

    async def drive(self, run_id: str, *, context: Any, accept_changes: bool) -> RunStatus:
        """Drive a run with status `running` until it stops; return its status."""
        record = await self.record(run_id)
        if record.status != "running":
            return record.status
        if record.cancel_requested and record.lease_until <= time():
            # The driver died before it saw the request, which is still valid.
            return await self.cancel(run_id, record.cancel_requested)
        stream = self._open_running(run_id, _no_events, context, accept_changes=accept_changes)
        try:
            await stream._drive()
        except RunConflictError:
            record = await self.record(run_id)
            if record.status == "running":
                raise
            return record.status
        except Exception:
            record = await self.record(run_id)
            # An error of the run is recorded; an error that kept us from driving it is not.
            if record.status != "failed":
                raise
            _logger.warning("run `%s` failed", run_id, exc_info=True)
            return record.status
        return stream.result.status

    def take_over(self, run_id: str, *, context: Any) -> RunStream[Any]:
        """Return a stream for a run whose driver died; opening it may raise RunConflictError."""
        return self._open_running(run_id, partial(resume_events, answers=None), context)

    async def answer(self, run_id: str, answers: Any, *, values: Mapping[str, Any] | None = None) -> None:
        """Store answers to a run and set its status to `running`, for another worker to drive."""
        lease = await self.store.acquire(run_id, new_id(), ttl=self.ttl)
        try:
            events = await self.events(run_id)
            if isinstance(events[-1], RunCompleted):
                raise RunError(f"run `{run_id}` has completed and has no open interrupts")
            lines = [encode_event(event) for event in resume_events(Log(events), answers=answers, values=values)]
            await self.store.append(run_id, len(events) + 1, lines, status="running", fence=lease.fence)
        finally:
            await self.store.release(lease)

    async def cancel(self, run_id: str, when: Literal["now", "after_turn"]) -> RunStatus:
        """Request cancellation from the run's driver, or cancel it directly if it has none."""
        while True:
            record = await self.record(run_id)
            if record.status not in ("running", "suspended"):
                return record.status
            try:
                lease = await self.store.acquire(run_id, new_id(), ttl=self.ttl)
                break
            except RunConflictError:
                # If it is leased but not running, its driver has just stopped or is about to start.
                if await self.store.request_cancel(run_id, when):
                    return "running"
                await asyncio.sleep(_RETRY_INTERVAL)
        try:
            record = await self.record(run_id)
            if record.status not in ("running", "suspended"):
                return record.status
            line = encode_event(RunCancelled(f"cancelled{record.seq - 1}", RUN_ORIGIN, time()))
            await self.store.append(run_id, record.seq, [line], status="cancelled", fence=lease.fence)
            return "cancelled"
        finally:
            await self.store.release(lease)

    async def list_unfinished(self) -> list[RunRecord]:
        """Return the runs with status `running` that no worker holds, oldest first."""
        running = iter_records(self.store, status=["running"], oldest_first=True)
        return [record async for record in running if record.lease_until <= time()]

    async def recover(self, *, context: Any, max_concurrency: int) -> dict[str, RunStatus]:
        """Drive all unfinished runs except those that other workers take; return their statuses.

        A run that cannot be driven, for example because its log is damaged, does not affect the others.
        """
        semaphore = asyncio.Semaphore(max_concurrency)
        statuses: dict[str, RunStatus] = {}

        async def drive_one(run_id: str) -> None:
            async with semaphore:
                try:
                    statuses[run_id] = await self.drive(run_id, context=context, accept_changes=False)
                except RunConflictError:
                    _logger.info("run `%s` is driven by another worker", run_id)
                except Exception:
                    _logger.exception("could not drive run `%s`", run_id)
                    statuses[run_id] = "running"

        async with asyncio.TaskGroup() as tasks:
            for record in await self.list_unfinished():
                tasks.create_task(drive_one(record.run_id))
        return statuses

    async def watch(self, run_id: str, *, after: int) -> AsyncIterator[tuple[int, Event]]:
        """Poll the store for a run's events after number `after`; end when the run stops."""
        decoder, seq, pause = EventDecoder(), 0, _MIN_POLL_INTERVAL
        while True:
            # The record first: if the run stops in between, its last events are read nevertheless.
            record = await self.record(run_id)
            lines = await self.store.load(run_id, start=seq) if record.seq > seq else ()
            for line in lines:
                seq += 1
                if seq == 1:
                    continue  # The header.
                # Decode all, because later lines refer to the origins of earlier ones.
                event = decoder.read(line)
                if seq - 1 > after:
                    yield seq - 1, event
            if record.status != "running":
                return
            pause = _MIN_POLL_INTERVAL if lines else min(pause * 1.5, _MAX_POLL_INTERVAL)
            await asyncio.sleep(pause)

    def _open_running(
        self, run_id: str, first_events: "FirstEvents", context: Any, *, accept_changes: bool = False
    ) -> RunStream[Any]:
        options = ReopenOptions(first_events, context, accept_changes=accept_changes, only_if_running=True)
        return RunStream(with_observers(self._observers, ReopenedRun(self, run_id, options)))


class _StoredBackend:
    """The common part of the backends for new and reopened runs."""

    def __init__(self, repository: RunRepository, run_id: str, worker: str) -> None:
        self.run_id = run_id
        self._repository = repository
        self._worker = worker
        self._journal: Journal | None = None

    async def close(self, flow: TeamFlow, status: StoppedStatus) -> None:
        """Store the final status and release the lease."""
        if self._journal is not None:
            await self._repository.finish(flow, self._journal, status)

    def abandon(self, error: RunConflictError) -> None:
        """Store nothing more; `close` releases the lease."""
        if self._journal is not None:
            self._journal.fail(error)


class NewStoredRun(_StoredBackend):
    """The backend of a run that is created in a store."""

    def __init__(
        self,
        repository: RunRepository,
        started: RunStarted,
        *,
        start_at: StartAt,
        worker: str,
        context: Any = None,
        limits: Limits | None = None,
    ) -> None:
        super().__init__(repository, started.run_id, worker)
        self._started = started
        self._context = context
        self._limits = limits
        self._start_at = start_at

    async def prepare(self) -> tuple[RunStarted, Sequence[HistoryEntry]]:
        """Return the run's first event and the history of its thread."""
        repository = self._repository
        started = replace(self._started, team_fingerprint=repository.fingerprint)
        if not started.thread:
            return started, ()
        state = await repository.threads.latest(started.thread)
        active = state.active_agent if self._start_at == "active" else ""
        root = active if active in repository.config.team.members else started.root_agent
        return replace(started, root_agent=root, previous_run_id=state.last_run), state.entries

    async def open(self, sink: EventSink | None, run: SupportsStop) -> OpenRun:
        """Open the run; its first lines are stored before any agent runs."""
        repository = self._repository
        started, prior_entries = await self.prepare()

        async def create(lines: Sequence[bytes]) -> Lease:
            return await repository.create(started, lines, worker=self._worker, ttl=repository.ttl)

        self._journal = Journal(repository.store, create=create, sink=sink)
        limits = self._limits or repository.limits
        flow = create_flow(
            started, Log(), repository.config, context=self._context, limits=limits, prior_entries=prior_entries
        )
        flow.run.log.attach(self._journal)
        repository.heartbeat.add(self._journal, run)
        return OpenRun(flow, started.root_agent, [started], len(prior_entries))


FirstEvents = Callable[[Log], Sequence[Event]]
"""Returns the events to write first; raises if they are not valid for the log."""


class ReopenOptions(Struct, frozen=True):
    """Options for reopening a stored run."""

    first_events: FirstEvents
    context: Any = None
    limits: Limits | None = None
    accept_changes: bool = False
    only_if_running: bool = False
    """Raise RunConflictError if the run has stopped."""


class ReopenedRun(_StoredBackend):
    """The backend of a run that is loaded from a store."""

    def __init__(self, repository: RunRepository, run_id: str, options: ReopenOptions) -> None:
        super().__init__(repository, run_id, new_id())
        self._options = options

    async def open(self, sink: EventSink | None, run: SupportsStop) -> OpenRun:
        """Acquire the lease, so that no one else writes, and load the log."""
        repository = self._repository
        local = repository.local_states.get(self.run_id) or LocalRunState()
        lease = await repository.store.acquire(self.run_id, local.worker or self._worker, ttl=repository.ttl)
        try:
            record = await repository.record(self.run_id)
            if self._options.only_if_running and record.status != "running":
                raise RunConflictError(self.run_id, f"another worker drove it meanwhile; it is {record.status}")
            opened, seq = await self._load(local)
        except BaseException:
            await repository.store.release(lease)
            raise
        repository.local_states.pop(self.run_id, None)
        # From the first new line on the status is `running`, so that the run is recovered if this process dies.
        status = None if record.status == "running" else "running"
        journal = self._journal = Journal(repository.store, lease=lease, seq=seq, status=status, sink=sink)
        opened.flow.run.log.attach(journal)
        repository.heartbeat.add(journal, run)
        return opened

    async def _load(self, local: LocalRunState) -> tuple[OpenRun, int]:
        repository, options = self._repository, self._options
        events = await repository.events(self.run_id)
        require_known_events(events)
        started = run_started_event(events)
        if isinstance(events[-1], RunCompleted):
            raise RunError(f"run `{self.run_id}` has completed and cannot be resumed")
        recorded, current = started.team_fingerprint, repository.fingerprint
        if recorded and recorded != current and not options.accept_changes:
            raise TeamChangedError(self.run_id, diff_fingerprints(recorded, current))
        log = Log(events)
        first_events = options.first_events(log)
        previous = started.previous_run_id
        prior_entries = await repository.threads.entries_until(previous) if previous else ()
        flow = create_flow(
            started,
            log,
            repository.config,
            context=options.context if options.context is not None else local.context,
            limits=options.limits or local.limits or limits_of_run(started) or repository.limits,
            prior_entries=prior_entries,
            guests=local.guests,
        )
        return OpenRun(flow, started.root_agent, first_events, len(prior_entries)), len(events) + 1


def _no_events(log: Log) -> Sequence[Event]:
    return ()
