"""Validation of answers to interrupts, and the edited logs of forked runs."""

import json
from collections.abc import Collection, Mapping, Sequence
from time import time
from typing import Any, cast

from msgspec import Struct, ValidationError, convert
from msgspec.structs import replace

from .._wording import show, type_of
from ..context.json_schemas import JSONSchema, SchemaError
from ..context.values import require_encodable, to_json_value
from ..errors import AnswerError, InterruptExpiredError, RunError, quote_names
from ..log import events as types
from ..log import keys
from ..log.event import RUN_ORIGIN
from ..log.log import Log
from ..log.once_calls import is_attempt_record, original_calls
from ..messages import AssistantMessage, ToolCall, UserMessage, pair_calls_with_results, to_messages
from ..tools.once import parse_outcome_report
from ..tools.results import to_tool_result
from ..tools.wrappers import Approval, parse_approval
from .opening import run_started_event
from .run_args import ResumeArgs
from .run_options import recorded_options
from .stream import STATUS_BY_EVENT

STATUS_EVENTS = (*STATUS_BY_EVENT, types.RunResumed)
"""Events that record when a run stopped and resumed; a fork drops them."""


CANCELLED_CALL = "This call was cancelled by the user before it was executed."
"""The result of the calls of a response after which the run was cancelled."""


class Dismiss(Struct, frozen=True):
    """Dismiss a question: its tool call is skipped and this reason becomes the result.

    Pass it to `resume` instead of all answers, or of one of them.
    """

    reason: str = "The user does not want to answer this and has moved on."
    """The result that the model reads."""


def resume_events(
    log: Log, now: float = 0.0, *, answers: Any = None, args: ResumeArgs[Any] | None = None
) -> list[types.Event]:
    """Return the first events of a resumed run.

    Raises:
        AnswerError: An answer is invalid.
    """
    args = args or {}
    message = args.get("message")
    said = require_encodable("the message", UserMessage(message) if isinstance(message, str) else message)
    key = keys.run_event("resumed", log.count)
    first: list[types.Event] = [types.RunResumed(key, RUN_ORIGIN, time(), message=said)]
    if not args.get("execute_calls"):
        first += _cancelled_calls(log.events)
    interrupts = log.open_interrupts()
    expired = {id: asked for id, asked in interrupts.items() if 0 < asked.deadline <= now}
    if expired:
        _refuse_late_answers(expired, interrupts, answers)
        first += [_expiry(asked) for asked in expired.values()]
        interrupts = {id: asked for id, asked in interrupts.items() if id not in expired}
    dismissals, answers = _split_dismissals(interrupts, answers)
    return first + dismissals + answer_events(interrupts, answers, args.get("values"))


def _expiry(asked: types.InterruptRaised) -> types.InterruptAnswered:
    answer = None if asked.default is None else asked.default.answer
    return types.InterruptAnswered(keys.answer(asked.key), asked.origin, time(), asked.key, answer, expired=True)


def _refuse_late_answers(
    expired: Mapping[str, types.InterruptRaised], interrupts: Mapping[str, types.InterruptRaised], answers: Any
) -> None:
    """Raise AnswerError for an answer to an interrupt whose deadline has passed."""
    if answers is None or isinstance(answers, Dismiss):
        return
    given: Mapping[Any, Any] = cast("Mapping[Any, Any]", answers) if isinstance(answers, Mapping) else {}
    late = [id for id in expired if id in given] or ([*expired] if len(interrupts) == 1 else [])
    if late:
        raise AnswerError(f"{InterruptExpiredError(late[0], expired[late[0]].deadline)}, and cannot be answered now")


