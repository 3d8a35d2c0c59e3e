"""`baton serve`: protocols, authentication and shutdown."""

import os
import re
import socket
from collections.abc import Callable
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from tests.ports import reserved_port
from tests.sockets import Client, client_of
from tests.waiting import PATIENCE

from batonkit import Agent, Runner, agent
from batonkit.agents import AgentContext
from batonkit.cli.cli_errors import TargetError
from batonkit.cli.serve import make_app, make_runner, read_tokens, serve_with_reload
from batonkit.testing import ScriptedModel

Write = Callable[..., Path]
Invoke = Callable[..., Any]

TEAM = """
desk = Agent("Desk", description="Helps.", model=ScriptedModel(["hello"], cycle=True))
runner = Runner(desk, store="memory:")
bare = Runner(desk)
"""


async def test_protocols_share_runs() -> None:
    runner = Runner(Agent("Desk", model=ScriptedModel(["hello"])), store="memory:")
    async with client_of(make_app(runner, ["api", "agui"], auth={"s": "ada"}), "s") as client:
        request = {"threadId": "t", "runId": "r", "messages": [{"id": "1", "role": "user", "content": "hi"}]}
        async with client.session.post(f"{client.url}/agui", json=request, headers=client.headers) as answer:
            assert answer.status == 200
            assert b"hello" in await answer.read()
        status, run = await client.get("/runs/r")
        assert (status, run["output"]) == (200, "hello")
        assert (await Client(client.session, client.url).get("/runs/r"))[0] == 401


async def test_a_completion_is_a_run_of_the_api() -> None:
    runner = Runner(Agent("Desk", model=ScriptedModel(["hello"])), store="memory:")
    async with client_of(make_app(runner, ["api", "openai"], auth={"s": "ada"}), "s") as client:
        body = {"model": "Desk", "messages": [{"role": "user", "content": "hi"}]}
        status, completion = await client.post("/v1/chat/completions", body)
        assert (status, completion["choices"][0]["message"]["content"]) == (200, "hello")
        status, run = await client.get(f"/runs/{completion['id']}")
        assert (status, run["output"]) == (200, "hello")
        assert (await Client(client.session, client.url).get("/v1/models"))[0] == 401


async def test_the_path_that_use_chat_expects_is_served() -> None:
    runner = Runner(Agent("Desk", model=ScriptedModel(["hello"])), store="memory:")
    async with client_of(make_app(runner, ["api", "ai_sdk"])) as client:
        message = {"id": "1", "role": "user", "parts": [{"type": "text", "text": "hi"}]}
        async with client.session.post(f"{client.url}/api/chat", json={"id": "t", "messages": [message]}) as answer:
            assert b"hello" in await answer.read()
        async with client.session.get(f"{client.url}/api/chat/t/stream") as answer:
            assert answer.status == 204
        status, page = await client.get("/runs?thread=t")
        assert (status, page["runs"][0]["status"]) == (200, "completed")


async def test_run_without_a_worker_is_driven() -> None:
    @agent("Once")
    async def once(ctx: AgentContext) -> None:
        await ctx.say("done")

    runner = Runner(once, store="memory:")
    run_id = await runner.submit("go")
    async with client_of(make_app(runner, ["api"])) as client:
        events = [frame["event"] async for frame in client.events(f"/runs/{run_id}/events")]
        assert events[-1] == "RunCompleted"


def test_a_busy_port_has_its_own_exit_code_and_no_url(write: Write, baton: Invoke) -> None:
    write(TEAM)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        result = baton("serve", "desk:desk", "--port", port)
    assert result.exit_code == 4
    assert f"cannot listen on `127.0.0.1`, port {port}" in result.stderr
    assert "choose another port, or stop the program that uses it" in result.stderr
    assert "http://" not in result.stderr


def test_an_impossible_store_is_reported_at_the_start(write: Write, baton: Invoke) -> None:
    write(TEAM)
    result = baton("serve", "desk:desk", "--port", "0", "--store", "no/such/folder/runs.db")
    assert result.exit_code == 1
    assert "no/such/folder" in result.stderr
    assert "http://" not in result.stderr
    assert "Traceback" not in result.stderr


