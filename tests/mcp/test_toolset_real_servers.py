"""Third-party servers from PyPI, and from npm where node is installed."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.mcp.servers import caller, calls, results

from baton.events import ProgressDelta
from baton.mcp import MCPToolset
from baton.messages import Image, Text
from baton.testing import call

PACKAGES = ("server-everything", "server-filesystem", "server-memory")


@pytest.fixture(scope="module")
def node(request: pytest.FixtureRequest) -> Path:
    """Where the servers of node are; installed once, into pytest's cache."""
    if shutil.which("npm") is None or shutil.which("node") is None:
        pytest.skip("these servers are node programs, and there is no node and npm here")
    cache = getattr(request.config, "cache", None)
    assert isinstance(cache, pytest.Cache)
    folder = cache.mkdir("mcp-servers")
    programs = folder / "node_modules" / ".bin"
    if not all((programs / f"mcp-{package}").exists() for package in PACKAGES):
        wanted = [f"@modelcontextprotocol/{package}" for package in PACKAGES]
        command = ["npm", "install", "--prefix", str(folder), "--no-audit", "--no-fund", "--silent", *wanted]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
        except subprocess.TimeoutExpired:
            pytest.skip("npm did not install the servers within 240 s")
        if done.returncode:
            pytest.skip(f"npm cannot install the servers here: {done.stderr.strip()[-300:]}")
    return programs


async def test_the_time_server() -> None:
    source = MCPToolset([sys.executable, "-m", "mcp_server_time", "--local-timezone", "UTC"], prefix="clock")
    given = {"source_timezone": "UTC", "time": "12:00", "target_timezone": "Asia/Tokyo"}
    converted, wrong = await calls(
        source, ("clock_convert_time", given), ("clock_convert_time", {**given, "time": "noon"})
    )
    assert json.loads(str(converted))["target"]["datetime"].endswith("T21:00:00+09:00")
    assert "Invalid time format" in str(wrong)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository with a file that is not in it yet."""
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    (tmp_path / "a.txt").write_text("hello")
    return tmp_path


async def test_the_git_server(repository: Path) -> None:
    source = MCPToolset([sys.executable, "-m", "mcp_server_git", "--repository", str(repository)])
    runner, model = caller(source, [call("git_status", repo_path=str(repository))])
    [status] = results(await runner.run("hi"))
    assert "a.txt" in str(status)
    assert "git_commit" in [spec.name for spec in model.requests[0].tools]


@pytest.mark.timeout(300)
async def test_the_everything_server(node: Path) -> None:
    source = MCPToolset([str(node / "mcp-server-everything")], roots=[node])
    runner, _ = caller(
        source,
        [call("echo", message="hello"), call("get-sum", a=2, b=3), call("get-tiny-image")],
        [call("trigger-long-running-operation", duration=0.2, steps=2)],
        [call("get-structured-content", location="Chicago")],
        [call("trigger-elicitation-request")],
    )
    async with source:
        async with runner.stream("hi") as live:
            steps = [event.done async for event in live if isinstance(event, ProgressDelta)]
        given = results(live.result)
        assert {"Echo: hello", "The sum of 2 and 3 is 5."} < {*map(str, given[:3])}
        [image] = [content for content in given[:3] if not isinstance(content, str)]
        assert [type(part) for part in image] == [Text, Image, Text]
        assert steps == [1, 2]
        assert json.loads(str(given[4]))["conditions"]
        [question] = live.result.interrupts
        assert question.payload["message"]
        answer: dict[str, Any] = {"name": "Ada", "check": True}
        resumed = await runner.resume(live.result.run_id, answer)
        assert "Ada" in str(results(resumed)[-1])


@pytest.mark.timeout(300)
async def test_the_file_server_stays_in_its_roots(node: Path, tmp_path: Path) -> None:
    inside, outside = tmp_path / "inside", tmp_path / "outside"
    inside.mkdir()
    outside.mkdir()
    (inside / "a.txt").write_text("hello")
    (outside / "b.txt").write_text("secret")
    source = MCPToolset([str(node / "mcp-server-filesystem"), str(inside)], roots=[inside])
    content, refused = await calls(
        source,
        ("read_text_file", {"path": str(inside / "a.txt")}),
        ("read_text_file", {"path": str(outside / "b.txt")}),
    )
    assert "hello" in str(content)
    assert "Access denied" in str(refused)


@pytest.mark.timeout(300)
async def test_the_memory_server_remembers_between_runs(node: Path, tmp_path: Path) -> None:
    source = MCPToolset([str(node / "mcp-server-memory")], env={"MEMORY_FILE_PATH": str(tmp_path / "memory.jsonl")})
    ada = {"name": "Ada", "entityType": "person", "observations": ["likes engines"]}
    await calls(source, ("create_entities", {"entities": [ada]}))
    [graph] = await calls(source, ("read_graph", {}))
    assert "likes engines" in str(graph)
