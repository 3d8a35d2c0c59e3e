"""Helpers for tests of MCP: servers in other processes or over HTTP, and agents that make scripted calls."""

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, cast

from tests.ports import free_port as free_port
from tests.waiting import until

from batonkit import Agent, RunContext, Runner
from batonkit.context import Limits
from batonkit.context.run_state import RunState, UsageMeter
from batonkit.log import ToolReturned
from batonkit.log.event import RUN_ORIGIN
from batonkit.log.log import Log
from batonkit.mcp import MCPToolset
from batonkit.messages import Content
from batonkit.runs import RunResult
from batonkit.serve import serve_in_background
from batonkit.testing import ScriptedModel, call
from batonkit.tools import Tool, ToolResult

FAULTY_SERVER = str(Path(__file__).with_name("faulty_server.py"))


def faulty_server_command(*arguments: str) -> list[str]:
    """Return the command that starts the server that fails on demand."""
    return [sys.executable, FAULTY_SERVER, *arguments]


def runner_with_calls(
    toolset: Any, *turns: Any, answer: str = "done", **options: Any
) -> tuple[Runner[Any, str], ScriptedModel]:
    """Create a runner of agent `A`, which makes the calls of these turns and then gives the answer."""
    model = ScriptedModel([*turns, answer])
    tools = cast("list[Any]", toolset if isinstance(toolset, list) else [toolset])
    return Runner(Agent("A", tools=tools, model=model), **options), model


def tool_results(result: RunResult[Any]) -> list[Content]:
    """Return the contents of the tool results, in order."""
    return [event.content for event in result.events if isinstance(event, ToolReturned)]


async def call_tools(toolset: Any, *requests: tuple[str, dict[str, Any]]) -> list[Content]:
    """Run an agent that makes these calls, one in each turn, and return the contents of the results."""
    runner, _ = runner_with_calls(toolset, *[[call(name, **arguments)] for name, arguments in requests])
    return tool_results(await runner.run("hi"))


def make_context() -> RunContext[Any]:
    """Create a context in a new run."""
    return RunContext(RunState("r", Log(), None, {}, UsageMeter(Limits())), RUN_ORIGIN, "1/m1.0")


@asynccontextmanager
async def open_tools(toolset: MCPToolset) -> AsyncGenerator[dict[str, Tool]]:
    """Open the toolset and yield its tools by name, to be called without an agent."""
    async with toolset:
        yield {tool.spec.name: tool for tool in await toolset.get_tools(make_context())}


def pid_from(result: ToolResult) -> int:
    """Return the process id in the result of the tool `process`."""
    assert isinstance(result.content, str)
    return int(result.content)


@contextmanager
def run_faulty_server(port: int, call_log: Path, *arguments: str) -> Generator["subprocess.Popen[bytes]"]:
    """Run the server that fails on demand at a port."""
    process = subprocess.Popen(
        faulty_server_command(str(port), *arguments), env={**os.environ, "CALL_LOG": str(call_log)}
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


@asynccontextmanager
async def served(app: Any, port: int = 0) -> AsyncGenerator[str]:
    """Serve an ASGI app on a real socket and yield the URL of its MCP endpoint."""
    options: dict[str, Any] = {"log_level": "error", "timeout_graceful_shutdown": 0, "ws": "none"}
    async with serve_in_background(app, port=port, drain=0, **options) as url:
        yield f"{url}/mcp"


async def until_reachable(port: int) -> None:
    """Wait until a server listens at the port."""

    async def is_reachable() -> bool:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            return False
        writer.close()
        await writer.wait_closed()
        return True

    await until(is_reachable)


async def until_ended(pid: int) -> None:
    """Wait until a process has ended and was reaped, which a killed one is some time later."""

    def has_ended() -> bool:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        return False

    await until(has_ended)


async def until_logged(call_log: Path, text: str) -> None:
    """Wait until the text is in the server's log of calls."""
    await until(lambda: call_log.exists() and text in call_log.read_text())
