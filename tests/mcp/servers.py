"""Test servers in this process, in others and over HTTP, and agents that make scripted calls."""

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, cast

import uvicorn
from tests.ports import free_port as free_port

from baton import Agent, RunContext, Runner
from baton.context import Limits
from baton.context.run_state import RunState, UsageMeter
from baton.events import ToolReturned
from baton.events.base import RUN_ORIGIN
from baton.log import Log
from baton.mcp import MCPToolset
from baton.messages import Content
from baton.runner import RunResult
from baton.testing import ScriptedModel, call
from baton.tools import Tool, ToolResult

FAULTY = str(Path(__file__).with_name("faulty_server.py"))


def faulty(*arguments: str) -> list[str]:
    """The command that starts the server that goes wrong on demand."""
    return [sys.executable, FAULTY, *arguments]


def caller(source: Any, *turns: Any, then: str = "done", **facts: Any) -> tuple[Runner[Any, str], ScriptedModel]:
    """`A` has the source's tools and makes these calls, one turn each, then says that it is done."""
    model = ScriptedModel([*turns, then])
    tools = cast("list[Any]", source if isinstance(source, list) else [source])
    return Runner(Agent("A", tools=tools, model=model), **facts), model


def results(result: RunResult[Any]) -> list[Content]:
    """What the calls gave, in order."""
    return [event.content for event in result.events if isinstance(event, ToolReturned)]


async def calls(source: Any, *wanted: tuple[str, dict[str, Any]]) -> list[Content]:
    """What these calls give in a run, one turn each."""
    runner, _ = caller(source, *[[call(name, **given)] for name, given in wanted])
    return results(await runner.run("hi"))


def context() -> RunContext[Any]:
    """A place in a run of its own."""
    return RunContext(RunState("r", Log(), None, {}, UsageMeter(Limits())), RUN_ORIGIN, "1/m1.0")


@asynccontextmanager
async def open_tools(source: MCPToolset) -> AsyncGenerator[dict[str, Tool]]:
    """The source's tools by name, to be called from wherever the test likes."""
    async with source:
        yield {tool.spec.name: tool for tool in await source.get_tools(context())}


def pid_in(outcome: ToolResult) -> int:
    """The process that a call says it was carried out by."""
    assert isinstance(outcome.content, str)
    return int(outcome.content)


@contextmanager
def process_at(port: int, diary: Path, *more: str) -> Generator["subprocess.Popen[bytes]"]:
    """The server that goes wrong on demand, at a port."""
    process = subprocess.Popen(faulty(str(port), *more), env={**os.environ, "DIARY": str(diary)})
    try:
        yield process
    finally:
        process.kill()
        process.wait()


@asynccontextmanager
async def served(app: Any, port: int) -> AsyncGenerator[str]:
    """An ASGI app on a real socket; the address to reach it."""
    config = uvicorn.Config(app, port=port, log_level="error", timeout_graceful_shutdown=0, ws="none")
    server = uvicorn.Server(config)
    task = asyncio.create_task(server.serve())
    while not server.started:
        await asyncio.sleep(0.01)
    try:
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        server.should_exit = True
        await asyncio.wait([task])


async def until_reachable(port: int) -> None:
    """Return when somebody listens there."""
    while True:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            await asyncio.sleep(0.02)
            continue
        writer.close()
        await writer.wait_closed()
        return


async def until_noted(diary: Path, words: str) -> None:
    """Return when the server has written this down."""
    while not diary.exists() or words not in diary.read_text():
        await asyncio.sleep(0.01)
