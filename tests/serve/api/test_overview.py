"""The endpoints that show all runs together: search, deletion, threads, usage and changes."""

import asyncio
from collections.abc import Sequence
from contextlib import aclosing
from typing import Any

import msgspec
import pytest
from tests.sockets import Client, client_of, frames_in

from batonkit import Agent, RunContext, Runner, tool
from batonkit.messages import Usage
from batonkit.serve import api_app
from batonkit.serve.api import overview, search
from batonkit.stores import MemoryStore, RecordPage
from batonkit.testing import ScriptedModel, call, say


@tool
async def ask_me(ctx: RunContext) -> str:
    """Ask."""
    return await ctx.interrupt("well?")


def _app(*, store: Any = "memory:", **options: Any) -> Any:
    sales = Agent("Sales", description="Sells.")
    desk = Agent("Desk", tools=[ask_me], handoffs=[sales])

    def step(request: Any) -> Any:
        text = request.messages[-1].content
        return call("transfer_to_sales") if "buy" in text else call("ask_me") if "ask" in text else "Hello."

    paid = say("Sold.", usage=Usage(100, 10, cost=0.5))
    model = ScriptedModel({"Desk": [step], "Sales": [paid]}, cycle=True)
    return api_app(Runner(desk, model=model, store=store), **options)


async def _run(client: Client, input: str, **body: Any) -> str:
    status, run = await client.post("/runs", {"input": input, **body})
    assert status == 201
    async for _ in client.events(f"/runs/{run['id']}/events"):
        pass
    return run["id"]


async def _ids(client: Client, query: str) -> list[str]:
    status, page = await client.get(f"/runs?{query}")
    assert status == 200, page
    return [run["id"] for run in page["runs"]]


async def test_runs_are_found_by_words_agent_status_cost_and_time() -> None:
    async with client_of(_app()) as client:
        await _run(client, "I buy a green lamp", run_id="lamp", thread="shop")
        await _run(client, "ask me something", run_id="question")
        await _run(client, "a lamp, just looking", run_id="look")

        _, page = await client.get("/runs")
        assert [run["id"] for run in page["runs"]] == ["look", "question", "lamp"]
        summary = page["runs"][2]["summary"]
        assert (summary["text"], summary["agents"]) == ("I buy a green lamp", ["Desk", "Sales"])
        assert await _ids(client, "q=LAMP") == ["look", "lamp"]
        assert await _ids(client, "q=lamp+green") == ["lamp"]
        assert await _ids(client, "q=shop") == ["lamp"]
        assert await _ids(client, "agent=Sales") == ["lamp"]
        assert await _ids(client, "status=suspended") == ["question"]
        assert await _ids(client, "min_cost=0.1") == ["lamp"]
        assert await _ids(client, "order=oldest") == ["lamp", "question", "look"]
        created = page["runs"][1]["created_at"]
        assert await _ids(client, f"until={created!r}") == ["lamp"]
        assert (await client.get("/runs?since=yesterday"))[0] == 422
        assert (await client.get("/runs?order=best"))[0] == 422


class _UnreadableLogs(MemoryStore):
    """A store whose logs cannot be read any more once `is_closed` is set."""

    is_closed = False

    async def load(self, run_id: str, *, start: int = 0) -> Sequence[bytes]:
        assert not self.is_closed, f"the log of {run_id} was read"
        return await super().load(run_id, start=start)


async def test_lists_and_searches_read_no_log() -> None:
    store = _UnreadableLogs()
    async with client_of(_app(store=store)) as client:
        for number in range(5):
            await _run(client, f"buy lamp {number}", thread=f"t{number}")
        store.is_closed = True
        assert len(await _ids(client, "limit=50")) == 5
        assert len(await _ids(client, "q=lamp&agent=Sales&min_cost=0.1")) == 5
        _, page = await client.get("/threads")
        assert [each["text"] for each in page["threads"]] == [f"buy lamp {number}" for number in (4, 3, 2, 1, 0)]


async def test_a_search_has_pages() -> None:
    async with client_of(_app()) as client:
        ids = [await _run(client, f"lamp {number}" if number % 2 else "tea") for number in range(8)]
        found: list[str] = []
        cursor = ""
        while True:
            _, page = await client.get("/runs", params={"q": "lamp", "limit": "3", "after": cursor})
            found += [run["id"] for run in page["runs"]]
            cursor = page["next"]
            if not cursor:
                break
        assert found == [id for number, id in reversed([*enumerate(ids)]) if number % 2]


async def test_a_stopped_run_is_deleted() -> None:
    async with client_of(_app()) as client:
        id = await _run(client, "hi")
        assert (await client.ask("DELETE", f"/runs/{id}"))[0] == 204
        assert (await client.get(f"/runs/{id}"))[0] == 404
        assert (await client.ask("DELETE", f"/runs/{id}"))[0] == 404


async def test_threads_are_listed() -> None:
    async with client_of(_app()) as client:
        await _run(client, "one", thread="a")
        await _run(client, "two", thread="b")
        last = await _run(client, "three", thread="a")
        _, page = await client.get("/threads")
        assert [(each["id"], each["runs"], each["text"]) for each in page["threads"]] == [
            ("a", 2, "three"),
            ("b", 1, "two"),
        ]
        assert page["threads"][0]["last_run"] == last


