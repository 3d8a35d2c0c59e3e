"""How a run is set up for driving: from the event it began with, and what has happened in it since."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from ..context import Entry, History, Limits, Meter, Run
from ..errors import RunError
from ..events import Event, RunStarted
from ..flow import Course, Rules
from ..log import Log
from ..messages import AssistantMessage


def course_of(
    started: RunStarted,
    log: Log,
    rules: Rules,
    *,
    context: Any,
    limits: Limits,
    said_before: Sequence[Entry] = (),
    guests: Mapping[str, Any] | None = None,
) -> Course:
    """The course of a run; `said_before` is what was said in its thread, `guests` are agents made on the fly."""
    run = Run(started.run_id, log, context, dict(started.values), Meter(limits))
    run.live = rules.live
    if guests:
        run.guests.update(guests)
    history = History([*said_before, *map(Entry, started.input)])
    if len(history.entries) > 1:
        for entry in history.entries:
            if type(entry.message) is AssistantMessage:
                run.call_ids.update([call.id for call in entry.message.calls])
    return Course(run, history, rules)


def start_of(events: Sequence[Event]) -> RunStarted:
    """The event that a log begins with. Raises RunError if it is not the log of a run."""
    if not events or not isinstance(events[0], RunStarted):
        raise RunError("this log does not begin with RunStarted; it is not the log of a run")
    return events[0]


def limits_in(started: RunStarted) -> Limits | None:
    """The limits that a run was given for itself, if any."""
    return msgspec.convert(started.limits, Limits) if started.limits else None
