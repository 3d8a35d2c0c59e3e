"""Rows that others lock, senders that freeze, owners that flood a store, and retention that races with work.

A small sample with every test run, much more with `make soak`. Each scenario prints how many runs it tried, and for how
many of them a promise was broken.
"""

import asyncio
import os
import random
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import PROFILE
from tests.integration.worker.processes import REPOSITORY
from tests.postgres import locked_run
from tests.waiting import until

from batonkit import Runner
from batonkit.agents import AgentContext, agent
from batonkit.errors import RunConflictError, RunNotFoundError
from batonkit.stores import FullStore, PostgresStore, SQLiteStore
from batonkit.stores.retention import expire_runs, read_archive
from batonkit.worker import Concurrency, LocalEngine, PostgresEngine, Worker

IS_SOAK = PROFILE == "soak"
LIVE_RUNS = 150
# Long enough in every test run that no lease expires because the machine is busy.
LEASE = 3.0 if IS_SOAK else 10.0
LOCKED_SECONDS = 30.0 if IS_SOAK else 12.0
"""The time for which a run stays locked, longer than a lease."""
FLOOD = 10_000 if IS_SOAK else 200
OTHERS = 20 if IS_SOAK else 5
PER_OWNER = 5
OVERTAKEN = 20 * PER_OWNER
"""The most runs of the flood that may start while a run of another owner waits."""
OLD_RUNS = 2000 if IS_SOAK else 100

OpenStore = Callable[[], FullStore]


def report(what: str, tried: int, violated: int, details: str = "") -> None:
    """Print the figures of a scenario, and fail if a promise was broken."""
    sys.stderr.write(f"\n{what}: {tried} tried, {violated} violated{f', {details}' if details else ''}\n")
    assert violated == 0


@pytest.fixture(params=["sqlite", "postgres"])
def open_store(request: pytest.FixtureRequest, tmp_path: Path) -> OpenStore:
    """Open a store, each time with connections of its own."""
    if request.param == "sqlite":
        return lambda: SQLiteStore(tmp_path / "runs.db")
    url: str = request.getfixturevalue("postgres_url")
    return lambda: PostgresStore(url)


class LiveRuns:
    """Runs that are being driven, each of which waits in a step, and another worker that takes over what is lost."""

    def __init__(self, url: str) -> None:
        self.store = PostgresStore(url, lease_seconds=LEASE)
        self._rival_store = PostgresStore(url, lease_seconds=LEASE)
        self.executed: Counter[str] = Counter()
        self._go = asyncio.Event()

        @agent("Waits")
        async def waits(ctx: AgentContext) -> None:
            await ctx.step("work", lambda: self._work(ctx.run_id))
            await ctx.say("done")

        self.runner = Runner(waits, store=self.store)
        rival = Runner(waits, store=self._rival_store)
        self._rival = Worker(rival, engine=LocalEngine(), concurrency=2 * LIVE_RUNS, max_deaths=1000)
        self._rivalry: asyncio.Task[None] | None = None
        self._tasks: dict[str, asyncio.Task[Any]] = {}

    async def _work(self, run_id: str) -> bool:
        self.executed[run_id] += 1
        await self._go.wait()
        return True

    async def start(self, count: int) -> None:
        """Start runs, each in a thread of its own, and wait until all of them work."""
        for number in range(count):
            run = self.runner.run("hi", run_id=f"r{number}", thread=f"t{number}")
            self._tasks[f"r{number}"] = asyncio.create_task(run)
        await until(lambda: len(self.executed) == count)
        self._rivalry = asyncio.create_task(self._rival.run())

    async def finish(self) -> dict[str, object]:
        """Let the runs end; return the outcome of each that did not complete after one execution of its step."""
        self._go.set()
        assert self._rivalry is not None
        self._rival.stop()
        await self._rivalry
        await self._rival_store.close()
        outcomes = await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        bad = dict[str, object]()
        for run_id, outcome in zip(self._tasks, outcomes, strict=True):
            if isinstance(outcome, BaseException) or outcome.status != "completed" or self.executed[run_id] != 1:
                bad[run_id] = outcome
        return bad


async def test_one_locked_run_costs_no_other_run_its_lease(postgres_url: str) -> None:
    live = LiveRuns(postgres_url)
    await live.start(LIVE_RUNS)
    async with locked_run(postgres_url, "r70"):
        await asyncio.sleep(LOCKED_SECONDS)
    bad = await live.finish()
    lost = "and the locked one" if bad.pop("r70", None) is not None else "not even the locked one"
    await live.store.close()
    report(f"a run locked for {LOCKED_SECONDS:g} s", LIVE_RUNS - 1, len(bad), f"{lost} lost its lease")


