"""Stored runs that are submitted, driven, answered, listed and recovered."""

import asyncio
from typing import Any

import pytest
from tests.runs.recording_store import RecordingStore, copy_without_leases, get_record, load_events
from tests.unfinished import list_unfinished, recover

from batonkit import Agent, RunContext, Runner, SetupError, tool
from batonkit.errors import ModelError, RunConflictError, StoreError
from batonkit.stores import MemoryStore
from batonkit.testing import ScriptedModel, call, transcript


@tool
async def ask(ctx: RunContext, question: str) -> str:
    """Ask."""
    return str(await ctx.interrupt(question))


def make_runner(store: Any, steps: Any, **options: Any) -> Runner[Any, Any]:
    return Runner(Agent("A", model=ScriptedModel(steps), tools=[ask]), store=store, **options)


async def test_a_submitted_run_is_driven_by_any_runner() -> None:
    store = RecordingStore()
    run_id = await make_runner(store, []).submit("hi", values={"x": 1}, run_id="r")
    record = await get_record(store, "r")
    assert (run_id, record.status, record.worker) == ("r", "running", "")
    other = make_runner(store, ["done"])
    assert [found.run_id for found in await list_unfinished(other)] == ["r"]
    assert (await other.runs.drive("r")).status == "completed"
    assert transcript(await load_events(store, "r")) == [
        'run of A started with "hi"',
        "A started",
        'A: said "done"',
        "A finished",
        "run completed",
    ]


async def test_driving_a_run_that_is_not_running_leaves_it_alone() -> None:
    # Driving is idempotent.
    store = RecordingStore()
    runner = make_runner(store, [call("ask", question="?"), "done"])
    await runner.submit("hi", run_id="r")
    assert (await runner.runs.drive("r")).status == "suspended"
    lines = await store.load("r")
    assert [(await runner.runs.drive("r")).status, await recover(runner)] == ["suspended", {}]
    assert await store.load("r") == lines
    await runner.runs.answer("r", "yes")
    assert [record.run_id for record in await list_unfinished(runner)] == ["r"]
    assert [(await runner.runs.drive("r")).status for _ in range(2)] == ["completed", "completed"]


async def test_a_run_that_stopped_meanwhile_is_not_driven() -> None:
    # It stopped between reading the record and acquiring the lease.
    store = RecordingStore()
    runner = make_runner(store, [call("ask", question="?")])
    await runner.submit("hi", run_id="r")
    seen = await get_record(store, "r")
    assert (await runner.runs.drive("r")).status == "suspended"

    class StaleStore(MemoryStore):
        """A store that first returns an outdated record."""

        reads = 0

        async def record(self, run_id: str) -> Any:
            self.reads += 1
            return seen if self.reads == 1 else await super().record(run_id)

    stale = StaleStore()
    stale.__dict__.update(store.__dict__)
    lines = await store.load("r")
    assert (await make_runner(stale, ["must not be asked"]).runs.drive("r")).status == "suspended"
    assert (await store.load("r"), (await get_record(store, "r")).lease_until) == (lines, 0.0)


async def test_an_answer_is_written_without_driving() -> None:
    store = RecordingStore()
    runner = make_runner(store, [call("ask", question="?")])
    await runner.run("hi", run_id="r")
    await runner.runs.answer("r", "yes")
    record = await get_record(store, "r")
    assert (record.status, record.lease_until) == ("running", 0.0)
    assert transcript(await load_events(store, "r"))[-2:] == ["run resumed", 'A: got the answer "yes"']
    assert await recover(make_runner(store, ["done"])) == {"r": "completed"}


async def test_a_failed_run_is_recorded_and_not_retried() -> None:
    store = RecordingStore()
    runner = make_runner(store, [ModelError("overloaded"), "done"])
    await runner.submit("hi", run_id="r")
    assert (await runner.runs.drive("r")).status == "failed"
    assert await list_unfinished(runner) == []
    assert (await runner.resume("r")).output == "done"


async def test_an_error_that_prevents_driving_is_raised() -> None:
    store = RecordingStore()
    await store.create("r", [b"not a log"])
    with pytest.raises(Exception, match="names its format"):
        await make_runner(store, []).runs.drive("r")


