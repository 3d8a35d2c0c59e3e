"""Tools that misbehave: they hang, return invalid results, or are cancelled."""

import asyncio
import threading
from typing import Any

import pytest
from tests.waiting import PATIENCE

from batonkit import Agent, AgentContext, RunContext, Runner, SetupError, Transfer, agent, tool
from batonkit.errors import NotEncodableError, RunError, ToolFailedError, ToolResultError
from batonkit.log import InterruptRaised, StepCompleted
from batonkit.messages import Data, ToolMessage
from batonkit.testing import ScriptedModel, call, transcript
from batonkit.tools import FunctionTool


def runner_of(*tools: FunctionTool[..., Any], calls: list[str]) -> Runner[Any, str]:
    """`A` calls these tools and then says that it is done."""
    return Runner(Agent("A", model=ScriptedModel([[call(name) for name in calls], "done"]), tools=tools))


def test_a_tool_without_annotations() -> None:
    def untyped(city):  # pyright: ignore[reportUnknownParameterType, reportMissingParameterType]
        return city  # pyright: ignore[reportUnknownVariableType]

    with pytest.raises(
        SetupError, match=r"`untyped` cannot be a tool: parameter `city` has no annotation.*write `city: str`"
    ):
        Agent("A", tools=[untyped])  # pyright: ignore[reportUnknownArgumentType]


@pytest.mark.parametrize("value", [object(), {"a": object()}, threading.Lock, b"bytes", [{1, 2}, object()]])
async def test_a_result_that_cannot_be_read(value: Any) -> None:
    @tool
    async def odd() -> Any:
        """Return something odd."""
        return value

    with pytest.raises(ToolResultError, match=r"tool `odd` returned .*return ") as caught:
        await runner_of(odd, calls=["odd"]).run("hi")
    assert caught.value.tool == "odd"


async def test_a_tool_that_hangs_is_timed_out() -> None:
    @tool(timeout=0.01)
    async def hangs() -> str:
        """Hang."""
        await asyncio.Event().wait()
        return "never"

    result = await runner_of(hangs, calls=["hangs"]).run("hi")
    told = result.messages[2]
    assert isinstance(told, ToolMessage)
    assert (told.content, told.is_error) == ("tool `hangs` did not finish within 0.01 s", True)


async def test_a_tool_that_hangs_in_a_thread_is_left_behind() -> None:
    release = threading.Event()

    @tool(timeout=0.01)
    def hangs() -> str:
        """Hang."""
        release.wait(PATIENCE)
        return "too late"

    try:
        result = await runner_of(hangs, calls=["hangs"]).run("hi")
    finally:
        release.set()
    assert result.messages[2].content == "tool `hangs` did not finish within 0.01 s"


async def test_a_tool_that_hangs_is_cancelled_with_the_run() -> None:
    begun = asyncio.Event()
    ended: list[str] = []

    @tool
    async def hangs() -> str:
        """Hang."""
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            ended.append("cancelled")
            raise
        return "never"

    running = asyncio.create_task(runner_of(hangs, calls=["hangs", "hangs"]).run("hi"))
    await begun.wait()
    await asyncio.sleep(0)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert ended == ["cancelled", "cancelled"]
    assert asyncio.all_tasks() == {asyncio.current_task()}


@pytest.mark.parametrize("count", [1, 2])
async def test_a_tool_that_swallows_its_cancellation_does_not_save_the_run(count: int) -> None:
    begun = asyncio.Event()

    @tool
    async def stubborn() -> str:
        """Hang, and pretend that all is well."""
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return "all is well"
        return "never"

    model = ScriptedModel([[call("stubborn")] * count, "done"])
    async with Runner(Agent("A", model=model, tools=[stubborn])).stream("hi") as live:
        await begun.wait()
    assert asyncio.all_tasks() == {asyncio.current_task()}
    assert live.result.status == "cancelled"
    assert len(model.requests) == 1


async def test_a_tool_that_raises_for_the_run() -> None:
    @tool(on_error="raise")
    async def strict() -> str:
        """Fail."""
        raise KeyError("missing")

    with pytest.raises(ToolFailedError, match="tool `strict` failed: KeyError: 'missing'") as caught:
        await runner_of(strict, calls=["strict"]).run("hi")
    assert caught.value.tool == "strict"


