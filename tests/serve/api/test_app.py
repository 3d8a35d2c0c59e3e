"""The HTTP API over real sockets: runs, their events, answers, threads, and one store under two apps."""

import asyncio
import sys
from contextlib import aclosing
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from tests.runs.recording_store import HeldStore
from tests.sockets import Client, client_of
from tests.waiting import until

from batonkit import Agent, RunContext, Runner, agent, tool
from batonkit.agents import AgentContext
from batonkit.errors import SetupError, TaskFailedError
from batonkit.log import decode_event
from batonkit.runs import BackgroundRunner
from batonkit.serve import api_app, serve, serve_in_background
from batonkit.serve.agui import agui_app
from batonkit.stores import MemoryStore, SQLiteStore
from batonkit.testing import ScriptedModel, ScriptedStream, call


@tool
async def ask_me(ctx: RunContext) -> str:
    """Ask."""
    return await ctx.interrupt("well?")


def _team(*steps: Any) -> Agent:
    return Agent("Desk", tools=[ask_me], model=ScriptedModel([*steps]))


async def _read_frames(client: Client, id: str, *, after: int | None = None) -> list[dict[str, str]]:
    return [frame async for frame in client.events(f"/runs/{id}/events", after=after)]


async def test_a_run_is_started_streamed_and_read() -> None:
    async with client_of(api_app(Runner(_team(ScriptedStream("hel", "lo")), store="memory:"))) as client:
        status, run = await client.post("/runs", {"input": "hi", "thread": "t"})
        assert status == 201
        frames = await _read_frames(client, run["id"])

        numbered = [frame for frame in frames if "id" in frame]
        assert [int(frame["id"]) for frame in numbered] == [*range(1, len(numbered) + 1)]
        assert numbered[0]["event"] == "RunStarted"
        assert numbered[-1]["event"] == "RunCompleted"
        assert [decode_event(frame["data"]).key for frame in numbered][-1] == "completed"

        status, details = await client.get(f"/runs/{run['id']}")
        assert (status, details["status"], details["output"], details["active_agent"]) == (
            200,
            "completed",
            "hello",
            "Desk",
        )
        assert details["usage"]["model_calls"] == 1
        status, thread = await client.get("/threads/t")
        assert [message["content"] for message in thread["messages"]] == ["hi", "hello"]
        assert (thread["active_agent"], [each["id"] for each in thread["runs"]]) == ("Desk", [run["id"]])


async def test_a_reconnect_neither_loses_nor_repeats_events_and_deltas_have_no_id() -> None:
    can_end = asyncio.Event()

    @agent("Ticking")
    async def ticking(ctx: AgentContext) -> None:
        await ctx.say("one")

        async def tick() -> bool:
            await ctx.emit("tick")
            return can_end.is_set()

        await until(tick)
        await ctx.say("two")

    background = BackgroundRunner(Runner(ticking, store="memory:"))
    async with client_of(api_app(background)) as client:
        _, run = await client.post("/runs", {"input": "hi"})
        received: list[dict[str, str]] = []
        async with aclosing(client.events(f"/runs/{run['id']}/events")) as frames:
            async for frame in frames:
                received.append(frame)
                if frame["event"] == "CustomDelta":
                    break
        assert background.is_driving(run["id"]), "disconnecting does not stop the run"
        last = max(int(frame["id"]) for frame in received if "id" in frame)
        async for frame in client.events(f"/runs/{run['id']}/events", after=last):
            received.append(frame)
            if frame["event"] == "CustomDelta":
                can_end.set()

    numbered = [frame for frame in received if "id" in frame]
    assert [int(frame["id"]) for frame in numbered] == [*range(1, len(numbered) + 1)]
    assert [frame["event"] for frame in numbered][-1] == "RunCompleted"
    assert all("id" not in frame for frame in received if frame["event"] == "CustomDelta")


async def test_the_event_stream_of_an_ended_run_is_empty_after_its_last_event() -> None:
    async with client_of(api_app(Runner(_team("hello"), store="memory:"))) as client:
        _, run = await client.post("/runs", {"input": "hi"})
        frames = await _read_frames(client, run["id"])
        last = frames[-1]["id"]
        assert await client.get(f"/runs/{run['id']}/events", headers={"Last-Event-ID": last}) == (204, None)
        assert await client.get(f"/runs/{run['id']}/events?after={last}") == (204, None)


