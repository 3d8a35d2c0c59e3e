"""The transcript of one activation, in the order of the conversation although parts become known out of order.

The user's transcription arrives after the answer to it, and tool results after later speech. Each item gets its slot
at once, and enters the run's history when all slots before it are complete.
"""

from bisect import insort
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from ..log import AgentResponded, ResponseTruncated, keys
from ..log.entries import HistoryEntry
from ..log.history import History
from ..messages import AssistantMessage, Message, ToolCall, ToolMessage

CALL_IN_PROGRESS = "This call is still being carried out."
"""Placeholder result of a call that continues after a transfer; it is never sent to a model."""


@dataclass(eq=False, slots=True)
class TranscriptSlot:
    """A position in the conversation; `key` is the key of the event to be recorded for it."""

    position: int
    key: str
    is_open: bool = True
    is_detached: bool = False
    """True if its calls continue after a transfer; the history holds placeholders for their results."""
    is_stopped: bool = False
    """True if a guardrail stopped the response; its calls are not executed then."""
    response: AgentResponded | None = None
    entries: list[HistoryEntry] = field(default_factory=list[HistoryEntry])
    branch: History | None = None
    """A fork of the history for running calls; what they add begins at `branch_start`."""
    branch_start: int = 0

    def current_entries(self) -> list[HistoryEntry]:
        """Return the entries known so far."""
        if self.branch is not None and len(self.branch.entries) > self.branch_start:
            return self.branch.entries[self.branch_start :]
        return self.entries

    @property
    def recorded(self) -> AgentResponded:
        """The response of a slot whose calls are executed."""
        assert self.response is not None
        return self.response

    def calls(self) -> list[tuple[str, ToolCall]]:
        """Return the calls of its response, each with the key of its result."""
        response = self.recorded
        return [(keys.call(response.key, index), call) for index, call in enumerate(response.message.tool_calls)]

    def results(self) -> list[ToolMessage]:
        """Return the tool results known so far."""
        return [entry.message for entry in self.current_entries() if isinstance(entry.message, ToolMessage)]


class ActivationTranscript:
    """The slots of one activation, on top of the history it started with."""

    def __init__(self, history: History, scope: str) -> None:
        self._history = history
        self._scope = scope
        self._slots: list[TranscriptSlot] = []
        self._last = 0

    def open(self, position: int | None = None) -> TranscriptSlot:
        """Open the next slot, or the one at a recorded position."""
        self._last = self._last + 1 if position is None else position
        slot = TranscriptSlot(self._last, keys.item(self._scope, self._last))
        self._slots.append(slot)
        return slot

    def fill(self, slot: TranscriptSlot, *entries: HistoryEntry) -> None:
        """Add the last entries of a slot and close it."""
        slot.entries.extend(entries)
        self.close(slot)

    def close(self, slot: TranscriptSlot) -> None:
        """Close a slot whose entries, or branch, are complete."""
        slot.is_open = False
        self._flush()

    def drop(self, slot: TranscriptSlot) -> None:
        """Remove a slot that stays empty."""
        if slot in self._slots:
            self._slots.remove(slot)
        self._flush()

    def remove(self, slot: TranscriptSlot) -> None:
        """Remove a slot and its entries, also from the history."""
        removed = {id(entry) for entry in slot.entries}
        self._history.entries[:] = [entry for entry in self._history.entries if id(entry) not in removed]
        self._history.note_edit()
        self.drop(slot)

    def end(self) -> None:
        """Drop the slots that are still open, and move all others to the history."""
        self._slots = [slot for slot in self._slots if not slot.is_open]
        self._flush()

    def settle(
        self, response: HistoryEntry, placeholders: Sequence[HistoryEntry], outcome: Sequence[HistoryEntry]
    ) -> None:
        """Replace the placeholders of detached calls with their results."""
        by_call = {entry.message.tool_call_id: entry for entry in outcome if isinstance(entry.message, ToolMessage)}
        for entry in placeholders:
            found = by_call.get(entry.message.tool_call_id) if isinstance(entry.message, ToolMessage) else None
            if found is not None:
                entry.message = found.message
                entry.hidden = found.hidden
                entry.is_answer = found.is_answer
        if outcome and outcome[0] is not response and outcome[0].hidden:
            response.hidden = outcome[0].hidden
            index = next(index for index, entry in enumerate(self._history.entries) if entry is response)
            insort(self._history.hidden_at, index)
        self._history.note_edit()

    def truncate(self, entry: HistoryEntry, event: ResponseTruncated) -> None:
        """Reduce an entry to the text that was heard."""
        if isinstance(entry.message, AssistantMessage):
            entry.message = event.truncate(entry.message)
            self._history.note_edit()

    def messages(self) -> Iterator[Message]:
        """Return the whole conversation so far, for a new connection."""
        for entry in self._history.entries:
            if not (isinstance(entry.message, ToolMessage) and entry.message.content == CALL_IN_PROGRESS):
                yield entry.message
        for slot in self._slots:
            for entry in slot.current_entries():
                yield entry.message

    def _flush(self) -> None:
        while self._slots and not self._slots[0].is_open:
            slot = self._slots.pop(0)
            if slot.branch is not None:
                self._history.join(slot.branch, slot.branch_start)
            self._history.entries.extend(slot.entries)
