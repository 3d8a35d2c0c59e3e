"""Streaming tools: async generator functions whose items are progress, the last one the result."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest
from tests.loop_clock import FrozenLoopClock

from batonkit import Agent, RunContext, Runner, ToolError, tool
from batonkit.errors import NotEncodableError, ToolResultError, ToolTimeoutError
from batonkit.log import ControlTransferred, CustomDelta, Event, ProgressDelta, ToolReturned
from batonkit.testing import ScriptedModel, assert_survives_crashes, call
from batonkit.tools import Final, FunctionTool


@dataclass
class Hit:
    title: str
    score: float


@tool
async def search(query: str, limit: int = 2) -> AsyncIterator[str | Hit | Final[str]]:
    """Search the catalogue.

    Args:
        query: What to look for.
    """
    yield f"searching for {query}"
    for number in range(limit):
        yield Hit(f"{query} {number}", 0.5)
    yield Final(f"{limit} hits")


def agent_with(*tools: Any, steps: Any = None, **options: Any) -> Agent:
    return Agent("A", tools=[*tools], model=ScriptedModel(steps or [call(tools[0].name), "done"]), **options)


def results(events: Any) -> list[tuple[str, bool]]:
    return [(str(event.content), event.is_error) for event in events if isinstance(event, ToolReturned)]


async def deltas_of(runner: Runner, *args: Any) -> tuple[list[Any], Any]:
    async with runner.stream("go") as run:
        seen = [event async for event in run]
    return [each for each in seen if isinstance(each, ProgressDelta | CustomDelta)], run.result


async def test_items_are_delivered_and_the_last_one_is_the_result() -> None:
    runner = Runner(agent_with(search, steps=[call("search", query="lamp"), "done"]))
    deltas, result = await deltas_of(runner)
    (progress, *hits) = deltas
    call_id = next(event.call_id for event in result.events if isinstance(event, ToolReturned))
    assert (progress.text, progress.call_id) == ("searching for lamp", call_id)
    assert [(hit.name, hit.data, hit.call_id) for hit in hits] == [
        ("search", {"title": "lamp 0", "score": 0.5}, call_id),
        ("search", {"title": "lamp 1", "score": 0.5}, call_id),
    ]
    assert results(result.events) == [("2 hits", False)]
    assert all(isinstance(event, Event) for event in result.events)


async def test_without_subscribers_the_result_is_the_same() -> None:
    # Items are not recorded.
    result = await Runner(agent_with(search, steps=[call("search", query="lamp"), "done"])).run("go")
    assert results(result.events) == [("2 hits", False)]
    assert (await Runner(agent_with(search)).runs.replay(result.events)).output == "done"


def test_the_schema_comes_from_the_parameters() -> None:
    assert search.spec.description == "Search the catalogue."
    assert search.spec.parameters["required"] == ["query"]
    assert search.spec.parameters["properties"]["query"] == {"type": "string", "description": "What to look for."}


async def test_calling_the_tool_returns_the_generator() -> None:
    items = [item async for item in search("lamp", limit=0)]
    assert items == ["searching for lamp", Final("0 hits")]


async def without_final() -> AsyncIterator[str]:
    """Forget the result."""
    yield "almost"


async def after_final() -> AsyncIterator[str | Final[str]]:
    """Go on after the result."""
    yield Final("done")
    yield "more"


async def two_finals() -> AsyncIterator[Final[str]]:
    """Give two results."""
    yield Final("one")
    yield Final("two")


async def no_items() -> AsyncIterator[str]:
    """Yield nothing."""
    for item in ():
        yield item


@pytest.mark.parametrize(
    ("function", "told"),
    [
        (without_final, r"tool `without_final` ended without a result; yield Final\(result\) last"),
        (no_items, r"tool `no_items` ended without a result"),
        (after_final, r"tool `after_final` yields after Final\(…\); make it the last item"),
        (two_finals, r"tool `two_finals` yields after Final"),
    ],
)
async def test_a_wrong_sequence_of_items_ends_the_run(function: Any, told: str) -> None:
    # The model cannot correct it.
    with pytest.raises(ToolResultError, match=told):
        await Runner(agent_with(tool(function))).run("go")


async def test_an_item_that_is_not_json_ends_the_run_with_and_without_subscribers() -> None:
    @tool
    async def odd() -> AsyncIterator[Any]:
        """Yield an object."""
        yield object()
        yield Final("done")

    with pytest.raises(NotEncodableError, match="an item of tool `odd`"):
        await Runner(agent_with(odd)).run("go")
    with pytest.raises(NotEncodableError, match="an item of tool `odd`"):
        await deltas_of(Runner(agent_with(odd)))


async def test_an_error_in_the_middle_is_returned_to_the_model_and_the_generator_is_closed() -> None:
    closed: list[str] = []

    @tool
    async def breaks() -> AsyncIterator[str | Final[str]]:
        """Break."""
        try:
            yield "so far"
            raise ToolError("out of paper")
        finally:
            closed.append("breaks")

    result = await Runner(agent_with(breaks)).run("go")
    assert results(result.events) == [("out of paper", True)]
    assert closed == ["breaks"]


async def test_a_timeout_closes_the_generator() -> None:
    clock, closed = FrozenLoopClock(), list[str]()

    @tool(timeout=60)
    async def slow() -> AsyncIterator[str | Final[str]]:
        """Take forever."""
        try:
            yield "starting"
            clock.advance(60)
            await asyncio.Event().wait()
            yield Final("never")
        finally:
            closed.append("slow")

    deltas, result = await deltas_of(Runner(agent_with(slow)))
    ((text, is_error),) = results(result.events)
    assert is_error
    assert text == str(ToolTimeoutError("slow", 60))
    assert [delta.text for delta in deltas] == ["starting"]
    assert closed == ["slow"]


async def test_cancelling_the_run_closes_the_generator() -> None:
    closed: list[str] = []

    @tool
    async def endless() -> AsyncIterator[str | Final[str]]:
        """Count forever."""
        try:
            while True:
                yield "tick"
                await asyncio.sleep(0)
            yield Final("never")
        finally:
            closed.append("endless")

    runner = Runner(agent_with(endless))
    async with runner.stream("go") as run:
        async for event in run:
            if isinstance(event, ProgressDelta):
                break
    assert run.result.status == "cancelled"
    assert closed == ["endless"]


async def test_approval_comes_before_the_first_item() -> None:
    started: list[str] = []

    @tool(needs_approval=True)
    async def erase() -> AsyncIterator[str | Final[str]]:
        """Erase."""
        started.append("erase")
        yield "erasing"
        yield Final("erased")

    runner = Runner(agent_with(erase))
    suspended = await runner.run("go")
    assert (suspended.status, started) == ("suspended", [])
    result = await runner.resume(suspended.run_id, True)
    assert (results(result.events), started) == ([("erased", False)], ["erase"])


async def test_a_streaming_tool_may_ask_and_resumes_from_its_beginning() -> None:
    steps: list[str] = []

    @tool
    async def book(ctx: RunContext) -> AsyncIterator[str | Final[str]]:
        """Book."""
        yield "looking"

        def work() -> str:
            steps.append("work")
            return "seat 4"

        seat = await ctx.step("work", work)
        answer = await ctx.interrupt(f"{seat}?")
        yield "booking"
        yield Final(f"{seat}: {answer}")

    runner = Runner(agent_with(book))
    suspended = await runner.run("go")
    result = await runner.resume(suspended.run_id, "yes")
    assert results(result.events) == [("seat 4: yes", False)]
    assert steps == ["work"]


async def test_final_may_hold_what_a_tool_may_return() -> None:
    # Also an agent, which is a transfer.
    other = Agent("B", model=ScriptedModel(["hello from B"]))

    @tool
    async def hand_over() -> AsyncGenerator[str | Final[Agent]]:
        """Hand over."""
        yield "looking for B"
        yield Final(other)

    result = await Runner(agent_with(hand_over), extra_agents=[other]).run("go")
    assert result.agent == "B"
    assert [event.target for event in result.events if isinstance(event, ControlTransferred)] == ["B"]


async def test_methods_partials_and_callable_objects_can_stream() -> None:
    class Counter:
        async def count(self, upto: int) -> AsyncIterator[str | Final[int]]:
            """Count."""
            for number in range(upto):
                yield str(number)
            yield Final(upto)

        async def __call__(self, upto: int) -> AsyncIterator[str | Final[int]]:
            """Count."""
            async for item in self.count(upto):
                yield item

    made: list[FunctionTool[..., Any, Any]] = [
        tool(Counter().count, name="count"),
        tool(partial(Counter().count, upto=3), name="count"),
        tool(Counter(), name="count"),
    ]
    for each in made:
        model = ScriptedModel(
            [call("count", **({} if "upto" not in each.spec.parameters["properties"] else {"upto": 3})), "ok"]
        )
        deltas, result = await deltas_of(Runner(Agent("A", tools=[each], model=model)))
        assert [delta.text for delta in deltas] == ["0", "1", "2"]
        assert results(result.events) == [("3", False)]


@pytest.mark.parametrize("effect", ["idempotent", "once"])
async def test_streaming_tools_survive_crashes_after_every_event(effect: Any) -> None:
    # A `once` tool streams and is called once.
    @tool(effect=effect)
    async def pay(ctx: RunContext, amount: int) -> AsyncIterator[str | Final[str]]:
        """Pay."""
        yield "paying"
        ctx.context.append(amount)
        yield {"paid": amount}  # pyright: ignore[reportReturnType]
        yield Final(f"paid {amount}")

    def new_runner(store: Any) -> Runner:
        steps = [call("pay", amount=3), call("pay", amount=4), "done"]
        return Runner(Agent("A", tools=[pay], model=ScriptedModel(steps)), store=store)

    await assert_survives_crashes(new_runner, "go", new_context=list)
