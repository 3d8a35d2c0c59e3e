"""Runs that a store keeps: begun, taken up again by whoever has the lease, and put away.

What can be done with stored runs besides driving one here and now: leave it to others, pick it up, stop it.

Reading along in a stored run that somebody else drives, in this process or another.
"""

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
from ..events.codec import encode_header
from ..flow.follow import FlowConfig, TeamFlow
from ..flow.team import diff_fingerprints, team_fingerprint
from ..log import EventSink, Log
from ..stores import Lease, RunRecord, RunStatus, Store, iter_records
from .answers import resume_events
from .backends import OpenRun, create_flow, limits_of_run, new_id, run_started_event
from .journal import Journal, LeaseHeartbeat, SupportsStop
from .observers import Observer, with_observers
from .result import StoppedStatus
from .stream import RunStream
from .threads import ThreadReader

_REMEMBERED = 1000


class LocalRunState(Struct, frozen=True):
    """What no store can keep of a run, and this process knows: the user's object, agents made on the fly, limits."""

    context: Any = None
    guests: Mapping[str, Any] = {}
    limits: Limits | None = None
    worker: str = ""
    """Who has the lease still, because the store could not take it back."""


class RunRepository:
    """A runner's side of its store: what it reads there, and under which conditions it drives a run from there."""

    def __init__(self, store: Store, rules: FlowConfig, *, limits: Limits, ttl: float) -> None:
        self.store = store
        self.rules = rules
        self.limits = limits
        self.ttl = ttl
        self.heartbeat = LeaseHeartbeat(store, ttl)
        self.conversations = ThreadReader(store)
        self.fingerprint = team_fingerprint(rules.team)
        self.known: OrderedDict[str, LocalRunState] = OrderedDict()
        """Of runs that stopped here before their end, the latest ones."""

    def under(self, rules: FlowConfig) -> "RunRepository":
        """The same archive for runs under other rules of the same team."""
        other = copy(self)
        other.rules = rules
        return other

    async def record(self, run_id: str) -> RunRecord:
        """What is known about a run. Raises RunNotFoundError if there is none."""
        record = await self.store.record(run_id)
        if record is None:
            raise RunNotFoundError(run_id, store=str(self.store))
        return record

    async def events(self, run_id: str) -> list[Event]:
        """The log of a run. Raises LogError, saying where, if it cannot be read."""
        events = decode_lines(await self.store.load(run_id))
        if not events or not isinstance(events[0], RunStarted) or events[0].run_id != run_id:
            raise LogError(0, f"it is not the log of run `{run_id}`")
        return events

    async def begin(self, started: RunStarted, lines: Sequence[bytes], *, owner: str, ttl: float) -> Lease:
        """Make a run in the store with its first lines."""
        lease = await self.store.create(
            started.run_id, lines, thread=started.thread, owner=started.owner, worker=owner, ttl=ttl
        )
        if started.thread:
            try:
                await self.conversations.check_follows(started.thread, started.run_id, started.previous_run_id)
            except StoreError:
                # Nobody knows of the run yet; it must not keep its thread busy.
                await self.store.delete(started.run_id)
                raise
        return lease

    def check_team(self, started: RunStarted) -> None:
        """Raise TeamChangedError if the run began with a team that is not this one."""
        if started.team_fingerprint and started.team_fingerprint != self.fingerprint:
            raise TeamChangedError(started.run_id, diff_fingerprints(started.team_fingerprint, self.fingerprint))

    async def put_away(self, course: TeamFlow, journal: Journal, status: StoppedStatus) -> None:
        """Store how a run stopped, and hold its lease no longer."""
        self.heartbeat.let_go(journal)
        try:
            await journal.finish(status)
        finally:
            if journal.lease is not None and (status != "completed" or journal.failure is not None):
                run, owner = course.run, "" if journal.is_given_back else journal.lease.worker
                self.known[run.id] = LocalRunState(run.context, run.dynamic_agents, run.meter.limits, owner)
                while len(self.known) > _REMEMBERED:
                    self.known.popitem(last=False)


