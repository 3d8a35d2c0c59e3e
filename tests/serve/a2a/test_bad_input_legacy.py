"""Invalid requests of version 0.3 get the documented error, nothing is logged, and no internals are exposed."""

import json
import logging
from collections.abc import AsyncGenerator
from typing import Any

import httpx
import pytest
from tests.serve.a2a.clients import served
from tests.sockets import http_client

from batonkit import Agent, Runner
from batonkit.serve import BearerAuth
from batonkit.serve.a2a import A2AApp, a2a_app
from batonkit.stores import iter_records
from batonkit.testing import ScriptedModel

JSON = {"Content-Type": "application/json"}
PRIVATE = (
    "http://127.0.0.1/x",
    "http://169.254.169.254/latest",
    "http://localhost:1/x",
    "file:///etc/passwd",
    "no url",
)


def _app(**options: Any) -> A2AApp:
    runner = Runner(Agent("A", description="A."), model=ScriptedModel(["hi"], cycle=True), store="memory:")
    return a2a_app(runner, max_body=20_000, compat_03=True, **options)


@pytest.fixture
async def http(caplog: pytest.LogCaptureFixture) -> AsyncGenerator[httpx.AsyncClient]:
    app = _app()
    async with served(app) as url, http_client(base_url=url) as client:
        with caplog.at_level(logging.INFO):
            yield client
        ours = [each for each in caplog.records if each.name.startswith(("baton", "a2a", "uvicorn", "starlette"))]
        assert ours == []
        assert [record async for record in iter_records(app.runner._require_store("test"))] == []


def _call(method: Any = "message/send", params: Any = None, **more: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params, **more}


def _message_params(**more: Any) -> dict[str, Any]:
    return {"message": {"messageId": "m", "role": "user", "parts": [{"kind": "text", "text": "hi"}], **more}}


def _part(**part: Any) -> dict[str, Any]:
    return _call(params=_message_params(parts=[part]))


def _deep() -> str:
    return (
        '{"jsonrpc":"2.0","id":1,"method":"message/send","params":{"message":{"messageId":"m","role":"user","parts":\
[{"kind":"data","data":'
        + '{"a":' * 900
        + "1"
        + "}" * 900
        + "}]}}}"
    )


JSONRPC: list[tuple[str, Any, int, Any]] = [
    ("not JSON", b'{"jsonrpc": "2.0", "method": "message/send", "params": {"a"', -32700, None),
    ("a batch", [_call()], -32600, None),
    ("another version of JSON-RPC", _call(jsonrpc="aaa"), -32600, 1),
    ("no method", {"jsonrpc": "2.0", "id": 1, "params": {}}, -32600, 1),
    ("an invalid id", _call(id={"bad": "type"}), -32600, None),
    ("an id that is not valid Unicode", b'{"jsonrpc":"2.0","id":"\\ud800","method":"message/send"}', -32600, None),
    ("a method that is not valid Unicode", b'{"jsonrpc":"2.0","id":1,"method":"message/\\udfff"}', -32600, None),
    ("an unknown method", _call("message/ssend", {}), -32601, 1),
    ("a list method, which 0.3 does not have", _call("tasks/list", {}), -32601, 1),
    ("no params", _call(), -32602, 1),
    ("params in a list", _call(params=[1]), -32602, 1),
    ("unknown params", _call(params={"": "not_a_dict"}), -32602, 1),
    ("parts that are not a list", _call(params={"message": {"parts": "invalid"}}), -32602, 1),
    ("an empty list of parts", _call(params=_message_params(parts=[])), -32602, 1),
    ("no id of the message", _call(params=_message_params(messageId=None)), -32602, 1),
    ("an empty id of the message", _call(params=_message_params(messageId="")), -32602, 1),
    ("no role", _call(params=_message_params(role=None)), -32602, 1),
    ("another role", _call(params=_message_params(role="ROLE_KING")), -32602, 1),
    ("a part without a kind", _part(type="unsupported_type", text="x"), -32602, 1),
    ("a part of another kind", _part(kind="video", text="x"), -32602, 1),
    ("a part that is not an object", _call(params=_message_params(parts=["x"])), -32602, 1),
    ("a file that is not base64", _part(kind="file", file={"bytes": "a", "mimeType": "text/plain"}), -32602, 1),
    ("a file without content", _part(kind="file", file={"name": "x"}), -32602, 1),
    ("data with an inconsistent marker", _part(kind="data", data={}, metadata={"data_part_compat": True}), -32602, 1),
    (
        "text that is not valid Unicode",
        json.dumps(_part(kind="data", data={"x": "\ud800"})).encode(),
        -32600,
        None,
    ),
    ("nested too deeply", _deep().encode(), -32602, 1),
    (
        "a history length that is too large",
        _call(params=_message_params() | {"configuration": {"historyLength": 2**70}}),
        -32602,
        1,
    ),
    ("a negative history", _call(params=_message_params() | {"configuration": {"historyLength": -1}}), -32602, 1),
    ("a task by a number", _call("tasks/get", {"id": 7}), -32602, 1),
    ("an unknown task", _call("tasks/get", {"id": "unknown"}), -32001, 1),
    ("a task id with a NUL character", _call("tasks/get", {"id": "a\0b"}), -32001, 1),
    ("the id of push configurations", _call("tasks/get", {"id": "a2a-push:x"}), -32001, 1),
    ("cancelling an unknown task", _call("tasks/cancel", {"id": "unknown"}), -32001, 1),
    ("a follow-up on it", _call(params=_message_params(taskId="unknown")), -32001, 1),
    ("an invalid context id", _call(params=_message_params(contextId="a\0b")), -32602, 1),
    ("its webhooks", _call("tasks/pushNotificationConfig/list", {"id": "unknown"}), -32001, 1),
    ("no card", _call("agent/getAuthenticatedExtendedCard", {}), -32004, 1),
    *[
        (
            f"a webhook at {url}",
            _call(params=_message_params() | {"configuration": {"pushNotificationConfig": {"url": url}}}),
            -32602,
            1,
        )
        for url in PRIVATE
    ],
]


