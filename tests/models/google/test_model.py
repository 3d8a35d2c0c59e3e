"""Gemini through Google's SDK and a real socket."""

import asyncio
import gc
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.models.forwarding import counting_proxy
from tests.servers import GoogleServer, HttpFault
from tests.unclosed import created

from batonkit.errors import (
    AuthenticationError,
    ContentFilterError,
    EmptyResponseError,
    MalformedResponseError,
    ModelConnectionError,
    ModelError,
    ModelRequestError,
    ModelTimeoutError,
    RateLimitError,
)
from batonkit.messages import AssistantMessage, Image, Reasoning, Text, ToolMessage, ToolSpec, Usage, UserMessage
from batonkit.models import Model, ModelRequest, ModelResponse, ModelSettings, collect_response, resolve_model
from batonkit.models.google import GoogleModel
from batonkit.testing import ScriptedStream, ScriptStep, call, say

HELLO = ModelRequest((UserMessage("Hello"),), settings=ModelSettings(max_retries=0))
WAVE = ToolSpec("wave")


def model_at(server: GoogleServer, name: str = "gemini-3.8-flash") -> GoogleModel:
    return GoogleModel(name, api_key=server.api_key, base_url=server.base_url)


@asynccontextmanager
async def scripted(*steps: ScriptStep) -> AsyncGenerator[tuple[GoogleModel, GoogleServer]]:
    async with GoogleServer(steps) as server:
        yield model_at(server), server


async def answer(model: Model, request: ModelRequest = HELLO) -> tuple[ModelResponse, AssistantMessage]:
    response = await collect_response(model.respond(request), model.name)
    assert response.message is not None
    return response, response.message


def test_a_string_resolves_to_the_model() -> None:
    assert isinstance(resolve_model("google:gemini-3.8-flash"), GoogleModel)
    assert resolve_model("google:gemini-3.8-flash").name == "google:gemini-3.8-flash"


async def test_the_id_of_the_response_is_kept() -> None:
    async with scripted(ScriptedStream("Hel", "lo."), "Bye.") as (model, _):
        ids = [(await answer(model))[0].id for _ in range(2)]
    assert [each.removeprefix("response").isdigit() for each in ids] == [True, True]
    assert ids[0] != ids[1]


async def test_a_missing_key_names_the_environment_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("GOOGLE_API_KEY", "GEMINI_API_KEY", "GOOGLE_GENAI_USE_VERTEXAI", "GOOGLE_GENAI_USE_ENTERPRISE"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(AuthenticationError, match="set GOOGLE_API_KEY or GEMINI_API_KEY"):
        await answer(GoogleModel("gemini-3.8-flash"))


async def test_a_wrong_key_raises_an_authentication_error() -> None:
    async with GoogleServer([]) as server:
        with pytest.raises(AuthenticationError, match="API key not valid"):
            await answer(GoogleModel("gemini-3.8-flash", api_key="wrong", base_url=server.base_url))


async def test_signatures_of_calls_are_sent_back_unchanged() -> None:
    thoughtful = AssistantMessage("Wait.", (call("wave", times=1), call("wave", times=2)), (Reasoning("Hm."),))
    async with scripted(thoughtful, "Done.") as (model, server):
        _, message = await answer(model, ModelRequest((UserMessage("Hi"),), tools=(WAVE,)))
        results = [ToolMessage(each.id, each.name, "ok") for each in message.tool_calls]
        await answer(model, ModelRequest((UserMessage("Hi"), message, *results), tools=(WAVE,)))
    assert message.reasoning[0] == Reasoning("Hm.", "google")
    (signature,) = [each.signature for each in message.reasoning if each.signature]
    assert (signature["call"], signature["name"]) == (0, "wave")
    parts = server.requests[-1].body["contents"][1]["parts"]
    assert [part.get("thoughtSignature") for part in parts] == [None, signature["signature"], None]


async def test_a_signature_of_text_is_sent_back_with_it() -> None:
    async with scripted(AssistantMessage("Yes.", reasoning=(Reasoning("Hm."),)), "Done.") as (model, server):
        _, message = await answer(model)
        await answer(model, ModelRequest((UserMessage("Hi"), message, UserMessage("So?"))))
    (part,) = server.requests[-1].body["contents"][1]["parts"]
    assert part["text"] == "Yes."
    assert part["thoughtSignature"]


async def test_a_changed_signature_is_refused_by_the_provider() -> None:
    async with scripted("Never said.") as (model, _):
        message = AssistantMessage("Yes.", reasoning=(Reasoning("", "google", {"signature": "Zm9yZ2Vk"}),))
        with pytest.raises(ModelRequestError, match="Thought signature is not valid"):
            await answer(model, ModelRequest((UserMessage("Hi"), message, UserMessage("So?"))))


async def test_a_tool_name_that_google_does_not_accept_is_mapped_back() -> None:
    def call_by_sent_name(request: ModelRequest) -> Any:
        return call(request.tools[0].name)

    async with scripted(call_by_sent_name) as (model, server):
        _, message = await answer(model, ModelRequest((UserMessage("Hi"),), tools=(ToolSpec("3d_print"),)))
    assert [each.name for each in message.tool_calls] == ["3d_print"]
    assert server.understood[0].tools[0].name == "_3d_print"


async def test_an_image_in_the_response() -> None:
    async with scripted(AssistantMessage((Text("Here."), Image(data=b"png")))) as (model, _):
        _, message = await answer(model)
    assert message.content == (Text("Here."), Image(data=b"png"))


async def test_a_blocked_prompt_raises_a_content_filter_error() -> None:
    async with scripted(ContentFilterError("not this")) as (model, _):
        with pytest.raises(ContentFilterError, match="SAFETY: not this"):
            await answer(model)


@pytest.mark.parametrize(
    ("step", "reason"),
    [
        ("Yes.", "stop"),
        (call("wave"), "tool_calls"),
        (ModelResponse(AssistantMessage("So"), stop_reason="length"), "length"),
    ],
)
async def test_stop_reasons_are_normalised(step: Any, reason: str) -> None:
    async with scripted(step) as (model, _):
        response, _ = await answer(model, ModelRequest((UserMessage("Hi"),), tools=(WAVE,)))
    assert response.stop_reason == reason


async def test_reasoning_that_uses_all_tokens_raises_an_empty_response_error() -> None:
    async with scripted(ModelResponse(AssistantMessage(), stop_reason="length")) as (model, _):
        with pytest.raises(EmptyResponseError, match="max_tokens") as raised:
            await answer(model)
    assert not raised.value.retryable


async def test_usage_includes_cached_and_reasoning_tokens() -> None:
    usage = Usage(100, 40, cached_tokens=60, reasoning_tokens=30)
    async with scripted(say("Yes.", usage=usage)) as (model, _):
        response, _ = await answer(model)
    assert response.usage == Usage(100, 40, cached_tokens=60, reasoning_tokens=30, model_calls=1)


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        (
            HttpFault(429, body={"error": {"code": 429, "message": "Quota", "status": "RESOURCE_EXHAUSTED"}}),
            RateLimitError,
        ),
        (HttpFault(504), ModelTimeoutError),
        (HttpFault(403), AuthenticationError),
        (HttpFault(502, body="<html>Bad gateway</html>"), ModelError),
    ],
)
async def test_http_statuses_map_to_errors(fault: HttpFault, kind: type[ModelError]) -> None:
    async with scripted(fault) as (model, server):
        with pytest.raises(kind):
            await answer(model)
        assert len(server.requests) == 1


