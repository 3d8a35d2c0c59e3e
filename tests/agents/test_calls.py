"""The tool calls of one turn: concurrency, order of results, errors, timeouts and interrupts."""

import asyncio
import threading
from typing import Any

import pytest

from batonkit import Agent, RunContext, Runner, tool
from batonkit.errors import (
    NotEncodableError,
    OpenInterruptError,
    ToolError,
    ToolFailedError,
    ToolResultError,
    TransferError,
)
from batonkit.log import StepCompleted, ToolReturned
from batonkit.messages import ToolMessage, ToolSpec, text_of
from batonkit.testing import ScriptedModel, call
from batonkit.tools import FunctionTool, ToolResult
from batonkit.tools.base_tool import ToolWrapper


def make_runner(
    *tools: FunctionTool[..., Any], calls: list[str], **options: Any
) -> tuple[Runner[Any, str], ScriptedModel]:
    """Create a runner of agent `A`, which calls these tools in one response and then says "done"."""
    model = ScriptedModel([[call(name) for name in calls], "done"])
    return Runner(Agent("A", model=model, tools=tools, **options)), model


async def test_tools_of_one_turn_run_concurrently() -> None:
    # Each waits for the other, so they would never finish one after another.
    one_started, two_started = asyncio.Event(), asyncio.Event()

    @tool
    async def one() -> str:
        one_started.set()
        await two_started.wait()
        return "1"

    @tool
    async def two() -> str:
        two_started.set()
        await one_started.wait()
        return "2"

    runner, _ = make_runner(one, two, calls=["one", "two"])
    assert (await runner.run("hi")).output == "done"


async def test_results_are_delivered_when_they_arrive_and_read_in_call_order() -> None:
    second_delivered = asyncio.Event()

    @tool
    async def first() -> str:
        await second_delivered.wait()
        return "1"

    @tool
    async def second() -> str:
        return "2"

    runner, model = make_runner(first, second, calls=["first", "second"])
    delivered: list[str] = []
    async with runner.stream("hi") as stream:
        async for event in stream:
            if isinstance(event, ToolReturned):
                delivered.append(event.tool_name)
                # The first tool waits until the result of the second was delivered.
                second_delivered.set()
    assert delivered == ["second", "first"]
    results = [message for message in model.requests[1].messages if isinstance(message, ToolMessage)]
    assert [result.name for result in results] == ["first", "second"]


async def test_tools_run_one_after_another_without_concurrent_tools() -> None:
    running: list[str] = []
    running_counts: list[int] = []

    async def work(name: str) -> str:
        running.append(name)
        running_counts.append(len(running))
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

    sequential, _ = make_runner(one, two, calls=["two", "one", "two"], concurrent_tools=False)
    result = await sequential.run("hi")
    assert running_counts == [1, 1, 1]
    assert [event.tool_name for event in result.events if isinstance(event, ToolReturned)] == ["two", "one", "two"]
    running_counts.clear()
    parallel, _ = make_runner(one, two, calls=["two", "one", "two"])
    await parallel.run("hi")
    assert max(running_counts) == 3


async def test_a_sync_function_runs_in_a_worker_thread() -> None:
    barrier = threading.Barrier(2, timeout=60)

    @tool
    def blocking() -> str:
        # Blocks its thread until the other call runs, which would never happen in the event loop's thread.
        barrier.wait()
        return threading.current_thread().name

    runner, _ = make_runner(blocking, calls=["blocking", "blocking"])
    result = await runner.run("hi")
    names = {text_of(event.content) for event in result.events if isinstance(event, ToolReturned)}
    assert names
    assert threading.current_thread().name not in names


async def test_the_error_of_a_tool_is_returned_to_the_model() -> None:
    @tool
    async def fragile() -> str:
        raise OSError("disk full")

    runner, model = make_runner(fragile, calls=["fragile"])
    assert (await runner.run("hi")).output == "done"
    result = model.requests[1].messages[-1]
    assert isinstance(result, ToolMessage)
    assert result.is_error
    assert result.content == "tool `fragile` failed: OSError: disk full"


