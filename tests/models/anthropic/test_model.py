"""Claude through Anthropic's SDK and a real socket."""

import asyncio
import socket
from pathlib import Path
from typing import Any

import pytest
from tests.models.forwarding import counting_proxy
from tests.servers import AnthropicServer, HttpFault
from tests.waiting import PATIENCE

from batonkit.errors import (
    AuthenticationError,
    ContentFilterError,
    ModelConnectionError,
    ModelRequestError,
    ModelTimeoutError,
    RateLimitError,
)
from batonkit.messages import AssistantMessage, Reasoning, ToolCall, ToolMessage, ToolSpec, Usage, UserMessage
from batonkit.models import (
    Model,
    ModelRequest,
    ModelResponse,
    ModelSettings,
    ReasoningChunk,
    collect_response,
    resolve_model,
)
from batonkit.models.anthropic import AnthropicModel
from batonkit.testing import ScriptedStream, call, say

HELLO = ModelRequest((UserMessage("Hello"),), settings=ModelSettings(max_retries=0))
WAVE = ToolSpec("wave")


def model_at(server: AnthropicServer, name: str = "claude-opus-5-5") -> AnthropicModel:
    return AnthropicModel(name, api_key=server.api_key, base_url=server.base_url)


async def answer(model: Model, request: ModelRequest = HELLO) -> tuple[ModelResponse, AssistantMessage]:
    response = await collect_response(model.respond(request), model.name)
    assert response.message is not None
    return response, response.message


def test_a_string_resolves_to_the_model() -> None:
    model = resolve_model("anthropic:claude-opus-5-5")
    assert isinstance(model, AnthropicModel)
    assert model.name == "anthropic:claude-opus-5-5"


@pytest.mark.parametrize("where", ["HOME", "ANTHROPIC_CONFIG_DIR"])
async def test_a_missing_key_names_the_environment_variable(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, where: str
) -> None:
    for name in ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_PROFILE", "ANTHROPIC_CONFIG_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(where, str(tmp_path))
    with pytest.raises(AuthenticationError, match="set ANTHROPIC_API_KEY"):
        await answer(AnthropicModel("claude-opus-5-5", base_url="http://127.0.0.1:9"))


async def test_the_key_is_read_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    async with AnthropicServer(["Hi."]) as server:
        monkeypatch.setenv("ANTHROPIC_API_KEY", server.api_key)
        _, message = await answer(AnthropicModel("claude-opus-5-5", base_url=server.base_url))
    assert message.content == "Hi."


async def test_a_wrong_key_raises_an_authentication_error() -> None:
    async with AnthropicServer([]) as server:
        with pytest.raises(AuthenticationError, match="invalid x-api-key"):
            await answer(AnthropicModel("claude-opus-5-5", api_key="wrong", base_url=server.base_url))


async def test_reasoning_between_text_and_calls_is_sent_back_unchanged() -> None:
    thinking = ScriptedStream(
        *(Reasoning("First. "), Reasoning("", signature={"data": "hidden"}), "Wait. ", Reasoning("Second.")),
        *(ToolCall("c1", "wave"), Reasoning("Third."), ToolCall("c2", "wave")),
    )
    async with AnthropicServer([thinking, "Done."]) as server:
        model = model_at(server)
        _, message = await answer(model, ModelRequest((UserMessage("Hi"),), tools=(WAVE,)))
        results = [ToolMessage(each.id, each.name, "ok") for each in message.tool_calls]
        _, last = await answer(model, ModelRequest((UserMessage("Hi"), message, *results), tools=(WAVE,)))
    assert last.content == "Done."
    assert [each.text for each in message.reasoning] == ["First. ", "", "Second.", "Third."]
    blocks = server.requests[-1].body["messages"][1]["content"]
    assert [block["type"] for block in blocks] == [
        *("thinking", "redacted_thinking", "text", "thinking", "tool_use", "thinking", "tool_use"),
    ]


@pytest.mark.parametrize("stream", [True, False])
async def test_the_id_of_the_message_is_kept(stream: bool) -> None:
    async with AnthropicServer([ScriptedStream("Hel", "lo."), "Bye."]) as server:
        request = ModelRequest((UserMessage("Hi"),), stream=stream)
        ids = [(await answer(model_at(server), request))[0].id for _ in range(2)]
    assert [each.startswith("msg_") for each in ids] == [True, True]
    assert ids[0] != ids[1]


async def test_changed_reasoning_is_refused_by_the_provider() -> None:
    async with AnthropicServer([AssistantMessage("Yes.", reasoning=(Reasoning("Hm."),)), "Done."]) as server:
        model = model_at(server)
        _, message = await answer(model)
        (thought,) = message.reasoning
        changed = AssistantMessage("Yes.", reasoning=(Reasoning("Ha.", "anthropic", thought.signature),))
        with pytest.raises(ModelRequestError, match="Invalid `signature`"):
            await answer(model, ModelRequest((UserMessage("Hi"), changed, UserMessage("So?"))))


