"""Answers that an output guardrail has rejected: the log keeps them, histories do not."""

from collections.abc import Iterable, Sequence

from msgspec import UNSET
from msgspec.structs import replace

from ..messages import AssistantMessage, Message, ToolMessage
from . import keys
from .entries import EXIT_TOOL, FINISH_TOOL, WHOLE_MESSAGE, HistoryEntry
from .events import StepCompleted

_ENDING_TOOLS = (EXIT_TOOL, FINISH_TOOL)
_OUTPUT_VERDICT = f"{keys.GUARDRAIL}output:"
_WITHHELD = "Withheld, because an output guardrail rejected the answer."


def rejected_activation(event: StepCompleted) -> str:
    """Return the activation whose answer a step has rejected; "" if it is not such a verdict."""
    # A step of the application may have such a name too, but its key differs.
    if not event.name.startswith(_OUTPUT_VERDICT) or not keys.ends_with(event.key, event.name):
        return ""
    return "" if event.result["passed"] else keys.before(event.key, event.name)


def withhold_answers(entries: Sequence[HistoryEntry], activation: str) -> list[HistoryEntry | None]:
    """Return the entries without the answers of an activation and of agents inside it.

    Text becomes None. A turn whose calls gave the answer keeps the calls and a result for each, but not what they said.
    """
    inside = [entry for entry in entries if keys.is_effect_of(activation, entry.key)]
    answering = frozenset(_answering_responses(inside))
    changed = {id(entry): _withhold(entry, answering) for entry in inside}
    return [changed.get(id(entry), entry) for entry in entries]


def _answering_responses(entries: Iterable[HistoryEntry]) -> Iterable[str]:
    """Yield the keys of the responses whose calls gave an answer."""
    for entry in entries:
        message = entry.message
        if type(message) is ToolMessage:
            ends = message.name in _ENDING_TOOLS and not message.is_error
            if entry.is_answer or ends:
                yield keys.call_of(entry.key)[0]
        elif entry.is_answer and keys.ends_with(entry.key, keys.STOP):
            yield keys.parent(entry.key)


def _withhold(entry: HistoryEntry, answering: frozenset[str]) -> HistoryEntry | None:
    """Return what is left of an entry."""
    message = entry.message
    if type(message) is ToolMessage:
        if keys.call_of(entry.key)[0] not in answering:
            return entry
        return _with_message(entry, replace(message, content=_WITHHELD))
    if type(message) is AssistantMessage and message.tool_calls:
        if entry.key not in answering:
            return entry
        calls = [replace(each, arguments="{}") if each.name in _ENDING_TOOLS else each for each in message.tool_calls]
        return _with_message(entry, AssistantMessage(tool_calls=tuple(calls)))
    # The invalid answers before it, and their corrections, are gone as well.
    is_correction = entry.hidden == (WHOLE_MESSAGE,)
    return None if entry.is_answer or is_correction else entry


def _with_message(entry: HistoryEntry, message: Message) -> HistoryEntry:
    return replace(entry, message=message, rewritten=UNSET, rewritten_bare=UNSET)
