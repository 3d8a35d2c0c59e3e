"""What callers of 0.3 get wrong: the documented error, nothing in the log, and nothing of ours in the answer."""

import json
import logging
from collections.abc import AsyncGenerator
from typing import Any

import httpx
import pytest
from tests.serving.a2a.stage import served

from baton import Agent, Runner
from baton.serving import BearerAuth
from baton.serving.a2a import A2AApp, a2a_app
from baton.stores import iter_records
from baton.testing import ScriptedModel

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
    async with served(app) as url, httpx.AsyncClient(base_url=url) as client:
        with caplog.at_level(logging.INFO):
            yield client
        ours = [each for each in caplog.records if each.name.startswith(("baton", "a2a", "uvicorn", "starlette"))]
        assert ours == []
        assert [record async for record in iter_records(app.runner._require_store("test"))] == []


def _call(method: Any = "message/send", params: Any = None, **more: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params, **more}


def _said(**more: Any) -> dict[str, Any]:
    return {"message": {"messageId": "m", "role": "user", "parts": [{"kind": "text", "text": "hi"}], **more}}


def _part(**part: Any) -> dict[str, Any]:
    return _call(params=_said(parts=[part]))


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
    ("an id that is none", _call(id={"bad": "type"}), -32600, None),
    ("an id that cannot be written down", b'{"jsonrpc":"2.0","id":"\\ud800","method":"message/send"}', -32600, None),
    ("a method that cannot be", b'{"jsonrpc":"2.0","id":1,"method":"message/\\udfff"}', -32600, None),
    ("an unknown method", _call("message/ssend", {}), -32601, 1),
    ("a method of the list that 0.3 has not", _call("tasks/list", {}), -32601, 1),
    ("no params", _call(), -32602, 1),
    ("params in a list", _call(params=[1]), -32602, 1),
    ("strange params", _call(params={"": "not_a_dict"}), -32602, 1),
    ("parts that are none", _call(params={"message": {"parts": "invalid"}}), -32602, 1),
    ("no parts at all", _call(params=_said(parts=[])), -32602, 1),
    ("no id of the message", _call(params=_said(messageId=None)), -32602, 1),
    ("an empty id of the message", _call(params=_said(messageId="")), -32602, 1),
    ("no role", _call(params=_said(role=None)), -32602, 1),
    ("another role", _call(params=_said(role="ROLE_KING")), -32602, 1),
    ("a part of no kind", _part(type="unsupported_type", text="x"), -32602, 1),
    ("a part of another kind", _part(kind="video", text="x"), -32602, 1),
    ("a part that is no object", _call(params=_said(parts=["x"])), -32602, 1),
    ("a file that is not base64", _part(kind="file", file={"bytes": "a", "mimeType": "text/plain"}), -32602, 1),
    ("a file without content", _part(kind="file", file={"name": "x"}), -32602, 1),
    ("data marked as what they are not", _part(kind="data", data={}, metadata={"data_part_compat": True}), -32602, 1),
    (
        "text that cannot be written down",
        json.dumps(_part(kind="data", data={"x": "\ud800"})).encode(),
        -32600,
        None,
    ),
    ("a bottomless pit", _deep().encode(), -32602, 1),
    ("a history without end", _call(params=_said() | {"configuration": {"historyLength": 2**70}}), -32602, 1),
    ("a negative history", _call(params=_said() | {"configuration": {"historyLength": -1}}), -32602, 1),
    ("a task by a number", _call("tasks/get", {"id": 7}), -32602, 1),
    ("a task that is not there", _call("tasks/get", {"id": "nobody"}), -32001, 1),
    ("a task that no store can have", _call("tasks/get", {"id": "a\0b"}), -32001, 1),
    ("the log of push configurations", _call("tasks/get", {"id": "a2a-push:x"}), -32001, 1),
    ("to cancel what is not there", _call("tasks/cancel", {"id": "nobody"}), -32001, 1),
    ("a follow-up on it", _call(params=_said(taskId="nobody")), -32001, 1),
    ("a context that cannot be", _call(params=_said(contextId="a\0b")), -32602, 1),
    ("its webhooks", _call("tasks/pushNotificationConfig/list", {"id": "nobody"}), -32001, 1),
    ("no card", _call("agent/getAuthenticatedExtendedCard", {}), -32004, 1),
    *[
        (
            f"to push to {url}",
            _call(params=_said() | {"configuration": {"pushNotificationConfig": {"url": url}}}),
            -32602,
            1,
        )
        for url in PRIVATE
    ],
]


