"""The tools of a server as an agent's: selection, names, approval and results."""

import asyncio
import subprocess
import sys
from typing import Any

import pytest
from mcp.server.mcpserver import Audio, Context, Image
from mcp.server.mcpserver import MCPServer as SDKServer
from mcp_types import EmbeddedResource, ResourceLink, TextResourceContents, ToolAnnotations
from tests.mcp.servers import caller, calls, faulty, results

from baton import Agent, RunContext, Runner, SetupError
from baton.errors import ToolsUnavailableError
from baton.events import ProgressDelta
from baton.mcp import MCPToolset
from baton.messages import Audio as Sound
from baton.messages import Data, File, Text, ToolMessage
from baton.messages import Image as Picture
from baton.testing import ScriptedModel, call
from baton.tools.wrappers import tool_effect


def kitchen() -> SDKServer:
    """A server of this process, with a tool for each kind of result."""
    server = SDKServer("kitchen")

    @server.tool(annotations=ToolAnnotations(read_only_hint=True))
    async def menu() -> list[str]:
        """What there is."""
        return ["soup", "bread"]

    @server.tool(structured_output=False)
    async def plate() -> Any:
        return [
            "a plate",
            Image(data=b"png", format="png"),
            Audio(data=b"wav", format="wav"),
            ResourceLink(uri="https://example.org/a.pdf", name="a.pdf", mime_type="application/pdf"),
            EmbeddedResource(resource=TextResourceContents(uri="memo://1", text="a memo")),
        ]

    @server.tool()
    async def burn() -> str:
        raise ValueError("it burns")

    @server.tool()
    async def cook(dish: str, ctx: Context, minutes: int = 1) -> str:
        await ctx.report_progress(1, 2, "half done")
        return f"{dish} after {minutes}"

    return server


def _has_dish(ctx: RunContext[Any], given: dict[str, Any]) -> bool:
    return "dish" in given


def names(model: ScriptedModel, turn: int = 0) -> list[str]:
    return [spec.name for spec in model.requests[turn].tools]


async def test_tools_are_offered_and_results_converted() -> None:
    runner, model = caller(MCPToolset(kitchen()), [call("menu")], [call("plate")], [call("burn")])
    result = await runner.run("hi")
    assert names(model) == ["menu", "plate", "burn", "cook"]
    menu, plate, burn = results(result)
    assert menu == (Text("soup"), Text("bread"), Data({"result": ["soup", "bread"]}))
    assert plate == (
        Text("a plate"),
        Picture(data=b"png", media_type="image/png"),
        Sound(data=b"wav", media_type="audio/wav"),
        File(url="https://example.org/a.pdf", media_type="application/pdf", name="a.pdf"),
        Text("a memo"),
    )
    assert burn == "Error executing tool burn"
    told = model.requests[3].messages[-1]
    assert isinstance(told, ToolMessage)
    assert told.is_error


async def test_progress_is_streamed() -> None:
    runner, _ = caller(MCPToolset(kitchen()), [call("cook", dish="soup")])
    async with runner.stream("hi") as live:
        told = [event async for event in live if isinstance(event, ProgressDelta)]
    assert [(event.text, event.done, event.total) for event in told] == [("half done", 1, 2)]
    assert results(live.result) == ["soup after 1"]


async def test_prefix_separates_servers_and_duplicate_names_are_refused() -> None:
    runner, model = caller([MCPToolset(kitchen(), prefix="ours"), MCPToolset(kitchen())], [call("ours_menu")])
    await runner.run("hi")
    assert names(model)[:5] == ["ours_menu", "ours_plate", "ours_burn", "ours_cook", "menu"]
    runner, _ = caller([MCPToolset(kitchen()), MCPToolset(kitchen())])
    with pytest.raises(SetupError, match="`A` has two tools called `menu`; give one of the toolsets a prefix"):
        await runner.run("hi")


async def test_include_and_exclude(caplog: pytest.LogCaptureFixture) -> None:
    runner, model = caller(MCPToolset(kitchen(), include=["menu", "cook", "dessert"], exclude=["cook"]))
    await runner.run("hi")
    assert names(model) == ["menu"]
    assert "the server `kitchen` has no tool `dessert`" in caplog.text


@pytest.mark.parametrize(("approval", "asks"), [(True, 2), (["cook"], 1), (_has_dish, 1)])
async def test_needs_approval(approval: Any, asks: int) -> None:
    source = MCPToolset(kitchen(), needs_approval=approval)
    runner, _ = caller(source, [call("menu"), call("cook", dish="soup")])
    result = await runner.run("hi")
    assert len(result.interrupts) == asks
    result = await runner.resume(
        result.run_id, {asked.id: asked.payload["tool"] == "menu" for asked in result.interrupts}
    )
    assert result.output == "done"
    assert "This call of `cook` was not approved" in str(results(result))