def test_a_lease_is_an_option_for_agents(write: Write, baton: Invoke) -> None:
    write(TEAM)
    assert make_runner("desk:desk", store=None, model=None, lease=5)._repository.ttl == 5
    assert "lease_seconds=5" in baton("serve", "desk:runner", "--lease", "5").stderr


async def test_the_landing_page_links_what_is_served() -> None:
    runner = Runner(Agent("Desk", description="Secret plans."), store="memory:")
    async with (
        client_of(make_app(runner, ["api", "openai", "a2a"])) as client,
        client.session.get(client.url) as answer,
    ):
        page = await answer.text()
        assert answer.content_type == "text/html"
        links = re.findall(r'href="(.*?)"', page)
        assert links == ["openapi.json", "health", "v1/models", "a2a/.well-known/agent-card.json"]
        for link in links:
            async with client.session.get(f"{client.url}/{link}") as linked:
                assert linked.status == 200
        assert "Secret plans" not in page
        assert "/agui" not in page
        async with client.session.get(client.url, headers={"Host": "rebound.example"}) as refused:
            assert refused.status == 403


def test_a_change_before_the_reloader_looks_is_noticed(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    # uvicorn looked at the files for the first time a moment after the server had been started.
    from uvicorn.config import Config
    from uvicorn.supervisors.basereload import BaseReload

    file = write("value = 1")
    os.utime(file, (1_000_000, 1_000_000))
    starts: list[str] = []

    def start(self: BaseReload) -> None:
        # The process that serves has loaded the file, and then it changes.
        starts.append(file.read_text())
        if len(starts) < 3:
            file.write_text(f"value = {len(starts) + 1}")
            os.utime(file, (1_000_000 + len(starts), 1_000_000 + len(starts)))
        else:
            self.should_exit.set()

    def stop(self: BaseReload) -> None:
        """Leave the sockets open."""

    monkeypatch.setattr(BaseReload, "startup", start)
    monkeypatch.setattr(BaseReload, "restart", start)
    monkeypatch.setattr(BaseReload, "shutdown", stop)
    monkeypatch.setattr(Config, "reload_delay", 0.0, raising=False)
    # In a thread, because a change that is not noticed is waited for without an end.
    with reserved_port() as port:
        reloading = Thread(target=serve_with_reload, args=("127.0.0.1", port), daemon=True)
        reloading.start()
        reloading.join(timeout=PATIENCE)
        assert not reloading.is_alive()
    assert [text.splitlines()[-1] for text in starts] == ["value = 1", "value = 2", "value = 3"]


def test_other_machines_are_refused_without_a_token(write: Write, baton: Invoke) -> None:
    write(TEAM)
    result = baton("serve", "desk:desk", "--host", "0.0.0.0")
    assert result.exit_code == 1
    assert "can be reached from other machines" in result.stderr


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--auth", "desk:unknown"], "`desk` has no `unknown`"),
        (["--auth", "desk"], "names only a module; write desk:name"),
        (["--auth", "desk:number"], "`desk:number` is not an authentication object"),
        (["--auth", "desk:callers", "--token-env", "X"], "cannot be combined; choose one"),
        (["--auth", "desk:callers", "--host", "no such host"], "no such host"),
    ],
)
def test_auth_option(write: Write, baton: Invoke, options: list[str], message: str) -> None:
    write(TEAM + 'from batonkit.serve import APIKeyAuth\ncallers = [APIKeyAuth({"k": "ada"})]\nnumber = 3\n')
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
    from batonkit.a2a import RemoteAgent

    runner = Runner(Agent("Desk", description="Helps.", model=ScriptedModel(["hello"])), store="memory:")
    async with client_of(make_app(runner, ["api", "a2a"], auth={"s": "ada"}), "s") as client:
        remote = await RemoteAgent.discover(f"{client.url}/a2a", auth="s")
        result = await Runner(remote).run("hi")
        assert (remote.name, result.output) == ("Desk", "hello")
        await remote.close()
    (record,) = (await runner._require_store("test").list()).records
    assert (record.owner, record.thread.partition(":")[0]) == ("ada", "ada")
