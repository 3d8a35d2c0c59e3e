"""An MCP server with authentication: callers own their runs."""

import json
from typing import Any

import httpx
from tests.serve.a2a.clients import served
from tests.sockets import http_client

from batonkit import Agent, RunContext, Runner, tool
from batonkit.serve import mcp_app
from batonkit.testing import ScriptedModel, call

_INITIALIZE = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}


@tool
async def ask(ctx: RunContext[Any]) -> str:
    """Ask."""
    return f"size {await ctx.interrupt('Which size?')}"


class Session:
    """An MCP session of one caller."""

    def __init__(self, http: httpx.AsyncClient, token: str) -> None:
        self._http = http
        self._headers = {
            "Authorization": f"Bearer {token}",
            "Accept": "application/json, text/event-stream",
            "MCP-Protocol-Version": "2025-06-18",
        }

    async def open(self) -> None:
        """Initialize the session."""
        answer = await self._post("initialize", _INITIALIZE, id=1)
        self._headers["Mcp-Session-Id"] = answer.headers["mcp-session-id"]
        await self._post("notifications/initialized", {})

    async def call_tool(self, name: str, **arguments: Any) -> str:
        """Call a tool and return the text of its result."""
        answer = await self._post("tools/call", {"name": name, "arguments": arguments}, id=2)
        (line,) = [line for line in answer.text.splitlines() if line.startswith("data: ") and '"id":2' in line]
        return json.loads(line.removeprefix("data: "))["result"]["content"][0]["text"]

    async def _post(self, method: str, params: dict[str, Any], **more: Any) -> httpx.Response:
        body = {"jsonrpc": "2.0", "method": method, "params": params, **more}
        answer = await self._http.post("/mcp", json=body, headers=self._headers)
        assert answer.status_code in (200, 202), answer.text
        return answer


async def test_runs_belong_to_the_caller_who_started_them() -> None:
    model = ScriptedModel([call("ask"), "done"])
    runner = Runner(Agent("Desk", description="Helps.", tools=[ask]), model=model, store="memory:")
    async with (
        served(mcp_app(runner, auth={"t1": "ann", "t2": "bob"})) as url,
        http_client(base_url=url) as http,
    ):
        ann, bob = Session(http, "t1"), Session(http, "t2")
        await ann.open()
        await bob.open()
        assert "Which size?" in await ann.call_tool("desk", request="a shirt")
        (record,) = (await runner._require_store("test").list()).records
        assert record.owner == "ann"
        assert "there is no suspended run" in await bob.call_tool("answer_run", run_id=record.run_id, answers="3")
        assert await ann.call_tool("answer_run", run_id=record.run_id, answers="3") == "done"
