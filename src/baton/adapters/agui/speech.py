"""What agents say, as the protocol tells it: messages that are opened, filled and closed; thoughts; calls."""

from collections.abc import Iterator
from typing import Any

import ag_ui.core as agui
from msgspec import Struct

from ...events import AgentResponded, Event, Origin, ReasoningDelta, TextDelta


class _OpenMessage(Struct):
    id: str
    tag: str | None
    text: str = ""


class MessageTranslator:
    """Keeps account of the messages of a stream that are open, one for each activation at most."""

    def __init__(self, run: str) -> None:
        self._run = run
        self._answers: dict[str, int] = {}
        """How many answers of its model each activation has on record: the next one's key can be told from it."""
        self._texts: dict[str, _OpenMessage] = {}
        self._thoughts: dict[str, _OpenMessage] = {}

    def note(self, event: Event) -> None:
        """Count answers of models."""
        if isinstance(event, AgentResponded) and event.key.startswith(f"{event.origin.id}/m"):
            self._answers[event.origin.id] = self._answers.get(event.origin.id, 0) + 1

    def text(self, delta: TextDelta, tag: str | None) -> Iterator[Any]:
        """A piece of text."""
        origin = delta.origin
        yield from self._thought(origin.id)
        open = self._texts.get(origin.id)
        if open is None:
            open = self._texts[origin.id] = _OpenMessage(self._coming(origin), tag)
            yield _start(open, delta.agent)
        open.text += delta.text
        yield agui.TextMessageContentEvent(message_id=open.id, delta=delta.text, subagent_run_id=tag)

    def reasoning(self, delta: ReasoningDelta, tag: str | None) -> Iterator[Any]:
        """A piece of a thought."""
        open = self._thoughts.get(delta.origin.id)
        if open is None:
            open = self._thoughts[delta.origin.id] = _OpenMessage(f"{self._coming(delta.origin)}/thought", tag)
            yield agui.ReasoningStartEvent(message_id=open.id, subagent_run_id=tag)
            yield agui.ReasoningMessageStartEvent(message_id=open.id, role="reasoning", subagent_run_id=tag)
        yield agui.ReasoningMessageContentEvent(message_id=open.id, delta=delta.text, subagent_run_id=tag)

    def said(self, said: AgentResponded, tag: str | None) -> Iterator[Any]:
        """What was said in the end: the rest of it if a part was heard, and its calls."""
        id = f"{self._run}:{said.key}"
        yield from self._thought(said.origin.id)
        open = self._texts.get(said.origin.id)
        if open is not None and not said.text.startswith(open.text):
            # What was heard has been taken back: a second attempt said something else.
            yield from self._closed_text(said.origin.id)
            open, id = None, f"{id}/again"
        if open is None and said.text:
            open = self._texts[said.origin.id] = _OpenMessage(id, tag)
            yield _start(open, said.agent)
        if open is not None:
            rest = said.text[len(open.text) :]
            if rest:
                yield agui.TextMessageContentEvent(message_id=open.id, delta=rest, subagent_run_id=tag)
            yield from self._closed_text(said.origin.id)
        for call in said.message.tool_calls:
            # Only now is it certain which ids they have.
            yield agui.ToolCallStartEvent(
                tool_call_id=call.id, tool_call_name=call.name, parent_message_id=id, subagent_run_id=tag
            )
            yield agui.ToolCallArgsEvent(tool_call_id=call.id, delta=call.arguments, subagent_run_id=tag)
            yield agui.ToolCallEndEvent(tool_call_id=call.id, subagent_run_id=tag)

    def closed(self, origin: Origin) -> Iterator[Any]:
        """Close what this activation has left open."""
        yield from self._thought(origin.id)
        yield from self._closed_text(origin.id)

    def all_closed(self) -> Iterator[Any]:
        """Close everything."""
        for id in [*self._thoughts]:
            yield from self._thought(id)
        for id in [*self._texts]:
            yield from self._closed_text(id)

    def _coming(self, origin: Origin) -> str:
        return f"{self._run}:{origin.id}/m{self._answers.get(origin.id, 0) + 1}"

    def _closed_text(self, origin: str) -> Iterator[Any]:
        open = self._texts.pop(origin, None)
        if open is not None:
            yield agui.TextMessageEndEvent(message_id=open.id, subagent_run_id=open.tag)

    def _thought(self, origin: str) -> Iterator[Any]:
        open = self._thoughts.pop(origin, None)
        if open is not None:
            yield agui.ReasoningMessageEndEvent(message_id=open.id, subagent_run_id=open.tag)
            yield agui.ReasoningEndEvent(message_id=open.id, subagent_run_id=open.tag)


def _start(open: _OpenMessage, agent: str) -> Any:
    return agui.TextMessageStartEvent(message_id=open.id, role="assistant", name=agent, subagent_run_id=open.tag)
