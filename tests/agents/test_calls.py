"""How the tools of one turn run: at once, results in order, each told when it happens, failures as results."""

import asyncio
import threading
from typing import Any

import pytest

from baton import Agent, RunContext, Runner, tool
from baton.errors import (
    NotEncodableError,
    OpenInterruptError,
    ToolError,
    ToolFailedError,
    ToolResultError,
    TransferError,
)
from baton.events import StepCompleted, ToolReturned
from baton.messages import ToolMessage, ToolSpec, text_of
from baton.testing import ScriptedModel, call
from baton.tools import FunctionTool, ToolResult
from baton.tools.base import ToolWrapper


def run_of(*tools: FunctionTool[..., Any], calls: list[str], **facts: Any) -> tuple[Runner[Any, str], ScriptedModel]:
    """`A` calls these tools in one response, then says that it is done."""
    model = ScriptedModel([[call(name) for name in calls], "done"])
    return Runner(Agent("A", model=model, tools=tools, **facts)), model


async def test_tools_of_one_turn_run_at_the_same_time() -> None:
    # T9: each waits for the other, so one after the other they would never end.
    here, there = asyncio.Event(), asyncio.Event()

    @tool
    async def one() -> str:
        here.set()
        await there.wait()
        return "1"

    @tool
    async def two() -> str:
        there.set()
        await here.wait()
        return "2"

    runner, _ = run_of(one, two, calls=["one", "two"])
    assert (await runner.run("hi")).output == "done"


async def test_results_enter_history_in_the_order_of_the_calls_and_are_told_when_they_happen() -> None:
    # T9
    second_told = asyncio.Event()

    @tool
    async def first() -> str:
        await second_told.wait()
        return "1"

    @tool
    async def second() -> str:
        return "2"

    runner, model = run_of(first, second, calls=["first", "second"])
    told: list[str] = []
    async with runner.stream("hi") as live:
        async for event in live:
            if isinstance(event, ToolReturned):
                told.append(event.tool_name)
                # Only who has been told of the second lets the first go on.
                second_told.set()
    assert told == ["second", "first"]
    results = [message for message in model.requests[1].messages if isinstance(message, ToolMessage)]
    assert [result.name for result in results] == ["first", "second"]


async def test_one_at_a_time_if_that_is_wanted() -> None:
    # T9
    running: list[str] = []
    at_once: list[int] = []

    async def work(name: str) -> str:
        running.append(name)
        at_once.append(len(running))
        for _ in range(3):
            await asyncio.sleep(0)
        running.remove(name)
        return name

    @tool
    async def one() -> str:
        return await work("one")

    @tool
    async def two() -> str:
        return await work("two")

    sequential, _ = run_of(one, two, calls=["two", "one", "two"], concurrent_tools=False)
    result = await sequential.run("hi")
    assert at_once == [1, 1, 1]
    assert [event.tool_name for event in result.events if isinstance(event, ToolReturned)] == ["two", "one", "two"]
    at_once.clear()
    parallel, _ = run_of(one, two, calls=["two", "one", "two"])
    await parallel.run("hi")
    assert max(at_once) == 3


async def test_a_sync_function_runs_in_a_worker_thread() -> None:
    # T9
    barrier = threading.Barrier(2, timeout=20)

    @tool
    def blocking() -> str:
        # Blocks its thread until the other call has come: in the event loop's own thread that would never be.
        barrier.wait()
        return threading.current_thread().name

    runner, _ = run_of(blocking, calls=["blocking", "blocking"])
    result = await runner.run("hi")
    names = {text_of(event.content) for event in result.events if isinstance(event, ToolReturned)}
    assert names
    assert threading.current_thread().name not in names


async def test_a_failing_tool_is_an_error_result_for_the_model() -> None:
    # T9
    @tool
    async def fragile() -> str:
        raise OSError("disk full")

    runner, model = run_of(fragile, calls=["fragile"])
    assert (await runner.run("hi")).output == "done"
    result = model.requests[1].messages[-1]
    assert isinstance(result, ToolMessage)
    assert result.is_error
    assert result.content == "tool `fragile` failed: OSError: disk full"


async def test_a_tool_that_is_no_function_fails_the_same_way() -> None:
    # T9: the contract is the protocol's, not only that of functions.
    class Wild:
        spec = ToolSpec("wild")

        async def call(self, ctx: RunContext, arguments: str) -> ToolResult:
            raise OSError("disk full")

    class Polite:
        spec = ToolSpec("polite")

        async def call(self, ctx: RunContext, arguments: str) -> ToolResult:
            raise ToolError("please try again")

    model = ScriptedModel([[call("wild"), call("polite")], "done"])
    result = await Runner(Agent("A", model=model, tools=[Wild(), Polite()])).run("hi")
    returned = [event for event in result.events if isinstance(event, ToolReturned)]
    assert [(event.content, event.is_error) for event in returned] == [
        ("OSError: disk full", True),
        ("please try again", True),
    ]


