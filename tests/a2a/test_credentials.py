"""Credentials are sent to the service that they are for, and to no other origin."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from a2a.types.a2a_pb2 import AgentCard
from starlette.requests import Request
from starlette.responses import RedirectResponse
from starlette.types import Receive, Scope, Send
from tests.serve.a2a.clients import served

from batonkit import Agent, Runner
from batonkit.a2a import RemoteAgent
from batonkit.errors import RemoteError, SetupError
from batonkit.serve.a2a import a2a_app
from batonkit.testing import ScriptedModel


class _Recorded:
    """An app that records the headers of its requests."""

    def __init__(self, app: Any) -> None:
        self.app = app
        self.headers: list[dict[str, str]] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            self.headers.append(dict(Request(scope).headers))
        await self.app(scope, receive, send)


class _Redirecting:
    """An app that redirects the requests for its card, or all others."""

    def __init__(self, app: Any, target: str, *, is_card: bool) -> None:
        self.app = app
        self.target = target
        self.is_card = is_card

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        app = self.app
        if scope["type"] == "http" and scope["path"].startswith("/.well-known/") == self.is_card:
            app = RedirectResponse(f"{self.target}{scope['path']}", 307)
        await app(scope, receive, send)


@asynccontextmanager
async def _two_origins() -> AsyncGenerator[tuple[str, _Recorded, str, _Recorded]]:
    """Serve an agent at one origin, and at another the card that names it."""
    elsewhere = _Recorded(a2a_app(Agent("There", model=ScriptedModel(["hello"], cycle=True))))
    async with served(elsewhere) as service_url:
        card = _Recorded(a2a_app(Agent("There", description="Is there.", model=ScriptedModel([])), url=service_url))
        async with served(card) as card_url:
            yield card_url, card, service_url, elsewhere


@pytest.mark.parametrize("credentials", [{"auth": "s3cret"}, {"headers": {"X-Key": "s3cret"}}])
async def test_credentials_are_not_sent_to_another_origin_that_the_card_names(credentials: Any) -> None:
    async with _two_origins() as (url, card, service_url, elsewhere):
        remote = RemoteAgent(url, name="There", description="There.", **credentials)
        with pytest.raises(RemoteError, match=f"trusted_origins.*{service_url}"):
            await Runner(remote).run("hi")
        assert "s3cret" in str(card.headers), "the origin of the URL gets them"
        assert elsewhere.headers == []
        await remote.close()
        with pytest.raises(SetupError, match=f"trusted_origins.*{service_url}"):
            await RemoteAgent.discover(url, **credentials)
        assert elsewhere.headers == []


@pytest.mark.parametrize("is_card", [True, False], ids=["of the card", "of a request"])
async def test_a_redirect_to_another_origin_is_not_followed(is_card: bool) -> None:
    elsewhere = _Recorded(a2a_app(Agent("There", model=ScriptedModel(["hello"], cycle=True))))
    here = a2a_app(Agent("There", description="Is there.", model=ScriptedModel(["hello"], cycle=True)))
    async with served(elsewhere) as other_url, served(_Redirecting(here, other_url, is_card=is_card)) as url:
        remote = RemoteAgent(url, name="There", description="There.", auth="s3cret", headers={"X-Key": "k"})
        with pytest.raises(RemoteError, match=r"307"):
            await Runner(remote).run("hi")
        await remote.close()
    assert elsewhere.headers == []


async def test_a_trusted_origin_gets_the_credentials() -> None:
    async with _two_origins() as (url, _, service_url, elsewhere):
        options: Any = {"auth": "s3cret", "headers": {"X-Key": "k"}, "trusted_origins": [service_url]}
        for remote in (RemoteAgent(url, name="There", **options), await RemoteAgent.discover(url, **options)):
            assert (await Runner(remote).run("hi")).output == "hello"
            await remote.close()
        assert {(each["authorization"], each["x-key"]) for each in elsewhere.headers} == {("Bearer s3cret", "k")}


async def test_without_credentials_a_card_may_name_any_origin() -> None:
    async with _two_origins() as (url, _, _, elsewhere):
        remote = await RemoteAgent.discover(url)
        assert (await Runner(remote).run("hi")).output == "hello"
        assert elsewhere.headers
        await remote.close()


async def test_a_discovered_agent_sends_its_credentials_to_the_origin_it_was_discovered_at() -> None:
    app = a2a_app(Agent("A", model=ScriptedModel(["hello"], cycle=True)), auth="s3cret")
    async with served(app) as url:
        for given in ("s3cret", lambda: {"Authorization": "Bearer s3cret"}, _headers):
            remote = await RemoteAgent.discover(url, auth=given)
            assert (await Runner(remote).run("hi")).output == "hello"
            await remote.close()


async def _headers() -> dict[str, str]:
    return {"Authorization": "Bearer s3cret"}


def test_a_card_with_credentials_needs_the_origins_to_trust() -> None:
    card = AgentCard(name="A")
    card.supported_interfaces.add(url="https://example.com/a2a", protocol_binding="JSONRPC", protocol_version="1.0")
    with pytest.raises(SetupError, match=r"trusted_origins=\['https://example.com'\]"):
        RemoteAgent(card, auth="s3cret")
    assert RemoteAgent(card, auth="s3cret", trusted_origins=["https://example.com:443/anything"]).name == "A"
    with pytest.raises(SetupError, match="trusted_origins"):
        RemoteAgent("https://example.com", auth="s3cret", trusted_origins=["ftp://example.com"])
    with pytest.raises(SetupError, match="trusted_origins"):
        RemoteAgent("https://example.com", auth="s3cret", trusted_origins="https://example.com")
