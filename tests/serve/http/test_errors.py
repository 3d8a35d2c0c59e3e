"""Messages about failed runs and shutdown, in every app."""

from typing import Any

import pytest
from tests.serve.a2a.clients import served
from tests.serve.http.test_auth import ACCEPT
from tests.serve.http.test_guard import POSTS
from tests.sockets import http_client

from batonkit import Runner, agent
from batonkit.agents import AgentContext
from batonkit.errors import TaskFailedError
from batonkit.runs import BackgroundRunner

CALL = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "shop", "arguments": {"request": "hi"}}}


@pytest.mark.parametrize("app_name", ["agui", "a2a", "mcp"])
@pytest.mark.parametrize("error", [TaskFailedError, ValueError])
async def test_every_app_tells_the_message_that_an_agent_has_for_the_caller(app_name: str, error: Any) -> None:
    @agent("Shop")
    async def shop(ctx: AgentContext) -> None:
        raise error("the show is sold out")

    make_app, request = POSTS[app_name]
    headers = {"A2A-Version": "1.0", "MCP-Protocol-Version": "2025-06-18", **ACCEPT}
    async with (
        served(make_app(Runner(shop, store="memory:"))) as url,
        http_client(base_url=url, headers=headers) as http,
    ):
        answer = await http.post(**request)
        if app_name == "mcp":
            session = {"Mcp-Session-Id": answer.headers["mcp-session-id"]}
            await http.post("/mcp", json={"jsonrpc": "2.0", "method": "notifications/initialized"}, headers=session)
            answer = await http.post("/mcp", json=CALL, headers=session)
    assert answer.status_code == 200
    assert ("the show is sold out" in answer.text) is (error is TaskFailedError)


@pytest.mark.parametrize("app_name", ["api", "agui", "a2a"])
async def test_a_server_that_shuts_down_asks_clients_to_try_again(app_name: str) -> None:
    @agent("Shop")
    async def shop(ctx: AgentContext) -> None:
        await ctx.say("hello")

    make_app, request = POSTS[app_name]
    background = BackgroundRunner(Runner(shop, store="memory:"))
    async with (
        served(make_app(background)) as url,
        http_client(base_url=url, headers={"A2A-Version": "1.0", **ACCEPT}) as http,
    ):
        assert (await http.post(**request)).status_code in (200, 201)
        await background.drain()
        refused = await http.post(**request)
    assert (refused.status_code, refused.headers.get("retry-after")) == (503, "1")
    assert "shutting down" in refused.text
