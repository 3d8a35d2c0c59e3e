"""The detection of agents that transfer in a cycle without progress."""

from collections.abc import Sequence

from msgspec import Struct

from ..errors import LoopError
from ..log import Origin
from ..log.entries import HistoryEntry
from ..log.history import History
from ..messages import AssistantMessage, ToolMessage, UserMessage, text_of

_MOST_UNREAD = 32
"""The number of activations after which the loop detector reads their messages, so that what it keeps stays short."""


class LoopDetector(Struct):
    """Detects that the same cycle of transfers, of any length, is repeated without new content.

    Messages are read only when transfers repeat, so that a transfer to an agent that was not active before is cheap.
    """

    allowed: int | None
    _agents: list[str] = []
    """The agents since the last new content, the one that the next transfer starts from last."""
    _marks: list[int] = []
    """The positions in the history at which they began, except the last one's."""
    _read: int = 0
    """The number of agents whose messages were read."""
    _visited: dict[str, None] = {}
    _seen: set[tuple[str | None, str]] = set()

    def count(self, source: Origin, target: str, history: History, mark: int) -> None:
        """Count a transfer.

        Raises:
            LoopError: A cycle was repeated too often without progress.
        """
        allowed = self.allowed
        agents = self._agents
        marks = self._marks
        visited = self._visited
        if allowed is None:
            return
        if not agents:
            agents += (source.agent,)
            visited[source.agent] = None
        agents += (target,)
        marks.append(mark)
        # The number of transfers between them.
        last = len(marks)
        if target not in visited:
            visited[target] = None
            return
        length = 2
        while length <= last and (needed := length * allowed) <= last:
            start = last - needed
            if agents[last - length] == target and agents[start : last + 1 - length] == agents[start + length :]:
                cycle = agents[last - length :]
                if self._find_news(history) <= start:
                    raise LoopError(source.agent, target, allowed, source.path, cycle=cycle)
                return
            length += 1
        if last - self._read >= _MOST_UNREAD:
            self._find_news(history)

    def add_result(self, agent: str, result: str) -> None:
        """Count the result of a task as progress, unless the agent gave the same one before."""
        before = len(self._seen)
        self._seen.add((f"task of {agent}", result))
        if len(self._seen) > before:
            self.reset()

    def reset(self) -> None:
        """Start counting from zero, after another agent has taken over."""
        self._agents = []
        self._marks = []
        self._visited = {}
        self._read = 0

    def _find_news(self, history: History) -> int:
        """Forget the agents before the last one with new content; return its position, or 0."""
        last = len(self._marks)
        marks = [*self._marks, len(history.entries)]
        found = 0
        for position in range(self._read, last):
            if self._has_new_content(history.entries[marks[position] : marks[position + 1]]):
                found = position
        self._agents = self._agents[found:]
        self._marks = self._marks[found:]
        self._read = last - found
        self._visited = dict.fromkeys(self._agents)
        return found

    def _has_new_content(self, entries: Sequence[HistoryEntry]) -> bool:
        before = len(self._seen)
        for entry in entries:
            message = entry.for_others(hide_transfers=True)
            if type(message) is ToolMessage:
                self._seen.add((message.name, text_of(message.content)))
            elif type(message) is AssistantMessage and message.content:
                self._seen.add((entry.author, text_of(message.content)))
            elif type(message) is UserMessage and entry.is_user_input:
                # In a realtime session the user speaks between transfers; repeated words count as new.
                self._seen.add((None, f"{len(self._seen)} {text_of(message.content)}"))
        return len(self._seen) > before
