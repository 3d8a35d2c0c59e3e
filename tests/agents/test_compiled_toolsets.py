"""Toolsets: loaded before each model call, not for recorded calls, and closed at the end of the run."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from batonkit import Agent, RunContext, Runner, SetupError, tool
from batonkit.context.run_state import AsyncCloseable
from batonkit.errors import UnknownToolError
from batonkit.log import AgentResponded, ToolReturned
from batonkit.models import ModelRequest
from batonkit.testing import ScriptedModel, call
from batonkit.tools import Tool, Toolset


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


class FakeToolset:
    """A toolset with replaceable tools that counts how often it is loaded and closed."""

    def __init__(self, *tools: Tool) -> None:
        self.tools: Sequence[Tool] = tools
        self.load_count = 0
        self.close_count = 0

    async def get_tools(self, ctx: RunContext[Any]) -> Sequence[Tool]:
        self.load_count += 1
        ctx._run.opened[self] = OpenedToolset(self)
        return self.tools


class OpenedToolset(AsyncCloseable):
    def __init__(self, toolset: FakeToolset) -> None:
        self.toolset = toolset

    async def close(self) -> None:
        self.toolset.close_count += 1


def _look_up_once(request: ModelRequest) -> Any:
    return [call("look_up", city="Rome")] if len(request.messages) == 1 else "done"


def tool_names(model: ScriptedModel, turn: int) -> list[str]:
    return [spec.name for spec in model.requests[turn].tools]


async def test_a_toolset_adds_its_tools_and_is_closed_at_the_end_of_the_run() -> None:
    toolset = FakeToolset(look_up)
    assert isinstance(toolset, Toolset)
    model = ScriptedModel([[call("look_up", city="Rome"), call("book", city="Rome")], "done"])
    result = await Runner(Agent("A", tools=[book, toolset], model=model)).run("hi")
    assert tool_names(model, 0) == ["book", "look_up"]
    assert [event.content for event in result.events if isinstance(event, ToolReturned)] == [
        "sunny in Rome",
        "booked Rome",
    ]
    assert (toolset.load_count, toolset.close_count) == (2, 1)


async def test_the_tools_change_when_the_toolset_changes() -> None:
    toolset = FakeToolset(look_up)

    @tool
    async def replace_tools() -> str:
        toolset.tools = (book,)
        return "replaced"

    model = ScriptedModel(
        [[call("look_up", city="Rome")], [call("replace_tools")], [call("book", city="Rome")], "done"]
    )
    await Runner(Agent("A", tools=[replace_tools, toolset], model=model)).run("hi")
    assert [tool_names(model, turn) for turn in range(4)] == [
        ["replace_tools", "look_up"],
        ["replace_tools", "look_up"],
        ["replace_tools", "book"],
        ["replace_tools", "book"],
    ]
    assert model.requests[0].tools is model.requests[1].tools


async def test_concurrent_runs_can_share_a_toolset() -> None:
    toolset = FakeToolset(look_up)
    model = ScriptedModel([_look_up_once], cycle=True)
    runner = Runner(Agent("A", tools=[toolset], model=model))
    results = await asyncio.gather(*[runner.run("hi") for _ in range(20)])
    assert {result.output for result in results} == {"done"}
    assert toolset.close_count == 20


async def test_recorded_calls_are_replayed_without_loading_the_toolset() -> None:
    toolset = FakeToolset(look_up)
    model = ScriptedModel([[call("look_up", city="Rome")], [call("look_up", city="Oslo")], "done"])
    runner = Runner(Agent("A", tools=[toolset], model=model))
    result = await runner.run("hi")
    empty = FakeToolset()
    replayed = await Runner(Agent("A", tools=[empty], model=model)).runs.replay(result.events)
    assert replayed.output == "done"
    assert (empty.load_count, empty.close_count) == (0, 0)


async def test_an_unrecorded_call_is_executed_when_the_run_is_resumed() -> None:
    toolset = FakeToolset(look_up)
    result = await Runner(
        Agent("A", tools=[toolset], model=ScriptedModel([[call("look_up", city="Rome")], "done"]))
    ).run("hi")
    position = next(index for index, event in enumerate(result.events) if isinstance(event, AgentResponded))
    later = FakeToolset(look_up)
    runner = Runner(Agent("A", tools=[later], model=ScriptedModel(["done"])))
    resumed = await runner.resume(await runner.runs.load(result.events[: position + 1]))
    assert resumed.output == "done"
    assert later.load_count == 2


async def test_a_suspended_call_does_not_load_its_toolset() -> None:
    toolset = FakeToolset(pay)
    model = ScriptedModel([[call("pay")], "done"])
    runner = Runner(Agent("A", tools=[toolset], model=model))
    result = await runner.run("hi")
    assert result.status == "suspended"
    assert (toolset.load_count, toolset.close_count) == (1, 1)
    assert (await runner.runs.replay(result.events)).status == "suspended"
    assert (await runner.resume(result.run_id)).status == "suspended"
    assert toolset.load_count == 1
    assert (await runner.resume(result.run_id, True)).output == "done"
    assert toolset.load_count == 3


async def test_a_call_of_an_unknown_tool_is_still_an_error_in_a_replay() -> None:
    # The call counts as an error; a replay must not take it for a call of the toolset.
    model = ScriptedModel([[call("nonsense")]] * 3)
    runner = Runner(Agent("A", tools=[FakeToolset(look_up)], model=model))
    with pytest.raises(UnknownToolError):
        await runner.run("hi", run_id="r")
    events = await runner.runs.events("r")
    with pytest.raises(UnknownToolError):
        await runner.runs.replay([event for event in events if type(event).__name__ != "RunFailed"])


@pytest.mark.parametrize("own", [look_up, None])
async def test_two_tools_with_the_same_name_are_refused(own: Tool | None) -> None:
    toolsets = [FakeToolset(look_up)] if own is not None else [FakeToolset(look_up), FakeToolset(look_up)]
    agent = Agent("A", tools=[*([own] if own else []), *toolsets], model=ScriptedModel(["never"]))
    with pytest.raises(SetupError, match="`A` has two tools called `look_up`; give one of the toolsets a prefix"):
        await Runner(agent).run("hi")


async def test_a_toolset_cannot_use_the_name_of_a_transfer_tool() -> None:
    @tool
    async def transfer_to_b() -> str:
        return ""

    agent = Agent("A", tools=[FakeToolset(transfer_to_b)], handoffs=[Agent("B")], model=ScriptedModel(["never"]))
    with pytest.raises(SetupError, match="two tools called `transfer_to_b`"):
        await Runner(agent).run("hi")


async def test_a_toolset_is_closed_when_the_run_fails_or_is_cancelled() -> None:
    toolset, started = FakeToolset(look_up), asyncio.Event()

    @tool
    async def wait() -> str:
        started.set()
        await asyncio.Event().wait()
        return ""

    with pytest.raises(UnknownToolError):
        await Runner(Agent("A", tools=[toolset], model=ScriptedModel([[call("x")]] * 3))).run("hi")
    assert toolset.close_count == 1
    async with Runner(Agent("A", tools=[toolset, wait], model=ScriptedModel([[call("wait")]]))).stream("hi") as stream:
        await started.wait()
        await stream.cancel()
    assert toolset.close_count == 2


async def test_an_error_while_closing_a_toolset_is_logged_and_does_not_fail_the_run(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class FailsToClose(FakeToolset):
        async def get_tools(self, ctx: RunContext[Any]) -> Sequence[Tool]:
            ctx._run.opened[self] = self
            return ()

        async def close(self) -> None:
            raise OSError("cannot close")

    result = await Runner(Agent("A", tools=[FailsToClose()], model=ScriptedModel(["done"]))).run("hi")
    assert result.output == "done"
    assert "could not close a resource" in caplog.text


async def test_an_agent_as_a_tool_in_a_toolset_is_refused_with_what_works() -> None:
    expert = Agent("Expert", description="Knows.", model=ScriptedModel(["yes"]))

    class Experts:
        async def get_tools(self, ctx: RunContext[Any]) -> list[Any]:
            return [expert.as_tool()]

    desk = Agent("Desk", model=ScriptedModel([call("expert", request="?"), "done"]), tools=[Experts()])
    with pytest.raises(
        SetupError, match=r"a toolset of `Desk` has the agent `Expert` as a tool, .* Expert.as_tool\(\)"
    ):
        await Runner(desk).run("hi")
