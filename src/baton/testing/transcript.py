"""A run as lines of text, for assertions that a person can read."""

from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from ..agents import HOOK_STEP
from ..events import (
    Answered,
    Asked,
    Cancelled,
    Changes,
    Completed,
    CutShort,
    Delta,
    Event,
    Failed,
    Finished,
    Heard,
    Resumed,
    RunStarted,
    Said,
    Started,
    Stepped,
    Suspended,
    ToolReturned,
    Transferred,
    Unknown,
)
from ..messages import AssistantMessage, Content, ToolCall, media_of, text_of


def transcript(events: Iterable[Event | Delta]) -> list[str]:
    """One line for each event, without times and ids; deltas and the record of hooks are left out."""
    return [_line(event) + _changed(event) for event in events if isinstance(event, Event) and not _is_of_hooks(event)]


def _is_of_hooks(event: Event) -> bool:
    return isinstance(event, Stepped) and event.name.startswith(HOOK_STEP) and event.changes is None


def spoken(message: AssistantMessage) -> str:
    """What a message says and calls: `said "Hi" + look_up({"city":"Rome"})`."""
    pieces = [f"said {_content(message.content, shown=_json)}"] if message.content else []
    pieces += [shown_call(call) for call in message.calls]
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
            return f"run of {event.root} started with {said}"
        case Started():
            return f"{event.agent} started"
        case Said():
            return f"{event.agent}: {spoken(event.message)}"
        case Heard():
            return f"user: said {_content(event.message.content, shown=_json)}"
        case CutShort():
            return f"{event.agent}: was interrupted, heard {_json(event.heard)}"
        case ToolReturned():
            return _returned(event)
        case Stepped():
            return f"{event.agent}: step {event.name} -> {_json(event.value)}"
        case Transferred():
            return _transferred(event)
        case Asked():
            about = f" about {shown_call(event.call)}" if event.call is not None else ""
            return f"{event.agent}: asked {_json(event.payload)}{about}"
        case Answered():
            return f"{event.agent or 'run'}: got the answer {_json(event.answer)}"
        case Finished():
            return f"{event.agent} finished"
        case _:
            return _line_of_run(event)


def _line_of_run(event: Event) -> str:
    match event:
        case Resumed():
            return "run resumed"
        case Completed():
            return "run completed"
        case Suspended():
            return f"run suspended with {len(event.open)} open question{'' if len(event.open) == 1 else 's'}"
        case Failed():
            return f"run failed with {event.error}: {_flat(event.message)}"
        case Cancelled():
            return "run cancelled"
        case Unknown():
            return f"{event.agent or 'run'}: unknown event {event.kind}"
        case _:
            return f"{event.agent or 'run'}: {type(event).__name__}"


def _returned(event: ToolReturned) -> str:
    verb = " failed" if event.is_error else ""
    end = " (final)" if event.is_final else ""
    return f"{event.agent}: {event.name}{verb} -> {_content(event.content, shown=_flat)}{end}"


def _transferred(event: Transferred) -> str:
    payload = f" with {_json(event.payload)}" if event.payload is not None else ""
    reason = f" ({_flat(event.reason)})" if event.reason else ""
    return f"{event.source} → {event.target}{payload}{reason}"


def _changed(event: Event) -> str:
    changes: Changes | None = getattr(event, "changes", None)
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