async def test_on_error_raise_ends_the_run_after_the_others_have_finished() -> None:
    # T9
    failed = asyncio.Event()

    @tool(on_error="raise")
    async def strict() -> str:
        failed.set()
        raise OSError("disk full")

    @tool
    async def other() -> str:
        await failed.wait()
        await asyncio.sleep(0)
        return "finished"

    runner, _ = run_of(strict, other, calls=["strict", "other"])
    live = runner.stream("hi")
    with pytest.raises(ToolFailedError, match="`strict` failed: OSError: disk full") as caught:
        await live._drive()
    assert caught.value.tool == "strict"
    assert isinstance(caught.value.__cause__, OSError)
    assert [event.tool_name for event in live.result.events if isinstance(event, ToolReturned)] == ["other"]
    assert live.result.status == "failed"


async def test_one_at_a_time_the_others_still_run_after_one_that_fails_or_asks() -> None:
    # T9, DESIGN §6: siblings finish.
    done: list[str] = []

    @tool(on_error="raise")
    async def strict() -> str:
        """Fail."""
        raise OSError("disk full")

    @tool
    async def asks(ctx: RunContext) -> str:
        """Ask."""
        return str(await ctx.interrupt("?"))

    @tool
    async def other() -> str:
        """Do something."""
        done.append("other")
        return "ok"

    runner, _ = run_of(asks, other, calls=["asks", "other"], concurrent_tools=False)
    assert ((await runner.run("hi")).status, done) == ("suspended", ["other"])
    runner, _ = run_of(asks, strict, other, calls=["asks", "strict", "other"], concurrent_tools=False)
    with pytest.raises(ToolFailedError):
        await runner.run("hi")
    assert done == ["other", "other"]


async def test_a_failed_turn_resumed_runs_only_what_failed() -> None:
    # T9, DESIGN §1: what is recorded is not done again.
    runs: list[str] = []

    @tool(on_error="raise")
    async def strict() -> str:
        runs.append("strict")
        if len(runs) < 3:
            raise OSError("disk full")
        return "at last"

    @tool
    async def other() -> str:
        runs.append("other")
        return "finished"

    runner, model = run_of(strict, other, calls=["strict", "other"])
    live = runner.stream("hi")
    with pytest.raises(ToolFailedError):
        await live._drive()
    assert runs == ["strict", "other"]
    result = await runner.resume(live.run_id)
    assert result.output == "done"
    assert runs == ["strict", "other", "strict"]
    assert len(model.requests) == 2


async def test_a_tool_has_its_own_timeout() -> None:
    # T9
    @tool(timeout=0.01)
    async def hangs() -> str:
        await asyncio.Event().wait()
        return "never"

    @tool
    async def other() -> str:
        return "finished"

    runner, model = run_of(hangs, other, calls=["hangs", "other"])
    assert (await runner.run("hi")).output == "done"
    results = [message for message in model.requests[1].messages if isinstance(message, ToolMessage)]
    assert [(result.content, result.is_error) for result in results] == [
        ("tool `hangs` did not finish within 0.01 s", True),
        ("finished", False),
    ]


async def test_a_timeout_may_end_the_run() -> None:
    # T9
    @tool(timeout=0.01, on_error="raise")
    async def hangs() -> str:
        await asyncio.Event().wait()
        return "never"

    runner, _ = run_of(hangs, calls=["hangs"])
    with pytest.raises(ToolFailedError, match=r"tool `hangs` did not finish within 0\.01 s"):
        await runner.run("hi")


async def test_what_no_model_can_read_ends_the_run() -> None:
    # T9: the program's author must mend it, so the model is not bothered.
    @tool
    async def odd() -> object:
        return object()

    runner, model = run_of(odd, calls=["odd"])
    with pytest.raises(ToolResultError, match="tool `odd` returned a object") as caught:
        await runner.run("hi")
    assert caught.value.tool == "odd"
    assert len(model.requests) == 1


async def test_a_value_that_cannot_be_stored_ends_the_run() -> None:
    @tool
    async def odd(ctx: RunContext) -> str:
        ctx.values.set("lock", threading.Lock())
        return "never"

    runner, _ = run_of(odd, calls=["odd"])
    with pytest.raises(NotEncodableError, match="value `lock` is a lock"):
        await runner.run("hi")


async def test_a_tool_knows_its_call_its_agent_and_a_key_for_outside_systems() -> None:
    seen: list[tuple[str, tuple[str, ...], str, str]] = []

    @tool
    async def look(ctx: RunContext) -> str:
        assert ctx.tool_call is not None
        seen.append((ctx.agent, ctx.path, ctx.tool_call.name, ctx.idempotency_key))
        return str(await ctx.interrupt("?"))

    runner, _ = run_of(look, calls=["look", "look"])
    suspended = await runner.run("hi", run_id="r1")
    assert [entry[:3] for entry in seen] == [("A", ("A",), "look")] * 2
    keys = [entry[3] for entry in seen]
    assert len(set(keys)) == 2
    assert all(key.startswith("r1:") for key in keys)
    await runner.resume(suspended.run_id, {question.id: "x" for question in suspended.interrupts})
    # The same for every attempt at the same call.
    assert [entry[3] for entry in seen[2:]] == keys