async def test_a_silent_run_sends_heartbeats_and_can_be_cancelled() -> None:
    @agent("Silent")
    async def silent(ctx: AgentContext) -> None:
        await asyncio.Event().wait()

    async with client_of(api_app(Runner(silent, store="memory:"), heartbeat=0.01)) as client:
        _, run = await client.post("/runs", {"input": "hi"})
        async for frame in client.events(f"/runs/{run['id']}/events"):
            if frame == {"": "heartbeat"}:
                break
        assert await client.ask("HEAD", f"/runs/{run['id']}/events") == (200, None)
        status, cancelled = await client.post(f"/runs/{run['id']}/cancel", {"when": "now"})
        assert (status, cancelled["status"]) == (200, "cancelled")
        status, again = await client.post(f"/runs/{run['id']}/resume")
        assert (status, again["status"]) == (202, "running")
        assert (await client.post(f"/runs/{run['id']}/cancel"))[1]["status"] == "cancelled"


async def test_two_apps_with_one_store_share_runs(tmp_path: Path) -> None:
    store = tmp_path / "runs.db"
    first_runner, second_runner = (
        Runner(_team(call("ask_me"), "never"), store=store),
        Runner(_team("thank you"), store=store),
    )
    async with client_of(api_app(first_runner)) as first, client_of(api_app(second_runner)) as second:
        _, run = await first.post("/runs", {"input": "hi", "thread": "t"})
        frames = await _read_frames(second, run["id"])
        assert frames[-1]["event"] == "RunSuspended"
        status, body = await first.post("/runs", {"input": "again", "thread": "t"})
        assert (status, body["error"]["code"]) == (409, "thread_busy")

        _, waiting = await second.get(f"/runs/{run['id']}")
        (question,) = waiting["interrupts"]
        assert (question["payload"], question["agent"]) == ("well?", "Desk")
        status, _ = await second.post(f"/runs/{run['id']}/answers", {"answers": {question["id"]: "fine"}})
        assert status == 202
        rest = await _read_frames(first, run["id"], after=int(frames[-1]["id"]))
        assert rest[-1]["event"] == "RunCompleted"
        numbers = [int(frame["id"]) for frame in [*frames, *rest] if "id" in frame]
        assert numbers == [*range(1, len(numbers) + 1)]
    await first_runner.close()
    await second_runner.close()


async def test_an_answer_is_accepted_before_the_server_that_asked_knows_that_the_run_is_suspended() -> None:
    store = HeldStore("suspended")
    first_runner = Runner(_team(call("ask_me")), store=store)
    second_runner = Runner(_team("thank you"), store=store)
    async with client_of(api_app(first_runner)) as first, client_of(api_app(second_runner)) as second:
        _, run = await first.post("/runs", {"input": "hi"})
        await store.stored.wait()
        _, waiting = await second.get(f"/runs/{run['id']}")
        (question,) = waiting["interrupts"]
        status, _ = await second.post(f"/runs/{run['id']}/answers", {"answers": {question["id"]: "fine"}})
        assert status == 202
        assert (await _read_frames(second, run["id"]))[-1]["event"] == "RunCompleted"
        store.go.set()


@pytest.mark.parametrize("when", ["now", "after_response", "after_turn"])
@pytest.mark.parametrize("is_own", [True, False])
async def test_a_run_is_cancelled_before_the_server_that_asked_knows_that_it_is_suspended(
    when: str, is_own: bool
) -> None:
    store = HeldStore("suspended")
    first_runner = Runner(_team(call("ask_me")), store=store)
    second_runner = Runner(_team("thank you"), store=store)
    async with client_of(api_app(first_runner)) as first, client_of(api_app(second_runner)) as second:
        _, run = await first.post("/runs", {"input": "hi"})
        await store.stored.wait()
        _, waiting = await second.get(f"/runs/{run['id']}")
        (question,) = waiting["interrupts"]
        cancelling = asyncio.create_task(
            (first if is_own else second).post(f"/runs/{run['id']}/cancel", {"when": when})
        )
        if not is_own:
            await cancelling
        store.go.set()
        status, cancelled = await cancelling
        assert (status, cancelled["status"], cancelled["interrupts"]) == (200, "cancelled", [])
        status, body = await second.post(f"/runs/{run['id']}/answers", {"answers": {question["id"]: "fine"}})
        assert (status, body["error"]["code"]) == (409, "not_suspended")
        assert (await first.get(f"/runs/{run['id']}"))[1]["status"] == "cancelled"


async def test_an_answer_to_a_run_whose_cancellation_was_requested_says_that_it_is_cancelled() -> None:
    store = MemoryStore()
    async with client_of(api_app(Runner(_team(call("ask_me")), store=store))) as client:
        _, run = await client.post("/runs", {"input": "hi"})
        await _read_frames(client, run["id"])
        _, waiting = await client.get(f"/runs/{run['id']}")
        await store.request_cancel(run["id"], "now")
        answers = {waiting["interrupts"][0]["id"]: "fine"}
        status, body = await client.post(f"/runs/{run['id']}/answers", {"answers": answers})
        assert (status, body["error"]["code"]) == (409, "not_suspended")
        assert (await client.get(f"/runs/{run['id']}"))[1]["status"] == "cancelled"


