"""Servers that die, hang, restart and change their tools."""

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
from tests.mcp.servers import (
    caller,
    calls,
    context,
    faulty,
    free_port,
    open_tools,
    pid_in,
    process_at,
    results,
    served,
    until_noted,
    until_reachable,
)

from baton import RunContext
from baton.errors import ToolError, ToolsUnavailableError
from baton.events.base import RUN_ORIGIN
from baton.mcp import MCPToolset
from baton.testing import call


@pytest.fixture
def diary(tmp_path: Path) -> Path:
    return tmp_path / "diary"


async def test_fifty_concurrent_calls_and_a_cancelled_one(diary: Path) -> None:
    async with open_tools(MCPToolset(faulty(), env={"DIARY": str(diary)})) as tools:
        outcomes = await asyncio.gather(*[tools["echo"].call(context(), f'{{"text": "{n}"}}') for n in range(50)])
        assert [outcome.content for outcome in outcomes] == [str(n) for n in range(50)]
        before = pid_in(await tools["process"].call(context(), "{}"))
        lingering = asyncio.create_task(tools["linger"].call(context(), "{}"))
        await until_noted(diary, "linger")
        lingering.cancel()
        with pytest.raises(asyncio.CancelledError):
            await lingering
        await until_noted(diary, "linger was cancelled")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await tools["linger"].call(context(), "{}")
        assert pid_in(await tools["process"].call(context(), "{}")) == before


async def test_call_fails_when_the_server_dies_and_the_next_restarts_it(
    diary: Path,
) -> None:
    source = MCPToolset(faulty(), env={"DIARY": str(diary)})
    lost, answered, read = await calls(source, ("die", {}), ("echo", {"text": "hello"}), ("read_or_die", {}))
    assert str(lost).startswith("it is unknown whether `die` was executed: lost the connection to the server `python")
    assert answered == "hello"
    # It only reads, so it was simply called again.
    assert read == "read"
    assert diary.read_text().split() == ["die", "echo", "hello", "read_or_die", "read_or_die"]


async def test_killed_or_closed_server_fails_calls_in_flight(
    diary: Path,
) -> None:
    source = MCPToolset(faulty(), env={"DIARY": str(diary)})
    async with open_tools(source) as tools:
        pid = pid_in(await tools["process"].call(context(), "{}"))
        lingering = [asyncio.create_task(tools["linger"].call(context(), "{}")) for _ in range(3)]
        await until_noted(diary, "linger\nlinger\nlinger")
        os.kill(pid, signal.SIGKILL)
        endings = await asyncio.gather(*lingering, return_exceptions=True)
        assert [type(ending) for ending in endings] == [ToolError] * 3
        new = await asyncio.gather(*[tools["process"].call(context(), "{}") for _ in range(3)])
        assert len({pid_in(outcome) for outcome in new} - {pid}) == 1
        last = asyncio.create_task(tools["linger"].call(context(), "{}"))
        await until_noted(diary, "linger\n" * 4)
        await asyncio.create_task(source.close())
        with pytest.raises(ToolError, match="it is unknown whether `linger` was executed"):
            await last
        with pytest.raises(ToolError, match=r"was not called: .* is closed"):
            await tools["echo"].call(context(), '{"text": ""}')


async def test_cancelled_run_leaves_no_process_behind(diary: Path) -> None:
    runner, _ = caller(MCPToolset(faulty(), env={"DIARY": str(diary)}), [call("process")], [call("linger")])
    async with runner.stream("hi") as live:
        await until_noted(diary, "linger")
        await live.cancel()
    [pid] = results(live.result)
    with pytest.raises(ProcessLookupError):
        os.kill(int(str(pid)), 0)


async def test_http_server_restarts_with_other_tools(diary: Path) -> None:
    port = free_port()
    source = MCPToolset(f"http://127.0.0.1:{port}/mcp")
    with process_at(port, diary) as process:
        await until_reachable(port)
        async with open_tools(source) as tools:
            lingering = asyncio.create_task(tools["linger"].call(context(), "{}"))
            await until_noted(diary, "linger")
            process.kill()
            # An error that says what is unknown, and not a cancellation.
            with pytest.raises(ToolError, match="it is unknown whether `linger` was executed"):
                await lingering
            with pytest.raises(ToolError, match=r"`echo` was not called: the server at .* cannot be reached"):
                await tools["echo"].call(context(), '{"text": ""}')
            # What it offered is remembered, and calls tell the model what is the matter.
            assert {tool.spec.name for tool in await source.get_tools(context())} == set(tools)
            with process_at(port, diary, "newer"):
                await until_reachable(port)
                assert (await tools["echo"].call(context(), '{"text": "back"}')).content == "back"
                assert {tool.spec.name for tool in await source.get_tools(context())} == {*tools, "novelty"}


