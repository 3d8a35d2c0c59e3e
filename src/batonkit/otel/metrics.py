"""The metrics of runs: those of OpenTelemetry's GenAI conventions, and `baton.…` for the rest."""

from collections.abc import Mapping
from typing import Any

from opentelemetry.metrics import Meter

from ..messages import Usage

DURATION_BUCKETS = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92)
"""The buckets of durations in seconds, as the conventions have them."""
TOKEN_BUCKETS = (1, 4, 16, 64, 256, 1024, 4096, 16384, 65536, 262144, 1048576, 4194304, 16777216, 67108864)
"""The buckets of token counts, as the conventions have them."""
FIRST_CHUNK_BUCKETS = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0)
"""The buckets of the time to the first chunk in seconds, as the conventions have them."""

METRICS: Mapping[str, tuple[str, str]] = {
    "gen_ai.client.operation.duration": ("s", "Duration of model calls."),
    "gen_ai.client.token.usage": ("{token}", "Input and output tokens of model calls."),
    "gen_ai.client.operation.time_to_first_chunk": ("s", "Time to the first chunk of streamed responses."),
    "baton.workflow.duration": ("s", "Duration of runs, each time they are driven."),
    "baton.agent.duration": ("s", "Duration of activations."),
    "baton.tool.duration": ("s", "Duration of tool calls."),
    "baton.handoff.count": ("{handoff}", "Handoffs by source, target and outcome."),
    "baton.runs.active": ("{run}", "Runs that are driven now."),
    "baton.interrupts.open": ("{interrupt}", "Interrupts raised less those that were answered or have ended."),
    "baton.store.operation.duration": ("s", "Duration of calls of the store."),
    "baton.lease.lost": ("{lease}", "Leases that were lost to another worker."),
}
"""The unit and description of every metric, by name."""

_MODEL_ATTRIBUTES = (
    "gen_ai.operation.name",
    "gen_ai.provider.name",
    "gen_ai.request.model",
    "gen_ai.response.model",
    "error.type",
)
_OPERATIONS = {
    "invoke_workflow": ("baton.workflow.duration", "gen_ai.workflow.name"),
    "invoke_agent": ("baton.agent.duration", "gen_ai.agent.name"),
    "execute_tool": ("baton.tool.duration", "gen_ai.tool.name"),
}


class Metrics:
    """The instruments of an observer."""

    def __init__(self, meter: Meter) -> None:
        def histogram(name: str, buckets: tuple[float, ...] = DURATION_BUCKETS) -> Any:
            unit, description = METRICS[name]
            return meter.create_histogram(name, unit, description, explicit_bucket_boundaries_advisory=buckets)

        self._model = histogram("gen_ai.client.operation.duration")
        self._tokens = histogram("gen_ai.client.token.usage", TOKEN_BUCKETS)
        self._first_chunk = histogram("gen_ai.client.operation.time_to_first_chunk", FIRST_CHUNK_BUCKETS)
        self._durations = {
            operation: (histogram(name), attribute) for operation, (name, attribute) in _OPERATIONS.items()
        }
        self._store = histogram("baton.store.operation.duration")
        self._handoffs = meter.create_counter("baton.handoff.count", *METRICS["baton.handoff.count"])
        self._lost = meter.create_counter("baton.lease.lost", *METRICS["baton.lease.lost"])
        self._active = meter.create_up_down_counter("baton.runs.active", *METRICS["baton.runs.active"])
        self._interrupts = meter.create_up_down_counter("baton.interrupts.open", *METRICS["baton.interrupts.open"])

    def model_call(
        self, span_attributes: Mapping[str, Any], seconds: float, usage: Usage | None, first_chunk: float | None = None
    ) -> None:
        """Measure a model call."""
        attributes = {name: span_attributes[name] for name in _MODEL_ATTRIBUTES if name in span_attributes}
        self._model.record(max(seconds, 0.0), attributes)
        if first_chunk is not None:
            self._first_chunk.record(first_chunk, attributes)
        if usage is not None:
            self._tokens.record(usage.input_tokens, {**attributes, "gen_ai.token.type": "input"})
            self._tokens.record(usage.output_tokens, {**attributes, "gen_ai.token.type": "output"})

    def operation(self, operation: str, name: str, seconds: float, error: str) -> None:
        """Measure a drive of a run, an activation or a tool call."""
        histogram, name_attribute = self._durations[operation]
        attributes = {name_attribute: name, "error.type": error} if error else {name_attribute: name}
        histogram.record(max(seconds, 0.0), attributes)

    def handoff(self, source: str, target: str, outcome: str) -> None:
        """Count a handoff."""
        self._handoffs.add(1, {"source": source, "target": target, "outcome": outcome})

    def runs(self, change: int) -> None:
        """Count runs that are driven."""
        self._active.add(change)

    def interrupts(self, change: int) -> None:
        """Count open interrupts."""
        if change:
            self._interrupts.add(change)

    def store(self, operation: str, store: str, seconds: float, error: str) -> None:
        """Measure a call of the store."""
        attributes = {"operation": operation, "store": store}
        self._store.record(seconds, {**attributes, "error.type": error} if error else attributes)

    def lease_lost(self, store: str, operation: str, count: int) -> None:
        """Count leases that another worker has taken."""
        if count > 0:
            self._lost.add(count, {"operation": operation, "store": store})
