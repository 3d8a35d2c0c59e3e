"""The protocol of backends, which open a run for driving and keep it when it stops; and how a run is set up.

A run without a store has the backend `UnstoredRun`; `stored/backends.py` has those of runs in a store.
"""

import itertools
import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from time import time
from typing import Any, Protocol

import msgspec
from msgspec import Struct

from ..context import Limits
from ..context.read_only import freeze_items
from ..context.run_state import RunState, UsageMeter
from ..context.values import require_encodable, to_json_value
from ..errors import LogError, SetupError, TeamChangedError
from ..log import Event, RunStarted
from ..log.entries import HistoryEntry
from ..log.event import RUN_ORIGIN
from ..log.history import History
from ..log.log import EventSink, Log
from ..log.once_calls import ForkedFrom
from ..messages import Message, RunInput, is_empty, pair_calls_with_results, to_messages
from ..messages.messages import call_ids_in
from ..stores import RunRecord
from ..team.follow import FlowConfig, TeamFlow
from ..team.tasks import TaskStack
from ..team.team import Team, diff_fingerprints, fingerprint_hash, team_fingerprint
from .result import RunResult, StoppedStatus
from .run_args import ResumeArgs, RunArgs
from .run_options import encode_given, record_options, restore_options, with_options
from .stored.journal import SupportsStop
from .threads.waiting_messages import unread_messages


class OpenRun(Struct, frozen=True):
    """A run that is ready to be driven."""

    flow: TeamFlow
    first_agent: str
    first_events: Sequence[Event] = ()
    """Events to write before any agent runs."""


class FollowedRun(Struct, frozen=True):
    """A run that is driven elsewhere: its events as they are stored, and then its result."""

    events: AsyncGenerator[Event]
    finish: Callable[[], Awaitable[tuple[OpenRun, RunResult[Any]]]]
    """Returns the state and the result of the run, which has stopped."""
    cancel: Callable[[], Awaitable[None]]
    """Cancels the run, unless it belongs to another caller, whose run took the message."""


class RunBackend(Protocol):
    """Opens and closes one run."""

    run_id: str
    is_waiting: bool
    """True while `open` waits for another run, and may be cancelled."""

    async def open(self, sink: EventSink | None, run: SupportsStop) -> OpenRun | FollowedRun:
        """Open the run for driving; no one else may drive it until `close`."""
        ...

    async def close(self, flow: TeamFlow, status: StoppedStatus) -> StoppedStatus:
        """Keep the run, which has stopped; return the status that was stored."""
        ...

    def leave(self, flow: TeamFlow) -> None:
        """Give the run up if it was not closed: its driver ends, and cannot wait."""
        ...

    async def cancel_suspended(self, flow: TeamFlow) -> Sequence[Event]:
        """Cancel the run, which is suspended; return its events since.

        There are none if it is not suspended any more.
        """
        ...


class StoppedRun(Struct, frozen=True):
    """The parts of a stopped run that no store can keep."""

    context: Any = None
    guests: Mapping[str, Any] = {}
    limits: Limits | None = None
    worker: str = ""
    """The worker that still holds the lease because the store failed to release it, else ""."""


_NOT_STOPPED = StoppedRun()


class NullBackend(Struct, eq=False):
    """Opens a run and keeps nothing of it, for replays."""

    run_id: str
    _opened: OpenRun
    is_waiting = False

    async def open(self, sink: EventSink | None, run: SupportsStop) -> OpenRun:
        """Return the run, with the sink attached to its log."""
        if sink is not None:
            self._opened.flow.run.log.attach(sink)
        return self._opened

    async def close(self, flow: TeamFlow, status: StoppedStatus) -> StoppedStatus:
        """Keep nothing."""
        return status

    def leave(self, flow: TeamFlow) -> None:
        """Hold nothing."""

    async def cancel_suspended(self, flow: TeamFlow) -> Sequence[Event]:
        """Leave the log, which is not ours to change."""
        return ()


class KeepsStoppedRuns(Protocol):
    """The memory of a runner without a store."""

    async def check_unused(self, run_id: str) -> None:
        """Raise RunExistsError if a run that stopped has this id."""
        ...

    async def keep(self, flow: TeamFlow, status: StoppedStatus) -> None:
        """Store a run that stopped before its end."""
        ...

    async def cancel_suspended(self, flow: TeamFlow) -> Sequence[Event]:
        """Cancel a suspended run; return its events since."""
        ...


class UnstoredRun(NullBackend, eq=False):
    """Opens a run that is stored only if it stops before its end, in the memory of its runner."""

    _memory: KeepsStoppedRuns

    async def open(self, sink: EventSink | None, run: SupportsStop) -> OpenRun:
        """Open the run, unless a run that stopped has its id."""
        await self._memory.check_unused(self.run_id)
        return await super().open(sink, run)

    async def close(self, flow: TeamFlow, status: StoppedStatus) -> StoppedStatus:
        """Keep the run if it has not completed."""
        if status != "completed":
            await self._memory.keep(flow, status)
        return status

    async def cancel_suspended(self, flow: TeamFlow) -> Sequence[Event]:
        """Cancel the run, which is suspended; return its events since."""
        return await self._memory.cancel_suspended(flow)


