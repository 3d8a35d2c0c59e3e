"""A run as lines of text, for assertions that a person can read.

What two runs have in common, as lines that can be laid side by side.
"""

import difflib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import msgspec

from ..agents.hooks import HOOK_STEP
from ..events import (
    AgentFinished,
    AgentResponded,
    AgentStarted,
    ControlTransferred,
    Delta,
    Event,
    InterruptAnswered,
    InterruptRaised,
    ResponseTruncated,
    RunCancelled,
    RunCompleted,
    RunFailed,
    RunResumed,
    RunStarted,
    RunSuspended,
    StepCompleted,
    ToolReturned,
    UnknownEvent,
    UserMessageAdded,
    ValueChanges,
)
from ..flow.log_history import history_from_log
from ..messages import AssistantMessage, Content, Message, ToolCall, media_of, text_of


def transcript(events: Iterable[Event | Delta]) -> list[str]:
    """One line for each event, without times and ids; deltas and the record of hooks are left out."""
    return [_line(event) + _changed(event) for event in events if isinstance(event, Event) and not _is_of_hooks(event)]


def _is_of_hooks(event: Event) -> bool:
    return isinstance(event, StepCompleted) and event.name.startswith(HOOK_STEP) and event.value_changes is None


def spoken(message: AssistantMessage) -> str:
    """What a message says and calls: `said "Hi" + look_up({"city":"Rome"})`."""
    pieces = [f"said {_content(message.content, shown=_json)}"] if message.content else []
    pieces += [shown_call(call) for call in message.tool_calls]
    if not pieces:
        return "said nothing"
    return " + ".join(pieces) if message.content else f"called {' + '.join(pieces)}"


def shown_call(call: ToolCall) -> str:
    """A call as code would write it: `look_up({"city":"Rome"})`."""
    return f"{call.name}({call.arguments})"


def _line(event: Event) -> str:
    match event:
        case RunStarted():
            said = ", ".join(_content(message.content, shown=_json) for message in event.input) or "nothing"
            return f"run of {event.root_agent} started with {said}"
        case AgentStarted():
            return f"{event.agent} started"
        case AgentResponded():
            return f"{event.agent}: {spoken(event.message)}"
        case UserMessageAdded():
            return f"user: said {_content(event.message.content, shown=_json)}"
        case ResponseTruncated():
            return f"{event.agent}: was interrupted, heard {_json(event.heard_text)}"
        case ToolReturned():
            return _returned(event)
        case StepCompleted():
            return f"{event.agent}: step {event.name} -> {_json(event.result)}"
        case ControlTransferred():
            return _transferred(event)
        case InterruptRaised():
            about = f" about {shown_call(event.tool_call)}" if event.tool_call is not None else ""
            return f"{event.agent}: asked {_json(event.payload)}{about}"
        case InterruptAnswered():
            return f"{event.agent or 'run'}: got the answer {_json(event.answer)}"
        case AgentFinished():
            return f"{event.agent} finished"
        case _:
            return _line_of_run(event)


def _line_of_run(event: Event) -> str:
    match event:
        case RunResumed():
            return "run resumed"
        case RunCompleted():
            return "run completed"
        case RunSuspended():
            return f"run suspended with {len(event.interrupt_ids)} open question{'' if len(event.interrupt_ids) == 1 else 's'}"
        case RunFailed():
            return f"run failed with {event.error_type}: {_flat(event.message)}"
        case RunCancelled():
            return "run cancelled"
        case UnknownEvent():
            return f"{event.agent or 'run'}: unknown event {event.event_type}"
        case _:
            return f"{event.agent or 'run'}: {type(event).__name__}"


def _returned(event: ToolReturned) -> str:
    verb = " failed" if event.is_error else ""
    end = " (final)" if event.is_final else ""
    return f"{event.agent}: {event.tool_name}{verb} -> {_content(event.content, shown=_flat)}{end}"


def _transferred(event: ControlTransferred) -> str:
    payload = f" with {_json(event.payload)}" if event.payload is not None else ""
    reason = f" ({_flat(event.reason)})" if event.reason else ""
    return f"{event.source} → {event.target}{payload}{reason}"


