"""Views on a history: the messages that an agent reads, and the input of handoff filters.

Reading is incremental: a reader remembers its position, a rewritten message is cached, and agents without messages of
their own share one list. So a transfer costs the same after ten and ten thousand messages.
"""

from bisect import bisect_left
from collections.abc import Sequence
from typing import Any, cast

from msgspec import UNSET, Struct, field
from msgspec.structs import replace

from ..agents import AgentContext, HistoryPolicy
from ..agents.activation import check_history_policy as check_history_policy
from ..context import HistoryEntry, RunContext
from ..context.history import History, HistoryView, MessageWindow
from ..errors import SetupError
from ..events import Origin
from ..handoffs import HandoffInputData
from ..messages import (
    MESSAGE_TYPES,
    AssistantMessage,
    Message,
    Text,
    ToolMessage,
    UserMessage,
    is_empty,
    media_of,
    pair_calls_with_results,
    text_of,
    to_messages,
)


def view_history(
    history: History, origin: Origin, policy: HistoryPolicy, *, hide_transfers: bool = False
) -> HistoryView:
    """Return the view of one activation on a history.

    Args:
        history: The history.
        origin: The activation.
        policy: The history policy of the activation.
        hide_transfers: Whether to leave out followed transfers.
    """
    if policy == "rewritten" or policy == "verbatim":
        # The key is the string itself, because its hash is cached.
        readers = history.views.get(policy)
        if readers is None:
            readers = history.views[policy] = _SharedReads(
                history.entries, history.hidden_at, rewrites=policy == "rewritten", hides=hide_transfers
            )
        return _RunningView(readers, origin, len(history.entries))
    before = history.entries
    if policy == "none":
        chosen = [entry.message for entry in before if entry.is_user_input]
    elif policy == "lineage":
        chosen = _lineage(before, origin, hide_transfers)
    elif policy == "answers":
        chosen = _answers(before, origin.agent)
    else:
        chosen = pair_calls_with_results(_call_policy(policy, before, origin.agent))
    return FixedView(before, chosen, len(before))


def _call_policy(policy: Any, entries: Sequence[HistoryEntry], agent: str) -> tuple[Message, ...]:
    given: Any = policy(tuple([shown for shown in map(_without_hidden, entries) if shown is not None]))
    if isinstance(given, str) or not isinstance(given, Sequence):
        name = getattr(policy, "__name__", type(policy).__name__)
        raise SetupError(f"the history function `{name}` of `{agent}` must return a list of messages, not {given!r}")
    return to_messages(cast("Sequence[Message]", given))


def _without_hidden(entry: HistoryEntry) -> HistoryEntry | None:
    if not entry.hidden:
        return entry
    message = entry.for_others(hide_transfers=False)
    return None if message is None else HistoryEntry(message, entry.origin, entry.is_answer)


class FixedView(Struct):
    """A view that starts with given messages and continues with those of the activation itself.

    Args:
        entries: The entries of the history.
        chosen: The first messages; the view extends the list.
        position: The number of entries that are already in the view.
    """

    entries: list[HistoryEntry]
    chosen: list[Message]
    position: int

    def messages(self) -> Sequence[Message]:
        """Return the given messages and everything since."""
        if self.position < len(self.entries):
            self.chosen.extend([entry.message for entry in self.entries[self.position :]])
            self.position = len(self.entries)
        return MessageWindow(self.chosen, len(self.chosen))


class _ReadPosition(Struct):
    """The messages that a reader has read so far, and its position."""

    messages: list[Message]
    position: int
    is_common: bool = False
    """True for the list that agents without messages of their own share."""
    is_private: bool = False
    """True if only one activation reads it."""


class _SharedReads(Struct, eq=False):
    """The readers of one history with one policy: a shared list, and one per author."""

    # It refers to the lists, not to the history, to avoid a reference cycle.
    entries: list[HistoryEntry]
    hidden_at: list[int]
    rewrites: bool
    hides: bool
    _common: _ReadPosition = field(default_factory=lambda: _ReadPosition([], 0, is_common=True))
    _own: dict[str, _ReadPosition] = {}
    _authors: set[str] = set()

    def reader_for(self, origin: Origin, start: int) -> _ReadPosition:
        """Return the reader for an activation that began at `start`, advanced to there."""
        reader = self._own.get(origin.agent)
        if reader is not None:
            self.advance(reader, origin, start)
            return reader
        self.advance(self._common, origin, start)
        if not self.rewrites or origin.agent not in self._authors:
            return self._common
        reader = self._own[origin.agent] = _ReadPosition([], 0)
        self.advance(reader, origin, start)
        return reader

    def reader_with_own_messages(self, reader: _ReadPosition, origin: Origin) -> _ReadPosition:
        """Return the reader for an activation that has added messages."""
        if reader.is_private:
            return reader
        if self.hidden_at and self.hidden_at[-1] >= reader.position:
            # This activation reads its refused transfers; later ones will not.
            return _ReadPosition(list(reader.messages), reader.position, is_private=True)
        if reader.is_common and self.rewrites:
            reader = self._own[origin.agent] = _ReadPosition(list(reader.messages), reader.position)
        return reader

    def advance(self, reader: _ReadPosition, origin: Origin, stop: int) -> None:
        """Advance a reader to `stop`."""
        messages, hides, rewrites = reader.messages, self.hides, self.rewrites
        start = reader.position
        if start < stop:
            reader.position = stop
        own_name = None if reader.is_common else origin.agent
        last_author: Origin | None = None
        for entry in self.entries[start:stop]:
            author = entry.origin
            if author is origin:
                messages.append(entry.message)
                continue
            if own_name is None and author is not last_author and author is not None:
                self._authors.add(author.agent)
                last_author = author
            if rewrites and (author is None or author.agent != own_name):
                message = entry.rewritten
                if hides or entry.hidden:
                    message = rewrite_entry(entry, hide_transfers=hides)
                elif message is UNSET:
                    message = entry.rewritten = rewrite(entry.message, author.agent if author is not None else None)
            elif entry.hidden or (hides and entry.followed):
                message = entry.for_others(hide_transfers=hides)
            else:
                message = entry.message
            if message is not None:
                messages.append(message)


