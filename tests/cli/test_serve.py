"""`baton serve`: protocols, authentication and shutdown."""

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from tests.ports import free_port
from tests.sockets import Client, client_of

from baton import Agent, Runner, agent
from baton.agents import AgentContext
from baton.cli.errors import TargetError
from baton.cli.serve import AppOptions, make_app, make_runner, read_tokens
from baton.testing import ScriptedModel

Write = Callable[..., Path]
Invoke = Callable[..., Any]

TEAM = """
desk = Agent("Desk", description="Helps.", model=ScriptedModel(["hello"], cycle=True))
runner = Runner(desk, store="memory:")
bare = Runner(desk)
"""


async def test_protocols_share_runs() -> None:
    runner = Runner(Agent("Desk", model=ScriptedModel(["hello"])), store="memory:")
    async with client_of(make_app(runner, ["api", "agui"], AppOptions(auth={"s": "ada"})), "s") as client:
        request = {"threadId": "t", "runId": "r", "messages": [{"id": "1", "role": "user", "content": "hi"}]}
        async with client.session.post(f"{client.url}/agui", json=request, headers=client.headers) as answer:
            assert answer.status == 200
            assert b"hello" in await answer.read()
        status, run = await client.get("/runs/r")
        assert (status, run["output"]) == (200, "hello")
        assert (await Client(client.session, client.url).get("/runs/r"))[0] == 401


async def test_run_without_a_worker_is_driven() -> None:
    @agent("Once")
    async def once(ctx: AgentContext) -> None:
        await ctx.say("done")

    runner = Runner(once, store="memory:")
    run_id = await runner.submit("go")
    async with client_of(make_app(runner, ["api"], AppOptions())) as client:
        events = [frame["event"] async for frame in client.events(f"/runs/{run_id}/events")]
        assert events[-1] == "RunCompleted"


async def test_serves_until_stopped(write: Write, tmp_path: Path) -> None:
    write(TEAM)
    port = free_port()
    command = ["serve", "desk:desk", "--port", str(port), "--store", "runs.db", "--token-env", "DESK_TOKEN"]
    environment = {**os.environ, "DESK_TOKEN": "s3cret"}
    program = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", "from baton.cli.main import main; main()", *command),
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


def test_other_machines_are_refused_without_a_token(write: Write, baton: Invoke) -> None:
    write(TEAM)
    result = baton("serve", "desk:desk", "--host", "0.0.0.0")
    assert result.exit_code == 1
    assert "can be reached from other machines" in result.stderr


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--auth", "desk:nobody"], "`desk` has no `nobody`"),
        (["--auth", "desk"], "names only a module; write desk:name"),
        (["--auth", "desk:number"], "`desk:number` is not an authentication object"),
        (["--auth", "desk:callers", "--token-env", "X"], "cannot be combined; choose one"),
        (["--auth", "desk:callers", "--host", "no such host"], "no such host"),
    ],
)
def test_auth_option(write: Write, baton: Invoke, options: list[str], message: str) -> None:
    write(TEAM + 'from baton.serving import APIKeyAuth\ncallers = [APIKeyAuth({"k": "ada"})]\nnumber = 3\n')
    result = baton("serve", "desk:desk", *options)
    assert result.exit_code != 0
    assert message in f"{result.stderr}{result.exception}"


def test_a_runner_has_its_own_store(write: Write, baton: Invoke) -> None:
    write(TEAM)
    assert "leave --model and --store out" in baton("serve", "desk:runner", "--store", "runs.db").stderr
    assert "give the runner a store" in baton("serve", "desk:bare").stderr
    assert make_runner("desk:runner", store=None, model=None).team.root == "Desk"


def test_tokens_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONE", "s3cret")
    monkeypatch.setenv("MANY", '{"a": "ada", "b": "bob"}')
    monkeypatch.setenv("BROKEN", '{"a": 1}')
    assert read_tokens("ONE") == "s3cret"
    assert read_tokens("MANY") == {"a": "ada", "b": "bob"}
    for name in ("BROKEN", "NONE"):
        with pytest.raises(TargetError, match=name):
            read_tokens(name)


async def test_a2a_protocol() -> None:
    from baton.a2a import RemoteAgent

    runner = Runner(Agent("Desk", description="Helps.", model=ScriptedModel(["hello"])), store="memory:")
    async with client_of(make_app(runner, ["api", "a2a"], AppOptions(auth={"s": "ada"})), "s") as client:
        remote = await RemoteAgent.discover(f"{client.url}/a2a", auth="s")
        result = await Runner(remote).run("hi")
        assert (remote.description, result.output) == ("Helps.", "hello")
        await remote.close()
    (record,) = (await runner._require_store("test").list()).records
    assert (record.owner, record.thread.partition(":")[0]) == ("ada", "ada")
