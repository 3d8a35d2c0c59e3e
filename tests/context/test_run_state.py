"""Limits of a run, and the errors that name where they were reached."""

import asyncio

import pytest
from tests.loop_clock import FrozenLoopClock
from tests.waiting import forever

from batonkit import Agent, AgentContext, Limits, RunContext, Runner, agent, tool
from batonkit.context.run_state import UsageMeter
from batonkit.errors import LimitError
from batonkit.log import AgentResponded, ControlTransferred, Origin
from batonkit.messages import AssistantMessage, Usage
from batonkit.testing import ScriptedModel, call, say, transfer_to


@tool
async def nothing() -> str:
    """Do nothing."""
    return "ok"


def test_the_limits_by_default() -> None:
    limits = Limits()
    assert (limits.model_calls, limits.transfers, limits.idle_cycles) == (100, 32, 3)
    assert (limits.seconds, limits.tokens, limits.cost) == (None, None, None)


async def test_model_calls_are_counted_across_agents() -> None:
    # Tree-wide.
    model = ScriptedModel({"A": [call("nothing"), transfer_to("B")], "B": [call("nothing"), "done"]})
    runner = Runner(Agent("A", tools=[nothing], sub_agents=[Agent("B", tools=[nothing])]), model=model)
    with pytest.raises(LimitError, match="limit of 3 model_calls at A → B; raise it with") as caught:
        await runner.run("hi", limits=Limits(model_calls=3))
    assert (caught.value.limit, caught.value.allowed, caught.value.path) == ("model_calls", 3, ("A", "B"))
    # The call over the limit was never made.
    assert len(model.requests) == 3


async def test_just_enough_model_calls_is_enough() -> None:
    model = ScriptedModel([call("nothing"), "done"])
    result = await Runner(Agent("A", model=model, tools=[nothing]), limits=Limits(model_calls=2)).run("hi")
    assert result.output == "done"


@pytest.mark.parametrize("limits", [Limits(tokens=25), Limits(cost=0.5)])
async def test_tokens_and_cost_stop_the_run_after_the_call_that_was_too_much(limits: Limits) -> None:
    used = Usage(input_tokens=10, output_tokens=3, cost=0.3)
    model = ScriptedModel([say("", call("nothing"), usage=used)], cycle=True)
    live = Runner(Agent("A", model=model, tools=[nothing])).stream("hi", limits=limits)
    with pytest.raises(LimitError) as caught:
        await live._drive()
    assert caught.value.limit in ("tokens", "cost")
    # What was paid for is in the log.
    assert sum(isinstance(event, AgentResponded) for event in live.result.events) == 2
    assert live.result.usage.total.total_tokens == 26


@pytest.mark.parametrize("limits", [Limits(tokens=26), Limits(cost=0.6)])
async def test_just_enough_tokens_and_cost_is_enough(limits: Limits) -> None:
    used = Usage(input_tokens=10, output_tokens=3, cost=0.3)
    model = ScriptedModel([say("", call("nothing"), usage=used), say("done", usage=used)])
    assert (await Runner(Agent("A", model=model, tools=[nothing]), limits=limits).run("hi")).output == "done"


async def test_seconds_stop_a_run_that_hangs() -> None:
    clock, cancelled = FrozenLoopClock(), asyncio.Event()

    @tool
    async def hangs() -> str:
        """Hang."""
        clock.advance(60)
        try:
            await forever()
        finally:
            cancelled.set()

    live = Runner(Agent("A", model=ScriptedModel([call("hangs")]), tools=[hangs])).stream(
        "hi", limits=Limits(seconds=60)
    )
    with pytest.raises(LimitError, match=r"limit of 60 seconds at A"):
        await live._drive()
    assert cancelled.is_set()
    assert live.result.status == "failed"


async def test_another_timeout_error_is_not_the_limit() -> None:
    @tool(on_error="raise")
    async def impatient() -> str:
        """Raise TimeoutError."""
        raise TimeoutError("mine")

    runner = Runner(Agent("A", model=ScriptedModel([call("impatient")]), tools=[impatient]), limits=Limits(seconds=60))
    with pytest.raises(Exception, match="mine") as caught:
        await runner.run("hi")
    assert not isinstance(caught.value, LimitError)


async def test_a_timeout_that_an_agent_raises_is_its_own() -> None:
    @agent("A")
    async def a(ctx: AgentContext) -> None:
        raise TimeoutError("mine")

    with pytest.raises(TimeoutError, match="mine"):
        await Runner(a, limits=Limits(seconds=60)).run("hi")


async def test_limits_of_one_run_go_before_the_runners() -> None:
    model = ScriptedModel([call("nothing"), "done"])
    runner = Runner(Agent("A", model=model, tools=[nothing]), limits=Limits(model_calls=1))
    assert (await runner.run("hi", limits=Limits(model_calls=2))).output == "done"


async def test_limits_of_one_run_are_still_its_limits_after_resume() -> None:
    @tool
    async def ask(ctx: RunContext) -> str:
        """Ask."""
        return str(await ctx.interrupt("?"))

    model = ScriptedModel([call("nothing"), call("nothing"), call("ask"), "done"])
    runner = Runner(Agent("A", model=model, tools=[nothing, ask]), limits=Limits(model_calls=2))
    suspended = await runner.run("hi", limits=Limits(model_calls=10))
    assert (await runner.resume(suspended.run_id, "yes")).output == "done"


async def test_replayed_model_calls_count_like_the_first_time() -> None:
    @tool
    async def ask(ctx: RunContext) -> str:
        """Ask."""
        return str(await ctx.interrupt("?"))

    model = ScriptedModel([call("nothing"), call("ask"), call("nothing"), "never"])
    runner = Runner(Agent("A", model=model, tools=[nothing, ask]), limits=Limits(model_calls=3))
    suspended = await runner.run("hi")
    with pytest.raises(LimitError):
        await runner.resume(suspended.run_id, "yes")
    assert model.remaining == 1


def test_the_usage_of_a_replayed_part_counts_in_the_total() -> None:
    # The models of a finished part are not called again, but their usage counts.
    whole = UsageMeter(Limits(model_calls=3, transfers=1, tokens=100))
    origin = Origin("1", "A")
    said = AgentResponded("1/m1", origin, 1.0, AssistantMessage("a"), "model", Usage(input_tokens=2, output_tokens=3))
    own_words = AgentResponded("1/say1", origin, 1.0, AssistantMessage("b"))
    moved = ControlTransferred("1/to", origin, 1.0, "A", "B")
    UsageMeter(Limits(), whole).recount([said, own_words, moved])
    assert (whole.model_calls, whole.transfers, whole.tokens) == (1, 1, 5)
    with pytest.raises(LimitError, match="1 transfers at A"):
        whole.recount([moved])
