"""The tutorial, followed from the first page to the last: its files, commands and outputs."""

import ast
import asyncio
import json
import os
import re
import subprocess
import sys
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
from tests.architecture.shape import REPOSITORY
from tests.integration.worker.processes import WorkerProcess
from tests.ports import free_port
from tests.postgres import PostgresServer

TUTORIAL = REPOSITORY / "docs" / "tutorial"
FENCE = re.compile(r"^```(?P<language>\w+)(?P<info>[^\n`]*)\n(?P<code>.*?)^```[ ]*$", re.MULTILINE | re.DOTALL)
TITLE = re.compile(r'title="(?P<file>[^" ]+)(?P<change> \(change\))?"')
BIN = Path(sys.executable).parent
# A reader has a wide terminal, and pytest without the plugins of this environment.
_READER = {"COLUMNS": "200", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}


@dataclass
class Project:
    """The folder of a reader who follows the tutorial."""

    folder: Path

    @property
    def environment(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("BATON_", "DESK_", "PYTEST"))}
        return kept | {"PATH": f"{BIN}{os.pathsep}{kept['PATH']}", "PYTHONIOENCODING": "utf-8", **_READER}

    def follow(self, page: Path) -> None:
        """Write the files of a page and run its code, from top to bottom."""
        for fence in FENCE.finditer(page.read_text(encoding="utf-8")):
            language, code, title = fence["language"], fence["code"], TITLE.search(fence["info"])
            assert title or language != "python", f"{page.name} does not say the file for:\n{code}"
            if title is not None:
                file = self.folder / title["file"]
                file.parent.mkdir(exist_ok=True)
                file.write_text(change(file.read_text(), code) if title["change"] else code, encoding="utf-8")
            elif language == "console":
                command, _, expected = code.removeprefix("$ ").partition("\n")
                check_output(self.run(command, may_fail=True), expected)

    def run(self, command: str, *, may_fail: bool = False) -> str:
        """Run a command in a shell and return what it prints."""
        done = subprocess.run(
            command, shell=True, cwd=self.folder, env=self.environment, capture_output=True, text=True, encoding="utf-8"
        )
        assert may_fail or done.returncode == 0, done.stderr
        return done.stderr + done.stdout


def change(text: str, code: str) -> str:
    """Replace the definitions that have the same names, and add the imports that are new."""
    for node in ast.parse(code).body:
        source = "\n".join(code.splitlines()[_first_line(node) - 1 : node.end_lineno])
        known = [each for each in ast.parse(text).body if _name(each) == _name(node)]
        lines = text.splitlines()
        if known:
            lines[_first_line(known[0]) - 1 : known[0].end_lineno] = [source]
        elif isinstance(node, ast.Import | ast.ImportFrom):
            lines.insert(0, source)
        else:
            position = max(_first_line(each) for each in ast.parse(text).body if not isinstance(each, ast.Expr)) - 1
            lines.insert(position, source)
        text = "\n".join(lines) + "\n"
    return text


def _name(node: ast.stmt) -> str:
    match node:
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            return node.name
        case ast.Assign(targets=[ast.Name(id=name)]):
            return name
        case _:
            return ast.dump(node)


def _first_line(node: ast.stmt) -> int:
    decorators = node.decorator_list if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) else []
    return min([node.lineno, *(each.lineno for each in decorators)])


def check_output(found: str, expected: str) -> None:
    """Compare an output with that of the page, where … stands for any text; white space may differ."""
    pattern = ".*".join(re.escape(part) for part in " ".join(expected.split()).split("…"))
    assert re.fullmatch(pattern, " ".join(found.split()), re.DOTALL), f"{found}\n--- the page says:\n{expected}"


def test_the_tutorial_can_be_followed(tmp_path: Path) -> None:
    project = Project(tmp_path)
    for page in [TUTORIAL / "index.md", *sorted(TUTORIAL.glob("[1-9]-*.md"))]:
        project.follow(page)
        if page.name.startswith("5"):
            with served(project) as url:
                asyncio.run(have_a_lamp_refunded(url, "carl"))
    pyright = subprocess.run(
        [BIN / "pyright", "--pythonpath", sys.executable, "."], cwd=tmp_path, capture_output=True, text=True
    )
    assert pyright.returncode == 0, pyright.stdout
    two_workers_share_the_runs(project)


