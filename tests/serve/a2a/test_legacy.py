"""Version 0.3 in addition to 1.0."""

import json
from typing import Any

from tests.serve.a2a.clients import client_at, send, served, text_in
from tests.sockets import http_client

from batonkit import Agent, RunContext, Runner, tool
from batonkit.serve import BearerAuth
from batonkit.serve.a2a import a2a_app
from batonkit.testing import ScriptedModel, call


@tool
async def ask(ctx: RunContext) -> str:
    """Ask."""
    return await ctx.interrupt("well?")


def _call(method: str, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}


def _message(text: str, **more: Any) -> dict[str, Any]:
    parts = [{"kind": "text", "text": text}]
    return {"kind": "message", "messageId": "m", "role": "user", "parts": parts, **more}


async def test_both_versions_see_the_same_tasks() -> None:
    runner = Runner(Agent("A", tools=[ask]), model=ScriptedModel([call("ask"), "fine", "new"]), store="memory:")
    app = a2a_app(runner, compat_03=True)
    async with served(app) as url, http_client(base_url=url) as http:
        card = (await http.get("/.well-known/agent-card.json")).json()
        assert (card["protocolVersion"], card["url"]) == ("0.3", f"{url}/")
        waiting_task = (await http.post("/", json=_call("message/send", message=_message("hi")))).json()["result"]
        assert (waiting_task["kind"], waiting_task["status"]["state"]) == ("task", "input-required")
        follow_up = _call("message/send", message=_message("yes", taskId=waiting_task["id"]))
        completed = (await http.post("/", json=follow_up)).json()["result"]
        assert (completed["id"], completed["status"]["state"]) == (waiting_task["id"], "completed")
        got = (await http.post("/", json=_call("tasks/get", id=waiting_task["id"]))).json()["result"]
        assert got["artifacts"][-1]["parts"][0]["text"] == "fine"
        missing = (await http.post("/", json=_call("tasks/get", id="unknown"))).json()
        assert missing["error"]["code"] == -32001
        rest = (await http.get(f"/v1/tasks/{waiting_task['id']}")).json()
        assert rest["id"] == waiting_task["id"]
        async with client_at(url, streams=False) as client:
            assert text_in(await send(client, "more", context=waiting_task["contextId"])) == "new"


async def test_a_stream_has_the_events_of_0_3() -> None:
    app = a2a_app(Agent("A", model=ScriptedModel(["one two"], stream=True)), compat_03=True)
    async with served(app) as url, http_client(base_url=url) as http:
        answer = await http.post("/", json=_call("message/stream", message=_message("hi")))
    assert answer.headers["content-type"].startswith("text/event-stream")
    updates = [json.loads(line.removeprefix("data: "))["result"] for line in answer.text.splitlines() if line]
    assert {each["kind"] for each in updates} == {"task", "status-update", "artifact-update"}
    assert (updates[0]["kind"], updates[-1]["final"]) == ("task", True)


async def test_callers_of_0_3_must_authenticate() -> None:
    app = a2a_app(Agent("A", model=ScriptedModel(["hi"])), compat_03=True, auth=BearerAuth({"t": "ann"}))
    async with served(app) as url, http_client(base_url=url) as http:
        assert (await http.post("/", json=_call("message/send", message=_message("hi")))).status_code == 401
        assert (await http.get("/v1/tasks/x")).status_code == 401
        accepted = await http.post(
            "/", json=_call("message/send", message=_message("hi")), headers={"Authorization": "Bearer t"}
        )
        task = accepted.json()["result"]
        assert task["status"]["state"] == "completed"
        record = await app.runner._require_store("test").record(task["id"])
        assert record is not None
        assert (record.owner, record.thread.partition(":")[0]) == ("ann", "ann")
