"""What was said in a run, read from its log alone: for the next run of a thread, and for whoever looks at old runs.

It needs no agents, so that a conversation goes on though the team has changed since. It is what the run's own history
was, but for messages that handoffs made up on the way.
"""

import re
from collections.abc import Iterator, Sequence
from typing import TypeAlias

from ..agents.definition import EXIT_TOOL
from ..context import HistoryEntry
from ..context.history import WHOLE_MESSAGE
from ..events import (
    AgentResponded,
    AgentStarted,
    ControlTransferred,
    Event,
    Origin,
    ResponseTruncated,
    RunStarted,
    StepCompleted,
    ToolReturned,
    UserMessageAdded,
)
from ..messages import ToolMessage, UserMessage

_INSIDE_A_CALL = re.compile(r"/[im]\d+\.\d+/")
_IS_RESPONSE = re.compile(r"/m\d+$")
_IS_SPOKEN = re.compile(r"/i(\d+)$")
NO_RESULT = "This call did not come to an end."
"""What stands for the result of a call that was never given one."""

_NO_NUMBER = -1

_Place: TypeAlias = tuple[int, ...]


def history_from_log(events: Sequence[Event]) -> list[HistoryEntry]:
    """The entries of a run's history: its input, and what its agents said and found out."""
    return [*_LogReader(events).entries()]


def last_active_agent(events: Sequence[Event]) -> str:
    """The agent that had the floor last; "" if nobody had it."""
    for event in reversed(events):
        if isinstance(event, AgentStarted) and "/" not in event.origin.id:
            return event.agent
    return ""


class _Activation:
    """One activation: what it said, and the activations inside it, in the order in which they began."""

    __slots__ = ("items", "origin", "place", "spoken")

    def __init__(self, origin: Origin, place: _Place) -> None:
        self.origin = origin
        self.place = place
        self.items: list[HistoryEntry | _Activation] = []
        self.spoken: dict[int, list[HistoryEntry | _Activation]] = {}
        """What was said in a live conversation, by its place there: it may be recorded in another order."""

    def place_for(self, key: str) -> "list[HistoryEntry | _Activation]":
        """Where what was said under this key belongs."""
        spoken = _IS_SPOKEN.search(key)
        return self.items if spoken is None else self.spoken.setdefault(int(spoken.group(1)), [])


class _LogReader:
    def __init__(self, events: Sequence[Event]) -> None:
        self._run = events[0].run_id if events and isinstance(events[0], RunStarted) else ""
        self._top = _Activation(Origin("", ""), ())
        self._nodes: dict[str, _Activation] = {"": self._top}
        self._results = {event.key: event for event in events if isinstance(event, ToolReturned)}
        self._followed = {event.origin.id: event.call_id for event in events if isinstance(event, ControlTransferred)}
        self._last_response = {
            e.origin.id: e.key for e in events if isinstance(e, AgentResponded) and _IS_RESPONSE.search(e.key)
        }
        self._cuts = {event.response_key: event for event in events if isinstance(event, ResponseTruncated)}
        for event in events:
            if _INSIDE_A_CALL.search(event.origin.id):
                continue
            if isinstance(event, RunStarted):
                self._top.items.extend(HistoryEntry(message) for message in event.input)
            elif isinstance(event, AgentStarted):
                self._node(event.origin)
            elif isinstance(event, AgentResponded):
                self._say(event)
            elif isinstance(event, UserMessageAdded):
                self._node(event.origin).place_for(event.key).append(HistoryEntry(event.message))
            elif isinstance(event, StepCompleted) and event.name == "failed" and event.key.endswith("/failed"):
                self._fail(event)
        for node in self._nodes.values():
            for place in sorted(node.spoken):
                node.items.extend(node.spoken[place])

    def entries(self, node: _Activation | None = None) -> Iterator[HistoryEntry]:
        """What was said, in the order in which it is read: branches that ran at once as they were declared."""
        beside: list[_Activation] = []
        for item in (node or self._top).items:
            if isinstance(item, _Activation):
                beside.append(item)
                continue
            yield from self._in_turn(beside)
            beside.clear()
            yield item
        yield from self._in_turn(beside)

    def _in_turn(self, nodes: Sequence[_Activation]) -> Iterator[HistoryEntry]:
        for node in sorted(nodes, key=lambda node: node.place):
            yield from self.entries(node)

    def _node(self, origin: Origin) -> _Activation:
        known = self._nodes.get(origin.id)
        if known is None:
            around, _, hop = origin.id.rpartition("/")
            parent, _, place = around.rpartition("/")
            author = Origin(f"{self._run}:{origin.id}", origin.agent)
            known = self._nodes[origin.id] = _Activation(author, _place_of(f"{place}.{hop}") if place else ())
            self._nodes.get(parent, self._top).items.append(known)
        return known

    def _say(self, said: AgentResponded) -> None:
        node, calls = self._node(said.origin), said.message.tool_calls
        items, cut = node.place_for(said.key), self._cuts.get(said.key)
        message = said.message if cut is None else cut.truncate(said.message)
        if not calls:
            # A model's answer that was not the last did not fit the output type, and was taken back.
            if self._last_response.get(said.origin.id, said.key) == said.key or not _IS_RESPONSE.search(said.key):
                items.append(HistoryEntry(message, node.origin, is_answer=True))
            return
        results = [self._results.get(f"{said.key}.{position}") for position in range(len(calls))]
        undone = [
            position for position, result in enumerate(results) if result is not None and result.is_transfer_refused
        ]
        taken = self._followed.get(said.origin.id)
        followed = [position for position, call in enumerate(calls) if taken is not None and call.id == taken]
        answer = None if followed else self._answer_among(said, results)
        items.append(HistoryEntry(message, node.origin, undone=tuple(undone), followed=tuple(followed)))
        for position, (call, result) in enumerate(zip(calls, results, strict=True)):
            told = ToolMessage(call.id, call.name, NO_RESULT, is_error=True) if result is None else result.message
            entry = HistoryEntry(told, node.origin, is_answer=position == answer)
            if position in undone:
                entry.undone = (WHOLE_MESSAGE,)
            elif position in followed:
                entry.followed = (WHOLE_MESSAGE,)
            items.append(entry)

    def _answer_among(self, said: AgentResponded, results: Sequence[ToolReturned | None]) -> int | None:
        """The position of the result that was the agent's answer: the last that may be, if it was the last turn."""
        if self._last_response.get(said.origin.id) != said.key:
            return None
        if any(result is not None and result.tool_name == EXIT_TOOL and not result.is_error for result in results):
            return None
        final = [position for position, result in enumerate(results) if result is not None and result.is_final]
        return final[-1] if final else None

    def _fail(self, failed: StepCompleted) -> None:
        """What is left of an agent whose failure was passed over: a message that says so."""
        node = self._node(failed.origin)
        report = HistoryEntry(UserMessage(str(failed.result)), node.origin)
        if failed.key == f"{failed.origin.id}/failed":
            node.items[:] = [report]
            return
        branch = failed.key[len(failed.origin.id) + 1 : -len("/failed")]
        place = _place_of(branch)
        node.items[:] = [
            item for item in node.items if not (isinstance(item, _Activation) and item.place[:-1] == place)
        ]
        told = _Activation(node.origin, (*place, 0))
        told.items.append(report)
        node.items.append(told)


def _place_of(text: str) -> _Place:
    """The numbers in a place. Words, which agents of one's own may use, stay in the order in which they began."""
    pieces = text.split(".")
    return tuple(map(int, pieces)) if all(map(str.isdecimal, pieces)) else (_NO_NUMBER,)
