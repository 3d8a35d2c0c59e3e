"""Who takes a run up, keeps what happens in it while it lasts, and puts it away when it stops.

Three of them: the memory of the runner, for runs without a store; nobody, for a replay; and a store, in `stored`.

How a run is set up for driving: from the event it began with, and what has happened in it since.

Ids that no other run has, cheap to make.
"""

import itertools
import os
import secrets
from collections.abc import Awaitable, Mapping, Sequence
from time import time
from typing import Any, Protocol

import msgspec
from msgspec import Struct

from ..context import HistoryEntry, Limits
from ..context.history import History
from ..context.run_state import RunState, UsageMeter
from ..errors import RunConflictError, RunError, RunNotFoundError
from ..events import Event, RunStarted
from ..events.codec import require_known_events
from ..flow.follow import FlowConfig, TeamFlow
from ..log import EventSink, Log
from ..messages import AssistantMessage
from .journal import SupportsStop
from .result import StoppedStatus


class OpenRun(Struct, frozen=True):
    """A run that is ready to be driven: its course, who begins, what happens first, and where its own words begin."""

    course: TeamFlow
    first: str
    opening: Sequence[Event] = ()
    said_before: int = 0


class RunBackend(Protocol):
    """Keeps one run. What it gives may have to be waited for; memory need not be, and waiting costs even then."""

    run_id: str

    def open(self, listener: EventSink | None, run: SupportsStop) -> OpenRun | Awaitable[OpenRun]:
        """Take the run up. Nobody else drives it until `close`."""
        ...

    def close(self, course: TeamFlow, status: StoppedStatus) -> Awaitable[None] | None:
        """Put the run away, now that it has stopped."""
        ...

    def abandon(self, error: RunConflictError) -> None:
        """Keep nothing of what happens from now on: somebody else will go on with the run from what is kept."""
        ...


class StoppedRun(Struct, frozen=True):
    """A run that waits to be resumed."""

    events: Sequence[Event]
    context: Any = None
    guests: Mapping[str, Any] = {}
    limits: Limits | None = None


class MemoryBackend:
    """Keeps a run in the runner's own memory, as long as that lasts."""

    def __init__(self, run_id: str, opened: OpenRun, waiting: dict[str, StoppedRun], *, is_new: bool) -> None:
        self.run_id = run_id
        self._opened = opened
        self._waiting = waiting
        self._is_new = is_new

    def open(self, listener: EventSink | None, run: SupportsStop) -> OpenRun:
        """Take the run up, if nobody has done so since it was asked for."""
        if self._is_new:
            if self.run_id in self._waiting:
                because = "resume it, or give the new run another id"
                raise RunError(f"a run `{self.run_id}` waits here to be resumed; {because}")
        elif self._waiting.pop(self.run_id, None) is None:
            raise RunNotFoundError(self.run_id, [*self._waiting])
        if listener is not None:
            self._opened.course.run.log.attach(listener)
        return self._opened

    def close(self, course: TeamFlow, status: StoppedStatus) -> None:
        """A run that has stopped before its end waits here."""
        if status != "completed":
            run = course.run
            self._waiting[self.run_id] = StoppedRun(run.log.events, run.context, run.dynamic_agents, run.meter.limits)

    def abandon(self, error: RunConflictError) -> None:
        """Nobody else could: it stays here."""


class NullBackend:
    """Keeps nothing: what is driven is a replay."""

    def __init__(self, run_id: str, opened: OpenRun) -> None:
        self.run_id = run_id
        self._opened = opened

    def open(self, listener: EventSink | None, run: SupportsStop) -> OpenRun:
        """Take it up as it is."""
        if listener is not None:
            self._opened.course.run.log.attach(listener)
        return self._opened

    def close(self, course: TeamFlow, status: StoppedStatus) -> None:
        """Nothing is left of it."""

    def abandon(self, error: RunConflictError) -> None:
        """There is nothing to abandon."""


def create_flow(
    started: RunStarted,
    log: Log,
    rules: FlowConfig,
    *,
    context: Any,
    limits: Limits,
    said_before: Sequence[HistoryEntry] = (),
    guests: Mapping[str, Any] | None = None,
) -> TeamFlow:
    """The course of a run; `said_before` is what was said in its thread, `guests` are agents made on the fly."""
    if log.has_past:
        require_known_events(log.events)
    run = RunState(started.run_id, log, context, dict(started.values), UsageMeter(limits))
    run.live = rules.live
    if guests:
        run.dynamic_agents.update(guests)
    history = History([*said_before, *map(HistoryEntry, started.input)])
    if len(history.entries) > 1:
        for entry in history.entries:
            if type(entry.message) is AssistantMessage:
                run.call_ids.update([call.id for call in entry.message.tool_calls])
    return TeamFlow(run, history, rules)


def run_started_event(events: Sequence[Event]) -> RunStarted:
    """The event that a log begins with. Raises RunError if it is not the log of a run."""
    if not events or not isinstance(events[0], RunStarted):
        raise RunError("this log does not begin with RunStarted; it is not the log of a run")
    return events[0]


def limits_of_run(started: RunStarted) -> Limits | None:
    """The limits that a run was given for itself, if any."""
    return msgspec.convert(started.limits, Limits) if started.limits else None


_count = itertools.count()
_process = ""


def _name_this_process() -> None:
    global _process
    _process = f"{int(time() * 1000):011x}{secrets.token_hex(4)}"


_name_this_process()
os.register_at_fork(after_in_child=_name_this_process)


def new_id() -> str:
    """When this process began, a random part, and a number that counts up."""
    return f"{_process}{next(_count):06x}"
