"""The protocols of views on a history, and windows on growing lists of messages."""

from abc import ABCMeta
from collections.abc import Iterator, Sequence
from typing import Any, Protocol, overload

from msgspec import Struct, StructMeta

from ..messages import Message
from .entries import HistoryEntry
from .events import SummaryReaders
from .history import CompactedPrefix, History


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

    def cover(self, history: History, stop: int) -> Covered | None:
        """Return what a summary would replace; None if it cannot end there."""
        ...

    def compact(self, history: History, prefix: CompactedPrefix) -> None:
        """Read a summary from now on, and let its other readers do so."""
        ...
