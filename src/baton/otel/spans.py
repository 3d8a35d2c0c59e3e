"""Builds spans from the events of a run: run, activations, model calls, tool calls and handoffs.

The log records when something ended. When it started follows from the events before: a model call starts after the last
event of its activation; tool calls and handoffs start at the response that requests them. Nothing starts before the
drive, so the time in which the run was stopped is in no span.
"""

from collections.abc import Callable, Iterable, Sequence
from time import time
from typing import Any, TypeVar, assert_never, cast

from opentelemetry import context as current
from opentelemetry.context import Context
from opentelemetry.trace import (
    Link,
    Span,
    SpanContext,
    SpanKind,
    StatusCode,
    Tracer,
    get_current_span,
    set_span_in_context,
)

from .. import events
from ..agents.hooks import HOOK_STEP
from ..events import AnyEvent, Delta, Event, Origin
from ..messages import Message, ToolCall
from . import attributes
from .attributes import Attributes, present

F = TypeVar("F", bound=Callable[..., Any])
_STATUS: dict[type[Event], str] = {
    events.RunCompleted: "completed",
    events.RunSuspended: "suspended",
    events.RunFailed: "failed",
    events.RunCancelled: "cancelled",
}
_CONTENT_DELTAS = (events.TextDelta, events.ReasoningDelta, events.ToolCallDelta)


