"""The worker: draining, runs that cannot be driven, runs that kill their workers, limits."""

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.runs.recording_store import HeldStore
from tests.waiting import until

from batonkit import Agent, Runner, SequentialAgent
from batonkit.agents import agent
from batonkit.errors import SetupError, StoreError, WorkerDiedError
from batonkit.log import RunFailed
from batonkit.models import Chunk, ModelRequest
from batonkit.runs.stored import recovery
from batonkit.stores import MemoryStore, RunRecord, Store
from batonkit.testing import FaultyStore, ScriptedModel
from batonkit.worker import Concurrency, LocalEngine, Outcome, Worker
from batonkit.worker.deaths import DEATHS_NOTE, PARKED_NOTE


@pytest.fixture(autouse=True)
def patient_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let workers wait for as long as it takes to release their runs."""
    monkeypatch.setattr("batonkit.worker.worker._STOP_SECONDS", 60.0)


async def record_of(store: Store, run_id: str) -> RunRecord:
    record = await store.record(run_id)
    assert record is not None
    return record


async def until_status(store: Store, run_id: str, status: str) -> None:
    await until(lambda: record_of(store, run_id), lambda record: record.status == status)


@asynccontextmanager
async def working(runner: Runner[Any, Any], *, drain: float = 60.0, **options: Any) -> AsyncGenerator[Worker]:
    worker = Worker(runner, engine=LocalEngine(interval=0.02), drain=drain, **options)
    task = asyncio.create_task(worker.run())
    try:
        yield worker
    finally:
        if not worker.is_stopping:
            worker.stop()
        await task


def slow_team(turns: int = 2, *, store: Store | None = None) -> tuple[Runner[Any, Any], asyncio.Event, list[str]]:
    """Return a runner whose agent makes several turns, an event that each turn waits for, and the turns made."""
    go, made = asyncio.Event(), list[str]()

    class Slow:
        name = "slow"

        async def respond(self, request: ModelRequest) -> AsyncIterator[Chunk]:
            made.append("started")
            await go.wait()
            async for chunk in ScriptedModel(["Done."]).respond(request):
                yield chunk

    first = Agent("First", model=Slow(), description="Starts.")
    rest = [Agent(f"Next{number}", model=Slow(), description="Continues.") for number in range(turns - 1)]
    return Runner(SequentialAgent("All", sub_agents=[first, *rest]), store=store or MemoryStore()), go, made


async def test_a_stopped_worker_lets_turns_finish_and_releases_its_runs(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "baton.worker")
    runner, go, made = slow_team()
    store = runner._require_store("test")
    run_id = await runner.submit("hi")
    async with working(runner) as worker:
        await until(lambda: made)
        worker.stop()
        await until(lambda: "for the turns of 1 runs" in caplog.text)
        go.set()
    record = await record_of(store, run_id)
    assert (record.status, record.is_leased, worker.counts.released) == ("running", False, 1)
    assert len(made) == 1, "the second turn was not started"
    async with working(runner) as second:
        await until_status(store, run_id, "completed")
    assert (len(made), second.counts.completed) == (2, 1), "the first turn was not repeated"


async def test_turns_that_take_too_long_are_stopped() -> None:
    runner, _, made = slow_team()
    run_id = await runner.submit("hi")
    async with working(runner, drain=0.01) as worker:
        await until(lambda: made)
    record = await record_of(runner._require_store("test"), run_id)
    assert (record.status, record.is_leased, worker.counts.released) == ("running", False, 1)


async def test_a_second_stop_ends_the_wait() -> None:
    runner, _, made = slow_team()
    await runner.submit("hi")
    async with working(runner, drain=10_000) as worker:
        await until(lambda: made)
        worker.stop()
        worker.stop()


async def test_the_context_of_a_run_comes_from_the_factory() -> None:
    seen: list[Any] = []

    @agent("Desk")
    async def desk(ctx: Any) -> None:
        seen.append(ctx.context)

    store = MemoryStore()
    runner = Runner(desk, store=store, context_factory=lambda record: f"context of {record.owner}")
    run_id = await runner.submit("hi", owner="ada")
    async with working(runner):
        await until_status(store, run_id, "completed")
    assert seen == ["context of ada"]


async def test_an_unavailable_store_postpones_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recovery, "_FIRST_DELAY", 0.05)
    store = FaultyStore(MemoryStore())
    runner = Runner(Agent("Desk", model=ScriptedModel(["Hello."] * 9)), store=store)
    run_ids = [await runner.submit("hi") for _ in range(3)]
    store.fail("acquire", times=4)
    store.fail("runnable", times=2)
    async with working(runner) as worker:
        for run_id in run_ids:
            await until_status(store, run_id, "completed")
    assert worker.counts.postponed >= 1
    assert [await store.notes(run_id) for run_id in run_ids] == [{}, {}, {}]


async def test_undrivable_runs_keep_the_reason() -> None:
    store = MemoryStore()
    old = Runner(Agent("Old", model=ScriptedModel([])), store=store)
    run_id = await old.submit("hi")
    changed = Worker(Runner(Agent("New", model=ScriptedModel([])), store=store))
    assert (await changed.drive(run_id)).retry_in == recovery._PERMANENT_DELAY
    assert b"TeamChangedError" in (await store.notes(run_id))[recovery.UNDRIVABLE_NOTE]
    assert (await record_of(store, run_id)).status == "running"


async def test_changes_can_be_accepted() -> None:
    store = MemoryStore()
    run_id = await Runner(Agent("Desk", instructions="old", model=ScriptedModel([])), store=store).submit("hi")
    changed = Runner(Agent("Desk", instructions="new", model=ScriptedModel(["Hello."])), store=store)
    async with working(changed, accept_changes=True):
        await until_status(store, run_id, "completed")


async def die(store: Store, run_id: str, times: int = 1) -> None:
    """Leave a run as workers do that are killed while they drive it."""
    for number in range(times):
        await store.acquire(run_id, f"dead {number}", ttl=0)


async def test_a_run_that_kills_its_workers_is_parked_and_can_be_retried() -> None:
    store = MemoryStore()
    runner = Runner(Agent("Desk", model=ScriptedModel(["Hello."])), store=store)
    run_id = await runner.submit("hi")
    for number in range(1, 4):
        await die(store, run_id)
        worker = Worker(runner, max_deaths=3)
        if number < 3:
            await worker._deaths.count(await record_of(store, run_id))
        else:
            assert await worker.drive(run_id) == Outcome("failed")
            assert worker.counts.parked == 1
    event = (await runner.runs.events(run_id))[-1]
    assert isinstance(event, RunFailed)
    assert (event.error_type, "3 workers died" in event.message) == (WorkerDiedError.__name__, True)
    assert b"3 workers died" in (await store.notes(run_id))[PARKED_NOTE]
    await runner.runs.retry(run_id)
    async with working(runner):
        await until_status(store, run_id, "completed")


async def test_a_parked_run_can_be_retried_before_the_worker_that_parked_it_knows() -> None:
    store = HeldStore("failed")
    runner = Runner(Agent("Desk", model=ScriptedModel(["Hello."])), store=store)
    run_id = await runner.submit("hi")
    await die(store, run_id)
    parking = asyncio.create_task(Worker(runner, max_deaths=1).drive(run_id))
    await store.stored.wait()
    assert PARKED_NOTE in await store.notes(run_id)
    await runner.runs.retry(run_id)
    assert (await runner.runs.drive(run_id)).status == "completed"
    store.go.set()
    assert await parking == Outcome("failed")


async def test_deaths_count_only_while_the_log_does_not_grow() -> None:
    store = MemoryStore()
    runner = Runner(Agent("Desk", model=ScriptedModel(["Hello."])), store=store)
    worker, run_id = Worker(runner, max_deaths=3), await runner.submit("hi")
    for deaths in (1, 2):
        await die(store, run_id)
        record = await record_of(store, run_id)
        # One death counts once, whichever worker sees it.
        assert [await worker._deaths.count(record), await worker._deaths.count(record)] == [deaths, deaths]
    await store.append(run_id, (await record_of(store, run_id)).seq, [b"{}"])
    await die(store, run_id)
    assert await worker._deaths.count(await record_of(store, run_id)) == 1


async def test_released_runs_have_not_died() -> None:
    store = MemoryStore()
    runner = Runner(Agent("Desk", model=ScriptedModel(["Hello."])), store=store)
    run_id = await runner.submit("hi")
    await store.release(await store.acquire(run_id, "worker", ttl=60))
    worker = Worker(runner)
    assert (await worker.drive(run_id)).status == "completed"
    assert DEATHS_NOTE not in await store.notes(run_id)


async def test_suspects_are_driven_one_at_a_time() -> None:
    # A run that kills its worker must not take the others down with it until all of them are parked.
    runner, go, made = slow_team(1)
    store = runner._require_store("test")
    run_ids = [await runner.submit("hi") for _ in range(3)]
    worker = Worker(runner, max_deaths=5)
    for run_id in run_ids:
        for _ in range(2):
            await die(store, run_id)
            await worker._deaths.count(await record_of(store, run_id))
    first = asyncio.create_task(worker.drive(run_ids[0]))
    await until(lambda: made)
    others = [await worker.drive(run_id) for run_id in run_ids[1:]]
    assert [(one.status, one.retry_in) for one in others] == [("running", 1.0), ("running", 1.0)]
    go.set()
    assert (await first).status == "completed"
    assert (await worker.drive(run_ids[1])).status == "completed"


async def test_limits_hold_for_each_owner_and_in_total() -> None:
    store = FaultyStore(MemoryStore())
    runner, go, made = slow_team(1, store=store)
    run_ids = [await runner.submit("hi", owner=owner) for owner in ("ada", "ada", "ada", "bob", "eve")]
    async with working(runner, limits=Concurrency(per_owner=2, total=3)) as worker:
        await until(lambda: len(made) == 3)
        polls = store.calls.count("runnable")
        await until(lambda: store.calls.count("runnable") >= polls + 3)
        assert set(worker.driving) == {run_ids[0], run_ids[1], run_ids[3]}
        go.set()
        for run_id in run_ids:
            await until_status(store, run_id, "completed")


async def test_an_unreachable_store_makes_the_worker_unhealthy(monkeypatch: pytest.MonkeyPatch) -> None:
    from batonkit.worker import local_engine as local

    monkeypatch.setattr(local, "_UNHEALTHY_AFTER", 0.01)
    store = FaultyStore(MemoryStore())
    store.fail("runnable", times=10_000, error=StoreError("down"))
    async with working(Runner(Agent("Desk", model=ScriptedModel([])), store=store)) as worker:
        await until(lambda: "the store has not answered" in worker.engine.problem())


def test_mistakes_are_reported() -> None:
    runner = Runner(Agent("Desk", model=ScriptedModel([])), store=MemoryStore())
    with pytest.raises(SetupError, match=r"needs stored runs"):
        Worker(Runner(Agent("Desk", model=ScriptedModel([]))))
    with pytest.raises(SetupError, match=r"concurrency=…\) is 0"):
        Worker(runner, concurrency=0)
    with pytest.raises(SetupError, match="redis"):
        Worker(runner, engine="redis")
    with pytest.raises(SetupError, match="needs a PostgresStore"):
        Worker(runner, engine="postgres")
    with pytest.raises(SetupError, match="the engine `temporal` has no limits per owner or in total; use the engine"):
        Worker(runner, engine="temporal", limits=Concurrency(per_owner=2))
    assert Worker(runner, engine="temporal", limits=Concurrency()).engine.name == "temporal"
    with pytest.raises(SetupError, match="per_owner"):
        Concurrency(per_owner=0)
