"""Transcripts of runs for readable assertions, and the comparison of two runs."""

import difflib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import msgspec

from ..log import events as types
from ..log import keys
from ..log.fold import history_from_log
from ..log.once_calls import intent_of, is_attempt_record
from ..messages import AssistantMessage, Content, Message, ToolCall, media_of, text_of
from ..runs.answers import STATUS_EVENTS


def transcript(events: Iterable[types.Event | types.Delta]) -> list[str]:
    """Format a log as one line per event, without timestamps and ids.

    Deltas and recorded hook calls are left out.

    Args:
        events: The events of a run, such as `result.events`.
    """
    return [
        _line(event) + _format_changes(event)
        for event in events
        if isinstance(event, types.Event) and not _is_hook_call(event)
    ]


def _is_hook_call(event: types.Event) -> bool:
    return isinstance(event, types.StepCompleted) and event.name.startswith(keys.HOOK) and event.value_changes is None


def format_response(message: AssistantMessage) -> str:
    """Format a response: `said "Hi" + look_up({"city":"Rome"})`."""
    pieces = [f"said {_format_content(message.content, format=_json)}"] if message.content else []
    pieces += [format_call(call) for call in message.tool_calls]
    if not pieces:
        return "said nothing"
    return " + ".join(pieces) if message.content else f"called {' + '.join(pieces)}"


def format_call(call: ToolCall) -> str:
    """Format a tool call: `look_up({"city":"Rome"})`."""
    return f"{call.name}({call.arguments})"


def _line(event: types.Event) -> str:  # noqa: C901
    match event:
        case types.RunStarted():
            said = ", ".join(_format_content(message.content, format=_json) for message in event.input) or "nothing"
            return f"run of {event.root_agent} started with {said}"
        case types.AgentStarted() | types.AgentFinished():
            return f"{event.agent} {type(event).__name__.removeprefix('Agent').lower()}"
        case types.AgentResponded():
            return f"{event.agent}: {format_response(event.message)}"
        case types.UserMessageAdded():
            said = f"user: said {_format_content(event.message.content, format=_json)}"
            return f"{said}, which was withheld" if event.withheld else said
        case types.ResponseTruncated():
            return f"{event.agent}: was interrupted, heard {_json(event.heard_text)}"
        case types.HistoryCompacted():
            return f"{event.agent}: compacted the history up to {event.upto.key} -> {_json(event.text)}"
        case types.ToolReturned():
            return _format_result(event)
        case types.StepCompleted():
            intent = intent_of(event)
            return f"{event.agent}: step {event.name} -> {_json(event.result if intent is None else intent.tool)}"
        case types.ControlTransferred():
            return _format_transfer(event)
        case types.TaskOpened():
            return f"{event.agent}: opened a task for {event.task.agent}"
        case types.TaskEnded():
            return _format_ended_task(event)
        case types.InterruptRaised():
            about = f" about {format_call(event.tool_call)}" if event.tool_call is not None else ""
            return f"{event.agent}: asked {_json(event.payload)}{about}"
        case types.InterruptAnswered(expired=True):
            return f"{event.agent}: got no answer in time"
        case types.InterruptAnswered():
            return f"{event.agent or 'run'}: got the answer {_json(event.answer)}"
        case types.RunResumed() | types.RunCompleted() | types.RunCancelled():
            return f"run {type(event).__name__.removeprefix('Run').lower()}"
        case types.RunSuspended():
            count = len(event.interrupt_ids)
            return f"run suspended with {count} open question{'' if count == 1 else 's'}"
        case types.RunFailed():
            return f"run failed with {event.error_type}: {_escape(event.message)}"
        case types.UnknownEvent():
            return f"{event.agent or 'run'}: unknown event {event.event_type}"
        case _:
            return f"{event.agent or 'run'}: {type(event).__name__}"


def _format_result(event: types.ToolReturned) -> str:
    verb = " failed" if event.is_error else ""
    end = " (final)" if event.is_final else ""
    edited = f"({event.edited_arguments})" if event.edited_arguments else ""
    return f"{event.agent}: {event.tool_name}{edited}{verb} -> {_format_content(event.content, format=_escape)}{end}"


def _format_transfer(event: types.ControlTransferred) -> str:
    payload = f" with {_json(event.payload)}" if event.payload is not None else ""
    reason = f" ({_escape(event.reason)})" if event.reason else ""
    return f"{event.source} → {event.target}{payload}{reason}"