async def test_a_run_of_another_server_can_be_cancelled(tmp_path: Path) -> None:
    @agent("Silent")
    async def silent(ctx: AgentContext) -> None:
        await asyncio.Event().wait()

    first_runner, second_runner = (
        Runner(silent, store=SQLiteStore(tmp_path / "runs.db", lease_seconds=0.6)) for _ in range(2)
    )
    async with client_of(api_app(first_runner)) as first, client_of(api_app(second_runner)) as second:
        _, run = await first.post("/runs", {"input": "hi"})
        subscription = asyncio.create_task(_read_frames(second, run["id"]))
        assert (await second.post(f"/runs/{run['id']}/cancel"))[0] == 200
        assert (await subscription)[-1]["event"] == "RunCancelled"
    await first_runner.close()
    await second_runner.close()


async def test_runs_are_listed_in_pages() -> None:
    async with client_of(api_app(Runner(_team("a", "b", "c"), store="memory:"))) as client:
        ids = [(await client.post("/runs", {"input": "hi"}))[1]["id"] for _ in range(3)]
        for id in ids:
            await _read_frames(client, id)
        _, page = await client.get("/runs?limit=2&status=completed")
        _, rest = await client.get("/runs", params={"limit": "2", "after": page["next"]})
        assert [run["id"] for run in [*page["runs"], *rest["runs"]]] == ids[::-1]
        assert rest["next"] == ""
        assert (await client.get("/runs?status=failed"))[1]["runs"] == []


async def test_limits_can_be_lowered_and_not_raised() -> None:
    runner = Runner(_team(*[call("ask_me")] * 3), store="memory:")
    async with client_of(api_app(runner, show_errors=False)) as client:
        _, run = await client.post("/runs", {"input": "hi", "limits": {"model_calls": 10**6, "transfers": 1}})
        started = (await runner.runs.events(run["id"]))[0]
        limits = getattr(started, "limits")  # noqa: B009
        assert (limits["model_calls"], limits["transfers"]) == (100, 1)


async def test_errors_are_exposed_only_with_show_errors(caplog: pytest.LogCaptureFixture) -> None:
    @agent("Broken")
    async def broken(ctx: AgentContext) -> None:
        raise ValueError("password=hunter2")

    for show_errors in (False, True):
        async with client_of(api_app(Runner(broken, store="memory:"), show_errors=show_errors)) as client:
            _, run = await client.post("/runs", {"input": "hi"})
            frames = await _read_frames(client, run["id"])
            assert frames[-1]["event"] == "RunFailed"
            assert ("hunter2" in frames[-1]["data"]) is show_errors
            details = (await client.get(f"/runs/{run['id']}"))[1]
            assert details["error"] == "ValueError"
            assert details["error_message"] == ("password=hunter2" if show_errors else None)
            error = "ValueError: password=hunter2" if show_errors else "ValueError"
            assert details["summary"]["error"] == error
            assert [run["summary"]["error"] for run in (await client.get("/runs"))[1]["runs"]] == [error]
            assert len((await client.get("/runs?q=ValueError"))[1]["runs"]) == 1
            # A search must not reveal the message word by word.
            assert len((await client.get("/runs?q=hunter2"))[1]["runs"]) == show_errors


async def test_the_context_is_created_for_the_caller() -> None:
    @agent("Who")
    async def report_context(ctx: AgentContext[str]) -> None:
        await ctx.say(ctx.context)

    app = api_app(
        Runner(report_context, store="memory:"), auth={"s1": "ada"}, context_factory=lambda run: f"I am {run.owner}"
    )
    async with client_of(app, "s1") as client:
        _, run = await client.post("/runs", {"input": "hi"})
        await _read_frames(client, run["id"])
        assert (await client.get(f"/runs/{run['id']}"))[1]["output"] == "I am ada"


async def test_a_recovered_run_has_the_context_of_its_owner() -> None:
    @agent("Who")
    async def report_context(ctx: AgentContext[str]) -> None:
        await ctx.say(ctx.context)

    runner = Runner(report_context, store="memory:")
    run_id = await runner.submit("hi", owner="ada")
    app = api_app(runner, auth={"s1": "ada", "s2": "bob"}, context_factory=lambda run: f"I am {run.owner}")
    async with client_of(app, "s1") as client:
        await _read_frames(client, run_id)
        assert (await client.get(f"/runs/{run_id}"))[1]["output"] == "I am ada"
        assert (await Client(client.session, client.url, "s2").get(f"/runs/{run_id}"))[0] == 404


