"""Processes killed at random with SIGKILL: other processes end their runs as if nothing had happened.

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
from tests.integration.soak.fork_server import REPOSITORY, start_fork_server
from tests.integration.soak.orders import EFFECTS_OF_AN_ORDER, ONCE, Effect, EffectLog
from tests.integration.soak.worker import make_runner

from batonkit.log import Event, ToolReturned
from batonkit.log.log import Log
from batonkit.stores import Store, resolve_store

IS_SOAK = PROFILE == "soak"
KILLS = int(os.environ.get("KILLS", "240" if IS_SOAK else "6"))
ROUNDS = int(os.environ.get("ROUNDS", "100" if IS_SOAK else "3"))
NEW_RUNS = 8
"""The number of runs that are submitted before each pair of processes."""
MAX_LIFETIME = 0.7


@contextmanager
def start_resume_worker(url: str, log_path: Path) -> Generator["subprocess.Popen[str]"]:
    """Start a process that resumes runs, and kill it afterwards."""
    command = [sys.executable, "-m", "tests.integration.soak.resume_worker", url, str(log_path)]
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
    """Return the URL of a store."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/runs.db"
    return request.getfixturevalue("postgres_url")


async def submit_runs(url: str, effect_log: EffectLog, names: Sequence[str]) -> None:
    """Submit new runs without driving them."""
    async with make_runner(resolve_store(url), effect_log) as runner:
        for name in names:
            await runner.submit("an order", run_id=name)


def kill_workers(url: str, log_path: Path, kills: int) -> list[str]:
    """Start workers and kill each after a random time; let the last one finish. Return the ids of all runs."""
    runs: list[str] = []
    killed = 0
    with start_fork_server(url, log_path) as workers:
        while killed < kills:
            new = [f"order{len(runs) + number}" for number in range(NEW_RUNS)]
            asyncio.run(submit_runs(url, EffectLog(log_path), new))
            runs += new
            for worker in [workers.start_worker(), workers.start_worker()]:
                time.sleep(random.uniform(0, MAX_LIFETIME))
                # A worker that has already ended found no runs to drive.
                killed += workers.kill(worker)
        assert workers.wait(workers.start_worker()) == 0, log_path.with_suffix(".errors").read_text()
    return runs


def test_no_kill_loses_or_repeats_anything(url: str, tmp_path: Path) -> None:
    log_path = tmp_path / "effects"
    runs = kill_workers(url, log_path, KILLS)
    effects = EffectLog(log_path).effects()
    unknown_outcomes = asyncio.run(check_logs(url, runs, effects))
    repeated = len(effects) - len({effect.key for effect in effects})
    kind, figures = (
        url.partition(":")[0],
        f"{len(effects)} effects, {repeated} in flight repeated, {unknown_outcomes} unknown outcomes",
    )
    sys.stderr.write(f"\n{kind}: {KILLS} kills or more, {len(runs)} runs, {figures}\n")
    assert len(effects) == len(runs) * EFFECTS_OF_AN_ORDER + repeated


async def check_logs(url: str, runs: list[str], effects: list[Effect]) -> int:
    """Check that every log agrees with the ledger; return the number of questions about unknown outcomes."""
    by_key: dict[str, list[Effect]] = {}
    for effect in effects:
        by_key.setdefault(effect.key, []).append(effect)
    outputs: set[str] = set()
    unknown_outcomes = 0
    async with make_runner(resolve_store(url), EffectLog(Path(os.devnull))) as runner:
        store: Store = resolve_store(url)
        for run_id in runs:
            record = await store.record(run_id)
            assert record is not None, f"{run_id} is lost"
            assert record.status == "completed", f"{run_id} is {record.status}"
            events = await runner.runs.events(run_id)
            Log(events)
            _check_effects(run_id, events, by_key)
            unknown_outcomes += sum(event.key.endswith("/ask1!") and "/unknown" in event.key for event in events)
            # The replay raises an error if the code does not follow the log.
            outputs.add((await runner.runs.replay(run_id)).output)
        await store.close()
    assert len(outputs) == 1, outputs
    return unknown_outcomes


def _check_effects(run_id: str, events: list[Event], by_key: dict[str, list[Effect]]) -> None:
    recorded = {f"{run_id}:{event.key}": event for event in events if isinstance(event, ToolReturned)}
    effects_by_key = {key: effects for key, effects in by_key.items() if key.startswith(f"{run_id}:")}
    assert len(effects_by_key) == EFFECTS_OF_AN_ORDER
    for key, effects in effects_by_key.items():
        assert key in recorded, f"{key} was done but not recorded"
        if effects[0].tool in ONCE:
            assert len(effects) == 1, f"{key} must be done once"
        # An outcome that a person reported is recorded later than it happened.
        late = [effect for effect in effects if effect.at > recorded[key].timestamp]
        assert not late, f"{key} was done again after it was recorded: {late}, {recorded[key]}"


def test_of_two_processes_that_resume_a_run_one_wins(url: str, tmp_path: Path) -> None:
    log_path = tmp_path / "effects"
    runs = asyncio.run(make_suspended_runs(url, EffectLog(log_path), ROUNDS))
    outcomes: Counter[tuple[str, ...]] = Counter()
    with start_resume_worker(url, log_path) as one, start_resume_worker(url, log_path) as other:
        for run_id in runs:
            for each in (one, other):
                assert each.stdin is not None
                each.stdin.write(f"{run_id}\n")
                each.stdin.flush()
            statuses = [each.stdout.readline().strip() for each in (one, other) if each.stdout is not None]
            outcomes[tuple(sorted(statuses))] += 1
    # On a busy machine the second process may ask when the first has completed the run.
    assert outcomes.keys() <= {("RunConflictError", "completed"), ("RunError", "completed")}
    assert outcomes.total() == ROUNDS
    asyncio.run(check_logs(url, runs, EffectLog(log_path).effects()))


async def make_suspended_runs(url: str, effect_log: EffectLog, count: int) -> list[str]:
    """Create runs that wait for an approval."""
    async with make_runner(resolve_store(url), effect_log) as runner:
        results = [await runner.run("an order", run_id=f"order{number}") for number in range(count)]
    assert {result.status for result in results} == {"suspended"}
    return [result.run_id for result in results]
