"""Tools that need a context object in a run that has none."""

from dataclasses import dataclass
from typing import Annotated, Any

import pytest

from batonkit import Agent, RunContext, Runner, SetupError, Tool, tool
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
