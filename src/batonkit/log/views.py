"""Views on a history: the messages that an agent reads.

Reading is incremental: a reader remembers its position, a rewritten message is cached, and agents without messages of
their own share one list. So a transfer costs the same after ten and ten thousand messages.
"""

from collections.abc import Sequence
from typing import Any, Literal, TypeAlias, cast

from msgspec import UNSET, Struct, field

from ..messages import (
    AssistantMessage,
    Content,
    Message,
    Text,
    ToolMessage,
    UserMessage,
    is_empty,
    media_of,
    pair_calls_with_results,
    text_of,
)
from .entries import HistoryEntry
from .event import Origin, ValueChanges
from .events import AgentStarted, EntryForm, MessageRange, SummaryReaders
from .excerpts import from_excerpt, to_excerpt
from .history import CompactedPrefix, History
from .view import Covered, HistoryView, MessageWindow


class Reading(Struct, frozen=True):
    """The way one activation reads the history: a policy, or messages that code has chosen."""

    policy: str
    """The policy, `function` or `filter`."""
    hides_transfers: bool = False
    """True to leave out the transfers that were followed."""
    messages: Sequence[Message] | None = None
    """The chosen messages; None if a policy selects them."""
    changes: ValueChanges | None = None
    """The changes that the function made to the run's values."""

    def view(self, history: History, origin: Origin) -> HistoryView:
        """Return the view of an activation that begins now, or of a further attempt at it."""
        if self.messages is None:
            return view_history(history, origin, self.policy, hide_transfers=self.hides_transfers)
        # A copy, because the view extends it.
        return FixedView(history.entries, list(self.messages), len(history.entries))

    def excerpt(self, history: History) -> tuple[MessageRange | Message, ...]:
        """Return the chosen messages as they are recorded."""
        if self.messages is None:
            return ()
        places: dict[int, tuple[int, EntryForm]] = {}
        for position, entry in enumerate(history.entries, -history.offset):
            places[id(entry.rewritten_bare)] = position, "bare"
            places[id(entry.rewritten)] = position, "rewritten"
            places[id(entry.message)] = position, "same"
        return to_excerpt(self.messages, lambda message: places.get(id(message)))


def recorded_reading(started: AgentStarted, history: History) -> Reading:
    """Return the reading of an activation whose start is recorded."""
    if started.policy not in ("function", "filter"):
        return Reading(started.policy, started.hides_transfers)

    def read(position: int, form: EntryForm) -> Message | None:
        place = position + history.offset
        if not 0 <= place < len(history.entries):
            return None  # An earlier run of the thread, which has been deleted since.
        entry = history.entries[place]
        return entry.message if form == "same" else rewrite_entry(entry, hide_transfers=form == "bare")

    messages = from_excerpt(started.reads, read)
    return Reading(started.policy, started.hides_transfers, messages)


def view_history(history: History, origin: Origin, policy: str, *, hide_transfers: bool = False) -> HistoryView:
    """Return the view of one activation on a history."""
    if policy == "rewritten" or policy == "verbatim":
        # The key is the string itself, because its hash is cached.
        readers = history.views.get(policy)
        if readers is None:
            readers = share_reads(history, policy == "rewritten", hide_transfers)
        return RunningView(history, readers, origin, len(history.entries), history.edits)
    selection = Selection(cast("SelectedPolicy", policy), origin, hide_transfers)
    before = history.entries_for(selection.readers)
    chosen = selection.read(selection.choose(before))
    return FixedView(history.entries, chosen, len(history.entries), selection)


def share_reads(history: History, rewrites: bool, hides: bool) -> "_SharedReads":
    """Return the readers of a history with one policy, from the beginning."""
    prefix = history.prefix_for("all")
    readers = _SharedReads(history.entries, history.hidden_at, rewrites, hides, prefix.entries, prefix.stop)
    if history.first_messages and not history.compacted:
        readers.common = _ReadPosition([*history.first_messages], len(history.first_messages))
    history.views["rewritten" if rewrites else "verbatim"] = readers
    return readers


SelectedPolicy: TypeAlias = Literal["none", "lineage", "answers"]
"""The policies that select entries."""