@pytest.mark.parametrize(("label", "body", "code", "id"), JSONRPC, ids=[each[0] for each in JSONRPC])
async def test_invalid_jsonrpc_requests_get_the_documented_error(
    http: httpx.AsyncClient, label: str, body: Any, code: int, id: Any
) -> None:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    answer = await http.post("/", content=content, headers=JSON)
    body_of_answer = answer.json()
    assert (body_of_answer["error"]["code"], body_of_answer["id"], answer.status_code) == (code, id, 200)
    _assert_no_internals(answer.text)


def _rest_message(**more: Any) -> dict[str, Any]:
    return {"message": {"messageId": "m", "role": "ROLE_USER", "content": [{"text": "hi"}], **more}}


REST: list[tuple[str, str, str, Any, int, str]] = [
    ("not JSON", "POST", "/v1/message:send", b"{nope", 400, "INVALID_REQUEST"),
    ("not UTF-8", "POST", "/v1/message:stream", b"\xff\xfe", 400, "INVALID_REQUEST"),
    ("a list", "POST", "/v1/message:send", [1], 400, "INVALID_REQUEST"),
    ("no message", "POST", "/v1/message:send", {}, 400, "INVALID_PARAMS"),
    ("no parts", "POST", "/v1/message:send", _rest_message(content=[]), 400, "INVALID_PARAMS"),
    ("an empty part", "POST", "/v1/message:send", _rest_message(content=[{}]), 400, "INVALID_PARAMS"),
    ("no role", "POST", "/v1/message:send", _rest_message(role="ROLE_UNSPECIFIED"), 400, "INVALID_PARAMS"),
    ("parts of another type", "POST", "/v1/message:stream", _rest_message(content="hi"), 400, "INVALID_REQUEST"),
    (
        "a follow-up on an unknown task",
        "POST",
        "/v1/message:send",
        _rest_message(taskId="unknown"),
        404,
        "TASK_NOT_FOUND",
    ),
    ("a stream of it", "POST", "/v1/message:stream", _rest_message(taskId="unknown"), 404, "TASK_NOT_FOUND"),
    ("an unknown task", "GET", "/v1/tasks/unknown", None, 404, "TASK_NOT_FOUND"),
    (
        "a history length out of range",
        "GET",
        "/v1/tasks/unknown?historyLength=99999999999999",
        None,
        400,
        "INVALID_PARAMS",
    ),
    (
        "a history length that is not a number",
        "GET",
        "/v1/tasks/unknown?historyLength=many",
        None,
        400,
        "INVALID_PARAMS",
    ),
    ("cancelling it", "POST", "/v1/tasks/unknown:cancel", None, 404, "TASK_NOT_FOUND"),
    ("subscribing to it", "GET", "/v1/tasks/unknown:subscribe", None, 404, "TASK_NOT_FOUND"),
    ("an invalid webhook", "POST", "/v1/tasks/unknown/pushNotificationConfigs", {}, 400, "INVALID_PARAMS"),
    ("an unknown path", "GET", "/v1/kitchen", None, 404, "METHOD_NOT_FOUND"),
    ("another method", "DELETE", "/v1/tasks/x", None, 405, "METHOD_NOT_FOUND"),
    *[
        (
            f"a webhook at {url}",
            "POST",
            "/v1/message:send",
            _rest_message() | {"configuration": {"pushNotification": {"url": url}}},
            400,
            "INVALID_PARAMS",
        )
        for url in PRIVATE
    ],
]


