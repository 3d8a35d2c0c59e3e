"""Models through LiteLLM, against OpenAI's server; collected only where LiteLLM is installed."""

import asyncio
from collections.abc import AsyncIterator
from importlib import import_module
from typing import Any

import pytest
from tests.models.openai.raw_server import RawServer, delta, stream
from tests.servers import OpenAIServer

from batonkit.errors import (
    AuthenticationError,
    EmptyResponseError,
    ModelConnectionError,
    ModelError,
    ModelNotFoundError,
    ModelRequestError,
    ModelTimeoutError,
    OverloadedError,
    RateLimitError,
)
from batonkit.messages import (
    AssistantMessage,
    Image,
    Reasoning,
    Text,
    TokenLogprob,
    ToolMessage,
    ToolSpec,
    Usage,
    UserMessage,
)
from batonkit.models import ModelRequest, ModelResponse, ModelSettings, TextChunk, collect_response, resolve_model
from batonkit.models.litellm import LiteLLMModel
from batonkit.testing import ScriptedStream, call, say

# LiteLLM and its dependencies emit warnings.
pytestmark = pytest.mark.filterwarnings("ignore")
litellm_types: Any = import_module("litellm.types.utils")
WAVE = ToolSpec("wave", "Wave a hand.")
HELLO = (UserMessage("Hello"),)


def model_at(server: OpenAIServer) -> LiteLLMModel:
    return LiteLLMModel("openai/gpt-test", api_key=server.api_key, base_url=server.base_url)


async def answer(server: OpenAIServer, *messages: Any, **fields: Any) -> tuple[ModelResponse, AssistantMessage]:
    settings = ModelSettings(max_retries=0).merge(fields.pop("settings", None))
    request = ModelRequest(messages or HELLO, "Be kind.", settings=settings, **fields)
    response = await collect_response(model_at(server).respond(request))
    assert response.message is not None
    return response, response.message


def test_a_string_resolves_to_the_model() -> None:
    assert (
        resolve_model("litellm:bedrock/anthropic.claude-opus-5-5").name == "litellm:bedrock/anthropic.claude-opus-5-5"
    )


async def test_calls_and_results_round_trip() -> None:
    async with OpenAIServer([say("Wait.", call("wave", times=1), call("wave", times=2)), "Done."]) as server:
        response, message = await answer(server, tools=(WAVE,))
        results = [ToolMessage(each.id, each.name, "ok") for each in message.tool_calls]
        _, last = await answer(server, *HELLO, message, *results, tools=(WAVE,))
    assert (message.content, response.stop_reason, last.content) == ("Wait.", "tool_calls", "Done.")
    assert [each.arguments for each in message.tool_calls] == ['{"times":1}', '{"times":2}']


async def test_the_id_of_the_response_is_kept() -> None:
    async with OpenAIServer([ScriptedStream("Hel", "lo."), "Bye."]) as server:
        ids = [(await answer(server))[0].id for _ in range(2)]
    assert [each.startswith("chatcmpl-") for each in ids] == [True, True]
    assert ids[0] != ids[1]


async def test_instructions_settings_and_messages_reach_the_provider() -> None:
    settings = ModelSettings(temperature=0.5, max_tokens=9, stop_sequences=("END",), seed=7)
    async with OpenAIServer(["Yes."]) as server:
        image_message = UserMessage((Text("Look:"), Image(data=b"png")))
        await answer(server, image_message, tools=(WAVE,), tool_choice="wave", settings=settings)
    request = server.understood[0]
    assert request.instructions == "Be kind."
    assert (request.settings, request.tool_choice) == (settings, "wave")
    assert request.messages == (image_message,)


async def test_shared_settings_reach_the_provider() -> None:
    settings = ModelSettings(presence_penalty=0.5, frequency_penalty=-0.5, top_logprobs=2, service_tier="flex")
    logprobs = (TokenLogprob("Yes", -0.25, (TokenLogprob("Yes", -0.25), TokenLogprob("No", -1.5))),)
    async with OpenAIServer([ModelResponse(AssistantMessage("Yes"), logprobs=logprobs)]) as server:
        response, _ = await answer(server, settings=settings)
    assert server.understood[0].settings == settings.merge(ModelSettings(logprobs=True))
    assert response.logprobs == logprobs


