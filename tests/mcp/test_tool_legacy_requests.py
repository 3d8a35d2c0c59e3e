"""Requests of servers with a protocol before 2026-07-28, which suspend the call in flight."""

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest
from mcp.server.mcpserver import Context
from mcp.server.mcpserver import MCPServer as SDKServer
from mcp_types import ToolAnnotations
from pydantic import BaseModel
from tests.mcp.servers import caller, faulty, results

from baton.mcp import MCPToolset
from baton.testing import call


class Size(BaseModel):
    size: int = 40
    colour: str = "blue"


def shop(diary: list[str]) -> SDKServer:
    """A server that notes when a call begins and what comes of it."""
    server = SDKServer("shop")

    async def sell(ctx: Context, item: str) -> str:
        diary.append(f"begun {item}")
        try:
            answer = await ctx.elicit("Which size?", Size)
        finally:
            diary.append(f"ended {item}")
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


def legacy_toolset(server: Any, **facts: Any) -> MCPToolset:
    return MCPToolset(server, protocol_version="legacy", **facts)


async def test_call_waits_for_the_answer_and_runs_once() -> None:  # M5
    diary: list[str] = []
    source = legacy_toolset(shop(diary))
    runner, _ = caller(source, [call("order", item="hat")])
    result = await runner.run("hi")
    assert result.status == "suspended"
    result = await runner.resume(result.run_id, {"size": 7})
    # What the user leaves as it is has the value that the form says.
    assert results(result) == ["hat 7 blue"]
    assert diary == ["begun hat", "ended hat"]
    assert (await runner.replay(result.events)).output == "done"


async def test_a_call_may_ask_several_times() -> None:
    diary: list[str] = []
    source = legacy_toolset(shop(diary))
    runner, _ = caller(source, [call("outfit")])
    result = await runner.run("hi")
    result = await runner.resume(result.run_id, {"size": 7})
    assert result.status == "suspended"
    assert results(await runner.resume(result.run_id, {"size": 9})) == ["hat 7 blue, coat 9 blue"]
    assert diary == ["begun hat", "ended hat", "begun coat", "ended coat"]


@pytest.mark.parametrize(
    ("name", "expected", "ends"),
    [("reserve", "hat 7 blue", 2), ("order", "it is unknown whether `order` was executed: it asked for input", 1)],
)
async def test_call_is_repeated_after_a_restart_only_if_idempotent(name: str, expected: str, ends: int) -> None:
    # M3, M5
    diary: list[str] = []
    server = shop(diary)
    source = legacy_toolset(server)
    first, _ = caller(source, [call(name, item="hat")])
    result = await first.run("hi")
    await source.close()
    second, _ = caller(legacy_toolset(server))
    resumed = await second.resume(second.load_log(result.events), {"size": 7})
    [given] = results(resumed)
    assert str(given).startswith(expected)
    assert diary.count("begun hat") == ends


async def test_suspend_timeout_stops_the_process(tmp_path: Path) -> None:
    source = legacy_toolset(faulty(), suspend_timeout=2, env={"DIARY": str(tmp_path / "diary")})
    runner, _ = caller(source, [call("process")], [call("order", item="hat")])
    result = await runner.run("hi")
    assert result.status == "suspended"
    pid = int(str(results(result)[0]))
    os.kill(pid, 0)
    async with asyncio.timeout(60):
        while _is_there(pid):
            await asyncio.sleep(0.02)
    resumed = await runner.resume(result.run_id, {"size": 7})
    assert "it asked for input" in str(results(resumed)[-1])


async def test_closing_the_toolset_closes_suspended_connections() -> None:
    source = legacy_toolset(faulty())
    runner, _ = caller(source, [call("process")], [call("order", item="hat")])
    result = await runner.run("hi")
    pid = int(str(results(result)[0]))
    os.kill(pid, 0)
    await asyncio.create_task(source.close())
    assert not _is_there(pid)


async def test_suspended_runs_do_not_block_requests_of_other_runs() -> None:
    diary: list[str] = []
    async with legacy_toolset(shop(diary)) as source:
        runners = [caller(source, [call("order", item=item)])[0] for item in ("hat", "coat", "scarf")]
        waiting = [await runner.run("hi") for runner in runners]
        assert [result.status for result in waiting] == ["suspended"] * 3
        resumed = [
            await runner.resume(result.run_id, {"size": size})
            for size, (runner, result) in enumerate(zip(runners, waiting, strict=True))
        ]
        assert [results(result) for result in resumed] == [["hat 0 blue"], ["coat 1 blue"], ["scarf 2 blue"]]
        assert [line for line in diary if "begun" in line] == ["begun hat", "begun coat", "begun scarf"]


async def test_suspended_call_can_time_out() -> None:
    diary: list[str] = []
    source = legacy_toolset(shop(diary), timeout=0.2)
    runner, _ = caller(source, [call("order", item="hat")])
    result = await runner.run("hi")
    assert result.status == "suspended"
    async with asyncio.timeout(60):
        while "ended hat" not in diary:
            await asyncio.sleep(0.01)
    resumed = await runner.resume(result.run_id, {"size": 7})
    assert results(resumed) == ["tool `order` did not finish within 0.2 s"]


def test_suspended_connections_end_with_their_event_loop() -> None:
    source = legacy_toolset(shop([]))
    runner, _ = caller(source, [call("order", item="hat")])
    result = runner.run_sync("hi")
    assert result.status == "suspended"
    resumed = asyncio.run(runner.resume(result.run_id, {"size": 7}))
    assert "it asked for input" in str(results(resumed))


async def test_declining_reaches_a_suspended_call() -> None:
    source = legacy_toolset(shop([]))
    runner, _ = caller(source, [call("order", item="hat")])
    result = await runner.run("hi")
    assert results(await runner.resume(result.run_id, False)) == ["decline"]


def _is_there(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