@pytest.mark.parametrize(("label", "method", "path", "body", "status", "reason"), REST, ids=[each[0] for each in REST])
async def test_invalid_rest_requests_get_the_documented_error(
    http: httpx.AsyncClient, label: str, method: str, path: str, body: Any, status: int, reason: str
) -> None:
    content = body if isinstance(body, bytes | None) else json.dumps(body).encode()
    answer = await http.request(method, path, content=content, headers=JSON)
    body_of_answer = answer.json()["error"]
    assert (answer.status_code, body_of_answer["code"], body_of_answer["details"][0]["reason"]) == (
        status,
        status,
        reason,
    )
    _assert_no_internals(answer.text)


@pytest.mark.parametrize("path", ["/", "/v1/message:send", "/v1/message:stream", "/v1/tasks/x/pushNotificationConfigs"])
async def test_bodies_that_are_too_large_or_of_another_type_are_refused(http: httpx.AsyncClient, path: str) -> None:
    large = json.dumps(_call(params=_message_params(metadata={"x": "x" * 30_000}))).encode()

    async def chunks() -> AsyncGenerator[bytes]:
        for start in range(0, len(large), 4096):
            yield large[start : start + 4096]

    for content in (large, chunks()):
        assert (await http.post(path, content=content, headers=JSON)).status_code == 413
    for headers in ({"Content-Type": "text/plain"}, {}):
        answer = await http.post(path, content=b"{}", headers=headers)
        assert (answer.status_code, answer.json()["error"]["code"]) == ((200, -32005) if path == "/" else (400, 400))
        _assert_no_internals(answer.text)


@pytest.mark.parametrize("version", ["1.0", "2.0", "nonsense"])
async def test_other_versions_at_the_paths_of_0_3_are_refused(http: httpx.AsyncClient, version: str) -> None:
    answer = await http.post("/v1/message:send", json=_rest_message(), headers={"A2A-Version": version})
    assert answer.json()["error"]["details"][0]["reason"] == "VERSION_NOT_SUPPORTED"


async def test_a_required_extension_must_be_named_in_0_3() -> None:
    card = {"capabilities": {"streaming": True, "extensions": [{"uri": "urn:x", "required": True}]}}
    async with served(_app(card=card)) as url, http_client(base_url=url) as http:
        refused = await http.post("/", json=_call(params=_message_params()))
        plain = await http.post("/v1/message:send", json=_rest_message())
        accepted = await http.post("/", json=_call(params=_message_params()), headers={"X-A2A-Extensions": "urn:x"})
    assert refused.json()["error"]["code"] == -32008
    assert plain.json()["error"]["details"][0]["reason"] == "EXTENSION_SUPPORT_REQUIRED"
    assert accepted.json()["result"]["status"]["state"] == "completed"


async def test_tasks_of_other_callers_are_not_found() -> None:
    app = _app(auth=BearerAuth({"a": "ann", "b": "bob"}))
    ann, bob = {"Authorization": "Bearer a"}, {"Authorization": "Bearer b"}
    async with served(app) as url, http_client(base_url=url) as http:
        task = (await http.post("/", json=_call(params=_message_params()), headers=ann)).json()["result"]["id"]
        assert (await http.get(f"/v1/tasks/{task}", headers=ann)).json()["id"] == task
        for method, params in (
            ("tasks/get", {"id": task}),
            ("tasks/cancel", {"id": task}),
            ("message/send", _message_params(taskId=task)),
            ("tasks/pushNotificationConfig/list", {"id": task}),
            ("tasks/pushNotificationConfig/set", {"taskId": task, "pushNotificationConfig": {"url": "http://a.b"}}),
        ):
            answer = await http.post("/", json=_call(method, params), headers=bob)
            assert answer.json()["error"]["code"] == -32001
        for path in (f"/v1/tasks/{task}", f"/v1/tasks/{task}:subscribe", f"/v1/tasks/{task}/pushNotificationConfigs"):
            assert (await http.get(path, headers=bob)).status_code == 404
            assert (await http.get(path)).status_code == 401


def _assert_no_internals(text: str) -> None:
    for trace in ("Traceback", ".py", "pydantic", "Error(", "validation error", "Failed to parse", "object has no"):
        assert trace not in text
