"""OpenTelemetry: a reader that makes spans of what is written to the log of a run."""

from collections import OrderedDict
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ..errors import SetupError
from ..events import Event
from ..runner import EventHandler

if TYPE_CHECKING:
    from opentelemetry.trace import SpanContext, TracerProvider

_MOST_REMEMBERED = 10_000


class OTelObserver:
    """Makes OpenTelemetry spans of runs, for `Runner(readers=[OTelObserver()])`; or of a log, with `export`.

    What was said, and the arguments and results of tools, are on the spans only with `content=True`.
    """

    def __init__(self, tracer_provider: "TracerProvider | None" = None, *, include_content: bool = False) -> None:
        try:
            from opentelemetry.trace import get_tracer

            from .spans import RunSpanBuilder
        except ImportError:
            raise SetupError("OTelObserver(…) needs OpenTelemetry: pip install 'baton-adk[otel]'") from None
        self._spans = RunSpanBuilder
        self._tracer = get_tracer("baton", tracer_provider=tracer_provider)
        self._content = include_content
        self._stopped: OrderedDict[str, SpanContext] = OrderedDict()
        """The runs that stopped before their end, and where their traces are: a resumed run is linked to that."""

    @contextmanager
    def observe(self, run_id: str, past: Sequence[Event]) -> Generator[EventHandler]:
        """Make spans of what happens in this run until it stops; they are part of the span that is current here."""
        spans = self._spans(self._tracer, content=self._content)
        spans.recall(past, trace=self._stopped.pop(run_id, None))
        try:
            yield spans.hear
        finally:
            spans.close()
            if spans.trace is not None and not spans.is_completed:
                self._stopped[run_id] = spans.trace
                if len(self._stopped) > _MOST_REMEMBERED:
                    self._stopped.popitem(last=False)

    def export(self, events: Iterable[Event]) -> None:
        """Make the spans of a log, with the times that are in it: a trace for each time the run was taken up."""
        spans = self._spans(self._tracer, content=self._content, is_live=False)
        for event in events:
            spans.hear(event)
        spans.close()