async def test_schemas_are_verbatim_or_strict_where_equivalent() -> None:
    server = kitchen()

    @server.tool()
    async def anything(data: dict[str, Any]) -> str:
        return ""

    verbatim, model = caller(MCPToolset(server, include=["cook"]))
    await verbatim.run("hi")
    [listed] = [tool for tool in await server.list_tools() if tool.name == "cook"]
    assert model.requests[0].tools[0].parameters == listed.input_schema
    assert not model.requests[0].tools[0].strict
    strict, model = caller(
        MCPToolset(server, include=["cook", "anything"], strict=True), [call("cook", dish="soup", minutes=None)]
    )
    assert results(await strict.run("hi")) == ["soup after 1"]
    cook, loose = model.requests[0].tools
    assert (cook.strict, loose.strict) == (True, False)
    assert cook.parameters["required"] == ["dish", "minutes"]
    assert cook.parameters["additionalProperties"] is False


async def test_annotations_determine_the_effect() -> None:
    async with MCPToolset(kitchen()) as source:
        ctx: Any = None
        effects = {tool.spec.name: tool_effect(tool) for tool in await source.get_tools(ctx)}
    assert effects == {"menu": "read", "plate": "idempotent", "burn": "idempotent", "cook": "idempotent"}


@pytest.mark.parametrize("protocol", ["auto", "legacy"])
async def test_tools_are_listed_again_after_a_change_notification(protocol: str) -> None:
    server = SDKServer("growing")

    @server.tool()
    async def grow(ctx: Context) -> str:
        async def grown() -> str:
            """Grown."""
            return "grown"

        server.add_tool(grown)
        await (ctx.session.send_tool_list_changed() if protocol == "legacy" else ctx.notify_tools_changed())
        return "ok"

    runner, model = caller(MCPToolset(server, protocol_version=protocol), [call("grow")], [call("grown")])
    assert results(await runner.run("hi")) == ["ok", "grown"]
    assert [names(model, turn) for turn in range(2)] == [["grow"], ["grow", "grown"]]


async def test_shared_connection_serves_all_runs_otherwise_one_each(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("API_KEY", "hidden")
    source = MCPToolset(faulty(), env={"TOKEN": "given"})
    process = ("process", dict[str, Any]())
    async with source:
        kept = await asyncio.gather(calls(source, process), calls(source, process))
        assert len(set(map(str, kept))) == 1
        with pytest.raises(SetupError, match="is open already"):
            await source.__aenter__()
        # A process sees nothing of the environment that was not given to it.
        found = await calls(source, ("secret", {"name": "API_KEY"}), ("secret", {"name": "TOKEN"}))
        assert found == ["nothing", "given"]
    assert await calls(source, process) not in kept


async def test_server_that_cannot_start_fails_the_run_which_can_be_resumed() -> None:
    model = ScriptedModel(["done"])
    broken = MCPToolset([sys.executable, "-c", "import sys; sys.exit('the disk is full')"])
    runner = Runner(Agent("A", tools=[broken], model=model))
    with pytest.raises(ToolsUnavailableError, match=r"(?s)cannot be reached.*the disk is full"):
        await runner.run("hi", run_id="r")
    assert not model.requests
    mended = Runner(Agent("A", tools=[MCPToolset(kitchen())], model=model))
    mended.load_log(await runner.events("r"))
    assert (await mended.resume("r")).output == "done"


@pytest.mark.parametrize(
    ("server", "facts", "complaint"),
    [
        (42, {}, "42 is not an MCP server; pass a command"),
        ("", {}, "'' is not an MCP server; pass a command"),
        ("http://x/mcp", {"env": {"A": "b"}}, "env and cwd apply only to commands"),
        (["x"], {"headers": {"A": "b"}}, "headers and auth apply only to URLs"),
        ("x", {"include": "menu"}, r"MCPToolset\(include='menu'\) should be a list of names"),
    ],
)
def test_invalid_arguments_are_refused_at_construction(server: Any, facts: dict[str, Any], complaint: str) -> None:
    with pytest.raises(SetupError, match=complaint):
        MCPToolset(server, **facts)


def test_mcp_library_is_imported_lazily_and_named_when_missing() -> None:
    program = """
import sys
import baton.mcp
assert not {"mcp", "mcp_types", "httpx2"} & set(sys.modules)
sys.modules["mcp_types"] = None
try:
    baton.mcp.MCPToolset
except baton.SetupError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("MCP needs its library: pip install 'baton-adk[mcp]'\n", "")


def test_repr_shows_no_secrets() -> None:
    assert repr(MCPToolset("https://user:pass@example.org:81/mcp?key=1")) == (
        "MCPToolset(the server at https://example.org:81/mcp)"
    )
    assert repr(MCPToolset("uvx mcp-server-time --key=1")) == "MCPToolset(the server `uvx mcp-server-time`)"


async def test_connection_of_another_event_loop_is_refused() -> None:
    source = MCPToolset(kitchen())
    runner, _ = caller(source)
    async with source:
        with pytest.raises(SetupError, match="opened in another event loop"):
            await asyncio.to_thread(runner.run_sync, "hi")
