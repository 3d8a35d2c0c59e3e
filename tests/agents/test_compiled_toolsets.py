"""Tools that are known only while a run lasts: asked for before each model call, and not for what is on record."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from baton import Agent, RunContext, Runner, SetupError, tool
from baton.context.run_state import AsyncCloseable
from baton.errors import UnknownToolError
from baton.events import AgentResponded, ToolReturned
from baton.models import ModelRequest
from baton.testing import ScriptedModel, call
from baton.tools import Tool, Toolset


@tool
async def look_up(city: str) -> str:
    """Look up."""
    return f"sunny in {city}"


@tool
async def book(city: str) -> str:
    """Book."""
    return f"booked {city}"


@tool(needs_approval=True)
async def pay() -> str:
    """Pay."""
    return "paid"


class Shelf:
    """A source whose tools the test changes; counts how often it is asked and closed."""

    def __init__(self, *tools: Tool) -> None:
        self.offered: Sequence[Tool] = tools
        self.asked = 0
        self.closed = 0

    async def get_tools(self, ctx: RunContext[Any]) -> Sequence[Tool]:
        self.asked += 1
        ctx._run.opened[self] = Opened(self)
        return self.offered


class Opened(AsyncCloseable):
    def __init__(self, shelf: Shelf) -> None:
        self.shelf = shelf

    async def close(self) -> None:
        self.shelf.closed += 1


def _look_up_once(request: ModelRequest) -> Any:
    return [call("look_up", city="Rome")] if len(request.messages) == 1 else "done"


def names(model: ScriptedModel, turn: int) -> list[str]:
    return [spec.name for spec in model.requests[turn].tools]


async def test_a_source_offers_its_tools_beside_the_agents_own_and_is_closed_at_the_end() -> None:
    shelf = Shelf(look_up)
    assert isinstance(shelf, Toolset)
    model = ScriptedModel([[call("look_up", city="Rome"), call("book", city="Rome")], "done"])
    result = await Runner(Agent("A", tools=[book, shelf], model=model)).run("hi")
    assert names(model, 0) == ["book", "look_up"]
    assert [event.content for event in result.events if isinstance(event, ToolReturned)] == [
        "sunny in Rome",
        "booked Rome",
    ]
    assert (shelf.asked, shelf.closed) == (2, 1)


async def test_what_the_model_sees_changes_when_the_source_does_and_only_then() -> None:
    shelf = Shelf(look_up)

    @tool
    async def restock() -> str:
        shelf.offered = (book,)
        return "restocked"

    model = ScriptedModel([[call("look_up", city="Rome")], [call("restock")], [call("book", city="Rome")], "done"])
    await Runner(Agent("A", tools=[restock, shelf], model=model)).run("hi")
    assert [names(model, turn) for turn in range(4)] == [
        ["restock", "look_up"],
        ["restock", "look_up"],
        ["restock", "book"],
        ["restock", "book"],
    ]
    assert model.requests[0].tools is model.requests[1].tools


async def test_the_same_agent_may_run_with_a_source_many_times_at_once() -> None:
    shelf = Shelf(look_up)
    model = ScriptedModel([_look_up_once], cycle=True)
    runner = Runner(Agent("A", tools=[shelf], model=model))
    results = await asyncio.gather(*[runner.run("hi") for _ in range(20)])
    assert {result.output for result in results} == {"done"}
    assert shelf.closed == 20


async def test_calls_on_record_are_answered_without_asking_the_source() -> None:
    shelf = Shelf(look_up)
    model = ScriptedModel([[call("look_up", city="Rome")], [call("look_up", city="Oslo")], "done"])
    runner = Runner(Agent("A", tools=[shelf], model=model))
    result = await runner.run("hi")
    gone = Shelf()
    replayed = await Runner(Agent("A", tools=[gone], model=model)).replay(result.events)
    assert replayed.output == "done"
    assert (gone.asked, gone.closed) == (0, 0)


async def test_a_call_that_is_not_on_record_is_made_when_the_run_is_resumed() -> None:
    shelf = Shelf(look_up)
    result = await Runner(Agent("A", tools=[shelf], model=ScriptedModel([[call("look_up", city="Rome")], "done"]))).run(
        "hi"
    )
    said = next(place for place, event in enumerate(result.events) if isinstance(event, AgentResponded))
    later = Shelf(look_up)
    runner = Runner(Agent("A", tools=[later], model=ScriptedModel(["done"])))
    resumed = await runner.resume(runner.load_log(result.events[: said + 1]))
    assert resumed.output == "done"
    assert later.asked == 2


async def test_a_call_that_waits_for_an_answer_does_not_need_its_source() -> None:
    shelf = Shelf(pay)
    model = ScriptedModel([[call("pay")], "done"])
    runner = Runner(Agent("A", tools=[shelf], model=model))
    result = await runner.run("hi")
    assert result.status == "suspended"
    assert (shelf.asked, shelf.closed) == (1, 1)
    assert (await runner.replay(result.events)).status == "suspended"
    assert (await runner.resume(result.run_id)).status == "suspended"
    assert shelf.asked == 1
    assert (await runner.resume(result.run_id, True)).output == "done"
    assert shelf.asked == 3


async def test_a_tool_that_nobody_offered_is_still_unknown_when_the_run_is_replayed() -> None:
    # C3: the fault counts, and would not if the call were taken for one of the source's.
    model = ScriptedModel([[call("nonsense")]] * 3)
    runner = Runner(Agent("A", tools=[Shelf(look_up)], model=model))
    with pytest.raises(UnknownToolError):
        await runner.run("hi", run_id="r")
    events = await runner.events("r")
    with pytest.raises(UnknownToolError):
        await runner.replay([event for event in events if type(event).__name__ != "RunFailed"])


@pytest.mark.parametrize("own", [look_up, None])
async def test_two_tools_of_one_name_cannot_be_told_apart(own: Tool | None) -> None:
    sources = [Shelf(look_up)] if own is not None else [Shelf(look_up), Shelf(look_up)]
    agent = Agent("A", tools=[*([own] if own else []), *sources], model=ScriptedModel(["never"]))
    with pytest.raises(SetupError, match="`A` has two tools called `look_up`; give one of the toolsets a prefix"):
        await Runner(agent).run("hi")


async def test_a_source_cannot_take_the_name_of_a_transfer() -> None:
    @tool
    async def transfer_to_b() -> str:
        return ""

    agent = Agent("A", tools=[Shelf(transfer_to_b)], handoffs=[Agent("B")], model=ScriptedModel(["never"]))
    with pytest.raises(SetupError, match="two tools called `transfer_to_b`"):
        await Runner(agent).run("hi")


async def test_what_was_opened_is_closed_when_the_run_fails_or_is_cancelled() -> None:
    shelf, begun = Shelf(look_up), asyncio.Event()

    @tool
    async def wait() -> str:
        begun.set()
        await asyncio.Event().wait()
        return ""

    with pytest.raises(UnknownToolError):
        await Runner(Agent("A", tools=[shelf], model=ScriptedModel([[call("x")]] * 3))).run("hi")
    assert shelf.closed == 1
    async with Runner(Agent("A", tools=[shelf, wait], model=ScriptedModel([[call("wait")]]))).stream("hi") as live:
        await begun.wait()
        await live.cancel()
    assert shelf.closed == 2


async def test_what_does_not_close_well_is_logged_and_spoils_no_result(caplog: pytest.LogCaptureFixture) -> None:
    class Stuck(Shelf):
        async def get_tools(self, ctx: RunContext[Any]) -> Sequence[Tool]:
            ctx._run.opened[self] = self
            return ()

        async def close(self) -> None:
            raise OSError("the door is stuck")

    result = await Runner(Agent("A", tools=[Stuck()], model=ScriptedModel(["done"]))).run("hi")
    assert result.output == "done"
    assert "could not close a resource" in caplog.text
