"""Values of branches: a copy at the fork, merged at the join in the order of declaration."""

import asyncio
from typing import Any

import pytest
from tests.workflows.parts import answered, asker, check_replay, failing, speaker, writer

from batonkit import (
    Agent,
    AgentContext,
    BaseAgent,
    LoopAgent,
    ParallelAgent,
    RunContext,
    Runner,
    SequentialAgent,
    agent,
    tool,
)
from batonkit.errors import BranchesFailedError
from batonkit.testing import ScriptedModel, call
from batonkit.workflows.reducers import add, append, extend


def peeking(name: str, key: str, seen: dict[str, Any], *, write: Any = None) -> BaseAgent[Any, Any]:
    """Writes a value, lets the others write, and notes what it finds."""

    @agent(name, description=name)
    async def peek(ctx: AgentContext) -> None:
        if write is not None:
            ctx.values.set(key, write)
        for _ in range(3):
            await asyncio.sleep(0)
        seen[name] = ctx.values.get(key)

    return peek


def merge(current: dict[str, Any], written: dict[str, Any]) -> dict[str, Any]:
    """A reducer of one's own."""
    return {**current, **written}


async def test_a_branch_sees_the_values_at_the_fork_and_its_own_writes() -> None:
    seen: dict[str, Any] = {}
    branches = [peeking("a", "x", seen, write="a"), peeking("b", "x", seen, write="b"), peeking("c", "x", seen)]
    result = await Runner(ParallelAgent("P", sub_agents=branches)).run("go", values={"x": "fork"})
    assert (seen, result.values) == ({"a": "a", "b": "b", "c": "fork"}, {"x": "b"})


async def test_the_branch_declared_last_wins_in_any_order_of_completion() -> None:
    gate = asyncio.Event()

    @agent("slow")
    async def slow(ctx: AgentContext) -> None:
        await gate.wait()
        ctx.values.set("x", "slow")

    @agent("fast")
    async def fast(ctx: AgentContext) -> None:
        ctx.values.set("x", "fast")
        gate.set()

    runner = Runner(ParallelAgent("P", sub_agents=[slow, fast]))
    result = await runner.run("go")
    assert result.values == {"x": "fast"}
    await check_replay(runner, result)


@pytest.mark.parametrize(
    ("reducer", "before", "written", "after"),
    [
        (append, None, ["a", "b"], ["a", "b"]),
        (append, ["z"], ["a", "b"], ["z", "a", "b"]),
        (append, None, [["a"], ["b"]], [["a"], ["b"]]),
        (extend, ["z"], [["a"], ["b", "c"]], ["z", "a", "b", "c"]),
        (extend, None, [["a"], ["b"]], ["a", "b"]),
        (add, 10, [1, 2], 13),
        (add, None, [1, 2], 3),
        (add, None, ["a", "b"], "ab"),
        (max, 2, [1, 3], 3),
        (merge, {"z": 0}, [{"a": 1}, {"b": 2}], {"z": 0, "a": 1, "b": 2}),
    ],
)
async def test_a_reducer_merges_what_branches_wrote(reducer: Any, before: Any, written: list[Any], after: Any) -> None:
    branches = [writer(f"w{number}", x=value) for number, value in enumerate(written)]
    parallel = ParallelAgent("P", sub_agents=[*branches, speaker("quiet")], reducers={"x": reducer})
    runner = Runner(SequentialAgent("S", sub_agents=[parallel, asker("ask")]))
    result = await runner.run("go", values={} if before is None else {"x": before})
    assert result.values == {"x": after}
    result = await answered(runner, result)
    assert result.values == {"x": after}
    await check_replay(runner, result)


async def test_a_delete_is_merged_too() -> None:
    # Also of a key that only a branch before it wrote.
    values = {"x": 1, "y": 1}
    deletes = [writer("a", x=None, new=1), writer("b", y=None, new=None)]
    assert (await Runner(ParallelAgent("P", sub_agents=deletes)).run("go", values=values)).values == {}
    rewritten = [writer("a", x=None), writer("b", x=2)]
    assert (await Runner(ParallelAgent("P", sub_agents=rewritten)).run("go", values=values)).values == {"x": 2, "y": 1}
    untouched = [writer("a", x=None), speaker("b")]
    assert (await Runner(ParallelAgent("P", sub_agents=untouched)).run("go", values=values)).values == {"y": 1}


async def test_writes_of_tools_transfers_and_nested_branches_reach_the_join() -> None:
    @tool
    async def note(ctx: RunContext) -> str:
        """Note something."""
        ctx.values.set("tool", "written")
        return "noted"

    chat = Agent("Chat", tools=[note], output_key="answer")
    nested = ParallelAgent("In", sub_agents=[writer("a", n="a"), writer("b", n="b")], reducers={"n": append})
    loop = LoopAgent("L", sub_agents=[writer("c", n="c")], max_iterations=2)
    parallel = ParallelAgent("P", sub_agents=[chat, nested, loop], reducers={"n": append})
    runner = Runner(parallel, model=ScriptedModel({"Chat": [call("note"), "said"]}))
    result = await runner.run("go")
    assert result.values == {"tool": "written", "answer": "said", "n": [["a", "b"], "c"]}
    await check_replay(runner, result)


async def test_nothing_is_merged_before_the_join() -> None:
    # While a branch waits, the run's values are those at the fork.
    runner = Runner(ParallelAgent("P", sub_agents=[writer("a", x=1), asker("b")]))
    result = await runner.run("go", values={"x": 0})
    assert result.values == {"x": 0}
    assert (await answered(runner, result)).values == {"x": 1}


async def test_failed_branches_leave_the_values_alone() -> None:
    def bad() -> BaseAgent[Any, Any]:
        return SequentialAgent("Bad", sub_agents=[writer("w", x="bad"), failing("f")])

    ignoring = ParallelAgent("P", sub_agents=[bad(), writer("ok", y=1)], on_error="ignore")
    assert (await Runner(ignoring).run("go", values={"x": 0})).values == {"x": 0, "y": 1}
    runner = Runner(ParallelAgent("P", sub_agents=[bad(), writer("ok", y=1)]))
    async with runner.stream("go", values={"x": 0}) as run:
        with pytest.raises(BranchesFailedError):
            async for _ in run:
                pass
    assert run.result.values == {"x": 0}


async def test_a_reducer_that_fails_ends_the_run() -> None:
    parallel = ParallelAgent("P", sub_agents=[writer("a", x="text")], reducers={"x": add})
    with pytest.raises(TypeError):
        await Runner(parallel).run("go", values={"x": 1})
