"""The HTTP API over real sockets: runs, their events, answers, threads, and one store under two apps."""

import asyncio
import sys
from contextlib import aclosing
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from tests.sockets import Client, client_of

from baton import Agent, RunContext, Runner, agent, tool
from baton.agents import AgentContext
from baton.errors import SetupError
from baton.events import decode_event
from baton.runner import BackgroundRunner
from baton.serving import api_app, serve, serve_in_background
from baton.serving.agui import agui_app
from baton.testing import ScriptedModel, ScriptedStream, call


@tool
async def ask_me(ctx: RunContext) -> str:
    """Ask."""
    return await ctx.interrupt("well?")


def _team(*steps: Any) -> Agent:
    return Agent("Desk", tools=[ask_me], model=ScriptedModel([*steps]))


async def _heard(client: Client, id: str, *, after: int | None = None) -> list[dict[str, str]]:
    return [frame async for frame in client.events(f"/runs/{id}/events", after=after)]


async def test_a_run_is_begun_heard_and_read() -> None:
    async with client_of(api_app(Runner(_team(ScriptedStream("hel", "lo")), store="memory:"))) as client:
        status, run = await client.post("/runs", {"input": "hi", "thread": "t"})
        assert status == 201
        frames = await _heard(client, run["id"])

        numbered = [frame for frame in frames if "id" in frame]
        assert [int(frame["id"]) for frame in numbered] == [*range(1, len(numbered) + 1)]
        assert numbered[0]["event"] == "RunStarted"
        assert numbered[-1]["event"] == "RunCompleted"
        assert [decode_event(frame["data"]).key for frame in numbered][-1] == "completed"

        status, whole = await client.get(f"/runs/{run['id']}")
        assert (status, whole["status"], whole["output"], whole["active_agent"]) == (200, "completed", "hello", "Desk")
        assert whole["usage"]["model_calls"] == 1
        status, thread = await client.get("/threads/t")
        assert [message["content"] for message in thread["messages"]] == ["hi", "hello"]
        assert (thread["active_agent"], [each["id"] for each in thread["runs"]]) == ("Desk", [run["id"]])


async def test_deltas_come_without_a_number_and_a_reconnect_neither_loses_nor_doubles_events() -> None:
    enough = asyncio.Event()

    @agent("Ticking")
    async def ticking(ctx: AgentContext) -> None:
        await ctx.say("one")
        while not enough.is_set():
            await ctx.emit("tick")
            await asyncio.sleep(0.001)
        await ctx.say("two")

    hub = BackgroundRunner(Runner(ticking, store="memory:"))
    async with client_of(api_app(hub)) as client:
        _, run = await client.post("/runs", {"input": "hi"})
        heard: list[dict[str, str]] = []
        async with aclosing(client.events(f"/runs/{run['id']}/events")) as frames:
            async for frame in frames:
                heard.append(frame)
                if frame["event"] == "CustomDelta":
                    break
        assert hub.is_driving(run["id"]), "the connection is gone, the run is not"
        last = max(int(frame["id"]) for frame in heard if "id" in frame)
        async for frame in client.events(f"/runs/{run['id']}/events", after=last):
            heard.append(frame)
            if frame["event"] == "CustomDelta":
                enough.set()

    numbered = [frame for frame in heard if "id" in frame]
    assert [int(frame["id"]) for frame in numbered] == [*range(1, len(numbered) + 1)]
    assert [frame["event"] for frame in numbered][-1] == "RunCompleted"
    assert all("id" not in frame for frame in heard if frame["event"] == "CustomDelta")


async def test_nothing_is_left_to_hear_of_a_run_that_has_stopped() -> None:
    async with client_of(api_app(Runner(_team("hello"), store="memory:"))) as client:
        _, run = await client.post("/runs", {"input": "hi"})
        frames = await _heard(client, run["id"])
        last = frames[-1]["id"]
        assert await client.get(f"/runs/{run['id']}/events", headers={"Last-Event-ID": last}) == (204, None)
        assert await client.get(f"/runs/{run['id']}/events?after={last}") == (204, None)


