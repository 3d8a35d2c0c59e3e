"""The cost of stored runs: a turn with a store, its bytes, resuming a long run; and the same for a peer."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import sqlite3
import statistics
import subprocess
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from batonkit import Agent, RunContext, Runner, tool
from batonkit.log import decode_lines
from batonkit.stores import SQLiteStore
from batonkit.tools import ToolEffect
from benchmarks.contenders.baton import LIMITS, MAX_TURNS, StubModel
from benchmarks.peer_sessions import REPOSITORY, TELEMETRY_OFF
from benchmarks.script import Script
from benchmarks.workloads import FINAL_TEXT, INSTRUCTIONS, QUESTION, Call, Outcome, Reply, Workload, tool_loop

STEPS = 200
LONG, LONGER = 1_000, 10_000
"""Numbers of events."""
EVENTS_OF_A_TURN = 2


@dataclass(frozen=True, slots=True)
class Cost:
    """One figure: what it is of, and in what."""

    name: str
    value: float
    unit: str


@dataclass(slots=True)
class Durability:
    """The measurements; None where nothing could be measured."""

    costs: list[Cost] = field(default_factory=list[Cost])

    def add(self, name: str, value: float, unit: str) -> None:
        self.costs.append(Cost(name, value, unit))

    def __getitem__(self, name: str) -> float | None:
        return next((cost.value for cost in self.costs if cost.name == name), None)


def measured(rounds: int, *, postgres: str | None, peers_python: str | None) -> Durability:
    """Everything there is to measure with these."""
    found = Durability()
    with TemporaryDirectory(prefix="baton-bench-") as folder:
        asyncio.run(_measure_turns(found, Path(folder), rounds, postgres))
        asyncio.run(_measure_bytes(found, Path(folder)))
        asyncio.run(_measure_resume(found, Path(folder), rounds))
        found.add("bare commit", _bare_commit(Path(folder), rounds), "µs")
    if peers_python is not None:
        _measure_peer(found, peers_python)
    return found


def _loop(steps: int) -> Workload:
    return tool_loop("kept", f"tool loop, {steps} tool calls", tool_calls=steps)


def _runner(workload: Workload, script: Script, store: str | Path | None, *, effect: ToolEffect = "read") -> Runner:
    step = tool(script.step_tool(), effect=effect, name="step")
    agent = Agent(workload.agents[0], instructions=INSTRUCTIONS, tools=[step], max_turns=MAX_TURNS)
    return Runner(agent, model=StubModel(script), limits=LIMITS, store=store)


async def _timed(work: Callable[[], Awaitable[object]], rounds: int, *, waits: bool = False) -> float:
    """Median CPU seconds; wall seconds if it waits for a disk or a server, which counts then."""
    clock = time.perf_counter if waits else time.process_time
    samples: list[float] = []
    for _ in range(rounds):
        gc.collect()
        started = clock()
        await work()
        samples.append(clock() - started)
    return statistics.median(samples)


async def _measure_turns(found: Durability, folder: Path, rounds: int, postgres: str | None) -> None:
    workload = _loop(STEPS)
    script = Script(workload)
    stores: dict[str, tuple[str | Path | None, ToolEffect]] = {
        "turn in memory": (None, "read"),
        "turn with SQLite, reading tools": (folder / "turns.db", "read"),
        "turn with SQLite, acting tools": (folder / "turns.db", "idempotent"),
        "turn with SQLite, power": (f"sqlite:///{folder}/turns.db?durability=power", "read"),
    }
    if postgres is not None:
        stores["turn with PostgreSQL, reading tools"] = (postgres, "read")
        stores["turn with PostgreSQL, acting tools"] = (postgres, "idempotent")
    for name, (store, effect) in stores.items():
        async with _runner(workload, script, store, effect=effect) as runner:

            async def run(runner: Runner = runner) -> None:
                result = await runner.run(QUESTION)
                assert Outcome(result.output, result.agent) == workload.expected

            await run()
            waits = "power" in name or "PostgreSQL" in name
            found.add(name, await _timed(run, rounds, waits=waits) / workload.units * 1e6, "µs")
            if name == "turn with SQLite, reading tools":
                found.add("200 steps with SQLite", await _timed(run, rounds, waits=True), "s")


async def _measure_bytes(found: Durability, folder: Path) -> None:
    for events in (LONG, LONGER):
        path = folder / f"bytes{events}.db"
        workload = _loop(events // EVENTS_OF_A_TURN)
        async with _runner(workload, Script(workload), path) as runner:
            result = await runner.run(QUESTION)
        found.add(f"bytes for an event of {events:,}", _size(path) / len(result.events), "bytes")
    path = folder / "steps.db"
    workload = _loop(STEPS)
    async with _runner(workload, Script(workload), path) as runner:
        await runner.run(QUESTION)
    found.add("bytes of 200 steps", _size(path), "bytes")


def _size(path: Path) -> int:
    return sum(part.stat().st_size for part in path.parent.glob(f"{path.name}*"))


@tool
async def ask(ctx: RunContext) -> str:
    """Ask a person."""
    return str(await ctx.interrupt("?"))


async def _measure_resume(found: Durability, folder: Path, rounds: int) -> None:
    """From the store to the end: a thousand events, an answer, and one more model call."""
    store, turns = SQLiteStore(folder / "resume.db"), LONG // EVENTS_OF_A_TURN - 2
    workload = _loop(turns)
    replies = (*workload.replies[:-1], Reply(calls=(Call("last", "ask", "{}"),)), Reply(FINAL_TEXT))
    script = Script(workload)
    script.replies, script.reads_results = replies, False
    agent = Agent(
        workload.agents[0], tools=[tool(script.step_tool(), effect="read", name="step"), ask], max_turns=MAX_TURNS
    )

    def runner() -> Runner:
        return Runner(agent, model=StubModel(script), limits=LIMITS, store=store)

    waiting = await runner().run(QUESTION, run_id="r")
    assert waiting.status == "suspended"
    samples: list[float] = []
    for _ in range(rounds):
        fork = await runner().runs.fork("r")
        script.model_calls = len(replies) - 1
        other = runner()
        gc.collect()
        started = time.process_time()
        result = await other.resume(fork, "yes")
        samples.append(time.process_time() - started)
        assert result.output == FINAL_TEXT
    assert len(waiting.events) >= LONG
    found.add("resume of 1,000 events", statistics.median(samples) * 1e6, "µs")
    lines = await store.load("r")

    async def load() -> None:
        await store.load("r")

    async def decode() -> None:
        decode_lines(lines)

    found.add("of that, reading the lines", await _timed(load, rounds) * 1e6, "µs")
    found.add("of that, decoding them", await _timed(decode, rounds) * 1e6, "µs")
    await store.close()


def _bare_commit(folder: Path, rounds: int) -> float:
    """One row with the bytes of a turn, committed by the driver alone: what no store in SQLite can be cheaper than."""
    connection = sqlite3.connect(folder / "bare.db", isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = NORMAL")
    connection.execute("CREATE TABLE rows(number INTEGER PRIMARY KEY, line BLOB)")
    row = b"x" * 400
    samples: list[float] = []
    for _ in range(rounds):
        started = time.process_time()
        for _ in range(STEPS):
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("INSERT INTO rows(line) VALUES (?)", (row,))
            connection.execute("COMMIT")
        samples.append((time.process_time() - started) / STEPS)
    connection.close()
    return statistics.median(samples) * 1e6


def _measure_peer(found: Durability, python: str) -> None:
    """LangGraph with its SQLite checkpointer on the same steps, if that interpreter has it."""
    command = [python, "-W", "ignore", "-m", "benchmarks.peers.langgraph_sqlite", str(STEPS)]
    finished = subprocess.run(
        command, cwd=REPOSITORY, env=os.environ | TELEMETRY_OFF, capture_output=True, text=True, check=False
    )
    if finished.returncode == 0:
        told = json.loads(finished.stdout.splitlines()[-1])
        found.add("200 steps with langgraph", told["seconds"], "s")
        found.add("bytes of 200 steps with langgraph", told["bytes"], "bytes")
