"""A server's requests during a call: elicitation, sampling and roots."""

import logging
import re
from pathlib import Path
from typing import Annotated, Any

import pytest
from mcp.server.mcpserver import Context, Elicit, ElicitationResult, ListRoots, Resolve, Sample
from mcp.server.mcpserver import MCPServer as SDKServer
from mcp.shared.exceptions import UrlElicitationRequiredError
from mcp_types import CreateMessageResult, ElicitRequestURLParams, ListRootsResult, SamplingMessage, TextContent
from pydantic import BaseModel
from tests.hostile_schemas import UNUSABLE
from tests.mcp.servers import call_tools, runner_with_calls, tool_results

from batonkit import Agent, Runner
from batonkit.errors import AnswerError
from batonkit.log import InterruptRaised, StepCompleted
from batonkit.mcp import MCPToolset
from batonkit.models import ModelRequest
from batonkit.testing import ScriptedModel, assert_survives_crashes, call


class Size(BaseModel):
    size: int


def shop(call_log: list[str]) -> SDKServer:
    """Create an in-process server that requests elicitation, sampling and roots with the newest protocol."""
    server = SDKServer("shop")

    async def ask_size(ctx: Context) -> Elicit[Size]:
        call_log.append("asked")
        return Elicit("Which size?", Size)

    async def ask_model(ctx: Context) -> Sample:
        message = SamplingMessage(role="user", content=TextContent(text="Name a colour."))
        return Sample([message], max_tokens=10, system_prompt="Be brief.")

    async def ask_roots(ctx: Context) -> ListRoots:
        return ListRoots()

    @server.tool()
    async def order(item: str, size: Annotated[ElicitationResult[Size], Resolve(ask_size)]) -> str:
        call_log.append(f"ordered {item}")
        return f"{item}: {size.data.size}" if size.action == "accept" else f"no {item}"

    @server.tool()
    async def colour(response: Annotated[CreateMessageResult, Resolve(ask_model)]) -> str:
        assert isinstance(response.content, TextContent)
        return f"{response.content.text} by {response.model}"

    @server.tool()
    async def folders(roots: Annotated[ListRootsResult, Resolve(ask_roots)]) -> str:
        return ", ".join(f"{root.name}: {root.uri}" for root in roots.roots)

    return server


async def test_an_elicitation_suspends_the_run_and_its_answer_is_sent_with_the_state() -> None:
    call_log: list[str] = []
    server = shop(call_log)
    runner, _ = runner_with_calls(MCPToolset(server), [call("order", item="hat")])
    result = await runner.run("hi")
    [question] = result.interrupts
    assert question.payload == {
        "kind": "elicitation",
        "server": "the server `shop`",
        "tool": "order",
        "message": "Which size?",
    }
    with pytest.raises(AnswerError, match="does not fit"):
        await runner.resume(result.run_id, {"size": "large"})
    [step] = [event for event in result.events if isinstance(event, StepCompleted)]
    assert step.result["requestState"]
    # Another toolset needs only the log.
    other, _ = runner_with_calls(MCPToolset(server))
    resumed = await other.resume(await other.runs.load(result.events), {"size": 7})
    assert tool_results(resumed) == ["hat: 7"]
    # The SDK resolves the request in every round; a third time would mean that the state was lost.
    assert call_log == ["asked", "asked", "ordered hat"]
    assert (await other.runs.replay(resumed.events)).output == "done"


async def test_an_elicitation_survives_a_crash_after_every_event() -> None:
    toolset = MCPToolset(shop([]))
    runner, _ = runner_with_calls(toolset, [call("order", item="hat")], [call("order", item="coat")])
    # The server encrypts its state differently each time.
    report = await assert_survives_crashes(
        lambda store: runner.clone(store=store),
        "hi",
        answers={"size": 7},
        normalize=lambda line: re.sub(r'"requestState":"[^"]+"', "", line),
    )
    assert report.crashes >= report.events > 10