def _cancelled_calls(events: Sequence[types.Event]) -> list[types.Event]:
    """Dismiss the calls of responses after which the run was cancelled, if none had begun."""
    last = next((event for event in reversed(events) if isinstance(event, STATUS_EVENTS)), None)
    if not isinstance(last, types.RunCancelled) or not last.after_response:
        return []
    begun = {keys.call_of(call)[0] for event in events for call in keys.calls_around(event.key)}
    return [
        _dismissal(keys.call(event.key, position), event, CANCELLED_CALL)
        for event in events
        if isinstance(event, types.AgentResponded) and event.key not in begun
        for position in range(len(event.tool_calls))
        if keys.is_call(keys.call(event.key, position))
    ]


def _split_dismissals(interrupts: Mapping[str, types.InterruptRaised], answers: Any) -> tuple[list[types.Event], Any]:
    """Return the events of calls that are dismissed, and the answers that are left."""
    given = dict.fromkeys(interrupts, answers) if isinstance(answers, Dismiss) else answers
    if not isinstance(given, Mapping):
        return [], given
    by_id = cast("Mapping[str, Any]", given)
    dismissed = {id: answer for id, answer in by_id.items() if isinstance(answer, Dismiss)}
    if not dismissed:
        return [], answers
    events: dict[str, types.Event] = {}
    for id, dismiss in dismissed.items():
        if id not in interrupts:
            raise AnswerError(f"no open interrupt has the id `{id}`; open: {quote_names([*interrupts])}")
        call = dismissed_call(id, interrupts[id].tool_call)
        events[call] = _dismissal(call, interrupts[id], dismiss.reason)
    return [*events.values()], {id: answer for id, answer in by_id.items() if id not in dismissed} or None


def dismissed_call(id: str, tool_call: ToolCall | None) -> str:
    """Return the key of the tool call that gets a result if an interrupt is dismissed.

    Raises:
        AnswerError: It does not come from a tool call.
    """
    calls = keys.calls_around(id)
    if not calls or tool_call is None:
        raise AnswerError(f"interrupt `{id}` does not come from a tool call and cannot be dismissed; answer it")
    return calls[-1]


def _dismissal(call_key: str, event: types.Event, reason: str) -> types.StepCompleted:
    return types.StepCompleted(keys.dismissal(call_key), event.origin, time(), keys.DISMISSED, reason)


def answer_events(
    interrupts: Mapping[str, types.InterruptRaised], answers: Any, values: Mapping[str, Any] | None = None
) -> list[types.InterruptAnswered]:
    """Validate answers and convert them to events.

    Raises:
        AnswerError: An answer is for an interrupt that is not open, or does not match its schema.
    """
    events: list[types.InterruptAnswered] = []
    if values and answers is None:
        raise AnswerError(f"values are only accepted together with an answer; got {quote_names([*values])} without one")
    new_values = {key: to_json_value(f"value `{key}`", value, is_strict=True) for key, value in (values or {}).items()}
    for id, answer in _answers_by_id(interrupts, answers).items():
        interrupt = interrupts[id]
        kind = _tool_question_kind(interrupt)
        try:
            if kind == "approval":
                answer = _parse_approval(answer, interrupt)
            elif kind == "unknown_outcome":
                answer = parse_outcome_report(answer)
        except AnswerError as error:
            if answer is not answers or not isinstance(answer, dict):
                raise
            raise AnswerError(f"{error}. To answer by interrupt id, use the id of the open one: {id!r}") from None
        json_answer = to_json_value(f"the answer to `{id}`", answer, is_strict=True)
        if interrupt.schema is not None:
            _check_schema(id, json_answer, interrupt.schema)
        events.append(types.InterruptAnswered(keys.answer(id), interrupt.origin, time(), id, json_answer, new_values))
    return events


