"""A team as an MCP server for callers with names: each has runs of their own."""

import json
from typing import Any

import httpx
from tests.serving.a2a.stage import served

from baton import Agent, RunContext, Runner, tool
from baton.serving import mcp_app
from baton.testing import ScriptedModel, call

_ABOUT = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}


@tool
async def ask(ctx: RunContext[Any]) -> str:
    """Ask."""
    return f"size {await ctx.interrupt('Which size?')}"


class Session:
    """One client, with a token."""

    def __init__(self, http: httpx.AsyncClient, token: str) -> None:
        self._http = http
        self._headers = {
            "Authorization": f"Bearer {token}",
            "Accept": "application/json, text/event-stream",
            "MCP-Protocol-Version": "2025-06-18",
        }

    async def open(self) -> None:
        """Say hello."""
        answer = await self._post("initialize", _ABOUT, id=1)
        self._headers["Mcp-Session-Id"] = answer.headers["mcp-session-id"]
        await self._post("notifications/initialized", {})

    async def called(self, name: str, **arguments: Any) -> str:
        """The text that a tool answers with."""
        answer = await self._post("tools/call", {"name": name, "arguments": arguments}, id=2)
        (line,) = [line for line in answer.text.splitlines() if line.startswith("data: ") and '"id":2' in line]
        return json.loads(line.removeprefix("data: "))["result"]["content"][0]["text"]

    async def _post(self, method: str, params: dict[str, Any], **more: Any) -> httpx.Response:
        body = {"jsonrpc": "2.0", "method": method, "params": params, **more}
        answer = await self._http.post("/mcp", json=body, headers=self._headers)
        assert answer.status_code in (200, 202), answer.text
        return answer


async def test_runs_belong_to_whoever_asked_for_them() -> None:
    model = ScriptedModel([call("ask"), "done"])
    runner = Runner(Agent("Desk", description="Helps.", tools=[ask]), model=model, store="memory:")
    async with (
        served(mcp_app(runner, auth={"t1": "ann", "t2": "bob"})) as url,
        httpx.AsyncClient(base_url=url, timeout=20) as http,
    ):
        ann, bob = Session(http, "t1"), Session(http, "t2")
        await ann.open()
        await bob.open()
        assert "Which size?" in await ann.called("desk", request="a shirt")
        (record,) = (await runner._require_store("test").list()).records
        assert record.owner == "ann"
        assert "there is no suspended run" in await bob.called("answer_run", run_id=record.run_id, answers="3")
        assert await ann.called("answer_run", run_id=record.run_id, answers="3") == "done"
