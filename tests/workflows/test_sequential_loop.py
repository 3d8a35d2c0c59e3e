"""Loops, and the conditions that end them."""

import asyncio
from typing import Any

import pytest
from tests.waiting import forever
from tests.workflows.parts import answered, asker, check_replay, failing, passing, paths, speaker, texts, writer

from batonkit import (
    Agent,
    AgentContext,
    Exit,
    Limits,
    LoopAgent,
    ParallelAgent,
    Runner,
    SequentialAgent,
    SetupError,
    agent,
)
from batonkit.agents import BaseAgent
from batonkit.errors import LimitError
from batonkit.log import AgentStarted, RunSuspended
from batonkit.testing import ScriptedModel, transfer_to
from batonkit.workflows import BreakLoop


def counter(name: str, last: int, then: Exit | BreakLoop) -> BaseAgent[Any, Any]:
    """Create an agent that counts its activations, and ends with `then` in the last one."""

    @agent(name, description=name)
    async def count(ctx: AgentContext) -> Exit | BreakLoop | None:
        number = ctx.values.get(name, 0) + 1
        ctx.values.set(name, number)
        await ctx.say(f"{name}{number}")
        return then if number == last else None

    return count


async def test_a_loop_repeats_its_steps_as_often_as_it_is_told() -> None:
    # The path grows by one with every step that is run.
    runner = Runner(LoopAgent("L", sub_agents=[speaker("a"), speaker("b")], max_iterations=2))
    result = await runner.run("go")
    assert paths(result.events) == ["L.a", "L.a.b", "L.a.b.a", "L.a.b.a.b"]
    assert (texts(result), result.output, result.agent) == (["a", "b", "a", "b"], "b", "L")
    await check_replay(runner, result)


async def test_a_break_ends_the_innermost_loop_and_the_sequence_goes_on() -> None:
    inner = LoopAgent("In", sub_agents=[counter("c", 2, BreakLoop()), speaker("x")])
    outer = LoopAgent("Out", sub_agents=[inner, speaker("o")], max_iterations=2)
    runner = Runner(SequentialAgent("S", sub_agents=[outer, speaker("end")]))
    with pytest.raises(LimitError):
        # In the second iteration the counter is past 2 and does not break the inner loop: only the limit ends it.
        await runner.run("go", limits=Limits(seconds=0.05))
    result = await Runner(
        SequentialAgent(
            "S", sub_agents=[LoopAgent("Out", sub_agents=[inner, speaker("o")], max_iterations=1), speaker("end")]
        )
    ).run("go")
    assert texts(result) == ["c1", "x", "c2", "o", "end"]


async def test_an_exit_ends_every_loop() -> None:
    inner = LoopAgent("In", sub_agents=[counter("c", 3, Exit("enough"))])
    runner = Runner(SequentialAgent("S", sub_agents=[LoopAgent("Out", sub_agents=[inner]), speaker("never")]))
    result = await runner.run("go")
    assert (texts(result), result.output) == (["c1", "c2", "c3", "enough"], "enough")
    await check_replay(runner, result)


@pytest.mark.parametrize("around", [SequentialAgent, ParallelAgent])
async def test_a_break_reaches_the_loop_through_other_workflows(around: Any) -> None:
    inside = around("W", sub_agents=[counter("c", 2, BreakLoop()), speaker("x")])
    runner = Runner(
        SequentialAgent("S", sub_agents=[LoopAgent("L", sub_agents=[inside, speaker("y")]), speaker("end")])
    )
    result = await runner.run("go")
    # A sequence stops where the break is; branches all end first.
    second = ["c2"] if around is SequentialAgent else ["c2", "x"]
    assert texts(result) == ["c1", "x", "y", *second, "end"]
    await check_replay(runner, result)


async def test_a_break_by_the_target_of_a_steps_transfer() -> None:
    step = passing("a", counter("c", 2, BreakLoop()))
    runner = Runner(LoopAgent("L", sub_agents=[step, speaker("z")]))
    result = await runner.run("go")
    assert texts(result) == ["a", "c1", "z", "a", "c2"]
    assert paths(result.events) == ["L.a", "L.a.c", "L.a.z", "L.a.z.a", "L.a.z.a.c"]
    await check_replay(runner, result)


async def test_transfers_of_a_model_inside_a_loop() -> None:
    model = ScriptedModel({"R": [transfer_to("E")] * 2, "E": ["one", "two"]})
    router = Agent("R", sub_agents=[Agent("E", description="e")], description="r")
    runner = Runner(LoopAgent("L", sub_agents=[router], max_iterations=2), model=model)
    result = await runner.run("go")
    assert paths(result.events) == ["L.R", "L.R.E", "L.R.R", "L.R.R.E"]
    assert result.output == "two"
    await check_replay(runner, result)


