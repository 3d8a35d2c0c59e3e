"""What happens in a run, in the protocol's words: one translator for each stream, fed with events and deltas in order.

Agents that get the floor one after the other are steps; agents inside another (called as a tool, or part of a workflow)
are subagents. A stream opens what it speaks of and closes what it opened, also when it begins in the middle of a run.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import ag_ui.core as agui

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
from .endings import as_interrupt, outcome_of, usage_of
from .floors import StepTranslator
from .messages import as_theirs
from .speech import MessageTranslator
from .state import StateMirror

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
