"""Another run from the beginning of one: up to some event, with something in it changed if wanted."""

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from ..context import to_json_value
from ..errors import RunError, quote_names
from ..events import (
    AgentResponded,
    Event,
    InterruptAnswered,
    InterruptRaised,
    RunCancelled,
    RunCompleted,
    RunFailed,
    RunResumed,
    RunStarted,
    RunSuspended,
    StepCompleted,
    ToolReturned,
    UserMessageAdded,
)
from ..messages import UserMessage, pair_calls_with_results, to_messages
from ..tools import to_tool_result
from .answers import answer_events
from .courses import run_started_event

_ABOUT_THE_RUN = (RunCompleted, RunSuspended, RunFailed, RunCancelled, RunResumed)


def fork_events(events: Sequence[Event], run_id: str, *, at: int | None, edit: Mapping[str, Any] | None) -> list[Event]:
    """The first `at` events as the log of a new run, with what `edit` changes by key.

    Of what came after the first change only other changes are kept: the rest may have come of it.
    """
    started = run_started_event(events)
    if at is not None and not 1 <= at <= len(events):
        raise RunError(f"run `{started.run_id}` has {len(events)} events; it can be forked at 1 to {len(events)}")
    kept = list(events if at is None else events[:at])
    if edit:
        kept = _edited(kept, edit)
    origin = f"{started.run_id}@{len(kept)}"
    # A fork is whoever's who makes it, and they are not the caller of the other run.
    kept[0] = replace(run_started_event(kept), run_id=run_id, forked_from=origin, thread="", owner="")
    return [event for event in kept if not isinstance(event, _ABOUT_THE_RUN)]


def _edited(events: Sequence[Event], edit: Mapping[str, Any]) -> list[Event]:
    known = {event.key: event for event in events}
    for key in edit:
        if key not in known:
            name, some = run_started_event(events).run_id, quote_names([event.key for event in events[:8]])
            raise RunError(f"run `{name}` has no event `{key}` to change before the fork; it has {some} …")
    first = next(number for number, event in enumerate(events) if event.key in edit)
    questions = {event.key: event for event in events if isinstance(event, InterruptRaised)}
    changed = [_changed(event, edit[event.key], questions) for event in events[first:] if event.key in edit]
    return [*events[:first], *changed]


def _changed(event: Event, value: Any, questions: Mapping[str, InterruptRaised]) -> Event:
    match event:
        case RunStarted():
            said = (
                (UserMessage(value),) if isinstance(value, str) else tuple(pair_calls_with_results(to_messages(value)))
            )
            return replace(event, input=said)
        case ToolReturned():
            return replace(event, content=to_tool_result(value, event.tool_name).content)
        case InterruptAnswered():
            (answered,) = answer_events(
                {event.interrupt_id: questions[event.interrupt_id]}, {event.interrupt_id: value}
            )
            return replace(event, answer=answered.answer)
        case StepCompleted():
            return replace(event, result=to_json_value("the changed value", value))
        case UserMessageAdded():
            return replace(event, message=UserMessage(value))
        case AgentResponded():
            if not isinstance(value, str):
                raise RunError(f"the words of `{event.key}` can be changed to other words, not to {value!r}")
            return replace(event, message=replace(event.message, content=value))
        case _:
            raise RunError(f"a {type(event).__name__} event cannot be changed; input, answers, results and words can")
