"""Builds spans from the events of a run: run, activations, model calls, tool calls and handoffs.

The log records when something ended. When it started follows from the events before: a model call starts after the last
event of its activation; tool calls and handoffs start at the response that requests them. Nothing starts before the
drive, so the time in which the run was stopped is in no span. `live` opens the spans of a run that is driven now.
"""

from collections.abc import Sequence
from typing import assert_never, cast

from msgspec import Struct
from opentelemetry.context import Context
from opentelemetry.trace import Link, Span, SpanContext, SpanKind, StatusCode, Tracer, set_span_in_context

from .. import log as events
from ..log import AnyEvent, Event, Origin, keys
from ..messages import Message, ToolCall, Usage
from ..runs.stream import STATUS_BY_EVENT
from . import attributes
from .attributes import Attributes, ContentPolicy, RunIdentity, present
from .metrics import Metrics


class OpenSpan(Struct):
    """A span that has not ended."""

    span: Span
    operation: str
    """The kind of the span, as in `gen_ai.operation.name`."""
    name: str
    """The name of the agent, tool or root agent."""
    start: float
    left_at: float | None = None
    """The time at which its code ended; it stays open until its last event has arrived."""
    error: str = ""
    """The class of the exception that stopped it."""
    usage: Usage | None = None
    """The usage of the model calls inside it."""
    model: str = ""
    """The model that an agent called last."""

    def add_event(self, name: str, found: Attributes, timestamp: float) -> None:
        """Add an event to the span."""
        self.span.add_event(name, present(found), to_nanoseconds(timestamp))

    def fail(self, error_type: str, message: str = "") -> None:
        """Mark the span as failed."""
        self.error = error_type
        self.span.set_attribute("error.type", error_type)
        self.span.set_status(StatusCode.ERROR, message)


