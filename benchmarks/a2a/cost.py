"""The cost of streams of one length, and the ratio of two lengths. Imports nothing of A2A."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field


@dataclass(slots=True)
class StreamCost:
    """Streams of one length, one entry for each round."""

    tokens: int
    cpu_seconds: list[float] = field(default_factory=list[float])
    """Of the server's process, from the request to the end of its answer."""
    chunks: list[int] = field(default_factory=list[int])
    """The number of pieces of the answer that the client received."""

    @property
    def cost(self) -> float:
        return statistics.median(self.cpu_seconds)

    @property
    def per_token(self) -> float:
        return self.cost / self.tokens


def cost_of(costs: list[StreamCost], tokens: int) -> StreamCost | None:
    """Return the measurements of this length, or None."""
    return next((each for each in costs if each.tokens == tokens), None)
