"""Tools of an MCP server: selection, names, approval, schemas, results and connections."""

import asyncio
import subprocess
import sys
from typing import Any

import pytest
from tests.mcp.servers import call_tools, faulty_server_command
from tests.mcp.test_toolset import kitchen

from batonkit import Agent, Runner, SetupError
from batonkit.errors import ToolsUnavailableError
from batonkit.mcp import MCPToolset
from batonkit.testing import ScriptedModel


async def test_an_open_toolset_shares_one_connection_with_all_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("API_KEY", "hidden")
    toolset = MCPToolset(faulty_server_command(), env={"TOKEN": "given"})
    process = ("process", dict[str, Any]())
    async with toolset:
        shared_pids = await asyncio.gather(call_tools(toolset, process), call_tools(toolset, process))
        assert len(set(map(str, shared_pids))) == 1
        with pytest.raises(SetupError, match="is open already"):
            await toolset.__aenter__()
        # The process gets only the environment variables that were passed.
        values = await call_tools(
            toolset, ("environment_variable", {"name": "API_KEY"}), ("environment_variable", {"name": "TOKEN"})
        )
        assert values == ["nothing", "given"]
    assert await call_tools(toolset, process) not in shared_pids


async def test_a_server_that_cannot_start_fails_the_run_which_can_be_resumed() -> None:
    model = ScriptedModel(["done"])
    broken = MCPToolset([sys.executable, "-c", "import sys; sys.exit('the disk is full')"])
    runner = Runner(Agent("A", tools=[broken], model=model))
    with pytest.raises(ToolsUnavailableError, match=r"(?s)cannot be reached.*the disk is full"):
        await runner.run("hi", run_id="r")
    assert not model.requests
    working = Runner(Agent("A", tools=[MCPToolset(kitchen())], model=model))
    await working.runs.load(await runner.runs.events("r"))
    assert (await working.resume("r")).output == "done"


def test_the_mcp_library_is_imported_lazily_and_named_when_missing() -> None:
    program = """
import sys
import batonkit.mcp
assert not {"mcp", "mcp_types", "httpx2"} & set(sys.modules)
sys.modules["mcp_types"] = None
try:
    batonkit.mcp.MCPToolset
except batonkit.errors.MissingExtraError as error:
    print(error)
"""
    completed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    wanted = "batonkit.mcp needs `mcp_types`, which is not installed: pip install 'batonkit[mcp]'\n"
    assert (completed.stdout, completed.stderr) == (wanted, "")
