"""The spans of a run that is driven now.

Activations, model calls and tool calls open their spans where they run, so that spans of user code are inside them. The
span of an activation or a tool call ends with its event, which a store may deliver later than the code goes on.
"""

from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Mapping, Sequence
from time import time
from types import TracebackType
from typing import TYPE_CHECKING, Any, cast

from msgspec.structs import replace
from opentelemetry import context as current
from opentelemetry.trace import Link, Span, SpanContext, SpanKind, StatusCode, Tracer, get_current_span
from opentelemetry.trace import set_span_in_context as with_span
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from .._wording import error_text
from ..context import RunContext
from ..context.run_state import RunState
from ..log import AgentResponded, AgentStarted, AnyEvent, Delta, Event, Origin, RunResumed, RunStarted, keys
from ..messages import Message, Usage
from ..models import Chunk, CompleteResponse, Model, ModelRequest, ModelResponse
from ..runs.stream import STATUS_BY_EVENT
from ..tools import Tool, ToolResult
from . import attributes
from .attributes import ContentPolicy, RunIdentity, present
from .metrics import Metrics
from .spans import OpenSpan, RunSpanBuilder, to_nanoseconds

if TYPE_CHECKING:
    from contextvars import Token

_propagator = TraceContextTextMapPropagator()


def to_traceparent(span: SpanContext) -> str:
    """Return the W3C trace context of a span; "" if it has none."""
    if not span.is_valid:
        return ""
    return f"00-{span.trace_id:032x}-{span.span_id:016x}-{span.trace_flags:02x}"


def parse_traceparent(traceparent: str) -> SpanContext | None:
    """Return the span that a W3C trace context names; None if there is none."""
    if not traceparent:
        return None
    context = _propagator.extract({"traceparent": traceparent}, context=current.Context())
    found = get_current_span(context).get_span_context()
    return found if found.is_valid else None


def _input_of_drive(past: Sequence[Event], started: RunStarted | None) -> Sequence[Message]:
    """Return the input of a run in its first drive, also if another process has started it."""
    if started is not None:
        return started.input
    if any(isinstance(event, AgentStarted) for event in past):
        return ()
    return next((event.input for event in past if isinstance(event, RunStarted)), ())


class _CurrentSpan:
    """A span that is current in the task that made it so."""

    __slots__ = ("_token",)

    def __init__(self, span: Span) -> None:
        self._token: Token[Any] | None = cast("Token[Any]", current.attach(with_span(span)))

    def leave(self) -> None:
        """Make the span before it current again."""
        token = self._token
        self._token = None
        if token is not None:
            try:
                token.var.reset(token)
            except ValueError:
                # The event loop was closed, and this code is closed by another context, which it has not changed.
                return


class TracedActivation(_CurrentSpan):
    """The span of an activation, while it is current; an `ActivationSpan`."""

    __slots__ = ("_opened", "_run")

    def __init__(self, run: "LiveRun", opened: OpenSpan) -> None:
        super().__init__(opened.span)
        self._run = run
        self._opened = opened

    def __enter__(self) -> None:
        """Enter the block; the span is current already."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Make the span current no more; its `AgentFinished` event or the end of the run ends it."""
        self.leave()
        self._opened.left_at = time()
        if isinstance(error, Exception):
            self._opened.fail(type(error).__name__, self._run.error_text(error))


class LiveModelCall(_CurrentSpan):
    """The span of a model call, while it is current; a `ModelCallSpan`."""

    __slots__ = ("_first_chunk", "_found", "_is_streamed", "_model", "_run", "_span", "_start")

    def __init__(self, run: "LiveRun", span: Span, model: str, found: Mapping[str, Any], start: float) -> None:
        super().__init__(span)
        self._run = run
        self._span = span
        self._model = model
        self._found = found
        self._start = start
        self._is_streamed = "gen_ai.request.stream" in found
        self._first_chunk: float | None = None

    def watch(self, stream: AsyncIterable[Chunk]) -> AsyncIterable[Chunk]:
        """Return the response, which measures when its first chunk arrives."""
        return self._watch(stream) if self._is_streamed and type(stream) is not CompleteResponse else stream

    async def _watch(self, stream: AsyncIterable[Chunk]) -> AsyncIterator[Chunk]:
        try:
            async for chunk in stream:
                if self._first_chunk is None:
                    self._first_chunk = time() - self._start
                yield chunk
        finally:
            close = getattr(stream, "aclose", None)
            if close is not None:
                await close()

    def end(self, response: ModelResponse) -> None:
        """End the span of a call that succeeded."""
        self.leave()
        found = attributes.response_attributes(response, self._model, self._run.content)
        found["gen_ai.response.time_to_first_chunk"] = self._first_chunk
        self._finish(present(found), response.usage)

    def fail(self, error: BaseException) -> None:
        """End the span of a call that failed."""
        self.leave()
        self._span.set_status(StatusCode.ERROR, self._run.error_text(error))
        self._finish({"error.type": type(error).__name__}, None)

    def _finish(self, found: Mapping[str, Any], usage: Usage | None) -> None:
        now = time()
        self._span.set_attributes(found)
        self._span.end(to_nanoseconds(now))
        if self._run.metrics is not None:
            self._run.metrics.model_call({**self._found, **found}, now - self._start, usage, self._first_chunk)