class _StoredBackend:
    """What a run that begins in a store and one that is taken up from there have in common: how they are put away."""

    def __init__(self, archive: RunRepository, run_id: str, *, owner: str) -> None:
        self.run_id = run_id
        self._archive = archive
        self._owner = owner
        self._journal: Journal | None = None

    async def close(self, course: TeamFlow, status: StoppedStatus) -> None:
        """Store how it stopped, and give the lease back."""
        if self._journal is not None:
            await self._archive.put_away(course, self._journal, status)

    def abandon(self, error: RunConflictError) -> None:
        """Store nothing more. The lease is given back when it closes."""
        if self._journal is not None:
            self._journal.fail(error)


class NewStoredRun(_StoredBackend):
    """A run that begins in a store."""

    def __init__(
        self,
        archive: RunRepository,
        started: RunStarted,
        *,
        floor: Literal["active", "root"],
        worker: str,
        context: Any = None,
        limits: Limits | None = None,
    ) -> None:
        super().__init__(archive, started.run_id, owner=worker)
        self._started = started
        self._context = context
        self._limits = limits
        self._floor = floor

    async def begun(self) -> tuple[RunStarted, Sequence[HistoryEntry]]:
        """The event it begins with, and what was said in its thread before."""
        archive, started = self._archive, replace(self._started, team_fingerprint=self._archive.fingerprint)
        if not started.thread:
            return started, ()
        conversation = await archive.conversations.latest(started.thread)
        floor = conversation.floor if self._floor == "active" else ""
        root = floor if floor in archive.rules.team.members else started.root_agent
        return replace(started, root_agent=root, previous_run_id=conversation.last_run), conversation.entries

    async def open(self, listener: EventSink | None, run: SupportsStop) -> OpenRun:
        """Set the run up. Its first lines are stored before anything happens in it."""
        archive = self._archive
        started, said_before = await self.begun()

        async def begin(lines: Sequence[bytes]) -> Lease:
            return await archive.begin(started, lines, owner=self._owner, ttl=archive.ttl)

        self._journal = Journal(archive.store, begin=begin, listener=listener)
        limits = self._limits or archive.limits
        course = create_flow(
            started, Log(), archive.rules, context=self._context, limits=limits, said_before=said_before
        )
        course.run.log.attach(self._journal)
        archive.heartbeat.hold(self._journal, run)
        return OpenRun(course, started.root_agent, [started], len(said_before))


class ReopenOptions(Struct, frozen=True):
    """How a run is to be taken up. `opening` gives what is written first; it raises if that is not waited for."""

    opening: Callable[[Log], Sequence[Event]]
    context: Any = None
    limits: Limits | None = None
    accepts_changes: bool = False
    only_if_running: bool = False
    """Whether a run that has stopped is left as it is; RunConflictError says that it has."""