def _format_ended_task(event: types.TaskEnded) -> str:
    result = f" -> {_json(event.result)}" if event.outcome == "finished" else ""
    reason = f" ({_escape(event.reason)})" if event.reason else ""
    return f"{event.agent}: {event.outcome} the task of {event.task.agent}{result}{reason}"


def _format_changes(event: types.Event) -> str:
    changes: types.ValueChanges | None = getattr(event, "value_changes", None)
    if changes is None or not (changes.written or changes.removed):
        return ""
    written = [f"{name}={_json(value)}" for name, value in changes.written.items()]
    removed = [f"{name} removed" for name in changes.removed]
    return f" [{', '.join(written + removed)}]"


def _format_content(content: Content, *, format: Callable[[str], str]) -> str:
    text = text_of(content)
    pieces = [format(text)] if text else []
    pieces += [type(part).__name__.lower() for part in media_of(content)]
    return " + ".join(pieces) or '""'


def _escape(text: str) -> str:
    return text.replace("\n", "\\n")


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


Normalize: TypeAlias = Callable[[str], str]
"""Removes from a line what may differ between two runs."""

_RUN_EVENTS = (types.RunStarted, *STATUS_EVENTS)
_ORDERED = (
    types.AgentStarted,
    types.AgentResponded,
    types.ControlTransferred,
    types.TaskOpened,
    types.TaskEnded,
    types.AgentFinished,
)
"""Events that one activation writes strictly in order."""


class FinishedRun(msgspec.Struct, frozen=True):
    """A finished run: its status, output, values and log."""

    status: str
    output: Any
    values: Mapping[str, Any]
    events: Sequence[types.Event]
    error: str = ""
    outside: Any = None


def comparable_events(events: Iterable[types.Event]) -> list[types.Event]:
    """Select the events that must be the same however often a run was resumed."""
    return [event for event in events if not isinstance(event, _RUN_EVENTS) and not _is_internal(event)]


def diff_runs(expected_run: FinishedRun, actual_run: FinishedRun, *, normalize: Normalize | None) -> list[str]:
    """Return the lines in which a run differs from the undisturbed run."""
    order = {event.key: place for place, event in enumerate(expected_run.events)}
    expected = _lines(expected_run, order)
    found = _lines(actual_run, order)
    if normalize is not None:
        expected = [*map(normalize, expected)]
        found = [*map(normalize, found)]
    if expected == found:
        expected = _sequences(expected_run)
        found = _sequences(actual_run)
    lines = difflib.ndiff(expected, found, linejunk=None, charjunk=None)
    return [line for line in lines if line[0] in "+-"]


def format_event(event: types.Event) -> str:
    """Format an event with its key."""
    lines = transcript([event])
    return f"{event.key}: {lines[0] if lines else 'hooks were called'}"


def _lines(run: FinishedRun, order: Mapping[str, int]) -> list[str]:
    lines = [f"status: {run.status}{f' ({run.error})' if run.error else ''}"]
    if run.status == "completed":
        lines.append(f"output: {run.output!r}")
        lines += [f"value {name}: {_json(value)}" for name, value in sorted(run.values.items())]
    lines += [f"said: {_format_message(entry.message)}" for entry in history_from_log(run.events)]
    # Concurrent work may end in any order, so events are compared by key.
    events = sorted(comparable_events(run.events), key=lambda event: order.get(event.key, len(order)))
    lines += [f"event {format_event(event)}" for event in events]
    if run.outside is not None:
        lines.append(f"outside: {run.outside!r}")
    return lines


def _sequences(run: FinishedRun) -> list[str]:
    """List the order of the strictly ordered events of each activation."""
    by_activation: dict[str, list[str]] = {}
    for event in comparable_events(run.events):
        if isinstance(event, _ORDERED):
            by_activation.setdefault(event.origin.id, []).append(event.key)
    return sorted(f"order: {', '.join(own)}" for own in by_activation.values())


def _is_internal(event: types.Event) -> bool:
    match event:
        case types.StepCompleted():
            return is_attempt_record(event)
        case types.InterruptRaised():
            return keys.call_with_unknown_outcome(event.key) is not None
        case types.InterruptAnswered():
            return keys.call_with_unknown_outcome(event.interrupt_id) is not None
        case _:
            return False


def _format_message(message: Message) -> str:
    if isinstance(message, AssistantMessage):
        return format_response(message)
    return f"{type(message).__name__} {text_of(message.content)!r}"
