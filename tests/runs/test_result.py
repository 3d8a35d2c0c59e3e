"""Results of runs, and summaries of their events."""

from typing import Any

import pytest
from pydantic import BaseModel

from batonkit import Agent, AgentContext, RunError, Runner, agent
from batonkit.log import AgentResponded
from batonkit.messages import Usage
from batonkit.runs import usage_from_events
from batonkit.testing import ScriptedModel, say, transfer_to


async def test_usage_is_added_up_by_agent_and_by_model() -> None:
    one, two = Usage(10, 1, cost=0.5), Usage(100, 2, cached_tokens=5)
    small = ScriptedModel([say("", transfer_to("B"), usage=one)], name="small")
    large = ScriptedModel([say("done", usage=two)], name="large")
    result = await Runner(Agent("A", model=small, sub_agents=[Agent("B", model=large)])).run("hi")
    usage = result.usage
    # The price of `large` is unknown.
    assert usage.total == Usage(110, 3, cached_tokens=5, cost=0.5, model_calls=2, unpriced_calls=1)
    unknown = Usage(100, 2, 5, model_calls=1, unpriced_calls=1)
    assert usage.by_agent == {"A": Usage(10, 1, cost=0.5, model_calls=1), "B": unknown}
    assert usage.by_edge == {("", "A"): usage.by_agent["A"], ("A", "B"): unknown}
    assert set(usage.by_model) == {"small", "large"}
    assert usage_from_events(result.events) == usage


async def test_model_calls_are_counted_without_reported_usage() -> None:
    result = await Runner(Agent("A", model=ScriptedModel(["hello"]))).run("hi")
    assert result.usage.total == Usage(model_calls=1)


async def test_messages_of_custom_agents_have_no_usage() -> None:
    @agent("A")
    async def a(ctx: AgentContext) -> None:
        await ctx.say("hello")

    result = await Runner(a).run("hi")
    assert any(isinstance(event, AgentResponded) for event in result.events)
    assert result.usage.total == Usage()


async def test_repr_shows_status_agent_output_and_run_id() -> None:
    result = await Runner(Agent("A", model=ScriptedModel(["hello"]))).run("hi", run_id="r1")
    assert repr(result) == "RunResult(completed, agent='A', output='hello', run_id='r1')"
    assert (result.error, result.interrupts) == (None, ())


async def test_a_result_does_not_change_when_its_run_is_resumed() -> None:
    @agent("A")
    async def a(ctx: AgentContext) -> None:
        await ctx.say("one")
        ctx.values.set("answer", await ctx.interrupt("?"))
        await ctx.say("two")

    runner = Runner(a)
    suspended = await runner.run("hi")
    await runner.resume(suspended.run_id, "yes")
    assert len(suspended.interrupts) == 1
    assert len(suspended.messages) == 2
    assert suspended.values == {}
    assert type(suspended.events[-1]).__name__ == "RunSuspended"


@agent("Asker")
async def asker(ctx: AgentContext) -> None:
    await ctx.say(str(await ctx.interrupt("sure?")))


async def test_output_of_a_suspended_run_raises_and_says_how_to_resume() -> None:
    result = await Runner(asker).run("hi", run_id="r1")
    with pytest.raises(RunError) as caught:
        _ = result.output
    assert str(caught.value) == (
        "run `r1` is suspended and has no output; open interrupts: `1/ask1` (agent `Asker`); "
        "to resume it: await runner.resume('r1', answers)"
    )
    assert repr(result) == "RunResult(suspended, agent='Asker', run_id='r1')"


async def test_output_of_a_failed_run_raises_with_its_error() -> None:
    @agent("A")
    async def a(ctx: AgentContext) -> None:
        raise ValueError("broken")

    stream = Runner(a).stream("hi", run_id="r1")
    with pytest.raises(ValueError, match="broken"):
        await stream._drive()
    with pytest.raises(RunError, match=r"run `r1` failed with ValueError: broken and has no output") as caught:
        _ = stream.result.output
    assert caught.value.__cause__ is stream.result.error
    assert repr(stream.result) == "RunResult(failed, agent='A', run_id='r1')"


async def test_output_of_a_cancelled_run_raises() -> None:
    async with Runner(asker).stream("hi", run_id="r1") as stream:
        await stream.cancel()
    with pytest.raises(RunError, match=r"run `r1` was cancelled and has no output; .* runner\.resume\('r1'\)"):
        _ = stream.result.output


class Invoice(BaseModel):
    """A structured output."""

    total: int


async def test_output_as_checks_the_type() -> None:
    model = ScriptedModel(['{"total": 3}'])
    result: Any = await Runner(Agent("A", model=model, output_type=Invoice)).run("hi")
    assert result.output_as(Invoice).total == 3
    assert result.output_as(Invoice | str) is result.output
    with pytest.raises(RunError, match=r"output_as\(int\): the output of agent `A` in run `.*` is an Invoice"):
        result.output_as(int)
    with pytest.raises(RunError, match=r"output_as\(list\[int\]\): .* does not match"):
        result.output_as(list[int])
