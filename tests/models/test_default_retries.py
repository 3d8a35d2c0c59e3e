"""The models of providers repeat a request that fails before its response has begun."""

import asyncio
import logging
from collections.abc import Callable
from typing import TypeAlias

import pytest
from anthropic import AsyncAnthropic
from openai import AsyncOpenAI
from tests.loop_clock import LoopClock
from tests.servers import AnthropicServer, GoogleServer, HttpFault, OpenAIServer, ProviderServer
from tests.waiting import until

from batonkit import Agent, Limits, ModelSettings, Runner
from batonkit.errors import (
    AuthenticationError,
    EmptyResponseError,
    MalformedResponseError,
    ModelConnectionError,
    ModelError,
    OverloadedError,
    RateLimitError,
    SetupError,
)
from batonkit.messages import Content, UserMessage
from batonkit.models import FallbackModel, Model, ModelRequest, RetryModel, collect_response
from batonkit.models.anthropic import AnthropicModel
from batonkit.models.google import GoogleModel
from batonkit.models.openai import OpenAIModel
from batonkit.testing import ScriptedStream, ScriptStep

MakeServer: TypeAlias = Callable[[list[ScriptStep]], ProviderServer]
MakeModel: TypeAlias = Callable[[ProviderServer], Model]


def chat(server: ProviderServer) -> Model:
    return OpenAIModel("gpt-5", base_url=server.base_url, api_key=server.api_key)


def responses(server: ProviderServer) -> Model:
    return OpenAIModel("gpt-5", api="responses", base_url=server.base_url, api_key=server.api_key)


def anthropic(server: ProviderServer) -> Model:
    return AnthropicModel("claude-sonnet-5", base_url=server.base_url, api_key=server.api_key)


def google(server: ProviderServer) -> Model:
    return GoogleModel("gemini-3-flash", base_url=server.base_url, api_key=server.api_key)


PROVIDERS = pytest.mark.parametrize(
    ("make_server", "make_model"),
    [(OpenAIServer, chat), (OpenAIServer, responses), (AnthropicServer, anthropic), (GoogleServer, google)],
    ids=["chat", "responses", "anthropic", "google"],
)


def busy() -> ModelError:
    """Return a fault that may be repeated at once."""
    return RateLimitError("slow down", retryable=True, retry_after=0)


async def ask(model: Model, settings: ModelSettings | None = None) -> Content:
    request = ModelRequest((UserMessage("Hello"),), settings=settings or ModelSettings())
    response = await collect_response(model.respond(request))
    assert response.message is not None
    return response.message.content


@PROVIDERS
async def test_a_request_is_sent_up_to_three_times(make_server: MakeServer, make_model: MakeModel) -> None:
    async with make_server([busy(), busy(), "Here I am."]) as server:
        assert await ask(make_model(server)) == "Here I am."
        assert len(server.requests) == 3


@PROVIDERS
async def test_the_last_error_has_the_number_of_attempts(make_server: MakeServer, make_model: MakeModel) -> None:
    async with make_server([busy(), busy(), busy(), "never asked for"]) as server:
        model = make_model(server)
        with pytest.raises(RateLimitError) as raised:
            await ask(model)
        assert len(server.requests) == 3
    assert raised.value.attempts == 3
    assert raised.value.__notes__[-1] == (
        f"`{model.name}` was called 3 times; not retried because ModelSettings(max_retries=2) allows no more"
    )


@pytest.mark.parametrize(("retries", "requests"), [(0, 1), (1, 2), (4, 5)])
async def test_the_settings_change_the_number_of_retries(retries: int, requests: int) -> None:
    async with OpenAIServer([busy()] * 5) as server:
        with pytest.raises(RateLimitError) as raised:
            await ask(chat(server), ModelSettings(max_retries=retries))
        assert len(server.requests) == requests
    assert raised.value.attempts == requests


def test_a_negative_number_of_retries_is_refused() -> None:
    with pytest.raises(SetupError, match=r"ModelSettings\(max_retries=-1\) must be at least 0"):
        ModelSettings(max_retries=-1)


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    """The log, which says when the wait for the next attempt begins."""
    caplog.set_level(logging.INFO, logger="baton.models")
    return caplog


async def test_a_connection_that_was_cut_before_the_response_is_opened_again(log: pytest.LogCaptureFixture) -> None:
    async with OpenAIServer([ModelConnectionError("cut"), "Here I am."]) as server:
        clock = LoopClock()
        answer = asyncio.create_task(ask(chat(server)))
        await until(lambda: "failed with ModelConnectionError; attempt 2 of 3 follows" in log.text)
        clock.advance(0.5)
        assert await answer == "Here I am."


async def test_the_wait_is_what_the_provider_asks_for(log: pytest.LogCaptureFixture) -> None:
    async with OpenAIServer([RateLimitError("slow down", retryable=True, retry_after=40), "Here I am."]) as server:
        clock = LoopClock()
        answer = asyncio.create_task(ask(chat(server)))
        await until(lambda: "attempt 2 of 3 follows in 40.00 s" in log.text)
        clock.advance(30)
        await asyncio.sleep(0)
        assert len(server.requests) == 1
        clock.advance(10)
        assert await answer == "Here I am."