async def test_the_error_of_a_custom_tool_is_returned_to_the_model() -> None:
    # The contract holds for every tool, not only for functions.
    class BrokenTool:
        spec = ToolSpec("broken")

        async def call(self, ctx: RunContext, arguments: str) -> ToolResult:
            raise OSError("disk full")

    class ToolErrorTool:
        spec = ToolSpec("with_message")

        async def call(self, ctx: RunContext, arguments: str) -> ToolResult:
            raise ToolError("please try again")

    model = ScriptedModel([[call("broken"), call("with_message")], "done"])
    result = await Runner(Agent("A", model=model, tools=[BrokenTool(), ToolErrorTool()])).run("hi")
    returned = [event for event in result.events if isinstance(event, ToolReturned)]
    assert [(event.content, event.is_error) for event in returned] == [
        ("OSError: disk full", True),
        ("please try again", True),
    ]


async def test_on_error_raise_ends_the_run_after_the_other_tools_have_finished() -> None:
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

    runner, _ = make_runner(strict, other, calls=["strict", "other"])
    stream = runner.stream("hi")
    with pytest.raises(ToolFailedError, match="`strict` failed: OSError: disk full") as caught:
        await stream._drive()
    assert caught.value.tool == "strict"
    assert isinstance(caught.value.__cause__, OSError)
    assert [event.tool_name for event in stream.result.events if isinstance(event, ToolReturned)] == ["other"]
    assert stream.result.status == "failed"


async def test_sequential_tools_run_after_one_that_interrupts_but_not_after_one_that_fails() -> None:
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

    runner, _ = make_runner(asks, other, calls=["asks", "other"], concurrent_tools=False)
    assert ((await runner.run("hi")).status, done) == ("suspended", ["other"])
    runner, _ = make_runner(asks, strict, other, calls=["asks", "strict", "other"], concurrent_tools=False)
    with pytest.raises(ToolFailedError):
        await runner.run("hi")
    assert done == ["other"]


async def test_a_resumed_turn_runs_only_the_failed_tool() -> None:
    # Recorded calls are not executed again.
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

    runner, model = make_runner(strict, other, calls=["strict", "other"])
    stream = runner.stream("hi")
    with pytest.raises(ToolFailedError):
        await stream._drive()
    assert runs == ["strict", "other"]
    result = await runner.resume(stream.run_id)
    assert result.output == "done"
    assert runs == ["strict", "other", "strict"]
    assert len(model.requests) == 2


async def test_a_tool_has_its_own_timeout() -> None:
    @tool(timeout=0.01)
    async def hangs() -> str:
        await asyncio.Event().wait()
        return "never"

    @tool
    async def other() -> str:
        return "finished"

    runner, model = make_runner(hangs, other, calls=["hangs", "other"])
    assert (await runner.run("hi")).output == "done"
    results = [message for message in model.requests[1].messages if isinstance(message, ToolMessage)]
    assert [(result.content, result.is_error) for result in results] == [
        ("tool `hangs` did not finish within 0.01 s", True),
        ("finished", False),
    ]


async def test_a_timeout_with_on_error_raise_ends_the_run() -> None:
    @tool(timeout=0.01, on_error="raise")
    async def hangs() -> str:
        await asyncio.Event().wait()
        return "never"

    runner, _ = make_runner(hangs, calls=["hangs"])
    with pytest.raises(ToolFailedError, match=r"tool `hangs` did not finish within 0\.01 s"):
        await runner.run("hi")


async def test_a_result_that_cannot_be_encoded_ends_the_run() -> None:
    # Only the developer can fix it, so it is not returned to the model.
    @tool
    async def odd() -> object:
        return object()

    runner, model = make_runner(odd, calls=["odd"])
    with pytest.raises(ToolResultError, match="tool `odd` returned a object") as caught:
        await runner.run("hi")
    assert caught.value.tool == "odd"
    assert len(model.requests) == 1


async def test_a_value_that_cannot_be_stored_ends_the_run() -> None:
    @tool
    async def odd(ctx: RunContext) -> str:
        ctx.values.set("lock", threading.Lock())
        return "never"

    runner, _ = make_runner(odd, calls=["odd"])
    with pytest.raises(NotEncodableError, match="value `lock` is a lock"):
        await runner.run("hi")