class LiveRun(RunSpanBuilder):
    """The spans of one run, while it is driven; a `RunTrace`."""

    def __init__(
        self,
        tracer: Tracer,
        content: ContentPolicy,
        metrics: Metrics | None,
        run: RunState[Any],
        first_events: Sequence[Event],
    ) -> None:
        super().__init__(tracer, content, metrics)
        self.metrics = metrics
        self._log = run.log
        self._is_realtime = run.live is not None
        self._stopped: Event | None = None
        self._open_interrupts = len(run.log.open_interrupts()) if run.log.has_past else 0
        started = first_events[0] if first_events and type(first_events[0]) is RunStarted else None
        resumed = next((event for event in first_events if type(event) is RunResumed), None)
        past = [*run.log.events]
        for event in past:
            self._record(event)
        if started is not None:
            self._identity = RunIdentity.of(started)
        first = started or resumed
        self._drive_start = first.timestamp if first is not None else time()
        span = self._open_run(past, started)
        if not span.is_recording():
            self._content = ContentPolicy(is_on=False, redact=None)
        self.content = self._content
        self._current = _CurrentSpan(span)
        traceparent = to_traceparent(span.get_span_context())
        self.first_events: Sequence[Event] = [
            replace(event, traceparent=traceparent) if event is started or event is resumed else event
            for event in first_events
        ]
        if metrics is not None:
            metrics.runs(1)

    def _open_run(self, past: Sequence[Event], started: RunStarted | None) -> Span:
        recorded = [event.traceparent for event in past if isinstance(event, RunStarted | RunResumed)]
        before = parse_traceparent(next(filter(None, reversed(recorded)), ""))
        parent = get_current_span().get_span_context()
        links = [Link(before)] if before is not None and before.span_id != parent.span_id else []
        found = attributes.run_attributes(self._identity, _input_of_drive(past, started), self._content)
        name = f"invoke_workflow {self._identity.root}"
        start = to_nanoseconds(self._drive_start)
        span = self._tracer.start_span(name, attributes=present(found), links=links, start_time=start)
        self._run = OpenSpan(span, "invoke_workflow", self._identity.root, self._drive_start)
        return span

    def start_activation(self, ctx: RunContext[Any], agent: Any) -> TracedActivation | None:
        """Open the span of an activation and make it current.

        Returns:
            The span; None if the log has the whole activation already.
        """
        origin = ctx._origin
        now = time()
        if self._log.has_past and self._log.has(keys.end(origin.id)):
            return None
        found = attributes.activation_attributes(self._identity, origin.agent, origin.id, agent.description)
        span = self._start(f"invoke_agent {origin.agent}", present(found), now)
        self._has_nested = self._has_nested or keys.is_nested(origin.id)
        opened = self._open[origin.id] = OpenSpan(span, "invoke_agent", origin.agent, now)
        return TracedActivation(self, opened)

    def start_model_call(self, ctx: RunContext[Any], model: Model, request: ModelRequest) -> LiveModelCall:
        """Open the span of a model call and make it current."""
        now = time()
        agent = self._open.get(ctx._origin.id)
        found = attributes.request_attributes(self._identity, ctx.agent, model.name, request, self._content)
        shown = present(found)
        span = self._start(f"chat {found['gen_ai.request.model']}", shown, now, SpanKind.CLIENT)
        if agent is not None and agent.model != model.name:
            agent.model = model.name
            agent.span.set_attributes({name: shown[name] for name in ("gen_ai.provider.name", "gen_ai.request.model")})
        return LiveModelCall(self, span, model.name, shown, now)

    async def tool_call(self, ctx: RunContext[Any], tool: Tool, work: Awaitable[ToolResult]) -> ToolResult:
        """Await a tool call inside its span.

        Returns:
            The result of the call.
        """
        call = ctx.tool_call
        now = time()
        assert call is not None
        description = tool.spec.description
        found = attributes.tool_call_attributes(self._identity, call, ctx.agent, self._content, description)
        span = self._start(f"execute_tool {call.name}", present(found), now)
        opened = self._open[ctx._scope] = OpenSpan(span, "execute_tool", call.name, now)
        here = _CurrentSpan(span)
        try:
            return await work
        except Exception as error:
            # The event says whether the model reads it; if not, it ends the run.
            opened.error = type(error).__name__
            raise
        finally:
            here.leave()
            opened.left_at = time()

    def handle(self, event: Event | Delta) -> None:
        """Create or end the spans that an event concerns."""
        run = self._run
        if run is None or isinstance(event, Delta):
            return
        self._trace(cast("AnyEvent", event), run)
        if type(event) in STATUS_BY_EVENT:
            self._stopped = event
        self._record(event)

    def end(self, output: Any) -> None:
        """End all spans of the run, which has stopped."""
        self._current.leave()
        run = self._run
        stopped = self._stopped
        if run is None:
            return
        run.span.set_attributes(present(attributes.output_attributes(output, self._content)))
        if stopped is not None:
            self._stop(stopped, run)
        else:
            self._end(run, time())
        if self.metrics is not None:
            self.metrics.runs(-1)
            self.metrics.interrupts(len(self._log.open_interrupts()) - self._open_interrupts)

    def error_text(self, error: BaseException) -> str:
        """Return the message of an exception; "" if content is not recorded, which it may quote."""
        return self._content.get("exception.message", lambda: error_text(error)) or ""

    def _activation(self, origin: Origin, run: OpenSpan, timestamp: float) -> OpenSpan:
        """Return the open span that an event of an activation belongs to; events open none."""
        for id in (origin.id, *keys.ancestors(origin.id)):
            if id in self._open:
                return self._open[id]
        return run

    def _model_call(self, response: AgentResponded, run: OpenSpan) -> None:
        # The model calls of other runs have their spans already.
        if self._is_realtime:
            super()._model_call(response, run)

    def _start(self, name: str, found: Any, start: float, kind: SpanKind = SpanKind.INTERNAL) -> Span:
        return self._tracer.start_span(name, kind=kind, attributes=found, start_time=to_nanoseconds(start))
