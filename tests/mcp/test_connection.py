"""Connections to servers that crash, hang, restart and change their tools."""

import asyncio
import contextlib
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
from mcp.server.mcpserver import MCPServer as SDKServer
from starlette.responses import RedirectResponse
from tests.mcp.servers import (
    call_tools,
    faulty_server_command,
    free_port,
    make_context,
    open_tools,
    pid_from,
    run_faulty_server,
    runner_with_calls,
    served,
    tool_results,
    until_logged,
    until_reachable,
)

from baton import RunContext
from baton.errors import ToolError, ToolsUnavailableError
from baton.events.base import RUN_ORIGIN
from baton.mcp import MCPToolset
from baton.testing import call


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


async def test_an_expired_http_session_is_reopened() -> None:
    def app() -> Any:
        server = SDKServer("echo")

        @server.tool()
        async def echo(text: str) -> str:
            return text

        return server.streamable_http_app()

    port = free_port()
    async with contextlib.AsyncExitStack() as stack:
        url = await stack.enter_async_context(served(app(), port))
        async with open_tools(MCPToolset(url, protocol_version="legacy")) as tools:
            assert (await tools["echo"].call(make_context(), '{"text": "one"}')).content == "one"
            await stack.aclose()
            async with served(app(), port):
                # The server refused the unknown session without running the call, so it is made again.
                assert (await tools["echo"].call(make_context(), '{"text": "two"}')).content == "two"
                outcomes = await asyncio.gather(
                    *[tools["echo"].call(make_context(), f'{{"text": "{n}"}}') for n in range(50)]
                )
                assert [outcome.content for outcome in outcomes] == [str(n) for n in range(50)]


_NO_SESSION = "Bad Request: No valid session ID provided"


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        # Servers of the TypeScript SDK, older ones of the Python SDK, and others.
        ("application/json", {"jsonrpc": "2.0", "error": {"code": -32000, "message": _NO_SESSION}, "id": None}),
        ("application/json", {"jsonrpc": "2.0", "id": "server-error", "error": {"code": -32600, "message": "?"}}),
        ("text/plain; charset=utf-8", _NO_SESSION),
        ("application/json", ["not", "JSON-RPC"]),
    ],
)
async def test_an_http_session_refused_with_status_400_is_reopened(kind: str, body: Any) -> None:
    # F25
    server = SDKServer("echo")

    @server.tool()
    async def echo(text: str) -> str:
        return text

    app, expired, refused = server.streamable_http_app(), set[bytes](), list[bytes]()

    async def refuse_expired_sessions(scope: Any, receive: Any, send: Any) -> None:
        session = dict(scope.get("headers", ())).get(b"mcp-session-id", b"")
        if scope["type"] == "http" and session in expired:
            refused.append(session)
            content = body.encode() if isinstance(body, str) else json.dumps(body).encode()
            await send({"type": "http.response.start", "status": 400, "headers": [(b"content-type", kind.encode())]})
            await send({"type": "http.response.body", "body": content})
            return
        if session:
            known.add(session)
        await app(scope, receive, send)

    known = set[bytes]()
    async with (
        served(refuse_expired_sessions, free_port()) as url,
        open_tools(MCPToolset(url, protocol_version="legacy")) as tools,
    ):
        assert (await tools["echo"].call(make_context(), '{"text": "one"}')).content == "one"
        expired |= known
        assert (await tools["echo"].call(make_context(), '{"text": "two"}')).content == "two"
        assert (await tools["echo"].call(make_context(), '{"text": "three"}')).content == "three"
    assert refused
    assert known > expired