class RunSpanBuilder:
    """Builds the spans of one run while its events arrive; each drive has its own root span.

    Args:
        tracer: Creates the spans.
        include_content: Put messages, tool arguments and tool results on the spans.
        is_live: The events happen now: use the current context as parent, and as context for tools.
    """

    def __init__(self, tracer: Tracer, *, include_content: bool, is_live: bool = True) -> None:
        self._tracer = tracer
        self._include_content = include_content
        self._is_live = is_live
        self.trace: SpanContext | None = None
        """The context of the latest drive's span."""
        self.is_completed = False
        self._run_id = ""
        self._root = ""
        self._conversation = ""
        """The thread's id, or the run's without a thread."""
        self._run: Span | None = None
        self._parent = current.get_current() if is_live else Context()
        """The context of the run's span."""
        self._current = _CurrentSpan()
        self._token: Any = None
        self._drive_start = 0.0
        """The start of this drive."""
        self._latest = 0.0
        """The time of the latest event."""
        self._open: dict[str, Span] = {}
        """Open spans: of activations by id, of tool calls by key."""
        self._activations: dict[str, tuple[Origin, float]] = {}
        """Active activations by id, with the time of their latest event."""
        self._turns: dict[str, _Turn] = {}
        """The latest response of each activation."""
        self._calls: dict[str, tuple[events.AgentResponded, ToolCall]] = {}
        """Calls without a result, by key."""
        self._first_delta: dict[str, float] = {}
        """The time of the first delta of an unfinished response, by activation."""

    def enter(self, past: Iterable[Event], *, trace: SpanContext | None) -> None:
        """Read the events before this drive without creating spans, and make the run's span current.

        The task that drives the run must call it, and `close`: events are delivered by other tasks as well, and a
        context can only be detached where it was attached.
        """
        self.trace = trace
        for event in past:
            self._record(event)
        self._token = current.attach(set_span_in_context(self._current, self._parent))

    def handle(self, event: Event | Delta) -> None:
        """Create or end the spans that an event concerns."""
        if type(event) is events.RunStarted:
            self._record(event)
            self._begin(event.timestamp, event.input)
        elif type(event) is events.RunResumed:
            self._begin(event.timestamp)
        elif self._is_live and not self._drive_start:
            # A stored run can be driven without an event that says so.
            self._begin(event.timestamp if isinstance(event, Event) else time())
        self.is_completed = type(event) is events.RunCompleted
        run = self._run
        is_recording = run is not None and run.is_recording()
        # An unsampled run costs next to nothing; if it is resumed, `enter` reads its log.
        if self._is_live and not is_recording:
            return
        if isinstance(event, Delta):
            if type(event) in _CONTENT_DELTAS and event.origin.id not in self._first_delta:
                self._first_delta[event.origin.id] = time()
            return
        if run is not None and is_recording:
            self._trace(cast("AnyEvent", event), run)
            if type(event) in _STATUS:
                self._stop(event, run)
        self._record(event)

    def close(self) -> None:
        """End the spans that are still open, and detach the context."""
        self._abort()
        if self._token is not None:
            current.detach(self._token)
            self._token = None

    def _abort(self) -> None:
        if self._run is not None:
            self._end(self._run, time() if self._is_live else self._latest)

    def _begin(self, timestamp: float, messages: Sequence[Message] = ()) -> None:
        self._abort()
        self._drive_start = timestamp
        included = messages if self._include_content else ()
        run = self._run = self._tracer.start_span(
            f"invoke_workflow {self._root}",
            context=self._parent,
            attributes=present(attributes.run_attributes(self._run_id, self._conversation, self._root, included)),
            links=[Link(self.trace)] if self.trace is not None else [],
            start_time=_nanoseconds(timestamp),
        )
        self.trace = run.get_span_context()
        # Spans that tools create, such as HTTP requests, become part of this run.
        self._current.actual = run

    def _trace(self, event: AnyEvent, run: Span) -> None:
        end = _nanoseconds(event.timestamp)
        match event:
            case events.AgentStarted():
                self._activation(event.origin, run, event.timestamp)
            case events.AgentResponded():
                self._close_turn(event.origin, run)
                if event.model:
                    self._model_call(event, run)
            case events.ToolReturned() if not event.requested_agent:
                self._tool_call(event, run)
            case events.ControlTransferred():
                self._handoff(event, run)
            case events.TaskOpened() | events.TaskEnded():
                task = attributes.task_attributes(event, include_content=self._include_content)
                name = "task opened" if isinstance(event, events.TaskOpened) else "task ended"
                self._activation(event.origin, run, event.timestamp).add_event(name, present(task), end)
            case events.InterruptRaised():
                interrupt = attributes.interrupt_attributes(event, include_content=self._include_content)
                self._activation(event.origin, run, event.timestamp).add_event("interrupt", present(interrupt), end)
            case events.InterruptAnswered():
                answer = attributes.answer_attributes(event, include_content=self._include_content)
                run.add_event("answer", present(answer), end)
            case events.StepCompleted() if not event.name.startswith(HOOK_STEP):
                step = {"baton.step.name": event.name}
                self._activation(event.origin, run, event.timestamp).add_event("step", step, end)
            case events.HistoryCompacted():
                compaction = attributes.compaction_attributes(event, include_content=self._include_content)
                self._activation(event.origin, run, event.timestamp).add_event("compaction", present(compaction), end)
            case events.AgentFinished():
                self._close_turn(event.origin, run)
                self._end_inside(event.origin.id, event.timestamp)
                self._activation(event.origin, run, event.timestamp).end(end)
                self._open.pop(event.origin.id, None)
            case events.UserMessageAdded() if event.message_id:
                message = {"baton.message.id": event.message_id}
                self._activation(event.origin, run, event.timestamp).add_event("user_message", message, end)
            case events.RunStarted() | events.RunResumed() | events.UserMessageAdded() | events.ResponseTruncated():
                pass
            case events.RunCompleted() | events.RunSuspended() | events.RunFailed() | events.RunCancelled():
                pass
            case events.ToolReturned() | events.StepCompleted() | events.UnknownEvent():
                pass
            case _:
                assert_never(event)

    def _record(self, event: Event) -> None:
        """Record what later events refer to."""
        id, self._latest = event.origin.id, event.timestamp
        match event:
            case events.RunStarted():
                self._run_id, self._root = event.run_id, event.root_agent
                self._conversation = event.thread or event.run_id
            case events.AgentResponded():
                self._first_delta.pop(id, None)
                self._turns[id] = _Turn(event)
                for position, call in enumerate(event.message.tool_calls):
                    self._calls[f"{event.key}.{position}"] = (event, call)
            case events.ToolReturned():
                self._calls.pop(event.key, None)
                self._forget_inside(event.key)
                if event.requested_agent and id in self._turns:
                    self._turns[id].results[event.call_id] = event
            case events.ControlTransferred():
                self._turns.pop(id, None)
            case events.RunFailed():
                for turn in self._turns.values():
                    turn.is_reported = True
            case events.AgentFinished():
                self._turns.pop(id, None)
                self._activations.pop(id, None)
                self._forget_inside(id)
                return
            case _:
                pass
        self._activations[id] = (event.origin, event.timestamp)

    def _activation(self, origin: Origin, run: Span, timestamp: float) -> Span:
        """Return the span of an activation; each drive has its own."""
        if not origin.id:
            return run
        span = self._open.get(origin.id)
        if span is None:
            start = self._drive_start if origin.id in self._activations else timestamp
            found = attributes.activation_attributes(self._conversation, origin.agent, origin.id)
            parent = self._enclosing(origin.id, run)
            span = self._open[origin.id] = self._span(f"invoke_agent {origin.agent}", parent, start, found)
        return span

    def _enclosing(self, id: str, run: Span) -> Span:
        """Return the enclosing span: of a tool call, an activation, or the run."""
        enclosing = id.rpartition("/")[0]
        while enclosing:
            if enclosing in self._open:
                return self._open[enclosing]
            if enclosing in self._activations:
                return self._activation(self._activations[enclosing][0], run, self._drive_start)
            if enclosing in self._calls:
                return self._call_span(enclosing, run)
            enclosing = enclosing.rpartition("/")[0]
        return run

    def _model_call(self, response: events.AgentResponded, run: Span) -> None:
        parent, start = self._activation(response.origin, run, response.timestamp), self._start_time(response.origin)
        found = attributes.model_call_attributes(self._conversation, response, include_content=self._include_content)
        first = self._first_delta.get(response.origin.id)
        # Deltas delayed by a slow store arrive together with the complete response.
        if first is not None and first <= response.timestamp:
            found["gen_ai.response.time_to_first_chunk"] = max(first - start, 0.0)
        span = self._span(f"chat {response.model}", parent, start, found, SpanKind.CLIENT)
        span.end(_nanoseconds(response.timestamp))

    def _call_span(self, key: str, run: Span) -> Span:
        """Return the span of a call without a result."""
        span = self._open.get(key)
        if span is None:
            response, call = self._calls[key]
            found = attributes.tool_call_attributes(call, response.agent, include_content=self._include_content)
            start = max(response.timestamp, self._drive_start)
            parent = self._activation(response.origin, run, start)
            span = self._open[key] = self._span(f"execute_tool {call.name}", parent, start, found)
        return span

    def _tool_call(self, returned: events.ToolReturned, run: Span) -> None:
        if returned.key not in self._calls:
            return
        self._end_inside(returned.key, returned.timestamp)
        span = self._call_span(returned.key, run)
        del self._open[returned.key]
        found = attributes.tool_result_attributes(returned, include_content=self._include_content)
        span.set_attributes(present(found))
        if returned.is_error:
            span.set_status(StatusCode.ERROR)
        span.end(_nanoseconds(returned.timestamp))

    def _handoff(self, transferred: events.ControlTransferred, run: Span) -> None:
        origin, turn = transferred.origin, self._turns.get(transferred.origin.id)
        requested, start = [transferred.target], self._start_time(origin)
        if turn is not None and transferred.call_id is not None:
            requested, start = turn.requested or requested, max(turn.response.timestamp, self._drive_start)
        found = attributes.handoff_attributes(transferred.source, requested)
        found |= attributes.transfer_attributes(transferred, include_content=self._include_content)
        name = f"handoff {transferred.source} to {transferred.target}"
        parent = self._activation(origin, run, transferred.timestamp)
        self._span(name, parent, start, found).end(_nanoseconds(transferred.timestamp))

    def _close_turn(self, origin: Origin, run: Span) -> None:
        """Report requested transfers that were not followed: superseded, declined or refused."""
        turn = self._turns.get(origin.id)
        if turn is None or turn.is_reported or not turn.requested:
            return
        turn.is_reported = True
        found = attributes.handoff_attributes(origin.agent, turn.requested) | {"error.type": "not_followed"}
        start = max(turn.response.timestamp, self._drive_start)
        parent = self._activation(origin, run, start)
        span = self._span(f"handoff {origin.agent}", parent, start, found)
        span.set_status(StatusCode.ERROR)
        span.end(_nanoseconds(max(result.timestamp for result in turn.results.values())))

    def _stop(self, event: Event, run: Span) -> None:
        run.set_attribute("baton.run.status", _STATUS[type(event)])
        if isinstance(event, events.RunFailed):
            for origin, _ in [*self._activations.values()]:
                self._close_turn(origin, run)
            for span in (run, *self._open.values()):
                span.set_attribute("error.type", event.error_type)
                span.set_status(StatusCode.ERROR, event.message)
            exception = {"exception.type": event.error_type, "exception.message": event.message}
            run.add_event("exception", exception, _nanoseconds(event.timestamp))
        self._end(run, event.timestamp)

    def _end(self, run: Span, timestamp: float) -> None:
        for span in (*reversed(self._open.values()), run):
            span.end(_nanoseconds(timestamp))
        self._open.clear()
        self._run = None
        self._current.reset()

    def _end_inside(self, key: str, timestamp: float) -> None:
        """End spans left open inside: an agent that failed or was cancelled does not finish."""
        prefix = f"{key}/"
        for id in [id for id in reversed(self._open) if id.startswith(prefix)]:
            span = self._open.pop(id)
            span.set_attribute("baton.unfinished", True)
            span.end(_nanoseconds(timestamp))

    def _forget_inside(self, key: str) -> None:
        prefix = f"{key}/"
        for entries in (self._activations, self._turns, self._calls):
            for id in [id for id in entries if id.startswith(prefix)]:
                del entries[id]

    def _start_time(self, origin: Origin) -> float:
        """Return the start of what ends now: the activation's latest event, within this drive."""
        latest = self._activations.get(origin.id)
        return max(latest[1], self._drive_start) if latest is not None else self._drive_start

    def _span(
        self, name: str, parent: Span, start: float, found: Attributes, kind: SpanKind = SpanKind.INTERNAL
    ) -> Span:
        context = set_span_in_context(parent, Context())
        return self._tracer.start_span(name, context, kind, present(found), start_time=_nanoseconds(start))