@pytest.mark.parametrize("broken", ['{"candidates": 7}', '{"candidates": [{"content": {"parts": [{"text": []}]}}]}'])
async def test_a_malformed_chunk_raises_a_malformed_response_error(broken: str) -> None:
    async with scripted(ScriptedStream("So ", MalformedResponseError(broken))) as (model, _):
        with pytest.raises(MalformedResponseError, match="not as documented"):
            await answer(model)


async def test_a_request_that_the_sdk_rejects_raises_a_model_request_error() -> None:
    settings = ModelSettings(extra_headers={"x-number": 7})  # pyright: ignore[reportArgumentType]
    async with scripted("Never said.") as (model, server):
        with pytest.raises(ModelRequestError, match="the SDK reports"):
            await answer(model, ModelRequest((UserMessage("Hi"),), settings=settings))
    assert server.requests == []


async def test_an_unreachable_server_raises_a_connection_error() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        with pytest.raises(ModelConnectionError, match="cannot be reached") as raised:
            await answer(GoogleModel("gemini-3.8-flash", api_key="k", base_url=url))
    assert raised.value.retryable


async def test_a_model_can_be_used_in_consecutive_event_loops() -> None:
    async with GoogleServer(["One.", "Two.", "Three."]) as server:
        model = model_at(server)

        def answer_in_new_loop() -> Any:
            return asyncio.run(answer(model))[1].content

        texts = [await asyncio.to_thread(answer_in_new_loop) for _ in range(2)]
        texts.append((await answer(model))[1].content)
    assert texts == ["One.", "Two.", "Three."]


async def test_a_closed_model_starts_no_task_when_it_is_garbage_collected() -> None:
    async with GoogleServer(["One."]) as server:
        model = model_at(server)
        await answer(model)
        await model.aclose()
        before = asyncio.all_tasks()
        created.clear()
        del model
        gc.collect()
        assert asyncio.all_tasks() <= before


async def test_consecutive_requests_share_one_connection() -> None:
    async with GoogleServer(["One.", "Two.", "Three."]) as server, counting_proxy(server.origin) as (url, connections):
        model = GoogleModel("gemini-3.8-flash", api_key=server.api_key, base_url=url)
        texts = [(await answer(model))[1].content for _ in range(3)]
        await model.aclose()
        assert (texts, len(connections)) == (["One.", "Two.", "Three."], 1)
