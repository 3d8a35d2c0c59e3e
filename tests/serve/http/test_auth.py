"""Every app supports every auth scheme, and describes the schemes it enforces."""

from collections.abc import Callable
from typing import Any

import pytest
from tests.serve.a2a.clients import served
from tests.serve.http.auth_cases import CASES
from tests.sockets import http_client

from batonkit import Agent, Runner
from batonkit.errors import SetupError
from batonkit.serve import api_app, mcp_app
from batonkit.serve.a2a import a2a_app
from batonkit.serve.agui import agui_app
from batonkit.serve.http.auth import APIKeyAuth, Auth, BearerAuth, Principal, authenticate, to_auth_list
from batonkit.serve.openai import openai_app
from batonkit.testing import ScriptedModel

INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}},
}
AGUI = {"threadId": "t", "runId": "r", "messages": [{"id": "1", "role": "user", "content": "hi"}]}
ACCEPT = {"Accept": "application/json, text/event-stream"}
APPS: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    "api": (api_app, {"method": "GET", "url": "/runs"}),
    "agui": (agui_app, {"method": "POST", "url": "/", "json": AGUI}),
    "openai": (openai_app, {"method": "GET", "url": "/v1/models"}),
    "a2a": (a2a_app, {"method": "GET", "url": "/tasks"}),
    "mcp": (mcp_app, {"method": "POST", "url": "/mcp", "json": INITIALIZE}),
}


def _runner() -> Runner:
    return Runner(Agent("A", description="Helps."), model=ScriptedModel(["hi"], cycle=True), store="memory:")


@pytest.mark.parametrize("app_name", APPS)
@pytest.mark.parametrize("case", CASES, ids=[each[0] for each in CASES])
async def test_every_app_supports_every_auth_scheme(app_name: str, case: tuple[Any, ...]) -> None:
    _, auth, good, bad, _ = case
    make_app, request = APPS[app_name]
    headers = {"A2A-Version": "1.0", **ACCEPT}
    async with served(make_app(_runner(), auth=auth)) as url, http_client(base_url=url, headers=headers) as http:
        for wrong in bad:
            refused = await http.request(**request, headers=wrong)
            assert (refused.status_code, refused.headers.get("www-authenticate", "")) == (401, auth.challenge)
        assert (await http.request(**request, headers=good)).status_code == 200


async def test_the_openapi_document_has_the_enforced_schemes() -> None:
    schemes = [BearerAuth({"t": "ann"}), APIKeyAuth({"k": "bob"}, location="cookie", key_name="key")]
    async with served(api_app(_runner(), auth=schemes)) as url, http_client(base_url=url) as http:
        document = (await http.get("/openapi.json")).json()
        refused = await http.get("/runs")
    assert document["security"] == [{"bearer": []}, {"api_key": []}]
    assert document["components"]["securitySchemes"] == {
        "bearer": {"type": "http", "scheme": "Bearer"},
        "api_key": {"type": "apiKey", "in": "cookie", "name": "key"},
    }
    assert "send Authorization: Bearer … or cookie key" in refused.json()["error"]["message"]
    async with served(api_app(_runner())) as url, http_client(base_url=url) as http:
        document = (await http.get("/openapi.json")).json()
    assert "security" not in document
    assert "securitySchemes" not in document["components"]


async def test_a_caller_has_the_same_runs_in_every_app() -> None:
    runner, auth = _runner(), {"t": "ann", "u": "bob"}
    async with (
        served(api_app(runner, auth=auth)) as api,
        served(a2a_app(runner, auth=auth)) as a2a,
        http_client(headers={"Authorization": "Bearer t", "A2A-Version": "1.0"}) as http,
    ):
        message = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "hi"}], "contextId": "c"}
        sent = await http.post(f"{a2a}/message:send", json={"message": message})
        task = sent.json()["task"]["id"]
        run = (await http.get(f"{api}/runs/{task}")).json()
        assert (run["status"], run["thread"], run["output"]) == ("completed", "c", "hi")
        await http.post(f"{api}/runs", json={"input": "hi", "run_id": "mine", "thread": "c"})
        listed = (await http.get(f"{api}/runs")).json()["runs"]
        assert {each["id"] for each in listed} == {task, "mine"}
        tasks = (await http.get(f"{a2a}/tasks?contextId=c")).json()["tasks"]
        assert len(tasks) == 2
        for each in tasks:
            assert (await http.get(f"{a2a}/tasks/{each['id']}")).status_code == 200
        http.headers["Authorization"] = "Bearer u"
        assert (await http.get(f"{api}/runs")).json()["runs"] == []
        for path in (f"{api}/runs/{task}", f"{api}/runs/ann:mine", *[f"{a2a}/tasks/{each['id']}" for each in tasks]):
            assert (await http.get(path)).status_code == 404


@pytest.mark.parametrize("name", ["", "a\0b", "half\ud800"])
async def test_a_name_that_cannot_be_stored_is_not_authenticated(name: str) -> None:
    class CustomAuth(Auth):
        name = "custom"

        def openapi_scheme(self) -> dict[str, Any]:
            return {"type": "http", "scheme": "CustomAuth"}

        async def authenticate(self, request: Any) -> Principal | None:
            return Principal(name)

    request: Any = None
    assert await authenticate(request, [CustomAuth()]) is None


def test_schemes_with_the_same_name_are_refused() -> None:
    with pytest.raises(SetupError, match="two auth schemes are named `bearer`"):
        to_auth_list([BearerAuth("a"), BearerAuth("b")])
    with pytest.raises(SetupError, match="contains no scheme"):
        to_auth_list([])
    assert [each.name for each in to_auth_list([BearerAuth("a"), BearerAuth("b", name="other")])] == ["bearer", "other"]