class RunSpanBuilder:
    """Builds the spans of a run from its log, with the recorded times.

    Each drive has its own root span.
    """

    def __init__(self, tracer: Tracer, content: ContentPolicy, metrics: Metrics | None = None) -> None:
        self._tracer = tracer
        self._content = content
        self._metrics = metrics
        self._identity = RunIdentity()
        self._run: OpenSpan | None = None
        self._previous: SpanContext | None = None
        """The root span of the drive before."""
        self._drive_start = 0.0
        """The start of this drive."""
        self._latest = 0.0
        """The time of the latest event."""
        self._open: dict[str, OpenSpan] = {}
        """Open spans: of activations by id, of tool calls by key."""
        self._activations: dict[str, tuple[Origin, float]] = {}
        """Active activations by id, with the time of their latest event."""
        self._has_nested = False
        """True once an activation was nested in another one, or in a tool call."""
        self._turns: dict[str, _Turn] = {}
        """The latest response of each activation."""
        self._calls: dict[str, tuple[events.AgentResponded, ToolCall]] = {}
        """Calls without a result, by key."""

    def export(self, event: Event) -> None:
        """Create or end the spans that the next event of the log concerns."""
        if type(event) is events.RunStarted:
            self._record(event)
            self._begin(event.timestamp, event.input)
        elif type(event) is events.RunResumed:
            self._begin(event.timestamp)
        if self._run is not None:
            self._trace(cast("AnyEvent", event), self._run)
            if type(event) in STATUS_BY_EVENT:
                self._stop(event, self._run)
        self._record(event)

    def close(self) -> None:
        """End the spans that are still open."""
        if self._run is not None:
            self._end(self._run, self._latest)

    def _begin(self, timestamp: float, messages: Sequence[Message] = ()) -> None:
        self.close()
        self._drive_start = timestamp
        links = [Link(self._previous)] if self._previous is not None else []
        span = self._tracer.start_span(
            f"invoke_workflow {self._identity.root}",
            context=Context(),
            attributes=present(attributes.run_attributes(self._identity, messages, self._content)),
            links=links,
            start_time=to_nanoseconds(timestamp),
        )
        self._run = OpenSpan(span, "invoke_workflow", self._identity.root, timestamp)
        self._previous = span.get_span_context()

    def _trace(self, event: AnyEvent, run: OpenSpan) -> None:  # noqa: C901
        now = event.timestamp
        match event:
            case events.AgentStarted():
                self._activation(event.origin, run, event.timestamp)
            case events.AgentResponded():
                self._close_turn(event.origin, run)
                if event.model:
                    self._add_usage(event.origin.id, event.usage, run)
                    self._model_call(event, run)
            case events.ToolReturned() if not event.requested_agent or event.key in self._open:
                self._tool_call(event, run)
            case events.ControlTransferred():
                self._handoff(event, run)
            case events.TaskOpened() | events.TaskEnded():
                task = attributes.task_attributes(event, self._content)
                name = "task opened" if isinstance(event, events.TaskOpened) else "task ended"
                self._activation(event.origin, run, event.timestamp).add_event(name, task, now)
            case events.InterruptRaised():
                interrupt = attributes.interrupt_attributes(event, self._content)
                self._activation(event.origin, run, event.timestamp).add_event("interrupt", interrupt, now)
            case events.InterruptAnswered():
                answer = attributes.answer_attributes(event, self._content)
                run.add_event("answer", answer, now)
            case events.StepCompleted() if not event.name.startswith(keys.HOOK):
                step: Attributes = {"baton.step.name": event.name}
                self._activation(event.origin, run, event.timestamp).add_event("step", step, now)
            case events.HistoryCompacted():
                compaction = attributes.compaction_attributes(event, self._content)
                self._add_usage(event.origin.id, event.usage, run)
                self._activation(event.origin, run, event.timestamp).add_event("compaction", compaction, now)
            case events.AgentFinished():
                self._close_turn(event.origin, run)
                self._end_inside(event.origin.id, event.timestamp)
                self._activation(event.origin, run, event.timestamp)
                self._finish(event.origin.id, event.timestamp)
            case events.UserMessageAdded() if event.message_id:
                message: Attributes = {"baton.message.id": event.message_id}
                self._activation(event.origin, run, event.timestamp).add_event("user_message", message, now)
            case events.RunStarted() | events.RunResumed() | events.UserMessageAdded() | events.ResponseTruncated():
                pass
            case events.RunFailed():
                for origin, _ in [*self._activations.values()]:
                    self._close_turn(origin, run)
            case events.RunCompleted() | events.RunSuspended() | events.RunCancelled():
                pass
            case events.ToolReturned() | events.StepCompleted() | events.UnknownEvent():
                pass
            case _:
                assert_never(event)

    def _record(self, event: Event) -> None:
        """Record what later events refer to."""
        id = event.origin.id
        self._latest = event.timestamp
        match event:
            case events.RunStarted():
                self._identity = RunIdentity.of(event)
            case events.AgentResponded():
                self._turns[id] = _Turn(event)
                for position, call in enumerate(event.message.tool_calls):
                    self._calls[keys.call(event.key, position)] = (event, call)
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
        if keys.is_nested(id):
            self._has_nested = True

    def _activation(self, origin: Origin, run: OpenSpan, timestamp: float) -> OpenSpan:
        """Return the span of an activation; each drive has its own."""
        if not origin.id:
            return run
        span = self._open.get(origin.id)
        if span is None:
            start = self._drive_start if origin.id in self._activations else timestamp
            found = attributes.activation_attributes(self._identity, origin.agent, origin.id)
            parent = self._enclosing(origin.id, run)
            made = self._span(f"invoke_agent {origin.agent}", parent, start, found)
            span = self._open[origin.id] = OpenSpan(made, "invoke_agent", origin.agent, start)
        return span

    def _enclosing(self, id: str, run: OpenSpan) -> OpenSpan:
        """Return the enclosing span: of a tool call, an activation, or the run."""
        for enclosing in keys.ancestors(id):
            if enclosing in self._open:
                return self._open[enclosing]
            if enclosing in self._activations:
                return self._activation(self._activations[enclosing][0], run, self._drive_start)
            if enclosing in self._calls:
                return self._call_span(enclosing, run)
        return run

    def _model_call(self, response: events.AgentResponded, run: OpenSpan) -> None:
        parent = self._activation(response.origin, run, response.timestamp)
        start = self._start_time(response.origin)
        found = attributes.recorded_response_attributes(self._identity, response, self._content)
        name = f"chat {found['gen_ai.request.model']}"
        self._span(name, parent, start, found, SpanKind.CLIENT).end(to_nanoseconds(response.timestamp))
        if self._metrics is not None:
            self._metrics.model_call(present(found), response.timestamp - start, response.usage)

    def _finish(self, id: str, timestamp: float, *, is_unfinished: bool = False) -> None:
        """End the span of an activation or a tool call."""
        opened = self._open.pop(id, None)
        if opened is not None:
            if is_unfinished:
                opened.span.set_attribute("baton.unfinished", True)
            self._finish_span(opened, timestamp if opened.left_at is None or not is_unfinished else opened.left_at)

    def _finish_span(self, opened: OpenSpan, timestamp: float) -> None:
        if opened.usage is not None:
            opened.span.set_attributes(present(attributes.usage_attributes(opened.usage)))
        opened.span.end(to_nanoseconds(timestamp))
        if self._metrics is not None:
            self._metrics.operation(opened.operation, opened.name, timestamp - opened.start, opened.error)

    def _add_usage(self, id: str, usage: Usage | None, run: OpenSpan) -> None:
        """Add usage to an activation, to what it is nested in, and to the run."""
        if usage is None:
            return
        around = [self._open[each] for each in (id, *keys.ancestors(id)) if each in self._open]
        for opened in (run, *around):
            opened.usage = usage if opened.usage is None else opened.usage + usage

    def _call_span(self, key: str, run: OpenSpan) -> OpenSpan:
        """Return the span of a call without a result."""
        span = self._open.get(key)
        if span is None:
            response, call = self._calls[key]
            found = attributes.tool_call_attributes(self._identity, call, response.agent, self._content)
            start = max(response.timestamp, self._drive_start)
            parent = self._activation(response.origin, run, start)
            made = self._span(f"execute_tool {call.name}", parent, start, found)
            span = self._open[key] = OpenSpan(made, "execute_tool", call.name, start)
        return span

    def _tool_call(self, returned: events.ToolReturned, run: OpenSpan) -> None:
        if returned.key not in self._calls:
            return
        self._end_inside(returned.key, returned.timestamp)
        opened = self._call_span(returned.key, run)
        if self._content.is_on:
            opened.span.set_attributes(present(attributes.tool_result_attributes(returned, self._content)))
        if returned.is_error:
            opened.fail(opened.error or "tool_error")
        self._finish(returned.key, returned.timestamp)

    def _handoff(self, transferred: events.ControlTransferred, run: OpenSpan) -> None:
        origin = transferred.origin
        turn = self._turns.get(origin.id)
        requested = [transferred.target]
        start = self._start_time(origin)
        if turn is not None and transferred.call_id is not None:
            requested = turn.requested or requested
            start = max(turn.response.timestamp, self._drive_start)
        found = attributes.handoff_attributes(self._identity, transferred.source, requested, self._content, transferred)
        name = f"handoff {transferred.source} to {transferred.target}"
        parent = self._activation(origin, run, transferred.timestamp)
        self._span(name, parent, start, found).end(to_nanoseconds(transferred.timestamp))
        if self._metrics is not None:
            self._metrics.handoff(transferred.source, transferred.target, transferred.reason or "followed")

    def _close_turn(self, origin: Origin, run: OpenSpan) -> None:
        """Report requested transfers that were not followed: superseded, declined or refused."""
        turn = self._turns.get(origin.id)
        if turn is None or turn.is_reported or not turn.requested:
            return
        turn.is_reported = True
        found = attributes.handoff_attributes(self._identity, origin.agent, turn.requested, self._content)
        start = max(turn.response.timestamp, self._drive_start)
        parent = self._activation(origin, run, start)
        span = self._span(f"handoff {origin.agent}", parent, start, found)
        span.set_status(StatusCode.ERROR)
        span.end(to_nanoseconds(max(result.timestamp for result in turn.results.values())))
        if self._metrics is not None:
            for target in turn.requested:
                self._metrics.handoff(origin.agent, target, "refused")

    def _stop(self, event: Event, run: OpenSpan) -> None:
        run.span.set_attribute("baton.run.status", STATUS_BY_EVENT[type(event)])
        if isinstance(event, events.RunFailed):
            message = self._content.get("exception.message", lambda: event.message)
            for opened in (run, *self._open.values()):
                opened.fail(opened.error or event.error_type, message or "")
            exception: Attributes = {"exception.type": event.error_type, "exception.message": message}
            run.add_event("exception", exception, event.timestamp)
        self._end(run, event.timestamp)

    def _end(self, run: OpenSpan, timestamp: float) -> None:
        for opened in reversed(self._open.values()):
            self._finish_span(opened, timestamp if opened.left_at is None else opened.left_at)
        self._finish_span(run, timestamp)
        self._open.clear()
        self._run = None

    def _end_inside(self, key: str, timestamp: float) -> None:
        """End spans left open inside: an agent that failed or was cancelled does not finish."""
        if not self._has_nested:
            return
        for id in [id for id in reversed(self._open) if keys.contains(key, id)]:
            self._finish(id, timestamp, is_unfinished=True)

    def _forget_inside(self, key: str) -> None:
        if not self._has_nested:
            return
        for entries in (self._activations, self._turns, self._calls):
            for id in [id for id in entries if keys.contains(key, id)]:
                del entries[id]

    def _start_time(self, origin: Origin) -> float:
        """Return the start of what ends now: the activation's latest event, within this drive."""
        latest = self._activations.get(origin.id)
        return max(latest[1], self._drive_start) if latest is not None else self._drive_start

    def _span(
        self, name: str, parent: OpenSpan, start: float, found: Attributes, kind: SpanKind = SpanKind.INTERNAL
    ) -> Span:
        context = set_span_in_context(parent.span, Context())
        return self._tracer.start_span(name, context, kind, present(found), start_time=to_nanoseconds(start))


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


def to_nanoseconds(timestamp: float) -> int:
    """Return a time in seconds as nanoseconds."""
    return int(timestamp * 1_000_000_000)
