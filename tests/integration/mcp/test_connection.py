"""Connections to servers that crash, hang, restart and change their tools."""

import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest
from tests.mcp.servers import (
    call_tools,
    faulty_server_command,
    free_port,
    make_context,
    open_tools,
    pid_from,
    run_faulty_server,
    runner_with_calls,
    tool_results,
    until_logged,
    until_reachable,
)

from batonkit import RunContext
from batonkit.errors import ToolError, ToolsUnavailableError
from batonkit.log.event import RUN_ORIGIN
from batonkit.mcp import MCPToolset
from batonkit.testing import call


@pytest.fixture
def call_log(tmp_path: Path) -> Path:
    return tmp_path / "call_log"


async def test_cancelled_calls_do_not_affect_concurrent_calls(call_log: Path) -> None:
    async with open_tools(MCPToolset(faulty_server_command(), env={"CALL_LOG": str(call_log)})) as tools:
        outcomes = await asyncio.gather(*[tools["echo"].call(make_context(), f'{{"text": "{n}"}}') for n in range(50)])
        assert [outcome.content for outcome in outcomes] == [str(n) for n in range(50)]
        pid = pid_from(await tools["process"].call(make_context(), "{}"))
        hanging = asyncio.create_task(tools["hang"].call(make_context(), "{}"))
        await until_logged(call_log, "hang")
        hanging.cancel()
        with pytest.raises(asyncio.CancelledError):
            await hanging
        await until_logged(call_log, "hang was cancelled")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await tools["hang"].call(make_context(), "{}")
        assert pid_from(await tools["process"].call(make_context(), "{}")) == pid


async def test_a_call_fails_when_the_server_crashes_and_the_next_call_restarts_it(
    call_log: Path,
) -> None:
    toolset = MCPToolset(faulty_server_command(), env={"CALL_LOG": str(call_log)})
    crashed, echoed, read = await call_tools(toolset, ("crash", {}), ("echo", {"text": "hello"}), ("read_or_crash", {}))
    assert str(crashed).startswith(
        "it is unknown whether `crash` was executed: lost the connection to the server `python"
    )
    assert echoed == "hello"
    # A tool that only reads is called again.
    assert read == "read"
    assert call_log.read_text().split() == ["crash", "echo", "hello", "read_or_crash", "read_or_crash"]


async def test_calls_in_flight_fail_when_the_server_is_killed_or_closed(
    call_log: Path,
) -> None:
    toolset = MCPToolset(faulty_server_command(), env={"CALL_LOG": str(call_log)})
    async with open_tools(toolset) as tools:
        pid = pid_from(await tools["process"].call(make_context(), "{}"))
        hanging = [asyncio.create_task(tools["hang"].call(make_context(), "{}")) for _ in range(3)]
        await until_logged(call_log, "hang\nhang\nhang")
        os.kill(pid, signal.SIGKILL)
        errors = await asyncio.gather(*hanging, return_exceptions=True)
        assert [type(error) for error in errors] == [ToolError] * 3
        new = await asyncio.gather(*[tools["process"].call(make_context(), "{}") for _ in range(3)])
        assert len({pid_from(outcome) for outcome in new} - {pid}) == 1
        last = asyncio.create_task(tools["hang"].call(make_context(), "{}"))
        await until_logged(call_log, "hang\n" * 4)
        await asyncio.create_task(toolset.close())
        with pytest.raises(ToolError, match="it is unknown whether `hang` was executed"):
            await last
        with pytest.raises(ToolError, match=r"was not called: .* is closed"):
            await tools["echo"].call(make_context(), '{"text": ""}')


async def test_a_cancelled_run_leaves_no_process_behind(call_log: Path) -> None:
    runner, _ = runner_with_calls(
        MCPToolset(faulty_server_command(), env={"CALL_LOG": str(call_log)}), [call("process")], [call("hang")]
    )
    async with runner.stream("hi") as stream:
        await until_logged(call_log, "hang")
        await stream.cancel()
    [pid] = tool_results(stream.result)
    with pytest.raises(ProcessLookupError):
        os.kill(int(str(pid)), 0)


async def test_an_http_server_can_restart_with_other_tools(call_log: Path) -> None:
    port = free_port()
    toolset = MCPToolset(f"http://127.0.0.1:{port}/mcp")
    with run_faulty_server(port, call_log) as process:
        await until_reachable(port)
        async with open_tools(toolset) as tools:
            hanging = asyncio.create_task(tools["hang"].call(make_context(), "{}"))
            await until_logged(call_log, "hang")
            process.kill()
            # It is an error and not a cancellation.
            with pytest.raises(ToolError, match="it is unknown whether `hang` was executed"):
                await hanging
            with pytest.raises(ToolError, match=r"`echo` was not called: the server at .* cannot be reached"):
                await tools["echo"].call(make_context(), '{"text": ""}')
            # The tools stay listed; calling one returns the error to the model.
            assert {tool.spec.name for tool in await toolset.get_tools(make_context())} == set(tools)
            with run_faulty_server(port, call_log, "newer"):
                await until_reachable(port)
                assert (await tools["echo"].call(make_context(), '{"text": "back"}')).content == "back"
                assert {tool.spec.name for tool in await toolset.get_tools(make_context())} == {*tools, "new_tool"}


async def test_connect_timeout_applies_to_all_waiting_tasks_at_once() -> None:
    toolset = MCPToolset([sys.executable, "-c", "import sys; sys.stdin.read()"], connect_timeout=0.3)
    run = make_context()._run
    waiting = [toolset.get_tools(RunContext(run, RUN_ORIGIN, str(n))) for n in range(40)]
    async with asyncio.timeout(60):
        errors = await asyncio.gather(*waiting, return_exceptions=True)
    assert {str(error).partition(": ")[2] for error in errors} == {"the server `python` did not respond within 0.3 s"}
    assert {type(error) for error in errors} == {ToolsUnavailableError}
    await run.opened[toolset].close()
