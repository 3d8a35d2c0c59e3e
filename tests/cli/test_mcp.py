"""`baton mcp` over stdio and HTTP, driven by the official client."""

import subprocess
import sys
from pathlib import Path

import pytest
from mcp_types import CallToolResult, TextContent
from tests.mcp.servers import free_port, until_reachable

from mcp import Client, StdioServerParameters

from .conftest import Invoke, Write

TEAM = """
bookings = Agent("Bookings", description="Books trips.", model=ScriptedModel(["booked"], cycle=True))

@tool
async def chatter() -> str:
    print("this goes nowhere near the client")
    return "said"

desk = Agent(
    "Desk", description="Helps.", sub_agents=[bookings], tools=[chatter],
    model=ScriptedModel([[call("chatter")], "at your service"], cycle=True),
)
"""


def text_in(result: CallToolResult) -> str:
    [block] = result.content
    assert isinstance(block, TextContent)
    return block.text


async def test_over_pipes_with_a_tool_for_each_agent(write: Write) -> None:
    write(TEAM, "team.py")
    command = StdioServerParameters(
        command=sys.executable,
        args=["-m", "baton", "mcp", "team:desk", "--tool-per-agent", "--store", "runs.db"],
        cwd=Path.cwd(),
    )
    async with Client(command) as client:
        assert [tool.name for tool in (await client.list_tools()).tools] == ["desk", "bookings", "answer_run"]
        # What the team prints does not get between the messages.
        assert text_in(await client.call_tool("desk", {"request": "hi"})) == "at your service"
        assert text_in(await client.call_tool("bookings", {"request": "hi"})) == "booked"
    assert Path("runs.db").exists()


async def test_over_http(write: Write) -> None:
    write(TEAM, "team.py")
    port = free_port()
    command = [sys.executable, "-m", "baton", "mcp", "team:desk", "--http", "--port", str(port)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)  # noqa: ASYNC220 - ends with the test
    try:
        await until_reachable(port)
        async with Client(f"http://127.0.0.1:{port}/mcp") as client:
            assert text_in(await client.call_tool("desk", {"request": "hi"})) == "at your service"
    finally:
        process.terminate()
        _, said = process.communicate()
    assert f"serving MCP at http://127.0.0.1:{port}/mcp" in said


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["team:nobody"], "nobody"),
        (["team:runner", "--tool-per-agent"], "do not apply to a Runner; pass the agent instead"),
        (["team:desk", "--http", "--host", "0.0.0.0"], "can be reached from other machines"),
        (["team:desk", "--http", "--token-env", "NOT_THERE"], "NOT_THERE"),
    ],
)
def test_errors_are_one_line(write: Write, baton: Invoke, arguments: list[str], message: str) -> None:
    write(TEAM + "runner = Runner(desk)", "team.py")
    result = baton("mcp", *arguments)
    assert result.exit_code in (1, 2)
    assert message in result.stderr
    assert "Traceback" not in result.stderr
