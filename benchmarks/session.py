"""One peer beside the bare loop, in an interpreter of its own: `python -m benchmarks.session PEER WORKLOAD,… EFFORT`.

Prints one JSON object as the last line of its output, for `benchmarks.peer_sessions` to read.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from importlib import metadata
from typing import Any

from benchmarks.contender import BARE, CONTENDERS
from benchmarks.timing import Effort, measure
from benchmarks.workloads import WORKLOADS


def run_session(peer: str, workload_names: list[str], effort: Effort) -> dict[str, Any]:
    contender = CONTENDERS[peer]
    measurements: list[dict[str, Any]] = []
    gaps: list[dict[str, Any]] = []
    for workload in WORKLOADS:
        if workload.name in workload_names and workload.is_for_peers:
            timed, missing = measure(workload, [BARE, contender], effort)
            measurements += [asdict(cell) for cell in timed if cell.contender == peer]
            gaps += [asdict(gap) for gap in missing]
    return {"version": metadata.version(contender.distribution), "measurements": measurements, "gaps": gaps}


if __name__ == "__main__":
    peer_name, names, effort_json = sys.argv[1:]
    print(json.dumps(run_session(peer_name, names.split(","), Effort(**json.loads(effort_json)))))