async def test_a_provider_that_asks_to_wait_too_long_ends_the_call_at_once() -> None:
    async with OpenAIServer([RateLimitError("slow down", retryable=True, retry_after=61), "never asked for"]) as server:
        with pytest.raises(RateLimitError) as raised:
            await ask(chat(server))
        assert len(server.requests) == 1
    assert (raised.value.attempts, raised.value.retry_after) == (1, 61)
    assert raised.value.__notes__ == [
        "`openai:gpt-5` was called once; not retried because the provider asks to wait 61 s; "
        "RetryModel(max_retry_after=…) waits longer"
    ]


@pytest.mark.parametrize(
    "step",
    [
        AuthenticationError("wrong key"),
        HttpFault(429, body={"error": {"message": "used up", "code": "insufficient_quota"}}),
        MalformedResponseError("<html>wrong base_url</html>"),
        EmptyResponseError("nothing", retryable=True),
        HttpFault(503, headers={"x-should-retry": "false"}),
    ],
    ids=["key", "quota", "malformed", "empty", "refused"],
)
async def test_a_failure_that_another_attempt_would_repeat_is_not_retried(step: ModelError) -> None:
    async with OpenAIServer([step, "never asked for"]) as server:
        with pytest.raises(ModelError) as raised:
            await ask(chat(server))
        assert len(server.requests) == 1
    assert raised.value.attempts == 1


@PROVIDERS
async def test_nothing_is_sent_again_once_a_piece_has_arrived(make_server: MakeServer, make_model: MakeModel) -> None:
    async with make_server([ScriptedStream("So far", busy()), "never asked for"]) as server:
        with pytest.raises(ModelError):
            await ask(make_model(server))
        assert len(server.requests) == 1


async def test_a_server_that_fails_in_a_stream_without_content_is_asked_again(log: pytest.LogCaptureFixture) -> None:
    overloaded = OverloadedError("busy", retryable=True)
    async with AnthropicServer([ScriptedStream("", overloaded), "Here I am."]) as server:
        clock = LoopClock()
        answer = asyncio.create_task(ask(anthropic(server)))
        await until(lambda: "failed with OverloadedError; attempt 2 of 3 follows" in log.text)
        clock.advance(0.5)
        assert await answer == "Here I am."


async def test_all_attempts_are_one_model_call_of_the_run() -> None:
    async with OpenAIServer([busy(), busy(), "Here I am."]) as server:
        result = await Runner(Agent("Clerk", model=chat(server)), limits=Limits(model_calls=1)).run("Hello")
    assert result.output == "Here I am."
    assert result.usage.total.model_calls == 1


async def test_the_settings_of_a_runner_apply() -> None:
    async with OpenAIServer([busy(), "never asked for"]) as server:
        runner = Runner(Agent("Clerk", model=chat(server)), model_settings=ModelSettings(max_retries=0))
        with pytest.raises(RateLimitError):
            await runner.run("Hello")
        assert len(server.requests) == 1


async def test_cancelling_ends_the_wait_for_the_next_attempt(log: pytest.LogCaptureFixture) -> None:
    async with OpenAIServer([RateLimitError("slow down", retryable=True, retry_after=50), "never asked for"]) as server:
        answer = asyncio.create_task(ask(chat(server)))
        await until(lambda: "attempt 2 of 3 follows" in log.text)
        answer.cancel()
        with pytest.raises(asyncio.CancelledError):
            await answer
        assert len(server.requests) == 1


@pytest.mark.parametrize(("own_retries", "requests"), [(0, 1), (1, 2), (2, 3)])
async def test_the_retries_of_a_client_of_openai_are_not_multiplied(own_retries: int, requests: int) -> None:
    async with (
        OpenAIServer([busy()] * 9) as server,
        AsyncOpenAI(base_url=server.base_url, api_key=server.api_key, max_retries=own_retries) as client,
    ):
        with pytest.raises(RateLimitError) as raised:
            await ask(OpenAIModel("gpt-5", client=client))
        assert len(server.requests) == raised.value.attempts == requests
        with pytest.raises(RateLimitError):
            await ask(OpenAIModel("gpt-5", client=client), ModelSettings(max_retries=1))
        assert len(server.requests) == requests + 2


async def test_the_retries_of_a_client_of_anthropic_are_not_multiplied() -> None:
    async with (
        AnthropicServer([busy()] * 9) as server,
        AsyncAnthropic(base_url=server.base_url, api_key=server.api_key, max_retries=1) as client,
    ):
        with pytest.raises(RateLimitError) as raised:
            await ask(AnthropicModel("claude-sonnet-5", client=client))
        assert len(server.requests) == raised.value.attempts == 2


async def test_retry_model_replaces_the_default_retries() -> None:
    async with OpenAIServer([busy()] * 9) as server:
        with pytest.raises(RateLimitError) as raised:
            await ask(RetryModel(chat(server), attempts=2))
        assert len(server.requests) == raised.value.attempts == 2


async def test_fallback_model_asks_the_next_model_at_once_and_retries_the_last() -> None:
    async with OpenAIServer([busy(), "never asked for"]) as down, OpenAIServer([busy(), busy(), "Here I am."]) as spare:
        assert await ask(FallbackModel(chat(down), chat(spare))) == "Here I am."
        assert (len(down.requests), len(spare.requests)) == (1, 3)


async def test_fallback_model_retries_every_model_if_the_settings_say_so() -> None:
    async with OpenAIServer([busy(), busy()]) as down, OpenAIServer(["Here I am."]) as spare:
        assert await ask(FallbackModel(chat(down), chat(spare)), ModelSettings(max_retries=1)) == "Here I am."
        assert (len(down.requests), len(spare.requests)) == (2, 1)
