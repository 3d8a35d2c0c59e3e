"""Spans as a test reads them: kept in memory by the real SDK, and drawn as a tree."""

from typing import Any

from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_ON, Sampler


class Traced:
    """A provider, and the spans that have ended."""

    def __init__(self, sampler: Sampler = ALWAYS_ON) -> None:
        self._kept = InMemorySpanExporter()
        self.provider = TracerProvider(sampler=sampler)
        self.provider.add_span_processor(SimpleSpanProcessor(self._kept))

    @property
    def spans(self) -> list[ReadableSpan]:
        """All of them, by the time they began; of those that began at once, the longer first."""
        return sorted(self._kept.get_finished_spans(), key=lambda span: (span.start_time or 0, -(span.end_time or 0)))

    def named(self, name: str) -> ReadableSpan:
        """The only one with this name."""
        (span,) = [span for span in self.spans if span.name == name]
        return span

    def forget(self) -> None:
        """Start over."""
        self._kept.clear()

    def tree(self) -> list[str]:
        """Their names, each below its parent; "!" marks an error."""
        known = {id_of(span) for span in self.spans}
        tops = [span for span in self.spans if span.parent is None or span.parent.span_id not in known]
        return [line for top in tops for line in self._drawn(top, "")]

    def _drawn(self, span: ReadableSpan, indent: str) -> list[str]:
        lines = [f"{indent}{span.name}{'' if span.status.is_unset else ' !'}"]
        for child in self.spans:
            if child.parent is not None and child.parent.span_id == id_of(span):
                lines += self._drawn(child, indent + "  ")
        return lines


def id_of(span: ReadableSpan) -> int:
    """The id of a span."""
    assert span.context is not None
    return span.context.span_id


def trace_of(span: ReadableSpan) -> int:
    """The id of its trace."""
    assert span.context is not None
    return span.context.trace_id


def facts(span: ReadableSpan) -> dict[str, Any]:
    """Its attributes."""
    return dict(span.attributes or {})


def noted(span: ReadableSpan) -> list[tuple[str, dict[str, Any]]]:
    """Its events."""
    return [(event.name, dict(event.attributes or {})) for event in span.events]


def linked(span: ReadableSpan) -> list[int]:
    """The ids of the spans that it is linked to."""
    return [link.context.span_id for link in span.links]
