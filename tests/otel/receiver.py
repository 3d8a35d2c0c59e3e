"""An OTLP receiver on loopback: decodes what the real exporter sends over HTTP."""

from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from gzip import decompress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue

from batonkit.otel import OTelObserver


@dataclass(frozen=True)
class ReceivedSpan:
    """A span as it was received."""

    name: str
    id: str
    trace: str
    parent: str
    attributes: dict[str, Any]
    events: list[tuple[str, dict[str, Any]]]
    links: list[tuple[str, str]]
    """The trace and the span of each link."""
    is_error: bool
    start: int
    end: int
    scope: tuple[str, str, str]
    """The name and version of the scope, and its schema URL."""
    service: str


@dataclass(frozen=True)
class ReceivedPoint:
    """One data point of a metric."""

    attributes: dict[str, Any]
    count: int
    """The number of values in a histogram."""
    sum: float
    """The sum of a histogram, or the value of a counter."""
    bounds: list[float]


@dataclass
class Receiver:
    """The spans and metrics that an OTLP receiver got."""

    url: str = ""
    spans: list[ReceivedSpan] = field(default_factory=list[ReceivedSpan])
    metrics: dict[str, list[ReceivedPoint]] = field(default_factory=dict[str, list[ReceivedPoint]])
    """The latest points of each metric."""
    headers: list[dict[str, str]] = field(default_factory=list[dict[str, str]])

    def named(self, name: str) -> ReceivedSpan:
        """Return the only span with this name."""
        (span,) = self.all(name)
        return span

    def all(self, name: str) -> list[ReceivedSpan]:
        """Return the spans with this name, by their start."""
        return sorted([span for span in self.spans if span.name == name], key=lambda span: span.start)

    def tree(self) -> list[str]:
        """Return the names of the spans, each below its parent; "!" marks an error."""
        known = {span.id for span in self.spans}
        tops = [span for span in self._sorted() if span.parent not in known]
        return [line for top in tops for line in self._lines(top, "")]

    def point(self, metric: str, **attributes: Any) -> ReceivedPoint:
        """Return the only point of a metric that has these attributes; dots in names are written as `__`."""
        wanted = {name.replace("__", "."): value for name, value in attributes.items()}
        (point,) = [each for each in self.metrics[metric] if wanted.items() <= each.attributes.items()]
        return point

    def _sorted(self) -> list[ReceivedSpan]:
        return sorted(self.spans, key=lambda span: (span.start, -span.end))

    def _lines(self, span: ReceivedSpan, indent: str) -> list[str]:
        below = [
            line for child in self._sorted() if child.parent == span.id for line in self._lines(child, f"{indent}  ")
        ]
        return [f"{indent}{span.name}{' !' if span.is_error else ''}", *below]

    def take(self, path: str, body: bytes) -> None:
        """Decode a request."""
        if path.endswith("/v1/traces"):
            self._take_spans(ExportTraceServiceRequest.FromString(body))
        else:
            self._take_metrics(ExportMetricsServiceRequest.FromString(body))

    def _take_spans(self, request: ExportTraceServiceRequest) -> None:
        for resource in request.resource_spans:
            service = _attributes(resource.resource.attributes)["service.name"]
            for scoped in resource.scope_spans:
                scope = (scoped.scope.name, scoped.scope.version, scoped.schema_url)
                self.spans += [
                    ReceivedSpan(
                        span.name,
                        span.span_id.hex(),
                        span.trace_id.hex(),
                        span.parent_span_id.hex(),
                        _attributes(span.attributes),
                        [(event.name, _attributes(event.attributes)) for event in span.events],
                        [(link.trace_id.hex(), link.span_id.hex()) for link in span.links],
                        span.status.code == 2,
                        span.start_time_unix_nano,
                        span.end_time_unix_nano,
                        scope,
                        service,
                    )
                    for span in scoped.spans
                ]

    def _take_metrics(self, request: ExportMetricsServiceRequest) -> None:
        for resource in request.resource_metrics:
            for scoped in resource.scope_metrics:
                for metric in scoped.metrics:
                    if metric.WhichOneof("data") == "histogram":
                        points = [
                            ReceivedPoint(_attributes(p.attributes), p.count, p.sum, list(p.explicit_bounds))
                            for p in metric.histogram.data_points
                        ]
                    else:
                        points = [
                            ReceivedPoint(_attributes(p.attributes), 1, p.as_int or p.as_double, [])
                            for p in metric.sum.data_points
                        ]
                    self.metrics[metric.name] = points


@contextmanager
def otlp_receiver() -> Generator[Receiver]:
    """Serve an OTLP receiver on a free port of loopback."""
    received = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            body = decompress(body) if self.headers.get("content-encoding") == "gzip" else body
            received.headers.append({name.lower(): value for name, value in self.headers.items()})
            received.take(self.path, body)
            self.send_response(200)
            self.send_header("content-type", "application/x-protobuf")
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            """Log nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    received.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield received
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextmanager
def exporting(**options: Any) -> Generator[tuple[Receiver, OTelObserver]]:
    """Yield a receiver and an observer that sends to it; call `flush` before reading."""
    with otlp_receiver() as received:
        observer = OTelObserver.to(received.url, **options)
        try:
            yield received, observer
        finally:
            observer.close()


def _attributes(pairs: Iterable[KeyValue]) -> dict[str, Any]:
    return {pair.key: _value(pair.value) for pair in pairs}


def _value(value: AnyValue) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        values: Sequence[AnyValue] = value.array_value.values
        return [_value(each) for each in values]
    return getattr(value, kind) if kind else None
