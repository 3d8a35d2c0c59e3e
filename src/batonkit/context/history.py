"""The history of a flow of control: an append-only list of messages, and windows on it."""

from abc import ABCMeta
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Protocol, overload

from msgspec import UNSET, Struct, StructMeta, UnsetType
from msgspec.structs import replace

from ..events import EventRef, HistorySummary, Origin, SummaryMessage
from ..events.types import SummaryReaders
from ..messages import AssistantMessage, Message, ToolMessage, is_empty

WHOLE_MESSAGE = -1
"""Used instead of a call's position: the whole message is hidden."""


class HistoryEntry(Struct, gc=False):
    """A message in a history, with its author and the parts that other activations do not read."""

    message: Message
    """The message, as its author wrote it."""
    origin: Origin | None = None
    """The activation that it comes from; None for user input."""
    is_answer: bool = False
    """True if it is the answer of its activation."""
    hidden: tuple[int, ...] = ()
    """The positions of calls whose transfer was refused; other activations do not read them."""
    followed: tuple[int, ...] = ()
    """The position of the call whose transfer was followed."""
    rewritten: Message | None | UnsetType = UNSET
    """Cache of the message as other agents read it."""
    rewritten_bare: Message | None | UnsetType = UNSET
    """Cache of the message as other agents read it without the transfer."""
    event: EventRef | None = None
    """The response that it is, if it comes from an earlier run of the thread."""

    def for_others(self, *, hide_transfers: bool) -> Message | None:
        """Return the message as other activations find it; None if nothing is left of it.

        Args:
            hide_transfers: Whether to leave out the followed transfer as well.
        """
        hidden = self.hidden + self.followed if hide_transfers else self.hidden
        if not hidden:
            return self.message
        if hidden[0] == WHOLE_MESSAGE or not isinstance(self.message, AssistantMessage):
            return None
        calls = tuple(call for position, call in enumerate(self.message.tool_calls) if position not in hidden)
        if not calls and is_empty(AssistantMessage(self.message.content)):
            return None
        return replace(self.message, tool_calls=calls)

    @property
    def author(self) -> str | None:
        """The name of the agent that wrote it; None for user input."""
        return self.origin.agent if self.origin is not None else None

    @property
    def path(self) -> tuple[str, ...]:
        """The run path of its activation; empty for user input."""
        return self.origin.path if self.origin is not None else ()

    @property
    def is_user_input(self) -> bool:
        """True for input of the run, or of earlier runs in its thread."""
        return self.origin is None


def turn_entries(
    response: AssistantMessage,
    results: Iterable[ToolMessage | None],
    origin: Origin,
    *,
    hidden: tuple[int, ...],
    followed: tuple[int, ...],
    answer: int | None,
) -> list[HistoryEntry]:
    """Return the entries of a response with tool calls and of their results."""
    entries = [HistoryEntry(response, origin, False, hidden, followed)]
    whole = (WHOLE_MESSAGE,)
    for position, result in enumerate(results):
        if result is not None:
            hides, follows = position in hidden, position in followed
            is_answer = position == answer
            entries.append(HistoryEntry(result, origin, is_answer, whole if hides else (), whole if follows else ()))
    return entries


class _SequenceStructMeta(StructMeta, ABCMeta):
    """The metaclass of structs that are sequences."""


class MessageWindow(Struct, Sequence[Message], metaclass=_SequenceStructMeta, frozen=True, eq=False, gc=False):
    """An immutable view of the first messages of a growing list."""

    # A struct, because it is created for every model call.
    source: list[Message]
    """The list; it may only be appended to."""
    _stop: int
    """The number of messages that the view shows."""
    forms: dict[Any, Any]
    """The messages of the list in the formats of providers, so that each message is converted once."""

    def __len__(self) -> int:
        return self._stop

    def __iter__(self) -> Iterator[Message]:
        return iter(self.source[: self._stop])

    @overload
    def __getitem__(self, index: int) -> Message: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Message]: ...
    def __getitem__(self, index: int | slice) -> Message | Sequence[Message]:
        if isinstance(index, slice):
            return self.source[: self._stop][index]
        position = index if index >= 0 else self._stop + index
        if 0 <= position < self._stop:
            return self.source[position]
        raise IndexError(index)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)  # pyright: ignore[reportUnknownArgumentType]

    __hash__ = None  # pyright: ignore[reportAssignmentType]

    def __repr__(self) -> str:
        return f"MessageWindow({list(self)!r})"


class CompactedPrefix(Struct, frozen=True):
    """The summary that readers of a history read instead of its first entries."""

    readers: SummaryReaders
    """The agents that read it."""
    stop: int
    """The number of entries that it covers."""
    entries: tuple[HistoryEntry, ...]
    """The entries that are read instead."""
    made_at: int
    """The length of the history when it was made."""
    inputs: int
    """The number of first entries that are input of the flow."""


class Covered(Struct, frozen=True):
    """The part of a history that a summary would replace."""

    entries: Sequence[tuple[Message, HistoryEntry]]
    """Its entries, each with the message that the activation reads."""
    summarized: int
    """The number of first entries that are a summary already."""
    readers: SummaryReaders
    """The agents that would read the summary."""


class HistoryView(Protocol):
    """The history as one activation reads it."""

    def messages(self) -> Sequence[Message]:
        """Return the conversation so far."""
        ...


