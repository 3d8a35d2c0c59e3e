"""An observer that exports runs as OpenTelemetry spans."""

from collections import OrderedDict
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ..arguments import check_arguments
from ..errors import SetupError
from ..events import Event
from ..runner import EventHandler

if TYPE_CHECKING:
    from opentelemetry.trace import SpanContext, TracerProvider

_MAX_LINKS = 10_000


class OTelObserver:
    """Exports runs as OpenTelemetry spans, for `Runner(observers=[OTelObserver()])`.

    Args:
        tracer_provider: The provider to use; by default the global one.
        include_content: Put messages, tool arguments and tool results on the spans.

    Raises:
        SetupError: OpenTelemetry is not installed.
    """

    @check_arguments
    def __init__(self, tracer_provider: "TracerProvider | None" = None, *, include_content: bool = False) -> None:
        try:
            from opentelemetry.trace import get_tracer

            from .spans import RunSpanBuilder
        except ImportError:
            raise SetupError("OTelObserver(…) needs OpenTelemetry: pip install 'baton-adk[otel]'") from None
        self._spans = RunSpanBuilder
        self._tracer = get_tracer("baton", tracer_provider=tracer_provider)
        self._include_content = include_content
        self._traces: OrderedDict[str, SpanContext] = OrderedDict()
        """The latest trace of each run that stopped early; a resumed run links to it."""

    @contextmanager
    def observe(self, run_id: str, past: Sequence[Event]) -> Generator[EventHandler]:
        """Export one drive of a run, as children of the current span.

        Args:
            run_id: The run.
            past: The events that happened before this drive.
        """
        spans = self._spans(self._tracer, include_content=self._include_content)
        spans.enter(past, trace=self._traces.pop(run_id, None))
        try:
            yield spans.handle
        finally:
            spans.close()
            if spans.trace is not None and not spans.is_completed:
                self._traces[run_id] = spans.trace
                if len(self._traces) > _MAX_LINKS:
                    self._traces.popitem(last=False)

    def export(self, events: Iterable[Event]) -> None:
        """Export a log with its recorded times, one trace for each time the run was driven.

        Args:
            events: The events of one run.
        """
        spans = self._spans(self._tracer, include_content=self._include_content, is_live=False)
        for event in events:
            spans.handle(event)
        spans.close()