class _RunningView(Struct):
    """A view on the whole history: own messages as they are, others rewritten or as they are."""

    _readers: _SharedReads
    _origin: Origin
    _start: int
    _reader: _ReadPosition | None = None

    def messages(self) -> Sequence[Message]:
        """Return the conversation so far."""
        reader, readers = self._reader, self._readers
        if reader is None:
            # A resumed activation may have added messages before it reads; they are not for the shared list.
            reader = self._reader = readers.reader_for(self._origin, self._start)
        stop = len(readers.entries)
        if reader.position < stop:
            reader = self._reader = readers.reader_with_own_messages(reader, self._origin)
            readers.advance(reader, self._origin, stop)
        return MessageWindow(reader.messages, len(reader.messages))


def rewrite_entry(entry: HistoryEntry, *, hide_transfers: bool = False) -> Message | None:
    """Return the message of an entry as other agents read it; None if nothing is left of it.

    Args:
        entry: The entry; it caches the result.
        hide_transfers: Whether to leave out a followed transfer.
    """
    if hide_transfers and entry.followed:
        if entry.rewritten_bare is UNSET:
            entry.rewritten_bare = rewrite(entry.for_others(hide_transfers=True), entry.author)
        return entry.rewritten_bare
    if entry.rewritten is UNSET:
        message = entry.for_others(hide_transfers=False) if entry.hidden else entry.message
        entry.rewritten = rewrite(message, entry.author)
    return entry.rewritten


def rewrite(message: Message | None, author: str | None) -> Message | None:
    """Return a message as agents other than its author read it; None if nothing is left of it.

    Args:
        message: The message.
        author: The agent that wrote it; None for user input, which is not changed.
    """
    if message is None:
        return None
    content = message.content
    text = content if isinstance(content, str) else text_of(content)
    # `type(…) is`, because isinstance on a struct costs several times more, and every transfer comes here.
    if author is not None and type(message) is AssistantMessage:
        if not text and text is content and len(message.tool_calls) == 1:
            # The usual form of a transfer or tool call.
            call = message.tool_calls[0]
            return UserMessage(f"For context: [{author}] called tool: `{call.name}` with arguments: {call.arguments}.")
        told = f" [{author}] said: {text}." if text else ""
        for call in message.tool_calls:
            told += f" [{author}] called tool: `{call.name}` with arguments: {call.arguments}."
    elif author is not None and type(message) is ToolMessage:
        told = f" [{author}] `{message.name}` tool returned result: {text}." if text else ""
    else:
        return None if is_empty(message) else message
    if text is not content and (media := media_of(content)):
        return UserMessage((Text("For context:" + told), *media) if told else media)
    return UserMessage("For context:" + told) if told else None


def _lineage(entries: Sequence[HistoryEntry], own: Origin, hide_transfers: bool) -> list[Message]:
    ancestors: set[Origin] = set()
    origin: Origin | None = own
    while origin is not None:
        ancestors.add(origin)
        origin = origin.parent
    selected = [entry for entry in entries if entry.origin is None or entry.origin in ancestors]
    return _read_as(selected, own.agent, hide_transfers)


def _answers(entries: Sequence[HistoryEntry], agent: str) -> list[Message]:
    selected = [entry for entry in entries if entry.is_user_input or entry.is_answer]
    return _read_as([_as_response(entry) if entry.author == agent else entry for entry in selected], agent, True)


def _as_response(entry: HistoryEntry) -> HistoryEntry:
    """Convert a final tool result to an assistant message; its call is not an answer."""
    message = entry.message
    return HistoryEntry(AssistantMessage(message.content), entry.origin) if isinstance(message, ToolMessage) else entry


