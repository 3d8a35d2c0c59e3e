"""Tools that need a context object in a run that has none."""

from dataclasses import dataclass
from typing import Annotated, Any

import pytest

from batonkit import Agent, RunContext, Runner, SetupError, Tool, handoff, tool
from batonkit.agents import with_guardrails
from batonkit.testing import ScriptedModel, call


@dataclass
class Shop:
    """The context of the program."""

    stock: int


@tool
def in_stock(ctx: RunContext[Shop]) -> str:
    """Return the stock."""
    return str(ctx.context.stock)


@tool(needs_approval=True, timeout=60)
def order(ctx: Annotated["RunContext[Shop] | None", "hidden"], item: str) -> str:
    """Order an item."""
    return item


@tool
def maybe(ctx: RunContext[Shop | None]) -> str:
    """Work without a context."""
    return str(ctx.context)


@tool
def anything(ctx: RunContext[Any]) -> str:
    """Work with any context."""
    return str(ctx.context)


@tool
def plain(ctx: RunContext) -> str:
    """Work with any context."""
    return str(ctx.context)


def allow(ctx: RunContext[Any], output: Any) -> bool:
    """Allow every answer."""
    return True


@pytest.mark.parametrize("needing", [in_stock, order])
async def test_a_run_without_the_context_that_a_tool_needs_does_not_call_the_model(needing: Tool[Any]) -> None:
    model = ScriptedModel(["never"])
    desk = Agent[Any]("Desk", model=model, tools=[plain, needing])
    expected = (
        rf"tool `{needing.spec.name}` of `Desk` takes RunContext\[Shop\], but the run has no context; .*context=Shop"
    )
    with pytest.raises(SetupError, match=expected):
        await Runner(desk).run("hi")
    assert model.requests == []


@pytest.mark.parametrize("place", ["handoff", "sub-agent", "tool", "guarded"])
async def test_a_run_without_context_fails_at_its_start_wherever_in_the_team_the_tool_is(place: str) -> None:
    model = ScriptedModel(["never"])
    expert = Agent[Any]("Expert", description="Knows the stock.", model=model, tools=[in_stock])
    team = {
        "handoff": Agent[Any]("Desk", model=model, handoffs=[handoff(expert)]),
        "sub-agent": Agent[Any]("Desk", model=model, sub_agents=[Agent("Middle", sub_agents=[expert])]),
        "tool": Agent[Any]("Desk", model=model, tools=[expert.as_tool()]),
        "guarded": Agent[Any]("Desk", model=model, handoffs=[with_guardrails(expert, output_guardrails=[allow])]),
    }[place]
    runner = Runner(team)
    with pytest.raises(SetupError, match=r"tool `in_stock` of `Expert` takes RunContext\[Shop\], but the run has no"):
        await runner.run("hi")
    assert model.requests == []
    assert (await runner.run("hi", context=Shop(3))).output == "never"


async def test_a_run_with_a_context_calls_the_tool() -> None:
    desk = Agent("Desk", model=ScriptedModel([call("in_stock"), "done"]), tools=[in_stock])
    result = await Runner(desk).run("hi", context=Shop(3))
    assert result.messages[2].content == "3"
    made = Runner(desk.clone(model=ScriptedModel([call("in_stock"), "done"])), context_factory=lambda record: Shop(4))
    assert (await made.run("hi")).messages[2].content == "4"


@pytest.mark.parametrize("optional", [maybe, anything, plain])
async def test_a_tool_that_accepts_none_runs_without_a_context(optional: Tool[Any]) -> None:
    desk = Agent[Any]("Desk", model=ScriptedModel([call(optional.spec.name), "done"]), tools=[optional])
    assert (await Runner(desk).run("hi")).messages[2].content == "None"
