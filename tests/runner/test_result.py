"""What a run came to, and readings of its log."""

from baton import Agent, AgentContext, Runner, agent
from baton.events import AgentResponded
from baton.messages import Usage
from baton.runner import usage_from_events
from baton.testing import ScriptedModel, say, transfer_to


async def test_usage_is_added_up_by_agent_and_by_model() -> None:
    one, two = Usage(10, 1, cost=0.5), Usage(100, 2, cached_tokens=5)
    small = ScriptedModel([say("", transfer_to("B"), usage=one)], name="small")
    large = ScriptedModel([say("done", usage=two)], name="large")
    result = await Runner(Agent("A", model=small, sub_agents=[Agent("B", model=large)])).run("hi")
    usage = result.usage
    assert usage.total == Usage(110, 3, cached_tokens=5, cost=0.5, model_calls=2)
    assert usage.by_agent == {"A": Usage(10, 1, cost=0.5, model_calls=1), "B": Usage(100, 2, 5, model_calls=1)}
    assert set(usage.by_model) == {"small", "large"}
    assert usage_from_events(result.events) == usage


async def test_model_calls_count_even_if_nobody_says_what_they_cost() -> None:
    result = await Runner(Agent("A", model=ScriptedModel(["hello"]))).run("hi")
    assert result.usage.total == Usage(model_calls=1)


async def test_what_an_agent_says_by_itself_costs_nothing() -> None:
    @agent("A")
    async def a(ctx: AgentContext) -> None:
        await ctx.say("hello")

    result = await Runner(a).run("hi")
    assert any(isinstance(event, AgentResponded) for event in result.events)
    assert result.usage.total == Usage()


async def test_a_result_shows_what_matters() -> None:
    result = await Runner(Agent("A", model=ScriptedModel(["hello"]))).run("hi", run_id="r1")
    assert repr(result) == "RunResult(completed, agent='A', output='hello', run_id='r1')"
    assert (result.error, result.interrupts) == (None, ())


async def test_a_result_does_not_change_when_its_run_goes_on() -> None:
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
