"""Tools of an MCP server: selection, names, approval, schemas, results and connections."""

import asyncio
from typing import Any

import pytest
from mcp.server.mcpserver import Audio, Context, Image
from mcp.server.mcpserver import MCPServer as SDKServer
from mcp_types import EmbeddedResource, ResourceLink, TextResourceContents, ToolAnnotations
from tests.mcp.servers import runner_with_calls, tool_results

from batonkit import RunContext, SetupError
from batonkit.log import ProgressDelta
from batonkit.mcp import MCPToolset
from batonkit.messages import Audio as AudioPart
from batonkit.messages import Data, File, Text, ToolMessage
from batonkit.messages import Image as ImagePart
from batonkit.testing import ScriptedModel, call
from batonkit.tools.once import tool_effect


def kitchen() -> SDKServer:
    """Create an in-process server with a tool for each kind of result."""
    server = SDKServer("kitchen")

    @server.tool(annotations=ToolAnnotations(read_only_hint=True))
    async def menu() -> list[str]:
        """List the dishes."""
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


def _has_dish(ctx: RunContext[Any], arguments: dict[str, Any]) -> bool:
    return "dish" in arguments


def tool_names(model: ScriptedModel, turn: int = 0) -> list[str]:
    return [spec.name for spec in model.requests[turn].tools]


async def test_tools_are_listed_and_their_results_are_converted() -> None:
    runner, model = runner_with_calls(MCPToolset(kitchen()), [call("menu")], [call("plate")], [call("burn")])
    result = await runner.run("hi")
    assert tool_names(model) == ["menu", "plate", "burn", "cook"]
    menu, plate, burn = tool_results(result)
    assert menu == (Text("soup"), Text("bread"), Data({"result": ["soup", "bread"]}))
    assert plate == (
        Text("a plate"),
        ImagePart(data=b"png", media_type="image/png"),
        AudioPart(data=b"wav", media_type="audio/wav"),
        File(url="https://example.org/a.pdf", media_type="application/pdf", name="a.pdf"),
        Text("a memo"),
    )
    assert burn == "Error executing tool burn"
    result_message = model.requests[3].messages[-1]
    assert isinstance(result_message, ToolMessage)
    assert result_message.is_error


async def test_progress_is_streamed_as_deltas() -> None:
    runner, _ = runner_with_calls(MCPToolset(kitchen()), [call("cook", dish="soup")])
    async with runner.stream("hi") as stream:
        deltas = [event async for event in stream if isinstance(event, ProgressDelta)]
    assert [(event.text, event.done, event.total) for event in deltas] == [("half done", 1, 2)]
    assert tool_results(stream.result) == ["soup after 1"]


async def test_a_prefix_avoids_duplicate_names_which_are_refused() -> None:
    runner, model = runner_with_calls(
        [MCPToolset(kitchen(), prefix="ours"), MCPToolset(kitchen())], [call("ours_menu")]
    )
    await runner.run("hi")
    assert tool_names(model)[:5] == ["ours_menu", "ours_plate", "ours_burn", "ours_cook", "menu"]
    runner, _ = runner_with_calls([MCPToolset(kitchen()), MCPToolset(kitchen())])
    with pytest.raises(SetupError, match="`A` has two tools called `menu`; give one of the toolsets a prefix"):
        await runner.run("hi")


async def test_include_and_exclude_select_tools(caplog: pytest.LogCaptureFixture) -> None:
    runner, model = runner_with_calls(MCPToolset(kitchen(), include=["menu", "cook", "dessert"], exclude=["cook"]))
    await runner.run("hi")
    assert tool_names(model) == ["menu"]
    assert "the server `kitchen` has no tool `dessert`" in caplog.text


@pytest.mark.parametrize(("approval", "expected"), [(True, 2), (["cook"], 1), (_has_dish, 1)])
async def test_needs_approval_applies_to_all_some_or_matching_calls(approval: Any, expected: int) -> None:
    toolset = MCPToolset(kitchen(), needs_approval=approval)
    runner, _ = runner_with_calls(toolset, [call("menu"), call("cook", dish="soup")])
    result = await runner.run("hi")
    assert len(result.interrupts) == expected
    result = await runner.resume(
        result.run_id, {interrupt.id: interrupt.payload["tool"] == "menu" for interrupt in result.interrupts}
    )
    assert result.output == "done"
    assert "This call of `cook` was not approved" in str(tool_results(result))


async def test_schemas_are_unchanged_unless_strict_is_possible() -> None:
    server = kitchen()

    @server.tool()
    async def anything(data: dict[str, Any]) -> str:
        return ""

    runner, model = runner_with_calls(MCPToolset(server, include=["cook"]))
    await runner.run("hi")
    [cook_tool] = [tool for tool in await server.list_tools() if tool.name == "cook"]
    assert model.requests[0].tools[0].parameters == cook_tool.input_schema
    assert not model.requests[0].tools[0].strict
    strict_runner, model = runner_with_calls(
        MCPToolset(server, include=["cook", "anything"], strict=True), [call("cook", dish="soup", minutes=None)]
    )
    assert tool_results(await strict_runner.run("hi")) == ["soup after 1"]
    cook_spec, anything_spec = model.requests[0].tools
    assert (cook_spec.strict, anything_spec.strict) == (True, False)
    assert cook_spec.parameters["required"] == ["dish", "minutes"]
    assert cook_spec.parameters["additionalProperties"] is False


async def test_annotations_determine_the_effect() -> None:
    async with MCPToolset(kitchen()) as toolset:
        ctx: Any = None
        effects = {tool.spec.name: tool_effect(tool) for tool in await toolset.get_tools(ctx)}
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

    runner, model = runner_with_calls(MCPToolset(server, protocol_version=protocol), [call("grow")], [call("grown")])
    assert tool_results(await runner.run("hi")) == ["ok", "grown"]
    assert [tool_names(model, turn) for turn in range(2)] == [["grow"], ["grow", "grown"]]


@pytest.mark.parametrize(
    ("server", "options", "message"),
    [
        (42, {}, "42 is not an MCP server; pass a command"),
        ("", {}, "'' is not an MCP server; pass a command"),
        ("uvx 'server", {}, "is not a command: No closing quotation"),
        ("http://[::1/mcp", {}, "is not a valid URL: Invalid port"),
        ("http://x/mcp", {"env": {"A": "b"}}, "env and cwd apply only to commands"),
        (["x"], {"headers": {"A": "b"}}, "headers and auth apply only to URLs"),
        ("x", {"include": "menu"}, r"MCPToolset\(include='menu'\) should be a list of names"),
    ],
)
def test_invalid_arguments_are_refused_at_construction(server: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(SetupError, match=message):
        MCPToolset(server, **options)


def test_the_repr_contains_no_secrets() -> None:
    assert repr(MCPToolset("https://user:pass@example.org:81/mcp?key=1")) == (
        "MCPToolset(the server at https://example.org:81/mcp)"
    )
    assert repr(MCPToolset("uvx mcp-server-time --key=1")) == "MCPToolset(the server `uvx mcp-server-time`)"


async def test_a_toolset_opened_in_another_event_loop_is_refused() -> None:
    toolset = MCPToolset(kitchen())
    runner, _ = runner_with_calls(toolset)
    async with toolset:
        with pytest.raises(SetupError, match="opened in another event loop"):
            await asyncio.to_thread(runner.run_sync, "hi")
