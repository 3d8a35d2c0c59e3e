"""An observer that exports runs as OpenTelemetry spans and metrics."""

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Self

from .._checks import check_arguments
from ..context.run_state import RunState
from ..errors import MissingExtraError
from ..log import Event
from ..runs import EventHandler
from ..stores import FullStore
from ..version import __version__
from .attributes import SCHEMA_URL, ContentPolicy, Redact

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import TracerProvider

    from .live import LiveRun


class OTelObserver:
    """Exports runs as OpenTelemetry spans and metrics, for `Runner(observers=[OTelObserver()])`.

    Spans that tools, hooks and middleware open are inside the spans of the run.

    Args:
        tracer_provider: The provider of spans; by default the global one.
        meter_provider: The provider of metrics; by default the global one.
        content: Record messages, tool arguments and results. By default the environment variable
            `OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT` decides, and without it nothing is recorded.
        redact: A function `(name, value)` that is called with all content before it is recorded, and returns what to
            record: another value, or None for nothing. The value is JSON data, such as a list of messages.

    Raises:
        SetupError: OpenTelemetry is not installed.
    """

    receives_deltas = False
    """Tracing does not make models stream."""

    @check_arguments
    def __init__(
        self,
        tracer_provider: "TracerProvider | None" = None,
        meter_provider: "MeterProvider | None" = None,
        *,
        content: bool | None = None,
        redact: Redact | None = None,
    ) -> None:
        try:
            from opentelemetry.metrics import get_meter, get_meter_provider
            from opentelemetry.trace import get_tracer

            from .live import LiveRun
            from .metrics import Metrics
        except ImportError as missing:
            raise MissingExtraError("OTelObserver", "otel", missing) from missing
        self._live = LiveRun
        self._tracer = get_tracer("baton", __version__, tracer_provider, SCHEMA_URL)
        self._metrics = Metrics(get_meter("baton", __version__, meter_provider, SCHEMA_URL))
        self._meter_provider: Callable[[], Any] = (
            get_meter_provider if meter_provider is None else lambda: meter_provider
        )
        self._content = ContentPolicy(content, redact)
        self._runs: dict[str, LiveRun] = {}
        """The runs that are driven now."""
        self._own_providers: Sequence[Any] = ()

    @classmethod
    @check_arguments
    def to(
        cls,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        service_name: str = "baton",
        metrics: bool = True,
        content: bool | None = None,
        redact: Redact | None = None,
    ) -> Self:
        """Return an observer that sends spans and metrics to an OTLP receiver over HTTP.

        Args:
            url: The address of the receiver, such as `http://localhost:4318`; `/v1/traces` and `/v1/metrics` are
                appended.
            headers: Headers of every request, such as credentials.
            service_name: The name of your service; the environment variable `OTEL_SERVICE_NAME` takes precedence.
            metrics: Whether to send metrics; some receivers take spans only.
            content: See the class.
            redact: See the class.

        Raises:
            SetupError: The OpenTelemetry SDK or its OTLP exporter is not installed, or the URL is not one.
        """
        try:
            from .setup import make_providers
        except ImportError as missing:
            raise MissingExtraError("OTelObserver", "otel", missing) from missing
        tracer_provider, meter_provider = make_providers(url, dict(headers or {}), service_name, metrics=metrics)
        observer = cls(tracer_provider, meter_provider, content=content, redact=redact)
        observer._own_providers = (tracer_provider, meter_provider) if metrics else (tracer_provider,)
        return observer

    def flush(self) -> None:
        """Send the spans and metrics that wait, if the observer was made with `to`. It blocks."""
        for provider in self._own_providers:
            provider.force_flush()

    def close(self) -> None:
        """Send what waits and stop the exporters, if the observer was made with `to`. It blocks."""
        providers = self._own_providers
        self._own_providers = ()
        for provider in providers:
            provider.shutdown()

    @contextmanager
    def observe(self, run_id: str, past: Sequence[Event]) -> Generator[EventHandler]:
        """Receive the events of a run whose trace was started.

        Args:
            run_id: The run.
            past: The events that happened before this drive.
        """
        run = self._runs.pop(run_id, None)
        yield run.handle if run is not None else _ignore

    def start_trace(self, run: RunState[Any], first_events: Sequence[Event]) -> "LiveRun":
        """Open the span of a run that is about to be driven, and make it current.

        Args:
            run: The run; its log has the events before this drive.
            first_events: The events that will be written first.
        """
        # The API's own providers drop all measurements; the global one may be set at any time.
        is_measured = not type(self._meter_provider()).__module__.startswith("opentelemetry.metrics")
        metrics = self._metrics if is_measured else None
        live = self._runs[run.id] = self._live(self._tracer, self._content, metrics, run, first_events)
        return live

    def measure_store(self, store: FullStore) -> FullStore:
        """Return a store that measures its calls; a runner with this observer calls it.

        Args:
            store: The store.
        """
        from .stores import measured_store

        return measured_store(store, self._metrics)

    def export(self, events: Iterable[Event]) -> None:
        """Export a log with its recorded times, one trace for each time the run was driven.

        Args:
            events: The events of one run.
        """
        from .spans import RunSpanBuilder

        spans = RunSpanBuilder(self._tracer, self._content)
        for event in events:
            spans.export(event)
        spans.close()


def _ignore(event: object) -> None:
    """Receive the events of a run that is not traced."""
