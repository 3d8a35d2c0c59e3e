"""A run that stops right after a handoff: control is with the target, whether or not it has started."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.waiting import until

from batonkit import Agent, RunContext, Runner, handoff, supervisor, tool
from batonkit.handoffs import HandoffInputData
from batonkit.log import AgentResponded, ControlTransferred
from batonkit.runs import RunResult
from batonkit.stores import MemoryStore, SQLiteStore, Store
from batonkit.testing import ScriptedModel, call, transcript


@pytest.fixture(params=["none", "memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store | None:
    match request.param:
        case "memory":
            return MemoryStore()
        case "sqlite":
            return SQLiteStore(tmp_path / "runs.db")
        case _:
            return None


def make_runner(store: Store | None = None, **options: Any) -> Runner[Any, Any]:
    """Create a runner whose first agent hands over to a second one."""
    model = ScriptedModel({"Desk": [call("transfer_to_refunds")], "Refunds": ["I am Refunds"]})
    return Runner(
        Agent("Desk", handoffs=[handoff(Agent("Refunds", description="r"), **options)]), model=model, store=store
    )


async def assert_target_continues(runner: Runner[Any, Any], stopped: RunResult[Any], target: str = "Refunds") -> None:
    """Check that the target has control: in the result, in the thread and in the next run."""
    assert stopped.agent == target
    assert await runner.thread("t").active_agent() == target
    assert (await runner.run("and now?", thread="t")).agent == target


async def run_until_handoff(runner: Runner[Any, Any], source: str) -> RunResult[Any]:
    """Run, and cancel after the turn in which an agent hands over."""
    async with runner.stream("hi", thread="t") as live:
        async for event in live:
            if isinstance(event, AgentResponded) and event.agent == source:
                await live.cancel("after_turn")
    assert live.result.status == "cancelled"
    assert isinstance(live.result.events[-3], ControlTransferred)
    return live.result


async def test_a_run_that_is_cancelled_after_a_handoff_leaves_control_with_the_target(store: Store | None) -> None:
    runner = make_runner(store)
    await assert_target_continues(runner, await run_until_handoff(runner, "Desk"))


async def test_a_run_that_is_preempted_at_a_handoff_leaves_control_with_the_target(store: Store | None) -> None:
    entered = asyncio.Event()
    opened = asyncio.Event()

    async def on_handoff(ctx: Any) -> None:
        entered.set()
        await opened.wait()

    runner = make_runner(store, on_handoff=on_handoff)
    first = asyncio.create_task(runner.run("hi", thread="t"))
    await entered.wait()
    second = asyncio.create_task(runner.run("and now?", thread="t", when_busy="preempt"))
    await until(runner.thread("t").waiting)
    opened.set()
    stopped = await first
    assert transcript(stopped.events)[-3:] == ["Desk → Refunds", "Desk finished", "run cancelled"]
    assert (stopped.agent, (await second).agent) == ("Refunds", "Refunds")


async def test_a_handoff_whose_input_filter_fails_leaves_control_with_the_target(store: Store | None) -> None:
    def fail(data: HandoffInputData) -> HandoffInputData:
        raise ValueError("no filter")

    runner = make_runner(store, input_filter=fail)
    stream = runner.stream("hi", thread="t")
    async with stream:
        await stream.wait()
    assert stream.result.status == "failed"
    await assert_target_continues(runner, stream.result)


async def test_a_worker_that_returned_control_does_not_keep_the_thread() -> None:
    model = ScriptedModel({"Boss": [call("transfer_to_worker"), "Boss answers"], "Worker": ["done"]})
    runner = Runner(supervisor(Agent("Boss"), sub_agents=[Agent("Worker", description="w")]), model=model)
    await assert_target_continues(runner, await run_until_handoff(runner, "Worker"), "Boss")


async def test_a_run_that_stops_inside_an_agent_as_a_tool_stays_with_the_agent_that_called_it() -> None:
    @tool
    async def ask(ctx: RunContext) -> str:
        """Ask."""
        return str(await ctx.interrupt("?"))

    model = ScriptedModel({"Desk": [call("inner", request="go"), "done"], "Inner": [call("ask")]})
    inner = Agent("Inner", description="i", tools=[ask])
    runner = Runner(Agent("Desk", tools=[inner.as_tool()]), model=model)
    suspended = await runner.run("hi", thread="t")
    assert (suspended.status, suspended.interrupts[0].agent) == ("suspended", "Inner")
    assert (suspended.agent, await runner.thread("t").active_agent()) == ("Desk", "Desk")