class ReopenedRun(_StoredBackend):
    """A run that is taken up again from a store."""

    def __init__(self, archive: RunRepository, run_id: str, how: ReopenOptions, *, worker: str) -> None:
        super().__init__(archive, run_id, owner=worker)
        self._how = how

    async def open(self, listener: EventSink | None, run: SupportsStop) -> OpenRun:
        """Take the lease, then read the log: nobody else writes to it any more."""
        archive = self._archive
        known = archive.known.get(self.run_id) or LocalRunState()
        lease = await archive.store.acquire(self.run_id, known.worker or self._owner, ttl=archive.ttl)
        try:
            record = await archive.record(self.run_id)
            if self._how.only_if_running and record.status != "running":
                raise RunConflictError(self.run_id, f"somebody else drove it meanwhile, and it is {record.status}")
            opened, seq = await self._read(known)
        except BaseException:
            await archive.store.release(lease)
            raise
        archive.known.pop(self.run_id, None)
        # A run that had stopped is running again from its first new line on: if we die, somebody must pick it up.
        status = None if record.status == "running" else "running"
        journal = Journal(archive.store, lease=lease, seq=seq, status=status, listener=listener)
        self._journal = journal
        opened.course.run.log.attach(journal)
        archive.heartbeat.hold(journal, run)
        return opened

    async def _read(self, known: LocalRunState) -> tuple[OpenRun, int]:
        archive, how = self._archive, self._how
        events = await archive.events(self.run_id)
        started = run_started_event(events)
        if isinstance(events[-1], RunCompleted):
            raise RunError(f"run `{self.run_id}` is completed; there is nothing left to resume")
        if not how.accepts_changes:
            archive.check_team(started)
        log = Log(events)
        opening = how.opening(log)
        said_before = await archive.conversations.up_to(started.previous_run_id) if started.previous_run_id else ()
        course = create_flow(
            started,
            log,
            archive.rules,
            context=how.context if how.context is not None else known.context,
            limits=how.limits or known.limits or limits_of_run(started) or archive.limits,
            said_before=said_before,
            guests=known.guests,
        )
        return OpenRun(course, started.root_agent, opening, len(said_before)), len(events) + 1


_logger = logging.getLogger("baton.runner")
_PAUSE = 0.02


async def submit(archive: RunRepository, started: RunStarted, *, floor: Literal["active", "root"]) -> str:
    """Store a run as begun, held by nobody."""
    begun, _ = await NewStoredRun(archive, started, floor=floor, worker="").begun()
    await archive.begin(begun, [encode_header(), encode_event(begun)], owner="", ttl=0)
    return begun.run_id


async def store_log(archive: RunRepository, events: Sequence[Event]) -> str:
    """Store a log that was made elsewhere as a run that waits to be resumed."""
    started = run_started_event(events)
    lines = [encode_header(), *map(encode_event, events)]
    lease = await archive.store.create(
        started.run_id, lines, thread=started.thread, owner=started.owner, worker=new_id(), ttl=archive.ttl
    )
    await archive.store.append(started.run_id, len(lines), (), status="suspended", fence=lease.fence)
    await archive.store.release(lease)
    return started.run_id


async def drive(
    archive: RunRepository, run_id: str, *, context: Any, accepts_changes: bool, readers: Sequence[Observer] = ()
) -> RunStatus:
    """Drive a run that is not finished and waits for nobody; how it stands then."""
    record = await archive.record(run_id)
    if record.status != "running":
        return record.status
    if record.cancel_requested and record.lease_until <= time():
        # Whoever was to read that word is dead; it counts all the same.
        return await cancel(archive, run_id, record.cancel_requested)
    how = ReopenOptions(_nothing_new, context, accepts_changes=accepts_changes, only_if_running=True)
    live: RunStream[Any] = RunStream(with_observers(readers, ReopenedRun(archive, run_id, how, worker=new_id())))
    try:
        await live._drive()
    except RunConflictError:
        record = await archive.record(run_id)
        if record.status == "running":
            raise
        return record.status
    except Exception:
        record = await archive.record(run_id)
        # What ended the run is on record; what kept us from driving it is not, and is raised.
        if record.status != "failed":
            raise
        _logger.warning("run `%s` failed", run_id, exc_info=True)
        return record.status
    return live.result.status


def take_over_run(archive: RunRepository, run_id: str, *, context: Any, readers: Sequence[Observer]) -> RunStream[Any]:
    """A run whose driver has died, to listen to. Raises RunConflictError if it has been taken up or has stopped since."""
    how = ReopenOptions(partial(resume_events, answers=None), context, only_if_running=True)
    return RunStream(with_observers(readers, ReopenedRun(archive, run_id, how, worker=new_id())))