def _forward(method: F) -> F:
    """Make a method that calls the same method of the actual span."""

    def call(span: "_CurrentSpan", *args: Any, **kwargs: Any) -> Any:
        return getattr(span.actual, method.__name__)(*args, **kwargs)

    return cast("F", call)


class _CurrentSpan(Span):
    """A stand-in for the run's span, which is current while the run is driven.

    The span starts with the first event. With a store, another task delivers that event, and a task can change the
    current span only for itself.
    """

    def __init__(self) -> None:
        self._outer = self.actual = get_current_span()

    def reset(self) -> None:
        """Stand for the span that was current before the run."""
        self.actual = self._outer

    end = _forward(Span.end)
    get_span_context = _forward(Span.get_span_context)
    set_attributes = _forward(Span.set_attributes)
    set_attribute = _forward(Span.set_attribute)
    add_event = _forward(Span.add_event)
    add_link = _forward(Span.add_link)
    update_name = _forward(Span.update_name)
    is_recording = _forward(Span.is_recording)
    set_status = _forward(Span.set_status)
    record_exception = _forward(Span.record_exception)


class _Turn:
    """A response, and the results of its calls that requested transfers."""

    __slots__ = ("is_reported", "response", "results")

    def __init__(self, response: events.AgentResponded) -> None:
        self.response = response
        self.results: dict[str, events.ToolReturned] = {}
        self.is_reported = False

    @property
    def requested(self) -> list[str]:
        """The requested targets, in the order of the calls."""
        results = [self.results.get(call.id) for call in self.response.message.tool_calls]
        return [result.requested_agent for result in results if result is not None]


def _nanoseconds(timestamp: float) -> int:
    return int(timestamp * 1_000_000_000)
