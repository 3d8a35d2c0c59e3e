"""Handoffs through a filter: what the filter is given, and what the target reads of what it gives back."""

from bisect import bisect_left
from collections.abc import Awaitable, Sequence
from typing import Any

from msgspec.structs import replace

from ..agents import AgentContext
from ..context import History, HistoryEntry, RunContext, needs_await
from ..errors import SetupError
from ..handoffs import HandoffInputData, HandoffInputFilter
from ..messages import (
    AssistantMessage,
    Message,
    SystemMessage,
    ToolMessage,
    UserMessage,
    pair_calls_with_results,
    to_messages,
)
from .history import rewrite_entry, rewritten

_MESSAGES = frozenset((SystemMessage, UserMessage, AssistantMessage, ToolMessage))


class FilterInput:
    """A history as filters are given it: each message with its author in it. Made once, and longer with the history."""

    __slots__ = ("_entries", "_gone", "_hides", "_input_history", "_messages", "_position", "_sources")

    def __init__(self, history: History, *, hides_transfers: bool) -> None:
        self._entries = history.entries
        self._hides = hides_transfers
        self._position = history.inputs
        """How far the history has been read."""
        self._input_history = tuple([entry.message for entry in history.entries[: history.inputs]])
        self._messages: list[Message] = []
        """What was said since."""
        self._gone: list[int] = []
        """Where entries stand of which filters read nothing."""
        self._sources: dict[int, HistoryEntry] = {}
        """For each message, by identity: the entry it was taken from, which knows how everybody else reads it."""

    def data(self, ctx: AgentContext[Any]) -> HandoffInputData:
        """Everything said so far, cut where the turn that hands off begins."""
        self._read_on()
        messages, inputs = self._messages, self._input_history
        cut = max(ctx._turn_start - len(inputs), 0)
        if self._gone:
            cut -= bisect_left(self._gone, ctx._turn_start)
        return HandoffInputData(
            input_history=inputs,
            pre_handoff_items=tuple(messages[:cut]),
            new_items=tuple(messages[cut:]),
            run_context=RunContext(ctx._run, ctx._origin, f"{ctx._scope}/filter"),
        )

    def as_read(self, data: HandoffInputData, target: str, source: str, *, rewrites: bool) -> list[Message]:
        """The filtered messages in the words in which the target reads them, valid for every provider."""
        for section in (data.input_history, data.pre_handoff_items, data.new_items):
            if type(section) is not tuple:
                _check_section(section, source, target)
        read = list(data.input_history)
        if data.input_history is not self._input_history:
            read = [_as_message(message) for message in read]
        is_whole = True
        for message in read:
            is_whole = is_whole and type(message) is UserMessage
        sources, hides = self._sources if rewrites else {}, self._hides
        for section in (data.pre_handoff_items, data.new_items):
            for message in section:
                # What the filter left as it was has been rewritten before, or is for whoever reads it next.
                entry = sources.get(id(message))
                if entry is not None and entry.origin is not None and entry.origin.agent != target:
                    shown = rewrite_entry(entry, hides_transfers=hides)
                else:
                    shown = _as_read(_as_message(message), target, source, rewrites=rewrites)
                    is_whole = is_whole and type(shown) is UserMessage
                if shown is not None:
                    read.append(shown)
        return read if is_whole else pair_calls_with_results(read)

    def _read_on(self) -> None:
        entries, hides = self._entries, self._hides
        for position in range(self._position, len(entries)):
            entry = entries[position]
            message = entry.as_read_later(hides_transfers=hides) if entry.undone or hides else entry.message
            if message is None:
                self._gone.append(position)
                continue
            origin = entry.origin
            if origin is not None:
                if type(message) is AssistantMessage:
                    message = AssistantMessage(message.content, message.tool_calls, message.reasoning, origin.agent)
                elif type(message) is ToolMessage:
                    message = ToolMessage(
                        message.tool_call_id, message.name, message.content, message.is_error, origin.agent
                    )
                self._sources[id(message)] = entry
            self._messages.append(message)
        self._position = len(entries)


def excerpts_of(history: History, *, hides_transfers: bool) -> FilterInput:
    """The excerpts of this history; whoever asks first makes them."""
    excerpts = history.views.get(FilterInput)
    if excerpts is None:
        excerpts = history.views[FilterInput] = FilterInput(history, hides_transfers=hides_transfers)
    return excerpts


async def given_by(
    input_filter: HandoffInputFilter, given: HandoffInputData | Awaitable[HandoffInputData], source: str, target: str
) -> HandoffInputData:
    """What the filter gives, waited for if need be. Raises SetupError if that is something else."""
    data: Any = given
    if needs_await(data):
        data = await data
    if not isinstance(data, HandoffInputData):
        name = getattr(input_filter, "__name__", type(input_filter).__name__)
        raise SetupError(
            f"the filter `{name}` of the handoff from `{source}` to `{target}` returned {type(data).__name__}; "
            "it must return HandoffInputData, for instance data.clone(…)"
        )
    return data


def _check_section(section: Any, source: str, target: str) -> None:
    if isinstance(section, str) or not isinstance(section, Sequence):
        raise SetupError(f"a filter of the handoff from `{source}` to `{target}` gave {section!r}, not messages")


def _as_message(item: Any) -> Message:
    return item if type(item) in _MESSAGES else to_messages([item])[0]


def _as_read(message: Message, target: str, source: str, *, rewrites: bool) -> Message | None:
    """How the target reads a message that it wrote itself, or that a filter has changed or made."""
    if type(message) is not AssistantMessage and type(message) is not ToolMessage:
        return message
    author, shown = message.author or source, replace(message, author="")
    return rewritten(shown, author) if rewrites and author != target else shown
