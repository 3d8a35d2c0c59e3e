"""Everything one run of the benchmarks found, and its form on disk."""

from __future__ import annotations

import json
import platform
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from benchmarks.a2a.cost import StreamCost
from benchmarks.cold_import import ImportCost
from benchmarks.durable import Durability
from benchmarks.http.cost import HttpCost
from benchmarks.timing import Gap, Measurement
from benchmarks.workloads import WORKLOADS

if TYPE_CHECKING:
    from benchmarks.growth import Growth
    from benchmarks.realtime.measured import RealtimeCosts


@dataclass(slots=True)
class Results:
    versions: dict[str, str] = field(default_factory=dict[str, str])
    """The contenders that took part, in the order of the table's columns."""
    measurements: list[Measurement] = field(default_factory=list[Measurement])
    imports: list[ImportCost] = field(default_factory=list[ImportCost])
    http: list[HttpCost] = field(default_factory=list[HttpCost])
    gaps: list[Gap] = field(default_factory=list[Gap])
    durability: Durability = field(default_factory=Durability)
    a2a: list[StreamCost] = field(default_factory=list[StreamCost])
    realtime: RealtimeCosts | None = None
    growth: list[Growth] = field(default_factory=list["Growth"])

    def cell(self, workload: str, contender: str) -> Measurement | None:
        wanted = (workload, contender)
        return next((cell for cell in self.measurements if (cell.workload, cell.contender) == wanted), None)

    def as_json(self) -> dict[str, Any]:
        units = {workload.name: workload.unit for workload in WORKLOADS}
        return {
            "when": datetime.now(UTC).isoformat(timespec="seconds"),
            "python": platform.python_version(),
            "machine": platform.platform(),
            "versions": self.versions,
            "measurements": [
                {
                    "workload": cell.workload,
                    "contender": cell.contender,
                    "unit": units[cell.workload],
                    "microseconds_per_unit": round(cell.microseconds, 4),
                    "ratio_to_bare": round(cell.ratio, 4),
                    "samples": [round(sample, 4) for sample in cell.samples],
                    "ratios": [round(ratio, 4) for ratio in cell.ratios],
                }
                for cell in self.measurements
            ],
            "imports": [asdict(cost) for cost in self.imports],
            "http": [asdict(cost) for cost in self.http],
            "gaps": [asdict(gap) for gap in self.gaps],
            "durability": [asdict(cost) for cost in self.durability.costs],
            "a2a": [asdict(cost) for cost in self.a2a],
            "realtime": msgspec.to_builtins(self.realtime),
            "growth": [asdict(row) for row in self.growth],
        }

    def write(self, path: Path, checks: list[dict[str, Any]]) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(self.as_json() | {"budgets": checks}, indent=2) + "\n", encoding="utf-8")
