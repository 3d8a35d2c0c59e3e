"""From the events of a run to its spans: run, activation, and in it model calls, tool calls and handoffs.

The log tells when something ended. When it began follows from what came before it: a model is asked after the last
event of its activation, and tools are called, and handoffs begin, when the response that asks for them is there. What
happened while nobody drove the run is in no span: nothing begins before the run was taken up.
"""

from collections.abc import Iterable, Sequence
from time import time
from typing import Any

from opentelemetry import context as current
from opentelemetry.context import Context
from opentelemetry.trace import Link, Span, SpanContext, SpanKind, StatusCode, Tracer, set_span_in_context

from ..agents.hooks import HOOK_STEP
from ..events import (
    AgentFinished,
    AgentResponded,
    AgentStarted,
    ControlTransferred,
    Delta,
    Event,
    InterruptAnswered,
    InterruptRaised,
    Origin,
    ReasoningDelta,
    RunCancelled,
    RunCompleted,
    RunFailed,
    RunResumed,
    RunStarted,
    RunSuspended,
    StepCompleted,
    TextDelta,
    ToolCallDelta,
    ToolReturned,
)
from ..messages import Message, ToolCall
from . import attributes

_STATUS: dict[type[Event], str] = {
    RunCompleted: "completed",
    RunSuspended: "suspended",
    RunFailed: "failed",
    RunCancelled: "cancelled",
}
_PIECES = (TextDelta, ReasoningDelta, ToolCallDelta)