async def test_usage_is_reported_for_a_run_and_for_all() -> None:
    async with client_of(_app()) as client:
        id = await _run(client, "buy a lamp")
        await _run(client, "buy a lamp")
        _, usage = await client.get(f"/runs/{id}/usage")
        assert usage["total"]["cost"] == 0.5
        assert [row["name"] for row in usage["by_edge"]] == ["Desk → Sales"]
        for by, names in (("agent", ["Desk", "Sales"]), ("edge", ["Desk → Sales"])):
            _, report = await client.get(f"/usage?by={by}")
            assert ([row["name"] for row in report["rows"]], report["runs"]) == (names, 2)
            assert report["rows"][-1]["usage"]["cost"] == 1.0
        _, report = await client.get("/usage")
        assert (len(report["rows"]), report["is_complete"]) == (1, True)
        assert (await client.get("/usage?by=colour"))[0] == 422


class _Turns(MemoryStore):
    """A store that answers without waiting, and records the turn of the event loop in which it was asked."""

    def __init__(self) -> None:
        super().__init__()
        self.turn = 0
        self.loads: list[int] = []
        self.pages: list[int] = []

    async def count(self) -> None:
        while True:
            self.turn += 1
            await asyncio.sleep(0)

    async def load(self, run_id: str, *, start: int = 0) -> Sequence[bytes]:
        self.loads.append(self.turn)
        return await super().load(run_id, start=start)

    async def list(self, **options: Any) -> RecordPage:
        self.pages.append(self.turn)
        return await super().list(**options)


async def _turns_of(request: str, *, runs: int) -> _Turns:
    """Send a request to a server with many runs while another task wants to run."""
    store = _Turns()
    runner = Runner(Agent("Desk", model=ScriptedModel(["Hello."], cycle=True)), store=store)
    for number in range(runs):
        await runner.run("hi", run_id=f"r{number}")
    async with client_of(api_app(runner)) as client:
        counting = asyncio.create_task(store.count())
        store.loads.clear()
        store.pages.clear()
        assert (await client.get(request))[0] == 200
        counting.cancel()
    return store


async def test_other_tasks_run_between_the_logs_that_a_report_reads() -> None:
    store = await _turns_of("/usage", runs=20)
    assert len(store.loads) == len({*store.loads}) == 20


@pytest.mark.parametrize("request_path", ["/runs?q=nothing", "/threads", "/usage?since=0"])
async def test_other_tasks_run_between_the_pages_that_a_request_reads(
    monkeypatch: pytest.MonkeyPatch, request_path: str
) -> None:
    monkeypatch.setattr(overview, "_PAGE", 5)
    monkeypatch.setattr(search, "_PAGE", 5)
    store = await _turns_of(request_path, runs=20)
    assert len(store.pages) == len({*store.pages}) >= 4


async def _statuses(
    client: Client, path: str, wanted: tuple[str, str], *, after: str = ""
) -> list[tuple[str, str, str]]:
    """Read the stream of changes until a run has a status; return ids, statuses and frame ids."""
    seen: list[tuple[str, str, str]] = []
    headers = {"Last-Event-ID": after} if after else {}
    async with (
        client.session.get(client.url + path, headers=headers) as answer,
        aclosing(frames_in(answer.content)) as frames,
    ):
        async for frame in frames:
            if "data" in frame:
                run = msgspec.json.decode(frame["data"])
                seen.append((run["id"], run["status"], frame["id"]))
                if (run["id"], run["status"]) == wanted:
                    return seen
    raise AssertionError(seen)


class _WatchedStore(MemoryStore):
    """A store that tells when changes have been read for the first time."""

    def __init__(self) -> None:
        super().__init__()
        self.was_read = asyncio.Event()

    async def list(self, **options: Any) -> RecordPage:
        page = await super().list(**options)
        if options.get("order_by") == "changed":
            self.was_read.set()
        return page


async def test_changes_of_all_runs_are_streamed_and_resumed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overview, "_POLL_SECONDS", 0.01)
    store = _WatchedStore()
    async with client_of(_app(store=store)) as client:
        await _run(client, "before", run_id="before")
        reading = asyncio.create_task(_statuses(client, "/events", ("q", "suspended")))
        await store.was_read.wait()
        await _run(client, "ask", run_id="q")
        seen = await reading
        assert "before" not in [id for id, _, _ in seen]
        await _run(client, "later", run_id="later")
        resumed = await _statuses(client, "/events", ("later", "completed"), after=seen[-1][2])
        assert ("later", "completed") in [(id, status) for id, status, _ in resumed]
        assert (await client.get("/events?after=never"))[0] == 422


async def test_owners_see_only_their_own_runs_in_lists_and_usage() -> None:
    async with client_of(_app(auth={"a": "ada", "b": "bob"}), "a") as ada:
        await _run(ada, "buy a lamp", run_id="one", thread="t")
        bob = Client(ada.session, ada.url, "b")
        assert (await bob.get("/runs"))[1]["runs"] == []
        assert (await bob.get("/threads"))[1]["threads"] == []
        assert (await bob.get("/usage"))[1]["runs"] == 0
        assert (await bob.get("/runs?owner=ada"))[0] == 403
        assert (await bob.ask("DELETE", "/runs/one"))[0] == 404
        assert (await ada.get("/usage"))[1]["runs"] == 1
