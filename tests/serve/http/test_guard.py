"""The checks that every app makes before it handles a request: origin, Host header and body."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import httpx
import pytest
from starlette.requests import Request
from tests.loop_clock import LoopClock
from tests.serve.a2a.clients import served
from tests.serve.http.test_auth import ACCEPT, AGUI, APPS, INITIALIZE
from tests.sockets import http_client

from batonkit import Agent, RunContext, Runner, tool
from batonkit.runs import BackgroundRunner
from batonkit.serve import APIKeyAuth, BasicAuth, BearerAuth, api_app
from batonkit.serve.a2a import a2a_app
from batonkit.serve.agui import agui_app
from batonkit.serve.http import guard
from batonkit.serve.http.http_errors import ServingError
from batonkit.serve.mcp import mcp_app
from batonkit.serve.openai import openai_app
from batonkit.testing import ScriptedModel, call

EVIL = {"Origin": "https://evil.example", "Sec-Fetch-Site": "cross-site"}
HEADERS = {"A2A-Version": "1.0", **ACCEPT}
MESSAGE = {"message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "hi"}]}}
CHAT = {"model": "A", "messages": [{"role": "user", "content": "hi"}]}
POSTS: dict[str, tuple[Any, dict[str, Any]]] = {
    "api": (api_app, {"url": "/runs", "json": {"input": "hi"}}),
    "agui": (agui_app, {"url": "/", "json": AGUI}),
    "openai": (openai_app, {"url": "/v1/chat/completions", "json": CHAT}),
    "a2a": (a2a_app, {"url": "/message:send", "json": MESSAGE}),
    "mcp": (mcp_app, {"url": "/mcp", "json": INITIALIZE}),
}


@tool
async def ask_me(ctx: RunContext) -> str:
    return await ctx.interrupt("well?")


def _runner(*steps: Any) -> Runner:
    agent = Agent("A", description="Secret plans.", tools=[ask_me])
    return Runner(agent, model=ScriptedModel([*steps] or ["hi"], cycle=True), store="memory:")


@pytest.mark.parametrize("app_name", APPS)
async def test_without_auth_every_app_rejects_other_host_names(app_name: str) -> None:
    make_app, request = APPS[app_name]
    async with served(make_app(_runner())) as url, http_client(base_url=url, headers=HEADERS) as http:
        assert (await http.request(**request, headers={"Host": "rebound.example"})).status_code == 403
        assert (await http.request(**request, headers={"Host": "localhost:1"})).status_code == 200


@pytest.mark.parametrize(
    ("hosts", "is_admitted"),
    [
        ([b"localhost"], True),
        ([b"LOCALHOST:8000"], True),
        ([b"127.0.0.1:8000"], True),
        ([b"127.8.9.1"], True),
        ([b"[::1]:8000"], True),
        ([], False),
        ([b""], False),
        ([b":8000"], False),
        ([b"rebound.example:8000"], False),
        # Starlette puts the server's address in place of a header that it cannot parse.
        ([b"rebound_name.example:8000"], False),
        ([b"rebound{.example:8000"], False),
        ([b"localhost_"], False),
        ([b"localhost.rebound.example"], False),
        ([b"localhost:8000@rebound.example"], False),
        ([b"rebound.example@localhost"], False),
        ([b"rebound.example/@localhost"], False),
        ([b"localhost/rebound.example"], False),
        ([b"localhost?rebound"], False),
        ([b"localhost:"], False),
        ([b"localhost:x"], False),
        ([b"[localhost]"], False),
        ([b"[127.0.0.1"], False),
        ([b"::1"], False),
        ([b"127.0.0.1\n"], False),
        ([b"localhost, rebound.example"], False),
        ([b"localhost", b"rebound.example"], False),
        ([b"rebound.example", b"localhost"], False),
        ([b"localhost", b"localhost"], False),
        ([b"\xe9.example"], False),
    ],
)
async def test_the_host_header_must_be_one_loopback_name(hosts: list[bytes], is_admitted: bool) -> None:
    scope = {"type": "http", "method": "GET", "scheme": "http", "path": "/", "query_string": b""}
    headers = [(b"host", host) for host in hosts]
    request = Request({**scope, "headers": headers, "client": ("127.0.0.1", 5), "server": ("127.0.0.1", 8000)})
    if is_admitted:
        assert (await guard.RequestGuard().admit(request)).sees_all
        return
    with pytest.raises(ServingError, match="its own machine only"):
        await guard.RequestGuard().admit(request)


async def test_whitespace_around_header_values_is_not_part_of_them() -> None:
    seen: list[tuple[bytes, bytes]] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        seen.extend(scope["headers"])

    async def receive() -> Any:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        pytest.fail(f"the request was refused: {message}")

    headers = [(b"host", b"localhost"), (b"authorization", b"Bearer s3cret \t"), (b"mcp-name", b"  ask_a ")]
    scope = {"type": "http", "method": "POST", "path": "/", "query_string": b"", "headers": headers}
    await guard.AuthMiddleware(app, guard.RequestGuard("s3cret"))(scope, receive, send)

    assert (b"mcp-name", b"ask_a") in seen


@pytest.mark.parametrize("path", ["/.well-known/agent-card.json", "/"])
async def test_without_auth_the_agent_card_is_hidden_from_other_host_names(path: str) -> None:
    # The card describes the team, and a page can read it after rebinding its own name to 127.0.0.1.
    async with (
        served(a2a_app(_runner(), compat_03=True)) as url,
        served(a2a_app(_runner(), compat_03=True, auth="s3cret")) as with_auth,
        http_client(headers={"Host": "rebound.example"}) as http,
    ):
        refused = await http.get(url + path)
        assert (refused.status_code, "Secret plans" in refused.text) == (403, False)
        assert (await http.get(with_auth + path)).status_code == 200, "a card is public where callers authenticate"


@pytest.mark.parametrize("auth", [None, APIKeyAuth({"k": "ann"}, location="cookie", key_name="key")])
async def test_other_sites_cannot_cancel_or_resume_runs(auth: Any) -> None:
    # Neither request has a body, so a browser sends it without asking first.
    cookies = {"key": "k"} if auth else None
    async with (
        served(api_app(_runner(call("ask_me")), auth=auth)) as url,
        http_client(base_url=url, cookies=cookies) as http,
    ):
        await http.post("/runs", json={"input": "hi", "run_id": "r"})
        for action in ("cancel", "resume"):
            for headers in (EVIL, {"Origin": "https://evil.example"}, {"Sec-Fetch-Site": "same-site"}):
                refused = await http.post(f"/runs/r/{action}", headers=headers)
                assert (refused.status_code, refused.json()["error"]["code"]) == (403, "cross_site")
        own = {"Origin": url, "Sec-Fetch-Site": "same-origin"}
        assert (await http.post("/runs/r/cancel", headers=own)).json()["status"] == "cancelled"
        assert (await http.post("/runs/r/resume", headers={"Origin": url})).status_code == 202
        assert (await http.get("/runs/r", headers=EVIL)).status_code == 200, "reading changes nothing"


@pytest.mark.parametrize("app_name", POSTS)
@pytest.mark.parametrize(
    ("auth", "headers"), [(None, {}), (BasicAuth({"ann": "pw"}), {"Authorization": "Basic YW5uOnB3"})]
)
async def test_requests_of_other_sites_are_refused_by_every_app(
    app_name: str, auth: Any, headers: dict[str, str]
) -> None:
    make_app, request = POSTS[app_name]
    async with (
        served(make_app(_runner(), auth=auth)) as url,
        http_client(base_url=url, headers={**HEADERS, **headers}) as http,
    ):
        refused = await http.post(**request, headers=EVIL)
        assert refused.status_code == 403
        assert "cors_origins" in refused.text
        assert (await http.post(**request)).status_code in (200, 201)


@pytest.mark.parametrize("origins", [["https://ui.example"], ["*"]])
async def test_sites_named_in_cors_origins_may_send_requests(origins: list[str]) -> None:
    page = {"Origin": "https://ui.example", "Sec-Fetch-Site": "cross-site"}
    for make_app, request in POSTS.values():
        async with (
            served(make_app(_runner(), cors_origins=origins)) as url,
            http_client(base_url=url, headers=HEADERS) as http,
        ):
            assert (await http.post(**request, headers=page)).status_code in (200, 201)


async def test_credentials_that_browsers_do_not_add_need_no_origin() -> None:
    schemes = [BearerAuth({"t": "ann"}), APIKeyAuth({"k": "ann"}, name="key")]
    async with served(api_app(_runner(), auth=schemes)) as url, http_client(base_url=url) as http:
        for credentials in ({"Authorization": "Bearer t"}, {"X-API-Key": "k"}):
            sent = await http.post("/runs", json={"input": "hi"}, headers={**EVIL, **credentials})
            assert sent.status_code == 201


@pytest.mark.parametrize("app_name", POSTS)
async def test_a_body_that_stops_midway_is_not_waited_for(app_name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "BODY_SECONDS", 0.1)
    make_app, request = POSTS[app_name]
    async with served(make_app(_runner())) as url:
        reader, writer = await asyncio.open_connection("127.0.0.1", httpx.URL(url).port)
        head = f"POST {request['url']} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        writer.write(f"{head}A2A-Version: 1.0\r\nContent-Length: 100\r\n\r\n{{".encode())
        response = await reader.read()
        writer.close()
    assert response.startswith(b"HTTP/1.1 408"), "and the connection is closed"
    assert b"did not arrive in time" in response


@pytest.mark.parametrize(("size", "status"), [(10_000, 201), (1, 408)])
async def test_a_slow_body_is_read_while_enough_of_it_keeps_coming(
    size: int, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The deadline moves with every chunk.
    monkeypatch.setattr(guard, "BODY_SECONDS", 600.0)
    monkeypatch.setattr(guard, "MIN_BODY_RATE", 10)
    clock, background = LoopClock(), BackgroundRunner(_runner())

    async def chunks() -> AsyncGenerator[bytes]:
        yield b'{"input": "hi"}'
        for _ in range(10):
            clock.advance(300.0)
            for _ in range(3):
                await asyncio.sleep(0)  # A deadline that has passed cancels the request here.
            yield b" " * size

    app = httpx.ASGITransport(api_app(background))
    async with http_client(base_url="http://localhost", transport=app) as http:
        sent = await http.post("/runs", content=chunks(), headers={"Content-Type": "application/json"})
    await background.drain()
    assert sent.status_code == status