def _answers_by_id(interrupts: Mapping[str, types.InterruptRaised], answers: Any) -> Mapping[str, Any]:
    if answers is None:
        return {}
    if isinstance(answers, Mapping):
        given = cast(Mapping[Any, Any], answers)
        unknown = [str(id) for id in given if id not in interrupts]
        if not unknown:
            return given
        # A dictionary may also be the answer itself, unless one of its keys looks like an interrupt id.
        if len(unknown) < len(given) or any(map(keys.looks_like_interrupt, unknown)) or len(interrupts) != 1:
            raise AnswerError(
                f"no open interrupt has the id {quote_names(unknown)}; open: {quote_names([*interrupts])}"
            )
    if len(interrupts) != 1:
        raise AnswerError(
            f"a single answer needs exactly one open interrupt; open: {quote_names([*interrupts])}. "
            "Pass a mapping from interrupt id to answer"
        )
    return {next(iter(interrupts)): answers}


def _tool_question_kind(interrupt: types.InterruptRaised) -> Any:
    """Return the kind of a question about a call or transfer; None for other interrupts."""
    if interrupt.tool_call is None and not keys.is_about_transfer(interrupt.key):
        return None
    return types.payload_fields(interrupt.payload).get("kind")


def _parse_approval(answer: Any, interrupt: types.InterruptRaised) -> Approval:
    """Parse an approval; raise AnswerError if it is invalid or changes what is not there."""
    approval = parse_approval(answer)
    question = types.payload_fields(interrupt.payload)
    if "handoff" not in question:
        return approval
    transfer = f"the transfer to `{question['handoff']}`"
    if approval.always:
        raise AnswerError(f"`always` approves a tool for the rest of the run, but {transfer} is approved each time")
    if approval.arguments is not None and question.get("input") is None:
        raise AnswerError(f"{transfer} has no input that `arguments` could replace; approve or reject it without them")
    return approval


def _check_schema(id: str, answer: Any, schema: dict[str, Any]) -> None:
    try:
        problems = JSONSchema(schema).problems("the answer", answer)
    except SchemaError as error:
        raise AnswerError(f"the answer to `{id}` cannot be checked: {error}") from None
    if problems:
        raise AnswerError(f"the answer to `{id}` does not fit its schema: {'; '.join(problems)}")


def fork_events(
    events: Sequence[types.Event], run_id: str, *, at: int | None, edit: Mapping[str, Any] | None
) -> list[types.Event]:
    """Return the log of a fork: the first `at` events, with the changes of `edit` by event key.

    Unedited events after the first edited one are dropped, because they may depend on it.
    """
    started = run_started_event(events)
    if at is not None and not 1 <= at <= len(events):
        raise RunError(
            f"run `{started.run_id}` has {len(events)} events; it can be forked at 1 to {len(events)}, not at {at}"
        )
    forked = list(events if at is None else events[:at])
    if edit:
        forked = _edit_events(forked, edit)
    origin = f"{started.run_id}@{len(forked)}"
    forked = _without_permissions(forked, edit or {})
    # The fork belongs to its creator, not to the thread and owner of the original run.
    options = recorded_options(forked)
    forked[0] = replace(
        run_started_event(forked),
        run_id=run_id,
        forked_from=origin,
        thread="",
        owner="",
        options=options,
        original_calls=original_calls(events, forked),
    )
    return [_with_new_run_id(event, started.run_id, run_id) for event in forked if not isinstance(event, STATUS_EVENTS)]


def _without_permissions(events: Sequence[types.Event], edit: Collection[str]) -> list[types.Event]:
    """Leave out what permitted the original run to act and has not led to a result here.

    A fork asks again before it acts, unless the caller gives the answer.
    """
    results = {event.key for event in events if isinstance(event, types.ToolReturned)}
    decided = {keys.call_with_unknown_outcome(key.removesuffix(keys.answer(""))) for key in edit}
    kept: list[types.Event] = []
    for position, event in enumerate(events):
        calls = keys.calls_around(event.key)
        if event.key in edit or not results.isdisjoint(calls) or (calls and calls[-1] in decided):
            kept.append(event)
        elif isinstance(event, types.InterruptAnswered):
            if not calls and _has_gone_on(event, events[position + 1 :]):
                kept.append(event)
        elif not (calls and (is_attempt_record(event) or keys.call_with_unknown_outcome(event.key))):
            kept.append(event)
    return kept