class Selection(Struct, frozen=True):
    """A policy that selects entries."""

    policy: SelectedPolicy
    origin: Origin
    hides: bool

    @property
    def readers(self) -> SummaryReaders:
        """The readers of a summary of what it selects; no other activation has the same lineage."""
        return "activation" if self.policy == "lineage" else self.policy

    def choose(self, entries: Sequence[HistoryEntry]) -> list[HistoryEntry]:
        """Return the entries that the activation reads."""
        if self.policy == "none":
            return [entry for entry in entries if entry.is_user_input]
        if self.policy == "answers":
            return [entry for entry in entries if entry.is_user_input or entry.is_answer]
        ancestors: set[Origin] = set()
        origin: Origin | None = self.origin
        while origin is not None:
            ancestors.add(origin)
            origin = origin.parent
        return [entry for entry in entries if entry.origin is None or entry.origin in ancestors]

    def read(self, chosen: Sequence[HistoryEntry]) -> list[Message]:
        """Return the messages of chosen entries."""
        agent = self.origin.agent
        if self.policy == "none":
            return [entry.message for entry in chosen]
        if self.policy == "answers":
            return _read_as([as_response(entry) if entry.author == agent else entry for entry in chosen], agent, True)
        return _read_as(chosen, agent, self.hides)

    def show(self, chosen: Sequence[HistoryEntry]) -> list[tuple[Message, HistoryEntry]]:
        """Return chosen entries with their messages, for a summary."""
        if self.policy == "answers":
            # The end of a task stands for its call, which is not among the answers.
            return [(as_response(entry).message, entry) for entry in chosen]
        return _show(chosen, self.origin, self.hides)


class FixedView(Struct):
    """A view that starts with given messages and continues with those of the activation itself."""

    entries: list[HistoryEntry]
    chosen: list[Message]
    position: int
    selection: Selection | None = None
    _given: int = 0
    """The number of first messages that are not entries of the activation."""
    _own: int = 0
    """The position of the first entry that follows them."""
    _summarized: int = 0
    """The number of first messages that are a summary for this activation alone."""
    _selected_from: CompactedPrefix | None = None
    """The summary that the policy selects from, if only this activation reads it."""
    _forms: dict[Any, Any] = {}

    def __post_init__(self) -> None:
        self._given = len(self.chosen)
        self._own = self.position

    def messages(self) -> Sequence[Message]:
        """Return the given messages and everything since."""
        if self.position < len(self.entries):
            self.chosen.extend([entry.message for entry in self.entries[self.position :]])
            self.position = len(self.entries)
        return MessageWindow(self.chosen, len(self.chosen), self._forms)

    def cover(self, history: History, stop: int) -> Covered | None:
        """Return what a summary would replace."""
        if stop > self._own:
            # Entries of the activation itself, and with them everything before.
            self.messages()
            covered = self.chosen[: self._given + stop - self._own]
            return Covered([(message, HistoryEntry(message)) for message in covered], self._summarized, "activation")
        selection = self.selection
        if selection is None or self._summarized:
            return None
        prefix = self._selected_from or history.prefix_for(selection.readers)
        if stop <= prefix.stop:
            return None
        before = selection.choose(prefix.entries)
        shown = selection.show([*before, *selection.choose(self.entries[prefix.stop : stop])])
        return Covered(shown, len(before), selection.readers)

    def compact(self, history: History, prefix: CompactedPrefix) -> None:
        """Read a summary from now on."""
        self.messages()
        selection = self.selection
        if selection is None or prefix.stop > self._own:
            own = self.chosen[self._given + prefix.stop - self._own :]
            first = [entry.message for entry in prefix.entries]
            self._own = prefix.stop
            self._summarized = len(first)
        else:
            own = self.chosen[self._given :]
            first = selection.read(selection.choose([*prefix.entries, *self.entries[prefix.stop : self._own]]))
            if prefix.readers == "activation":
                self._selected_from = prefix
        self.chosen = [*first, *own]
        self._given = len(first)
        self._forms = {}


def _show(entries: Sequence[HistoryEntry], own: Origin, hides: bool) -> list[tuple[Message, HistoryEntry]]:
    """Return entries with their messages as an activation finds them, without hidden ones."""
    shown = [(e.message if e.origin is own else e.for_others(hide_transfers=hides), e) for e in entries]
    return [(message, entry) for message, entry in shown if message is not None]


_LONG_INPUT = 16
"""The number of messages from which on user input is read at once instead of one by one."""
_UNREAD = -1
"""The position of a reader that has read nothing, not even the summary."""