@pytest.mark.parametrize(("what", "body", "code", "id"), JSONRPC, ids=[each[0] for each in JSONRPC])
async def test_jsonrpc(http: httpx.AsyncClient, what: str, body: Any, code: int, id: Any) -> None:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    answer = await http.post("/", content=content, headers=JSON)
    told = answer.json()
    assert (told["error"]["code"], told["id"], answer.status_code) == (code, id, 200)
    _nothing_of_ours(answer.text)


def _http(**more: Any) -> dict[str, Any]:
    return {"message": {"messageId": "m", "role": "ROLE_USER", "content": [{"text": "hi"}], **more}}


REST: list[tuple[str, str, str, Any, int, str]] = [
    ("not JSON", "POST", "/v1/message:send", b"{nope", 400, "INVALID_REQUEST"),
    ("no text at all", "POST", "/v1/message:stream", b"\xff\xfe", 400, "INVALID_REQUEST"),
    ("a list", "POST", "/v1/message:send", [1], 400, "INVALID_REQUEST"),
    ("no message", "POST", "/v1/message:send", {}, 400, "INVALID_PARAMS"),
    ("no parts", "POST", "/v1/message:send", _http(content=[]), 400, "INVALID_PARAMS"),
    ("an empty part", "POST", "/v1/message:send", _http(content=[{}]), 400, "INVALID_PARAMS"),
    ("parts of another form", "POST", "/v1/message:stream", _http(content="hi"), 400, "INVALID_REQUEST"),
    ("a follow-up on nothing", "POST", "/v1/message:send", _http(taskId="nobody"), 404, "TASK_NOT_FOUND"),
    ("a stream of it", "POST", "/v1/message:stream", _http(taskId="nobody"), 404, "TASK_NOT_FOUND"),
    ("a task that is not there", "GET", "/v1/tasks/nobody", None, 404, "TASK_NOT_FOUND"),
    ("with much history", "GET", "/v1/tasks/nobody?historyLength=99999999999999", None, 400, "INVALID_PARAMS"),
    ("with no history", "GET", "/v1/tasks/nobody?historyLength=many", None, 400, "INVALID_PARAMS"),
    ("to cancel it", "POST", "/v1/tasks/nobody:cancel", None, 404, "TASK_NOT_FOUND"),
    ("to listen to it", "GET", "/v1/tasks/nobody:subscribe", None, 404, "TASK_NOT_FOUND"),
    ("a webhook that is none", "POST", "/v1/tasks/nobody/pushNotificationConfigs", {}, 400, "INVALID_PARAMS"),
    ("an address that is not there", "GET", "/v1/kitchen", None, 404, "METHOD_NOT_FOUND"),
    ("another method", "DELETE", "/v1/tasks/x", None, 405, "METHOD_NOT_FOUND"),
    *[
        (
            f"to push to {url}",
            "POST",
            "/v1/message:send",
            _http() | {"configuration": {"pushNotification": {"url": url}}},
            400,
            "INVALID_PARAMS",
        )
        for url in PRIVATE
    ],
]


