"""`python -m benchmarks.instructions [WORKLOAD …]`: executed instructions beside the bare loop, counted by valgrind.

Unlike times, instructions do not depend on what else the machine does. One process runs all workloads under callgrind;
a call of `getppid` before and after the measured runs has it write what was counted in between.
"""

from __future__ import annotations

import asyncio
import gc
import os
import re
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.contender import BARE, BATON, CONTENDERS
from benchmarks.peer_sessions import REPOSITORY
from benchmarks.script import Script
from benchmarks.workloads import WORKLOADS

DEFAULT = ("single_turn", "tool_loop", "handoff_chain", "ping_pong_50", "agent_tool", "branches")
# The interpreter adapts its bytecode to what it runs; after so many runs it has.
WARM_UP, RUNS = 12, 10
_TOTAL = re.compile(r"^(?:summary|totals): (\d+)$", re.MULTILINE)


async def run_marked(names: list[str]) -> None:
    """Run each workload with both contenders, between calls of `getppid`."""
    for name in names:
        workload = next(each for each in WORKLOADS if each.name == name)
        for contender in (BARE, BATON):
            run_once = CONTENDERS[contender.name].prepare(workload, Script(workload))
            for _ in range(WARM_UP):
                await run_once()
            gc.collect()
            gc.disable()
            os.getppid()
            for _ in range(RUNS):
                await run_once()
            os.getppid()
            gc.enable()


def count(names: list[str]) -> list[tuple[str, float, float]]:
    """Return each workload with the instructions of a unit: the bare loop's, and Baton's."""
    with TemporaryDirectory(prefix="baton-instructions-") as folder:
        out = Path(folder) / "out"
        valgrind = ["valgrind", "--tool=callgrind", "--dump-before=getppid", f"--callgrind-out-file={out}"]
        program = [sys.executable, "-m", "benchmarks.instructions", "--marked", *names]
        environment = os.environ | {"PYTHONHASHSEED": "0"}
        subprocess.run([*valgrind, *program], cwd=REPOSITORY, env=environment, check=True, capture_output=True)
        # Every second part is what ran between two marks.
        parts = [Path(f"{out}.{number}") for number in range(2, 4 * len(names) + 1, 2)]
        totals = [int(_TOTAL.findall(part.read_text())[0]) for part in parts]
    units = {each.name: each.units * RUNS for each in WORKLOADS}
    pairs = zip(names, totals[::2], totals[1::2], strict=True)
    return [(name, bare / units[name], baton / units[name]) for name, bare, baton in pairs]


if __name__ == "__main__":
    if sys.argv[1:2] == ["--marked"]:
        asyncio.run(run_marked(sys.argv[2:]))
    else:
        known = [each.name for each in WORKLOADS]
        if unknown := [name for name in sys.argv[1:] if name not in known]:
            raise SystemExit(f"unknown workload {', '.join(unknown)}; choose from: {', '.join(known)}")
        for name, bare, baton in count(sys.argv[1:] or list(DEFAULT)):
            print(f"{name:20} {bare:9,.0f} {baton:9,.0f} {baton / bare:6.2f}x")