class _ReadPosition(Struct):
    """The messages that a reader has read so far, and its position."""

    messages: list[Message]
    position: int
    agent: str | None = None
    """The agent whose messages are not rewritten; None for the list that agents without messages of their own share."""
    is_private: bool = False
    """True if only one activation reads it."""
    forms: dict[Any, Any] = {}
    """The messages in the formats of providers; see `MessageWindow`."""


class _SharedReads(Struct, eq=False):
    """The readers of one history with one policy: a shared list, and one per author."""

    # It refers to the lists, not to the history, to avoid a reference cycle.
    entries: list[HistoryEntry]
    hidden_at: list[int]
    rewrites: bool
    hides: bool
    summary: tuple[HistoryEntry, ...] = ()
    """The entries that are read instead of the first ones."""
    summary_stop: int = 0
    """The number of entries that they replace."""
    common: _ReadPosition = field(default_factory=lambda: _ReadPosition([], _UNREAD))
    """The reader of agents that have no messages of their own."""
    _own: dict[str, _ReadPosition] = {}
    _authors: set[str] = set()

    def reader_for(self, origin: Origin, start: int) -> _ReadPosition:
        """Return the reader for an activation that began at `start`, advanced to there."""
        reader = self._own.get(origin.agent)
        if reader is not None:
            self.advance(reader, origin, start)
            return reader
        self.advance(self.common, origin, start)
        if not self.rewrites or origin.agent not in self._authors:
            return self.common
        reader = self._own[origin.agent] = _ReadPosition([], _UNREAD, origin.agent)
        self.advance(reader, origin, start)
        return reader

    def reader_with_own_messages(self, reader: _ReadPosition, origin: Origin) -> _ReadPosition:
        """Return the reader, if it is not a private one, for an activation that has added messages."""
        if self.hidden_at and self.hidden_at[-1] >= reader.position:
            # This activation reads its refused transfers; later ones will not.
            return _ReadPosition(list(reader.messages), reader.position, origin.agent, is_private=True)
        if reader.agent is None and self.rewrites:
            reader = self._own[origin.agent] = _ReadPosition(list(reader.messages), reader.position, origin.agent)
        return reader

    def advance(self, reader: _ReadPosition, origin: Origin, stop: int) -> None:
        """Advance a reader to `stop`."""
        start = reader.position
        messages = reader.messages
        if start >= stop:
            return
        reader.position = stop
        if start >= 0:
            unread = self.entries[start:stop]
        else:
            unread = [*self.summary, *self.entries[self.summary_stop : stop]]
            if len(unread) > _LONG_INPUT:
                unread = self._read_input(messages, unread)
        last_author = origin
        agent = None
        is_rewritten = False
        for entry in unread:
            author = entry.origin
            if author is origin:
                messages.append(entry.message)
                continue
            if author is not last_author:
                last_author = author
                agent = None if author is None else author.agent
                is_rewritten = self.rewrites and (agent is None or agent != reader.agent)
                if agent is not None and reader.agent is None:
                    self._authors.add(agent)
            if not is_rewritten:
                is_hidden = entry.hidden or (self.hides and entry.followed)
                message = entry.for_others(hide_transfers=self.hides) if is_hidden else entry.message
            elif self.hides or entry.hidden:
                message = rewrite_entry(entry, hide_transfers=self.hides)
            else:
                message = entry.rewritten
                if message is UNSET:
                    message = entry.rewritten = rewrite(entry.message, agent)
            if message is not None:
                messages.append(message)

    def _read_input(self, messages: list[Message], unread: Sequence[HistoryEntry]) -> Sequence[HistoryEntry]:
        """Read the user input at the beginning at once; return the entries after it."""
        count = next((place for place, entry in enumerate(unread) if entry.origin is not None), len(unread))
        given = [entry.message for entry in unread[:count]]
        messages.extend([each for each in given if (each.content and type(each.content) is str) or not is_empty(each)])
        return unread[count:]


