"""Real servers and those they should not trust: another tenant at Studio, and peers that ask with hostile schemas."""

import asyncio
import json
import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from mcp.server.mcpserver import Context
from mcp.server.mcpserver import MCPServer as SDKServer
from tests.hostile_schemas import UNUSABLE
from tests.integration.serving import TEAM, serving
from tests.mcp.servers import served as served_mcp
from tests.ports import reserved_port
from tests.serve.a2a.clients import served as served_a2a
from tests.serve.a2a.sdk_service import ASK_WITH, sdk_service
from tests.serve.studio.test_app import API_ROUTES
from tests.sockets import Client
from tests.waiting import until

from batonkit import Agent, Runner
from batonkit.testing import ScriptedModel, call

STUDIOS = {
    "": ("studio", "desk:desk", "--auth", "desk:auth"),
    "/studio": ("serve", "desk:desk", "--auth", "desk:auth", "--studio"),
}
PAGES = [
    ("get", path) for path in ("/", "/?token=token-of-bob", "/config.json", "/export/r.html", "/export/ann%3Ar.html")
]
FORK = {"at": 2, "edit": {"1/m1": {"tool_calls": [{"name": "pay", "arguments": {"euros": 9000}}]}}, "start": True}


@pytest.mark.parametrize("place", STUDIOS)
async def test_a_second_tenant_reaches_nothing_in_studio(place: str, tmp_path: Path) -> None:
    (tmp_path / "desk.py").write_text(TEAM)
    async with Runner(
        Agent("Desk", instructions="SECRET-INSTRUCTIONS", model=ScriptedModel([call("pay", euros=5), "SECRET"])),
        store=tmp_path / "runs.db",
    ) as runner:
        await runner.run("SECRET-QUESTION", run_id="ann:r", owner="ann")
        before = [event.key for event in await runner.runs.events("ann:r")]
    tokens = [{"Authorization": "Bearer token-of-bob"}, {"Authorization": "Bearer token-of-ann"}, {}]
    with serving(tmp_path, *STUDIOS[place], "--store", "runs.db", ready="token=") as served:
        async with aiohttp.ClientSession() as session:
            routes = [*PAGES, *[(method, f"/api{path}") for method, path in API_ROUTES]]
            for method, path in routes:
                for id in ("r", "ann:r"):
                    url = f"{served.url}{place}{path.format(id=id, key='1/m1', other=id)}"
                    body = FORK if path.endswith("fork") else {"input": "hi"}
                    for headers in tokens:
                        async with session.request(method, url, json=body, headers=headers) as answer:
                            assert answer.status in (401, 403), (method, path)
                            assert "SECRET" not in await answer.text()
            async with session.get(served.sign_in_url, allow_redirects=False) as page:
                assert page.status == 303, "the printed URL still opens it"
    async with Runner(Agent("Desk"), store=tmp_path / "runs.db") as runner:
        assert [record.run_id for record in (await runner.runs.list()).records] == ["ann:r"]
        assert [event.key for event in await runner.runs.events("ann:r")] == before
    assert not (tmp_path / "paid").exists()


ASKING = """\
import json
import os

from batonkit import Agent, AgentContext, Runner, agent
from batonkit.a2a import RemoteAgent
from batonkit.mcp import MCPToolset
from batonkit.messages import ToolMessage, text_of
from batonkit.testing import ScriptedModel, call


@agent("Own")
async def own(ctx: AgentContext) -> None:
    schema = json.loads(text_of(ctx.messages()[-1].content))
    await ctx.say(f"answered {await ctx.interrupt('What?', schema=schema)}")


def asks(request):
    said = request.messages[-1]
    return "answered" if isinstance(said, ToolMessage) else call("ask", form=text_of(said.content))


mcp = Agent(
    "MCP",
    model=ScriptedModel([asks], cycle=True),
    tools=[MCPToolset(os.environ["PEER"], protocol_version="legacy")],
)
a2a = RemoteAgent(os.environ["PEER"], name="A2A")
"""


def hostile_mcp_server() -> SDKServer:
    """Create a server whose tool asks with the schema that it is given."""
    server = SDKServer("hostile")

    @server.tool()
    async def ask(ctx: Context, form: str) -> str:
        answer = await ctx.session.elicit_form("What?", json.loads(form), ctx.request_id)
        return str(answer.content)

    return server


