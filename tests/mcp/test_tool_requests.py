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
from tests.mcp.servers import caller, calls, faulty, results

from baton import Agent, Runner
from baton.errors import AnswerError
from baton.events import StepCompleted
from baton.mcp import MCPToolset
from baton.models import ModelRequest
from baton.testing import ScriptedModel, assert_survives_crashes, call


class Size(BaseModel):
    size: int


def shop(diary: list[str]) -> SDKServer:
    """A server in this process that asks: a person, the model, for folders; in the way of the newest protocol."""
    server = SDKServer("shop")

    async def ask_size(ctx: Context) -> Elicit[Size]:
        diary.append("asked")
        return Elicit("Which size?", Size)

    async def ask_model(ctx: Context) -> Sample:
        message = SamplingMessage(role="user", content=TextContent(text="Name a colour."))
        return Sample([message], max_tokens=10, system_prompt="Be brief.")

    async def ask_roots(ctx: Context) -> ListRoots:
        return ListRoots()

    @server.tool()
    async def order(item: str, size: Annotated[ElicitationResult[Size], Resolve(ask_size)]) -> str:
        diary.append(f"ordered {item}")
        return f"{item}: {size.data.size}" if size.action == "accept" else f"no {item}"

    @server.tool()
    async def colour(said: Annotated[CreateMessageResult, Resolve(ask_model)]) -> str:
        assert isinstance(said.content, TextContent)
        return f"{said.content.text} by {said.model}"

    @server.tool()
    async def folders(roots: Annotated[ListRootsResult, Resolve(ask_roots)]) -> str:
        return ", ".join(f"{root.name}: {root.uri}" for root in roots.roots)

    return server


async def test_elicitation_suspends_and_the_answer_returns_with_the_server_state() -> None:
    diary: list[str] = []
    server = shop(diary)
    runner, _ = caller(MCPToolset(server), [call("order", item="hat")])
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
    [stepped] = [event for event in result.events if isinstance(event, StepCompleted)]
    assert stepped.result["requestState"]
    # Taken up elsewhere: all that is needed is in the log.
    other, _ = caller(MCPToolset(server))
    resumed = await other.resume(other.load_log(result.events), {"size": 7})
    assert results(resumed) == ["hat: 7"]
    # The SDK comes past its question in every round; a third time would mean that the state was not taken.
    assert diary == ["asked", "asked", "ordered hat"]
    assert (await other.replay(resumed.events)).output == "done"


async def test_elicitation_survives_a_crash_after_every_event() -> None:
    source = MCPToolset(shop([]))
    runner, _ = caller(source, [call("order", item="hat")], [call("order", item="coat")])
    # The server seals its state anew each time.
    report = await assert_survives_crashes(
        runner.with_store, "hi", answers={"size": 7}, normalize=lambda line: re.sub(r'"requestState":"[^"]+"', "", line)
    )
    assert report.crashes >= report.events > 10


async def test_answering_false_declines() -> None:
    runner, _ = caller(MCPToolset(shop([])), [call("order", item="hat")])
    result = await runner.run("hi")
    assert results(await runner.resume(result.run_id, False)) == ["no hat"]


async def test_answer_reaches_a_restarted_process(tmp_path: Path) -> None:
    # The process of a suspended run ends, and with it the key of its state: it is asked once more, and told at once.
    diary = tmp_path / "diary"
    source = MCPToolset(faulty(), env={"DIARY": str(diary)})
    runner, _ = caller(source, [call("order", item="hat")])
    result = await runner.run("hi")
    assert not diary.exists()
    assert results(await runner.resume(result.run_id, {"size": 7})) == ["hat: 7"]
    assert diary.read_text() == "order hat accept\n"


async def test_request_is_matched_to_its_call_among_concurrent_calls() -> None:
    diary: list[str] = []
    server = SDKServer("old")

    @server.tool()
    async def ask(ctx: Context) -> str:
        answer = await ctx.elicit("Which size?", Size)
        return str(answer.data.size) if answer.action == "accept" else answer.action

    @server.tool()
    async def act(what: str) -> str:
        diary.append(what)
        return what

    runner, _ = caller(
        MCPToolset(server, protocol_version="legacy"), [call("act", what="a"), call("ask"), call("act", what="b")]
    )
    result = await runner.run("hi")
    assert [asked.tool_call.name for asked in result.interrupts if asked.tool_call is not None] == ["ask"]
    resumed = await runner.resume(result.run_id, {"size": 7})
    assert set(results(resumed)) == {"a", "b", "7"}
    assert sorted(diary) == ["a", "b"]


@pytest.mark.parametrize(("answer", "gives"), [(True, "in"), (False, "`enter` cannot continue: the user declined")])
async def test_url_elicitation_error_becomes_an_interrupt(answer: bool, gives: str) -> None:
    server, visits = SDKServer("gate"), list[str]()

    @server.tool()
    async def enter() -> str:
        if not visits:
            visits.append("told")
            page = ElicitRequestURLParams(message="Sign in.", url="https://example.org/in", elicitation_id="1")
            raise UrlElicitationRequiredError([page])
        return "in"

    runner, _ = caller(MCPToolset(server, protocol_version="legacy"), [call("enter")])
    result = await runner.run("hi")
    [question] = result.interrupts
    assert (question.payload["message"], question.payload["url"]) == ("Sign in.", "https://example.org/in")
    assert results(await runner.resume(result.run_id, answer)) == [gives]


async def test_sampling_must_be_allowed_and_is_recorded() -> None:
    refused = await calls(MCPToolset(shop([])), ("colour", {}))
    assert "sampling" in str(refused)
    model = ScriptedModel([[call("colour")], "blue", "done"])
    runner = Runner(Agent("A", tools=[MCPToolset(shop([]), allow_sampling=True)], model=model))
    result = await runner.run("hi")
    assert results(result) == ["blue by scripted"]
    asked: ModelRequest = model.requests[1]
    assert (asked.instructions, asked.settings.max_tokens, asked.tools) == ("Be brief.", 10, ())
    assert (await runner.replay(result.events)).output == "done"
    assert len(model.requests) == 3


async def test_roots_are_sent_to_the_server(tmp_path: Path) -> None:
    source = MCPToolset(shop([]), roots=[tmp_path])
    assert await calls(source, ("folders", {})) == [f"{tmp_path.name}: {tmp_path.as_uri()}"]


@pytest.mark.parametrize("protocol", ["auto", "legacy"])
async def test_server_log_messages_are_logged(protocol: str, caplog: pytest.LogCaptureFixture) -> None:
    server = SDKServer("chatty")

    @server.tool()
    async def talk(ctx: Context) -> str:
        await ctx.log("warning", "the oven is hot")  # pyright: ignore[reportDeprecated] - clients must still hear it
        return ""

    with caplog.at_level(logging.INFO, "baton.mcp"), pytest.warns(UserWarning, match="deprecated"):
        await calls(MCPToolset(server, protocol_version=protocol), ("talk", {}))
    said: list[Any] = [(record.levelname, record.getMessage()) for record in caplog.records]
    assert ("WARNING", "the server `chatty`: the oven is hot") in said
