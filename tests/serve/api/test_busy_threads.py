"""The HTTP API and threads with an unfinished run: messages that wait, steer and preempt, and resumptions."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.sockets import Client, client_of
from tests.waiting import until

from batonkit import Agent, RunContext, Runner, tool
from batonkit.runs.threads import inbox
from batonkit.serve import api_app
from batonkit.stores import SQLiteStore
from batonkit.testing import ScriptedModel, call


class Desk:
    """A desk whose tool waits until it may go on, and its app."""

    def __init__(self, store: Any, *steps: Any) -> None:
        self.entered, self.opened = asyncio.Event(), asyncio.Event()

        @tool
        async def look() -> str:
            """Look."""
            self.entered.set()
            await self.opened.wait()
            return "seen"

        @tool
        async def ask_me(ctx: RunContext) -> str:
            """Ask."""
            return await ctx.interrupt("well?")

        self.model = ScriptedModel([*steps])
        self.runner: Runner[Any, Any] = Runner(Agent("Desk", tools=[look, ask_me], model=self.model), store=store)
        self.app = api_app(self.runner)


async def until_status(client: Client, id: str, *statuses: str) -> dict[str, Any]:
    async def read() -> dict[str, Any]:
        return (await client.get(f"/runs/{id}"))[1]

    return await until(read, lambda run: run.get("status") in statuses)


async def test_a_queued_message_is_shown_and_becomes_a_run(tmp_path: Path) -> None:
    desk = Desk(SQLiteStore(tmp_path / "runs.db"), [call("look")], "One.", "Two.", "Three.")
    async with client_of(desk.app) as client:
        _, first = await client.post("/runs", {"input": "one", "thread": "t"})
        await desk.entered.wait()
        status, refused = await client.post("/runs", {"input": "two", "thread": "t"})
        assert (status, refused["error"]["code"]) == (409, "thread_busy")
        status, second = await client.post("/runs", {"input": "two", "thread": "t", "when_busy": "queue"})
        assert (status, second["status"], second["thread"], second["events"]) == (201, "waiting", "t", 0)
        _, third = await client.post("/runs", {"input": "three", "thread": "t", "when_busy": "queue"})
        _, thread = await client.get("/threads/t")
        assert thread["waiting"] == [second["id"], third["id"]]
        frames = asyncio.create_task(_events(client, third["id"]))
        status, answer = await client.post(f"/runs/{second['id']}/resume", {})
        assert (status, answer["error"]["code"]) == (409, "waiting")
        desk.opened.set()
        assert (await until_status(client, first["id"], "completed"))["output"] == "One."
        assert (await until_status(client, second["id"], "completed"))["output"] == "Two."
        assert (await until_status(client, third["id"], "completed"))["output"] == "Three."
        assert (await frames)[0] == "RunStarted"


async def _events(client: Client, id: str) -> list[str]:
    return [frame["event"] async for frame in client.events(f"/runs/{id}/events")]


async def test_a_message_steers_the_run_of_its_thread(tmp_path: Path) -> None:
    desk = Desk(SQLiteStore(tmp_path / "runs.db"), [call("look")], "One.")
    async with client_of(desk.app) as client:
        _, first = await client.post("/runs", {"input": "one", "thread": "t"})
        await desk.entered.wait()
        _, second = await client.post("/runs", {"input": "louder", "thread": "t", "when_busy": "steer"})
        desk.opened.set()
        await until_status(client, first["id"], "completed")
        assert [message.content for message in desk.model.requests[-1].messages][-1] == "louder"
        status, _ = await client.get(f"/runs/{second['id']}")
        assert status == 404
        _, thread = await client.get("/threads/t")
        assert [message.get("content", "") for message in thread["messages"]] == ["one", "", "seen", "louder", "One."]


async def test_a_preempting_message_takes_the_place_of_the_run(tmp_path: Path) -> None:
    desk = Desk(SQLiteStore(tmp_path / "runs.db"), [call("look")], "Two.")
    async with client_of(desk.app) as client:
        _, first = await client.post("/runs", {"input": "one", "thread": "t"})
        await desk.entered.wait()
        _, second = await client.post("/runs", {"input": "two", "thread": "t", "when_busy": "preempt"})
        desk.opened.set()
        assert (await until_status(client, second["id"], "completed"))["output"] == "Two."
        assert (await until_status(client, first["id"], "cancelled"))["output"] is None


async def test_a_waiting_message_can_be_cancelled_and_is_idempotent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inbox, "MAX_WAITING", 1)
    desk = Desk(SQLiteStore(tmp_path / "runs.db"), [call("look")], "One.")
    async with client_of(desk.app) as client:
        _, first = await client.post("/runs", {"input": "one", "thread": "t"})
        await desk.entered.wait()
        body, headers = {"input": "two", "thread": "t", "when_busy": "queue"}, {"Idempotency-Key": "k"}
        sent = [await client.post("/runs", body, headers=headers) for _ in range(2)]
        assert [(status, run["id"], run["status"]) for status, run in sent] == [(201, sent[0][1]["id"], "waiting")] * 2
        status, full = await client.post("/runs", body)
        assert (status, full["error"]["code"]) == (429, "inbox_full")
        status, cancelled = await client.post(f"/runs/{sent[0][1]['id']}/cancel", {})
        assert (status, cancelled["status"]) == (200, "cancelled")
        status, _ = await client.get(f"/runs/{sent[0][1]['id']}")
        assert status == 404
        desk.opened.set()
        await until_status(client, first["id"], "completed")


async def test_answers_and_dismissals_take_a_message_along() -> None:
    desk = Desk("memory:", [call("ask_me")], "One.", [call("ask_me")], "Two.")
    async with client_of(desk.app) as client:
        _, first = await client.post("/runs", {"input": "one"})
        asked = await until_status(client, first["id"], "suspended")
        body = {"answers": {asked["interrupts"][0]["id"]: "fine"}, "message": "And hurry."}
        status, _ = await client.post(f"/runs/{first['id']}/answers", body)
        assert status == 202
        await until_status(client, first["id"], "completed")
        assert [message.content for message in desk.model.requests[-1].messages][-2:] == ["fine", "And hurry."]
        _, second = await client.post("/runs", {"input": "two"})
        await until_status(client, second["id"], "suspended")
        body = {"dismiss": "Never mind.", "message": "Do that."}
        status, _ = await client.post(f"/runs/{second['id']}/resume", body)
        assert status == 202
        await until_status(client, second["id"], "completed")
        dismissed = "This call was not executed. The user dismissed it and says: Never mind."
        assert [message.content for message in desk.model.requests[-1].messages][-2:] == [dismissed, "Do that."]


async def test_a_run_is_cancelled_after_the_response() -> None:
    desk = Desk("memory:", [call("look")], [call("look")], "Done.")
    async with client_of(desk.app) as client:
        _, first = await client.post("/runs", {"input": "one"})
        await desk.entered.wait()
        status, _ = await client.post(f"/runs/{first['id']}/cancel", {"when": "after_response"})
        assert status == 200
        desk.opened.set()
        await until_status(client, first["id"], "cancelled")
        status, _ = await client.post(f"/runs/{first['id']}/resume", {"execute_calls": True})
        assert status == 202
        assert (await until_status(client, first["id"], "completed"))["output"] == "Done."


async def test_when_busy_needs_a_thread() -> None:
    async with client_of(Desk("memory:", "One.").app) as client:
        status, refused = await client.post("/runs", {"input": "one", "when_busy": "queue"})
        assert (status, refused["error"]["message"]) == (422, "`when_busy` needs a `thread`")
