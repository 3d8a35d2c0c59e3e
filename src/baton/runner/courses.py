"""How a run is set up for driving: from the event it began with, and what has happened in it since."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from ..context import History, HistoryEntry, Limits, RunState, UsageMeter
from ..errors import RunError
from ..events import Event, RunStarted
from ..flow import FlowConfig, TeamFlow
from ..log import Log
from ..messages import AssistantMessage


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
    run = RunState(started.run_id, log, context, dict(started.values), UsageMeter(limits))
    run.live = rules.live
    if guests:
        run.guests.update(guests)
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