def two_workers_share_the_runs(project: Project) -> None:
    orders = project.folder / "orders.py"
    orders.write_text(orders.read_text().replace("sleep(20)", "sleep(5)"))
    desk = project.folder / "desk.py"
    store = 'os.environ.get("DESK_STORE", "desk.db")'
    short = desk.read_text().replace(f"store={store}", f"store=resolve_store({store}, lease_seconds=2)")
    desk.write_text(f"from batonkit.stores import resolve_store\n{short}")
    server = PostgresServer()
    try:
        server.start()
        environment = project.environment | {"DESK_STORE": server.url}
        with ExitStack() as stack:
            ports = [free_port(), free_port()]
            workers = [
                stack.enter_context(
                    WorkerProcess(
                        *("desk:runner", "--health", str(port)),
                        cwd=project.folder,
                        environment=environment,
                    )
                )
                for port in ports
            ]
            for worker in workers:
                worker.wait_until_ready()
            url = stack.enter_context(served(project, DESK_STORE=server.url))
            asyncio.run(have_a_lamp_refunded(url, "dora"))
            asyncio.run(ask_while_a_worker_is_killed(url, dict(zip(ports, workers, strict=True))))
            asyncio.run(have_a_lamp_refunded(url, "eve"))
    finally:
        server.remove()


@contextmanager
def served(project: Project, **environment: str) -> Generator[str]:
    """Serve the web app as the page says."""
    port = free_port()
    command = [BIN / "uvicorn", "app:app", "--port", str(port), "--timeout-graceful-shutdown", "5"]
    with (project.folder / "uvicorn.log").open("ab") as log:
        process = subprocess.Popen(
            command, cwd=project.folder, env=project.environment | environment, stdout=log, stderr=log
        )
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(60)


async def have_a_lamp_refunded(url: str, conversation: str) -> None:
    """Do what the page in the browser does."""
    async with aiohttp.ClientSession(url) as client:
        page = await request_when_served(client)
        assert "EventSource" in page
        message = {"text": "A-17 arrived broken, I want my money back.", "conversation": conversation}
        async with client.post("/messages", json=message) as response:
            run = (await response.json())["run"]
        events = await read_events(client, run)
        question = next(each for each in events.values() if each["type"] == "InterruptRaised")
        answer = {"interrupt": question["key"], "approved": True}
        async with client.post(f"/runs/{run}/answers", json=answer) as response:
            assert response.status == 202
        events = await read_events(client, run, after=max(events))
        said = [each["message"]["content"] for each in events.values() if each["type"] == "AgentResponded"]
        assert said == ["80 EUR for order A-17 are on their way to you."]
        async with client.get("/runs/unknown/events") as response:
            assert response.status == 404
            assert (await response.json())["error"]["code"] == "not_found"


async def ask_while_a_worker_is_killed(url: str, workers: dict[int, WorkerProcess]) -> None:
    """Kill the worker whose metrics say that it drives the run, as the page says; the other one answers."""
    async with aiohttp.ClientSession() as client:
        message = {"text": "Where is order A-17?", "conversation": "fay"}
        async with client.post(f"{url}/messages", json=message) as response:
            run = (await response.json())["run"]
        async with asyncio.timeout(120):
            while not (driving := [port for port in workers if await drives_a_run(client, port)]):
                await asyncio.sleep(0.05)
        workers[driving[0]].process.kill()
    async with aiohttp.ClientSession(url) as client, asyncio.timeout(300):
        events = await read_events(client, run)
    responses = [each for each in events.values() if each["type"] == "AgentResponded"]
    assert [each["origin"][1] for each in responses] == ["Triage", "Orders", "Orders"]
    assert responses[-1]["message"]["content"] == "Order A-17: a lamp for 80 EUR, delivered on Monday."


async def drives_a_run(client: aiohttp.ClientSession, port: int) -> bool:
    async with client.get(f"http://127.0.0.1:{port}/metrics") as response:
        return "\nbaton_worker_runs_driving 1\n" in await response.text()


async def request_when_served(client: aiohttp.ClientSession) -> str:
    async with asyncio.timeout(120):
        while True:
            try:
                async with client.get("/") as response:
                    return await response.text()
            except aiohttp.ClientConnectionError:
                await asyncio.sleep(0.1)


async def read_events(client: aiohttp.ClientSession, run: str, after: int = 0) -> dict[int, Any]:
    """Read events by number until the stream ends."""
    events: dict[int, Any] = {}
    number = 0
    async with client.get(f"/runs/{run}/events", headers={"Last-Event-ID": str(after)}) as stream:
        async for line in stream.content:
            field, _, value = line.decode().strip().partition(": ")
            number = int(value) if field == "id" else number
            if field == "data" and number > after:
                event = json.loads(value)
                if event["type"].endswith("Delta"):
                    continue
                events[number] = event
    return events