async def test_recover_drives_the_other_runs_if_one_cannot_be_driven(caplog: pytest.LogCaptureFixture) -> None:
    store = RecordingStore()
    runner = Runner(Agent("A", model=ScriptedModel(["done"], cycle=True), tools=[ask]), store=store)
    await store.create("damaged", [b"not a log"])
    for number in range(20):
        await runner.submit("hi", run_id=f"r{number}")
    held = await store.acquire("r7", "another worker", ttl=60)
    recovered = await recover(runner, max_concurrency=3)
    assert recovered == {"damaged": "running"} | {f"r{n}": "completed" for n in range(20) if n != 7}
    assert "could not drive run `damaged`" in caplog.text
    await store.release(held)
    assert (await recover(runner))["r7"] == "completed"


async def test_unfinished_runs_on_all_pages_are_found() -> None:
    # The store gives them in pages.
    store = RecordingStore()
    runner = make_runner(store, [])
    for number in range(250):
        await runner.submit("hi", run_id=f"r{number}")
    assert [record.run_id for record in await list_unfinished(runner)] == [f"r{number}" for number in range(250)]


async def test_a_run_whose_driver_died_is_driven_after_its_lease_expired() -> None:
    store = RecordingStore()
    started = asyncio.Event()
    runs: list[str] = []

    @tool
    async def hang(ctx: RunContext) -> str:
        """Hang the first time."""
        runs.append(ctx.idempotency_key)
        if len(runs) == 1:
            started.set()
            await asyncio.Event().wait()
        return "ok"

    def runner(store: MemoryStore, steps: Any) -> Runner[Any, Any]:
        return Runner(Agent("A", model=ScriptedModel(steps), tools=[hang]), store=store)

    dying = asyncio.create_task(runner(store, [call("hang")]).run("hi", run_id="r"))
    await started.wait()
    assert await list_unfinished(runner(store, [])) == []
    with pytest.raises(RunConflictError):
        await runner(store, []).runs.drive("r")
    copy = await copy_without_leases(store)
    dying.cancel()
    assert await recover(runner(copy, ["done"])) == {"r": "completed"}
    assert runs == ["r:1/m1.0"] * 2
    with pytest.raises(asyncio.CancelledError):
        await dying


async def test_a_store_failure_does_not_mark_the_run_as_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    # It can be resumed after the fault.
    monkeypatch.setattr("batonkit.runs.stored.journal._FIRST_PAUSE", 0.0)
    store = RecordingStore()
    runner = make_runner(store, [call("ask", question="?"), "done"])
    await runner.submit("hi", run_id="r")
    store.faults["append"] += [StoreError("gone")] * 6
    with pytest.raises(StoreError):
        await runner.runs.drive("r")
    assert (await get_record(store, "r")).status == "running"
    assert await recover(make_runner(store, [call("ask", question="?"), "done"])) == {"r": "suspended"}


async def test_recovered_runs_get_the_context() -> None:
    store = RecordingStore()
    seen: list[Any] = []

    @tool
    async def look(ctx: RunContext) -> str:
        """Look."""
        seen.append(ctx.context)
        return "ok"

    runner = Runner(Agent("A", model=ScriptedModel([call("look"), "done"], cycle=True), tools=[look]), store=store)
    await runner.submit("hi")
    await recover(runner, context="mine")
    await runner.runs.drive(await runner.submit("hi"), context="yours")
    assert seen == ["mine", "yours"]


async def test_a_runner_without_a_store_submits_drives_and_answers_runs_in_its_memory() -> None:
    runner = make_runner(None, [call("ask", question="?"), "done"])
    run_id = await runner.submit("hi")
    assert (await runner.runs.drive(run_id)).status == "suspended"
    await runner.runs.answer(run_id, "yes")
    assert (await runner.runs.drive(run_id)).status == "completed"
    assert await runner.runs.cancel(run_id) == "completed"


async def test_lease_seconds_must_be_positive() -> None:
    with pytest.raises(SetupError, match=r"MemoryStore\(lease_seconds=…\) is 0; give more than 0"):
        MemoryStore(lease_seconds=0)
