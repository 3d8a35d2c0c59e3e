"""Processes that share threads and are killed at random: no turn is lost, and none is out of order.

A few kills with every test run; THREAD_KILLS, or 1,000 of them, with `make soak`.
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
from tests.unfinished import recover

from batonkit import Agent, Runner
from batonkit.errors import BatonError, StoreError, ThreadBusyError
from batonkit.log import RunStarted
from batonkit.messages import UserMessage, text_of
from batonkit.stores import iter_records, resolve_store
from batonkit.testing import ScriptedModel

KILLS = int(os.environ.get("THREAD_KILLS", "1000" if PROFILE == "soak" else "12"))
FIRST_TURN_SECONDS = 60
"""The time limit for the first turn, on a machine that is busy with other tests."""
THREADS = ("t0", "t1", "t2")
LEASE = 0.5
MAX_LIFETIME = {"sqlite": 0.15, "postgres": 0.4}


def make_runner(store: Any) -> Runner[Any, Any]:
    store.lease_seconds = LEASE
    return Runner(Agent("Desk", model=ScriptedModel(["Yes."] * 100_000)), store=store)


async def continue_threads(url: str, turns_file: Path) -> None:
    """Continue threads without end, and append every completed turn to a file."""
    store = resolve_store(url)
    runner, number = make_runner(store), 0
    while True:
        thread, number = random.choice(THREADS), number + 1
        text = f"{os.getpid()}.{time.monotonic_ns()}.{number}"
        try:
            result = await runner.run(text, thread=thread)
        except ThreadBusyError as error:
            await take_over(runner, error.run_id)
            continue
        if result.status == "completed":
            with turns_file.open("a") as file:
                file.write(f"{thread} {text}\n")


async def take_over(runner: Runner[Any, Any], run_id: str) -> None:
    """Drive a run if no one does."""
    try:
        await runner.runs.drive(run_id)
    except (StoreError, BatonError):
        await asyncio.sleep(0.005)


async def prepare_store(url: str) -> None:
    """Create the tables and load the driver, so that no worker spends its short life on that."""
    store = resolve_store(url)
    await store.list()
    await store.close()


def fork_worker(url: str, turns_file: Path) -> int:
    worker = os.fork()
    if worker == 0:
        try:
            asyncio.run(continue_threads(url, turns_file))
        finally:
            os._exit(1)
    return worker


def kill(worker: int) -> None:
    os.kill(worker, signal.SIGKILL)
    os.waitpid(worker, 0)


async def find_violations(url: str, turns_file: Path) -> tuple[int, int, list[str]]:
    """Return the number of runs, of answered turns, and everything that is wrong."""
    store, found, total = resolve_store(url), list[str](), 0
    runner = make_runner(store)
    async with asyncio.timeout(120):
        while [record async for record in iter_records(store, status=["running"])]:
            await recover(runner)
            await asyncio.sleep(0.05)
    answered = [line.split() for line in turns_file.read_text().splitlines()]
    for thread in THREADS:
        records = await runner.thread(thread).runs()
        total += len(records)
        previous, inputs = "", list[str]()
        for record in records:
            started = (await runner.runs.events(record.run_id))[0]
            assert isinstance(started, RunStarted)
            if (record.previous, started.previous_run_id) != (previous, previous):
                found.append(f"{record.run_id} follows {started.previous_run_id!r}, not {previous!r}")
            previous = record.run_id
            inputs += [text_of(message.content) for message in started.input]
        messages = await runner.thread(thread).messages()
        texts = [text_of(message.content) for message in messages if isinstance(message, UserMessage)]
        if texts != inputs:
            found.append(f"{thread} has {len(texts)} turns in its history and {len(inputs)} in its runs")
        lost = {text for of, text in answered if of == thread} - set(texts)
        found += [f"{thread} lost {text}" for text in lost]
    await store.close()
    return total, len(answered), found


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_no_kill_loses_a_turn_of_a_thread(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/runs.db" if kind == "sqlite" else request.getfixturevalue("postgres_url")
    turns_file = tmp_path / "turns"
    turns_file.touch()
    asyncio.run(prepare_store(url))
    workers = [fork_worker(url, turns_file) for _ in range(4)]
    try:
        deadline = time.monotonic() + FIRST_TURN_SECONDS
        while not turns_file.stat().st_size and time.monotonic() < deadline:
            time.sleep(0.01)
        for _ in range(KILLS):
            time.sleep(random.uniform(0, MAX_LIFETIME[kind]))
            kill(workers.pop(0))
            workers.append(fork_worker(url, turns_file))
    finally:
        for worker in workers:
            kill(worker)
    runs, answered, found = asyncio.run(find_violations(url, turns_file))
    sys.stderr.write(f"\n{kind}: {KILLS} kills, {runs} runs, {answered} turns answered, {len(found)} violations\n")
    assert found == []
    assert answered > 0
