"""The cost of the first import: CPU time, memory, and the heavy packages it loads. Each sample is a new process."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
from dataclasses import dataclass
from typing import Any

from benchmarks.contender import Contender
from benchmarks.peer_sessions import REPOSITORY, TELEMETRY_OFF

HEAVY_PACKAGES = ("pydantic", "openai", "anthropic", "starlette", "httpx", "fastapi", "aiohttp")

# Linux hands the peak of the process that forked us on to ru_maxrss, which would hide any growth below it; VmHWM
# starts afresh with each program. Elsewhere (macOS counts bytes) ru_maxrss is what there is.
PROBE = """
import json, resource, sys, time

def peak_megabytes():
    try:
        with open("/proc/self/status") as status:
            return next(int(line.split()[1]) for line in status if line.startswith("VmHWM")) / 1024
    except OSError:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak / 1024 if sys.platform != "darwin" else peak / 1024 / 1024

memory, cpu = peak_megabytes(), time.process_time()
{statement}
cpu, memory = time.process_time() - cpu, peak_megabytes() - memory
heavy = [name for name in {heavy!r} if name in sys.modules]
print(json.dumps(dict(cpu_seconds=cpu, megabytes=memory, heavy_packages=heavy)))
"""


@dataclass(frozen=True, slots=True)
class ImportCost:
    contender: str
    statement: str
    cpu_seconds: float
    megabytes: float
    heavy_packages: tuple[str, ...]


class ImportFailed(Exception):
    """The statement did not run in that interpreter."""


def import_cost(python: str, contender: Contender, statement: str, samples: int) -> ImportCost:
    # The first process may have to write bytecode; it is run and not counted.
    probes = [_probe(python, statement) for _ in range(samples + 1)][1:]
    return ImportCost(
        contender.name,
        statement,
        statistics.median(probe["cpu_seconds"] for probe in probes),
        statistics.median(probe["megabytes"] for probe in probes),
        tuple(probes[-1]["heavy_packages"]),
    )


def _probe(python: str, statement: str) -> dict[str, Any]:
    code = PROBE.format(statement=statement, heavy=HEAVY_PACKAGES)
    finished = subprocess.run(
        [python, "-W", "ignore", "-c", code],
        cwd=REPOSITORY,
        env=os.environ | TELEMETRY_OFF,
        capture_output=True,
        text=True,
        check=False,
    )
    if finished.returncode != 0:
        raise ImportFailed(f"`{statement}`: {(finished.stderr.strip() or 'no output').splitlines()[-1]}")
    return json.loads(finished.stdout.splitlines()[-1])
