"""The ids that clients choose: what each server refuses, and that runs of all servers can be read and exported."""

import json
from typing import Any
from urllib.parse import quote

import pytest
from fastapi import FastAPI
from tests.sockets import Client, client_of
from yarl import URL

from batonkit import Agent, Runner
from batonkit.serve import api_app, exception_handlers
from batonkit.serve.a2a import a2a_app
from batonkit.serve.agui import agui_app
from batonkit.serve.studio import studio_app
from batonkit.stores import MemoryStore, iter_records
from batonkit.testing import ScriptedModel

UNSAFE = ["a\n", "a\r\nSet-Cookie: b=c", 'a"b', "a b", "a/b"]
HOOK = {"url": "http://8.8.8.8/hook"}


def make_runner(store: MemoryStore) -> Runner[Any, Any]:
    return Runner(Agent("Desk", description="A desk."), model=ScriptedModel(["Hello."], cycle=True), store=store)


async def ids_in(store: MemoryStore) -> list[str]:
    return [record.run_id async for record in iter_records(store)]


@pytest.mark.parametrize("name", ["run_id", "thread"])
@pytest.mark.parametrize("id", UNSAFE)
async def test_the_http_api_refuses_ids_with_other_characters(name: str, id: str) -> None:
    store = MemoryStore()
    async with client_of(api_app(make_runner(store))) as client:
        status, body = await client.post("/runs", {"input": "Hi.", name: id})
    assert (status, body["error"]["code"]) == (422, "invalid")
    assert name in body["error"]["message"]
    assert await ids_in(store) == []


@pytest.mark.parametrize("id", UNSAFE)
async def test_a_fork_over_http_refuses_ids_with_other_characters(id: str) -> None:
    store = MemoryStore()
    await make_runner(store).run("Hi.", run_id="r")
    async with client_of(api_app(make_runner(store), inspection=True)) as client:
        status, body = await client.post("/runs/r/fork", {"run_id": id})
    assert (status, body["error"]["code"]) == (422, "invalid")
    assert await ids_in(store) == ["r"]


def to_agui_request(**ids: str) -> dict[str, Any]:
    messages = [{"id": "m1", "role": "user", "content": "Hi."}]
    empty: dict[str, Any] = {"state": {}, "tools": [], "context": [], "forwardedProps": {}}
    return {"threadId": "t", "runId": "r", "messages": messages, **empty, **ids}


@pytest.mark.parametrize("id", UNSAFE)
async def test_agui_refuses_run_ids_with_other_characters(id: str) -> None:
    store = MemoryStore()
    async with client_of(agui_app(make_runner(store))) as client:
        status, body = await client.post("/", to_agui_request(runId=id))
    assert (status, body["error"]["code"]) == (422, "invalid")
    assert body["error"]["message"].startswith("`runId` ")
    assert await ids_in(store) == []


async def call_a2a(client: Client, method: str, params: Any) -> Any:
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    status, answer = await client.post("/", body, headers={"A2A-Version": "1.0"})
    assert status == 200
    return answer


def to_a2a_message(**more: Any) -> dict[str, Any]:
    return {"message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "hi"}], **more}}


@pytest.mark.parametrize("context", ["a\n", "a\r\nb", "a\x1b[2J", "a" * 201])
async def test_a2a_refuses_contexts_with_control_characters(context: str) -> None:
    store = MemoryStore()
    async with client_of(a2a_app(make_runner(store))) as client:
        answer = await call_a2a(client, "SendMessage", to_a2a_message(contextId=context))
    assert answer["error"]["code"] == -32602
    assert "context id must be at most 200 printable characters" in answer["error"]["message"]
    assert await ids_in(store) == []


async def test_a2a_accepts_contexts_of_printable_characters() -> None:
    store = MemoryStore()
    async with client_of(a2a_app(make_runner(store))) as client:
        for context in ("order #7: 'tea'", "王芳", "a" * 200):
            answer = await call_a2a(client, "SendMessage", to_a2a_message(contextId=context))
            assert answer["result"]["task"]["contextId"] == context


@pytest.mark.parametrize("id", ["a\0", "a\n", "a" * 201])
async def test_a2a_refuses_webhook_ids_with_control_characters(id: str) -> None:
    store = MemoryStore()
    async with client_of(a2a_app(make_runner(store))) as client:
        config = {"taskPushNotificationConfig": {**HOOK, "id": id}}
        answer = await call_a2a(client, "SendMessage", to_a2a_message() | {"configuration": config})
        assert answer["error"]["code"] == -32602
        assert await ids_in(store) == []
        answer = await call_a2a(client, "SendMessage", to_a2a_message())
        task = answer["result"]["task"]["id"]
        answer = await call_a2a(client, "CreateTaskPushNotificationConfig", {"taskId": task, **HOOK, "id": id})
        assert answer["error"]["code"] == -32602
        answer = await call_a2a(client, "DeleteTaskPushNotificationConfig", {"taskId": task, "id": id})
        assert "error" not in answer


async def test_an_app_of_your_own_answers_422_to_ids_that_it_passes_on() -> None:
    runner = make_runner(MemoryStore())
    app = FastAPI(exception_handlers=exception_handlers())

    @app.post("/threads/{thread}")
    async def send(thread: str) -> str:
        return (await runner.run("Hi.", thread=thread)).output

    async with client_of(app) as client:
        assert await client.post("/threads/u42") == (200, "Hello.")
        status, body = await client.post("/threads/u42%0A")
    assert (status, body["error"]["code"]) == (422, "invalid")
    assert body["error"]["message"] == "thread is 'u42\\n', which contains '\\n'; use printable characters"


async def read(client: Client, path: str) -> tuple[int, str, bytes]:
    async with client.session.get(URL(client.url + path, encoded=True), headers=client.headers) as answer:
        return answer.status, answer.headers.get("Content-Disposition", ""), await answer.read()


async def test_studio_shows_and_exports_runs_of_owners_with_any_name() -> None:
    store = MemoryStore()
    agui = agui_app(make_runner(store), auth={"t": "Zoë <zoe@example.com>"})
    async with (
        client_of(agui, "t") as client,
        client.session.post(client.url, json=to_agui_request(), headers=client.headers) as answer,
    ):
        assert answer.status == 200
        await answer.read()
    [id] = await ids_in(store)
    async with client_of(studio_app(make_runner(store), auth="all"), "all") as client:
        status, _, body = await read(client, f"/api/runs/{quote(id, safe='')}")
        assert (status, json.loads(body)["id"]) == (200, id)
        for path in (f"/api/runs/{quote(id, safe='')}/export", f"/export/{quote(id, safe='')}.html"):
            status, header, _ = await read(client, path)
            assert (status, header.partition(";")[0]) == (200, "attachment")


@pytest.mark.parametrize("id", ["a\r\nSet-Cookie: b=c", 'a"; filename="b', "übung 王", "a\u2028b"])
async def test_studio_exports_runs_that_another_program_stored_with_any_id(id: str) -> None:
    store = MemoryStore()
    await make_runner(store).run("Hi.", run_id="RUN_ID")
    lines = [line.replace(b'"RUN_ID"', json.dumps(id).encode()) for line in await store.load("RUN_ID")]
    await store.create(id, lines, status="completed")
    async with client_of(studio_app(make_runner(store), auth="all"), "all") as client:
        status, header, body = await read(client, f"/export/{quote(id, safe='')}.html")
    assert status == 200
    assert header.startswith('attachment; filename="')
    assert header.isascii()
    assert b"Hello." in body
