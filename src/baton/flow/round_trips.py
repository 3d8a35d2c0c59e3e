"""Notices when two agents pass control to and fro and nothing new happens."""

from collections.abc import Sequence

from ..context import History, HistoryEntry
from ..errors import LoopError
from ..events import Origin
from ..messages import AssistantMessage, ToolMessage, UserMessage, text_of


class LoopDetector:
    """Counts transfers between the same two agents since anything new was said or found out."""

    __slots__ = ("_allowed", "_count", "_pair", "_said")

    def __init__(self, allowed: int | None) -> None:
        self._allowed = allowed
        self._pair = ("", "")
        self._count = 0
        self._said: set[tuple[str | None, str]] = set()

    def note(self, source: Origin, target: str, history: History, mark: int) -> None:
        """Take a transfer into account, and what was said since `mark`. Raises LoopError if it is one too many."""
        if self._allowed is None:
            return
        if (source.agent, target) != self._pair and (target, source.agent) != self._pair:
            self._pair = (source.agent, target)
            self._count = 0
        elif self._brings_news(history.entries[mark:]):
            self._count = 0
        self._count += 1
        if self._count >= 2 * self._allowed:
            raise LoopError(source.agent, target, self._allowed, source.path)

    def start_over(self) -> None:
        """Count anew, after somebody else has taken over."""
        self._count = 0

    def _brings_news(self, entries: Sequence[HistoryEntry]) -> bool:
        before = len(self._said)
        for entry in entries:
            message = entry.as_read_later(hides_transfers=True)
            if type(message) is ToolMessage:
                self._said.add((message.name, text_of(message.content)))
            elif type(message) is AssistantMessage and message.content:
                self._said.add((entry.author, text_of(message.content)))
            elif type(message) is UserMessage and entry.is_user_input:
                # In a live conversation the user speaks between transfers, and what they say again is new all the same.
                self._said.add((None, f"{len(self._said)} {text_of(message.content)}"))
        return len(self._said) > before
