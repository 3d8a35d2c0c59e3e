"""`baton serve`: protocols, authentication and shutdown."""

import asyncio
import os
import re
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import aiohttp
import pytest
from tests.cli.test_serve import TEAM
from tests.ports import free_port
from tests.sockets import Client
from tests.unfinished import list_unfinished

from batonkit import Agent, Runner
from batonkit.log import ToolReturned

Write = Callable[..., Path]


async def test_serves_until_stopped(write: Write, tmp_path: Path) -> None:
    write(TEAM)
    port = free_port()
    command = ["serve", "desk:desk", "--port", str(port), "--store", "runs.db", "--token-env", "DESK_TOKEN"]
    environment = {**os.environ, "DESK_TOKEN": "s3cret"}
    program = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", "from batonkit.cli.main import main; main()", *command),
        cwd=Path.cwd(),
        env=environment,
        stderr=asyncio.subprocess.PIPE,
    )
    assert program.stderr is not None
    assert await program.stderr.readline() == f"api: http://127.0.0.1:{port}\n".encode()
    async with aiohttp.ClientSession() as session:
        client = Client(session, f"http://127.0.0.1:{port}", "s3cret")
        while True:
            try:
                assert (await client.get("/health"))[0] == 200
                break
            except aiohttp.ClientConnectorError:
                await asyncio.sleep(0.05)
        _, run = await client.post("/runs", {"input": "hi"})
        assert [frame["event"] async for frame in client.events(f"/runs/{run['id']}/events")][-1] == "RunCompleted"
    program.send_signal(signal.SIGINT)
    _, errors = await program.communicate()
    assert (program.returncode, errors) == (0, b"")


WORKER = """
import asyncio
from pathlib import Path

@tool(effect="once")
async def pay() -> str:
    note("begun")
    while not Path("go").exists():
        await asyncio.sleep(0.01)
    note("paid")
    return "paid"

def note(text):
    with open("notes", "a") as notes:
        notes.write(text + "\\n")

def answer(request):
    return "thank you" if isinstance(request.messages[-1], ToolMessage) else call("pay")

desk = Agent("Desk", tools=[pay], model=ScriptedModel([answer], cycle=True))
"""


class Server:
    """`baton serve` in its own process, in the current folder."""

    def __init__(self, *options: str) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        program = "from batonkit.cli.main import main; main()"
        self._command = [sys.executable, "-c", program, "serve", *options, "--port", str(self.port)]

    async def __aenter__(self) -> "Server":
        # A group of its own, because with --reload another process serves, which has the pipe as well.
        self.process = await asyncio.create_subprocess_exec(
            *self._command, stderr=asyncio.subprocess.PIPE, start_new_session=True
        )
        async with asyncio.timeout(300), aiohttp.ClientSession(self.url) as session:
            while True:
                try:
                    async with session.get("/health"):
                        return self
                except aiohttp.ClientConnectorError:
                    assert self.process.returncode is None
                    await asyncio.sleep(0.05)

    async def __aexit__(self, *_: object) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        await self.process.communicate()

    async def wait(self) -> str:
        """Wait for the end of the process; return what it printed."""
        async with asyncio.timeout(120):
            _, errors = await self.process.communicate()
        return errors.decode()


async def _wait_for_note(what: str) -> None:
    async with asyncio.timeout(60):
        while not (Path("notes").exists() and what in Path("notes").read_text().splitlines()):
            await asyncio.sleep(0.02)


async def test_sigterm_lets_turns_in_flight_finish_and_ends_streams_at_once(write: Write) -> None:
    write(WORKER)
    options = ("desk:desk", "--store", "runs.db", "--drain", "600")
    async with Server(*options) as first, aiohttp.ClientSession() as session:
        client = Client(session, first.url)
        _, run = await client.post("/runs", {"input": "pay"})
        await _wait_for_note("begun")
        frames = client.events(f"/runs/{run['id']}/events")
        received = [await anext(frames)]
        first.process.send_signal(signal.SIGTERM)
        received += [frame async for frame in frames]
        assert received[-1]["retry"] == "1000", "the stream ends while the tool still runs"
        assert first.process.returncode is None
        with pytest.raises(aiohttp.ClientError):
            await client.post("/runs", {"input": "more"})
        Path("go").touch()
        await first.wait()
    assert Path("notes").read_text().split() == ["begun", "paid"]

    runner = Runner(Agent("Desk"), store="runs.db")
    last = max(int(frame["id"]) for frame in received if "id" in frame)
    events = await runner.runs.events(run["id"])
    assert isinstance(events[-1], ToolReturned), "the turn is stored, and the next one was not begun"
    assert [record.run_id for record in await list_unfinished(runner)] == [run["id"]], "its lease is released"
    await runner.close()

    async with Server(*options) as second, aiohttp.ClientSession() as session:
        client = Client(session, second.url)
        rest = [frame async for frame in client.events(f"/runs/{run['id']}/events", after=last)]
        assert rest[-1]["event"] == "RunCompleted"
        second.process.send_signal(signal.SIGTERM)
        await second.wait()
    assert Path("notes").read_text().split() == ["begun", "paid"]


