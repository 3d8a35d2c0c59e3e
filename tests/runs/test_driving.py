"""Driving runs for an engine: cancellation releases them, and a dead attempt's lease can be taken."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.runs.recording_store import ManualClock, RecordingStore, get_record, load_events
from tests.unfinished import list_unfinished, recover

from batonkit import Agent, RunContext, Runner, SetupError, tool
from batonkit.errors import RunConflictError
from batonkit.log import RunCancelled
from batonkit.runs import BackgroundRunner, DriveResult
from batonkit.stores import MemoryStore, RunRecord, SQLiteStore
from batonkit.testing import FaultyStore, ScriptedModel, call


class Hanging:
    """A team whose tool hangs until it is let go."""

    def __init__(self) -> None:
        self.started = asyncio.Event()
        self.gate = asyncio.Event()
        self.executions = 0

    def runner(self, store: Any, *steps: Any, **options: Any) -> Runner[Any, Any]:
        """Create a runner with a model of its own, which calls the tool and then answers by default."""

        @tool
        async def work() -> str:
            """Work."""
            self.executions += 1
            self.started.set()
            await self.gate.wait()
            return "worked"

        agent = Agent("A", model=ScriptedModel(steps or [call("work"), "done"]), tools=[work])
        return Runner(agent, store=store, **options)


async def driving(team: Hanging, runner: Runner[Any, Any], **options: Any) -> "asyncio.Task[DriveResult]":
    """Submit a run, and drive it until its tool hangs."""
    await runner.submit("go", run_id="r")
    task = asyncio.create_task(runner.runs.drive("r", **options))
    await team.started.wait()
    return task


async def test_cancelling_the_task_that_drives_releases_the_run() -> None:
    store, team = RecordingStore(), Hanging()
    task = await driving(team, team.runner(store))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    record = await get_record(store, "r")
    assert (record.status, record.is_leased, record.lease_until) == ("running", False, 0.0)
    assert not [event for event in await load_events(store, "r") if isinstance(event, RunCancelled)]
    team.gate.set()
    assert (await team.runner(store, "done").runs.drive("r")).status == "completed"
    assert team.executions == 2


async def test_a_driver_whose_event_loop_ends_releases_the_run(tmp_path: Any) -> None:
    store = SQLiteStore(tmp_path / "runs.db")

    def process() -> None:
        async def main() -> None:
            team = Hanging()
            await driving(team, team.runner(store))  # The task is left running.

        asyncio.run(main())

    await asyncio.to_thread(process)
    record = await store.record("r")
    assert record is not None
    assert (record.status, record.is_leased) == ("running", False)
    await store.close()


async def test_a_timeout_around_drive_releases_the_run() -> None:
    store, team = RecordingStore(), Hanging()
    runner = team.runner(store)
    await runner.submit("go", run_id="r")

    async def drive_for_a_while() -> None:
        async with asyncio.timeout(None) as limit:
            team.started = _Rescheduling(limit)
            await runner.runs.drive("r")

    with pytest.raises(TimeoutError):
        await drive_for_a_while()
    record = await get_record(store, "r")
    assert (record.status, record.is_leased) == ("running", False)


class _Rescheduling(asyncio.Event):
    """An event that makes a time limit pass when it is set."""

    def __init__(self, limit: asyncio.Timeout) -> None:
        super().__init__()
        self._limit = limit

    def set(self) -> None:
        self._limit.reschedule(0)


async def test_cancelling_run_and_resume_still_records_it() -> None:
    store, team = RecordingStore(), Hanging()
    task = asyncio.create_task(team.runner(store).run("go", run_id="r"))
    await team.started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (await get_record(store, "r")).status == "cancelled"
    team.started.clear()
    task = asyncio.create_task(team.runner(store).resume("r"))
    await team.started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert isinstance((await load_events(store, "r"))[-1], RunCancelled)


async def test_a_request_to_cancel_is_recorded_wherever_the_run_is_driven(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("batonkit.runs.stored.journal._MAX_RENEW_INTERVAL", 0.005)
    store, team = RecordingStore(), Hanging()
    task = await driving(team, team.runner(store))
    assert await team.runner(store).runs.cancel("r") == "running"
    assert (await task).status == "cancelled"
    assert isinstance((await load_events(store, "r"))[-1], RunCancelled)


async def test_a_tool_that_raises_cancelled_error_does_not_release_the_run() -> None:
    # It would raise it in every worker.
    @tool(on_error="raise")
    async def give_up() -> str:
        """Give up."""
        raise asyncio.CancelledError

    store = RecordingStore()
    runner = Runner(Agent("A", model=ScriptedModel([call("give_up")]), tools=[give_up]), store=store)
    await runner.submit("go", run_id="r")
    await runner.runs.drive("r")
    assert (await get_record(store, "r")).status == "failed"


async def test_a_driver_that_is_cancelled_while_it_acquires_the_lease_releases_it() -> None:
    inner, team = MemoryStore(), Hanging()
    store = FaultyStore(inner)
    runner = team.runner(store)
    await runner.submit("go", run_id="r")
    store.hang("acquire")
    task = asyncio.create_task(runner.runs.drive("r"))
    await store.wait_until_hanging()
    task.cancel()
    await asyncio.sleep(0)
    store.resume()
    with pytest.raises(asyncio.CancelledError):
        await task
    record = await get_record(inner, "r")
    assert (record.status, record.fence, record.is_leased) == ("running", 2, False)


async def test_leaving_the_stream_of_a_driven_run_releases_it() -> None:
    store, team = RecordingStore(), Hanging()
    runner = team.runner(store)
    await runner.submit("go", run_id="r")
    async with runner.runs.stream_drive("r") as stream:
        await team.started.wait()
    record = await get_record(store, "r")
    assert (record.status, record.is_leased, stream.run_id) == ("running", False, "r")
    team.started.clear()
    async with team.runner(store).runs.stream_drive("r") as stream:
        await team.started.wait()
        await stream.cancel()
    assert (await get_record(store, "r")).status == "cancelled"


async def test_an_attempt_takes_the_lease_of_a_dead_one_at_once_and_the_zombie_is_stopped() -> None:
    store, team = RecordingStore(), Hanging()
    zombie = await driving(team, team.runner(store), worker="job-7")
    assert (await get_record(store, "r")).worker == "job-7"
    with pytest.raises(RunConflictError, match="`job-7` holds its lease"):
        await team.runner(store).runs.drive("r")
    with pytest.raises(RunConflictError, match="`job-7` holds its lease"):
        await team.runner(store).runs.drive("r", worker="job-8")
    team.started.clear()
    second = asyncio.create_task(team.runner(store, "done").runs.drive("r", worker="job-7"))
    await team.started.wait()
    team.gate.set()
    with pytest.raises(RunConflictError):
        await zombie
    assert (await second).status == "completed"
    assert [type(event).__name__ for event in await load_events(store, "r")].count("ToolReturned") == 1


async def test_a_process_that_drives_a_run_does_not_take_it_from_itself() -> None:
    store, team = RecordingStore(), Hanging()
    runner = team.runner(store)
    task = await driving(team, runner, worker="job-7")
    with pytest.raises(RunConflictError, match="this process drives it already"):
        await runner.runs.drive("r", worker="job-7")
    team.gate.set()
    assert (await task).status == "completed"


async def test_drive_returns_the_open_interrupts() -> None:
    @tool
    async def ask(ctx: RunContext) -> str:
        """Ask."""
        return str(await ctx.interrupt("Really?"))

    runner = Runner(Agent("A", model=ScriptedModel([call("ask"), "done"]), tools=[ask]), store="memory:")
    await runner.submit("go", run_id="r")
    first, again = await runner.runs.drive("r"), await runner.runs.drive("r")
    assert first == again
    assert (first.status, first.wake_at, [each.payload for each in first.interrupts]) == ("suspended", 0.0, ["Really?"])
    await runner.runs.answer("r", "yes")
    assert await runner.runs.drive("r") == DriveResult("completed")


@pytest.mark.parametrize("moment", [timedelta(minutes=5), datetime.fromtimestamp(1_000_300, UTC)])
async def test_a_run_is_not_driven_before_its_time(moment: "datetime | timedelta") -> None:
    # By the store's clock.
    clock = ManualClock()
    store = MemoryStore(clock=clock)
    runner = Runner(Agent("A", model=ScriptedModel(["done"])), store=store)
    await runner.submit("go", run_id="r", not_before=moment)
    assert await runner.runs.drive("r") == DriveResult("running", 1_000_300.0)
    assert await recover(runner) == {}
    clock.now += 299.9
    assert await list_unfinished(runner) == []
    clock.now += 0.2
    assert await recover(runner) == {"r": "completed"}
    assert await runner.runs.drive("r") == DriveResult("completed")


async def test_a_time_without_a_zone_is_refused() -> None:
    runner = Runner(Agent("A", model=ScriptedModel(["done"])), store="memory:")
    with pytest.raises(SetupError, match=r"Runner.submit\(not_before=…\) has no time zone; pass an aware datetime"):
        await runner.submit("go", not_before=datetime(2030, 1, 1))


async def test_runs_are_recorded_with_team_and_priority_and_returned_by_them() -> None:
    store = MemoryStore()
    one, two = (Runner(Agent(name, model=ScriptedModel(["done"])), store=store) for name in ("A", "B"))
    assert one.team.fingerprint == Runner(Agent("A")).team.fingerprint != two.team.fingerprint
    await one.submit("go", run_id="low")
    await one.submit("go", run_id="high", priority=5)
    await two.submit("go", run_id="other")
    assert [run.run_id for run in await store.runnable(teams=[one.team.fingerprint])] == ["high", "low"]
    assert [run.team for run in await store.runnable(teams=[two.team.fingerprint])] == [two.team.fingerprint]


async def test_a_message_that_waits_keeps_its_schedule() -> None:
    clock, team = ManualClock(), Hanging()
    store = MemoryStore(clock=clock)
    runner = team.runner(store)
    await runner.submit("go", run_id="first", thread="t")
    await runner.submit(
        "then", run_id="second", thread="t", when_busy="queue", priority=3, not_before=timedelta(hours=1)
    )
    team.gate.set()
    assert (await runner.runs.drive("first")).status == "completed"
    record = await get_record(store, "second")
    assert (record.priority, record.wake_at, record.is_due) == (3, clock.now + 3600, False)


async def test_the_context_factory_serves_every_way_to_open_a_run() -> None:
    seen: list[Any] = []

    @tool
    async def look(ctx: RunContext[str]) -> str:
        """Look."""
        seen.append(ctx.context)
        return str(await ctx.interrupt("Go on?"))

    def context_for(run: RunRecord) -> str:
        return f"{run.run_id} of {run.owner} in {run.thread or 'no thread'}"

    def runner(step: Any = None, **options: Any) -> Runner[Any, Any]:
        agent = Agent("A", model=ScriptedModel([step or call("look")]), tools=[look])
        return Runner(agent, context_factory=context_for, **options)

    store = MemoryStore()
    await runner().run("hi", run_id="memory", owner="ada")
    await runner(store=store).run("hi", run_id="stored", thread="t", owner="ada")
    await runner("done", store=store).resume("stored", "yes")
    await runner(store=store).submit("hi", run_id="sent", owner="bob")
    await recover(runner(store=store))
    background = BackgroundRunner(runner("done", store=store))
    await background.resume("sent", "yes")
    await background.close()
    await runner(store=store).run("hi", context="given")
    assert seen == [
        "memory of ada in no thread",
        *["stored of ada in t"] * 2,
        *["sent of bob in no thread"] * 2,
        "given",
    ]
