"""Backends that open a run for driving and keep it when it stops, and the functions that set a run up.

`stored_runs` has the backends for runs in a store.
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
from ..flow.follow import FlowConfig, TeamFlow
from ..log import EventSink, Log
from ..messages import AssistantMessage
from .journal import SupportsStop
from .result import StoppedStatus


class OpenRun(Struct, frozen=True):
    """A run that is ready to be driven."""

    flow: TeamFlow
    first_agent: str
    first_events: Sequence[Event] = ()
    """Events to write before any agent runs."""
    history_offset: int = 0
    """The number of history entries that belong to earlier runs of the thread."""


class RunBackend(Protocol):
    """Opens and closes one run.

    `open` and `close` may return their result or an awaitable: awaiting costs time that the memory backend need not
    spend.
    """

    run_id: str

    def open(self, sink: EventSink | None, run: SupportsStop) -> OpenRun | Awaitable[OpenRun]:
        """Open the run for driving; no one else may drive it until `close`."""
        ...

    def close(self, flow: TeamFlow, status: StoppedStatus) -> Awaitable[None] | None:
        """Keep the run, which has stopped."""
        ...

    def abandon(self, error: RunConflictError) -> None:
        """Store nothing more: another worker continues from what is stored."""
        ...


class StoppedRun(Struct, frozen=True):
    """A run in memory that can be resumed."""

    events: Sequence[Event]
    context: Any = None
    guests: Mapping[str, Any] = {}
    limits: Limits | None = None


class NullBackend:
    """Opens a run and keeps nothing of it, for replays."""

    def __init__(self, run_id: str, opened: OpenRun) -> None:
        self.run_id = run_id
        self._opened = opened

    def open(self, sink: EventSink | None, run: SupportsStop) -> OpenRun:
        """Return the run, with the sink attached to its log."""
        if sink is not None:
            self._opened.flow.run.log.attach(sink)
        return self._opened

    def close(self, flow: TeamFlow, status: StoppedStatus) -> None:
        """Keep nothing."""

    def abandon(self, error: RunConflictError) -> None:
        """Do nothing: no other worker can reach the run."""


class MemoryBackend(NullBackend):
    """Keeps a run that stopped before its end in the runner's memory."""

    def __init__(self, run_id: str, opened: OpenRun, stopped: dict[str, StoppedRun], *, is_new: bool) -> None:
        super().__init__(run_id, opened)
        self._stopped = stopped
        self._is_new = is_new

    def open(self, sink: EventSink | None, run: SupportsStop) -> OpenRun:
        """Open the run, unless it has been resumed since the stream was created."""
        if self._is_new:
            if self.run_id in self._stopped:
                raise RunError(
                    f"run `{self.run_id}` exists and can be resumed; resume it, or give the new run another run_id"
                )
        elif self._stopped.pop(self.run_id, None) is None:
            raise RunNotFoundError(self.run_id, [*self._stopped])
        if sink is not None:
            self._opened.flow.run.log.attach(sink)
        return self._opened

    def close(self, flow: TeamFlow, status: StoppedStatus) -> None:
        """Keep the run if it has not completed."""
        if status != "completed":
            run = flow.run
            self._stopped[self.run_id] = StoppedRun(run.log.events, run.context, run.dynamic_agents, run.meter.limits)


def create_flow(
    started: RunStarted,
    log: Log,
    config: FlowConfig,
    *,
    context: Any,
    limits: Limits,
    prior_entries: Sequence[HistoryEntry] = (),
    guests: Mapping[str, Any] | None = None,
) -> TeamFlow:
    """Create the flow of a run.

    Args:
        started: The run's first event.
        log: The run's log.
        config: The team and its options.
        context: The user's context object.
        limits: The limits that apply to the run.
        prior_entries: History of the thread's earlier runs.
        guests: Agents that were created while the run was driven before.
    """
    run = RunState(started.run_id, log, context, dict(started.values), UsageMeter(limits))
    run.live = config.live
    if guests:
        run.dynamic_agents.update(guests)
    history = History([*prior_entries, *map(HistoryEntry, started.input)])
    if len(history.entries) > 1:
        for entry in history.entries:
            if type(entry.message) is AssistantMessage:
                run.call_ids.update([call.id for call in entry.message.tool_calls])
    return TeamFlow(run, history, config)


def run_started_event(events: Sequence[Event]) -> RunStarted:
    """Return the first event of a log. Raises RunError if it is not RunStarted."""
    if not events or not isinstance(events[0], RunStarted):
        raise RunError("the log of a run starts with RunStarted, but this one does not")
    return events[0]


def limits_of_run(started: RunStarted) -> Limits | None:
    """Return the limits that the run was started with, if any."""
    return msgspec.convert(started.limits, Limits) if started.limits else None


_counter = itertools.count()
_process_id = ""


def _set_process_id() -> None:
    global _process_id
    _process_id = f"{int(time() * 1000):011x}{secrets.token_hex(4)}"


_set_process_id()
os.register_at_fork(after_in_child=_set_process_id)


def new_id() -> str:
    """Return a unique id: the start time of this process, a random part and a counter."""
    return f"{_process_id}{next(_counter):06x}"
