"""Faults over stdio and HTTP: killed during many calls, restarted, replaced, cancelled, closed."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.mcp.servers import (
    FAULTY,
    context,
    faulty,
    free_port,
    open_tools,
    pid_in,
    process_at,
    until_noted,
    until_reachable,
)

from baton.errors import ToolError, ToolsUnavailableError, ToolTimeoutError
from baton.mcp import MCPToolset
from baton.tools import Tool

MANY = 50
WRAPPER = """
import pathlib, runpy, sys
sys.argv = [{program!r}, "stdio", *(["newer"] if pathlib.Path({flag!r}).exists() else [])]
runpy.run_path({program!r}, run_name="__main__")
"""


class World:
    """A server that can be killed, and started anew as another version."""

    def __init__(self, source: MCPToolset, diary: Path, replace: Callable[[int], Awaitable[None]]) -> None:
        self.source = source
        self.diary = diary
        self.replace = replace
        """Kill that process; the next one has another tool."""


@asynccontextmanager
async def over_pipes(tmp_path: Path, **facts: Any) -> AsyncGenerator[World]:
    flag, program, diary = tmp_path / "newer", tmp_path / "server.py", tmp_path / "diary"
    program.write_text(WRAPPER.format(program=FAULTY, flag=str(flag)))

    async def replace(pid: int) -> None:
        flag.touch()
        os.kill(pid, signal.SIGKILL)

    yield World(MCPToolset([sys.executable, str(program)], env={"DIARY": str(diary)}, **facts), diary, replace)


@asynccontextmanager
async def over_http(tmp_path: Path, **facts: Any) -> AsyncGenerator[World]:
    port, diary = free_port(), tmp_path / "diary"
    async with AsyncExitStack() as stack:
        process = stack.enter_context(process_at(port, diary))
        await until_reachable(port)

        async def replace(pid: int) -> None:
            assert process.pid == pid
            process.kill()
            process.wait()
            stack.enter_context(process_at(port, diary, "newer"))
            await until_reachable(port)

        yield World(MCPToolset(f"http://127.0.0.1:{port}/mcp", **facts), diary, replace)


ways = pytest.mark.parametrize("way", [over_pipes, over_http])
protocols = pytest.mark.parametrize("protocol", ["auto", "legacy"])


async def _echoes(tools: dict[str, Tool]) -> None:
    """Fifty calls at once, each with its own result."""
    echo = tools["echo"]
    outcomes = await asyncio.gather(*[echo.call(context(), f'{{"text": "{n}"}}') for n in range(MANY)])
    assert [outcome.content for outcome in outcomes] == [str(n) for n in range(MANY)]


@ways
@protocols
async def test_killed_during_fifty_calls_and_replaced_by_another_version(
    way: Any, protocol: str, tmp_path: Path
) -> None:  # M2, M3
    async with way(tmp_path, protocol_version=protocol) as world, open_tools(world.source) as tools:
        await _echoes(tools)
        pid = pid_in(await tools["process"].call(context(), "{}"))
        lingering = [asyncio.create_task(tools["linger"].call(context(), "{}")) for _ in range(MANY)]
        await until_noted(world.diary, "linger\n" * MANY)
        await world.replace(pid)
        endings = await asyncio.gather(*lingering, return_exceptions=True)
        # What is unknown is said to be; nobody is cancelled, and nothing is done twice.
        assert {type(ending) for ending in endings} == {ToolError}
        assert all("it is unknown whether `linger` was executed" in str(ending) for ending in endings)
        assert world.diary.read_text().count("linger\n") == MANY
        await _echoes(tools)
        assert pid_in(await tools["process"].call(context(), "{}")) != pid
        now = {tool.spec.name: tool for tool in await world.source.get_tools(context())}
        assert now.keys() - tools.keys() == {"novelty"}
        assert (await now["novelty"].call(context(), "{}")).content == "new"


@ways
@protocols
async def test_cancelled_and_late_calls_leave_the_connection_usable(
    way: Any, protocol: str, tmp_path: Path
) -> None:  # M2
    async with way(tmp_path, protocol_version=protocol, timeout=20) as world, open_tools(world.source) as tools:
        pid = pid_in(await tools["process"].call(context(), "{}"))
        lingering = [asyncio.create_task(tools["linger"].call(context(), "{}")) for _ in range(MANY)]
        await until_noted(world.diary, "linger\n" * MANY)
        for each in lingering:
            each.cancel()
        endings = await asyncio.gather(*lingering, return_exceptions=True)
        assert {type(ending) for ending in endings} == {asyncio.CancelledError}
        await until_noted(world.diary, "linger was cancelled")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await tools["linger"].call(context(), "{}")
        await _echoes(tools)
        assert pid_in(await tools["process"].call(context(), "{}")) == pid


@ways
async def test_timeout_ends_one_call_and_nothing_else(way: Any, tmp_path: Path) -> None:
    async with way(tmp_path, timeout=2) as world, open_tools(world.source) as tools:
        pid = pid_in(await tools["process"].call(context(), "{}"))
        late = asyncio.create_task(tools["linger"].call(context(), "{}"))
        await until_noted(world.diary, "linger")
        await _echoes(tools)
        with pytest.raises(ToolTimeoutError):
            await late
        assert pid_in(await tools["process"].call(context(), "{}")) == pid


@ways
async def test_closed_from_several_tasks_with_calls_in_flight(way: Any, tmp_path: Path) -> None:  # M2
    async with way(tmp_path) as world:
        source = world.source
        await asyncio.create_task(source.__aenter__())
        tools = {tool.spec.name: tool for tool in await source.get_tools(context())}
        lingering = [asyncio.create_task(tools["linger"].call(context(), "{}")) for _ in range(MANY)]
        await until_noted(world.diary, "linger\n" * MANY)
        async with asyncio.timeout(60):
            await asyncio.gather(*[asyncio.create_task(source.close()) for _ in range(3)])
            endings = await asyncio.gather(*lingering, return_exceptions=True)
        assert {type(ending) for ending in endings} == {ToolError}
        # It can be opened again.
        async with open_tools(source) as again:
            await _echoes(again)


@pytest.mark.parametrize("closings", [1, 3])
async def test_closed_while_it_is_being_opened(tmp_path: Path, closings: int) -> None:
    diary = tmp_path / "diary"
    program = "import os, pathlib, sys; pathlib.Path(sys.argv[1]).write_text(f'{os.getpid()}.'); sys.stdin.read()"
    source = MCPToolset([sys.executable, "-c", program, str(diary)])
    opening = asyncio.create_task(source.__aenter__())
    async with asyncio.timeout(60):
        await until_noted(diary, ".")
        await asyncio.gather(*[asyncio.create_task(source.close()) for _ in range(closings)])
        with pytest.raises(ToolsUnavailableError):
            await opening
    with pytest.raises(ProcessLookupError):
        os.kill(int(diary.read_text().strip(".")), 0)


async def test_many_servers_opened_by_one_task_and_closed_by_others_in_another_order(tmp_path: Path) -> None:  # M2
    sources = [MCPToolset(faulty(), env={"DIARY": str(tmp_path / str(n))}) for n in range(4)]
    for source in sources:
        await source.__aenter__()
    pids: list[int] = []
    for source in sources:
        tools = {tool.spec.name: tool for tool in await source.get_tools(context())}
        pids.append(pid_in(await tools["process"].call(context(), "{}")))
    for place in (2, 0, 3, 1):
        await asyncio.create_task(sources[place].close())
        with pytest.raises(ProcessLookupError):
            os.kill(pids[place], 0)