async def test_a_tool_can_read_its_call_its_agent_and_an_idempotency_key() -> None:
    seen: list[tuple[str, tuple[str, ...], str, str]] = []

    @tool
    async def look(ctx: RunContext) -> str:
        assert ctx.tool_call is not None
        seen.append((ctx.agent, ctx.path, ctx.tool_call.name, ctx.idempotency_key))
        return str(await ctx.interrupt("?"))

    runner, _ = make_runner(look, calls=["look", "look"])
    suspended = await runner.run("hi", run_id="r1")
    assert [entry[:3] for entry in seen] == [("A", ("A",), "look")] * 2
    keys = [entry[3] for entry in seen]
    assert len(set(keys)) == 2
    assert all(key.startswith("r1:") for key in keys)
    await runner.resume(suspended.run_id, {question.id: "x" for question in suspended.interrupts})
    # Every attempt of a call has the same key.
    assert [entry[3] for entry in seen[2:]] == keys


async def test_values_a_tool_writes_are_recorded_with_its_result() -> None:
    @tool
    async def write(ctx: RunContext) -> str:
        ctx.values.set("x", 1)
        return "ok"

    runner, _ = make_runner(write, calls=["write"])
    result = await runner.run("hi")
    (returned,) = [event for event in result.events if isinstance(event, ToolReturned)]
    assert returned.value_changes is not None
    assert returned.value_changes.written == {"x": 1}
    assert result.values == {"x": 1}


async def test_a_tool_result_can_contain_values() -> None:
    @tool
    async def find(ctx: RunContext) -> ToolResult:
        """Find."""
        return ToolResult("found", values={"where": "here"})

    runner, _ = make_runner(find, calls=["find"])
    result = await runner.run("hi")
    assert result.values == {"where": "here"}
    assert (await runner.runs.replay(result.events)).values == {"where": "here"}


async def test_a_transfer_of_a_tool_to_an_unknown_agent_ends_the_run() -> None:
    # A model cannot correct it.
    @tool
    async def transfer_away() -> ToolResult:
        """Transfer to an unknown agent."""
        return ToolResult("going", transfer_to="Unknown")

    runner, _ = make_runner(transfer_away, calls=["transfer_away"])
    with pytest.raises(TransferError, match=r"`A` cannot transfer to `Unknown`; it can reach: nothing\."):
        await runner.run("hi")


async def test_a_function_that_returns_an_agent_runs_once_even_if_the_turn_is_suspended() -> None:
    # It has run and must not run again after the approval.
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


# --- tools that continue without the answer


async def test_a_tool_that_swallows_its_interrupt_ends_the_run() -> None:
    @tool
    async def book(ctx: RunContext) -> str:
        try:
            return await ctx.interrupt("which seat?")
        except BaseException:  # noqa: BLE001 - the mistake under test
            return "any seat"

    runner, model = make_runner(book, calls=["book"])
    stream = runner.stream("hi")
    with pytest.raises(
        OpenInterruptError, match=r"tool `book` of `A` continued while its question `1/m1.0/ask1` is open"
    ):
        await stream._drive()
    assert stream.result.status == "failed"
    assert len(model.requests) == 1
    assert (await runner.resume(stream.run_id, "12A")).output == "done"


async def test_a_tool_that_turns_its_interrupt_into_an_error_ends_the_run() -> None:
    # Otherwise a delivered interrupt would be closed silently.
    @tool
    async def book(ctx: RunContext) -> str:
        try:
            return await ctx.interrupt("which seat?")
        except BaseException as error:
            raise ValueError("no seat") from error

    runner, _ = make_runner(book, calls=["book"])
    with pytest.raises(OpenInterruptError, match="tool `book`"):
        await runner.run("hi")


async def test_a_tool_wrapper_that_swallows_the_interrupt_of_an_agent_ends_the_run() -> None:
    @tool
    async def ask(ctx: RunContext) -> str:
        return await ctx.interrupt("?")

    inner = Agent("Inner", model=ScriptedModel([call("ask"), "asked"]), tools=[ask])

    class SwallowingWrapper(ToolWrapper):
        async def call(self, ctx: RunContext, arguments: str) -> ToolResult:
            try:
                return await self.inner.call(ctx, arguments)
            except BaseException:  # noqa: BLE001 - the mistake under test
                return ToolResult("never mind")

    outer = Agent(
        "Outer", model=ScriptedModel([call("inner", request="go"), "done"]), tools=[SwallowingWrapper(inner.as_tool())]
    )
    with pytest.raises(
        OpenInterruptError, match=r"tool `inner` of `Outer` continued while its question .*/ask1` is open"
    ):
        await Runner(outer).run("hi")


async def test_the_interrupt_of_an_agent_that_failed_is_closed() -> None:
    # The call as a whole failed, and the calling model gets the error.
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
