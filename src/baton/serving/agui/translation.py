"""What happens in a run, in the protocol's words: one translator for each stream, fed with events and deltas in order.

Agents that get the floor one after the other are steps; agents inside another (called as a tool, or part of a workflow)
are subagents. A stream opens what it speaks of and closes what it opened, also when it begins in the middle of a run.

How a run ends, as the protocol tells it: what it waits for, and what it used.

Who has the floor, as the protocol tells it: steps for agents in turn, subagents for agents inside another.

What agents say, as the protocol tells it: messages that are opened, filled and closed; thoughts; calls.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast

import ag_ui.core as agui
from msgspec import Struct

from ...events import (
    AgentFinished,
    AgentResponded,
    AgentStarted,
    CustomDelta,
    Delta,
    Event,
    InterruptAnswered,
    InterruptRaised,
    Origin,
    ProgressDelta,
    ReasoningDelta,
    RunCancelled,
    RunCompleted,
    RunFailed,
    RunStarted,
    RunSuspended,
    TextDelta,
    ToolReturned,
)
from ...messages import Usage
from ...runner import usage_from_events as used_in
from .frontend import KIND
from .messages import StateMirror, as_theirs


def is_frontend_call(asked: InterruptRaised) -> bool:
    """Whether a question is a call of a tool that the other side carries out."""
    return asked.tool_call is not None and _payload(asked).get("kind") == KIND


def outcome_of(waiting: Sequence[InterruptRaised], interrupts: Sequence[Any]) -> Any:
    """Why a run stopped that waits for answers.

    If all it waits for are calls of the other side's tools, it has ended well as far as the protocol is concerned: the
    results come as messages of the next request.
    """
    if all(is_frontend_call(asked) for asked in waiting):
        calls = [asked.tool_call.id for asked in waiting if asked.tool_call is not None]
        return agui.RunFinishedSuccessOutcome(type="success", pending_tool_call_ids=calls or None)
    return agui.RunFinishedInterruptOutcome(type="interrupt", interrupts=[*interrupts])


def as_interrupt(asked: InterruptRaised, tag: str | None) -> Any:
    """A question as those see it who are to answer it; the whole of it is in the metadata."""
    return agui.Interrupt(
        id=asked.key,
        reason=str(_payload(asked).get("kind") or "input"),
        message=_message_of(asked),
        tool_call_id=asked.tool_call.id if asked.tool_call is not None else None,
        response_schema=asked.schema,
        subagent_run_id=tag,
        metadata={"payload": asked.payload, "agent": asked.agent, "path": [*asked.path]},
    )


def usage_of(said: Sequence[AgentResponded]) -> Any:
    """What the model calls of a stream used, by model; None if there were none."""
    by_model = used_in(said).by_model
    return [_usage(model, used) for model, used in by_model.items()] or None


def _usage(model: str, used: Usage) -> Any:
    return agui.TokenUsage(
        model=model,
        input_tokens=used.input_tokens,
        output_tokens=used.output_tokens,
        total_tokens=used.total_tokens,
        cached_input_tokens=used.cached_tokens or None,
        reasoning_tokens=used.reasoning_tokens or None,
    )


def _payload(asked: InterruptRaised) -> dict[str, Any]:
    payload: Any = asked.payload
    return cast("dict[str, Any]", payload) if isinstance(payload, dict) else {}


def _message_of(asked: InterruptRaised) -> str | None:
    if isinstance(asked.payload, str):
        return asked.payload
    payload = _payload(asked)
    if payload.get("kind") == "approval":
        return f"May `{payload.get('tool')}` be called?"
    told = payload.get("message") or payload.get("question")
    return told if isinstance(told, str) else None


_CALL = re.compile(r"^(.*/m\d+\.\d+)/[^/]+$")
"""The id of an activation that a call began, and the key of the call in it."""


class StepTranslator:
    """Keeps account of the activations that a stream has spoken of."""

    def __init__(self, run: str) -> None:
        self._run = run
        self._agents: dict[str, str] = {}
        self._calls: dict[str, str] = {}
        self._active: dict[str, str] = {}
        self._left: set[str] = set()

    def note(self, event: Event) -> None:
        """Remember what later activations refer to."""
        if isinstance(event, AgentStarted):
            self._agents[event.origin.id] = event.agent
        elif isinstance(event, AgentResponded):
            for position, call in enumerate(event.message.tool_calls):
                self._calls[f"{event.key}.{position}"] = call.id

    def tag(self, origin: Origin) -> str | None:
        """What something is marked with that comes from here; None if it is no subagent's."""
        return f"{self._run}:{origin.id}" if "/" in origin.id else None

    def entered(self, origin: Origin) -> Iterator[Any]:
        """Tell that this activation, and those around it, have begun, unless that has been told."""
        yield from self._entered(origin.id, origin.agent)

    def left(self, origin: Origin) -> Iterator[Any]:
        """Tell that an activation is over, if it was told that it began."""
        agent = self._active.pop(origin.id, None)
        if agent is None:
            return
        self._left.add(origin.id)
        if "/" in origin.id:
            yield agui.SubagentFinishedEvent(subagent_run_id=f"{self._run}:{origin.id}")
        else:
            yield agui.StepFinishedEvent(step_name=agent)

    def all_left(self, *, waiting: Sequence[InterruptRaised], failure: str) -> Iterator[Any]:
        """Tell that no activation goes on in this stream, the innermost first."""
        for id, agent in [*self._active.items()][::-1]:
            del self._active[id]
            self._left.add(id)
            run = f"{self._run}:{id}"
            if "/" not in id:
                yield agui.StepFinishedEvent(step_name=agent)
            elif failure:
                yield agui.SubagentErrorEvent(subagent_run_id=run, message=failure)
            elif waiting:
                asked = [each.key for each in waiting if each.origin.id == id]
                outcome = agui.SubagentFinishedSuspendedOutcome(type="suspended", interrupt_ids=asked)
                yield agui.SubagentFinishedEvent(subagent_run_id=run, outcome=outcome)
            else:
                yield agui.SubagentFinishedEvent(subagent_run_id=run)

    def _entered(self, id: str, agent: str) -> Iterator[Any]:
        if not id or id in self._active or id in self._left:
            return
        if "/" not in id:
            self._active[id] = agent
            yield agui.StepStartedEvent(step_name=agent)
            return
        # An activation's id is that of the one around it, the place in that, and how many had the floor there.
        around = id.rsplit("/", 2)[0]
        yield from self._entered(around, self._agents.get(around, ""))
        self._active[id] = agent
        found = _CALL.match(id)
        yield agui.SubagentStartedEvent(
            subagent_run_id=f"{self._run}:{id}",
            name=agent,
            parent_subagent_run_id=f"{self._run}:{around}" if "/" in around else None,
            parent_tool_call_id=self._calls.get(found[1]) if found else None,
        )


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


