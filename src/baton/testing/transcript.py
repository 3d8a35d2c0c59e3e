"""A run as lines of text, for assertions that a person can read."""

from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from ..agents import HOOK_STEP
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
from ..messages import AssistantMessage, Content, ToolCall, media_of, text_of


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
