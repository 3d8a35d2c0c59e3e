"""What is said in a live conversation, in the order in which it is said, though it becomes known in another.

The user's words come later than the answer to them; the results of a call later than what is said meanwhile. Each has
its place from the beginning on, and enters the run's history when all before it has.
"""

from bisect import insort
from collections.abc import Iterator, Sequence

from ..context import HistoryEntry
from ..context.history import History
from ..events import AgentResponded, ResponseTruncated
from ..messages import AssistantMessage, Message, ToolMessage

UNDER_WAY = "This call is still being carried out."
"""What stands for the result of a call that goes on though somebody else has the floor; no model is told."""


class TranscriptSlot:
    """A place in the conversation; `key` is that of the event that will be recorded for it."""

    __slots__ = ("branch", "entries", "is_left", "is_open", "is_stopped", "key", "mark", "place", "said")

    def __init__(self, place: int, key: str) -> None:
        self.place = place
        self.key = key
        self.is_open = True
        self.is_left = False
        """Whether its calls go on though the floor was given up: the history has something that stands for them."""
        self.is_stopped = False
        """Whether a guardrail has stopped it: then nothing that it asks for is done."""
        self.said: AgentResponded | None = None
        self.entries: list[HistoryEntry] = []
        self.branch: History | None = None
        """A history of its own, for calls that are being carried out; what they add begins at `mark`."""
        self.mark = 0

    def waiting(self) -> list[HistoryEntry]:
        """What is known of it so far."""
        if self.branch is not None and len(self.branch.entries) > self.mark:
            return self.branch.entries[self.mark :]
        return self.entries

    def results(self) -> list[ToolMessage]:
        """What its calls came to, as far as that is known."""
        return [entry.message for entry in self.waiting() if isinstance(entry.message, ToolMessage)]


class ActivationTranscript:
    """The places of one activation, on top of the history it began with."""

    def __init__(self, history: History, scope: str) -> None:
        self._history = history
        self._scope = scope
        self._slots: list[TranscriptSlot] = []
        self._last = 0

    def open(self, place: int | None = None) -> TranscriptSlot:
        """The next place, or one that is on record."""
        self._last = self._last + 1 if place is None else place
        slot = TranscriptSlot(self._last, f"{self._scope}/i{self._last}")
        self._slots.append(slot)
        return slot

    def fill(self, slot: TranscriptSlot, *entries: HistoryEntry) -> None:
        """Nothing more will come to this place."""
        slot.entries.extend(entries)
        slot.is_open = False
        self._flush()

    def close(self, slot: TranscriptSlot) -> None:
        """The calls at this place have been carried out; what they came to is in its branch."""
        slot.is_open = False
        self._flush()

    def drop(self, slot: TranscriptSlot) -> None:
        """Nothing was said here after all."""
        if slot in self._slots:
            self._slots.remove(slot)
        self._flush()

    def take_back(self, slot: TranscriptSlot) -> None:
        """What was put down here last does not count, wherever it has got to."""
        taken = {id(entry) for entry in slot.entries}
        self._history.entries[:] = [entry for entry in self._history.entries if id(entry) not in taken]
        self._history.views.clear()
        self.drop(slot)

    def end(self) -> None:
        """Nobody will say anything more here: what is still open stays empty, and all the rest is known."""
        self._slots = [slot for slot in self._slots if not slot.is_open]
        self._flush()

    def settle(self, spoken: HistoryEntry, results: Sequence[HistoryEntry], came_to: Sequence[HistoryEntry]) -> None:
        """Put down what calls came to that went on when the floor was given up: first the response, then the results.

        `spoken` and `results` are what stands for them in the history.
        """
        by_call = {entry.message.tool_call_id: entry for entry in came_to if isinstance(entry.message, ToolMessage)}
        for entry in results:
            found = by_call.get(entry.message.tool_call_id) if isinstance(entry.message, ToolMessage) else None
            if found is not None:
                entry.message, entry.hidden, entry.is_answer = found.message, found.hidden, found.is_answer
        if came_to and came_to[0] is not spoken and came_to[0].hidden:
            spoken.hidden = came_to[0].hidden
            place = next(place for place, entry in enumerate(self._history.entries) if entry is spoken)
            insort(self._history.hidden_at, place)
        self._history.views.clear()

    def cut(self, entry: HistoryEntry, cut: ResponseTruncated) -> None:
        """Let those words only stand that were heard."""
        if isinstance(entry.message, AssistantMessage):
            entry.message = cut.truncate(entry.message)
            self._history.views.clear()

    def everything(self) -> Iterator[Message]:
        """All that was said, for a model that knows nothing of it yet."""
        for entry in self._history.entries:
            if not (isinstance(entry.message, ToolMessage) and entry.message.content == UNDER_WAY):
                yield entry.message
        for slot in self._slots:
            for entry in slot.waiting():
                yield entry.message

    def _flush(self) -> None:
        while self._slots and not self._slots[0].is_open:
            slot = self._slots.pop(0)
            if slot.branch is not None:
                self._history.join(slot.branch, slot.mark)
            self._history.entries.extend(slot.entries)
