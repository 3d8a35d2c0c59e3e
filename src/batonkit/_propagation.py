"""W3C trace context in the headers of requests, if the program uses OpenTelemetry.

OpenTelemetry is never imported for it: without it there is no trace to continue.
"""

import sys
from collections.abc import Generator, Mapping, MutableMapping
from contextlib import contextmanager, suppress


def inject_trace(headers: MutableMapping[str, str]) -> None:
    """Add the trace context of the current span, if there is one, to headers."""
    if "opentelemetry.trace" in sys.modules:
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        TraceContextTextMapPropagator().inject(headers)


@contextmanager
def remote_parent(headers: Mapping[str, str]) -> Generator[None]:
    """Make the span that a request belongs to current, unless there is a current span."""
    if "traceparent" not in headers or "opentelemetry.trace" not in sys.modules:
        yield
        return
    from opentelemetry import context, trace
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    if trace.get_current_span().get_span_context().is_valid:
        yield
        return
    token = context.attach(TraceContextTextMapPropagator().extract(headers))
    try:
        yield
    finally:
        # An abandoned response is closed in another context, which was not changed.
        with suppress(ValueError):
            token.var.reset(token)