class Trap:
    """A server and a pipe that notice when they are used."""

    def __init__(self, pipe: Path) -> None:
        self.pipe = pipe
        self.port = 0
        self.connections = 0

    async def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Count a connection."""
        self.connections += 1
        writer.close()

    def schemas(self) -> dict[str, dict[str, Any]]:
        """Return the unusable schemas, with references to the trap; the forms of MCP are objects."""
        web, file = f"http://127.0.0.1:{self.port}/a.json", self.pipe.as_uri()
        more: dict[str, dict[str, Any]] = {
            "the trap": {"$ref": web},
            "the trap as the base": {"$id": web, "$ref": "b.json"},
            "the trap in a part": {"$defs": {"a": {"items": {"$ref": web}}}, "items": {"$ref": "#/$defs/a"}},
            "the trap as a dialect": {"$schema": web, "$ref": f"{web}#"},
            "the pipe": {"$ref": file},
        }
        return {**more, **{name: schema for name, (schema, _) in UNUSABLE.items() if "levels" not in name}}


@asynccontextmanager
async def trap(folder: Path) -> AsyncGenerator[Trap]:
    """Set a trap, and check at the end that nothing was caught."""
    trap = Trap(folder / "pipe")
    os.mkfifo(trap.pipe)
    async with await asyncio.start_server(trap.connected, "127.0.0.1", 0) as server:
        trap.port = server.sockets[0].getsockname()[1]
        yield trap
    assert trap.connections == 0, "something was fetched"
    with pytest.raises(OSError, match="No such device or address"):
        # A pipe can be opened only if something reads it.
        os.open(trap.pipe, os.O_WRONLY | os.O_NONBLOCK)


@asynccontextmanager
async def peer(kind: str) -> AsyncGenerator[str]:
    """Serve the peer that asks."""
    if kind == "mcp":
        async with served_mcp(hostile_mcp_server().streamable_http_app()) as url:
            yield url
    else:
        with reserved_port() as port:
            async with served_a2a(sdk_service(port), port) as url:
                yield url


@asynccontextmanager
async def asking(kind: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncGenerator[Client]:
    """Serve an agent that passes on the questions of a peer, or its own."""
    (folder / "desk.py").write_text(ASKING)
    async with peer(kind) as url:
        monkeypatch.setenv("PEER", url)
        with serving(folder, "serve", f"desk:{kind}", "--store", "runs.db", ready="api: ") as served:
            async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=60)) as session:
                yield Client(session, served.url)


async def start(client: Client, kind: str, schema: dict[str, Any]) -> dict[str, Any]:
    """Start a run that asks with a schema, and return it when it has stopped."""
    prefix = ASK_WITH if kind == "a2a" else ""
    status, run = await client.post("/runs", {"input": prefix + json.dumps(schema)})
    assert status == 201

    async def read() -> dict[str, Any]:
        return (await client.get(f"/runs/{run['id']}"))[1]

    return await until(read, lambda detail: detail["status"] not in ("pending", "running"))


KINDS = ["own", "mcp", "a2a"]


@pytest.mark.parametrize("kind", KINDS)
async def test_a_question_with_a_hostile_schema_is_not_asked(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with trap(tmp_path) as caught, asking(kind, tmp_path, monkeypatch) as client:
        for name, schema in caught.schemas().items():
            if kind == "mcp" and not {"type", "properties"}.isdisjoint(schema):
                continue  # The SDK refuses them.
            form: dict[str, Any] = {"type": "object", "properties": {}, **schema} if kind == "mcp" else schema
            run = await start(client, kind, form)
            assert run["status"] == ("completed" if kind == "mcp" else "failed"), name
            assert (await client.get("/health"))[0] == 200
            events = [frame async for frame in client.events(f"/runs/{run['id']}/events")]
            assert "InterruptRaised" not in [frame.get("event") for frame in events]


SLOW: dict[str, tuple[dict[str, Any], Any]] = {
    "a pattern": ({"pattern": "^(a+)+$"}, "a" * 5000 + "!"),
    "a pattern of another dialect": (
        {"$schema": "http://json-schema.org/draft-04/schema#", "pattern": "^(a|a)*b$"},
        "a" * 5000,
    ),
    "names": ({"patternProperties": {"^(a+)+$": {}}, "additionalProperties": False}, {"a" * 5000 + "!": 1}),
    "pairs": ({"uniqueItems": True}, [[n, {}] for n in range(20_000)]),
    "choices": ({"items": {"enum": [[n] for n in range(5000)]}}, [[5000]] * 20_000),
    "alternatives": ({"items": {"not": {"anyOf": [{"type": "null"}] * 900}}}, [1] * 20_000),
}


@pytest.mark.parametrize("kind", KINDS)
async def test_an_answer_to_a_hostile_question_does_not_keep_the_server_busy(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with trap(tmp_path), asking(kind, tmp_path, monkeypatch) as client:
        for name, (schema, hostile) in SLOW.items():
            if kind == "mcp":
                # A field of a form has a plain type.
                if not isinstance(hostile, str):
                    continue
                schema, hostile = {"type": "object", "properties": {"a": {"type": "string", **schema}}}, {"a": hostile}
            run = await start(client, kind, schema)
            assert run["status"] == "suspended", name
            answers = {run["interrupts"][0]["id"]: hostile}
            # An event loop that stands still, or a thread that keeps the lock of Python, would not answer at all.
            sending = asyncio.create_task(client.post(f"/runs/{run['id']}/answers", {"answers": answers}))
            assert (await client.get("/health"))[0] == 200
            status, answer = await sending
            assert (status, answer["error"]["code"]) == (422, "invalid_answer"), name
            assert (await client.post(f"/runs/{run['id']}/cancel"))[0] == 200
