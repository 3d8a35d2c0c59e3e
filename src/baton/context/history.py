"""The history of a flow of control: an append-only list of messages, and windows on it."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Protocol, overload

from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace

from ..events import Origin
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
) -> Iterator[HistoryEntry]:
    """Yield the entries of a response with tool calls and of their results.

    Args:
        response: The response.
        results: The results in the order of the calls; None for a call without one.
        origin: The activation.
        hidden: The positions of calls whose transfer was refused.
        followed: The position of the call whose transfer was followed.
        answer: The position of the result that is the answer of the activation.
    """
    yield HistoryEntry(response, origin, False, hidden, followed)
    whole = (WHOLE_MESSAGE,)
    for position, result in enumerate(results):
        if result is not None:
            hides, follows = position in hidden, position in followed
            yield HistoryEntry(result, origin, position == answer, whole if hides else (), whole if follows else ())


class MessageWindow(Sequence[Message]):
    """An immutable view of the first messages of a growing list.

    Args:
        messages: The list; it may only be appended to.
        stop: The number of messages that the view shows.
    """

    __slots__ = ("_messages", "_stop")

    def __init__(self, messages: list[Message], stop: int) -> None:
        self._messages = messages
        self._stop = stop

    def __len__(self) -> int:
        return self._stop

    def __iter__(self) -> Iterator[Message]:
        return iter(self._messages[: self._stop])

    @overload
    def __getitem__(self, index: int) -> Message: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Message]: ...
    def __getitem__(self, index: int | slice) -> Message | Sequence[Message]:
        if isinstance(index, slice):
            return self._messages[: self._stop][index]
        if not -self._stop <= index < self._stop:
            raise IndexError(index)
        return self._messages[index if index >= 0 else self._stop + index]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)  # pyright: ignore[reportUnknownArgumentType]

    __hash__ = None  # pyright: ignore[reportAssignmentType]

    def __repr__(self) -> str:
        return f"MessageWindow({list(self)!r})"


class HistoryView(Protocol):
    """The history as one activation reads it."""

    def messages(self) -> Sequence[Message]:
        """Return the conversation so far."""
        ...


class History:
    """An append-only list of entries, shared by the agents of a flow.

    Args:
        entries: The input of the run, or of the flow.
    """

    __slots__ = ("entries", "hidden_at", "inputs", "views")

    def __init__(self, entries: Sequence[HistoryEntry] = ()) -> None:
        self.entries: list[HistoryEntry] = list(entries)
        self.inputs = len(self.entries)
        """The number of entries it was created with."""
        self.views: dict[Any, Any] = {}
        """Caches of readers, which remember how far they have read."""
        self.hidden_at: list[int] = []
        """The positions of entries with hidden parts, in ascending order."""

    def add(self, message: Message, origin: Origin | None, *, is_answer: bool = False) -> None:
        """Append a message.

        Args:
            message: The message.
            origin: The activation it comes from; None for user input.
            is_answer: Whether it is the answer of its activation.
        """
        self.entries.append(HistoryEntry(message, origin, is_answer))

    def truncate(self, length: int) -> None:
        """Remove all but the first entries; readers start from the beginning.

        Args:
            length: The number of entries to keep.
        """
        del self.entries[length:]
        self.hidden_at[:] = [place for place in self.hidden_at if place < length]
        self.views.clear()

    def fork(self) -> "History":
        """Return an independent history that starts with the same entries."""
        forked = History(self.entries)
        forked.inputs = self.inputs
        if self.hidden_at:
            forked.hidden_at.extend(self.hidden_at)
        return forked

    def join(self, branch: "History", mark: int) -> None:
        """Append the entries that a branch added.

        Args:
            branch: The branch.
            mark: The number of entries at which it was forked.
        """
        if branch.hidden_at:
            shift = len(self.entries) - mark
            self.hidden_at.extend([place + shift for place in branch.hidden_at if place >= mark])
        self.entries.extend(branch.entries[mark:])
