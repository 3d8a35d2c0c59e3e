"""Timeouts per tool."""

import asyncio
import threading
from typing import Any

import pytest
from tests.loop_clock import FrozenLoopClock

from batonkit.context import RunContext
from batonkit.context.run_context import SuspendRun
from batonkit.errors import SetupError, ToolFailedError, ToolTimeoutError
from batonkit.messages import ToolSpec
from batonkit.tools import ToolResult, tool
from batonkit.tools.base_tool import unwrap_tool
from batonkit.tools.wrappers import TimeoutTool

Ctx = RunContext[Any]
TOO_LATE = ToolResult("tool `wait` did not finish within 0.01 s", is_error=True)


async def wait() -> str:
    await asyncio.Event().wait()
    return "never"


async def test_the_model_is_told_that_time_was_up(ctx: Ctx) -> None:
    assert await tool(wait, timeout=0.01).call(ctx, "") == TOO_LATE
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0


async def test_a_tool_that_is_in_time_is_not_touched(ctx: Ctx) -> None:
    assert await tool(lambda: "soon", name="quick", timeout=60).call(ctx, "") == ToolResult("soon")


async def test_the_policy_for_errors_holds_for_time_too(ctx: Ctx) -> None:
    with pytest.raises(ToolFailedError, match=r"did not finish within 0\.01 s") as raised:
        await tool(wait, timeout=0.01, on_error="raise").call(ctx, "")
    assert isinstance(raised.value.__cause__, ToolTimeoutError)
    assert raised.value.__cause__.seconds == 0.01
    outcome = await tool(wait, timeout=0.01, on_error=lambda error: type(error).__name__).call(ctx, "")
    assert outcome == ToolResult("ToolTimeoutError", is_error=True)


async def test_a_timeout_of_the_function_itself_is_an_ordinary_failure(ctx: Ctx) -> None:
    async def gives_up() -> str:
        raise TimeoutError("the satellite is silent")

    outcome = await tool(gives_up, timeout=60).call(ctx, "")
    assert outcome.content == "tool `gives_up` failed: TimeoutError: the satellite is silent"


async def test_a_sync_function_is_left_behind_at_once(ctx: Ctx, caplog: pytest.LogCaptureFixture) -> None:
    clock, loop, has_started, may_end = (
        FrozenLoopClock(),
        asyncio.get_running_loop(),
        asyncio.Event(),
        threading.Event(),
    )

    def block() -> None:
        loop.call_soon_threadsafe(has_started.set)
        may_end.wait()

    calling = asyncio.create_task(tool(block, name="wait", timeout=0.01).call(ctx, ""))
    await has_started.wait()
    try:
        clock.advance(0.01)
        # No more time passes, so it does not get the grace period that it has when the run is cancelled.
        assert await calling == TOO_LATE
    finally:
        may_end.set()
    assert any("was abandoned" in record.message for record in caplog.records)


async def test_cancelling_the_run_is_not_a_timeout(ctx: Ctx) -> None:
    has_started = asyncio.Event()

    async def started() -> None:
        has_started.set()
        await asyncio.Event().wait()

    running = asyncio.create_task(tool(started, timeout=60).call(ctx, ""))
    await has_started.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


async def test_a_run_cancelled_while_time_is_up_is_cancelled(ctx: Ctx) -> None:
    has_rung = asyncio.Event()

    async def slow_to_leave() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            has_rung.set()
            await asyncio.Event().wait()

    running = asyncio.create_task(tool(slow_to_leave, timeout=0.01).call(ctx, ""))
    await has_rung.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


async def test_a_function_that_finishes_all_the_same_has_finished(ctx: Ctx) -> None:
    async def stubborn() -> str:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return "made it"
        return "never"

    assert await tool(stubborn, timeout=0.01).call(ctx, "") == ToolResult("made it")
    await asyncio.sleep(0)  # Where a cancellation that was left over would strike.


async def test_an_interrupt_passes_through(ctx: Ctx) -> None:
    async def asks(ctx: Ctx) -> str:
        return str(await ctx.interrupt("may I?"))

    with pytest.raises(SuspendRun):
        await tool(asks, timeout=60).call(ctx, "")


async def test_any_tool_can_be_timed(ctx: Ctx) -> None:
    class Remote:
        spec = ToolSpec("wait")

        async def call(self, ctx: Ctx, arguments: str) -> ToolResult:
            await asyncio.Event().wait()
            return ToolResult(arguments)

    remote = Remote()
    timed = TimeoutTool(remote, 0.01)
    assert timed.spec is remote.spec
    assert unwrap_tool(timed) is remote
    assert await timed.call(ctx, "") == TOO_LATE


@pytest.mark.parametrize("seconds", [0, -1, float("nan")])
def test_no_time_at_all_is_a_mistake(seconds: float) -> None:
    with pytest.raises(SetupError, match="give a number of seconds above 0"):
        tool(wait, timeout=seconds)