@pytest.mark.parametrize(("what", "method", "path", "body", "status", "reason"), REST, ids=[each[0] for each in REST])
async def test_rest(
    http: httpx.AsyncClient, what: str, method: str, path: str, body: Any, status: int, reason: str
) -> None:
    content = body if isinstance(body, bytes | None) else json.dumps(body).encode()
    answer = await http.request(method, path, content=content, headers=JSON)
    told = answer.json()["error"]
    assert (answer.status_code, told["code"], told["details"][0]["reason"]) == (status, status, reason)
    _nothing_of_ours(answer.text)


@pytest.mark.parametrize("path", ["/", "/v1/message:send", "/v1/message:stream", "/v1/tasks/x/pushNotificationConfigs"])
async def test_bodies_that_are_too_large_or_of_another_type(http: httpx.AsyncClient, path: str) -> None:
    large = json.dumps(_call(params=_said(metadata={"x": "x" * 30_000}))).encode()

    async def pieces() -> AsyncGenerator[bytes]:
        for start in range(0, len(large), 4096):
            yield large[start : start + 4096]

    for content in (large, pieces()):
        assert (await http.post(path, content=content, headers=JSON)).status_code == 413
    for headers in ({"Content-Type": "text/plain"}, {}):
        answer = await http.post(path, content=b"{}", headers=headers)
        assert (answer.status_code, answer.json()["error"]["code"]) == ((200, -32005) if path == "/" else (400, 400))
        _nothing_of_ours(answer.text)


@pytest.mark.parametrize("version", ["1.0", "2.0", "nonsense"])
async def test_other_versions_at_the_addresses_of_0_3(http: httpx.AsyncClient, version: str) -> None:
    answer = await http.post("/v1/message:send", json=_http(), headers={"A2A-Version": version})
    assert answer.json()["error"]["details"][0]["reason"] == "VERSION_NOT_SUPPORTED"


async def test_an_extension_that_is_required_is_so_in_0_3() -> None:
    card = {"capabilities": {"streaming": True, "extensions": [{"uri": "urn:x", "required": True}]}}
    async with served(_app(card=card)) as url, httpx.AsyncClient(base_url=url) as http:
        refused = await http.post("/", json=_call(params=_said()))
        plain = await http.post("/v1/message:send", json=_http())
        taken = await http.post("/", json=_call(params=_said()), headers={"X-A2A-Extensions": "urn:x"})
    assert refused.json()["error"]["code"] == -32008
    assert plain.json()["error"]["details"][0]["reason"] == "EXTENSION_SUPPORT_REQUIRED"
    assert taken.json()["result"]["status"]["state"] == "completed"


async def test_tasks_of_others_are_not_there() -> None:
    app = _app(auth=BearerAuth({"a": "ann", "b": "bob"}))
    ann, bob = {"Authorization": "Bearer a"}, {"Authorization": "Bearer b"}
    async with served(app) as url, httpx.AsyncClient(base_url=url) as http:
        task = (await http.post("/", json=_call(params=_said()), headers=ann)).json()["result"]["id"]
        assert (await http.get(f"/v1/tasks/{task}", headers=ann)).json()["id"] == task
        for method, params in (
            ("tasks/get", {"id": task}),
            ("tasks/cancel", {"id": task}),
            ("message/send", _said(taskId=task)),
            ("tasks/pushNotificationConfig/list", {"id": task}),
            ("tasks/pushNotificationConfig/set", {"taskId": task, "pushNotificationConfig": {"url": "http://a.b"}}),
        ):
            answer = await http.post("/", json=_call(method, params), headers=bob)
            assert answer.json()["error"]["code"] == -32001
        for path in (f"/v1/tasks/{task}", f"/v1/tasks/{task}:subscribe", f"/v1/tasks/{task}/pushNotificationConfigs"):
            assert (await http.get(path, headers=bob)).status_code == 404
            assert (await http.get(path)).status_code == 401


def _nothing_of_ours(text: str) -> None:
    for trace in ("Traceback", ".py", "pydantic", "Error(", "validation error", "Failed to parse", "object has no"):
        assert trace not in text