class CompactableView(HistoryView, Protocol):
    """A view that can be compacted."""

    def cover(self, history: "History", stop: int) -> Covered | None:
        """Return what a summary would replace; None if it cannot end there."""
        ...

    def compact(self, history: "History", prefix: CompactedPrefix) -> None:
        """Read a summary from now on, and let its other readers do so."""
        ...


class PolicyView(HistoryView, Protocol):
    """The history as a policy selects it for one activation."""

    @property
    def policy(self) -> str:
        """The history policy, `function`, or `filter` for a handoff's input filter."""
        ...

    @property
    def is_derived(self) -> bool:
        """True if every message is an entry's, as it is or rewritten."""
        ...


class History:
    """An append-only list of entries, shared by the agents of a flow.

    A summary of its first entries changes only what is read: no entry is removed, and positions stay valid.
    """

    __slots__ = (
        "compacted",
        "entries",
        "first_messages",
        "hidden_at",
        "inputs",
        "is_main",
        "retry_at",
        "skipped",
        "views",
    )

    def __init__(self, entries: Sequence[HistoryEntry] = ()) -> None:
        self.entries: list[HistoryEntry] = list(entries)
        self.inputs = len(self.entries)
        """The number of entries it was created with."""
        self.first_messages: Sequence[Message] = ()
        """The messages of the first entries, if every reader reads them as they are."""
        self.views: dict[Any, Any] = {}
        """Caches of readers, which remember how far they have read."""
        self.hidden_at: list[int] = []
        """The positions of entries with hidden parts, in ascending order."""
        self.compacted: list[CompactedPrefix] = []
        """The summaries of its first entries, oldest first."""
        self.skipped = _NO_PREFIX
        """The summary of entries that are not here, because no agent reads them; empty if there are none."""
        self.retry_at = 0
        """After a summary that failed: the number of tokens from which on it is tried again."""
        self.is_main = False
        """True for the history of the run itself, which later runs of the thread continue."""

    def add(self, message: Message, origin: Origin | None, *, is_answer: bool = False) -> None:
        """Append a message."""
        self.entries.append(HistoryEntry(message, origin, is_answer))

    def prefix_for(self, readers: SummaryReaders) -> CompactedPrefix:
        """Return the summary that some readers read; it is empty if there is none."""
        for prefix in reversed(self.compacted):
            if prefix.readers == readers:
                return prefix
        return self.skipped

    def entries_for(self, readers: SummaryReaders) -> list[HistoryEntry]:
        """Return the entries that some readers read: their summary, and the entries after it."""
        if not self.compacted:
            return self.entries
        prefix = self.prefix_for(readers)
        return [*prefix.entries, *self.entries[prefix.stop :]]

    def restore(self, summaries: Iterable[HistorySummary], *, is_whole: bool = True) -> None:
        """Read the summaries of a thread instead of its first entries."""
        for each in summaries:
            found = (place for place, entry in enumerate(self.entries) if entry.event == each.upto)
            stop = end_of_turn(self.entries, next(found, -1))
            entries = tuple(to_entries(each.messages))
            self.compacted.append(CompactedPrefix(each.readers, stop, entries, -1, len(entries)))
        if not is_whole:
            self.skipped = self.prefix_for("all")

    def truncate(self, length: int) -> None:
        """Remove all but the first entries; readers start from the beginning."""
        del self.entries[length:]
        self.hidden_at[:] = [place for place in self.hidden_at if place < length]
        # What was made before these entries is followed by an entry; the rest belongs to what is undone.
        self.compacted[:] = [prefix for prefix in self.compacted if prefix.made_at < length]
        self.views.clear()
        self.first_messages = ()

    def fork(self) -> "History":
        """Return an independent history that starts with the same entries."""
        forked = History(self.entries)
        forked.inputs, forked.first_messages = self.inputs, self.first_messages
        if self.hidden_at:
            forked.hidden_at.extend(self.hidden_at)
        if self.compacted:
            forked.compacted.extend(self.compacted)
            forked.skipped = self.skipped
        return forked

    def join(self, branch: "History", mark: int) -> None:
        """Append the entries that a branch added."""
        if branch.hidden_at:
            shift = len(self.entries) - mark
            self.hidden_at.extend([place + shift for place in branch.hidden_at if place >= mark])
        self.entries.extend(branch.entries[mark:])


_NO_PREFIX = CompactedPrefix("all", 0, (), -1, 0)


def end_of_turn(entries: Sequence[HistoryEntry], response: int) -> int:
    """Return the position after a response and the results of its calls; 0 for the position -1."""
    stop = response + 1
    while 0 < stop < len(entries) and is_of_turn(entries[stop]) and type(entries[stop].message) is ToolMessage:
        stop += 1
    return stop


def is_of_turn(entry: HistoryEntry) -> bool:
    """Return whether an entry is an agent's response or a result of its calls."""
    if entry.origin is None:
        return False
    kind = type(entry.message)
    return kind is ToolMessage or (kind is AssistantMessage and entry.hidden != (WHOLE_MESSAGE,))


def to_entries(summary: Iterable[SummaryMessage], origins: Iterable[Origin] = ()) -> Iterator[HistoryEntry]:
    """Convert a recorded summary to entries."""
    known = {origin.id: origin for origin in origins}
    for each in summary:
        origin = None
        if each.agent:
            origin = known.get(each.activation) or known.setdefault(
                each.activation, Origin(each.activation, each.agent)
            )
        yield HistoryEntry(each.message, origin, each.is_answer, each.hidden, each.followed)
