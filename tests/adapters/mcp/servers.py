"""Servers for tests: in this process, in others, and over HTTP; and agents that call what the test says."""

import asyncio
import socket
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import uvicorn

from baton import Agent, Runner
from baton.events import ToolReturned
from baton.messages import Content
from baton.runner import RunResult
from baton.testing import ScriptedModel, call

FAULTY = str(Path(__file__).with_name("faulty.py"))


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


def free_port() -> int:
    """A port that nobody listens on just now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


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
