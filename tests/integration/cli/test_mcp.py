"""`baton mcp` over stdio and HTTP, driven by the official client."""

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest
from mcp_types import CallToolResult, TextContent
from tests.cli.programs import Invoke, Write
from tests.mcp.servers import free_port, until_reachable

from batonkit import Agent, Runner
from batonkit.log import ToolReturned
from mcp import Client, StdioServerParameters

TEAM = """
bookings = Agent("Bookings", description="Books trips.", model=ScriptedModel(["booked"], cycle=True))

@tool
async def chatter() -> str:
    print("not for the client")
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


async def test_stdio_with_a_tool_per_agent(write: Write) -> None:
    write(TEAM, "team.py")
    command = StdioServerParameters(
        command=sys.executable,
        args=["-m", "batonkit", "mcp", "team:desk", "--tool-per-agent", "--store", "runs.db"],
        cwd=Path.cwd(),
    )
    async with Client(command) as client:
        assert [tool.name for tool in (await client.list_tools()).tools] == ["desk", "bookings", "answer_run"]
        # Output of the team's code does not mix with the protocol.
        assert text_in(await client.call_tool("desk", {"request": "hi"})) == "at your service"
        assert text_in(await client.call_tool("bookings", {"request": "hi"})) == "booked"
    assert Path("runs.db").exists()


async def test_http(write: Write) -> None:
    write(TEAM, "team.py")
    port = free_port()
    command = [sys.executable, "-m", "batonkit", "mcp", "team:desk", "--http", "--port", str(port)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)  # noqa: ASYNC220 - ends with the test
    try:
        await until_reachable(port)
        async with Client(f"http://127.0.0.1:{port}/mcp") as client:
            assert text_in(await client.call_tool("desk", {"request": "hi"})) == "at your service"
    finally:
        process.terminate()
        _, errors = process.communicate()
    assert f"serving MCP at http://127.0.0.1:{port}/mcp" in errors


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["team:unknown"], "unknown"),
        (["team:runner", "--tool-per-agent"], "do not apply to a Runner; pass the agent instead"),
        (["team:desk", "--http", "--host", "0.0.0.0"], "can be reached from other machines"),
        (["team:desk", "--http", "--token-env", "NOT_THERE"], "NOT_THERE"),
        (["team:desk", "--port", "8000"], "--port: only for HTTP; add --http"),
        (["team:desk", "--drain", "1", "--host", "::1"], "--host, --drain: only for HTTP"),
    ],
)
def test_errors_are_one_line(write: Write, baton: Invoke, arguments: list[str], message: str) -> None:
    write(TEAM + "runner = Runner(desk)", "team.py")
    result = baton("mcp", *arguments)
    assert result.exit_code in (1, 2)
    assert message in result.stderr
    assert "Traceback" not in result.stderr


PAYING = """
import asyncio
from pathlib import Path

@tool(effect="once")
async def pay() -> str:
    Path("begun").touch()
    while not Path("go").exists():
        await asyncio.sleep(0.01)
    Path("paid").touch()
    return "paid"

desk = Agent("Desk", tools=[pay], model=ScriptedModel([call("pay"), "never"]))
"""


async def test_sigterm_lets_the_turn_of_a_call_finish(write: Write) -> None:
    write(PAYING, "team.py")
    port = free_port()
    command = [
        sys.executable,
        "-m",
        "batonkit",
        "mcp",
        "team:desk",
        "--http",
        "--port",
        str(port),
        "--store",
        "runs.db",
    ]
    process = subprocess.Popen([*command, "--drain", "600"])  # noqa: ASYNC220 - ends with the test
    try:
        await until_reachable(port)
        async with asyncio.timeout(120), Client(f"http://127.0.0.1:{port}/mcp") as client:
            calling = asyncio.ensure_future(client.call_tool("desk", {"request": "pay"}))
            while not Path("begun").exists():
                await asyncio.sleep(0.02)
            process.terminate()
            while await _is_listening(port):
                await asyncio.sleep(0.02)
            Path("go").touch()
            await asyncio.to_thread(process.wait)
            calling.cancel()
            await asyncio.wait([calling])
    finally:
        process.kill()
        process.wait()
    assert Path("paid").exists()
    runner = Runner(Agent("Desk"), store="runs.db")
    (record,) = (await runner._require_store("test").list()).records
    assert record.status == "cancelled", "it can be resumed"
    assert any(isinstance(event, ToolReturned) for event in await runner.runs.events(record.run_id))
    await runner.close()


async def _is_listening(port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return False
    writer.close()
    return True
