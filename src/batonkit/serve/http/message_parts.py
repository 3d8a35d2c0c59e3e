"""The text, reasoning and tool calls of a run as parts that open, grow and close.

This is what protocols that stream messages have in common: each translates the updates to its own events.
"""

from collections import Counter
from collections.abc import Iterator
from typing import Literal, TypeAlias

from msgspec import Struct

from ... import log as events
from ...log import keys
from ...messages import ToolCall

PartKind: TypeAlias = Literal["text", "reasoning"]
"""The content of a part: what the agent says, or its reasoning before that."""


class PartOpened(Struct, frozen=True):
    """An agent begins to write a text or its reasoning."""

    kind: PartKind
    id: str
    """The id of the part, unique in the run; text has the id of its message."""
    agent: str
    """The agent that writes it."""


class PartExtended(Struct, frozen=True):
    """A piece of an open part."""

    kind: PartKind
    id: str
    text: str
    """The text since the previous piece."""


class PartClosed(Struct, frozen=True):
    """A part is complete."""

    kind: PartKind
    id: str


class PartsDiscarded(Struct, frozen=True):
    """Parts, closed before, that do not count: the model starts its response again."""

    ids: tuple[str, ...]


class CallWritten(Struct, frozen=True):
    """An agent calls a tool; it comes after the text of its message."""

    call: ToolCall
    """The call, complete: its id is final only now."""
    message_id: str
    """The id of the message that has the call."""


PartUpdate: TypeAlias = PartOpened | PartExtended | PartClosed | PartsDiscarded | CallWritten


class _OpenPart(Struct):
    kind: PartKind
    id: str
    text: str = ""

    def close(self) -> PartClosed:
        return PartClosed(self.kind, self.id)


class MessageParts:
    """The parts of one stream of a run, which may begin in the middle of the run.

    Ids come from the log, so that every stream of the run has the same.
    """

    def __init__(self, run_id: str) -> None:
        self._run_id = run_id
        self._response_counts: Counter[str] = Counter()
        """The number of model responses of each activation, which determines the key of the next one."""
        self._restart_counts: Counter[str] = Counter()
        """The number of times that the current response of each activation started again."""
        self._texts: dict[str, _OpenPart] = {}
        self._reasonings: dict[str, _OpenPart] = {}
        self._have_reasoned: set[str] = set()
        """The activations whose current response has reasoning."""

    def skip(self, event: events.Event) -> None:
        """Take note of an event that precedes the stream."""
        if isinstance(event, events.AgentResponded) and keys.is_response(event.key):
            self._response_counts[event.origin.id] += 1
            self._restart_counts.pop(event.origin.id, None)

    def update(self, item: events.Event | events.Delta) -> Iterator[PartUpdate]:
        """Return what an event or a delta adds; nothing for those that are not about messages."""
        match item:
            case events.TextDelta() if item.text:
                yield from self._close(self._reasonings, item.origin.id)
                yield from self._extend(self._texts, "text", item, item.text)
            case events.ReasoningDelta() if item.text:
                yield from self._reason(item, item.text)
            case events.ResponseRestarted():
                yield from self._discard(item.origin.id)
                self._have_reasoned.discard(item.origin.id)
            case events.AgentResponded():
                yield from self._complete(item)
                self.skip(item)
            case events.AgentFinished():
                yield from self.close(item.origin.id)
            case _:
                pass

    def close(self, activation: str) -> Iterator[PartUpdate]:
        """Close the open parts of an activation."""
        yield from self._close(self._reasonings, activation)
        yield from self._close(self._texts, activation)

    def open_activations(self) -> list[str]:
        """Return the activations that have open parts."""
        return [*{**self._reasonings, **self._texts}]

    def _complete(self, response: events.AgentResponded) -> Iterator[PartUpdate]:
        """Add what no delta has delivered, and the tool calls."""
        activation = response.origin.id
        reasoning = "\n\n".join([each.text for each in response.message.reasoning if each.text])
        if reasoning and activation not in self._have_reasoned and activation not in self._texts:
            yield from self._reason(response, reasoning)
        self._have_reasoned.discard(activation)
        yield from self._close(self._reasonings, activation)
        streamed = self._texts[activation].text if activation in self._texts else ""
        if not response.text.startswith(streamed):
            # The final text is another one than that of the deltas.
            yield from self._discard(activation)
            streamed = ""
        if rest := response.text[len(streamed) :]:
            yield from self._extend(self._texts, "text", response, rest)
        yield from self._close(self._texts, activation)
        for call in response.message.tool_calls:
            yield CallWritten(call, self._message_id(response))

    def _discard(self, activation: str) -> Iterator[PartUpdate]:
        ids = tuple([parts[activation].id for parts in (self._reasonings, self._texts) if activation in parts])
        if ids:
            yield from self.close(activation)
            self._restart_counts[activation] += 1
            yield PartsDiscarded(ids)

    def _reason(self, item: events.Event | events.Delta, text: str) -> Iterator[PartUpdate]:
        self._have_reasoned.add(item.origin.id)
        yield from self._extend(self._reasonings, "reasoning", item, text)

    def _extend(
        self, parts: dict[str, _OpenPart], kind: PartKind, item: events.Event | events.Delta, text: str
    ) -> Iterator[PartUpdate]:
        """Add text to the open part of an activation, or to a new one."""
        part = parts.get(item.origin.id)
        if part is None:
            message_id = self._message_id(item)
            part = _OpenPart(kind, message_id if kind == "text" else f"{message_id}/thought")
            parts[item.origin.id] = part
            yield PartOpened(kind, part.id, item.agent)
        part.text += text
        yield PartExtended(kind, part.id, text)

    def _close(self, parts: dict[str, _OpenPart], activation: str) -> Iterator[PartUpdate]:
        if (part := parts.pop(activation, None)) is not None:
            yield part.close()

    def _message_id(self, item: events.Event | events.Delta) -> str:
        """Return the id of the message of a response, or of the one that deltas are pieces of."""
        activation = item.origin.id
        if isinstance(item, events.AgentResponded):
            key = item.key
        else:
            key = keys.response(activation, self._response_counts[activation] + 1)
        restarts = self._restart_counts[activation]
        again = "/again" * bool(restarts) + str(restarts) * (restarts > 1)
        return f"{self._run_id}:{key}{again}"