class RunSpanBuilder:
    """The spans of one run, made while its events are read. Each drive of the run has a span of its own on top."""

    def __init__(self, tracer: Tracer, *, content: bool, is_live: bool = True) -> None:
        self._tracer = tracer
        self._content = content
        self._is_live = is_live
        """Whether this happens now: then it is part of what the caller does, and of what tools do inside."""
        self.trace: SpanContext | None = None
        """The span of the latest drive."""
        self.is_completed = False
        self._run_id = ""
        self._root = ""
        self._conversation = ""
        """The thread; a run that is in none is a conversation of its own."""
        self._run: Span | None = None
        self._token: Any = None
        self._since = 0.0
        """When this drive began."""
        self._latest = 0.0
        """When anything last happened."""
        self._open: dict[str, Span] = {}
        """Spans of activations, by id, and of tool calls that have begun, by key."""
        self._moments: dict[str, tuple[Origin, float]] = {}
        """The activations under way, by id, and when something last happened in each."""
        self._turns: dict[str, _Turn] = {}
        """The latest response of each activation that has calls."""
        self._calls: dict[str, tuple[AgentResponded, ToolCall]] = {}
        """Calls that have no result yet, by key."""
        self._first: dict[str, float] = {}
        """When the first piece of an answer came that is not yet there as a whole, by activation."""

    def recall(self, past: Iterable[Event], *, trace: SpanContext | None) -> None:
        """Take note of what happened before this drive, without making spans of it."""
        self.trace = trace
        for event in past:
            self._note(event)

    def hear(self, event: Event | Delta) -> None:
        """Make the spans that begin or end with this."""
        if type(event) is RunStarted:
            self._note(event)
            self._begin(event.timestamp, event.input)
        elif type(event) is RunResumed:
            self._begin(event.timestamp)
        elif self._is_live and not self._since:
            # Somebody goes on with a stored run and need not say so.
            self._begin(event.timestamp if isinstance(event, Event) else time())
        self.is_completed = type(event) is RunCompleted
        run = self._run
        is_recording = run is not None and run.is_recording()
        # A run that nobody records costs next to nothing; if it is resumed, `recall` reads all of it.
        if self._is_live and not is_recording:
            return
        if isinstance(event, Delta):
            if type(event) in _PIECES and event.origin.id not in self._first:
                self._first[event.origin.id] = time()
            return
        if run is not None and is_recording:
            self._trace(event, run)
            if type(event) in _STATUS:
                self._stop(event, run)
        self._note(event)

    def close(self) -> None:
        """End what is still open: the drive was broken off, and its log does not say why."""
        if self._run is not None:
            self._end(self._run, time() if self._is_live else self._latest)

    def _begin(self, at: float, said: Sequence[Message] = ()) -> None:
        self.close()
        self._since = at
        links = [Link(self.trace)] if self.trace is not None else []
        found = attributes.of_run(self._run_id, self._conversation, self._root, said if self._content else ())
        run = self._run = self._tracer.start_span(
            f"invoke_workflow {self._root}",
            context=None if self._is_live else Context(),
            attributes=found,
            links=links,
            start_time=_nanoseconds(at),
        )
        self.trace = run.get_span_context()
        if self._is_live:
            # What tools trace themselves, such as requests over the network, then belongs to this run.
            self._token = current.attach(set_span_in_context(run))

    def _trace(self, event: Event, run: Span) -> None:
        match event:
            case AgentStarted():
                self._activation(event.origin, run, event.timestamp)
            case AgentResponded():
                self._close_turn(event.origin, run)
                if event.model:
                    self._model_call(event, run)
            case ToolReturned() if not event.requested_agent:
                self._tool_call(event, run)
            case ControlTransferred():
                self._handoff(event, run)
            case InterruptRaised():
                asked = attributes.of_interrupt(event, content=self._content)
                self._activation(event.origin, run, event.timestamp).add_event(
                    "interrupt", asked, _nanoseconds(event.timestamp)
                )
            case InterruptAnswered():
                answered = attributes.of_answer(event.interrupt_id, event.answer, content=self._content)
                run.add_event("answer", answered, _nanoseconds(event.timestamp))
            case StepCompleted() if not event.name.startswith(HOOK_STEP):
                step = {"baton.step.name": event.name}
                self._activation(event.origin, run, event.timestamp).add_event(
                    "step", step, _nanoseconds(event.timestamp)
                )
            case AgentFinished():
                self._close_turn(event.origin, run)
                self._end_inside(event.origin.id, event.timestamp)
                self._activation(event.origin, run, event.timestamp).end(_nanoseconds(event.timestamp))
                self._open.pop(event.origin.id, None)
            case _:
                pass

    def _note(self, event: Event) -> None:
        """Keep in mind what later events are understood by."""
        id, self._latest = event.origin.id, event.timestamp
        match event:
            case RunStarted():
                self._run_id, self._root, self._conversation = (
                    event.run_id,
                    event.root_agent,
                    event.thread or event.run_id,
                )
            case AgentResponded():
                self._first.pop(id, None)
                self._turns[id] = _Turn(event)
                for position, call in enumerate(event.message.tool_calls):
                    self._calls[f"{event.key}.{position}"] = (event, call)
            case ToolReturned():
                self._calls.pop(event.key, None)
                self._forget_inside(event.key)
                if event.requested_agent and id in self._turns:
                    self._turns[id].results[event.call_id] = event
            case ControlTransferred():
                self._turns.pop(id, None)
            case RunFailed():
                for turn in self._turns.values():
                    turn.is_told = True
            case AgentFinished():
                self._turns.pop(id, None)
                self._moments.pop(id, None)
                self._forget_inside(id)
                return
            case _:
                pass
        self._moments[id] = (event.origin, event.timestamp)

    def _activation(self, origin: Origin, run: Span, at: float) -> Span:
        """The span of an activation. If it began in an earlier drive, it has another one in this."""
        if not origin.id:
            return run
        span = self._open.get(origin.id)
        if span is None:
            began = self._since if origin.id in self._moments else at
            span = self._open[origin.id] = self._span(
                f"invoke_agent {origin.agent}",
                self._around(origin.id, run),
                began,
                attributes=attributes.of_activation(self._conversation, origin.agent, origin.id),
            )
        return span

    def _around(self, id: str, run: Span) -> Span:
        """The span in which an activation takes place: of a tool call or an activation around it, else of the run."""
        around = id.rpartition("/")[0]
        while around:
            if around in self._open:
                return self._open[around]
            if around in self._moments:
                return self._activation(self._moments[around][0], run, self._since)
            if around in self._calls:
                return self._begun(around, run)
            around = around.rpartition("/")[0]
        return run

    def _model_call(self, said: AgentResponded, run: Span) -> None:
        parent, began = self._activation(said.origin, run, said.timestamp), self._start_of(said.origin)
        found = attributes.of_model_call(self._conversation, said, content=self._content)
        first = self._first.get(said.origin.id)
        # What a store was waited for with is heard late, together with the whole answer.
        if first is not None and first <= said.timestamp:
            found["gen_ai.response.time_to_first_chunk"] = max(first - began, 0.0)
        span = self._span(f"chat {said.model}", parent, began, kind=SpanKind.CLIENT, attributes=found)
        span.end(_nanoseconds(said.timestamp))

    def _begun(self, key: str, run: Span) -> Span:
        """The span of a call that has no result yet."""
        span = self._open.get(key)
        if span is None:
            said, call = self._calls[key]
            found = attributes.of_tool_call(call, said.agent, content=self._content)
            began = max(said.timestamp, self._since)
            parent = self._activation(said.origin, run, began)
            span = self._open[key] = self._span(f"execute_tool {call.name}", parent, began, attributes=found)
        return span

    def _tool_call(self, returned: ToolReturned, run: Span) -> None:
        if returned.key not in self._calls:
            return
        self._end_inside(returned.key, returned.timestamp)
        span = self._begun(returned.key, run)
        del self._open[returned.key]
        span.set_attributes(attributes.of_tool_result(returned, content=self._content))
        if returned.is_error:
            span.set_status(StatusCode.ERROR)
        span.end(_nanoseconds(returned.timestamp))

    def _handoff(self, transferred: ControlTransferred, run: Span) -> None:
        origin, turn = transferred.origin, self._turns.get(transferred.origin.id)
        requested, began = [transferred.target], self._start_of(origin)
        if turn is not None and transferred.call_id is not None:
            requested, began = turn.requested or requested, max(turn.said.timestamp, self._since)
        found = attributes.of_handoff(transferred.source, requested)
        found |= attributes.of_transfer(transferred, content=self._content)
        name = f"handoff {transferred.source} to {transferred.target}"
        parent = self._activation(origin, run, transferred.timestamp)
        self._span(name, parent, began, attributes=found).end(_nanoseconds(transferred.timestamp))

    def _close_turn(self, origin: Origin, run: Span) -> None:
        """Tell of transfers that a response asked for and that did not come about: lost, declined or refused."""
        turn = self._turns.get(origin.id)
        if turn is None or turn.is_told or not turn.requested:
            return
        turn.is_told = True
        found = attributes.of_handoff(origin.agent, turn.requested) | {"error.type": "not_followed"}
        began = max(turn.said.timestamp, self._since)
        parent = self._activation(origin, run, began)
        span = self._span(f"handoff {origin.agent}", parent, began, attributes=found)
        span.set_status(StatusCode.ERROR)
        span.end(_nanoseconds(max(result.timestamp for result in turn.results.values())))

    def _stop(self, event: Event, run: Span) -> None:
        run.set_attribute("baton.run.status", _STATUS[type(event)])
        if isinstance(event, RunFailed):
            for origin, _ in [*self._moments.values()]:
                self._close_turn(origin, run)
            for span in (run, *self._open.values()):
                span.set_attribute("error.type", event.error_type)
                span.set_status(StatusCode.ERROR, event.message)
            exception = {"exception.type": event.error_type, "exception.message": event.message}
            run.add_event("exception", exception, _nanoseconds(event.timestamp))
        self._end(run, event.timestamp)

    def _end(self, run: Span, at: float) -> None:
        for span in (*reversed(self._open.values()), run):
            span.end(_nanoseconds(at))
        self._open.clear()
        self._run = None
        if self._token is not None:
            current.detach(self._token)
            self._token = None

    def _end_inside(self, key: str, at: float) -> None:
        """End what was left inside: an agent that failed or was stopped there has not finished."""
        inside = f"{key}/"
        for id in [id for id in reversed(self._open) if id.startswith(inside)]:
            span = self._open.pop(id)
            span.set_attribute("baton.unfinished", True)
            span.end(_nanoseconds(at))

    def _forget_inside(self, key: str) -> None:
        inside = f"{key}/"
        for kept in (self._moments, self._turns, self._calls):
            for id in [id for id in kept if id.startswith(inside)]:
                del kept[id]

    def _start_of(self, origin: Origin) -> float:
        """When what ends now in this activation began: after what happened in it before, and in this drive."""
        known = self._moments.get(origin.id)
        return max(known[1], self._since) if known is not None else self._since

    def _span(self, name: str, parent: Span, began: float, **options: Any) -> Span:
        context = set_span_in_context(parent, Context())
        return self._tracer.start_span(name, context=context, start_time=_nanoseconds(began), **options)


class _Turn:
    """One response, and the results of those of its calls that asked for transfers."""

    __slots__ = ("is_told", "results", "said")

    def __init__(self, said: AgentResponded) -> None:
        self.said = said
        self.results: dict[str, ToolReturned] = {}
        self.is_told = False

    @property
    def requested(self) -> list[str]:
        """The targets it asked for, in the order of its calls."""
        return [
            self.results[call.id].requested_agent for call in self.said.message.tool_calls if call.id in self.results
        ]


def _nanoseconds(at: float) -> int:
    return int(at * 1_000_000_000)
