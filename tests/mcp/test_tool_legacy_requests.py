"""Requests of servers with a protocol before 2026-07-28, which suspend the call in flight."""

import asyncio
from typing import Any

import pytest
from mcp.server.mcpserver import Context
from mcp.server.mcpserver import MCPServer as SDKServer
from mcp_types import ToolAnnotations
from pydantic import BaseModel
from tests.loop_clock import LoopClock
from tests.mcp.servers import runner_with_calls, tool_results
from tests.waiting import until

from batonkit.mcp import MCPToolset
from batonkit.testing import call


class Size(BaseModel):
    size: int = 40
    colour: str = "blue"


def shop(call_log: list[str]) -> SDKServer:
    """Create a server whose tools elicit a size and record when they start and end."""
    server = SDKServer("shop")

    async def sell(ctx: Context, item: str) -> str:
        call_log.append(f"started {item}")
        try:
            answer = await ctx.elicit("Which size?", Size)
        finally:
            call_log.append(f"ended {item}")
        if answer.action != "accept":
            return answer.action
        return f"{item} {answer.data.size} {answer.data.colour}"

    @server.tool()
    async def order(ctx: Context, item: str) -> str:
        return await sell(ctx, item)

    @server.tool(annotations=ToolAnnotations(idempotent_hint=True))
    async def reserve(ctx: Context, item: str) -> str:
        return await sell(ctx, item)

    @server.tool()
    async def outfit(ctx: Context) -> str:
        return f"{await sell(ctx, 'hat')}, {await sell(ctx, 'coat')}"

    return server


def legacy_toolset(server: Any, **options: Any) -> MCPToolset:
    return MCPToolset(server, protocol_version="legacy", **options)


async def test_a_suspended_call_gets_the_answer_and_runs_once() -> None:
    call_log: list[str] = []
    toolset = legacy_toolset(shop(call_log))
    runner, _ = runner_with_calls(toolset, [call("order", item="hat")])
    result = await runner.run("hi")
    assert result.status == "suspended"
    result = await runner.resume(result.run_id, {"size": 7})
    # Fields that the user leaves out have the default of the schema.
    assert tool_results(result) == ["hat 7 blue"]
    assert call_log == ["started hat", "ended hat"]
    assert (await runner.runs.replay(result.events)).output == "done"


async def test_a_call_can_make_several_requests() -> None:
    call_log: list[str] = []
    toolset = legacy_toolset(shop(call_log))
    runner, _ = runner_with_calls(toolset, [call("outfit")])
    result = await runner.run("hi")
    result = await runner.resume(result.run_id, {"size": 7})
    assert result.status == "suspended"
    assert tool_results(await runner.resume(result.run_id, {"size": 9})) == ["hat 7 blue, coat 9 blue"]
    assert call_log == ["started hat", "ended hat", "started coat", "ended coat"]


@pytest.mark.parametrize(
    ("name", "expected", "executions"),
    [("reserve", "hat 7 blue", 2), ("order", "it is unknown whether `order` was executed: it asked for input", 1)],
)
async def test_a_call_is_repeated_after_a_restart_only_if_idempotent(name: str, expected: str, executions: int) -> None:
    call_log: list[str] = []
    server = shop(call_log)
    toolset = legacy_toolset(server)
    first, _ = runner_with_calls(toolset, [call(name, item="hat")])
    result = await first.run("hi")
    await toolset.close()
    second, _ = runner_with_calls(legacy_toolset(server))
    resumed = await second.resume(await second.runs.load(result.events), {"size": 7})
    [content] = tool_results(resumed)
    assert str(content).startswith(expected)
    assert call_log.count("started hat") == executions


async def test_suspended_runs_do_not_block_requests_of_other_runs() -> None:
    call_log: list[str] = []
    async with legacy_toolset(shop(call_log)) as toolset:
        runners = [runner_with_calls(toolset, [call("order", item=item)])[0] for item in ("hat", "coat", "scarf")]
        suspended = [await runner.run("hi") for runner in runners]
        assert [result.status for result in suspended] == ["suspended"] * 3
        resumed = [
            await runner.resume(result.run_id, {"size": size})
            for size, (runner, result) in enumerate(zip(runners, suspended, strict=True))
        ]
        assert [tool_results(result) for result in resumed] == [["hat 0 blue"], ["coat 1 blue"], ["scarf 2 blue"]]
        assert [line for line in call_log if "started" in line] == ["started hat", "started coat", "started scarf"]


async def test_a_suspended_call_can_time_out() -> None:
    call_log: list[str] = []
    clock = LoopClock()
    toolset = legacy_toolset(shop(call_log), timeout=600)
    runner, _ = runner_with_calls(toolset, [call("order", item="hat")])
    result = await runner.run("hi")
    assert result.status == "suspended"
    clock.advance(600)
    await until(lambda: "ended hat" in call_log)
    resumed = await runner.resume(result.run_id, {"size": 7})
    assert tool_results(resumed) == ["tool `order` did not finish within 600 s"]


def test_suspended_connections_end_with_their_event_loop() -> None:
    toolset = legacy_toolset(shop([]))
    runner, _ = runner_with_calls(toolset, [call("order", item="hat")])
    result = runner.run_sync("hi")
    assert result.status == "suspended"
    resumed = asyncio.run(runner.resume(result.run_id, {"size": 7}))
    assert "it asked for input" in str(tool_results(resumed))


async def test_an_answer_of_false_declines_the_request() -> None:
    toolset = legacy_toolset(shop([]))
    runner, _ = runner_with_calls(toolset, [call("order", item="hat")])
    result = await runner.run("hi")
    assert tool_results(await runner.resume(result.run_id, False)) == ["decline"]