async def test_the_error_of_a_call_with_status_400_does_not_end_the_session() -> None:
    # F25: the error has the id of the call, so the server accepted the session.
    server = SDKServer("echo")

    @server.tool()
    async def echo(text: str) -> str:
        return text

    app, sessions = server.streamable_http_app(), set[bytes]()

    async def reject_bad_text(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http" or scope["method"] != "POST":
            await app(scope, receive, send)
            return
        sessions.add(dict(scope["headers"]).get(b"mcp-session-id", b""))
        message = await receive()
        request = json.loads(message["body"])
        if request.get("params", {}).get("arguments") == {"text": "bad"}:
            error = {"jsonrpc": "2.0", "id": request["id"], "error": {"code": -32602, "message": "no such text"}}
            headers = [(b"content-type", b"application/json")]
            await send({"type": "http.response.start", "status": 400, "headers": headers})
            await send({"type": "http.response.body", "body": json.dumps(error).encode()})
            return
        messages = [message]

        async def receive_again() -> Any:
            return messages.pop() if messages else await receive()

        await app(scope, receive_again, send)

    async with (
        served(reject_bad_text, free_port()) as url,
        open_tools(MCPToolset(url, protocol_version="legacy")) as tools,
    ):
        with pytest.raises(ToolError, match="tool `echo` failed: no such text"):
            await tools["echo"].call(make_context(), '{"text": "bad"}')
        assert (await tools["echo"].call(make_context(), '{"text": "good"}')).content == "good"
    assert len(sessions - {b""}) == 1


async def test_an_unreachable_server_does_not_cancel_the_caller() -> None:
    toolset = MCPToolset(f"http://127.0.0.1:{free_port()}/mcp")
    with pytest.raises(ToolsUnavailableError, match=r"cannot be reached: .*ConnectError"):
        await toolset.__aenter__()
    current = asyncio.current_task()
    assert current is not None
    assert not current.cancelling()


async def test_a_server_that_requires_authentication_raises_an_error() -> None:
    async def unauthorized(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            await send({"type": "http.response.start", "status": 401, "headers": []})
            await send({"type": "http.response.body", "body": b""})

    async with served(unauthorized, free_port()) as url:
        with pytest.raises(ToolsUnavailableError, match="HTTP 401 Unauthorized"):
            await MCPToolset(url).__aenter__()


async def test_a_redirect_to_another_origin_is_not_followed() -> None:
    reached: list[str] = []

    async def elsewhere(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            reached.append(scope["path"])

    async with served(elsewhere, free_port()) as other_url:

        async def redirecting(scope: Any, receive: Any, send: Any) -> None:
            if scope["type"] == "http":
                await RedirectResponse(other_url, 307)(scope, receive, send)

        async with served(redirecting, free_port()) as url:
            with pytest.raises(ToolsUnavailableError, match=f"Redirect to {other_url} not followed"):
                await MCPToolset(url, headers={"x-key": "s3cret"}).__aenter__()
    assert reached == []


async def test_connect_timeout_applies_to_all_waiting_tasks_at_once() -> None:
    toolset = MCPToolset([sys.executable, "-c", "import sys; sys.stdin.read()"], connect_timeout=0.3)
    run = make_context()._run
    waiting = [toolset.get_tools(RunContext(run, RUN_ORIGIN, str(n))) for n in range(40)]
    async with asyncio.timeout(60):
        errors = await asyncio.gather(*waiting, return_exceptions=True)
    assert {str(error).partition(": ")[2] for error in errors} == {"the server `python` did not respond within 0.3 s"}
    assert {type(error) for error in errors} == {ToolsUnavailableError}
    await run.opened[toolset].close()


async def test_servers_can_be_closed_in_any_order_by_any_task() -> None:
    def server() -> Any:
        sdk_server = SDKServer("one of many")
        sdk_server.add_tool(_hello)
        return sdk_server

    toolsets = [MCPToolset(server(), protocol_version=protocol) for protocol in ("auto", "legacy", "auto", "legacy")]
    for toolset in toolsets:
        await toolset.__aenter__()
    for index in (1, 0, 3, 2):
        assert await call_tools(toolsets[index], ("_hello", {})) == ["hello"]
        await asyncio.create_task(toolsets[index].close())
    assert await call_tools(toolsets[0], ("_hello", {})) == ["hello"]


async def _hello() -> str:
    """Greet."""
    return "hello"


@pytest.mark.parametrize("protocol", ["auto", "legacy"])
async def test_a_call_timeout_is_returned_to_the_model(protocol: str) -> None:
    ended = asyncio.Event()

    async def hang() -> str:
        """Wait until the call is cancelled."""
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        return ""

    server = SDKServer("slow")
    server.add_tool(hang)
    server.add_tool(_hello)
    toolset = MCPToolset(server, timeout=0.3, protocol_version=protocol)
    assert await call_tools(toolset, ("hang", {}), ("_hello", {})) == [
        "tool `hang` did not finish within 0.3 s",
        "hello",
    ]
    assert ended.is_set()
