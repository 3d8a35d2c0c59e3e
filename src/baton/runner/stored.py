"""Runs that a store keeps: begun, taken up again by whoever has the lease, and put away."""

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from ..context import HistoryEntry, Limits
from ..errors import LogError, RunConflictError, RunError, RunNotFoundError, StoreError, TeamChangedError
from ..events import Event, RunCompleted, RunStarted, decode_lines
from ..flow import FlowConfig, TeamFlow, diff_fingerprints, team_fingerprint
from ..log import EventSink, Log
from ..stores import Lease, RunRecord, Store
from .courses import create_flow, limits_of_run, run_started_event
from .heartbeat import LeaseHeartbeat, SupportsStop
from .journal import Journal
from .keeping import OpenRun
from .result import StoppedStatus
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
                self.known[run.id] = LocalRunState(run.context, run.guests, run.meter.limits, owner)
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
        root = floor if floor in archive.rules.team.seats else started.root_agent
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
