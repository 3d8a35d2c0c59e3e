"""Faults over stdio and HTTP: servers that are killed, replaced or closed during concurrent calls."""

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
    FAULTY_SERVER,
    faulty_server_command,
    free_port,
    make_context,
    open_tools,
    pid_from,
    run_faulty_server,
    until_ended,
    until_logged,
    until_reachable,
)

from batonkit.errors import ToolError, ToolsUnavailableError, ToolTimeoutError
from batonkit.mcp import MCPToolset
from batonkit.tools import Tool

CALL_COUNT = 50
WRAPPER = """
import pathlib, runpy, sys
sys.argv = [{program!r}, "stdio", *(["newer"] if pathlib.Path({flag!r}).exists() else [])]
runpy.run_path({program!r}, run_name="__main__")
"""


class ReplaceableServer:
    """A server that can be killed and replaced by another version."""

    def __init__(self, toolset: MCPToolset, call_log: Path, replace: Callable[[int], Awaitable[None]]) -> None:
        self.toolset = toolset
        self.call_log = call_log
        self.replace = replace
        """Kill the process with this id; the next one has another tool."""


@asynccontextmanager
async def over_stdio(tmp_path: Path, **options: Any) -> AsyncGenerator[ReplaceableServer]:
    flag, program, call_log = tmp_path / "newer", tmp_path / "server.py", tmp_path / "call_log"
    program.write_text(WRAPPER.format(program=FAULTY_SERVER, flag=str(flag)))

    async def replace(pid: int) -> None:
        flag.touch()
        os.kill(pid, signal.SIGKILL)

    yield ReplaceableServer(
        MCPToolset([sys.executable, str(program)], env={"CALL_LOG": str(call_log)}, **options), call_log, replace
    )


@asynccontextmanager
async def over_http(tmp_path: Path, **options: Any) -> AsyncGenerator[ReplaceableServer]:
    port, call_log = free_port(), tmp_path / "call_log"
    async with AsyncExitStack() as stack:
        process = stack.enter_context(run_faulty_server(port, call_log))
        await until_reachable(port)

        async def replace(pid: int) -> None:
            assert process.pid == pid
            process.kill()
            process.wait()
            stack.enter_context(run_faulty_server(port, call_log, "newer"))
            await until_reachable(port)

        yield ReplaceableServer(MCPToolset(f"http://127.0.0.1:{port}/mcp", **options), call_log, replace)


transports = pytest.mark.parametrize("connect", [over_stdio, over_http])
protocols = pytest.mark.parametrize("protocol", ["auto", "legacy"])


async def check_concurrent_echoes(tools: dict[str, Tool]) -> None:
    """Check that each of fifty concurrent calls gets its own result."""
    echo = tools["echo"]
    outcomes = await asyncio.gather(*[echo.call(make_context(), f'{{"text": "{n}"}}') for n in range(CALL_COUNT)])
    assert [outcome.content for outcome in outcomes] == [str(n) for n in range(CALL_COUNT)]


@transports
@protocols
async def test_a_server_can_be_killed_during_calls_and_replaced_by_another_version(
    connect: Any, protocol: str, tmp_path: Path
) -> None:
    async with connect(tmp_path, protocol_version=protocol) as server, open_tools(server.toolset) as tools:
        await check_concurrent_echoes(tools)
        pid = pid_from(await tools["process"].call(make_context(), "{}"))
        hanging = [asyncio.create_task(tools["hang"].call(make_context(), "{}")) for _ in range(CALL_COUNT)]
        await until_logged(server.call_log, "hang\n" * CALL_COUNT)
        await server.replace(pid)
        errors = await asyncio.gather(*hanging, return_exceptions=True)
        # Every call fails with an error that says so; none is cancelled or repeated.
        assert {type(error) for error in errors} == {ToolError}
        assert all("it is unknown whether `hang` was executed" in str(error) for error in errors)
        assert server.call_log.read_text().count("hang\n") == CALL_COUNT
        await check_concurrent_echoes(tools)
        assert pid_from(await tools["process"].call(make_context(), "{}")) != pid
        current_tools = {tool.spec.name: tool for tool in await server.toolset.get_tools(make_context())}
        assert current_tools.keys() - tools.keys() == {"new_tool"}
        assert (await current_tools["new_tool"].call(make_context(), "{}")).content == "new"


