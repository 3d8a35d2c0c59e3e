"""Providers that send spans and metrics to an OTLP receiver over HTTP."""

from urllib.parse import urlsplit

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.metrics import MeterProvider as AnyMeterProvider
from opentelemetry.metrics import NoOpMeterProvider
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.resources import SERVICE_NAME, OTELResourceDetector, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

from ..errors import SetupError

_TRACES = "/v1/traces"
_METRICS = "/v1/metrics"


def make_providers(
    url: str, headers: dict[str, str], service_name: str, *, metrics: bool
) -> tuple[TracerProvider, AnyMeterProvider]:
    """Return providers that send spans and metrics to a receiver.

    Raises:
        SetupError: The URL is not one.
    """
    if not _is_http_url(url):
        raise SetupError(f"OTelObserver.to({url!r}) is not the URL of an OTLP receiver, such as http://localhost:4318")
    base = url.rstrip("/").removesuffix(_TRACES)
    resource = Resource.create({SERVICE_NAME: service_name}).merge(OTELResourceDetector().detect())
    tracer_provider = TracerProvider(resource=resource)
    tracer_provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(f"{base}{_TRACES}", headers=headers)))
    if not metrics:
        return tracer_provider, NoOpMeterProvider()
    reader = PeriodicExportingMetricReader(OTLPMetricExporter(f"{base}{_METRICS}", headers=headers))
    return tracer_provider, MeterProvider([reader], resource)


def _is_http_url(url: str) -> bool:
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and bool(parts.netloc)
