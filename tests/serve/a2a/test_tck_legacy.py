"""The conformance kit's requirements of A2A 0.3 for a service that also supports 1.0, with JSON-RPC and REST."""

import json
from collections.abc import AsyncGenerator, Callable
from typing import Any

import httpx
import pytest
from a2a.compat.v0_3 import types as v03
from a2a.types.a2a_pb2 import AgentCard
from tests.serve.a2a.sut import Endpoints, serve_sut
from tests.serve.a2a.webhooks import serve_webhook
from tests.sockets import http_client

from batonkit.serve import BearerAuth


@pytest.fixture
async def endpoints() -> AsyncGenerator[Endpoints]:
    async with serve_sut(compat_03=True) as endpoints:
        yield endpoints


@pytest.fixture
async def http(endpoints: Endpoints) -> AsyncGenerator[httpx.AsyncClient]:
    async with http_client(base_url=endpoints.http) as client:
        yield client


def _message_params(id: str = "tck-complete-task", text: str = "hi", **more: Any) -> dict[str, Any]:
    parts = [{"kind": "text", "text": text}]
    return {"message": {"kind": "message", "messageId": id, "role": "user", "parts": parts, **more}}


async def _call(http: httpx.AsyncClient, method: str, params: Any) -> dict[str, Any]:
    answer = await http.post("/", json={"jsonrpc": "2.0", "id": "c-1", "method": method, "params": params})
    assert answer.status_code == 200
    body = answer.json()
    assert (body["jsonrpc"], body["id"]) == ("2.0", "c-1")
    return body


async def _result(http: httpx.AsyncClient, method: str, params: Any) -> Any:
    body = await _call(http, method, params)
    assert "result" in body, body
    return body["result"]


async def _code(http: httpx.AsyncClient, method: str, params: Any) -> int:
    return (await _call(http, method, params))["error"]["code"]


async def _events(
    http: httpx.AsyncClient, method: str, params: Any, *, on_event: Callable[[], object] = lambda: None
) -> list[dict[str, Any]]:
    """Return the events of a stream. `on_event` is called as each arrives."""
    call = {"jsonrpc": "2.0", "id": "c-1", "method": method, "params": params}
    events: list[dict[str, Any]] = []
    async with http.stream("POST", "/", json=call, headers={"Accept": "text/event-stream"}) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        async for line in answer.aiter_lines():
            if line.startswith("data: "):
                events.append(json.loads(line.removeprefix("data: ")))
                on_event()
    return events


async def test_the_card_has_the_fields_of_0_3(http: httpx.AsyncClient) -> None:
    for path in ("/.well-known/agent-card.json", "/"):
        card = (await http.get(path)).json()
        v03.AgentCard.model_validate(card)
        assert card["protocolVersion"].startswith("0.3")
        assert card["url"].startswith("http://")
        assert card["preferredTransport"] == "JSONRPC"
        assert card["skills"][0]["tags"]


async def test_a_task_is_started_read_and_continued(http: httpx.AsyncClient) -> None:
    # §7.1, §7.3: message/send, tasks/get and historyLength
    waiting_task = await _result(http, "message/send", _message_params("tck-input-required", "first"))
    v03.Task.model_validate(waiting_task)
    assert (waiting_task["kind"], waiting_task["status"]["state"]) == ("task", "input-required")
    completed = await _result(
        http,
        "message/send",
        _message_params(taskId=waiting_task["id"], contextId=waiting_task["contextId"], text="second"),
    )
    assert (completed["id"], completed["status"]["state"]) == (waiting_task["id"], "completed")
    got = await _result(http, "tasks/get", {"id": waiting_task["id"], "historyLength": 1})
    assert [each["parts"][0]["text"] for each in got["history"]] == ["second"]
    assert not (await _result(http, "tasks/get", {"id": waiting_task["id"], "historyLength": 0})).get("history")
    assert await _result(http, "tasks/get", {"id": waiting_task["id"], "historyLength": 2**31 - 1})
    assert await _code(http, "tasks/get", {"id": waiting_task["id"], "historyLength": -1}) == -32602
    assert await _code(http, "tasks/get", {"id": waiting_task["id"], "historyLength": 2**40}) == -32602


