"""Requests of servers with a protocol before 2026-07-28, which suspend the call in flight."""

import asyncio
import os
from pathlib import Path
from typing import Any

from tests.mcp.servers import faulty_server_command, runner_with_calls, tool_results

from batonkit.mcp import MCPToolset
from batonkit.testing import call


def legacy_toolset(server: Any, **options: Any) -> MCPToolset:
    return MCPToolset(server, protocol_version="legacy", **options)


async def test_the_suspend_timeout_stops_the_process(tmp_path: Path) -> None:
    toolset = legacy_toolset(faulty_server_command(), suspend_timeout=2, env={"CALL_LOG": str(tmp_path / "call_log")})
    runner, _ = runner_with_calls(toolset, [call("process")], [call("order", item="hat")])
    result = await runner.run("hi")
    assert result.status == "suspended"
    pid = int(str(tool_results(result)[0]))
    os.kill(pid, 0)
    async with asyncio.timeout(60):
        while is_running(pid):
            await asyncio.sleep(0.02)
    resumed = await runner.resume(result.run_id, {"size": 7})
    assert "it asked for input" in str(tool_results(resumed)[-1])


async def test_closing_the_toolset_closes_suspended_connections() -> None:
    toolset = legacy_toolset(faulty_server_command())
    runner, _ = runner_with_calls(toolset, [call("process")], [call("order", item="hat")])
    result = await runner.run("hi")
    pid = int(str(tool_results(result)[0]))
    os.kill(pid, 0)
    await asyncio.create_task(toolset.close())
    assert not is_running(pid)


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
