"""The history as the input filters of handoffs get it."""

from bisect import bisect_left
from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from ..agents import AgentContext
from ..agents.agent_context import HistoryFunction
from ..context import RunContext
from ..errors import SetupError
from ..handoffs import HandoffInputData
from ..log import keys
from ..log.entries import HistoryEntry
from ..log.events import SummaryReaders
from ..log.history import History
from ..log.views import as_response, rewrite, rewrite_entry
from ..messages import (
    AssistantMessage,
    Message,
    ToolMessage,
    UserMessage,
    pair_calls_with_results,
    to_messages,
)


class FilterInput:
    """The history as input filters get it, with the author in each message."""

    __slots__ = (
        "_entries",
        "_first",
        "_gone",
        "_hides",
        "_input_history",
        "_messages",
        "_position",
        "_prefix",
        "_sources",
        "_summarized",
    )

    def __init__(self, history: History, *, hide_transfers: bool) -> None:
        self._entries = history.entries
        self._hides = hide_transfers
        summary, given = self._split_summary(history)
        self._prefix = history.prefix_for("all")
        self._position = self._first = max(history.inputs, self._prefix.stop)
        """The position of the first entry after the input and the summary."""
        self._input_history = tuple([entry.message for entry in given])
        self._messages: list[Message] = []
        """The messages after the input."""
        self._gone: list[int] = []
        """The positions of entries that are hidden as a whole."""
        self._sources: dict[int, HistoryEntry] = {}
        """The entry of each message, by identity of the message."""
        for entry in summary:
            self._add(entry)
        self._summarized = len(self._messages)

    @staticmethod
    def _split_summary(history: History) -> tuple[Sequence[HistoryEntry], Sequence[HistoryEntry]]:
        """Return the entries of the summary that are not input, and those that are, with the rest."""
        if not history.compacted:
            return (), history.entries[: history.inputs]
        prefix = history.prefix_for("all")
        before = prefix.entries
        if prefix.stop < history.inputs:
            return (), [*before, *history.entries[prefix.stop : history.inputs]]
        return before[prefix.inputs :], before[: prefix.inputs]

    @classmethod
    def of(cls, history: History, *, hide_transfers: bool) -> "FilterInput":
        """Return the filter input of a history, which is created once for each summary."""
        known = history.views.get(cls)
        if known is None or known._prefix is not history.prefix_for("all"):
            known = history.views[cls] = cls(history, hide_transfers=hide_transfers)
        return known

    @classmethod
    def of_answers(
        cls, history: History, policy: str | HistoryFunction, agent: str, turn_start: int
    ) -> "tuple[FilterInput, int]":
        """Return the input without tool calls and results, and the position of the turn in it."""
        readers: SummaryReaders = "none" if policy == "none" else "answers" if policy == "answers" else "activation"
        prefix = history.prefix_for(readers)

        def select(chosen: Sequence[HistoryEntry]) -> list[HistoryEntry]:
            read = [each for each in chosen if each.is_user_input or (each.is_answer and policy != "none")]
            return [as_response(entry) if entry.author == agent else entry for entry in read]

        summary = select(prefix.entries)
        inputs = max(history.inputs, prefix.stop)
        given = select(history.entries[prefix.stop : inputs])
        before = select(history.entries[inputs : max(turn_start, inputs)])
        turn = select(history.entries[max(turn_start, inputs) :])
        selected = History([*summary, *given, *before, *turn])
        selected.inputs = len(summary) + len(given)
        return cls(selected, hide_transfers=True), selected.inputs + len(before)

    def data(self, ctx: AgentContext[Any], turn_start: int) -> HandoffInputData:
        """Return the input of a filter, split at the turn that hands off."""
        self._advance()
        messages = self._messages
        inputs = self._input_history
        cut = max(turn_start - self._first, 0) + self._summarized
        if self._gone:
            cut -= bisect_left(self._gone, turn_start)
        return HandoffInputData(
            input_history=inputs,
            pre_handoff_items=tuple(messages[:cut]),
            new_items=tuple(messages[cut:]),
            run_context=RunContext(ctx._run, ctx._origin, keys.inside(ctx._scope, "filter")),
        )

    def to_messages(self, data: HandoffInputData, target: str, source: str, *, rewrites: bool) -> list[Message]:
        """Convert the result of a filter to messages that the target reads."""
        for section in (data.input_history, data.pre_handoff_items, data.new_items):
            if type(section) is not tuple:
                _check_section(section, source, target)
        read = list(data.input_history)
        if data.input_history is not self._input_history:
            read = [*to_messages(read, what=f"filtered messages from `{source}` to `{target}`")]
        is_whole = True
        for message in read:
            is_whole = is_whole and type(message) is UserMessage
        sources = self._sources if rewrites else {}
        hides = self._hides
        for section in (data.pre_handoff_items, data.new_items):
            for message in to_messages(section, what=f"filtered messages from `{source}` to `{target}`"):
                # The rewritten form of a message that the filter did not change is cached.
                entry = sources.get(id(message))
                if entry is not None and entry.origin is not None and entry.origin.agent != target:
                    shown = rewrite_entry(entry, hide_transfers=hides)
                else:
                    shown = _as_read(message, target, source, rewrites=rewrites)
                    is_whole = is_whole and type(shown) is UserMessage
                if shown is not None:
                    read.append(shown)
        return read if is_whole else pair_calls_with_results(read)

    def _advance(self) -> None:
        entries = self._entries
        for position in range(self._position, len(entries)):
            if not self._add(entries[position]):
                self._gone.append(position)
        self._position = len(entries)

    def _add(self, entry: HistoryEntry) -> bool:
        """Add an entry, unless it is hidden as a whole; return whether it was added."""
        hides = self._hides
        message = entry.for_filters(hide_transfers=hides) if entry.hidden or hides else entry.message
        if message is None:
            return False
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
        return True


def _check_section(section: Any, source: str, target: str) -> None:
    if isinstance(section, str) or not isinstance(section, Sequence):
        raise SetupError(
            f"a filter of the handoff from `{source}` to `{target}` returned {section!r} instead of messages"
        )


def _as_read(message: Message, target: str, source: str, *, rewrites: bool) -> Message | None:
    """Return a message of the target itself, or changed by a filter, as the target reads it."""
    if type(message) is not AssistantMessage and type(message) is not ToolMessage:
        return message
    author = message.author or source
    shown = replace(message, author="")
    return rewrite(shown, author) if rewrites and author != target else shown
