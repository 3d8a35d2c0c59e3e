"""`baton worker` in several processes that are killed, stopped and frozen, and servers that crash.

A small sample with every test run; KILLS, or 100 of them, with `make soak`.
"""

import asyncio
import os
import random
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import PROFILE
from tests.integration.soak.orders import EFFECTS_OF_AN_ORDER, EffectLog
from tests.integration.soak.test_kills import check_logs, submit_runs
from tests.integration.soak.worker import answer_all, make_runner
from tests.integration.worker.processes import WorkerProcess
from tests.postgres import PostgresServer
from tests.temporal_server import TemporalServer

from batonkit.errors import StoreError
from batonkit.stores import resolve_store

IS_SOAK = PROFILE == "soak"
KILLS = int(os.environ.get("KILLS", "100" if IS_SOAK else "1"))
RUNS_PER_KILL = 4
OUTAGES = (2.0, 20.0) if IS_SOAK else (2.0,)
WAIT = 3600.0 if IS_SOAK else 600.0
MAX_START = 120.0
"""The most seconds to wait for the next effect before a worker is killed."""
DRAIN = 3.0
PAUSE = "0.2"

ENGINES = ("local", "postgres", "temporal")
SAMPLED_ENGINES = ENGINES if IS_SOAK else ("postgres",)


class Field:
    """A store, an engine and a ledger, with workers that are started and killed by a test."""

    def __init__(self, engine: str, url: str, folder: Path, address: str = "") -> None:
        self.url = url
        self.folder = folder
        self.effects = EffectLog(folder / "effects")
        self.runs: list[str] = []
        self._options = ["--engine", engine, *(("--address", address) if address else ())]
        self._environment = {
            "BATON_SOAK_STORE": url,
            "BATON_SOAK_EFFECTS": str(folder / "effects"),
            "BATON_SOAK_PAUSE": PAUSE,
        }

    def worker(self, *options: str, environment: Mapping[str, str] | None = None) -> WorkerProcess:
        """Start a worker."""
        arguments = ("tests.integration.soak.worker_target:runner", *self._options, "--max-deaths", "1000", *options)
        return WorkerProcess(*arguments, cwd=self.folder, environment={**self._environment, **(environment or {})})

    @contextmanager
    def workers(self, count: int, *options: str) -> Generator[list[WorkerProcess]]:
        """Start workers, which are killed at the end of the block."""
        with ExitStack() as stack:
            started = [stack.enter_context(self.worker(*options)) for _ in range(count)]
            for worker in started:
                worker.wait_until_ready()
            yield started

    async def submit(self, count: int) -> None:
        """Submit runs."""
        new = [f"order{len(self.runs) + number}" for number in range(count)]
        await submit_runs(self.url, self.effects, new)
        self.runs += new

    async def find_busy(self, workers: Sequence[WorkerProcess]) -> int | None:
        """Wait for the next effect; return the place of the worker that had it, or None after a while."""
        known = len(self.effects.effects())
        try:
            async with asyncio.timeout(MAX_START):
                while True:
                    processes = {effect.process for effect in self.effects.effects()[known:]}
                    busy = [place for place, one in enumerate(workers) if one.process.pid in processes]
                    if busy:
                        return random.choice(busy)
                    await asyncio.sleep(0.1)
        except TimeoutError:
            return None

    async def wait(self, workers: Sequence[WorkerProcess]) -> None:
        """Answer interrupts until all runs have completed."""
        store = resolve_store(self.url)
        async with asyncio.timeout(WAIT), make_runner(store, self.effects) as runner:
            while True:
                try:
                    await answer_all(runner, store, self.effects)
                    if not (await store.list(status=["running", "suspended"], limit=1)).records:
                        return
                except StoreError:
                    pass  # The database is down for a moment; the limit above ends the wait.
                assert all(worker.process.poll() is None for worker in workers), [one.output for one in workers]
                await asyncio.sleep(0.05)

    async def check(self, what: str, *, frozen: Sequence[int] = ()) -> None:
        """Check all logs against the ledger, and print the figures.

        Args:
            what: The test, for the figures.
            frozen: Processes that were frozen in the middle of calls, whose effects happened when they woke up.
        """
        effects = self.effects.effects()
        others = {effect.key for effect in effects if effect.process not in frozen}
        counted = [effect for effect in effects if effect.process not in frozen or effect.key not in others]
        unknown = await check_logs(self.url, self.runs, counted)
        repeated = len(effects) - len({effect.key for effect in effects})
        figures = f"{len(effects)} effects, {repeated} in flight repeated, {unknown} unknown outcomes"
        sys.stderr.write(f"\n{what}: {len(self.runs)} runs, 0 lost, 0 wrong, {figures}\n")
        assert len(effects) == len(self.runs) * EFFECTS_OF_AN_ORDER + repeated


@pytest.fixture
def field(request: pytest.FixtureRequest, tmp_path: Path) -> Field:
    """A field for each engine."""
    engine: str = request.param
    if engine == "local":
        return Field(engine, f"sqlite:///{tmp_path}/runs.db", tmp_path)
    url = request.getfixturevalue("postgres_url")
    address = request.getfixturevalue("temporal_server").address if engine == "temporal" else ""
    return Field(engine, url, tmp_path, address)