@transports
@protocols
async def test_the_connection_works_after_cancelled_and_timed_out_calls(
    connect: Any, protocol: str, tmp_path: Path
) -> None:
    async with connect(tmp_path, protocol_version=protocol, timeout=20) as server, open_tools(server.toolset) as tools:
        pid = pid_from(await tools["process"].call(make_context(), "{}"))
        hanging = [asyncio.create_task(tools["hang"].call(make_context(), "{}")) for _ in range(CALL_COUNT)]
        await until_logged(server.call_log, "hang\n" * CALL_COUNT)
        for each in hanging:
            each.cancel()
        errors = await asyncio.gather(*hanging, return_exceptions=True)
        assert {type(error) for error in errors} == {asyncio.CancelledError}
        await until_logged(server.call_log, "hang was cancelled")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await tools["hang"].call(make_context(), "{}")
        await check_concurrent_echoes(tools)
        assert pid_from(await tools["process"].call(make_context(), "{}")) == pid


@transports
async def test_a_timeout_ends_only_its_call(connect: Any, tmp_path: Path) -> None:
    async with connect(tmp_path, timeout=2) as server, open_tools(server.toolset) as tools:
        pid = pid_from(await tools["process"].call(make_context(), "{}"))
        hanging_call = asyncio.create_task(tools["hang"].call(make_context(), "{}"))
        await until_logged(server.call_log, "hang")
        await check_concurrent_echoes(tools)
        with pytest.raises(ToolTimeoutError):
            await hanging_call
        assert pid_from(await tools["process"].call(make_context(), "{}")) == pid


@transports
async def test_a_toolset_can_be_closed_by_several_tasks_during_calls(connect: Any, tmp_path: Path) -> None:
    async with connect(tmp_path) as server:
        toolset = server.toolset
        await asyncio.create_task(toolset.__aenter__())
        tools = {tool.spec.name: tool for tool in await toolset.get_tools(make_context())}
        hanging = [asyncio.create_task(tools["hang"].call(make_context(), "{}")) for _ in range(CALL_COUNT)]
        await until_logged(server.call_log, "hang\n" * CALL_COUNT)
        async with asyncio.timeout(60):
            await asyncio.gather(*[asyncio.create_task(toolset.close()) for _ in range(3)])
            errors = await asyncio.gather(*hanging, return_exceptions=True)
        assert {type(error) for error in errors} == {ToolError}
        # The toolset can be opened again.
        async with open_tools(toolset) as reopened:
            await check_concurrent_echoes(reopened)


@pytest.mark.parametrize("close_count", [1, 3])
async def test_a_toolset_can_be_closed_while_it_is_being_opened(tmp_path: Path, close_count: int) -> None:
    call_log = tmp_path / "call_log"
    program = "import os, pathlib, sys; pathlib.Path(sys.argv[1]).write_text(f'{os.getpid()}.'); sys.stdin.read()"
    toolset = MCPToolset([sys.executable, "-c", program, str(call_log)])
    opening = asyncio.create_task(toolset.__aenter__())
    async with asyncio.timeout(60):
        await until_logged(call_log, ".")
        await asyncio.gather(*[asyncio.create_task(toolset.close()) for _ in range(close_count)])
        with pytest.raises(ToolsUnavailableError):
            await opening
        # A process that is killed while it starts is reaped later.
        await until_ended(int(call_log.read_text().strip(".")))


async def test_toolsets_can_be_closed_by_other_tasks_in_another_order(tmp_path: Path) -> None:
    toolsets = [MCPToolset(faulty_server_command(), env={"CALL_LOG": str(tmp_path / str(n))}) for n in range(4)]
    for toolset in toolsets:
        await toolset.__aenter__()
    pids: list[int] = []
    for toolset in toolsets:
        tools = {tool.spec.name: tool for tool in await toolset.get_tools(make_context())}
        pids.append(pid_from(await tools["process"].call(make_context(), "{}")))
    for index in (2, 0, 3, 1):
        await asyncio.create_task(toolsets[index].close())
        with pytest.raises(ProcessLookupError):
            os.kill(pids[index], 0)
