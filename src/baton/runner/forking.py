"""Another run from the beginning of one: up to some event, with something in it changed if wanted."""

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from ..context import as_json_value
from ..errors import RunError, listed
from ..events import (
    Answered,
    Cancelled,
    Completed,
    Event,
    Failed,
    Resumed,
    RunStarted,
    Said,
    Stepped,
    Suspended,
    ToolReturned,
)
from ..messages import UserMessage, as_messages
from .courses import start_of

_ABOUT_THE_RUN = (Completed, Suspended, Failed, Cancelled, Resumed)


def forked(events: Sequence[Event], run_id: str, *, at: int | None, edit: Mapping[str, Any] | None) -> list[Event]:
    """The first `at` events as the log of a new run, with what `edit` changes by key.

    Nothing that came after a change is kept: it may have come of what was changed.
    """
    started = start_of(events)
    if at is not None and not 1 <= at <= len(events):
        raise RunError(f"run `{started.run_id}` has {len(events)} events; it can be forked at 1 to {len(events)}")
    kept = list(events if at is None else events[:at])
    for key, value in (edit or {}).items():
        place = next((number for number, event in enumerate(kept) if event.key == key), None)
        if place is None:
            some = listed([event.key for event in kept[:8]])
            raise RunError(f"run `{started.run_id}` has no event `{key}` to change before the fork; it has {some} …")
        kept[place] = _changed(kept[place], value)
        del kept[place + 1 :]
    origin = f"{started.run_id}@{len(kept)}"
    kept[0] = replace(start_of(kept), run_id=run_id, forked_from=origin, thread="")
    return [event for event in kept if not isinstance(event, _ABOUT_THE_RUN)]


def _changed(event: Event, value: Any) -> Event:
    match event:
        case RunStarted():
            said = (UserMessage(value),) if isinstance(value, str) else tuple(as_messages(value))
            return replace(event, input=said)
        case ToolReturned():
            return replace(event, content=value)
        case Answered():
            return replace(event, answer=as_json_value("the changed answer", value))
        case Stepped():
            return replace(event, value=as_json_value("the changed value", value))
        case Said():
            return replace(event, message=replace(event.message, content=value))
        case _:
            raise RunError(f"a {type(event).__name__} event cannot be changed; input, answers, results and words can")