async def test_values_a_tool_writes_are_recorded_with_its_result() -> None:
    @tool
    async def write(ctx: RunContext) -> str:
        ctx.values.set("x", 1)
        return "ok"

    runner, _ = run_of(write, calls=["write"])
    result = await runner.run("hi")
    (returned,) = [event for event in result.events if isinstance(event, ToolReturned)]
    assert returned.value_changes is not None
    assert returned.value_changes.written == {"x": 1}
    assert result.values == {"x": 1}


async def test_a_result_may_bring_values_with_it() -> None:
    # swarm.md S1
    @tool
    async def find(ctx: RunContext) -> ToolResult:
        """Find."""
        return ToolResult("found", values={"where": "here"})

    runner, _ = run_of(find, calls=["find"])
    result = await runner.run("hi")
    assert result.values == {"where": "here"}
    assert (await runner.replay(result.events)).values == {"where": "here"}


async def test_a_tool_that_names_an_agent_nobody_knows_ends_the_run() -> None:
    # T13, T19: no model can mend it.
    @tool
    async def lost() -> ToolResult:
        """Hand over to nobody."""
        return ToolResult("going", transfer_to="Nobody")

    runner, _ = run_of(lost, calls=["lost"])
    with pytest.raises(TransferError, match=r"`A` cannot transfer to `Nobody`; it can reach: nothing\."):
        await runner.run("hi")


async def test_a_function_that_returns_an_agent_runs_once_even_if_the_turn_must_wait() -> None:
    # T13, T18: it has run, and must not run again when the approval comes.
    runs: list[str] = []
    sales = Agent("Sales")

    def to_sales() -> Agent:
        runs.append("to_sales")
        return sales

    @tool(needs_approval=True)
    async def pay() -> str:
        runs.append("pay")
        return "paid"

    model = ScriptedModel({"A": [[call("to_sales"), call("pay")]], "Sales": ["hello"]})
    runner = Runner(Agent("A", tools=[to_sales, pay]), model=model)
    suspended = await runner.run("hi")
    assert (suspended.status, runs) == ("suspended", ["to_sales"])
    result = await runner.resume(suspended.run_id, True)
    assert (result.agent, runs) == ("Sales", ["to_sales", "pay"])
    assert sum(isinstance(event, StepCompleted) and event.name == "to_sales" for event in result.events) == 1


# --- F12: tools that go on without the answer


async def test_a_tool_that_swallows_its_suspension_is_an_error_and_not_a_result() -> None:
    # F12
    @tool
    async def book(ctx: RunContext) -> str:
        try:
            return await ctx.interrupt("which seat?")
        except BaseException:  # noqa: BLE001 - the mistake under test
            return "any seat"

    runner, model = run_of(book, calls=["book"])
    live = runner.stream("hi")
    with pytest.raises(
        OpenInterruptError, match=r"tool `book` of `A` went on while its question `1/m1.0/ask1` is open"
    ):
        await live._drive()
    assert live.result.status == "failed"
    assert len(model.requests) == 1
    assert (await runner.resume(live.run_id, "12A")).output == "done"


async def test_a_tool_that_fails_while_its_question_is_open_is_an_error_too() -> None:
    # F12: otherwise the question that was shown would silently be closed.
    @tool
    async def book(ctx: RunContext) -> str:
        try:
            return await ctx.interrupt("which seat?")
        except BaseException as error:
            raise ValueError("no seat") from error

    runner, _ = run_of(book, calls=["book"])
    with pytest.raises(OpenInterruptError, match="tool `book`"):
        await runner.run("hi")


async def test_a_tool_that_swallows_the_question_of_an_agent_inside_is_an_error() -> None:
    # F12
    @tool
    async def ask(ctx: RunContext) -> str:
        return await ctx.interrupt("?")

    inner = Agent("Inner", model=ScriptedModel([call("ask"), "asked"]), tools=[ask])

    class Careless(ToolWrapper):
        async def call(self, ctx: RunContext, arguments: str) -> ToolResult:
            try:
                return await self.inner.call(ctx, arguments)
            except BaseException:  # noqa: BLE001 - the mistake under test
                return ToolResult("never mind")

    outer = Agent(
        "Outer", model=ScriptedModel([call("inner", request="go"), "done"]), tools=[Careless(inner.as_tool())]
    )
    with pytest.raises(
        OpenInterruptError, match=r"tool `inner` of `Outer` went on while its question .*/ask1` is open"
    ):
        await Runner(outer).run("hi")


async def test_a_question_of_an_agent_that_failed_is_closed() -> None:
    # F12: the agent as a tool failed as a whole, and the caller reads why.
    @tool
    async def ask(ctx: RunContext) -> str:
        return await ctx.interrupt("?")

    @tool(on_error="raise")
    async def fail() -> str:
        raise ValueError("broken")

    inner = Agent("Inner", model=ScriptedModel([[call("ask"), call("fail")]]), tools=[ask, fail])
    model = ScriptedModel([call("inner", request="go"), "done"])
    result = await Runner(Agent("Outer", model=model, tools=[inner.as_tool()])).run("hi")
    assert result.output == "done"