@pytest.mark.parametrize("value", [object(), threading.Lock(), {"a": object()}])
async def test_a_value_that_cannot_be_stored(value: Any) -> None:
    @tool
    async def write(ctx: RunContext) -> str:
        """Write."""
        ctx.values.set("x", value)
        return "never"

    runner = runner_of(write, calls=["write"])
    live = runner.stream("hi")
    with pytest.raises(
        NotEncodableError, match=r"value `x` is an? .*keep other objects in the run's context"
    ) as caught:
        await live._drive()
    assert (caught.value.what, caught.value.value) == ("value `x`", value)
    assert live.result.values == {}


async def test_a_step_whose_result_cannot_be_stored() -> None:
    @agent("A")
    async def a(ctx: AgentContext) -> None:
        await ctx.step("lock", lambda: threading.Lock())

    live = Runner(a).stream("hi")
    with pytest.raises(NotEncodableError, match="the result of step `lock` is a lock"):
        await live._drive()
    assert not any(isinstance(event, StepCompleted) for event in live.result.events)


async def test_a_question_that_cannot_be_stored() -> None:
    @tool
    async def ask(ctx: RunContext) -> str:
        """Ask."""
        return str(await ctx.interrupt({"callback": print}))

    live = runner_of(ask, calls=["ask"]).stream("hi")
    with pytest.raises(NotEncodableError, match="the payload of an interrupt is a dict") as caught:
        await live._drive()
    assert isinstance(caught.value, RunError)
    assert not any(isinstance(event, InterruptRaised) for event in live.result.events)


async def test_a_payload_of_a_transfer_that_cannot_be_stored() -> None:
    @agent("A", handoffs=["B"])
    async def a(ctx: AgentContext) -> Transfer:
        return Transfer("B", payload=threading.Lock())

    with pytest.raises(NotEncodableError):
        await Runner(a, extra_agents=[Agent("B", model=ScriptedModel(["hello"]))]).run("hi")


async def test_something_said_that_cannot_be_stored() -> None:
    @agent("A")
    async def a(ctx: AgentContext) -> None:
        await ctx.say((Data(threading.Lock()),))

    with pytest.raises(NotEncodableError):
        await Runner(a).run("hi")


async def test_an_agent_of_ones_own_that_returns_something_else() -> None:
    @agent("A")
    async def a(ctx: AgentContext) -> Any:
        await ctx.say("hello")
        return "not an action"

    with pytest.raises(SetupError, match=r"`A`.*not an action"):
        await Runner(a).run("hi")


async def test_an_agent_of_ones_own_that_fails() -> None:
    @agent("A")
    async def a(ctx: AgentContext) -> None:
        raise ZeroDivisionError("my own")

    live = Runner(a).stream("hi", run_id="r1")
    with pytest.raises(ZeroDivisionError, match="my own") as caught:
        await live._drive()
    assert caught.value.__notes__ == ["in run r1, at A"]
    assert transcript(live.result.events)[-1] == "run failed with ZeroDivisionError: my own"


async def test_instructions_that_fail() -> None:
    def instructions(ctx: AgentContext) -> str:
        raise KeyError("customer")

    live = Runner(Agent("A", model=ScriptedModel(["never"]), instructions=instructions)).stream("hi")
    with pytest.raises(KeyError):
        await live._drive()
    assert live.result.status == "failed"


async def test_a_projection_that_gives_no_messages() -> None:
    def wrong(entries: Any) -> Any:
        return "everything"

    with pytest.raises(SetupError, match="`A`"):
        await Runner(Agent("A", model=ScriptedModel(["never"]), history=wrong)).run("hi")


def test_an_approval_function_with_the_wrong_parameters_names_its_tool() -> None:
    def is_large(arguments: dict[str, Any]) -> bool:
        return True

    with pytest.raises(SetupError, match=r"needs_approval of tool `refund` is called with \(ctx, arguments\)"):

        @tool(needs_approval=is_large, effect="once")  # pyright: ignore[reportArgumentType]
        async def refund() -> str:
            """Pay money back."""
            return "paid"