async def test_expired_http_session_is_reopened() -> None:
    def app() -> Any:
        server = SDKServer("forgetful")

        @server.tool()
        async def echo(text: str) -> str:
            return text

        return server.streamable_http_app()

    port = free_port()
    async with contextlib.AsyncExitStack() as stack:
        url = await stack.enter_async_context(served(app(), port))
        async with open_tools(MCPToolset(url, protocol_version="legacy")) as tools:
            assert (await tools["echo"].call(context(), '{"text": "one"}')).content == "one"
            await stack.aclose()
            async with served(app(), port):
                # It refused what it did not know: nothing was done, so the call is made again.
                assert (await tools["echo"].call(context(), '{"text": "two"}')).content == "two"
                many = await asyncio.gather(*[tools["echo"].call(context(), f'{{"text": "{n}"}}') for n in range(50)])
                assert [outcome.content for outcome in many] == [str(n) for n in range(50)]


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
async def test_http_session_refused_with_400_is_reopened(kind: str, body: Any) -> None:
    # F25
    server = SDKServer("forgetful")

    @server.tool()
    async def echo(text: str) -> str:
        return text

    app, forgotten, refused = server.streamable_http_app(), set[bytes](), list[bytes]()

    async def strict(scope: Any, receive: Any, send: Any) -> None:
        session = dict(scope.get("headers", ())).get(b"mcp-session-id", b"")
        if scope["type"] == "http" and session in forgotten:
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
        served(strict, free_port()) as url,
        open_tools(MCPToolset(url, protocol_version="legacy")) as tools,
    ):
        assert (await tools["echo"].call(context(), '{"text": "one"}')).content == "one"
        forgotten |= known
        assert (await tools["echo"].call(context(), '{"text": "two"}')).content == "two"
        assert (await tools["echo"].call(context(), '{"text": "three"}')).content == "three"
    assert refused
    assert known > forgotten


async def test_error_of_a_call_with_status_400_does_not_end_the_session() -> None:
    # F25: the error names the call, so the server knows the session and has read the call.
    server = SDKServer("picky")

    @server.tool()
    async def echo(text: str) -> str:
        return text

    app, sessions = server.streamable_http_app(), set[bytes]()

    async def picky(scope: Any, receive: Any, send: Any) -> None:
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
        first = [message]

        async def again() -> Any:
            return first.pop() if first else await receive()

        await app(scope, again, send)

    async with (
        served(picky, free_port()) as url,
        open_tools(MCPToolset(url, protocol_version="legacy")) as tools,
    ):
        with pytest.raises(ToolError, match="tool `echo` failed: no such text"):
            await tools["echo"].call(context(), '{"text": "bad"}')
        assert (await tools["echo"].call(context(), '{"text": "good"}')).content == "good"
    assert len(sessions - {b""}) == 1


async def test_unreachable_server_does_not_cancel_the_caller() -> None:
    source = MCPToolset(f"http://127.0.0.1:{free_port()}/mcp")
    with pytest.raises(ToolsUnavailableError, match=r"cannot be reached: .*ConnectError"):
        await source.__aenter__()
    current = asyncio.current_task()
    assert current is not None
    assert not current.cancelling()


async def test_server_that_requires_authentication() -> None:
    async def closed_shop(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            await send({"type": "http.response.start", "status": 401, "headers": []})
            await send({"type": "http.response.body", "body": b""})

    async with served(closed_shop, free_port()) as url:
        with pytest.raises(ToolsUnavailableError, match="HTTP 401 Unauthorized"):
            await MCPToolset(url).__aenter__()


async def test_connect_timeout_applies_to_all_waiting_tasks_at_once() -> None:
    source = MCPToolset([sys.executable, "-c", "import sys; sys.stdin.read()"], connect_timeout=0.3)
    run = context()._run
    waiting = [source.get_tools(RunContext(run, RUN_ORIGIN, str(n))) for n in range(40)]
    async with asyncio.timeout(60):
        endings = await asyncio.gather(*waiting, return_exceptions=True)
    assert {str(ending).partition(": ")[2] for ending in endings} == {
        "the server `python` did not respond within 0.3 s"
    }
    assert {type(ending) for ending in endings} == {ToolsUnavailableError}
    await run.opened[source].close()


async def test_servers_may_be_closed_in_any_order_by_any_task() -> None:
    def server() -> Any:
        made = SDKServer("one of many")
        made.add_tool(_hello)
        return made

    sources = [MCPToolset(server(), protocol_version=protocol) for protocol in ("auto", "legacy", "auto", "legacy")]
    for source in sources:
        await source.__aenter__()
    for place in (1, 0, 3, 2):
        assert await calls(sources[place], ("_hello", {})) == ["hello"]
        await asyncio.create_task(sources[place].close())
    assert await calls(sources[0], ("_hello", {})) == ["hello"]


async def _hello() -> str:
    """Greet."""
    return "hello"


@pytest.mark.parametrize("protocol", ["auto", "legacy"])
async def test_call_timeout_is_reported_to_the_model(protocol: str) -> None:
    ended = asyncio.Event()

    async def linger() -> str:
        """Never end."""
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        return ""

    server = SDKServer("slow")
    server.add_tool(linger)
    server.add_tool(_hello)
    source = MCPToolset(server, timeout=0.3, protocol_version=protocol)
    assert await calls(source, ("linger", {}), ("_hello", {})) == [
        "tool `linger` did not finish within 0.3 s",
        "hello",
    ]
    assert ended.is_set()