async def answer(archive: RunRepository, run_id: str, answers: Any, *, values: Mapping[str, Any] | None = None) -> None:
    """Write answers to a run, and values that come with them; it is running again then, held by nobody."""
    lease = await archive.store.acquire(run_id, new_id(), ttl=archive.ttl)
    try:
        events = await archive.events(run_id)
        if isinstance(events[-1], RunCompleted):
            raise RunError(f"run `{run_id}` is completed; it has no open questions")
        opening = resume_events(Log(events), answers=answers, values=values)
        lines = [encode_event(event) for event in opening]
        await archive.store.append(run_id, len(events) + 1, lines, status="running", fence=lease.fence)
    finally:
        await archive.store.release(lease)


async def cancel(archive: RunRepository, run_id: str, when: Literal["now", "after_turn"]) -> RunStatus:
    """Stop a run: by word to its driver, or, if it has none, by writing down that it is stopped."""
    while True:
        record = await archive.record(run_id)
        if record.status not in ("running", "suspended"):
            return record.status
        try:
            lease = await archive.store.acquire(run_id, new_id(), ttl=archive.ttl)
            break
        except RunConflictError:
            # If it is held and not running, its driver is about to let go, or has only just begun.
            if await archive.store.request_cancel(run_id, when):
                return "running"
            await asyncio.sleep(_PAUSE)
    try:
        record = await archive.record(run_id)
        if record.status not in ("running", "suspended"):
            return record.status
        line = encode_event(RunCancelled(f"cancelled{record.seq - 1}", RUN_ORIGIN, time()))
        await archive.store.append(run_id, record.seq, [line], status="cancelled", fence=lease.fence)
        return "cancelled"
    finally:
        await archive.store.release(lease)


async def unfinished(archive: RunRepository) -> list[RunRecord]:
    """Runs that are said to be running though nobody holds them, the oldest first."""
    running = iter_records(archive.store, status=["running"], oldest_first=True)
    return [record async for record in running if record.lease_until <= time()]


async def recover(archive: RunRepository, *, context: Any, max_concurrency: int) -> dict[str, RunStatus]:
    """Drive all unfinished runs, some at once. Others may do the same: what they hold is left to them.

    A run that cannot be driven, because its log is damaged for instance, is no reason to leave the others undone.
    """
    room = asyncio.Semaphore(max_concurrency)
    statuses: dict[str, RunStatus] = {}

    async def drive_one(run_id: str) -> None:
        async with room:
            try:
                statuses[run_id] = await drive(archive, run_id, context=context, accepts_changes=False)
            except RunConflictError:
                _logger.info("run `%s` is driven by somebody else", run_id)
            except Exception:
                _logger.exception("run `%s` could not be driven", run_id)
                statuses[run_id] = "running"

    async with asyncio.TaskGroup() as tasks:
        for record in await unfinished(archive):
            tasks.create_task(drive_one(record.run_id))
    return statuses


def _nothing_new(log: Log) -> Sequence[Event]:
    return ()


_SHORTEST_PAUSE = 0.02
_LONGEST_PAUSE = 0.5


async def watch_run(archive: RunRepository, run_id: str, *, after: int) -> AsyncIterator[tuple[int, Event]]:
    """The events of a run from number `after` on, with their numbers, as they are stored; ends when the run stops."""
    reader, seq, pause = EventDecoder(), 0, _SHORTEST_PAUSE
    while True:
        # The status first: if the run stops in between, what it wrote last is read all the same.
        record = await archive.record(run_id)
        lines = await archive.store.load(run_id, start=seq) if record.seq > seq else ()
        for line in lines:
            seq += 1
            if seq == 1:
                continue  # The line that names the format.
            # All are read, because later ones refer to the origins of earlier ones.
            event = reader.read(line)
            if seq - 1 > after:
                yield seq - 1, event
        if record.status != "running":
            return
        pause = _SHORTEST_PAUSE if lines else min(pause * 1.5, _LONGEST_PAUSE)
        await asyncio.sleep(pause)
