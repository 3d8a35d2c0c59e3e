"""The measurement: contenders take turns within a process, and a ratio is taken only within one round."""

from __future__ import annotations

import asyncio
import gc
import math
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from benchmarks.contender import Contender, Inexpressible, RunOnce
from benchmarks.script import Script
from benchmarks.workloads import Outcome, Workload


@dataclass(frozen=True, slots=True)
class Effort:
    """The effort of a measurement. On shared cores more rounds, not longer ones, make a median steady."""

    rounds: int = 15
    seconds_per_sample: float = 0.03
    seconds_per_workload: float = 20.0
    """No new round starts after this; a slow peer then gets fewer rounds, but always one."""


QUICK = Effort(rounds=5, seconds_per_sample=0.015, seconds_per_workload=6.0)


@dataclass(slots=True)
class Measurement:
    """One cell of the table: CPU microseconds per unit, and the ratio to the bare loop timed in the same round."""

    workload: str
    contender: str
    samples: list[float] = field(default_factory=list[float])
    ratios: list[float] = field(default_factory=list[float])

    @property
    def microseconds(self) -> float:
        return statistics.median(self.samples)

    @property
    def ratio(self) -> float:
        return statistics.median(self.ratios)


@dataclass(frozen=True, slots=True)
class Gap:
    """A cell without a number, and why. Only `is_error` says that something is wrong."""

    workload: str
    contender: str
    reason: str
    is_error: bool


@dataclass(slots=True)
class Entry:
    """A contender made ready for one workload."""

    contender: Contender
    run_once: RunOnce
    script: Script
    runs_per_sample: int = 1


def measure(workload: Workload, contenders: Sequence[Contender], effort: Effort) -> tuple[list[Measurement], list[Gap]]:
    """Time every contender in alternating rounds; the first contender is the one the others are compared with."""
    entries: list[Entry] = []
    gaps: list[Gap] = []
    with asyncio.Runner() as loop:
        for contender in contenders:
            try:
                entries.append(loop.run(ready(contender, workload, effort)))
            except Inexpressible as reason:
                gaps.append(Gap(workload.name, contender.name, str(reason), is_error=False))
            except Exception as failure:  # noqa: BLE001 - a contender that fails is a finding, not the end of the run.
                gaps.append(Gap(workload.name, contender.name, f"{type(failure).__name__}: {failure}", is_error=True))
        measurements = {entry.contender.name: Measurement(workload.name, entry.contender.name) for entry in entries}
        if entries and entries[0].contender == contenders[0]:
            loop.run(alternate(entries, measurements, effort))
    return [measurement for measurement in measurements.values() if measurement.samples], gaps


async def ready(contender: Contender, workload: Workload, effort: Effort) -> Entry:
    """Build the contender, prove that it does the work, and find how many runs make a sample long enough."""
    script = Script(workload)
    run_once = contender.prepare(workload, script)
    if workload.copies > 1:
        run_once = all_at_once(run_once, workload)
    entry = Entry(contender, run_once, script)
    first = await sample(entry)
    if first < effort.seconds_per_sample:
        warm = min([await sample(entry) for _ in range(3)])
        entry.runs_per_sample = max(1, math.ceil(effort.seconds_per_sample / max(warm, 1e-6)))
    return entry


async def alternate(entries: list[Entry], measurements: dict[str, Measurement], effort: Effort) -> None:
    started = time.monotonic()
    baseline = entries[0].contender.name
    for number in range(effort.rounds):
        if number and time.monotonic() - started > effort.seconds_per_workload:
            break
        timed: dict[str, float] = {}
        # Every second round goes backwards, so that nobody always runs on the heels of the same neighbour.
        for entry in entries if number % 2 == 0 else reversed(entries):
            gc.collect()
            seconds = await sample(entry)
            timed[entry.contender.name] = seconds * 1e6 / entry.script.workload.units
        for name, microseconds in timed.items():
            measurements[name].samples.append(microseconds)
            measurements[name].ratios.append(microseconds / timed[baseline])


async def sample(entry: Entry) -> float:
    """CPU seconds of one run, averaged over a sample whose every result has been verified."""
    outcomes: list[Outcome] = []
    started = time.process_time()
    for _ in range(entry.runs_per_sample):
        outcomes.append(await entry.run_once())  # noqa: PERF401 - the same loop for everyone, with nothing clever in it.
    seconds = time.process_time() - started
    entry.script.verify(outcomes)
    return seconds / entry.runs_per_sample


def all_at_once(run_once: RunOnce, workload: Workload) -> RunOnce:
    async def run_copies() -> Outcome:
        outcomes = await asyncio.gather(*(run_once() for _ in range(workload.copies)))
        return next((outcome for outcome in outcomes if outcome != workload.expected), workload.expected)

    return run_copies