def _read_as(entries: Sequence[HistoryEntry], agent: str, hide_transfers: bool) -> list[Message]:
    read = [
        entry.for_others(hide_transfers=hide_transfers)
        if entry.author == agent
        else rewrite_entry(entry, hide_transfers=hide_transfers)
        for entry in entries
    ]
    return pair_calls_with_results([message for message in read if message is not None])


class FilterInput:
    """The history as input filters get it, with the author in each message.

    Args:
        history: The history.
        hide_transfers: Whether to leave out followed transfers.
    """

    __slots__ = ("_entries", "_gone", "_hides", "_input_history", "_messages", "_position", "_sources")

    def __init__(self, history: History, *, hide_transfers: bool) -> None:
        self._entries = history.entries
        self._hides = hide_transfers
        self._position = history.inputs
        self._input_history = tuple([entry.message for entry in history.entries[: history.inputs]])
        self._messages: list[Message] = []
        """The messages after the input."""
        self._gone: list[int] = []
        """The positions of entries that are hidden as a whole."""
        self._sources: dict[int, HistoryEntry] = {}
        """The entry of each message, by identity of the message."""

    @classmethod
    def of(cls, history: History, *, hide_transfers: bool) -> "FilterInput":
        """Return the filter input of a history, which is created once.

        Args:
            history: The history.
            hide_transfers: Whether to leave out followed transfers.
        """
        known = history.views.get(cls)
        if known is None:
            known = history.views[cls] = cls(history, hide_transfers=hide_transfers)
        return known

    @classmethod
    def of_answers(
        cls, history: History, policy: HistoryPolicy, agent: str, turn_start: int
    ) -> "tuple[FilterInput, int]":
        """Return the input without tool calls and results, and the position of the turn in it.

        Args:
            history: The history.
            policy: The policy of the target: `"none"` leaves out the answers as well.
            agent: The target.
            turn_start: The position of the turn in the history.
        """
        entries: list[HistoryEntry] = []
        inputs = start = 0
        for position, entry in enumerate(history.entries):
            if position == history.inputs:
                inputs = len(entries)
            if position == turn_start:
                start = len(entries)
            if entry.is_user_input or (entry.is_answer and policy != "none"):
                entries.append(_as_response(entry) if entry.author == agent else entry)
        selected = History(entries)
        selected.inputs = inputs if history.inputs < len(history.entries) else len(entries)
        return cls(selected, hide_transfers=True), start if turn_start < len(history.entries) else len(entries)

    def data(self, ctx: AgentContext[Any], turn_start: int) -> HandoffInputData:
        """Return the input of a filter, split at the turn that hands off.

        Args:
            ctx: The context of the agent that hands off.
            turn_start: The position of the turn in the history.
        """
        self._advance()
        messages, inputs = self._messages, self._input_history
        cut = max(turn_start - len(inputs), 0)
        if self._gone:
            cut -= bisect_left(self._gone, turn_start)
        return HandoffInputData(
            input_history=inputs,
            pre_handoff_items=tuple(messages[:cut]),
            new_items=tuple(messages[cut:]),
            run_context=RunContext(ctx._run, ctx._origin, f"{ctx._scope}/filter"),
        )

    def to_messages(self, data: HandoffInputData, target: str, source: str, *, rewrites: bool) -> list[Message]:
        """Convert the result of a filter to messages that the target reads.

        Args:
            data: The result of the filter.
            target: The agent that control goes to.
            source: The agent that hands off.
            rewrites: Whether the target reads messages of other agents rewritten.
        """
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
                # The rewritten form of a message that the filter did not change is cached.
                entry = sources.get(id(message))
                if entry is not None and entry.origin is not None and entry.origin.agent != target:
                    shown = rewrite_entry(entry, hide_transfers=hides)
                else:
                    shown = _as_read(_as_message(message), target, source, rewrites=rewrites)
                    is_whole = is_whole and type(shown) is UserMessage
                if shown is not None:
                    read.append(shown)
        return read if is_whole else pair_calls_with_results(read)

    def _advance(self) -> None:
        entries, hides = self._entries, self._hides
        for position in range(self._position, len(entries)):
            entry = entries[position]
            message = entry.for_others(hide_transfers=hides) if entry.hidden or hides else entry.message
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


def _check_section(section: Any, source: str, target: str) -> None:
    if isinstance(section, str) or not isinstance(section, Sequence):
        raise SetupError(
            f"a filter of the handoff from `{source}` to `{target}` returned {section!r} instead of messages"
        )


def _as_message(item: Any) -> Message:
    return item if type(item) in MESSAGE_TYPES else to_messages([item])[0]


def _as_read(message: Message, target: str, source: str, *, rewrites: bool) -> Message | None:
    """Return a message of the target itself, or changed by a filter, as the target reads it."""
    if type(message) is not AssistantMessage and type(message) is not ToolMessage:
        return message
    author, shown = message.author or source, replace(message, author="")
    return rewrite(shown, author) if rewrites and author != target else shown