SENDER = """
import asyncio, os, signal, sys
from psycopg import AsyncConnection
from batonkit import Runner
from batonkit.agents import agent
from batonkit.stores import PostgresStore

execute = AsyncConnection.execute
is_frozen = False

async def execute_and_freeze(connection, statement, *args, **more):
    global is_frozen
    cursor = await execute(connection, statement, *args, **more)
    if not is_frozen and str(statement).startswith("UPDATE baton_runs SET inbox"):
        is_frozen = True
        os.kill(os.getpid(), signal.SIGSTOP)  # The row is locked, and COMMIT has not been sent.
    return cursor

AsyncConnection.execute = execute_and_freeze

@agent("Waits")
async def waits(ctx):
    pass

async def main():
    store = PostgresStore(sys.argv[1], timeout=float(sys.argv[2]))
    await Runner(waits, store=store).submit("more", thread=sys.argv[3], run_id=sys.argv[4], when_busy="queue")
    await store.close()

asyncio.run(main())
"""


def _is_stopped(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


async def test_a_sender_that_freezes_before_its_commit_costs_no_run_its_lease(postgres_url: str) -> None:
    rounds = 5 if IS_SOAK else 1
    live = LiveRuns(postgres_url)
    await live.start(LIVE_RUNS)
    sent: list[bool] = []
    for number in range(rounds):
        # The server ends the transaction of a frozen sender after its timeout, which is shorter than a lease.
        arguments = [postgres_url, str(LEASE / 3), f"t{number}", f"more{number}"]
        path = os.pathsep.join([str(REPOSITORY), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
        environment = {**os.environ, "PYTHONPATH": path}
        command = [sys.executable, "-c", SENDER, *arguments]
        sender = await asyncio.to_thread(subprocess.Popen, command, env=environment, stderr=subprocess.DEVNULL)
        try:
            await until(lambda pid=sender.pid: _is_stopped(pid))
            await asyncio.sleep(LOCKED_SECONDS)
            sender.send_signal(signal.SIGCONT)
            sent.append(await asyncio.to_thread(sender.wait, 60) == 0)
        finally:
            sender.kill()
            sender.wait()
    waiting = [await live.store.waiting(f"more{number}") is not None for number in range(rounds)]
    # A sender that was told of a failure has sent nothing.
    wrong = [number for number in range(rounds) if sent[number] != waiting[number]]
    bad = await live.finish()
    await live.store.close()
    details = f"{rounds} senders, {sum(sent)} of which sent their message after all"
    report("senders frozen in a transaction", LIVE_RUNS + rounds, len(bad) + len(wrong), details)


@pytest.mark.parametrize("engine", ["local", "postgres"])
async def test_the_flood_of_one_owner_holds_up_no_other(engine: str, request: pytest.FixtureRequest) -> None:
    store: FullStore
    if engine == "local":
        store = SQLiteStore(request.getfixturevalue("tmp_path") / "runs.db")
    else:
        store = PostgresStore(request.getfixturevalue("postgres_url"))
    started: list[str] = []
    busy: Counter[str] = Counter()
    most: Counter[str] = Counter()

    @agent("Works")
    async def works(ctx: AgentContext) -> None:
        owner = ctx.run_id.partition("-")[0]
        started.append(ctx.run_id)
        busy[owner] += 1
        most[owner] = max(most[owner], busy[owner])
        await asyncio.sleep(0.002)
        busy[owner] -= 1
        await ctx.say("done")

    runner = Runner(works, store=store)
    for first in range(0, FLOOD, 50):
        await asyncio.gather(*[runner.submit("x", run_id=f"busy-{first + n}", owner="busy") for n in range(50)])
    chosen = LocalEngine() if engine == "local" else PostgresEngine(store)
    worker = Worker(runner, engine=chosen, limits=Concurrency(per_owner=PER_OWNER))
    working = asyncio.create_task(worker.run())
    overtaken: list[int] = []
    await until(lambda: len(started) >= PER_OWNER)
    for number in range(OTHERS):
        before = len(started)
        run_id = await runner.submit("x", run_id=f"quick{number}-0", owner=f"quick{number}")
        await until(lambda run_id=run_id: run_id in started)
        overtaken.append(started.index(run_id) - before)
    if not IS_SOAK:
        await until(lambda: len(started) == FLOOD + OTHERS)
    worker.stop()
    await working
    await store.close()
    violated = sum(count > OVERTAKEN for count in overtaken) + sum(count > PER_OWNER for count in most.values())
    report(
        f"{FLOOD} runs of one owner, {engine}",
        OTHERS,
        violated,
        f"at most {max(overtaken)} runs of the flood started before one of another owner",
    )


class Resumer:
    """Continues finished runs as a worker does: acquires the lease, appends a line and releases it."""

    def __init__(self, store: FullStore) -> None:
        self._store = store
        self.confirmed: dict[str, bytes] = {}
        """The line that the store confirmed for each run."""
        self.broken: list[str] = []
        """Runs that could not be written to although the lease was held."""

    async def resume(self, run_id: str) -> None:
        try:
            lease = await self._store.acquire(run_id, "resumer", ttl=60)
        except (RunConflictError, RunNotFoundError):
            return
        line = b'{"resumed":"%s"}' % run_id.encode()
        try:
            await self._store.append(run_id, 1, [line], fence=lease.fence, status="running")
            await asyncio.sleep(0)
            await self._store.append(run_id, 2, [], fence=lease.fence, status="completed", release=True)
        except (RunConflictError, RunNotFoundError):
            self.broken.append(run_id)
        else:
            self.confirmed[run_id] = line


async def test_a_slow_archive_loses_no_work_that_is_added_meanwhile(
    open_store: OpenStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Leases that last for a moment only: an archive that takes longer than its leases, in a short time.
    monkeypatch.setattr("batonkit.stores.retention._LEASE_SECONDS", 0.01)
    archive = tmp_path / "old.jsonl.gz"
    store = open_store()
    run_ids = [f"r{number}" for number in range(OLD_RUNS)]
    for run_id in run_ids:
        await store.create(run_id, [b"{}"], status="completed")
    resumer = Resumer(store)
    copied: list[str] = []

    async def archive_slowly() -> None:
        slow = open_store()
        load = slow.load

        async def load_slowly(run_id: str, *, start: int = 0) -> Sequence[bytes]:
            lines = await load(run_id, start=start)
            copied.append(run_id)
            await asyncio.sleep(0.01)
            return lines

        slow.load = load_slowly
        await expire_runs(slow, 0, archive=archive)
        await slow.close()

    archiving = asyncio.create_task(archive_slowly())
    while not archiving.done():
        if copied and (run_id := random.choice(copied[-50:])) not in resumer.confirmed:
            await resumer.resume(run_id)
        await asyncio.sleep(0.005)
    await archiving
    archived = {run.record.run_id: [bytes(line) for line in run.log] for run in read_archive(archive)}
    lost = await _lost(store, run_ids, archived, resumer.confirmed)
    await store.close()
    details = f"{len(archived)} archived, {len(resumer.confirmed)} resumed meanwhile"
    report("a slow archive", OLD_RUNS, len(lost) + len(resumer.broken), details)


async def _lost(
    store: FullStore, run_ids: Sequence[str], archived: dict[str, list[bytes]], confirmed: dict[str, bytes]
) -> list[str]:
    """Return the runs that are in neither place, or not with what was confirmed."""
    lost: list[str] = []
    for run_id in run_ids:
        stored = [*await store.load(run_id)] if await store.record(run_id) is not None else archived.get(run_id, [])
        wanted = {b"{}", *([confirmed[run_id]] if run_id in confirmed else [])}
        if not wanted <= {*stored}:
            lost.append(run_id)
    return lost


async def test_retention_never_deletes_a_run_that_is_being_resumed(open_store: OpenStore) -> None:
    store = open_store()
    await store.list()  # Creates the tables.
    resumer = Resumer(store)
    is_over = threading.Event()

    async def expire() -> int:
        other = open_store()
        deleted = 0
        while not is_over.is_set():
            deleted += await other.expire(0)
        await other.close()
        return deleted

    # In another thread, so that both stores are in use at the same time.
    expiring = asyncio.create_task(asyncio.to_thread(asyncio.run, expire()))
    for number in range(OLD_RUNS):
        await store.create(f"r{number}", [b"{}"], status="completed")
        await resumer.resume(f"r{number}")
    is_over.set()
    deleted = await expiring
    await store.close()
    details = f"{deleted} expired, {len(resumer.confirmed)} of them resumed before"
    report("retention against resumption", OLD_RUNS, len(resumer.broken), details)
