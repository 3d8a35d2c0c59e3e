"""A team as an MCP server, used with the official client in this process and over HTTP."""

import asyncio
from typing import Any

import pytest
from mcp.client import ClientRequestContext
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INVALID_PARAMS,
    CallToolResult,
    ElicitRequestFormParams,
    ElicitRequestParams,
    ElicitResult,
    InputRequiredResult,
    InputResponses,
    TextContent,
)
from pydantic import BaseModel
from tests.mcp.servers import served

from batonkit import Agent, RunContext, Runner, SetupError, tool
from batonkit.mcp import MCPToolset
from batonkit.serve import mcp_app, mcp_server
from batonkit.testing import ScriptedModel, call
from mcp import Client


class Bill(BaseModel):
    euro: int


@tool(needs_approval=True)
async def pay(euro: int) -> str:
    """Pay."""
    return f"{euro} paid"


@tool
async def fetch(ctx: RunContext[Any]) -> str:
    """Fetch."""
    await ctx.progress("on the way")
    return "fetched"


@tool
async def ask(ctx: RunContext[Any]) -> str:
    """Ask."""
    size = await ctx.interrupt("Which size?", schema=int)
    return f"size {size}"


def make_team(*steps: Any, **options: Any) -> Agent[Any, Any]:
    """Create a team: `Desk` has tools and a handoff to Bookings."""
    bookings = Agent("Bookings", description="Books trips.")
    model = ScriptedModel({"Desk": steps, "Bookings": ["booked"]})
    return Agent("Desk", description="Helps.", tools=[pay, fetch, ask], handoffs=[bookings], model=model, **options)


def text_in(result: CallToolResult) -> str:
    [block] = result.content
    assert isinstance(block, TextContent)
    return block.text