@pytest.mark.parametrize("field", ENGINES, indirect=True)
async def test_kills_lose_and_repeat_nothing(field: Field, request: pytest.FixtureRequest) -> None:
    at_work = 0
    with ExitStack() as stack:
        workers = [stack.enter_context(field.worker()) for _ in range(2)]
        for number in range(KILLS):
            await field.submit(RUNS_PER_KILL)
            for worker in workers:
                await asyncio.to_thread(worker.wait_until_ready)
            # Killing a worker that does nothing would prove nothing.
            busy = await field.find_busy(workers)
            at_work += busy is not None
            place = number % 2 if busy is None else busy
            await asyncio.sleep(random.uniform(0, 1.5))
            workers[place].kill()
            workers[place] = stack.enter_context(field.worker())
        await field.wait(workers)
    await field.check(f"{request.node.name}, {KILLS} kills, {at_work} of them at work")
    assert at_work > KILLS // 2


@pytest.mark.parametrize("field", SAMPLED_ENGINES, indirect=True)
async def test_sigterm_with_twenty_runs(field: Field, request: pytest.FixtureRequest) -> None:
    await field.submit(20)
    with field.workers(1, "--drain", str(DRAIN)) as (first,):
        async with asyncio.timeout(WAIT):
            while len(field.effects.effects()) < 20:
                await asyncio.sleep(0.02)
        seconds = await asyncio.to_thread(first.terminate)
        assert first.process.returncode == 0, first.output
    with field.workers(1) as (second,):
        await field.wait([second])
        await asyncio.to_thread(second.terminate)
    await field.check(f"{request.node.name}, gone {seconds:.1f} s after SIGTERM with --drain {DRAIN:g}")


@pytest.mark.parametrize("field", SAMPLED_ENGINES, indirect=True)
async def test_a_frozen_worker_writes_nothing_after_its_runs_were_taken_over(
    field: Field, request: pytest.FixtureRequest
) -> None:
    with field.workers(2) as workers:
        for _ in range(5 if IS_SOAK else 1):
            await field.submit(8)
            await asyncio.sleep(0.5)
            frozen = workers[0].process
            frozen.send_signal(signal.SIGSTOP)
            await asyncio.sleep(7)
            frozen.send_signal(signal.SIGCONT)
        await field.wait(workers)
    await field.check(f"{request.node.name}, SIGSTOP for 7 s", frozen=[worker.process.pid for worker in workers[:1]])


def _clock(offset: str) -> dict[str, str]:
    """Return the environment of a process with another clock; installs the library if necessary."""
    if shutil.which("faketime") is None:
        subprocess.run(["apt-get", "install", "-y", "faketime"], check=True, stdout=subprocess.DEVNULL)
    (library, *_) = Path("/usr/lib").glob("*/faketime/libfaketime.so.1")
    # Not the program `faketime`, which would be killed instead of the worker.
    return {"LD_PRELOAD": str(library), "FAKETIME": offset, "FAKETIME_DONT_FAKE_MONOTONIC": "1"}


@pytest.mark.skipif(not IS_SOAK, reason="needs a program of the operating system; `make soak` installs it")
@pytest.mark.parametrize("field", ["postgres", "temporal"], indirect=True)
async def test_clocks_that_are_wrong_by_two_hours(field: Field, request: pytest.FixtureRequest) -> None:
    with ExitStack() as stack:
        workers = [stack.enter_context(field.worker(environment=_clock(offset))) for offset in ("+2h", "-2h")]
        for _ in range(3):
            await field.submit(8)
            await asyncio.sleep(1)
        await field.wait(workers)
    await field.check(f"{request.node.name}, clocks of workers 2 h ahead and 2 h behind")


@pytest.mark.parametrize("field", SAMPLED_ENGINES, indirect=True)
async def test_a_process_that_dies_after_submitting_leaves_a_run_for_workers(field: Field) -> None:
    # Between the store and the queue.
    program = (
        "import asyncio, os\nfrom tests.integration.soak.worker_target import runner\n"
        "async def main():\n    await runner.submit('an order', run_id='order0')\n    os._exit(9)\nasyncio.run(main())"
    )
    environment = {**os.environ, **field._environment}
    submitted = await asyncio.to_thread(
        subprocess.run, [sys.executable, "-c", program], env=environment, cwd=Path(__file__).parents[3], check=False
    )
    assert submitted.returncode == 9
    field.runs.append("order0")
    with field.workers(1) as workers:
        await field.wait(workers)
    await field.check("killed between submit and enqueue")


@pytest.fixture
def own_postgres() -> Iterator[PostgresServer]:
    """A server of this test alone, which it may crash."""
    server = PostgresServer()
    try:
        server.start()
        yield server
    finally:
        server.remove()


async def _crash(seconds: float, stop: Callable[..., Any], start: Callable[[], Any]) -> None:
    await asyncio.to_thread(stop, crash=True)
    await asyncio.sleep(seconds)
    await asyncio.to_thread(start)


@pytest.mark.parametrize("seconds", OUTAGES)
async def test_the_database_crashes(own_postgres: PostgresServer, tmp_path: Path, seconds: float) -> None:
    field = Field("postgres", own_postgres.url, tmp_path)
    with field.workers(2) as workers:
        await field.submit(12)
        await asyncio.sleep(0.7)
        await _crash(seconds, own_postgres.stop, own_postgres.start)
        await field.submit(4)
        await field.wait(workers)
    await field.check(f"PostgreSQL down for {seconds:g} s")


@pytest.mark.parametrize("seconds", OUTAGES)
async def test_the_temporal_server_is_killed(postgres_url: str, tmp_path: Path, seconds: float) -> None:
    server = TemporalServer(tmp_path)
    server.start()
    try:
        field = Field("temporal", postgres_url, tmp_path, server.address)
        with field.workers(2) as workers:
            await field.submit(12)
            await asyncio.sleep(0.7)
            await _crash(seconds, server.stop, server.start)
            await field.submit(4)
            await field.wait(workers)
        await field.check(f"Temporal down for {seconds:g} s")
    finally:
        server.stop()