class RunningView(Struct):
    """A view on the whole history: own messages as they are, others rewritten or as they are."""

    _history: History
    _readers: _SharedReads
    _origin: Origin
    _start: int
    _edits: int
    """The edits of the history that it knows."""
    _reader: _ReadPosition | None = None

    def messages(self) -> Sequence[Message]:
        """Return the conversation so far."""
        if self._edits != self._history.edits:
            self._start_again()
        reader = self._reader
        readers = self._readers
        if reader is None:
            # A resumed activation may have added messages before it reads; they are not for the shared list.
            reader = self._reader = readers.reader_for(self._origin, self._start)
        stop = len(readers.entries)
        if reader.position < stop:
            if not reader.is_private and (reader.agent is None or readers.hidden_at):
                reader = self._reader = readers.reader_with_own_messages(reader, self._origin)
            readers.advance(reader, self._origin, stop)
        messages = reader.messages
        return MessageWindow(messages, len(messages), reader.forms)

    def cover(self, history: History, stop: int) -> Covered | None:
        """Return what a summary would replace."""
        prefix = history.prefix_for("all")
        if stop <= prefix.stop:
            return None
        before = _show(prefix.entries, self._origin, self._readers.hides)
        after = _show(history.entries[prefix.stop : stop], self._origin, self._readers.hides)
        return Covered([*before, *after], len(before), "all")

    def compact(self, history: History, prefix: CompactedPrefix) -> None:
        """Read a summary from now on; all readers of the history start again from it."""
        history.views.pop("rewritten", None)
        history.views.pop("verbatim", None)
        readers = self._readers
        self._readers = share_reads(history, readers.rewrites, readers.hides)
        self._reader = None
        if prefix.stop > self._start:
            self.read_summary(prefix.stop)

    def _start_again(self) -> None:
        """Read everything again, because entries that were read have changed."""
        history = self._history
        readers = self._readers
        self._edits = history.edits
        known = history.views.get("rewritten" if readers.rewrites else "verbatim")
        self._readers = known or share_reads(history, readers.rewrites, readers.hides)
        # Messages of this activation may be among the first ones; they are not for the shared list.
        self.read_summary(0)

    def read_summary(self, stop: int) -> None:
        """Start with a summary that covers messages of this activation.

        They are not for the shared list.
        """
        self._start = stop
        self._reader = _ReadPosition([], _UNREAD, self._origin.agent, is_private=True)


def rewrite_entry(entry: HistoryEntry, *, hide_transfers: bool = False) -> Message | None:
    """Return the message of an entry as other agents read it; None if nothing is left of it."""
    if hide_transfers and entry.followed:
        if entry.rewritten_bare is UNSET:
            entry.rewritten_bare = rewrite(entry.for_others(hide_transfers=True), entry.author)
        return entry.rewritten_bare
    if entry.rewritten is UNSET:
        message = entry.for_others(hide_transfers=False) if entry.hidden else entry.message
        entry.rewritten = rewrite(message, entry.author)
    return entry.rewritten


_SENTENCE_ENDS = (".", "!", "?", "…", "。", "！", "？")


def rewrite(message: Message | None, author: str | None) -> Message | None:
    """Return a message as agents other than its author read it; None if nothing is left of it."""
    if message is None:
        return None
    # `type(…) is`, because isinstance on a struct costs several times more, and every transfer comes here.
    if author is not None and type(message) is AssistantMessage:
        return _tell(_describe_response(message, author), message.content)
    if author is not None and type(message) is ToolMessage:
        return _tell(_describe_result(message, author), message.content)
    return None if is_empty(message) else message


def _describe_response(message: AssistantMessage, author: str) -> str:
    text = text_of(message.content)
    said = [f"[{author}] said: {_end_sentence(text)}"] if text else []
    calls = [f"[{author}] called tool: `{each.name}` with arguments: {each.arguments}." for each in message.tool_calls]
    return " ".join(said + calls)


def _describe_result(message: ToolMessage, author: str) -> str:
    text = text_of(message.content)
    return f"[{author}] `{message.name}` tool returned result: {_end_sentence(text)}" if text else ""


def _tell(description: str, content: Content) -> UserMessage | None:
    """Return the message for other agents, with the media of the original; None if it is empty."""
    told = f"For context: {description}" if description else ""
    media = () if isinstance(content, str) else media_of(content)
    if media:
        return UserMessage((Text(told), *media) if told else media)
    return UserMessage(told) if told else None


def _end_sentence(text: str) -> str:
    return text if text.endswith(_SENTENCE_ENDS) else f"{text}."


def as_response(entry: HistoryEntry) -> HistoryEntry:
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
