"""Redirects are not followed: the conversation and the credentials reach no other address."""

from typing import Any

import pytest
from anthropic import AsyncAnthropic
from anthropic import DefaultAsyncHttpxClient as AnthropicHttpxClient
from openai import AsyncOpenAI, DefaultAsyncHttpxClient
from tests.journeys.providers import CHAT, CLAUDE, PROVIDERS, RESPONSES, Provider, close_model
from tests.models.openai.raw_server import RawServer, json_reply
from tests.servers import HttpFault

from batonkit import Agent, RetryModel, Runner
from batonkit.errors import ModelConnectionError
from batonkit.models import ModelSettings
from batonkit.models.openai import OpenAIModel

every_provider = pytest.mark.parametrize("provider", PROVIDERS, ids=lambda provider: provider.id)
SECRETS = ModelSettings(extra_headers={"x-secret": "s3cret"})


def redirect(url: str, status: int = 307) -> HttpFault:
    return HttpFault(status, headers={"location": url})


@every_provider
@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_redirect_to_another_origin_is_not_followed(provider: Provider, status: int) -> None:
    async with (
        provider.scripted(["I read all of it."]) as (elsewhere, _),
        provider.scripted([redirect(f"{elsewhere.origin}/v1/any?key=k", status)]) as (server, model),
    ):
        with pytest.raises(ModelConnectionError) as caught:
            await Runner(Agent("Desk"), model=model, model_settings=SECRETS).run("My secret.")
        assert len(server.requests) == 1
    assert elsewhere.requests == []
    assert str(caught.value) == (
        f"`{caught.value.model}` redirects to {elsewhere.origin}/v1/any (status {status}), and redirects are not "
        "followed, because the request holds the conversation and your credentials; if you trust that address, "
        "set base_url to it"
    )
    assert not caught.value.retryable


@every_provider
async def test_a_redirect_is_not_retried(provider: Provider) -> None:
    async with provider.scripted([redirect("https://other.example")]) as (server, model):
        with pytest.raises(ModelConnectionError, match=r"redirects to https://other\.example "):
            await Runner(Agent("Desk"), model=RetryModel(model)).run("Hi")
        assert len(server.requests) == 1


async def test_the_key_of_azure_reaches_no_other_origin() -> None:
    async with RawServer() as elsewhere, RawServer(json_reply({}, 307, location=elsewhere.base_url)) as server:
        model = OpenAIModel("gpt-4.1", provider="azure", base_url=server.base_url, api_key="key", api_version="v1")
        with pytest.raises(ModelConnectionError, match="redirects to"):
            await Runner(Agent("Desk"), model=model).run("Hi")
        assert server.requests[0].headers["api-key"] == "key"
        assert elsewhere.connections == 0
        await close_model(model)


@pytest.mark.parametrize(
    ("headers", "shown"),
    [
        ({"location": "/v1/elsewhere"}, "/v1/elsewhere"),
        ({"location": "http://[other"}, "an invalid address"),
        ({}, "no address"),
    ],
)
async def test_any_redirect_is_an_error_that_names_its_address(headers: dict[str, str], shown: str) -> None:
    async with CHAT.scripted([HttpFault(308, headers=headers)]) as (_, model):
        with pytest.raises(ModelConnectionError, match=f"redirects to {shown} "):
            await Runner(Agent("Desk"), model=model).run("Hi")


async def test_secrets_in_the_address_are_not_shown() -> None:
    async with CHAT.scripted([redirect("https://ada:s3cret@other.example/v1?key=s3cret#s3cret")]) as (_, model):
        with pytest.raises(ModelConnectionError, match=r"redirects to https://other\.example/v1 ") as caught:
            await Runner(Agent("Desk"), model=model).run("Hi")
    assert "s3cret" not in str(caught.value)


def openai_client(base_url: str, api_key: str) -> Any:
    http_client = DefaultAsyncHttpxClient(follow_redirects=False)
    return AsyncOpenAI(base_url=base_url, api_key=api_key, max_retries=0, http_client=http_client)


def anthropic_client(base_url: str, api_key: str) -> Any:
    http_client = AnthropicHttpxClient(follow_redirects=False)
    return AsyncAnthropic(base_url=base_url, api_key=api_key, max_retries=0, http_client=http_client)


@pytest.mark.parametrize(
    ("provider", "make_client"), [(CHAT, openai_client), (RESPONSES, openai_client), (CLAUDE, anthropic_client)]
)
async def test_a_client_of_your_own_that_follows_no_redirects_gives_the_same_error(
    provider: Provider, make_client: Any
) -> None:
    async with (
        provider.scripted(["I read all of it."]) as (elsewhere, _),
        provider.scripted([redirect(elsewhere.origin)]) as (server, _),
    ):
        client = make_client(server.base_url, server.api_key)
        model = provider.make(provider.model, client=client)
        with pytest.raises(ModelConnectionError, match=f"redirects to {elsewhere.origin} .status 307."):
            await Runner(Agent("Desk"), model=model).run("Hi")
        await close_model(model)
        await client.close()
    assert elsewhere.requests == []