def asking_server(schema: dict[str, Any]) -> SDKServer:
    """Create a server whose tool elicits an answer with this schema."""

    class Form(BaseModel):
        @classmethod
        def model_json_schema(cls, *args: Any, **options: Any) -> dict[str, Any]:
            return schema

    server = SDKServer("hostile")

    async def ask_form(ctx: Context) -> Elicit[Form]:
        return Elicit("What?", Form)

    @server.tool()
    async def ask(form: Annotated[ElicitationResult[Form], Resolve(ask_form)]) -> str:
        return form.action

    return server


# The SDK refuses forms that are no objects or whose fields have no plain type; with the newest protocol it drops more.
UNUSABLE_FORMS: dict[tuple[str, str], dict[str, Any]] = {
    **{
        ("legacy", name): {"type": "object", "properties": {}, **schema}
        for name, (schema, _) in UNUSABLE.items()
        if {"type", "properties"}.isdisjoint(schema)
    },
    **{
        ("auto", name): {"type": "object", "properties": {"a": {"type": "string", **UNUSABLE[name][0]}}}
        for name in ("a web address", "a file", "too large", "a lookahead", "an enormous pattern")
    },
}


@pytest.mark.parametrize("case", UNUSABLE_FORMS)
async def test_a_question_with_an_unsafe_schema_is_not_asked(case: tuple[Any, str]) -> None:
    toolset = MCPToolset(asking_server(UNUSABLE_FORMS[case]), protocol_version=case[0])
    runner, _ = runner_with_calls(toolset, [call("ask")])
    result = await runner.run("hi")
    assert result.status == "completed"
    assert "the question was not asked: interrupt(schema=…) cannot be used: " in str(tool_results(result))
    assert not [event for event in result.events if isinstance(event, InterruptRaised)]


def listing_server(schema: dict[str, Any], content: Any) -> SDKServer:
    """Create a server whose tool has this output schema and returns this content."""
    server = SDKServer("hostile")

    @server.tool()
    async def search() -> dict[str, Any]:
        return content

    manager: Any = getattr(server, "_tool_manager")  # noqa: B009 - the SDK has no way to choose a schema
    [registered] = manager.list_tools()
    registered.fn_metadata.output_schema = schema
    return server


# The SDK's server cannot send the others.
UNUSABLE_OUTPUTS = {
    name: {"type": "object", **schema}
    for name, (schema, _) in UNUSABLE.items()
    if name not in ("null", "too many levels", "endless levels", "a wrong type", "an unknown type")
}


@pytest.mark.parametrize("name", UNUSABLE_OUTPUTS)
async def test_an_unsafe_output_schema_is_not_applied(name: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "baton.mcp")
    toolset = MCPToolset(listing_server(UNUSABLE_OUTPUTS[name], {"a": "aaa"}))
    [result] = await call_tools(toolset, ("search", {}))
    assert "aaa" in str(result)
    assert "the result of tool `search` is used unchecked: the " in caplog.text


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": 5},
        {"required": 5},
        {"$defs": 5},
        {"properties": {"a": {"$ref": 5}}, "required": ["a"]},
        {"properties": {"a": {"$ref": "http://127.0.0.1:9/"}}},
    ],
)
async def test_an_unsafe_input_schema_is_not_made_strict(schema: dict[str, Any]) -> None:
    server = SDKServer("hostile")

    @server.tool()
    async def search(a: str = "") -> str:
        return "found"

    manager: Any = getattr(server, "_tool_manager")  # noqa: B009 - the SDK has no way to choose a schema
    [registered] = manager.list_tools()
    registered.parameters = {"type": "object", **schema}
    runner, model = runner_with_calls(MCPToolset(server, strict=True), [call("search", a="x")])
    assert tool_results(await runner.run("hi")) == ["found"]
    [offered] = model.requests[0].tools
    assert not offered.strict


async def test_a_result_is_checked_against_the_output_schema() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string", "pattern": "^(a+)+$"}}}
    [accepted] = await call_tools(MCPToolset(listing_server(schema, {"a": "aaa"})), ("search", {}))
    assert "aaa" in str(accepted)
    [refused] = await call_tools(MCPToolset(listing_server(schema, {"a": "a" * 5000 + "!"})), ("search", {}))
    assert "tool `search` returned an invalid result: a: " in str(refused)