async def test_reasoning_is_streamed() -> None:
    gate = asyncio.Event()
    async with AnthropicServer(
        [ScriptedStream(ReasoningChunk("Let me "), gate, ReasoningChunk("see."), "Yes.")]
    ) as server:
        chunks = aiter(model_at(server).respond(HELLO))
        assert await anext(chunks) == ReasoningChunk("Let me ")
        gate.set()
        rest = [chunk async for chunk in chunks]
    assert rest[0] == ReasoningChunk("see.")


async def test_a_refusal_with_text_has_the_stop_reason_refusal() -> None:
    step = ModelResponse(AssistantMessage("I would rather not."), stop_reason="refusal")
    async with AnthropicServer([step]) as server:
        response, message = await answer(model_at(server))
    assert (response.stop_reason, message.content) == ("refusal", "I would rather not.")


async def test_a_refusal_without_text_raises_a_content_filter_error() -> None:
    async with AnthropicServer([ModelResponse(AssistantMessage(), stop_reason="refusal")]) as server:
        with pytest.raises(ContentFilterError) as raised:
            await answer(model_at(server))
    assert raised.value.__notes__ == ["The provider's explanation: The script says so."]


@pytest.mark.parametrize(
    ("step", "reason"),
    [
        ("Yes.", "stop"),
        (call("wave"), "tool_calls"),
        (ModelResponse(AssistantMessage("So"), stop_reason="length"), "length"),
    ],
)
async def test_stop_reasons_are_normalised(step: Any, reason: str) -> None:
    async with AnthropicServer([step]) as server:
        response, _ = await answer(model_at(server), ModelRequest((UserMessage("Hi"),), tools=(WAVE,)))
    assert response.stop_reason == reason


async def test_usage_includes_cached_and_reasoning_tokens() -> None:
    usage = Usage(100, 40, cached_tokens=60, reasoning_tokens=30)
    async with AnthropicServer([say("Yes.", usage=usage)]) as server:
        response, _ = await answer(model_at(server))
    assert response.usage == Usage(100, 40, cached_tokens=60, reasoning_tokens=30, model_calls=1)


async def test_older_models_get_the_temperature() -> None:
    async with AnthropicServer(["Yes."]) as server:
        settings = ModelSettings(temperature=0.5, top_p=0.25)
        await answer(model_at(server, "claude-sonnet-4-6"), ModelRequest((UserMessage("Hi"),), settings=settings))
    assert server.requests[0].headers["anthropic-version"] == "2023-06-01"
    assert (server.understood[0].settings.temperature, server.understood[0].settings.top_p) == (0.5, 0.25)


@pytest.mark.parametrize(
    ("status", "kind"), [(402, RateLimitError), (413, ModelRequestError), (408, ModelTimeoutError)]
)
async def test_http_statuses_map_to_errors(status: int, kind: type[Exception]) -> None:
    async with AnthropicServer([HttpFault(status)]) as server:
        with pytest.raises(kind):
            await answer(model_at(server))


async def test_an_html_error_page_is_quoted_in_the_error() -> None:
    async with AnthropicServer([HttpFault(502, body="<html>Bad gateway</html>")]) as server:
        with pytest.raises(Exception, match="Bad gateway") as raised:
            await answer(model_at(server))
    assert getattr(raised.value, "retryable", False)


async def test_an_unreachable_server_raises_a_connection_error() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        with pytest.raises(ModelConnectionError, match="cannot be reached") as raised:
            await answer(AnthropicModel("claude-opus-5-5", api_key="k", base_url=url))
    assert raised.value.retryable


async def test_a_model_can_be_used_in_consecutive_event_loops() -> None:
    async with AnthropicServer(["One.", "Two.", "Three."]) as server:
        model = model_at(server)

        def answer_in_new_loop() -> Any:
            return asyncio.run(answer(model))[1].content

        texts = [await asyncio.to_thread(answer_in_new_loop) for _ in range(2)]
        texts.append((await answer(model))[1].content)
    assert texts == ["One.", "Two.", "Three."]


async def test_consecutive_requests_share_one_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("batonkit.models.event_stream.SECONDS_TO_DRAIN", PATIENCE)
    async with (
        AnthropicServer(["One.", "Two.", "Three."]) as server,
        counting_proxy(server.origin) as (url, connections),
    ):
        model = AnthropicModel("claude-opus-5-5", api_key=server.api_key, base_url=url)
        texts = [(await answer(model))[1].content for _ in range(3)]
        await model.aclose()
        assert (texts, len(connections)) == (["One.", "Two.", "Three."], 1)
