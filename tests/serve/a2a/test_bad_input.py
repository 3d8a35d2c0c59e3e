"""Invalid requests get the documented error, nothing is logged, and no internals are exposed."""

import json
import logging
from collections.abc import AsyncGenerator
from typing import Any

import httpx
import pytest
from tests.serve.a2a.clients import served
from tests.sockets import http_client

from batonkit import Agent, Runner
from batonkit.serve.a2a import a2a_app
from batonkit.stores import iter_records
from batonkit.testing import ScriptedModel

V1 = {"A2A-Version": "1.0"}
HOOK = {"url": "http://8.8.8.8/hook"}


@pytest.fixture
async def http() -> AsyncGenerator[httpx.AsyncClient]:
    """A client of a service whose store must be empty at the end."""
    runner = Runner(Agent("A", description="A."), model=ScriptedModel(["hi"], cycle=True), store="memory:")
    app = a2a_app(runner, max_body=20_000)
    async with served(app) as url, http_client(base_url=url, headers=V1) as client:
        yield client
        assert [record async for record in iter_records(runner._require_store("test"))] == []


def _call(method: Any = "SendMessage", params: Any = None, **more: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params, **more}


def _message(**more: Any) -> dict[str, Any]:
    return {"message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "hi"}], **more}}


JSONRPC: list[tuple[str, Any, int, Any]] = [
    ("not JSON", b"{nope", -32700, None),
    ("not UTF-8", b"\xff\xfe", -32700, None),
    ("nested too deeply", b"[" * 15_000, -32700, None),
    ("an empty body", b"", -32700, None),
    ("a batch", [_call()], -32600, None),
    ("not a call", 7, -32600, None),
    ("another version of JSON-RPC", _call(jsonrpc="1.0"), -32600, 1),
    ("no method", {"jsonrpc": "2.0", "id": 1}, -32600, 1),
    ("a method that is a number", _call(7), -32600, 1),
    ("an invalid id", _call(id={"a": 1}), -32600, None),
    ("an unknown method", _call("Dance"), -32601, 1),
    ("a method of 0.3", _call("message/send"), -32601, 1),
    ("params in a list", _call(params=[1]), -32602, 1),
    ("no message", _call(params={}), -32602, 1),
    ("a message of another kind", _call(params={"message": "hi"}), -32602, 1),
    ("no parts", _call(params=_message(parts=[])), -32602, 1),
    ("no id of the message", _call(params=_message(messageId="")), -32602, 1),
    ("a negative history", _call("GetTask", {"id": "x", "historyLength": -1}), -32602, 1),
    ("a page size of zero", _call("ListTasks", {"pageSize": 0}), -32602, 1),
    ("a page that is too large", _call("ListTasks", {"pageSize": 101}), -32602, 1),
    ("a forged page token", _call("ListTasks", {"pageToken": "zzz"}), -32602, 1),
    ("an unknown task", _call("GetTask", {"id": "unknown"}), -32001, 1),
    ("a follow-up on it", _call(params=_message(taskId="unknown")), -32001, 1),
    ("cancelling it", _call("CancelTask", {"id": "unknown"}), -32001, 1),
    ("subscribing to it", _call("SubscribeToTask", {"id": "unknown"}), -32001, 1),
    ("a stream of it", _call("SendStreamingMessage", _message(taskId="unknown")), -32001, 1),
    ("a context id with a NUL character", _call(params=_message(contextId="a\0b")), -32602, 1),
    ("an unknown page", _call("ListTasks", {"pageToken": "bm93aGVyZQ=="}), -32602, 1),
    ("a page token that is not base64", _call("ListTasks", {"pageToken": "é"}), -32602, 1),
    ("an unsupported media type", _call(params=_message(parts=[{"raw": "aGk=", "mediaType": "x/y"}])), -32005, 1),
    ("no card", _call("GetExtendedAgentCard", {}), -32004, 1),
    ("an id that is not valid Unicode", b'{"jsonrpc":"2.0","id":"\\ud800","method":"SendMessage"}', -32600, None),
    ("a method that is not valid Unicode", b'{"jsonrpc":"2.0","id":1,"method":"\\udfff"}', -32600, None),
    ("a task id with a NUL character", _call("GetTask", {"id": "a\0b"}), -32001, 1),
    (
        "text that is not valid Unicode",
        json.dumps(_call(params=_message(parts=[{"text": "\ud800"}]))).encode(),
        -32600,
        None,
    ),
    ("a file that is not base64", _call(params=_message(parts=[{"raw": "a"}])), -32602, 1),
    ("two contents in one part", _call(params=_message(parts=[{"text": "a", "url": "b"}])), -32602, 1),
    ("metadata that is a string", _call(params=_message(metadata="x")), -32602, 1),
    ("an unknown role", _call(params=_message(role="ROLE_KING")), -32602, 1),
    ("a history length that is too large", _call("GetTask", {"id": "x", "historyLength": 2**40}), -32602, 1),
    ("an invalid time", _call("ListTasks", {"statusTimestampAfter": "yesterday"}), -32602, 1),
    (
        "a webhook with an invalid context id",
        _call("SendMessage", _message(contextId="a\0b") | {"configuration": {"taskPushNotificationConfig": HOOK}}),
        -32602,
        1,
    ),
    *[
        (
            f"a webhook at {url}",
            _call("SendMessage", _message() | {"configuration": {"taskPushNotificationConfig": {"url": url}}}),
            -32602,
            1,
        )
        for url in (
            "http://127.0.0.1/x",
            "http://[::1]/x",
            "http://169.254.169.254/latest",
            "http://10.0.0.8/x",
            "http://[::ffff:10.0.0.8]/x",
            "http://0.0.0.0/x",
            "http://localhost:1/x",
            "http://2130706433/x",
            "file:///etc/passwd",
            "http://",
            "http://u:p@127.0.0.1/",
            "gopher://example.com",
        )
    ],
]


@pytest.mark.parametrize(("label", "body", "code", "id"), JSONRPC, ids=[each[0] for each in JSONRPC])
async def test_invalid_jsonrpc_requests_get_the_documented_error(
    http: httpx.AsyncClient, caplog: pytest.LogCaptureFixture, label: str, body: Any, code: int, id: Any
) -> None:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    with caplog.at_level(logging.INFO):
        answer = await http.post("/", content=content, headers={"Content-Type": "application/json"})
    body_of_answer = answer.json()
    assert (body_of_answer["error"]["code"], body_of_answer["id"], answer.status_code) == (code, id, 200)
    _assert_no_internals(answer.text, caplog)


REST: list[tuple[str, str, str, Any, int, str]] = [
    ("not JSON", "POST", "/message:send", b"{nope", 400, "INVALID_REQUEST"),
    ("no message", "POST", "/message:send", {}, 400, "INVALID_PARAMS"),
    ("an unknown task", "GET", "/tasks/unknown", None, 404, "TASK_NOT_FOUND"),
    ("cancelling it", "POST", "/tasks/unknown:cancel", None, 404, "TASK_NOT_FOUND"),
    ("subscribing to it", "GET", "/tasks/unknown:subscribe", None, 404, "TASK_NOT_FOUND"),
    ("its webhooks", "GET", "/tasks/unknown/pushNotificationConfigs", None, 404, "TASK_NOT_FOUND"),
    ("a page size that is not a number", "GET", "/tasks?pageSize=many", None, 400, "INVALID_PARAMS"),
    ("an unknown path", "GET", "/kitchen", None, 404, "METHOD_NOT_FOUND"),
    ("another method", "DELETE", "/tasks", None, 405, "METHOD_NOT_FOUND"),
    ("an invalid time", "GET", "/tasks?statusTimestampAfter=now", None, 400, "INVALID_PARAMS"),
    ("a message that is a string", "POST", "/message:stream", {"message": "hi"}, 400, "INVALID_PARAMS"),
]


@pytest.mark.parametrize(("label", "method", "path", "body", "status", "reason"), REST, ids=[each[0] for each in REST])
async def test_invalid_rest_requests_get_the_documented_error(
    http: httpx.AsyncClient,
    caplog: pytest.LogCaptureFixture,
    label: str,
    method: str,
    path: str,
    body: Any,
    status: int,
    reason: str,
) -> None:
    content = body if isinstance(body, bytes | None) else json.dumps(body).encode()
    with caplog.at_level(logging.INFO):
        answer = await http.request(method, path, content=content, headers={"Content-Type": "application/json"})
    body_of_answer = answer.json()["error"]
    assert (answer.status_code, body_of_answer["code"], body_of_answer["details"][0]["reason"]) == (
        status,
        status,
        reason,
    )
    _assert_no_internals(answer.text, caplog)


@pytest.mark.parametrize("path", ["/", "/message:send"])
async def test_bodies_that_are_too_large_or_of_another_type_are_refused(
    http: httpx.AsyncClient, caplog: pytest.LogCaptureFixture, path: str
) -> None:
    large = json.dumps(_call(params=_message(parts=[{"text": "x" * 30_000}]))).encode()

    async def chunks() -> AsyncGenerator[bytes]:
        for start in range(0, len(large), 4096):
            yield large[start : start + 4096]

    json_type = {"Content-Type": "application/json"}
    with caplog.at_level(logging.INFO):
        answers = [
            await http.post(path, content=large, headers=json_type),
            await http.post(path, content=chunks(), headers=json_type),
            await http.post(path, content=b"{}", headers={"Content-Type": "text/plain"}),
            await http.post(path, content=b"{}"),
        ]
    codes = [(each.status_code, each.json()["error"]["code"]) for each in answers]
    if path == "/":
        assert codes == [(413, -32600), (413, -32600), (200, -32005), (200, -32005)]
    else:
        assert codes == [(413, 413), (413, 413), (400, 400), (400, 400)]
    for answer in answers:
        _assert_no_internals(answer.text, caplog)


@pytest.mark.parametrize("version", ["", "0.3", "2.0", "nonsense"])
async def test_other_versions_are_refused(
    http: httpx.AsyncClient, caplog: pytest.LogCaptureFixture, version: str
) -> None:
    headers = {"A2A-Version": version}
    with caplog.at_level(logging.INFO):
        rpc = await http.post("/", json=_call(params=_message()), headers=headers)
        rest = await http.post("/message:send", json=_message(), headers=headers)
    assert rpc.json()["error"]["code"] == -32009
    assert (rest.status_code, rest.json()["error"]["details"][0]["reason"]) == (400, "VERSION_NOT_SUPPORTED")
    _assert_no_internals(rpc.text + rest.text, caplog)


async def test_a_required_extension_must_be_named() -> None:
    card = {"capabilities": {"streaming": True, "extensions": [{"uri": "urn:x", "required": True}]}}
    app = a2a_app(Agent("A", model=ScriptedModel(["hi"])), card=card)
    async with served(app) as url, http_client(base_url=url, headers=V1) as http:
        refused = await http.post("/", json=_call(params=_message()))
        accepted = await http.post("/", json=_call(params=_message()), headers={"A2A-Extensions": "urn:x"})
    assert refused.json()["error"]["code"] == -32008
    assert accepted.json()["result"]["task"]["status"]["state"] == "TASK_STATE_COMPLETED"


def _assert_no_internals(text: str, caplog: pytest.LogCaptureFixture) -> None:
    ours = [each for each in caplog.records if each.name.startswith(("baton", "a2a", "uvicorn", "starlette"))]
    assert ours == []
    for trace in ("Traceback", ".py", "Failed to parse", "object has no", "Error(", "google.protobuf"):
        assert trace not in text