def _changed(event: Event) -> str:
    changes: ValueChanges | None = getattr(event, "value_changes", None)
    if changes is None or not (changes.written or changes.removed):
        return ""
    written = [f"{name}={_json(value)}" for name, value in changes.written.items()]
    removed = [f"{name} removed" for name in changes.removed]
    return f" [{', '.join(written + removed)}]"


def _content(content: Content, *, shown: Callable[[str], str]) -> str:
    text = text_of(content)
    pieces = [shown(text)] if text else []
    pieces += [type(part).__name__.lower() for part in media_of(content)]
    return " + ".join(pieces) or '""'


def _flat(text: str) -> str:
    return text.replace("\n", "\\n")


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


Alike: TypeAlias = Callable[[str], str]

_ABOUT_THE_RUN = (RunStarted, RunResumed, RunSuspended, RunCompleted, RunFailed, RunCancelled)
_IN_TURN = (AgentStarted, AgentResponded, ControlTransferred, AgentFinished)
"""What one activation does one after the other, never at once."""
_OUTCOME_IS_UNKNOWN = re.compile(r"/unknown\d+/ask\d+!?$")
_BOOKKEEPING_OF_ONCE = re.compile(r"/(intent|paused)\d+$")


class FinishedRun(msgspec.Struct, frozen=True):
    """A run that has come to its end: how it stands, what came of it, and its log."""

    status: str
    output: Any
    values: Mapping[str, Any]
    events: Sequence[Event]
    error: str = ""
    outside: Any = None


def events_of(events: Iterable[Event]) -> list[Event]:
    """The events that must be the same however often a run was taken up."""
    return [event for event in events if not isinstance(event, _ABOUT_THE_RUN) and not _is_bookkeeping(event)]


def differences_of(wanted: FinishedRun, got: FinishedRun, *, alike: Alike | None) -> list[str]:
    """The lines in which a run differs from the one that was not disturbed; none if they are alike."""
    order = {event.key: place for place, event in enumerate(wanted.events)}
    expected, found = _lines(wanted, order), _lines(got, order)
    if alike is not None:
        expected, found = [*map(alike, expected)], [*map(alike, found)]
    if expected == found:
        expected, found = _sequences(wanted), _sequences(got)
    lines = difflib.ndiff(expected, found, linejunk=None, charjunk=None)
    return [line for line in lines if line[0] in "+-"]


def line_of(event: Event) -> str:
    """One event in a few words: its key, and its line of a transcript."""
    told = transcript([event])
    return f"{event.key}: {told[0] if told else 'hooks were called'}"


def _lines(course: FinishedRun, order: Mapping[str, int]) -> list[str]:
    lines = [f"status: {course.status}{f' ({course.error})' if course.error else ''}"]
    if course.status == "completed":
        lines.append(f"output: {course.output!r}")
        lines += [f"value {name}: {_json(value)}" for name, value in sorted(course.values.items())]
    lines += [f"said: {_said(entry.message)}" for entry in history_from_log(course.events)]
    # What happens at once may end in any order, so that it is compared by key.
    events = sorted(events_of(course.events), key=lambda event: order.get(event.key, len(order)))
    lines += [f"event {line_of(event)}" for event in events]
    if course.outside is not None:
        lines.append(f"outside: {course.outside!r}")
    return lines


def _sequences(course: FinishedRun) -> list[str]:
    """The order of what happened one after the other, for each activation."""
    keys: dict[str, list[str]] = {}
    for event in events_of(course.events):
        if isinstance(event, _IN_TURN):
            keys.setdefault(event.origin.id, []).append(event.key)
    return sorted(f"order: {', '.join(own)}" for own in keys.values())


def _is_bookkeeping(event: Event) -> bool:
    if isinstance(event, StepCompleted):
        return event.name in ("intent", "paused") and _BOOKKEEPING_OF_ONCE.search(event.key) is not None
    return isinstance(event, InterruptRaised | InterruptAnswered) and _OUTCOME_IS_UNKNOWN.search(event.key) is not None


def _said(message: Message) -> str:
    if isinstance(message, AssistantMessage):
        return spoken(message)
    return f"{type(message).__name__} {text_of(message.content)!r}"