@pytest.mark.parametrize("hurry", [True, False])
async def test_a_turn_that_does_not_finish_does_not_keep_the_server(write: Write, hurry: bool) -> None:
    # By --drain, or because Ctrl-C is pressed again.
    write(WORKER)
    async with (
        Server("desk:desk", "--store", "runs.db", "--drain", "600" if hurry else "0.1") as server,
        aiohttp.ClientSession() as session,
    ):
        _, run = await Client(session, server.url).post("/runs", {"input": "pay"})
        await _wait_for_note("begun")
        server.process.send_signal(signal.SIGINT)
        if hurry:
            async with asyncio.timeout(60):
                while await _is_listening(server.port):
                    await asyncio.sleep(0.02)
            server.process.send_signal(signal.SIGINT)
        await server.wait()
    runner = Runner(Agent("Desk"), store="runs.db")
    assert [record.run_id for record in await list_unfinished(runner)] == [run["id"]]
    await runner.close()


FAILING = """
from batonkit.errors import ModelError

def fail(request):
    raise ModelError("the quota is used up", model="scripted")

desk = Agent("Desk", description="Helps.", model=ScriptedModel([fail], cycle=True))
"""


async def test_failures_and_requests_are_logged(write: Write) -> None:
    write(FAILING)
    async with (
        Server("desk:desk", "--access-log", "--max-body", "100", "--store", "runs.db") as server,
        aiohttp.ClientSession() as session,
    ):
        client = Client(session, server.url)
        _, run = await client.post("/runs?key=s3cret", {"input": "hi"})
        assert [frame["event"] async for frame in client.events(f"/runs/{run['id']}/events")][-1] == "RunFailed"
        assert (await client.post("/runs", {"input": "x" * 100}))[0] == 413
        server.process.send_signal(signal.SIGTERM)
        output = await server.wait()
    assert f"run `{run['id']}` failed: ModelError: the quota is used up" in output
    assert re.search(r"127.0.0.1 POST /runs 201 \d+ ms\n", output)
    assert "s3cret" not in output


UNSAFE = "\x1b[2J\x9b31m\u202egnp\x7f"
UNSAFE_TEAM = f"""
import asyncio, logging
from batonkit.serve.http.auth import Auth
BAD = {UNSAFE!r}

class BrokenAuth(Auth):
    name = "broken"

    def openapi_scheme(self):
        return {{}}

    async def authenticate(self, request):
        raise RuntimeError(BAD)

async def never_awaited_for():
    raise RuntimeError(BAD)

def answer(request):
    logging.getLogger("a_library").warning(BAD + "\\nwarning: run `x` failed")
    asyncio.get_running_loop().create_task(never_awaited_for())
    raise RuntimeError(BAD)

auth = BrokenAuth()
desk = Agent("Desk" + BAD, model=ScriptedModel([answer], cycle=True))
"""
RAW = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")


@pytest.mark.parametrize("debug", [(), ("--debug",)])
async def test_nothing_that_is_logged_controls_the_terminal(write: Write, debug: tuple[str, ...]) -> None:
    # Records of Baton, of libraries, of asyncio and of uvicorn.
    write(UNSAFE_TEAM)
    async with Server("desk:desk", *debug) as server, aiohttp.ClientSession() as session:
        client = Client(session, server.url)
        _, run = await client.post("/runs", {"input": "hi"})
        assert [frame["event"] async for frame in client.events(f"/runs/{run['id']}/events")][-1] == "RunFailed"
        server.process.send_signal(signal.SIGTERM)
        logged = await server.wait()
    async with Server("desk:desk", "--auth", "desk:auth", *debug) as server, aiohttp.ClientSession() as session:
        async with session.get(f"{server.url}/runs") as refused:
            assert refused.status == 500
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(b"\x1b[2J\r\n\r\n")
        await reader.read()
        writer.close()
        server.process.send_signal(signal.SIGTERM)
        logged += await server.wait()
    for text in ("failed: ModelError", "warning: ␛[2J", "error: GET /runs failed", "warning: Invalid HTTP request"):
        assert text in logged
    assert "error: Task exception was never retrieved" in logged
    assert not RAW.findall(logged), logged
    assert "\nwarning: run `x` failed" not in logged


async def test_reload_restarts_the_server_when_a_file_changes(write: Write) -> None:
    def team(text: str) -> str:
        return f'desk = Agent("Desk", model=ScriptedModel(["{text}"], cycle=True))'

    write(team("one"))
    async with Server("desk:desk", "--reload", "--drain", "0") as server, aiohttp.ClientSession() as session:
        client = Client(session, server.url)
        assert await _answer(client) == "one"
        write(team("two, longer"))
        async with asyncio.timeout(300):
            while await _answer(client) != "two, longer":
                await asyncio.sleep(0.1)
        server.process.send_signal(signal.SIGTERM)
        await server.wait()
    assert not await _is_listening(server.port)


async def _answer(client: Client) -> str | None:
    try:
        _, run = await client.post("/runs", {"input": "hi"})
        while run["status"] == "running":
            _, run = await client.get(f"/runs/{run['id']}")
        return run["output"]
    except (aiohttp.ClientError, KeyError):
        return None  # It is being restarted.


async def _is_listening(port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return False
    writer.close()
    return True
