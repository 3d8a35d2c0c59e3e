"""What has been said in one flow of control, as a value that flows from agent to agent.

A history only grows, so a reader never starts over: its view remembers how far it has read.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Protocol, overload

from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace

from ..events import Origin
from ..messages import AssistantMessage, Message, is_empty

WHOLE_MESSAGE = -1
"""In place of a call's position: the whole message is left out."""


class HistoryEntry(Struct, gc=False):
    """One message in a history, and what of it activations other than its own do not read.

    `undone` are the positions of calls that asked for a transfer and did not get it, `followed` of the one that did.
    """

    message: Message
    origin: Origin | None = None
    is_answer: bool = False
    undone: tuple[int, ...] = ()
    followed: tuple[int, ...] = ()
    rewritten: Message | None | UnsetType = UNSET
    """How it reads to everybody but its author; made once, by the first who needs it."""
    rewritten_bare: Message | None | UnsetType = UNSET
    """The same without the transfer."""

    def as_read_later(self, *, hides_transfers: bool) -> Message | None:
        """The message as activations other than its own find it; None if nothing is left of it."""
        left_out = self.undone + self.followed if hides_transfers else self.undone
        if not left_out:
            return self.message
        if left_out[0] == WHOLE_MESSAGE or not isinstance(self.message, AssistantMessage):
            return None
        calls = tuple(call for position, call in enumerate(self.message.tool_calls) if position not in left_out)
        is_nothing = not calls and is_empty(AssistantMessage(self.message.content))
        return None if is_nothing else replace(self.message, tool_calls=calls)

    @property
    def author(self) -> str | None:
        """The agent who said it; None for the run's input."""
        return self.origin.agent if self.origin is not None else None

    @property
    def path(self) -> tuple[str, ...]:
        """The run path it was said on; empty for the run's input."""
        return self.origin.path if self.origin is not None else ()

    @property
    def is_user_input(self) -> bool:
        """Whether it is what the run was started with."""
        return self.origin is None


class MessageWindow(Sequence[Message]):
    """The first messages of a growing list: cheap to make, and never seen to change."""

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
        return f"Window({list(self)!r})"


class HistoryView(Protocol):
    """What one activation reads of a history, in the words it reads it in."""

    def messages(self) -> Sequence[Message]:
        """Everything said so far."""
        ...


class History:
    """An append-only list of entries. `views` is kept for those who read it."""

    __slots__ = ("entries", "inputs", "undone_at", "views")

    def __init__(self, entries: Sequence[HistoryEntry] = ()) -> None:
        self.entries: list[HistoryEntry] = list(entries)
        self.inputs = len(self.entries)
        """How many of the entries it began with."""
        self.views: dict[Any, Any] = {}
        self.undone_at: list[int] = []
        """Where turns stand of which later readers do not read everything, because transfers did not happen in them."""

    def add(self, message: Message, origin: Origin | None, *, is_answer: bool = False) -> None:
        """Add a message that everybody may read."""
        self.entries.append(HistoryEntry(message, origin, is_answer))

    def truncate(self, length: int) -> None:
        """Forget what was said after the first entries; readers start over."""
        del self.entries[length:]
        self.undone_at[:] = [place for place in self.undone_at if place < length]
        self.views.clear()

    def fork(self) -> "History":
        """A history of its own that starts with the same entries."""
        forked = History(self.entries)
        forked.inputs = self.inputs
        if self.undone_at:
            forked.undone_at.extend(self.undone_at)
        return forked

    def join(self, branch: "History", mark: int) -> None:
        """Go on with what was said in a branch after the first `mark` entries, where it was forked."""
        if branch.undone_at:
            shift = len(self.entries) - mark
            self.undone_at.extend([place + shift for place in branch.undone_at if place >= mark])
        self.entries.extend(branch.entries[mark:])
