"""Processes killed at random with SIGKILL: other processes end their runs as if nothing had happened (D8, D9).

A few kills with every test run; KILLS, or 240 of them, with `make soak`.
"""

import asyncio
import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.conftest import PROFILE
from tests.soak.nursery import REPOSITORY, nursery
from tests.soak.orders import EFFECTS_OF_AN_ORDER, ONCE, Deed, Ledger
from tests.soak.worker import runner_for

from baton.events import Event, ToolReturned
from baton.log import Log
from baton.stores import Store, resolve_store

IS_SOAK = PROFILE == "soak"
KILLS = int(os.environ.get("KILLS", "240" if IS_SOAK else "6"))
ROUNDS = int(os.environ.get("ROUNDS", "100" if IS_SOAK else "3"))
NEW_RUNS = 8
"""The number of runs that are submitted before each pair of processes."""
LONGEST_LIFE = 0.7


@contextmanager
def racer(url: str, ledger: Path) -> Generator["subprocess.Popen[str]"]:
    """A process that is ready to race; it is gone afterwards."""
    command = [sys.executable, "-m", "tests.soak.racer", url, str(ledger)]
    pipe = subprocess.PIPE
    started = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True, cwd=REPOSITORY)
    assert started.stdout is not None
    try:
        assert started.stdout.readline() == "ready\n", started.communicate()[1]
        yield started
    finally:
        started.kill()
        started.communicate()


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where the runs are kept."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/runs.db"
    return request.getfixturevalue("postgres_url")


async def submitted(url: str, ledger: Ledger, names: Sequence[str]) -> None:
    """Submit new runs without driving them."""
    async with runner_for(resolve_store(url), ledger) as runner:
        for name in names:
            await runner.submit("an order", run_id=name)


def killed_until_done(url: str, ledger: Path, kills: int) -> list[str]:
    """Have processes work and kill them, each at some time; at last let one of them finish. The runs there were."""
    runs: list[str] = []
    killed = 0
    with nursery(url, ledger) as workers:
        while killed < kills:
            new = [f"order{len(runs) + number}" for number in range(NEW_RUNS)]
            asyncio.run(submitted(url, Ledger(ledger), new))
            runs += new
            for worker in [workers.worker(), workers.worker()]:
                time.sleep(random.uniform(0, LONGEST_LIFE))
                # One that has ended by itself found nothing left to do.
                killed += workers.kill(worker)
        assert workers.wait(workers.worker()) == 0, ledger.with_suffix(".errors").read_text()
    return runs


def test_no_kill_loses_or_repeats_anything(url: str, tmp_path: Path) -> None:
    # D8
    path = tmp_path / "ledger"
    runs = killed_until_done(url, path, KILLS)
    deeds = Ledger(path).deeds()
    asked = asyncio.run(checked(url, runs, deeds))
    repeated = len(deeds) - len({deed.key for deed in deeds})
    kind, figures = url.partition(":")[0], f"{len(deeds)} effects, {repeated} in flight repeated, {asked} asked about"
    sys.stderr.write(f"\n{kind}: {KILLS} kills or more, {len(runs)} runs, {figures}\n")
    assert len(deeds) == len(runs) * EFFECTS_OF_AN_ORDER + repeated


async def checked(url: str, runs: list[str], deeds: list[Deed]) -> int:
    """Check that every log agrees with the ledger; return the number of questions about unknown outcomes."""
    by_key: dict[str, list[Deed]] = {}
    for deed in deeds:
        by_key.setdefault(deed.key, []).append(deed)
    outputs: set[str] = set()
    asked = 0
    async with runner_for(resolve_store(url), Ledger(Path(os.devnull))) as runner:
        store: Store = resolve_store(url)
        for run_id in runs:
            record = await store.record(run_id)
            assert record is not None, f"{run_id} is lost"
            assert record.status == "completed", f"{run_id} is {record.status}"
            events = await runner.events(run_id)
            Log(events)
            _check_effects(run_id, events, by_key)
            asked += sum(event.key.endswith("/ask1!") and "/unknown" in event.key for event in events)
            # With no effects allowed, the code goes the very way that the log tells of.
            outputs.add((await runner.replay(run_id)).output)
        await store.close()
    assert len(outputs) == 1, outputs
    return asked


def _check_effects(run_id: str, events: list[Event], by_key: dict[str, list[Deed]]) -> None:
    recorded = {f"{run_id}:{event.key}": event for event in events if isinstance(event, ToolReturned)}
    mine = {key: deeds for key, deeds in by_key.items() if key.startswith(f"{run_id}:")}
    assert len(mine) == EFFECTS_OF_AN_ORDER
    for key, deeds in mine.items():
        assert key in recorded, f"{key} was done, and nobody knows"
        if deeds[0].tool in ONCE:
            assert len(deeds) == 1, f"{key} must be done once"
        # What is found out by asking is recorded later than it was done.
        late = [deed for deed in deeds if deed.at > recorded[key].timestamp]
        assert not late, f"{key} was done again after it was recorded: {late}, {recorded[key]}"


def test_of_two_processes_that_resume_a_run_one_wins(url: str, tmp_path: Path) -> None:
    # D9
    path = tmp_path / "ledger"
    runs = asyncio.run(suspended(url, Ledger(path), ROUNDS))
    outcomes: Counter[tuple[str, ...]] = Counter()
    with racer(url, path) as one, racer(url, path) as other:
        for run_id in runs:
            for each in (one, other):
                assert each.stdin is not None
                each.stdin.write(f"{run_id}\n")
                each.stdin.flush()
            told = [each.stdout.readline().strip() for each in (one, other) if each.stdout is not None]
            outcomes[tuple(sorted(told))] += 1
    assert outcomes == {("RunConflictError", "completed"): ROUNDS}
    asyncio.run(checked(url, runs, Ledger(path).deeds()))


async def suspended(url: str, ledger: Ledger, count: int) -> list[str]:
    """Runs that wait for an approval."""
    async with runner_for(resolve_store(url), ledger) as runner:
        results = [await runner.run("an order", run_id=f"order{number}") for number in range(count)]
    assert {result.status for result in results} == {"suspended"}
    return [result.run_id for result in results]