async def test_a_silent_run_sends_signs_of_life_and_is_cancelled() -> None:
    @agent("Silent")
    async def silent(ctx: AgentContext) -> None:
        await asyncio.Event().wait()

    async with client_of(api_app(Runner(silent, store="memory:"), heartbeat=0.01)) as client:
        _, run = await client.post("/runs", {"input": "hi"})
        async for frame in client.events(f"/runs/{run['id']}/events"):
            if frame == {"": "heartbeat"}:
                break
        assert await client.ask("HEAD", f"/runs/{run['id']}/events") == (200, None)
        status, stopped = await client.post(f"/runs/{run['id']}/cancel", {"when": "now"})
        assert (status, stopped["status"]) == (200, "cancelled")
        status, again = await client.post(f"/runs/{run['id']}/resume")
        assert (status, again["status"]) == (202, "running")
        assert (await client.post(f"/runs/{run['id']}/cancel"))[1]["status"] == "cancelled"


async def test_two_apps_on_one_store_start_listen_answer_and_cancel(tmp_path: Path) -> None:
    store = tmp_path / "runs.db"
    here, there = Runner(_team(call("ask_me"), "never"), store=store), Runner(_team("thank you"), store=store)
    async with client_of(api_app(here)) as first, client_of(api_app(there)) as second:
        _, run = await first.post("/runs", {"input": "hi", "thread": "t"})
        frames = await _heard(second, run["id"])
        assert frames[-1]["event"] == "RunSuspended"
        status, told = await first.post("/runs", {"input": "again", "thread": "t"})
        assert (status, told["error"]["code"]) == (409, "thread_busy")

        _, waiting = await second.get(f"/runs/{run['id']}")
        (question,) = waiting["interrupts"]
        assert (question["payload"], question["agent"]) == ("well?", "Desk")
        status, _ = await second.post(f"/runs/{run['id']}/answers", {"answers": {question["id"]: "fine"}})
        assert status == 202
        rest = await _heard(first, run["id"], after=int(frames[-1]["id"]))
        assert rest[-1]["event"] == "RunCompleted"
        numbers = [int(frame["id"]) for frame in [*frames, *rest] if "id" in frame]
        assert numbers == [*range(1, len(numbers) + 1)]
    await here.close()
    await there.close()


async def test_a_run_of_another_process_is_cancelled_from_here(tmp_path: Path) -> None:
    @agent("Silent")
    async def silent(ctx: AgentContext) -> None:
        await asyncio.Event().wait()

    store = tmp_path / "runs.db"
    here, there = Runner(silent, store=store, lease_seconds=0.6), Runner(silent, store=store, lease_seconds=0.6)
    async with client_of(api_app(here)) as first, client_of(api_app(there)) as second:
        _, run = await first.post("/runs", {"input": "hi"})
        listening = asyncio.create_task(_heard(second, run["id"]))
        assert (await second.post(f"/runs/{run['id']}/cancel"))[0] == 200
        assert (await listening)[-1]["event"] == "RunCancelled"
    await here.close()
    await there.close()


async def test_runs_are_listed_page_by_page() -> None:
    async with client_of(api_app(Runner(_team("a", "b", "c"), store="memory:"))) as client:
        ids = [(await client.post("/runs", {"input": "hi"}))[1]["id"] for _ in range(3)]
        for id in ids:
            await _heard(client, id)
        _, page = await client.get("/runs?limit=2&status=completed")
        _, rest = await client.get("/runs", params={"limit": "2", "after": page["next"]})
        assert [run["id"] for run in [*page["runs"], *rest["runs"]]] == ids[::-1]
        assert rest["next"] == ""
        assert (await client.get("/runs?status=failed"))[1]["runs"] == []


async def test_limits_can_be_lowered_and_not_raised() -> None:
    runner = Runner(_team(*[call("ask_me")] * 3), store="memory:")
    async with client_of(api_app(runner, show_errors=False)) as client:
        _, run = await client.post("/runs", {"input": "hi", "limits": {"model_calls": 10**6, "transfers": 1}})
        started = (await runner.events(run["id"]))[0]
        limits = getattr(started, "limits")  # noqa: B009
        assert (limits["model_calls"], limits["transfers"]) == (100, 1)


