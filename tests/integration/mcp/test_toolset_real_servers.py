"""Third-party servers from PyPI, and from npm if node is installed."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.mcp.servers import call_tools, runner_with_calls, tool_results

from batonkit.log import ProgressDelta
from batonkit.mcp import MCPToolset
from batonkit.messages import Image, Text
from batonkit.testing import call

PACKAGES = ("server-everything", "server-filesystem", "server-memory")


@pytest.fixture(scope="module")
def node_programs(request: pytest.FixtureRequest) -> Path:
    """Install the node servers once, into pytest's cache, and return the folder of their programs."""
    if shutil.which("npm") is None or shutil.which("node") is None:
        pytest.skip("these servers need node and npm, which are not installed")
    cache = getattr(request.config, "cache", None)
    assert isinstance(cache, pytest.Cache)
    folder = cache.mkdir("mcp-servers")
    programs = folder / "node_modules" / ".bin"
    if not all((programs / f"mcp-{package}").exists() for package in PACKAGES):
        packages = [f"@modelcontextprotocol/{package}" for package in PACKAGES]
        command = ["npm", "install", "--prefix", str(folder), "--no-audit", "--no-fund", "--silent", *packages]
        try:
            completed = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
        except subprocess.TimeoutExpired:
            pytest.skip("npm did not install the servers within 240 s")
        if completed.returncode:
            pytest.skip(f"npm could not install the servers: {completed.stderr.strip()[-300:]}")
    return programs


async def test_the_time_server_converts_times_and_reports_errors() -> None:
    toolset = MCPToolset([sys.executable, "-m", "mcp_server_time", "--local-timezone", "UTC"], prefix="clock")
    arguments = {"source_timezone": "UTC", "time": "12:00", "target_timezone": "Asia/Tokyo"}
    converted, wrong = await call_tools(
        toolset, ("clock_convert_time", arguments), ("clock_convert_time", {**arguments, "time": "noon"})
    )
    assert json.loads(str(converted))["target"]["datetime"].endswith("T21:00:00+09:00")
    assert "Invalid time format" in str(wrong)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Create a repository with an untracked file."""
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    (tmp_path / "a.txt").write_text("hello")
    return tmp_path


async def test_the_git_server_reports_the_status(repository: Path) -> None:
    toolset = MCPToolset([sys.executable, "-m", "mcp_server_git", "--repository", str(repository)])
    runner, model = runner_with_calls(toolset, [call("git_status", repo_path=str(repository))])
    [status] = tool_results(await runner.run("hi"))
    assert "a.txt" in str(status)
    assert "git_commit" in [spec.name for spec in model.requests[0].tools]


@pytest.mark.timeout(300)
async def test_the_everything_server_returns_results_progress_and_elicitations(node_programs: Path) -> None:
    toolset = MCPToolset([str(node_programs / "mcp-server-everything")], roots=[node_programs])
    runner, _ = runner_with_calls(
        toolset,
        [call("echo", message="hello"), call("get-sum", a=2, b=3), call("get-tiny-image")],
        [call("trigger-long-running-operation", duration=0.2, steps=2)],
        [call("get-structured-content", location="Chicago")],
        [call("trigger-elicitation-request")],
    )
    async with toolset:
        async with runner.stream("hi") as stream:
            steps = [event.done async for event in stream if isinstance(event, ProgressDelta)]
        contents = tool_results(stream.result)
        assert {"Echo: hello", "The sum of 2 and 3 is 5."} < {*map(str, contents[:3])}
        [image] = [content for content in contents[:3] if not isinstance(content, str)]
        assert [type(part) for part in image] == [Text, Image, Text]
        assert steps == [1, 2]
        assert json.loads(str(contents[4]))["conditions"]
        [question] = stream.result.interrupts
        assert question.payload["message"]
        answer: dict[str, Any] = {"name": "Ada", "check": True}
        resumed = await runner.resume(stream.result.run_id, answer)
        assert "Ada" in str(tool_results(resumed)[-1])


@pytest.mark.timeout(300)
async def test_the_filesystem_server_stays_in_its_roots(node_programs: Path, tmp_path: Path) -> None:
    inside, outside = tmp_path / "inside", tmp_path / "outside"
    inside.mkdir()
    outside.mkdir()
    (inside / "a.txt").write_text("hello")
    (outside / "b.txt").write_text("secret")
    toolset = MCPToolset([str(node_programs / "mcp-server-filesystem"), str(inside)], roots=[inside])
    content, refused = await call_tools(
        toolset,
        ("read_text_file", {"path": str(inside / "a.txt")}),
        ("read_text_file", {"path": str(outside / "b.txt")}),
    )
    assert "hello" in str(content)
    assert "Access denied" in str(refused)


@pytest.mark.timeout(300)
async def test_the_memory_server_keeps_entities_between_runs(node_programs: Path, tmp_path: Path) -> None:
    toolset = MCPToolset(
        [str(node_programs / "mcp-server-memory")], env={"MEMORY_FILE_PATH": str(tmp_path / "memory.jsonl")}
    )
    ada = {"name": "Ada", "entityType": "person", "observations": ["likes engines"]}
    await call_tools(toolset, ("create_entities", {"entities": [ada]}))
    [graph] = await call_tools(toolset, ("read_graph", {}))
    assert "likes engines" in str(graph)