def scripted_user(*answers: Any) -> Any:
    """Create an elicitation callback that gives these answers in order and records the questions."""
    remaining = list(answers)

    async def answer(context: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult:
        assert isinstance(params, ElicitRequestFormParams)
        asked.append(params.message)
        content = remaining.pop(0)
        return ElicitResult(action="decline") if content is None else ElicitResult(action="accept", content=content)

    asked: list[str] = []
    answer.asked = asked  # pyright: ignore[reportFunctionMemberAccess]
    return answer


async def test_the_root_agent_is_a_tool_and_its_run_reports_progress() -> None:
    reported: list[tuple[float, str | None]] = []

    async def record_progress(progress: float, total: float | None, message: str | None) -> None:
        reported.append((progress, message))

    team = make_team([call("fetch")], [call("transfer_to_bookings")])
    runner = Runner(team, model=ScriptedModel({"Bookings": ["booked"]}))
    async with Client(mcp_server(runner)) as client:
        listed = (await client.list_tools()).tools
        assert [(each.name, each.description) for each in listed][:1] == [("desk", "Helps.")]
        result = await client.call_tool("desk", {"request": "a trip"}, progress_callback=record_progress)
    assert (text_in(result), result.is_error) == ("booked", False)
    assert reported == [
        (1, "Desk is active"),
        (2, "on the way"),
        (3, "Desk called fetch"),
        (4, "Desk called transfer_to_bookings"),
        (5, "Desk transfers to Bookings"),
        (6, "Bookings is active"),
    ]


async def test_tool_per_agent_and_structured_output() -> None:
    bookings = Agent("Bookings", description="Books trips.", output_type=Bill)
    model = ScriptedModel({"Bookings": ['{"euro": 40}']})
    team = Agent("Desk", description="Helps.", sub_agents=[bookings])
    async with Client(mcp_server(team, tool_per_agent=True, model=model)) as client:
        assert [each.name for each in (await client.list_tools()).tools] == ["desk", "bookings", "answer_run"]
        result = await client.call_tool("bookings", {"request": "a trip"})
    assert result.structured_content == {"euro": 40}
    assert text_in(result) == '{"euro": 40}'
    with pytest.raises(SetupError, match="pass the agent instead"):
        mcp_server(Runner(team), tool_per_agent=True)


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_interrupts_are_elicited_from_the_clients_user(mode: str) -> None:
    user = scripted_user({"approved": True}, {"answer": "7"})
    team = make_team([call("pay", euro=5)], [call("ask")], "done")
    async with served(mcp_app(team)) as url, Client(url, mode=mode, elicitation_callback=user) as client:
        result = await client.call_tool("desk", {"request": "hi"})
    assert text_in(result) == "done"
    assert user.asked == ['Desk requests approval for pay with {"euro": 5}.', "Desk asks: Which size?"]


async def test_declining_denies_an_approval_and_leaves_a_question_open() -> None:
    team = make_team([call("pay", euro=5)], [call("ask")], "done")
    async with Client(mcp_server(team), elicitation_callback=scripted_user(None, None)) as client:
        result = await client.call_tool("desk", {"request": "hi"})
    assert result.is_error
    assert "Which size?" in text_in(result)


async def test_a_client_without_elicitation_gets_the_open_interrupts_and_can_answer_them() -> None:
    team = make_team([call("pay", euro=5), call("ask")], "done")
    async with Client(mcp_server(team)) as client:
        result = await client.call_tool("desk", {"request": "hi"})
        assert result.is_error
        reported = text_in(result)
        assert 'Desk requests approval for pay with {"euro": 5}.' in reported
        assert "call the tool `answer_run`" in reported
        run_id = reported.split("`")[1]
        ids = [line.split("`")[1] for line in reported.splitlines() if line.startswith("- ")]
        unsupported = await client.call_tool(
            "answer_run", {"run_id": run_id, "answers": {ids[0]: True, ids[1]: "large"}}
        )
        assert "does not fit" in text_in(unsupported)
        result = await client.call_tool("answer_run", {"run_id": run_id, "answers": {ids[0]: True, ids[1]: 7}})
        assert (text_in(result), result.is_error) == ("done", False)
        ended = await client.call_tool("answer_run", {"run_id": run_id, "answers": {}})
        assert ended.is_error


async def test_an_interrupt_can_be_answered_after_a_restart_of_the_server(tmp_path: Any) -> None:
    # The client's state is only the run id; everything else is in the store.
    store = str(tmp_path / "runs.db")
    async with Client(
        mcp_server(make_team([call("ask")]), store=store), elicitation_callback=scripted_user()
    ) as client:
        asked = await client.session.call_tool("desk", {"request": "hi"}, allow_input_required=True)
    assert isinstance(asked, InputRequiredResult)
    [id] = asked.input_requests or {}
    answers: InputResponses = {id: ElicitResult(action="accept", content={"answer": "7"})}
    async with Client(mcp_server(make_team("done"), store=store)) as client:
        result = await client.call_tool(
            "desk", {"request": "hi"}, input_responses=answers, request_state=asked.request_state
        )
        assert text_in(result) == "done"


async def test_errors_are_reported_without_internal_details() -> None:
    def fail(request: Any) -> Any:
        raise KeyError("the password is 1234")

    async with Client(mcp_server(Agent("Desk", model=ScriptedModel([fail])))) as client:
        result = await client.call_tool("desk", {"request": "hi"})
        assert result.is_error
        assert "failed: ModelError" in text_in(result)
        assert "1234" not in text_in(result)
        nothing = await client.call_tool("desk", {"request": " "})
        assert 'pass the request as text: {"request": "…"}' in text_in(nothing)
        # The protocol has a separate error for unknown tools.
        with pytest.raises(MCPError, match="the tools are: `desk`, `answer_run`") as unknown:
            await client.call_tool("nonsense", {})
        assert unknown.value.code == INVALID_PARAMS


async def test_a_cancelled_call_cancels_the_run() -> None:
    started, ended = asyncio.Event(), asyncio.Event()

    @tool
    async def wait_forever() -> str:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        return ""

    team = Agent("Desk", tools=[wait_forever], model=ScriptedModel([[call("wait_forever")]]))
    async with served(mcp_app(team)) as url, Client(url) as client:
        calling = asyncio.create_task(client.call_tool("desk", {"request": "hi"}))
        await started.wait()
        calling.cancel()
        await asyncio.wait([calling])
        await ended.wait()


async def test_a_team_can_use_another_team_as_a_server_and_pass_on_its_interrupts() -> None:
    inner = mcp_server(make_team([call("pay", euro=5)], "done"))
    outer = Runner(
        Agent("Boss", tools=[MCPToolset(inner)], model=ScriptedModel([[call("desk", request="pay")], "fine"]))
    )
    result = await outer.run("hi")
    [question] = result.interrupts
    assert question.payload["message"] == 'Desk requests approval for pay with {"euro": 5}.'
    result = await outer.resume(result.run_id, {"approved": True})
    assert result.output == "fine"
