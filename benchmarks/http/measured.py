"""Many tool loops at once against a server in another process, each client in turn."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import AsyncExitStack, contextmanager

from benchmarks.http.cost import HttpCost
from benchmarks.http.loops import LOOPS, RunOnce

RUNS_AT_ONCE = 200
TOOL_CALLS = 5
REQUESTS = RUNS_AT_ONCE * (TOOL_CALLS + 1)


def http_costs(rounds: int) -> list[HttpCost]:
    """Measure each client; the first round warms up and does not count."""
    with _server() as base_url:
        return asyncio.run(_measured(base_url, rounds))


async def _measured(base_url: str, rounds: int) -> list[HttpCost]:
    costs = {name: HttpCost(name) for name in LOOPS}
    async with AsyncExitStack() as stack:
        runs = {name: await stack.enter_async_context(opened(base_url)) for name, opened in LOOPS.items()}
        for number in range(rounds + 1):
            for name in list(LOOPS) if number % 2 == 0 else reversed(LOOPS):
                cpu, wall = await _sample(runs[name])
                if number:
                    costs[name].cpu_microseconds.append(cpu * 1e6 / REQUESTS)
                    costs[name].requests_per_second.append(REQUESTS / wall)
    return list(costs.values())


async def _sample(run_once: RunOnce) -> tuple[float, float]:
    gc.collect()
    wall, cpu = time.perf_counter(), time.process_time()
    answers = await asyncio.gather(*(run_once() for _ in range(RUNS_AT_ONCE)))
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    if answers != ["done"] * RUNS_AT_ONCE:
        raise AssertionError(f"a run ended with {set(answers)}, not with the server's last answer")
    return cpu, wall


@contextmanager
def _server() -> Generator[str]:
    command = [sys.executable, "-m", "benchmarks.http.server", str(TOOL_CALLS)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            yield f"http://127.0.0.1:{int(process.stdout.readline())}/v1"
        finally:
            process.stdin.close()
