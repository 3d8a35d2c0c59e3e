"""The memory of a worker that has driven many runs which now wait for answers."""

import asyncio
import gc
import tracemalloc
from pathlib import Path
from typing import Any

from tests.waiting import until

from batonkit import Runner
from batonkit.agents import agent
from batonkit.stores import SQLiteStore
from batonkit.worker import LocalEngine, Worker

SUSPENDED = 500
MEGABYTE = 1_000_000


async def test_suspended_runs_take_little_memory(tmp_path: Path) -> None:
    @agent("Asks")
    async def asks(ctx: Any) -> None:
        await ctx.say("A sentence of a common length, as agents say them. " * 10)
        await ctx.interrupt({"question": "Shall I go on?"})

    store = SQLiteStore(tmp_path / "runs.db")
    runner = Runner(asks, store=store)
    submitter = Runner(asks, store=tmp_path / "runs.db")
    worker = Worker(runner, engine=LocalEngine(interval=0.02))
    working = asyncio.create_task(worker.run())

    async def suspend(count: int) -> None:
        wanted = worker.counts.suspended + count
        for _ in range(count):
            await submitter.submit("hi")
        await until(lambda: worker.counts.suspended >= wanted and not worker.driving, within=300)

    await suspend(50)
    gc.collect()
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        await suspend(SUSPENDED)
        gc.collect()
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    worker.stop()
    await working
    await runner.close()
    await submitter.close()
    assert after - before <= 5 * MEGABYTE, f"{(after - before) / MEGABYTE:.1f} MB for {SUSPENDED} suspended runs"