async def test_settings_that_the_provider_lacks_are_refused_by_name() -> None:
    async with OpenAIServer(["Yes."]) as server:
        with pytest.raises(
            ModelRequestError, match=r"openai does not support parameters: \['verbosity'\].* leave it out"
        ):
            await answer(server, settings=ModelSettings(verbosity="low"))
        with pytest.raises(ModelRequestError, match=r"does not support ModelSettings\(truncation=…\)"):
            await answer(server, settings=ModelSettings(truncation="auto"))
        assert server.understood == []
        await answer(server, settings=ModelSettings(verbosity="low", truncation="auto", ignore_unsupported=True))
    assert server.understood[0].settings == ModelSettings()


def test_arguments_of_one_provider_are_passed_on() -> None:
    model = LiteLLMModel("some/model", top_k=5, aws_region_name="eu-west-1", vertex_ai_project="p", temperature=0.5)
    assert model.name == "litellm:some/model"


async def test_reasoning_is_sent_back_with_its_signature(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    signed = {"type": "thinking", "thinking": "Let me see.", "signature": "s1"}
    deltas: tuple[Any, ...] = (
        litellm_types.Delta(reasoning_content="Let me ", thinking_blocks=[{"type": "thinking", "thinking": "Let me "}]),
        litellm_types.Delta(reasoning_content="see."),
        litellm_types.Delta(reasoning_content="", thinking_blocks=[signed]),
        litellm_types.Delta(content="Yes."),
    )

    async def pieces() -> AsyncIterator[Any]:
        for each in deltas:
            yield litellm_types.ModelResponseStream(choices=[litellm_types.StreamingChoices(delta=each)])

    async def acompletion(**parameters: Any) -> AsyncIterator[Any]:
        asked.append(parameters)
        return pieces()

    monkeypatch.setattr("litellm.acompletion", acompletion)
    model = LiteLLMModel("anthropic/claude")
    response = await collect_response(model.respond(ModelRequest(HELLO)))
    assert response.message is not None
    assert response.message.content == "Yes."
    assert response.message.reasoning == (Reasoning("Let me see.", "litellm", {"thinking_blocks": [signed]}),)
    await collect_response(model.respond(ModelRequest((*HELLO, response.message, *HELLO))))
    assert asked[1]["messages"][1] == {"role": "assistant", "content": "Yes.", "thinking_blocks": [signed]}


async def test_usage_is_reported() -> None:
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
async def test_failures_map_to_errors(kind: type[ModelError]) -> None:
    async with OpenAIServer([kind("on purpose", retry_after=3)]) as server:
        with pytest.raises(kind) as raised:
            await answer(server)
        assert len(server.requests) == 1
    assert raised.value.retry_after == (3 if kind in (RateLimitError, OverloadedError) else None)


async def test_a_timeout_raises_a_timeout_error() -> None:
    async with OpenAIServer([ModelTimeoutError("never")]) as server:
        with pytest.raises(ModelTimeoutError):
            await answer(server, settings=ModelSettings(timeout=0.05))


async def test_a_connection_lost_in_the_middle_raises_a_connection_error() -> None:
    async with OpenAIServer([ScriptedStream("So ", ModelConnectionError("cut"))]) as server:
        with pytest.raises(ModelConnectionError, match="in the middle"):
            await answer(server)


async def test_a_stream_that_ends_before_its_stop_reason_raises_a_connection_error() -> None:
    payloads = [delta(content="So "), delta(content="far")]
    async with RawServer(stream(*payloads)) as server:
        model = LiteLLMModel("openai/gpt-test", api_key="key", base_url=server.base_url)
        with pytest.raises(ModelConnectionError, match="in the middle"):
            await collect_response(model.respond(ModelRequest(HELLO)))


async def test_closing_the_response_disconnects() -> None:
    async with OpenAIServer([ScriptedStream("So ", asyncio.Event())]) as server:
        chunks = model_at(server).respond(ModelRequest(HELLO))
        assert await anext(aiter(chunks)) == TextChunk("So ")
        await chunks.aclose()  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
        await server.client_left()
