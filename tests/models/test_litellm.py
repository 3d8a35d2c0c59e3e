"""Models through LiteLLM, against OpenAI's server; collected only where LiteLLM is installed."""

import asyncio
from typing import Any

import pytest
from tests.servers import OpenAIServer

from baton.errors import (
    AuthenticationError,
    EmptyResponseError,
    ModelConnectionError,
    ModelError,
    ModelNotFoundError,
    ModelTimeoutError,
    OverloadedError,
    RateLimitError,
)
from baton.messages import AssistantMessage, Image, Text, ToolMessage, ToolSpec, Usage, UserMessage
from baton.models import ModelRequest, ModelResponse, ModelSettings, TextChunk, collect_response, resolve_model
from baton.models.litellm import LiteLLMModel
from baton.testing import ScriptedStream, call, say

# LiteLLM and what it depends on warn of their own doings.
pytestmark = pytest.mark.filterwarnings("ignore")
WAVE = ToolSpec("wave", "Wave a hand.")
HELLO = (UserMessage("Hello"),)


def model_at(server: OpenAIServer) -> LiteLLMModel:
    return LiteLLMModel("openai/gpt-test", api_key=server.api_key, base_url=server.base_url)


async def answer(server: OpenAIServer, *messages: Any, **fields: Any) -> tuple[ModelResponse, AssistantMessage]:
    response = await collect_response(model_at(server).respond(ModelRequest(messages or HELLO, "Be kind.", **fields)))
    assert response.message is not None
    return response, response.message


def test_a_string_names_it() -> None:
    assert (
        resolve_model("litellm:bedrock/anthropic.claude-opus-5-5").name == "litellm:bedrock/anthropic.claude-opus-5-5"
    )


async def test_calls_and_their_results() -> None:
    async with OpenAIServer([say("Wait.", call("wave", times=1), call("wave", times=2)), "Done."]) as server:
        response, said = await answer(server, tools=(WAVE,))
        results = [ToolMessage(each.id, each.name, "ok") for each in said.tool_calls]
        _, last = await answer(server, *HELLO, said, *results, tools=(WAVE,))
    assert (said.content, response.stop_reason, last.content) == ("Wait.", "tool_calls", "Done.")
    assert [each.arguments for each in said.tool_calls] == ['{"times":1}', '{"times":2}']


async def test_what_is_told() -> None:
    settings = ModelSettings(temperature=0.5, max_tokens=9, stop_sequences=("END",), seed=7)
    async with OpenAIServer(["Yes."]) as server:
        picture = UserMessage((Text("Look:"), Image(data=b"png")))
        await answer(server, picture, tools=(WAVE,), tool_choice="wave", settings=settings)
    asked = server.understood[0]
    assert asked.instructions == "Be kind."
    assert (asked.settings, asked.tool_choice) == (settings, "wave")
    assert asked.messages == (picture,)


async def test_usage() -> None:
    async with OpenAIServer([say("Yes.", usage=Usage(70, 20, cached_tokens=30, reasoning_tokens=5))]) as server:
        response, _ = await answer(server)
    assert response.usage == Usage(70, 20, cached_tokens=30, reasoning_tokens=5, model_calls=1)


@pytest.mark.parametrize(
    "kind",
    [
        *(AuthenticationError, ModelNotFoundError, RateLimitError, OverloadedError, ModelConnectionError),
        EmptyResponseError,
    ],
)
async def test_failures(kind: type[ModelError]) -> None:
    async with OpenAIServer([kind("on purpose", retry_after=3)]) as server:
        with pytest.raises(kind) as raised:
            await answer(server)
        assert len(server.requests) == 1
    assert raised.value.retry_after == (3 if kind in (RateLimitError, OverloadedError) else None)


async def test_no_answer_in_time() -> None:
    async with OpenAIServer([ModelTimeoutError("never")]) as server:
        with pytest.raises(ModelTimeoutError):
            await answer(server, settings=ModelSettings(timeout=0.05))


async def test_a_cut_in_the_middle() -> None:
    async with OpenAIServer([ScriptedStream("So ", ModelConnectionError("cut"))]) as server:
        with pytest.raises(ModelConnectionError, match="in the middle"):
            await answer(server)


async def test_closing_ends_the_call() -> None:
    async with OpenAIServer([ScriptedStream("So ", asyncio.Event())]) as server:
        chunks = model_at(server).respond(ModelRequest(HELLO))
        assert await anext(aiter(chunks)) == TextChunk("So ")
        await chunks.aclose()  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
        await server.client_left(within=10)
