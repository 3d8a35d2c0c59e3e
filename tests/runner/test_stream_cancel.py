"""Cancellation, now or after the turn, by any runner: nothing keeps running, and all runs can be resumed."""

import asyncio
from typing import Any, Literal

import pytest
from tests.runner.recording_store import RecordingStore, get_record, load_events

from baton import Agent, ParallelAgent, RunContext, Runner, SetupError, tool
from baton.errors import RunConflictError, RunError, RunNotFoundError
from baton.events import TextDelta
from baton.testing import ScriptedModel, ScriptedStream, call, transcript, transfer_to

SHORT = 1.0


class Hall:
    """Tools that wait here, and how each wait ended."""

    def __init__(self) -> None:
        self.waiting: list[str] = []
        self.ended: list[str] = []
        self.go = asyncio.Event()

    def tool(self) -> Any:
        @tool
        async def wait(ctx: RunContext) -> str:
            """Wait."""
            self.waiting.append(ctx.agent)
            try:
                await self.go.wait()
            finally:
                self.ended.append(ctx.agent)
            return "waited"

        return wait

    async def everybody(self, count: int) -> None:
        while len(self.waiting) < count:
            await asyncio.sleep(0)


def team(kind: str, hall: Hall) -> tuple[Any, dict[str, list[Any]], int]:
    """An agent, what its models say, and how many wait in the hall at once."""
    tools = [hall.tool()]
    if kind == "tools":
        return Agent("A", tools=tools), {"A": [[call("wait"), call("wait")], "done"]}, 2
    if kind == "branches":
        branches = [Agent(name, description=name, tools=tools) for name in "ABC"]
        return ParallelAgent("All", sub_agents=branches), {name: [call("wait"), "done"] for name in "ABC"}, 3
    if kind == "nested":
        inner = Agent("Inner", description="i", tools=tools)
        middle = Agent("Middle", description="m", tools=[inner.as_tool()])
        steps = {
            "A": [call("middle", request="go"), "done"],
            "Middle": [call("inner", request="go"), "middle done"],
            "Inner": [call("wait"), "inner done"],
        }
        return Agent("A", tools=[middle.as_tool()]), steps, 1
    inner = Agent("B", description="b", tools=tools)
    return Agent("A", sub_agents=[inner]), {"A": [transfer_to("B")], "B": [call("wait"), "done"]}, 1


def nothing_is_left_running() -> bool:
    return asyncio.all_tasks() == {asyncio.current_task()}


@pytest.mark.parametrize("is_stored", [False, True])
@pytest.mark.parametrize("kind", ["tools", "branches", "nested", "transfers"])
async def test_cancel_now_stops_a_run_at_any_point(kind: str, is_stored: bool) -> None:
    # D10
    hall, store = Hall(), RecordingStore()
    agent, steps, waiters = team(kind, hall)
    model = ScriptedModel(steps)
    runner = Runner(agent, model=model, store=store if is_stored else None)
    async with runner.stream("hi", run_id="r") as live:
        await hall.everybody(waiters)
        asked = len(model.requests)
        await live.cancel()
        assert nothing_is_left_running()
    assert live.result.status == "cancelled"
    assert len(hall.ended) == waiters
    hall.go.set()
    result = await runner.resume("r")
    assert result.status == "completed"
    # What the models had said was not asked for again.
    assert len(model.requests) > asked
    assert model.remaining == 0
    if is_stored:
        assert tuple(await load_events(store, "r")) == result.events


@pytest.mark.parametrize("is_stored", [False, True])
@pytest.mark.parametrize("kind", ["tools", "branches", "nested", "transfers"])
async def test_cancel_after_turn_stops_a_run_at_any_point(kind: str, is_stored: bool) -> None:
    # D10
    hall, store = Hall(), RecordingStore()
    agent, steps, waiters = team(kind, hall)
    model = ScriptedModel(steps)
    runner = Runner(agent, model=model, store=store if is_stored else None)
    async with runner.stream("hi", run_id="r") as live:
        await hall.everybody(waiters)
        asked = len(model.requests)
        await live.cancel("after_turn")
        hall.go.set()
        _ = [event async for event in live]
    assert (live.result.status, len(model.requests)) == ("cancelled", asked)
    assert hall.ended == hall.waiting
    assert nothing_is_left_running()
    result = await runner.resume("r")
    assert (result.status, model.remaining) == ("completed", 0)
    assert len(hall.waiting) == waiters, "a tool whose turn was done has run again"


async def test_a_stream_of_a_model_is_cut_and_asked_for_again() -> None:
    # D10
    store = RecordingStore()
    model = ScriptedModel([ScriptedStream("half an ", asyncio.Event()), "a whole answer"])
    runner = Runner(Agent("A", model=model), store=store)
    async with runner.stream("hi", run_id="r") as live:
        async for event in live:
            if isinstance(event, TextDelta):
                await live.cancel()
    assert (await get_record(store, "r")).status == "cancelled"
    assert (await runner.resume("r")).output == "a whole answer"