async def test_a_task_continues_while_it_asks_and_can_then_be_cancelled() -> None:
    # §7.1, §7.3, §7.4
    async with (
        serve_sut(compat_03=True, asks_for_more=True) as endpoints,
        http_client(base_url=endpoints.http) as http,
    ):
        task = await _result(http, "message/send", _message_params("text-1"))
        for number in range(3):
            task = await _result(
                http, "message/send", _message_params(f"history-{number}", f"more {number}", taskId=task["id"])
            )
            assert task["status"]["state"] == "input-required"
        users = [each for each in task["history"] if each["role"] == "user"]
        assert [each["messageId"] for each in users] == ["text-1", "history-0", "history-1", "history-2"]
        assert len((await _result(http, "tasks/get", {"id": task["id"], "historyLength": 2}))["history"]) == 2
        assert (await _result(http, "tasks/cancel", {"id": task["id"]}))["status"]["state"] == "canceled"


async def test_all_kinds_of_parts_are_received_and_sent(http: httpx.AsyncClient) -> None:
    file = {"kind": "file", "file": {"name": "t.txt", "mimeType": "text/plain", "uri": "https://example.com/t.txt"}}
    data = {"kind": "data", "data": {"key": "value", "nested": {"array": [1, 2]}}}
    text = {"kind": "text", "text": "Unicode: 你好, здравствуйте\t\b\f\r\n"}
    task = await _result(http, "message/send", _message_params(parts=[text, file, data], metadata=None, taskId=None))
    assert task["status"]["state"] == "completed"
    assert [part["kind"] for part in task["history"][0]["parts"]] == ["text", "file", "data"]
    several = [{"kind": "data", "data": [{"name": "Ann"}, {"name": "Bob"}]}]
    brief = _message_params(parts=several) | {"configuration": {"historyLength": 0}}
    assert "history" not in await _result(http, "message/send", brief)
    for id, kind in (("tck-artifact-file", "file"), ("tck-artifact-data", "data"), ("tck-artifact-text", "text")):
        (artifact,) = (await _result(http, "message/send", _message_params(id)))["artifacts"]
        assert artifact["parts"][0]["kind"] == kind
    reply = await _result(http, "message/send", _message_params("tck-message-response"))
    assert (reply["kind"], reply["role"], reply["parts"][0]["text"]) == ("message", "agent", "Direct message response")


async def test_tasks_are_cancelled(http: httpx.AsyncClient) -> None:
    # §7.4: tasks/cancel
    waiting = await _result(
        http, "message/send", _message_params("tck-input-required") | {"configuration": {"blocking": False}}
    )
    cancelled = await _result(http, "tasks/cancel", {"id": waiting["id"]})
    assert (cancelled["id"], cancelled["status"]["state"]) == (waiting["id"], "canceled")
    assert await _code(http, "tasks/cancel", {"id": waiting["id"]}) == -32002
    assert await _code(http, "tasks/cancel", {"id": "unknown"}) == -32001


async def test_streams_and_resubscriptions(http: httpx.AsyncClient, endpoints: Endpoints) -> None:
    # §7.2, §7.9: message/stream and tasks/resubscribe
    events = await _events(http, "message/stream", _message_params("tck-stream-001"))
    kinds = [each["result"]["kind"] for each in events]
    assert (kinds[0], kinds[-1]) == ("task", "status-update")
    assert "artifact-update" in kinds
    assert [each["result"]["final"] for each in events if each["result"]["kind"] == "status-update"][-1] is True
    (message,) = await _events(http, "message/stream", _message_params("tck-stream-002"))
    assert message["result"]["kind"] == "message"
    started = _message_params("test-resubscribe-message-id-x") | {"configuration": {"blocking": False}}
    task = await _result(http, "message/send", started)
    assert task["status"]["state"] in ("submitted", "working")
    again = await _events(http, "tasks/resubscribe", {"id": task["id"]}, on_event=endpoints.sut.may_complete.set)
    assert (again[0]["result"]["kind"], again[-1]["result"]["status"]["state"]) == ("task", "completed")
    (refused,) = await _events(http, "tasks/resubscribe", {"id": "unknown"})
    assert (refused["error"]["code"], refused["id"]) == (-32001, "c-1")
    assert await _code(http, "message/stream", {"invalid": "params"}) == -32602