async def test_without_a_number_the_runs_limits_end_it() -> None:
    model = ScriptedModel({"A": ["again"]}, cycle=True)
    runner = Runner(LoopAgent("L", sub_agents=[Agent("A")]), model=model, limits=Limits(model_calls=5))
    with pytest.raises(LimitError, match="5 model_calls"):
        await runner.run("go")
    with pytest.raises(LimitError, match="seconds"):
        await Runner(LoopAgent("L", sub_agents=[writer("w", x=1)])).run("go", limits=Limits(seconds=0.02))


async def test_an_error_ends_the_loop() -> None:
    with pytest.raises(ValueError, match="b cannot"):
        await Runner(LoopAgent("L", sub_agents=[speaker("a"), failing("b")])).run("go")


async def test_a_loop_of_four_two_of_them_asking_twice_round() -> None:
    # Four suspensions in turn, and nothing is done twice.
    steps = [speaker("a"), asker("b"), speaker("c"), asker("d")]
    runner = Runner(LoopAgent("L", sub_agents=steps, max_iterations=2))
    result = await runner.run("go")
    asked: list[tuple[str, ...]] = []
    while result.status == "suspended":
        (question,) = result.interrupts
        asked.append(question.path)
        result = await runner.resume(result.run_id, {question.id: f"answer {len(asked)}"})
    round_one = ("L", "a", "b", "c", "d")
    assert asked == [round_one[:3], round_one, (*round_one, "a", "b"), (*round_one, *round_one[1:])]
    assert sum(isinstance(event, RunSuspended) for event in result.events) == 4
    assert sum(isinstance(event, AgentStarted) for event in result.events) == 1 + 2 * 4
    assert texts(result) == [
        *("a", "b begins", "b: answer 1", "c", "d begins", "d: answer 2"),
        *("a", "b begins", "b: answer 3", "c", "d begins", "d: answer 4"),
    ]
    await check_replay(runner, result)


async def test_a_parallel_of_questions_inside_a_loop() -> None:
    loop = LoopAgent("L", sub_agents=[ParallelAgent("P", sub_agents=[asker("a"), asker("b")])], max_iterations=2)
    runner = Runner(SequentialAgent("S", sub_agents=[loop, speaker("z")]))
    result = await answered(runner, await runner.run("go"), lambda questions: questions[-1:])
    once = ["a begins", "a: yes to a?", "b begins", "b: yes to b?"]
    assert texts(result) == [*once, *once, "z"]
    await check_replay(runner, result)


async def test_a_loop_that_waits_for_nothing_can_be_cancelled() -> None:
    runner = Runner(LoopAgent("L", sub_agents=[writer("w", x=1)]))
    async with runner.stream("go") as run:
        async for _ in run:
            break
        await asyncio.wait_for(run.cancel(), 60)
    assert run.result.status == "cancelled"


async def test_a_loop_ends_though_a_step_swallows_the_cancellation() -> None:
    begun = asyncio.Event()

    @agent("stubborn")
    async def stubborn(ctx: AgentContext) -> None:
        begun.set()
        try:
            await forever()
        except asyncio.CancelledError:
            await ctx.say("I go on")

    runner = Runner(LoopAgent("L", sub_agents=[stubborn]))
    async with runner.stream("go") as run:
        await begun.wait()
        await asyncio.wait_for(run.cancel(), 60)
    assert (run.result.status, texts(run.result)) == ("cancelled", ["I go on"])


@pytest.mark.parametrize("number", [-1, "3", 1.5])
def test_a_number_of_iterations_that_is_none(number: Any) -> None:
    with pytest.raises(SetupError, match=rf"`L` has max_iterations={number!r}; give an integer, or 0 for no limit"):
        LoopAgent("L", sub_agents=[speaker("a")], max_iterations=number)


async def test_a_silent_step_that_breaks_the_loop_leaves_the_last_answer() -> None:
    # The output was None.
    @agent("Judge")
    async def judge(ctx: AgentContext) -> BreakLoop | None:
        return BreakLoop() if len(ctx.messages()) > 2 else None

    result = await Runner(LoopAgent("L", sub_agents=[counter("draft", 9, Exit()), judge])).run("go")
    assert result.output == "draft2"
    check = await Runner(SequentialAgent("S", sub_agents=[speaker("a"), judge])).run("go")
    assert check.output == "a"