async def test_an_answer_of_false_declines_the_elicitation() -> None:
    runner, _ = runner_with_calls(MCPToolset(shop([])), [call("order", item="hat")])
    result = await runner.run("hi")
    assert tool_results(await runner.resume(result.run_id, False)) == ["no hat"]


async def test_an_elicitation_belongs_to_its_call_among_concurrent_calls() -> None:
    call_log: list[str] = []
    server = SDKServer("old")

    @server.tool()
    async def ask(ctx: Context) -> str:
        answer = await ctx.elicit("Which size?", Size)
        return str(answer.data.size) if answer.action == "accept" else answer.action

    @server.tool()
    async def act(text: str) -> str:
        call_log.append(text)
        return text

    runner, _ = runner_with_calls(
        MCPToolset(server, protocol_version="legacy"), [call("act", text="a"), call("ask"), call("act", text="b")]
    )
    result = await runner.run("hi")
    assert [interrupt.tool_call.name for interrupt in result.interrupts if interrupt.tool_call is not None] == ["ask"]
    resumed = await runner.resume(result.run_id, {"size": 7})
    assert set(tool_results(resumed)) == {"a", "b", "7"}
    assert sorted(call_log) == ["a", "b"]


@pytest.mark.parametrize(("answer", "expected"), [(True, "in"), (False, "`enter` cannot continue: the user declined")])
async def test_a_url_elicitation_becomes_an_interrupt(answer: bool, expected: str) -> None:
    server, attempts = SDKServer("gate"), list[str]()

    @server.tool()
    async def enter() -> str:
        if not attempts:
            attempts.append("first")
            page = ElicitRequestURLParams(message="Sign in.", url="https://example.org/in", elicitation_id="1")
            raise UrlElicitationRequiredError([page])
        return "in"

    runner, _ = runner_with_calls(MCPToolset(server, protocol_version="legacy"), [call("enter")])
    result = await runner.run("hi")
    [question] = result.interrupts
    assert (question.payload["message"], question.payload["url"]) == ("Sign in.", "https://example.org/in")
    assert tool_results(await runner.resume(result.run_id, answer)) == [expected]


async def test_sampling_must_be_allowed_and_is_recorded() -> None:
    refused = await call_tools(MCPToolset(shop([])), ("colour", {}))
    assert "sampling" in str(refused)
    model = ScriptedModel([[call("colour")], "blue", "done"])
    runner = Runner(Agent("A", tools=[MCPToolset(shop([]), allow_sampling=True)], model=model))
    result = await runner.run("hi")
    assert tool_results(result) == ["blue by scripted"]
    request: ModelRequest = model.requests[1]
    assert (request.instructions, request.settings.max_tokens, request.tools) == ("Be brief.", 10, ())
    assert (await runner.runs.replay(result.events)).output == "done"
    assert len(model.requests) == 3


async def test_roots_are_sent_to_the_server(tmp_path: Path) -> None:
    toolset = MCPToolset(shop([]), roots=[tmp_path])
    assert await call_tools(toolset, ("folders", {})) == [f"{tmp_path.name}: {tmp_path.as_uri()}"]


@pytest.mark.parametrize("protocol", ["auto", "legacy"])
async def test_server_log_messages_are_logged(protocol: str, caplog: pytest.LogCaptureFixture) -> None:
    server = SDKServer("logging")

    @server.tool()
    async def log(ctx: Context) -> str:
        await ctx.log("warning", "the oven is hot")  # pyright: ignore[reportDeprecated] - clients must still support it
        return ""

    with caplog.at_level(logging.INFO, "baton.mcp"), pytest.warns(UserWarning, match="deprecated"):
        await call_tools(MCPToolset(server, protocol_version=protocol), ("log", {}))
    messages: list[Any] = [(record.levelname, record.getMessage()) for record in caplog.records]
    assert ("WARNING", "the server `logging`: the oven is hot") in messages
