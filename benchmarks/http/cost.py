"""The cost of one client, and the ratio of two of them. Imports no client."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field


@dataclass(slots=True)
class HttpCost:
    """One client: CPU time of its process and throughput, in rounds that it shared with the others."""

    client: str
    cpu_microseconds: list[float] = field(default_factory=list[float])
    """For each request, one entry per round."""
    requests_per_second: list[float] = field(default_factory=list[float])

    @property
    def cost(self) -> float:
        return statistics.median(self.cpu_microseconds)

    @property
    def throughput(self) -> float:
        return statistics.median(self.requests_per_second)


def times_cheaper(costs: list[HttpCost], client: str, other: str) -> float:
    """Return the requests that `client` sends in the CPU time of one of `other`: the median of the rounds."""
    by_name = {cost.client: cost for cost in costs}
    pairs = zip(by_name[client].cpu_microseconds, by_name[other].cpu_microseconds, strict=True)
    return statistics.median(theirs / ours for ours, theirs in pairs)
