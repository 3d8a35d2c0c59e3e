"""Connections to servers that crash, hang, restart and change their tools."""

import asyncio
import contextlib
import json
from typing import Any

import pytest
from mcp.server.mcpserver import MCPServer as SDKServer
from starlette.responses import RedirectResponse
from tests.loop_clock import LoopClock
from tests.mcp.servers import (
    call_tools,
    make_context,
    open_tools,
    served,
)
from tests.ports import reserved_port
from tests.waiting import forever

from batonkit.errors import ToolError, ToolsUnavailableError
from batonkit.mcp import MCPToolset


async def test_an_expired_http_session_is_reopened() -> None:
    def app() -> Any:
        server = SDKServer("echo")

        @server.tool()
        async def echo(text: str) -> str:
            return text

        return server.streamable_http_app()

    async with contextlib.AsyncExitStack() as stack:
        port = stack.enter_context(reserved_port())
        server = await stack.enter_async_context(contextlib.AsyncExitStack())
        url = await server.enter_async_context(served(app(), port))
        async with open_tools(MCPToolset(url, protocol_version="legacy")) as tools:
            assert (await tools["echo"].call(make_context(), '{"text": "one"}')).content == "one"
            await server.aclose()
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
        served(refuse_expired_sessions) as url,
        open_tools(MCPToolset(url, protocol_version="legacy")) as tools,
    ):
        assert (await tools["echo"].call(make_context(), '{"text": "one"}')).content == "one"
        expired |= known
        assert (await tools["echo"].call(make_context(), '{"text": "two"}')).content == "two"
        assert (await tools["echo"].call(make_context(), '{"text": "three"}')).content == "three"
    assert refused
    assert known > expired


async def test_the_error_of_a_call_with_status_400_does_not_end_the_session() -> None:
    # The error has the id of the call, so the server accepted the session.
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
        served(reject_bad_text) as url,
        open_tools(MCPToolset(url, protocol_version="legacy")) as tools,
    ):
        with pytest.raises(ToolError, match="tool `echo` failed: no such text"):
            await tools["echo"].call(make_context(), '{"text": "bad"}')
        assert (await tools["echo"].call(make_context(), '{"text": "good"}')).content == "good"
    assert len(sessions - {b""}) == 1


async def test_an_unreachable_server_does_not_cancel_the_caller() -> None:
    with (
        reserved_port() as port,
        pytest.raises(ToolsUnavailableError, match=r"cannot be reached: .*ConnectError"),
    ):
        await MCPToolset(f"http://127.0.0.1:{port}/mcp").__aenter__()
    current = asyncio.current_task()
    assert current is not None
    assert not current.cancelling()


async def test_a_server_that_requires_authentication_raises_an_error() -> None:
    async def unauthorized(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            await send({"type": "http.response.start", "status": 401, "headers": []})
            await send({"type": "http.response.body", "body": b""})

    async with served(unauthorized) as url:
        with pytest.raises(ToolsUnavailableError, match="HTTP 401 Unauthorized"):
            await MCPToolset(url).__aenter__()


async def test_a_redirect_to_another_origin_is_not_followed() -> None:
    reached: list[str] = []

    async def elsewhere(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            reached.append(scope["path"])

    async with served(elsewhere) as other_url:

        async def redirecting(scope: Any, receive: Any, send: Any) -> None:
            if scope["type"] == "http":
                await RedirectResponse(other_url, 307)(scope, receive, send)

        async with served(redirecting) as url:
            with pytest.raises(ToolsUnavailableError, match=f"Redirect to {other_url} not followed"):
                await MCPToolset(url, headers={"x-key": "s3cret"}).__aenter__()
    assert reached == []


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
    ended, clock = asyncio.Event(), LoopClock()

    async def hang() -> str:
        """Wait until the call is cancelled."""
        clock.advance(600)
        try:
            await forever()
        finally:
            ended.set()

    server = SDKServer("slow")
    server.add_tool(hang)
    server.add_tool(_hello)
    toolset = MCPToolset(server, timeout=600, protocol_version=protocol)
    assert await call_tools(toolset, ("hang", {}), ("_hello", {})) == [
        "tool `hang` did not finish within 600 s",
        "hello",
    ]
    assert ended.is_set()