def _has_gone_on(answered: types.InterruptAnswered, later: Sequence[types.Event]) -> bool:
    """Return whether the code that asked, or agents after it, acted on the answer."""
    flow = keys.flow(answered.origin.id)
    passive = (types.InterruptAnswered, *STATUS_EVENTS)
    return any(event.key.startswith(flow) for event in later if not isinstance(event, passive))


def _with_new_run_id(event: types.Event, old: str, new: str) -> types.Event:
    """Let a summary of the original run cover the same part of the fork."""
    if isinstance(event, types.HistoryCompacted) and event.upto.run_id == old:
        return replace(event, upto=types.EventRef(new, event.upto.key))
    return event


class _CallEdit(Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    arguments: dict[str, Any] = {}


class _ResponseEdit(Struct, frozen=True, forbid_unknown_fields=True):
    content: str = ""
    tool_calls: tuple[_CallEdit, ...] = ()


def _edit_events(events: Sequence[types.Event], edit: Mapping[str, Any]) -> list[types.Event]:
    recorded = {event.key for event in events}
    for key in edit:
        if key not in recorded:
            run_id = run_started_event(events).run_id
            some = quote_names([event.key for event in events[:8]])
            raise RunError(f"run `{run_id}` has no event `{key}` before the fork; its events start with {some}")
    first = next(number for number, event in enumerate(events) if event.key in edit)
    interrupts = {event.key: event for event in events if isinstance(event, types.InterruptRaised)}
    edited = [_edit_event(event, edit[event.key], interrupts) for event in events[first:] if event.key in edit]
    return [*events[:first], *edited]


def _edit_event(event: types.Event, value: Any, interrupts: Mapping[str, types.InterruptRaised]) -> types.Event:
    match event:
        case types.RunStarted():
            messages = [UserMessage(value)] if isinstance(value, str) else pair_calls_with_results(to_messages(value))
            return replace(event, input=tuple(messages))
        case types.ToolReturned():
            return replace(event, content=to_tool_result(value, event.tool_name).content)
        case types.InterruptAnswered():
            id = event.interrupt_id
            (answered,) = answer_events({id: interrupts[id]}, {id: value})
            return replace(event, answer=answered.answer, expired=False)
        case types.StepCompleted():
            return replace(event, result=to_json_value("the edited value", value, is_strict=True))
        case types.UserMessageAdded():
            return replace(event, message=UserMessage(value))
        case types.HistoryCompacted():
            messages = [UserMessage(value)] if isinstance(value, str) else pair_calls_with_results(to_messages(value))
            return replace(event, summary=tuple(map(types.SummaryMessage, messages)))
        case types.AgentResponded():
            return replace(event, message=_edit_response(event, value))
        case _:
            raise RunError(
                f"{type_of(event)} event cannot be edited; input, answers, step and tool results, user "
                "messages, summaries and agent responses can"
            )


def _edit_response(event: types.AgentResponded, value: Any) -> AssistantMessage:
    """Return the response with another text, or with another text and other tool calls."""
    if isinstance(value, str):
        return replace(event.message, content=value)
    try:
        edit = convert(value, _ResponseEdit)
    except ValidationError as error:
        expected = 'another text, or by {"content": …, "tool_calls": [{"name": …, "arguments": {…}}]}'
        raise RunError(f"`{event.key}` can be replaced with {expected}, not with {show(value)}: {error}") from None
    ids = [call.id for call in event.tool_calls]
    calls = [
        ToolCall(ids[n] if n < len(ids) else keys.call(event.key, n), call.name, json.dumps(call.arguments))
        for n, call in enumerate(edit.tool_calls)
    ]
    return replace(event.message, content=edit.content, tool_calls=tuple(calls))