async def test_a_cancelled_caller_leaves_a_run_that_another_runner_can_resume() -> None:
    # D10
    hall, store = Hall(), RecordingStore()
    agent, steps, _ = team("nested", hall)
    running = asyncio.create_task(Runner(agent, model=ScriptedModel(steps), store=store).run("hi", run_id="r"))
    await hall.everybody(1)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    record = await get_record(store, "r")
    assert (record.status, record.lease_until) == ("cancelled", 0.0)
    hall.go.set()
    rest = {"A": ["done"], "Middle": ["middle done"], "Inner": ["inner done"]}
    assert (await Runner(agent, model=ScriptedModel(rest), store=store).resume("r")).output == "done"


# --- from elsewhere


@pytest.mark.parametrize("how", ["now", "after_turn"])
async def test_a_run_is_cancelled_by_another_runner(how: Literal["now", "after_turn"]) -> None:
    # D10
    hall, store = Hall(), RecordingStore()
    agent, steps, waiters = team("branches", hall)
    mine = Runner(agent, model=ScriptedModel(steps), store=store, lease_seconds=SHORT)
    running = asyncio.create_task(mine.run("hi", run_id="r"))
    await hall.everybody(waiters)
    assert await Runner(agent, store=store).cancel("r", how) == "running"
    if how == "after_turn":
        await store.seen.get()
        await store.seen.get()
        assert not running.done()
        hall.go.set()
    result = await running
    assert (result.status, running.cancelling()) == ("cancelled", 0)
    assert (await get_record(store, "r")).status == "cancelled"
    assert nothing_is_left_running()
    hall.go.set()
    assert (await mine.resume("r")).status == "completed"


async def test_a_stream_ends_when_another_runner_cancels_its_run() -> None:
    # D10
    hall, store = Hall(), RecordingStore()
    agent, steps, waiters = team("tools", hall)
    mine = Runner(agent, model=ScriptedModel(steps), store=store, lease_seconds=SHORT)
    async with mine.stream("hi", run_id="r") as live:
        await hall.everybody(waiters)
        await Runner(agent, store=store).cancel("r")
        heard = [event async for event in live]
    assert transcript(heard)[-1] == "run cancelled"
    assert live.result.status == "cancelled"


async def test_a_run_without_a_driver_is_cancelled_at_once() -> None:
    # D10
    store = RecordingStore()

    @tool(needs_approval=True)
    async def pay() -> str:
        """Pay."""
        return "paid"

    runner = Runner(Agent("A", model=ScriptedModel([call("pay"), "done"]), tools=[pay]), store=store)
    await runner.run("hi", run_id="waits")
    await runner.submit("hi", run_id="submitted")
    assert [await runner.cancel("waits"), await runner.cancel("submitted")] == ["cancelled", "cancelled"]
    assert await runner.list_unfinished() == []
    assert transcript(await load_events(store, "waits"))[-1] == "run cancelled"
    # Twice is as good as once, and what is over is left alone.
    assert await runner.cancel("waits") == "cancelled"
    assert (await runner.resume("waits", True)).output == "done"
    assert await runner.cancel("waits") == "completed"
    with pytest.raises(RunError, match="completed"):
        await runner.resume("waits")
    with pytest.raises(RunNotFoundError):
        await runner.cancel("nobody")


async def test_a_cancel_request_survives_the_death_of_the_driver() -> None:
    # D10, D8
    store = RecordingStore()
    hall = Hall()
    agent, steps, waiters = team("tools", hall)
    await Runner(agent, store=store).submit("hi", run_id="r")
    lease = await store.acquire("r", "about to die", ttl=60)
    other = Runner(agent, model=ScriptedModel(steps), store=store)
    assert await other.cancel("r") == "running"
    await store.renew(lease, ttl=0)
    assert await other.recover() == {"r": "cancelled"}
    assert hall.waiting == []
    assert waiters == 2


async def test_a_cancel_request_is_not_lost_while_the_driver_releases_the_lease() -> None:
    # D10: it is held, but not running any more; the word would reach nobody.
    store = RecordingStore()

    @tool
    async def ask(ctx: RunContext) -> str:
        """Ask."""
        return str(await ctx.interrupt("?"))

    runner = Runner(Agent("A", model=ScriptedModel([call("ask"), "done"]), tools=[ask]), store=store)
    await runner.run("hi", run_id="r")
    lease = await store.acquire("r", "somebody", ttl=60)
    cancelling = asyncio.create_task(runner.cancel("r"))
    await asyncio.sleep(0)
    await store.release(lease)
    assert await cancelling == "cancelled"


async def test_cancel_accepts_only_now_and_after_turn() -> None:
    runner = Runner(Agent("A", model=ScriptedModel(["x"])), store=RecordingStore())
    wrong: Any = "soon"
    with pytest.raises(SetupError, match="soon"):
        await runner.cancel("r", wrong)


async def test_a_cancelled_run_can_be_resumed_by_another_runner() -> None:
    # D9
    hall, store = Hall(), RecordingStore()
    agent, steps, waiters = team("tools", hall)
    runner = Runner(agent, model=ScriptedModel(steps), store=store)
    async with runner.stream("hi", run_id="r") as live:
        await hall.everybody(waiters)
        await live.cancel()
    resuming = asyncio.create_task(runner.resume("r"))
    await hall.everybody(2 * waiters)
    with pytest.raises(RunConflictError):
        await Runner(agent, store=store).resume("r")
    hall.go.set()
    assert (await resuming).status == "completed"
