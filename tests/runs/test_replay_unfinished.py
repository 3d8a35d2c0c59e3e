"""The end of the log of a run that has not completed is no mismatch; code that takes another way is."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from tests.waiting import forever

from batonkit import Agent, ParallelAgent, RunContext, Runner, handoff, tool
from batonkit.agents import with_guardrails
from batonkit.errors import ModelError, ReplayMismatchError, RunError
from batonkit.log import Event
from batonkit.messages import Message
from batonkit.testing import ScriptedModel, call

acted: list[str] = []


@tool
async def look(ctx: RunContext, word: str) -> str:
    """Look in two steps."""
    for number in range(2):
        await ctx.step(f"look{number}", lambda: acted.append(word))
    return f"saw {word}"


def pay_tool(name: str) -> Any:
    @tool(name=name, needs_approval=True)
    async def pay(euro: int) -> str:
        """Pay."""
        acted.append(f"paid {euro}")
        return "paid"

    return pay


def team(*, pays: str = "pay", hands_over: bool = True) -> Agent[Any, Any]:
    looks = [call("look", word="a"), call("look", word="b")]
    other = Agent("Other", description="o", model=ScriptedModel([looks, "bye"]), tools=[look])
    helper = Agent("Helper", description="h", model=ScriptedModel([call("look", word="c"), "helped"]), tools=[look])
    steps = [looks, [call("helper", request="x")], [call("pay", euro=1)], [call("transfer_to_other")]]
    return Agent(
        "Desk",
        model=ScriptedModel(steps),
        tools=[look, helper.as_tool(), pay_tool(pays)],
        handoffs=[handoff(other, needs_approval=True)] if hands_over else [],
    )


async def record() -> Sequence[Event]:
    runner: Runner[Any, Any] = Runner(team(), store="memory:")
    await runner.run("hi", run_id="r")
    await runner.resume("r", True)
    return (await runner.resume("r", True)).events


async def test_a_log_that_is_cut_after_any_event_is_replayed_without_effects() -> None:
    events = await record()
    before = acted.copy()
    for length in range(1, len(events)):
        result = await Runner(team()).runs.replay(events[:length])
        assert (result.events, result.status) == (tuple(events[:length]), result.status)
        assert result.status in ("suspended", "completed")
    assert acted == before
    assert (await Runner(team()).runs.replay(events)).output == "bye"


@pytest.mark.parametrize(("change", "end"), [({"pays": "pay2"}, "pays"), ({"hands_over": False}, "transfer")])
async def test_unfinished_runs_that_changed_code_would_leave_are_named(change: Any, end: str) -> None:
    runner: Runner[Any, Any] = Runner(team(), store="memory:")
    await runner.run("hi", run_id="r")
    if end == "transfer":
        await runner.resume("r", True)
    events = await runner.runs.events("r")
    assert (await Runner(team()).runs.replay(events)).status == "suspended"
    with pytest.raises(ReplayMismatchError, match=r"the log has nothing, but .* skips the recorded"):
        await Runner(team(**change)).runs.replay(events)


async def test_the_result_says_how_the_run_stopped() -> None:
    down: Runner[Any, Any] = Runner(Agent("Desk", model=ScriptedModel([ModelError("down")])), store="memory:")
    with pytest.raises(ModelError):
        await down.run("hi", run_id="r")
    failed = await down.runs.replay("r")
    assert failed.status == "failed"
    with pytest.raises(RunError, match=r"run `r` failed: ModelError: .*down"):
        raise failed.error or AssertionError

    begun = asyncio.Event()

    @tool
    async def wait() -> str:
        """Wait."""
        begun.set()
        return await forever()

    stopped: Runner[Any, Any] = Runner(
        Agent("Desk", model=ScriptedModel([call("wait")]), tools=[wait]), store="memory:"
    )
    async with stopped.stream("hi", run_id="r") as run:
        await begun.wait()
        await run.cancel()
    assert (await stopped.runs.replay("r")).status == "cancelled"
    assert len((await stopped.runs.replay("r")).messages) == 1


async def test_parallel_branches_and_guardrails_are_replayed_up_to_the_end_of_each() -> None:
    async def check(ctx: RunContext, messages: Sequence[Message]) -> bool:
        return True

    def parallel() -> ParallelAgent:
        agents = [
            Agent(name, model=ScriptedModel([call("look", word=name), name]), tools=[look]) for name in ("A", "B")
        ]
        return ParallelAgent(
            "Both", sub_agents=[with_guardrails(one, input_guardrails=[check], mode="parallel") for one in agents]
        )

    events = (await Runner(parallel()).run("hi")).events
    for length in range(1, len(events)):
        await Runner(parallel()).runs.replay(events[:length])
