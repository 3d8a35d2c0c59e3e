"""The tool by which a model ends its loop, alone and beside everything else a response may have."""

from typing import Any

import pytest
from tests.workflows.parts import answered, asker, check_replay, speaker, texts

from batonkit import Agent, LoopAgent, RunContext, Runner, SequentialAgent, tool
from batonkit.log import ToolReturned
from batonkit.testing import ScriptedModel, call, say, transfer_to
from batonkit.workflows import break_loop_tool


def critic(steps: list[Any], **facts: Any) -> Runner[Any, Any]:
    """Create a runner with a writer and a critic in a loop, and an agent after it."""
    model = ScriptedModel({"Writer": ["draft"] * 4, "Critic": steps, "Friend": ["friend"]})
    one = Agent("Critic", description="judges", tools=[break_loop_tool, *facts.pop("tools", ())], **facts)
    loop = LoopAgent("L", sub_agents=[Agent("Writer"), one, speaker("rest")])
    return Runner(SequentialAgent("S", sub_agents=[loop, speaker("end")]), model=model)


async def test_the_loop_ends_when_the_agent_is_done() -> None:
    runner = critic(["again", call("break_loop"), "good"])
    result = await runner.run("go")
    assert texts(result) == [
        *("draft", "again", "rest", "draft"),
        *("", "The loop ends when you are done.", "good", "end"),
    ]
    assert [event.breaks_loop for event in result.events if isinstance(event, ToolReturned)] == [True]
    await check_replay(runner, result)


async def test_beside_text_and_other_calls() -> None:
    @tool
    async def ask(ctx: RunContext) -> str:
        """Ask a person."""
        return await ctx.interrupt("sure?")

    runner = critic([say("Nearly.", call("ask"), call("break_loop")), "good"], tools=[ask])
    suspended = await runner.run("go")
    result = await answered(runner, suspended)
    assert texts(result)[-3:] == ["The loop ends when you are done.", "good", "end"]
    assert sum(isinstance(event, ToolReturned) for event in result.events) == 2
    await check_replay(runner, result)


async def test_with_a_transfer_the_loop_ends_when_the_target_is_done() -> None:
    runner = critic([[call("break_loop"), transfer_to("Friend")]], sub_agents=[Agent("Friend", description="f")])
    result = await runner.run("go")
    assert texts(result)[-2:] == ["friend", "end"]
    await check_replay(runner, result)


async def test_an_exit_beats_a_break() -> None:
    runner = critic([[call("break_loop"), call("exit", final_result="over")]], exit_tool=True)
    result = await runner.run("go")
    assert (result.output, "end" in texts(result)) == ("over", False)


async def test_beside_a_result_that_is_the_answer() -> None:
    @tool(return_directly=True)
    async def verdict() -> str:
        """Judge."""
        return "good"

    result = await critic([[call("verdict"), call("break_loop")]], tools=[verdict]).run("go")
    assert texts(result)[-1] == "end"


async def test_after_a_resume_the_loop_still_ends() -> None:
    # The break is recorded, the question comes later in the same activation.
    @tool
    async def ask(ctx: RunContext) -> str:
        """Ask a person."""
        return await ctx.interrupt("sure?")

    runner = critic([call("break_loop"), call("ask"), "good"], tools=[ask])
    result = await answered(runner, await runner.run("go"))
    assert texts(result)[-2:] == ["good", "end"]


async def test_through_an_agent_as_tool_it_stays_inside() -> None:
    model = ScriptedModel({"Boss": [call("helper", request="x"), "once", "twice"], "Helper": [call("break_loop"), "h"]})
    helper = Agent("Helper", tools=[break_loop_tool])
    boss = Agent("Boss", tools=[helper.as_tool()])
    runner = Runner(LoopAgent("L", sub_agents=[boss], max_iterations=2), model=model)
    assert (await runner.run("go")).output == "twice"


async def test_without_a_loop_it_does_no_harm() -> None:
    model = ScriptedModel([call("break_loop", why="arguments are ignored"), "done"])
    result = await Runner(Agent("A", tools=[break_loop_tool]), model=model).run("go")
    assert (result.output, result.status) == ("done", "completed")


@pytest.mark.parametrize("is_first", [True, False])
async def test_a_break_waits_for_questions_in_the_same_step(is_first: bool) -> None:
    model = ScriptedModel({"A": [call("break_loop"), "a"]})
    steps = [Agent("A", tools=[break_loop_tool]), asker("b")]
    inside = SequentialAgent("In", sub_agents=steps if is_first else steps[::-1])
    runner = Runner(LoopAgent("L", sub_agents=[inside]), model=model)
    result = await answered(runner, await runner.run("go"))
    expected = ["", "The loop ends when you are done.", "a"]
    assert texts(result) == (expected if is_first else ["b begins", "b: yes to b?", *expected])