async def test_cors_allows_only_the_given_origins() -> None:
    ask: dict[str, Any] = {
        "headers": {"Origin": "https://ui.example", "Access-Control-Request-Method": "POST"},
    }
    for cors, expected in (((), None), (("https://ui.example",), "https://ui.example")):
        async with (
            client_of(api_app(Runner(_team("x"), store="memory:"), cors_origins=cors)) as client,
            client.session.options(f"{client.url}/runs", **ask) as answer,
        ):
            assert answer.headers.get("Access-Control-Allow-Origin") == expected


def test_a_store_and_valid_options_are_required() -> None:
    with pytest.raises(SetupError, match="store"):
        api_app(Runner(_team("x")))
    for token in ("", {}, {"": "ada"}, {"s": ""}):
        with pytest.raises(SetupError, match="a token"):
            api_app(Runner(_team("x"), store="memory:"), auth=token)
    with pytest.raises(SetupError, match="max_body"):
        api_app(Runner(_team("x"), store="memory:"), max_body=0)


async def test_a_missing_package_error_has_the_pip_command(monkeypatch: pytest.MonkeyPatch) -> None:
    runner = Runner(_team("x"), store="memory:")
    for name in ("starlette", "uvicorn"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(SetupError, match=r"batonkit\[serving\]"):
        api_app(runner)
    with pytest.raises(SetupError, match=r"batonkit\[serving\]"):
        serve(object())
    with pytest.raises(SetupError, match=r"batonkit\[agui\]"):
        agui_app(runner)


async def test_an_app_without_auth_cannot_listen_on_other_interfaces() -> None:
    app = api_app(Runner(_team("x"), store="memory:"), allow_anonymous=True)
    with pytest.raises(SetupError, match="can be reached from other machines"):
        serve(app, host="0.0.0.0")
    async with serve_in_background(app, host="localhost") as url, aiohttp.ClientSession(url) as session:
        assert (await session.get("/health")).status == 200


async def test_requests_with_one_idempotency_key_start_one_run() -> None:
    runner = Runner(_team("one", "two", "three"), store="memory:")
    async with client_of(api_app(runner, auth={"a": "ada", "b": "bob"}), "a") as client:
        headers, body = {"Idempotency-Key": "order 7"}, {"input": "hi", "thread": "t", "values": {"n": 1}}
        answers = await asyncio.gather(*[client.post("/runs", body, headers=headers) for _ in range(5)])
        assert {(status, run["id"]) for status, run in answers} == {(201, answers[0][1]["id"])}
        id = answers[0][1]["id"]
        await _read_frames(client, id)
        status, again = await client.post("/runs", body, headers=headers)
        assert (status, again["id"], again["output"]) == (201, id, "one"), "also after it has ended"
        assert len((await client.get("/runs"))[1]["runs"]) == 1
        status, refused = await client.post("/runs", {**body, "input": "ho"}, headers=headers)
        assert (status, refused["error"]["code"]) == (422, "key_reused")
        status, other = await client.post("/runs", {"input": "hi"}, headers={"Idempotency-Key": "order 8"})
        assert (status, other["id"] == id) == (201, False)
        bob = Client(client.session, client.url, "b")
        status, theirs = await bob.post("/runs", body, headers=headers)
        assert (status, theirs["output"] == "one") == (201, False), "another caller has other keys"
        assert (await client.post("/runs", body, headers={"Idempotency-Key": "k" * 256}))[0] == 422


async def test_a_busy_thread_is_reported_despite_a_key() -> None:
    async with client_of(api_app(Runner(_team(call("ask_me")), store="memory:"))) as client:
        _, run = await client.post("/runs", {"input": "hi", "thread": "t"})
        await _read_frames(client, run["id"])
        status, refused = await client.post("/runs", {"input": "hi", "thread": "t"}, headers={"Idempotency-Key": "k"})
        assert (status, refused["error"]["code"]) == (409, "thread_busy")


async def test_a_failed_run_has_the_message_that_its_agent_has_for_the_caller() -> None:
    class SoldOutError(TaskFailedError):
        pass

    @agent("Shop")
    async def shop(ctx: AgentContext) -> None:
        raise SoldOutError("the show is sold out")

    async with client_of(api_app(Runner(shop, store="memory:"))) as client:
        _, run = await client.post("/runs", {"input": "hi"})
        frames = await _read_frames(client, run["id"])
        assert "the show is sold out" in frames[-1]["data"]
        _, details = await client.get(f"/runs/{run['id']}")
        assert (details["error"], details["error_message"]) == ("SoldOutError", "the show is sold out")


async def test_an_app_can_be_served_again() -> None:
    app = api_app(Runner(_team("one", "two"), store="memory:"))
    for expected in ("one", "two"):
        async with client_of(app) as client:
            _, run = await client.post("/runs", {"input": "hi"})
            await _read_frames(client, run["id"])
            assert (await client.get(f"/runs/{run['id']}"))[1]["output"] == expected
