"""Processes that share threads and are killed at random: no turn is lost, and none is out of order (F3, F4).

A few kills with every test run; THREAD_KILLS, or 5,000 of them, with `make soak`.
"""

import asyncio
import os
import random
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import PROFILE

from baton import Agent, Runner
from baton.errors import BatonError, StoreError, ThreadBusyError
from baton.events import RunStarted
from baton.messages import UserMessage, text_of
from baton.stores import Store, iter_records, resolve_store
from baton.testing import ScriptedModel

KILLS = int(os.environ.get("THREAD_KILLS", "5000" if PROFILE == "soak" else "12"))
THREADS = ("t0", "t1", "t2")
LEASE = 0.5
LONGEST_LIFE = {"sqlite": 0.15, "postgres": 0.4}


def desk(store: Store) -> Runner[Any, Any]:
    return Runner(Agent("Desk", model=ScriptedModel(["Yes."] * 100_000)), store=store, lease_seconds=LEASE)


async def talk(url: str, ledger: Path) -> None:
    """Continue threads for ever; every turn that was answered is in the ledger."""
    store = resolve_store(url)
    runner, number = desk(store), 0
    while True:
        thread, number = random.choice(THREADS), number + 1
        text = f"{os.getpid()}.{time.monotonic_ns()}.{number}"
        try:
            result = await runner.run(text, thread=thread)
        except ThreadBusyError as busy:
            await take_over(runner, busy.run_id)
            continue
        if result.status == "completed":
            with ledger.open("a") as file:
                file.write(f"{thread} {text}\n")


async def take_over(runner: Runner[Any, Any], run_id: str) -> None:
    """Drive a run if no one does."""
    try:
        await runner.drive(run_id)
    except (StoreError, BatonError):
        await asyncio.sleep(0.005)


async def open_once(url: str) -> None:
    """Create the tables and load the driver, so that no worker spends its short life on that."""
    store = resolve_store(url)
    await store.list()
    await store.close()


def forked(url: str, ledger: Path) -> int:
    worker = os.fork()
    if worker == 0:
        try:
            asyncio.run(talk(url, ledger))
        finally:
            os._exit(1)
    return worker


def kill(worker: int) -> None:
    os.kill(worker, signal.SIGKILL)
    os.waitpid(worker, 0)


async def violations_of(url: str, ledger: Path) -> tuple[int, int, list[str]]:
    """Return the number of runs, of answered turns, and everything that is wrong."""
    store, found, total = resolve_store(url), list[str](), 0
    runner = desk(store)
    async with asyncio.timeout(120):
        while [record async for record in iter_records(store, status=["running"])]:
            await runner.recover()
            await asyncio.sleep(0.05)
    answered = [line.split() for line in ledger.read_text().splitlines()]
    for thread in THREADS:
        records = await runner.thread(thread).runs()
        total += len(records)
        previous, inputs = "", list[str]()
        for record in records:
            started = (await runner.events(record.run_id))[0]
            assert isinstance(started, RunStarted)
            if (record.previous, started.previous_run_id) != (previous, previous):
                found.append(f"{record.run_id} follows {started.previous_run_id!r}, not {previous!r}")
            previous = record.run_id
            inputs += [text_of(message.content) for message in started.input]
        messages = await runner.thread(thread).messages()
        said = [text_of(message.content) for message in messages if isinstance(message, UserMessage)]
        if said != inputs:
            found.append(f"{thread} has {len(said)} turns in its history and {len(inputs)} in its runs")
        lost = {text for of, text in answered if of == thread} - set(said)
        found += [f"{thread} lost {text}" for text in lost]
    await store.close()
    return total, len(answered), found


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_no_kill_loses_a_turn_of_a_thread(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    # F3
    url = f"sqlite:///{tmp_path}/runs.db" if kind == "sqlite" else request.getfixturevalue("postgres_url")
    ledger = tmp_path / "ledger"
    ledger.touch()
    asyncio.run(open_once(url))
    workers = [forked(url, ledger) for _ in range(4)]
    try:
        for _ in range(KILLS):
            time.sleep(random.uniform(0, LONGEST_LIFE[kind]))
            kill(workers.pop(0))
            workers.append(forked(url, ledger))
    finally:
        for worker in workers:
            kill(worker)
    runs, answered, found = asyncio.run(violations_of(url, ledger))
    sys.stderr.write(f"\n{kind}: {KILLS} kills, {runs} runs, {answered} turns answered, {len(found)} violations\n")
    assert found == []
    assert answered > 0
