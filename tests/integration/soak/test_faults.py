"""Databases that restart and hang, many live leases, and clocks that jump: nothing is abandoned, lost or expired.

A small sample with every test run; many more runs with `make soak`.
"""

import asyncio
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import PROFILE
from tests.postgres import PostgresServer

from batonkit import Agent, Runner
from batonkit.agents import agent
from batonkit.errors import RunExistsError, StoreError
from batonkit.runs import BackgroundRunner
from batonkit.stores import PostgresStore, SQLiteStore, resolve_store
from batonkit.testing import ScriptedModel

IS_SOAK = PROFILE == "soak"
RESTARTS = int(os.environ.get("RESTARTS", "20" if IS_SOAK else "1"))
HANGS = int(os.environ.get("HANGS", "5" if IS_SOAK else "1"))
WAITING_RUNS = 300 if IS_SOAK else 30
LIVE_RUNS = int(os.environ.get("LIVE_RUNS", "10000" if IS_SOAK else "300"))
LEASE = 5.0


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    server = PostgresServer()
    try:
        server.start()
        yield server
    finally:
        server.remove()


def processes_of(server: PostgresServer) -> list[int]:
    """Return the process ids of the server and its children."""
    main = server.pid
    children = subprocess.run(["pgrep", "-P", str(main)], capture_output=True, text=True, check=False).stdout.split()
    return [main, *map(int, children)]


async def eventually(condition: Any, seconds: float) -> None:
    async with asyncio.timeout(seconds):
        while True:
            try:
                if await condition():
                    return
            except StoreError:
                pass  # The database is down for a moment; the limit above ends the wait.
            await asyncio.sleep(0.1)


async def submit_until_stored(runner: Runner[Any, Any], run_id: str) -> None:
    """Submit a run as a client does whose database may be recovering: again under the same id after an error."""

    async def is_stored() -> bool:
        # An earlier attempt may have been stored although the server did not answer in time.
        with suppress(RunExistsError):
            await runner.submit("hi", run_id=run_id)
        return True

    await eventually(is_stored, 300)


async def test_no_run_is_abandoned_when_the_database_restarts_or_hangs(server: PostgresServer) -> None:
    url = server.empty_place()
    store = PostgresStore(url, timeout=3, lease_seconds=2)

    @agent("Slow")
    async def slow(ctx: Any) -> None:
        await asyncio.sleep(random.uniform(0, 0.2))
        await ctx.say("done")

    runner = Runner(slow, store=store)
    run_ids = [await runner.submit("hi", run_id=f"r{number}") for number in range(WAITING_RUNS)]
    background = BackgroundRunner(runner)
    background.start_recovery()
    for number in range(RESTARTS + HANGS):
        await asyncio.sleep(random.uniform(0.2, 0.8))
        if number < RESTARTS:
            await asyncio.to_thread(server.stop, crash=True)
            await asyncio.to_thread(server.start)
        else:
            stopped = processes_of(server)
            for pid in stopped:
                os.kill(pid, signal.SIGSTOP)
            await asyncio.sleep(4)
            for pid in stopped:
                os.kill(pid, signal.SIGCONT)
        if number % 3 == 0:
            await submit_until_stored(runner, f"late{number}")
            run_ids.append(f"late{number}")

    async def all_completed() -> bool:
        return (await store.list(status=["completed"], limit=1, count_total=True)).total == len(run_ids)

    try:
        await eventually(all_completed, 300)
    finally:
        await background.close()
    figures = f"{RESTARTS} restarts, {HANGS} hangs, {len(run_ids)} runs, 0 abandoned"
    sys.stderr.write(f"\npostgres: {figures}\n")
    await store.close()


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
async def test_no_lease_of_many_live_runs_expires(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/runs.db" if kind == "sqlite" else request.getfixturevalue("postgres_url")
    store, go = resolve_store(url, lease_seconds=LEASE), asyncio.Event()

    @agent("Waits")
    async def waits(ctx: Any) -> None:
        await go.wait()

    runner = Runner(waits, store=store)
    runs: list[asyncio.Task[Any]] = []

    async def all_live() -> bool:
        return (await store.list(limit=1, count_total=True)).total == len(runs)

    # Not all at once: they would wait for each other's connections.
    while len(runs) < LIVE_RUNS:
        runs += [asyncio.create_task(runner.run("hi")) for _ in range(min(500, LIVE_RUNS - len(runs)))]
        await eventually(all_live, 300)
    expired, looks, ends = set[str](), 0, time.monotonic() + (4 * LEASE if IS_SOAK else LEASE)
    while time.monotonic() < ends:
        expired |= {record.run_id for record in await store.runnable(limit=LIVE_RUNS)}
        looks += 1
        await asyncio.sleep(0.5)
    sys.stderr.write(f"\n{kind}: {LIVE_RUNS} live leases of {LEASE:g} s, {looks} looks, {len(expired)} expired\n")
    assert expired == set()
    for start in range(0, LIVE_RUNS, 500):
        batch = runs[start : start + 500]
        for run in batch:
            run.cancel()
        await asyncio.gather(*batch, return_exceptions=True)
    await store.close()


async def test_clock_steps_lose_no_turn(tmp_path: Path) -> None:
    random.seed(4)
    offset = [0.0]
    store = SQLiteStore(tmp_path / "runs.db", clock=lambda: time.time() + offset[0])
    turns = 300 if IS_SOAK else 30
    for number in range(turns):
        offset[0] = random.uniform(-7200, 7200)
        runner = Runner(Agent("Desk", model=ScriptedModel(["Yes."])), store=store)
        if number % 5 == 0:
            run_id = await runner.submit(f"turn {number}", thread="t")
            await store.acquire(run_id, "dead", ttl=30)
            offset[0] += random.choice([-3600, 3600])
            assert (await runner.runs.drive(run_id)).status == "completed"
        else:
            await runner.run(f"turn {number}", thread="t")
    messages = await Runner(Agent("Desk", model=ScriptedModel([])), store=store).thread("t").messages()
    assert [message.content for message in messages][::2] == [f"turn {number}" for number in range(turns)]
    sys.stderr.write(f"\nsqlite: {turns} turns with clock steps of up to two hours, 0 lost\n")
    await store.close()