def open_run(
    started: RunStarted,
    log: Log,
    config: FlowConfig,
    args: RunArgs[Any] | ResumeArgs[Any],
    *,
    first_events: Sequence[Event] = (),
    prior_entries: Sequence[HistoryEntry] = (),
    is_whole: bool = True,
    stopped: StoppedRun = _NOT_STOPPED,
    record: RunRecord | None = None,
) -> OpenRun:
    """Set up a run.

    Raises:
        TeamChangedError: The team does not have the agent that the run started with.
    """
    run, config, first_events = open_state(started, log, config, args, first_events, stopped, record)
    history = History(prior_entries, is_whole=is_whole)
    history.is_main = True
    history.apply(started)
    if not log.has_past and not prior_entries and started.input and started.input[0].content:
        # Readers skip empty messages; except for an empty text alone, the input of a new run has none.
        history.first_messages = started.input
    if len(history.entries) > 1:
        run.call_ids.update(call_ids_in(started.input), call_ids_in([entry.message for entry in prior_entries]))
    flow = TeamFlow(run, history, config, config.team, TaskStack(list(started.tasks)))
    return OpenRun(flow, started.root_agent, first_events)


def open_state(
    started: RunStarted,
    log: Log,
    config: FlowConfig,
    args: RunArgs[Any] | ResumeArgs[Any],
    first_events: Sequence[Event],
    stopped: StoppedRun,
    record: RunRecord | None,
) -> tuple[RunState[Any], FlowConfig, Sequence[Event]]:
    """Set up the state of a run, apart from its history.

    Returns:
        The state, the configuration with the options of the run, and the first events with these options.

    Raises:
        SetupError: The run is new and has no context object, which a tool of its team needs.
        TeamChangedError: The team does not have the agent that the run started with.
    """
    if started.root_agent not in config.team.members:
        differences = diff_fingerprints(started.team_fingerprint, team_fingerprint(config.team))
        raise TeamChangedError(started.run_id, differences, missing_root=started.root_agent)
    if started.options or log.has_past:
        options = restore_options(started, log, args, config.team)
        if options:
            config = with_options(config, options)
            first_events = record_options(first_events, options, args)
    context = args.get("context")
    if context is None:
        factory = config.context_factory
        context = stopped.context if factory is None else factory(record or _record_of(started))
    if not log.has_past:
        config.team.check_context(context)
    meter = UsageMeter(limits_for(started, config, args, stopped))
    run = RunState(
        started.run_id,
        log,
        context,
        freeze_items(started.values),
        meter,
        dict(stopped.guests),
        config.live,
        fork=ForkedFrom(started) if started.forked_from else None,
        calls_in_doubt=list(started.calls_in_doubt),
    )
    if log.has_past:
        run.signals.messages = unread_messages([*log.events, *first_events])
    return run, config, first_events


def new_run_started(input: RunInput, args: RunArgs[Any], team: Team, fingerprint: dict[str, str]) -> RunStarted:
    """Return the first event of a new run, without what depends on the thread's earlier runs."""
    values = args.get("values")
    limits = args.get("limits")
    return RunStarted(
        "run",
        RUN_ORIGIN,
        time(),
        args.get("run_id") or new_id(),
        team.root,
        _to_input(input),
        to_json_value("the run's values", dict(values), is_strict=True) if values else {},
        args.get("thread") or "",
        team_fingerprint=fingerprint,
        owner=args.get("owner", ""),
        limits={} if limits is None else msgspec.structs.asdict(limits),
        options=encode_given(args, team) if args else {},
        input_guardrails=team.members[team.root].agent._guardrail_names()[0],
    )


def _to_input(given: RunInput) -> tuple[Message, ...]:
    """Return the input of a run as messages.

    Raises:
        SetupError: It is of no use to a model: not messages, or messages without content.
        NotEncodableError: Its text can neither be stored nor sent.
    """
    messages = to_messages(given)
    if messages and all(is_empty(message) for message in messages):
        raise SetupError("the input is empty; give a text, or messages of which at least one has text, media or calls")
    require_encodable("the input", messages)
    return messages if isinstance(given, str) else tuple(pair_calls_with_results(messages))


def _record_of(started: RunStarted) -> RunRecord:
    """Return what the record of a run that is not stored yet will say."""
    return RunRecord(
        run_id=started.run_id,
        thread=started.thread,
        previous=started.previous_run_id,
        owner=started.owner,
        created_at=started.timestamp,
        team=fingerprint_hash(started.team_fingerprint),
    )


def run_started_event(events: Sequence[Event]) -> RunStarted:
    """Return the first event of a log. Raises LogError if it is not RunStarted."""
    if not events or not isinstance(events[0], RunStarted):
        raise LogError(0, "the log of a run starts with RunStarted, but this one does not")
    return events[0]


def check_team(started: RunStarted, fingerprint: Mapping[str, str], args: ResumeArgs[Any]) -> None:
    """Raise TeamChangedError if the team has changed and the caller does not accept it."""
    recorded = started.team_fingerprint
    # Logs of earlier versions may have no fingerprint.
    if recorded and recorded != fingerprint and not args.get("accept_changes"):
        raise TeamChangedError(started.run_id, diff_fingerprints(recorded, fingerprint))


def limits_for(
    started: RunStarted, config: FlowConfig, args: RunArgs[Any] | ResumeArgs[Any], stopped: StoppedRun
) -> Limits:
    """Return the limits of a run.

    These are the caller's, those that it had when it stopped here or started, or the runner's.
    """
    recorded = msgspec.convert(started.limits, Limits) if started.limits else None
    return args.get("limits") or stopped.limits or recorded or config.limits


_counter = itertools.count()
_process_id = ""


def _set_process_id() -> None:
    global _process_id
    _process_id = f"{int(time() * 1000):011x}{os.urandom(4).hex()}"


_set_process_id()
os.register_at_fork(after_in_child=_set_process_id)


def new_id() -> str:
    """Return a unique id: the start time of this process, a random part and a counter."""
    return f"{_process_id}{next(_counter):06x}"