_Told = Iterator[Any]


class EventTranslator:
    """Tells one stream of one run. `run` is what its messages are called after, `past` what has happened before it."""

    def __init__(
        self, *, run: str, thread: str, wire_run: str, past: Sequence[Event], answered: Sequence[str], show_errors: bool
    ) -> None:
        """`answered` are the calls whose results the other side has: it brought them."""
        self._run = run
        self._names: dict[str, Any] = {"thread_id": thread, "run_id": wire_run}
        self._state = StateMirror()
        self._floors = StepTranslator(run)
        self._speech = MessageTranslator(run)
        self._answered = frozenset(answered)
        self._show_errors = show_errors
        self._open: dict[str, InterruptRaised] = {}
        self._said: list[AgentResponded] = []
        self._output: str | None = None
        self.is_over = False
        """Whether the end has been told."""
        for event in past:
            self._note(event)
        self._handlers: dict[type, Callable[[Any], _Told]] = {
            TextDelta: self._text,
            ReasoningDelta: self._reasoning,
            CustomDelta: self._custom,
            ProgressDelta: self._progress,
            AgentStarted: self._floor,
            AgentResponded: self._spoken,
            ToolReturned: self._returned,
            AgentFinished: self._finished,
            RunCompleted: self._completed,
            RunSuspended: self._suspended,
            RunFailed: self._failed,
            RunCancelled: self._cancelled,
        }

    def begin(self) -> _Told:
        """What a stream begins with."""
        yield agui.RunStartedEvent(**self._names, protocol_version=agui.PROTOCOL_VERSION)
        yield agui.StateSnapshotEvent(snapshot=self._state.shown())

    def hear(self, event: Event | Delta) -> _Told:
        """What is told of one thing that has happened."""
        handler = self._handlers.get(type(event))
        if handler is not None:
            yield from handler(event)
        if isinstance(event, Event):
            patch = self._note(event)
            # The end has been told already; nothing may come after it.
            if patch and not self.is_over:
                yield agui.StateDeltaEvent(delta=patch)

    def broken(self) -> _Told:
        """What is told if a stream ends without the run having stopped."""
        yield from self._closed(failure="the run cannot be heard any more")
        yield agui.RunErrorEvent(message="the run cannot be heard any more", code="unavailable")

    def _note(self, event: Event) -> list[Any]:
        """Remember what later events refer to; what it changes in the state."""
        self._floors.note(event)
        self._speech.note(event)
        if isinstance(event, RunStarted):
            self._state.begin(event.values)
            return []
        if isinstance(event, InterruptRaised):
            self._open[event.key] = event
        elif isinstance(event, InterruptAnswered):
            self._open.pop(event.interrupt_id, None)
        return self._state.change(getattr(event, "value_changes", None))

    def _floor(self, event: Event | Delta) -> _Told:
        yield from self._floors.entered(event.origin)

    def _text(self, delta: TextDelta) -> _Told:
        if delta.text:
            yield from self._floor(delta)
            yield from self._speech.text(delta, self._tag(delta.origin))

    def _reasoning(self, delta: ReasoningDelta) -> _Told:
        if delta.text:
            yield from self._floor(delta)
            yield from self._speech.reasoning(delta, self._tag(delta.origin))

    def _spoken(self, said: AgentResponded) -> _Told:
        yield from self._floor(said)
        yield from self._speech.said(said, self._tag(said.origin))
        self._said.append(said)
        if "/" not in said.origin.id and not said.message.tool_calls:
            self._output = said.text

    def _returned(self, result: ToolReturned) -> _Told:
        if result.call_id in self._answered:
            return
        yield from self._floor(result)
        if result.is_final and "/" not in result.origin.id:
            self._output = result.message.content if isinstance(result.message.content, str) else self._output
        yield agui.ToolCallResultEvent(
            message_id=f"{self._run}:{result.key}",
            tool_call_id=result.call_id,
            content=as_theirs(result.content),
            role="tool",
            subagent_run_id=self._tag(result.origin),
        )

    def _custom(self, custom: CustomDelta) -> _Told:
        yield from self._floor(custom)
        yield agui.CustomEvent(name=custom.name, value=custom.data, subagent_run_id=self._tag(custom.origin))

    def _progress(self, progress: ProgressDelta) -> _Told:
        yield from self._floor(progress)
        told = {"text": progress.text, "done": progress.done, "total": progress.total, "toolCallId": progress.call_id}
        yield agui.CustomEvent(name="baton.progress", value=told, subagent_run_id=self._tag(progress.origin))

    def _finished(self, event: AgentFinished) -> _Told:
        yield from self._speech.closed(event.origin)
        yield from self._floors.left(event.origin)

    def _completed(self, event: RunCompleted) -> _Told:
        yield from self._closed()
        yield self._run_finished(agui.RunFinishedSuccessOutcome(type="success"), result=self._output)

    def _suspended(self, event: RunSuspended) -> _Told:
        waiting = [self._open[id] for id in event.interrupt_ids if id in self._open]
        yield from self._closed(waiting=waiting)
        interrupts = [as_interrupt(asked, self._tag(asked.origin)) for asked in waiting]
        yield self._run_finished(outcome_of(waiting, interrupts))

    def _cancelled(self, event: RunCancelled) -> _Told:
        yield from self._closed(failure="the run was cancelled")
        yield self._run_finished(agui.RunFinishedCancelledOutcome(type="cancelled"))

    def _failed(self, event: RunFailed) -> _Told:
        yield from self._closed(failure="the run failed")
        message = f"{event.error_type}: {event.message}" if self._show_errors else "the run failed"
        yield agui.RunErrorEvent(message=message, code=event.error_type, usage=usage_of(self._said))

    def _run_finished(self, outcome: Any, *, result: str | None = None) -> Any:
        return agui.RunFinishedEvent(**self._names, outcome=outcome, result=result, usage=usage_of(self._said))

    def _closed(self, *, waiting: Sequence[InterruptRaised] = (), failure: str = "") -> _Told:
        self.is_over = True
        yield from self._speech.all_closed()
        yield from self._floors.all_left(waiting=waiting, failure=failure)

    def _tag(self, origin: Origin) -> str | None:
        return self._floors.tag(origin)