async def test_webhooks_are_created_read_and_deleted(http: httpx.AsyncClient) -> None:
    # §7.5 to §7.8: tasks/pushNotificationConfig/…
    task = (await _result(http, "message/send", _message_params()))["id"]
    prefix, hook = "tasks/pushNotificationConfig", {"url": "https://example.com/hook"}
    created = await _result(http, f"{prefix}/set", {"taskId": task, "pushNotificationConfig": hook})
    assert created["pushNotificationConfig"]["url"] == hook["url"]
    config_id = {"id": task, "pushNotificationConfigId": created["pushNotificationConfig"]["id"]}
    assert await _result(http, f"{prefix}/get", {"id": task}) == created
    assert await _result(http, f"{prefix}/get", config_id) == created
    assert await _result(http, f"{prefix}/list", {"id": task}) == [created]
    assert await _result(http, f"{prefix}/delete", config_id) is None
    assert await _result(http, f"{prefix}/list", {"id": task}) == []
    assert await _code(http, f"{prefix}/get", {"id": task}) == -32001
    assert await _code(http, f"{prefix}/get", {"id": "unknown"}) == -32001
    assert await _code(http, f"{prefix}/set", {"taskId": "unknown", "pushNotificationConfig": hook}) == -32001


async def test_a_webhook_receives_the_task(http: httpx.AsyncClient) -> None:
    # §9.5: in 0.3 a webhook receives bare tasks
    async with serve_webhook() as (url, received):
        task = await _result(http, "message/send", _message_params("tck-input-required"))
        hook = {"url": url, "token": "mine", "authentication": {"schemes": ["Bearer"], "credentials": "s3cret"}}
        params = {"taskId": task["id"], "pushNotificationConfig": hook}
        await _result(http, "tasks/pushNotificationConfig/set", params)
        await _result(http, "message/send", _message_params(taskId=task["id"]))
        headers, body = await received.get()
    v03.Task.model_validate(body)
    assert (body["kind"], body["id"], body["status"]["state"]) == ("task", task["id"], "completed")
    assert headers["authorization"] == "Bearer s3cret"
    assert headers["x-a2a-notification-token"] == "mine"


async def test_errors_have_the_codes_and_messages_of_0_3(http: httpx.AsyncClient) -> None:
    # §8.2
    unsupported = {"name": "x", "mimeType": "application/x-unsupported", "bytes": "dGVzdA=="}
    body = await _call(http, "message/send", _message_params(parts=[{"kind": "file", "file": unsupported}]))
    assert body["error"]["code"] == -32005
    assert all(
        word in body["error"]["message"].lower() for word in ("incompatible", "content", "type", "not supported")
    )
    completed = (await _result(http, "message/send", _message_params()))["id"]
    assert await _code(http, "message/send", _message_params(taskId=completed)) == -32004
    assert await _code(http, "message/send", _message_params(taskId="unknown")) == -32001
    without_streaming = {"capabilities": {"streaming": False}}
    async with (
        serve_sut(compat_03=True, card=without_streaming) as endpoints,
        http_client(base_url=endpoints.http) as client,
    ):
        hook = {"taskId": "t", "pushNotificationConfig": {"url": "https://example.com"}}
        assert await _code(client, "tasks/pushNotificationConfig/set", hook) == -32003
        (refused,) = await _events(client, "message/stream", _message_params())
        assert (refused["error"]["code"], refused["error"]["message"][:31]) == (
            -32004,
            "this operation is not supported",
        )


async def test_the_extended_card_needs_authentication() -> None:
    # §7.10: agent/getAuthenticatedExtendedCard
    more = AgentCard(name="More", description="More.", version="1", skills=[])
    more.supported_interfaces.add(url="http://localhost/", protocol_binding="JSONRPC", protocol_version="0.3")
    options: dict[str, Any] = {"compat_03": True, "extended_card": more, "auth": BearerAuth({"t": "ann"})}
    async with serve_sut(**options) as endpoints, http_client(base_url=endpoints.http) as http:
        card = (await http.get("/.well-known/agent-card.json")).json()
        assert card["supportsAuthenticatedExtendedCard"] is True
        for path in ("/v1/card", "/agent/authenticatedExtendedCard"):
            assert (await http.get(path)).status_code == 401
            assert (await http.get(path, headers={"Authorization": "Bearer t"})).json()["name"] == "More"
        http.headers["Authorization"] = "Bearer t"
        assert (await _result(http, "agent/getAuthenticatedExtendedCard", {}))["name"] == "More"