async def test_why_a_run_failed_is_told_only_if_wished(caplog: pytest.LogCaptureFixture) -> None:
    @agent("Broken")
    async def broken(ctx: AgentContext) -> None:
        raise ValueError("password=hunter2")

    for shown in (False, True):
        async with client_of(api_app(Runner(broken, store="memory:"), show_errors=shown)) as client:
            _, run = await client.post("/runs", {"input": "hi"})
            frames = await _heard(client, run["id"])
            assert frames[-1]["event"] == "RunFailed"
            assert ("hunter2" in frames[-1]["data"]) is shown
            assert (await client.get(f"/runs/{run['id']}"))[1]["error"] == "ValueError"


async def test_the_context_is_made_for_whoever_calls() -> None:
    @agent("Who")
    async def who(ctx: AgentContext[str]) -> None:
        await ctx.say(ctx.context)

    app = api_app(Runner(who, store="memory:"), auth={"s1": "ada"}, context_factory=lambda name: f"I am {name}")
    async with client_of(app, "s1") as client:
        _, run = await client.post("/runs", {"input": "hi"})
        await _heard(client, run["id"])
        assert (await client.get(f"/runs/{run['id']}"))[1]["output"] == "I am ada"


async def test_a_run_that_is_picked_up_has_the_context_of_its_caller() -> None:
    @agent("Who")
    async def who(ctx: AgentContext[str]) -> None:
        await ctx.say(ctx.context)

    runner = Runner(who, store="memory:")
    run_id = await runner.submit("hi", owner="ada")
    app = api_app(runner, auth={"s1": "ada", "s2": "bob"}, context_factory=lambda name: f"I am {name}")
    async with client_of(app, "s1") as client:
        await _heard(client, run_id)
        assert (await client.get(f"/runs/{run_id}"))[1]["output"] == "I am ada"
        assert (await Client(client.session, client.url, "s2").get(f"/runs/{run_id}"))[0] == 404


async def test_pages_of_other_origins_are_let_in_only_by_name() -> None:
    ask: dict[str, Any] = {
        "headers": {"Origin": "https://ui.example", "Access-Control-Request-Method": "POST"},
    }
    for cors, expected in (((), None), (("https://ui.example",), "https://ui.example")):
        async with (
            client_of(api_app(Runner(_team("x"), store="memory:"), cors_origins=cors)) as client,
            client.session.options(f"{client.url}/runs", **ask) as answer,
        ):
            assert answer.headers.get("Access-Control-Allow-Origin") == expected


def test_it_needs_a_store_and_tokens_that_are_something() -> None:
    with pytest.raises(SetupError, match="store"):
        api_app(Runner(_team("x")))
    for token in ("", {}, {"": "ada"}, {"s": ""}):
        with pytest.raises(SetupError, match="a token"):
            api_app(Runner(_team("x"), store="memory:"), auth=token)
    with pytest.raises(SetupError, match="max_body"):
        api_app(Runner(_team("x"), store="memory:"), max_body=0)


async def test_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    runner = Runner(_team("x"), store="memory:")
    for name in ("starlette.applications", "uvicorn"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(SetupError, match=r"baton-adk\[serving\]"):
        api_app(runner)
    with pytest.raises(SetupError, match=r"baton-adk\[serving\]"):
        serve(object())
    with pytest.raises(SetupError, match=r"baton-adk\[agui\]"):
        agui_app(runner)


async def test_what_is_not_guarded_is_served_on_this_machine_only() -> None:
    app = api_app(Runner(_team("x"), store="memory:"), allow_anonymous=True)
    with pytest.raises(SetupError, match="can be reached from other machines"):
        serve(app, host="0.0.0.0")
    async with serve_in_background(app, host="localhost") as url, aiohttp.ClientSession(url) as session:
        assert (await session.get("/health")).status == 200
