"""Answers from outside, checked before anything is written.

Another run from the beginning of one: up to some event, with something in it changed if wanted.
"""

from collections.abc import Mapping, Sequence
from time import time
from typing import Any, cast

from msgspec.structs import replace

from ..context.values import to_json_value
from ..errors import AnswerError, RunError, quote_names
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
from ..events.base import RUN_ORIGIN
from ..log import Log
from ..messages import UserMessage, pair_calls_with_results, to_messages
from ..tools.results import to_tool_result
from ..tools.wrappers import parse_approval, parse_outcome_report
from .backends import run_started_event


def resume_events(log: Log, *, answers: Any, values: Mapping[str, Any] | None = None) -> list[Event]:
    """What is written first when a run is resumed. Raises AnswerError if an answer is for no open question."""
    opening: list[Event] = [RunResumed(f"resumed{len(log.events)}", RUN_ORIGIN, time())]
    return opening + answer_events(log.open_interrupts(), answers, values)


def answer_events(
    open_questions: Mapping[str, InterruptRaised], answers: Any, values: Mapping[str, Any] | None = None
) -> list[InterruptAnswered]:
    """The answers as events. Raises AnswerError if one is for no open question, or is of the wrong form."""
    events: list[InterruptAnswered] = []
    if values and answers is None:
        raise AnswerError(f"values come to a run with an answer, and {quote_names([*values])} came with none")
    brought = {key: to_json_value(f"value `{key}`", value) for key, value in (values or {}).items()}
    for id, answer in _by_id(open_questions, answers).items():
        asked = open_questions[id]
        kind = _kind_of(asked)
        if kind == "approval":
            answer = parse_approval(answer)
        elif kind == "unknown_outcome":
            answer = parse_outcome_report(answer)
        plain = to_json_value(f"the answer to `{id}`", answer)
        if asked.schema is not None:
            _check_fit(id, plain, asked.schema)
        events.append(InterruptAnswered(f"{id}!", asked.origin, time(), id, plain, brought))
    return events


def _by_id(open_questions: Mapping[str, InterruptRaised], answers: Any) -> Mapping[str, Any]:
    if answers is None:
        return {}
    if isinstance(answers, Mapping):
        given = cast(Mapping[Any, Any], answers)
        unknown = [str(id) for id in given if id not in open_questions]
        if not unknown:
            return given
        # A dictionary may also be the answer itself, unless some of its keys show that it was meant otherwise.
        if len(unknown) < len(given) or any("/ask" in id for id in unknown) or len(open_questions) != 1:
            raise AnswerError(
                f"no open question is called {quote_names(unknown)}; open are: {quote_names([*open_questions])}"
            )
    if len(open_questions) != 1:
        raise AnswerError(
            f"a single answer needs exactly one open question, but open are: {quote_names([*open_questions])}; "
            "give a mapping from id to answer"
        )
    return {next(iter(open_questions)): answers}


def _kind_of(asked: InterruptRaised) -> Any:
    """What sort of question a tool's wrapper asks about a call; None if it is somebody's own."""
    if asked.tool_call is None or not isinstance(asked.payload, dict):
        return None
    return cast("dict[str, Any]", asked.payload).get("kind")  # pyright: ignore[reportUnknownMemberType]


def _check_fit(id: str, answer: Any, schema: dict[str, Any]) -> None:
    from jsonschema import Draft202012Validator

    problems: list[str] = []
    validator: Any = Draft202012Validator(schema)
    for problem in validator.iter_errors(answer):
        place = ".".join(str(step) for step in problem.absolute_path) or "the answer"
        problems.append(f"{place}: {problem.message}")
    if problems:
        raise AnswerError(f"the answer to `{id}` does not fit what was asked for: {'; '.join(problems[:5])}")


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