def _rest(id: str = "tck-complete-task", **more: Any) -> dict[str, Any]:
    return {"message": {"messageId": id, "role": "ROLE_USER", "content": [{"text": "hi"}], **more}}


async def test_tasks_and_streams_with_rest(http: httpx.AsyncClient) -> None:
    # §3.5.3: the paths of 0.3
    waiting_task = (await http.post("/v1/message:send", json=_rest("tck-input-required"))).json()["task"]
    assert waiting_task["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
    completed = (await http.post("/v1/message:send", json=_rest(taskId=waiting_task["id"]))).json()["task"]
    assert (completed["id"], completed["status"]["state"]) == (waiting_task["id"], "TASK_STATE_COMPLETED")
    for name in ("historyLength", "history_length"):  # The kit sends the name of the schema.
        got = (await http.get(f"/v1/tasks/{waiting_task['id']}", params={name: 1})).json()
        assert len(got["history"]) == 1
    stream = await http.post("/v1/message:stream", json=_rest("tck-stream-001"))
    assert stream.headers["content-type"].startswith("text/event-stream")
    assert [*json.loads(stream.text.splitlines()[0].removeprefix("data: "))] == ["task"]
    waiting = (await http.post("/v1/message:send", json=_rest("tck-input-required"))).json()["task"]["id"]
    assert (await http.post(f"/v1/tasks/{waiting}:cancel")).json()["status"]["state"] == "TASK_STATE_CANCELLED"
    assert (await http.post(f"/v1/tasks/{waiting}:cancel")).status_code == 400
    assert (await http.get(f"/v1/tasks/{waiting}:subscribe")).status_code == 400
    for path in ("/v1/tasks/unknown", "/v1/tasks/unknown:subscribe", "/v1/tasks/unknown/pushNotificationConfigs"):
        assert (await http.get(path)).status_code == 404


@pytest.mark.parametrize("encoded", ["//5o", "Ly81bw=="], ids=["encoded by the schema", "encoded by the SDK"])
async def test_a_file_with_rest(http: httpx.AsyncClient, encoded: str) -> None:
    file = {"file": {"fileWithBytes": encoded, "mimeType": "text/plain"}}
    task = (await http.post("/v1/message:send", json=_rest(content=[file]))).json()["task"]["id"]
    got = await http.get(f"/tasks/{task}", headers={"A2A-Version": "1.0"})
    assert got.json()["history"][0]["parts"] == [{"raw": "//5o", "mediaType": "text/plain"}]


@pytest.mark.parametrize("is_nested", [False, True])
async def test_webhooks_with_rest(http: httpx.AsyncClient, is_nested: bool) -> None:
    task = (await http.post("/v1/message:send", json=_rest())).json()["task"]["id"]
    config: dict[str, Any] = {"pushNotificationConfig": {"id": "hook", "url": "https://example.com/hook"}}
    body = {"parent": f"tasks/{task}", "config": config} if is_nested else config
    created = (await http.post(f"/v1/tasks/{task}/pushNotificationConfigs", json=body)).json()
    assert created["name"] == f"tasks/{task}/pushNotificationConfigs/hook"
    assert (await http.get(f"/v1/tasks/{task}/pushNotificationConfigs/hook")).json() == created
    assert (await http.get(f"/v1/tasks/{task}/pushNotificationConfigs")).json()["configs"] == [created]
    assert (await http.delete(f"/v1/tasks/{task}/pushNotificationConfigs/hook")).status_code == 200
    assert (await http.get(f"/v1/tasks/{task}/pushNotificationConfigs/hook")).status_code == 404


async def test_empty_credentials_of_a_webhook_with_rest_are_none(http: httpx.AsyncClient) -> None:
    task = (await http.post("/v1/message:send", json=_rest())).json()["task"]["id"]
    config: dict[str, Any] = {"id": "hook", "url": "https://example.com/hook", "authentication": {}}
    body = {"pushNotificationConfig": config}
    created = (await http.post(f"/v1/tasks/{task}/pushNotificationConfigs", json=body)).json()
    assert created["pushNotificationConfig"] == {"id": "hook", "url": "https://example.com/hook"}
