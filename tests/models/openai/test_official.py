"""What we send is what the official client sends for the same call, and that client can carry our requests."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any, cast

import pytest
from openai import AsyncAzureOpenAI, AsyncOpenAI
from tests.models.openai.raw import CUT, HANG, STREAM, Asked, RawServer, answered, delta, event, heard, stream, whole

from baton.errors import (
    AuthenticationError,
    MalformedResponseError,
    ModelConnectionError,
    ModelTimeoutError,
    RateLimitError,
)
from baton.messages import AssistantMessage, Image, Text, ToolCall, ToolMessage, ToolSpec, UserMessage
from baton.models import Chunk, ModelRequest, ModelSettings, OutputSchema, TextChunk
from baton.models.openai import OpenAIModel

SCHEMA = {
    "type": "object",
    "properties": {"sum": {"type": "integer"}},
    "required": ["sum"],
    "additionalProperties": False,
}
REQUEST = ModelRequest(
    [
        UserMessage((Text("What is this?"), Image(data=b"123", detail="low"))),
        AssistantMessage("Let me see.", (ToolCall("call_1", "add", '{"a": 1}'),)),
        ToolMessage("call_1", "add", "1"),
        UserMessage("Go on."),
    ],
    instructions="Be brief.",
    tools=(ToolSpec("add", "Adds.", SCHEMA, strict=True), ToolSpec("now")),
    settings=ModelSettings(
        temperature=0.5,
        top_p=0.9,
        max_tokens=100,
        parallel_tool_calls=False,
        reasoning_effort="low",
        stop_sequences=("END",),
        seed=7,
        timeout=9.0,
        extra_headers={"X-Trace": "1"},
        extra_body={"service_tier": "flex"},
    ),
    tool_choice="add",
    output_schema=OutputSchema("Sum", SCHEMA, strict=True),
)
EMPTY: dict[str, Any] = {"type": "object", "properties": {}}
CHAT: dict[str, Any] = {
    "model": "gpt-test",
    "messages": [
        {"role": "system", "content": "Be brief."},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "What is this?"},
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,MTIz", "detail": "low"}},
            ],
        },
        {
            "role": "assistant",
            "content": "Let me see.",
            "tool_calls": [
                {"id": "call_1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}},
            ],
        },
        {"role": "tool", "tool_call_id": "call_1", "content": "1"},
        {"role": "user", "content": "Go on."},
    ],
    "tools": [
        {"type": "function", "function": {"name": "add", "description": "Adds.", "parameters": SCHEMA, "strict": True}},
        {"type": "function", "function": {"name": "now", "parameters": EMPTY}},
    ],
    "tool_choice": {"type": "function", "function": {"name": "add"}},
    "parallel_tool_calls": False,
    "temperature": 0.5,
    "top_p": 0.9,
    "max_tokens": 100,
    "reasoning_effort": "low",
    "stop": ["END"],
    "seed": 7,
    "response_format": {"type": "json_schema", "json_schema": {"name": "Sum", "schema": SCHEMA, "strict": True}},
    "stream": True,
    "stream_options": {"include_usage": True},
    "timeout": 9.0,
    "extra_headers": {"X-Trace": "1"},
    "extra_body": {"service_tier": "flex"},
}
RESPONSES: dict[str, Any] = {
    "model": "gpt-test",
    "instructions": "Be brief.",
    "input": [
        {
            "role": "user",
            "content": [
                {"type": "input_text", "text": "What is this?"},
                {"type": "input_image", "image_url": "data:image/png;base64,MTIz", "detail": "low"},
            ],
        },
        {"role": "assistant", "content": "Let me see."},
        {"type": "function_call", "call_id": "call_1", "name": "add", "arguments": '{"a": 1}'},
        {"type": "function_call_output", "call_id": "call_1", "output": "1"},
        {"role": "user", "content": "Go on."},
    ],
    "tools": [
        {"type": "function", "name": "add", "description": "Adds.", "parameters": SCHEMA, "strict": True},
        {"type": "function", "name": "now", "parameters": EMPTY, "strict": False},
    ],
    "tool_choice": {"type": "function", "name": "add"},
    "parallel_tool_calls": False,
    "temperature": 0.5,
    "top_p": 0.9,
    "max_output_tokens": 100,
    "reasoning": {"effort": "low"},
    "text": {"format": {"type": "json_schema", "name": "Sum", "schema": SCHEMA, "strict": True}},
    "store": False,
    "stream": True,
    "timeout": 9.0,
    "extra_headers": {"X-Trace": "1"},
    "extra_body": {"service_tier": "flex"},
}
HI = stream(delta(content="Hi."), delta("stop"), "[DONE]")
ASK = ModelRequest([UserMessage("Hello")])


def _client(server: RawServer) -> AsyncOpenAI:
    return AsyncOpenAI(api_key="key", base_url=server.base_url, organization="o", project="p", max_retries=0)


def _hi(api: str) -> bytes:
    done = {"type": "message", "content": [{"type": "output_text", "text": "Hi."}]}
    end = {"type": "response.completed", "response": {"status": "completed", "output": [done]}}
    return HI if api == "chat" else stream(end)


@pytest.mark.parametrize(("api", "call"), [("chat", CHAT), ("responses", RESPONSES)])
async def test_our_request_is_that_of_the_official_client(api: Any, call: dict[str, Any]) -> None:
    async with RawServer(*[_hi(api)] * 3) as server, _client(server) as client:
        resource: Any = client.chat.completions if api == "chat" else client.responses
        async for _ in await resource.create(**call):
            pass
        await answered(server.model(api=api, organization="o", project="p"), REQUEST)
        # The address is not OpenAI's, so that our own wire uses the older name of the limit.
        official = OpenAIModel("gpt-test", api=api, client=client, provider="vllm" if api == "chat" else "openai")
        await answered(official, REQUEST)
    theirs, ours, carried = server.asked
    assert ours.body == theirs.body == carried.body
    assert ours.path == theirs.path == carried.path
    names = ("authorization", "content-type", "openai-organization", "openai-project", "x-trace")
    assert _given(ours, names) == _given(theirs, names) == _given(carried, names)
    assert len(_given(ours, names)) == len(names)


def _given(asked: Asked, names: tuple[str, ...]) -> dict[str, str]:
    return {name: asked.headers[name] for name in names if name in asked.headers}


@pytest.mark.parametrize("path", ["chat", "responses"])
async def test_our_request_to_azure_is_that_of_the_official_client(path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    async with RawServer(*[_hi(path)] * 2) as server:
        endpoint = server.base_url.removesuffix("/v1")
        monkeypatch.setenv("AZURE_OPENAI_ENDPOINT", endpoint)
        monkeypatch.setenv("AZURE_OPENAI_API_KEY", "azure-key")
        monkeypatch.setenv("OPENAI_API_VERSION", "2024-10-21")
        async with AsyncAzureOpenAI(max_retries=0) as client:
            await answered(OpenAIModel("my model", api=path, client=client), ASK)
        await answered(OpenAIModel("my model", api=path, provider="azure"), ASK)
    theirs, ours = server.asked
    assert ours.path == theirs.path
    assert ours.body == theirs.body
    assert _given(ours, ("api-key", "authorization")) == _given(theirs, ("api-key", "authorization"))
    assert ours.headers["api-key"] == "azure-key"


async def test_the_official_client_streams_and_closes_at_once() -> None:
    async with RawServer([STREAM + event(delta(content="One")), HANG]) as server, _client(server) as client:
        model = OpenAIModel("gpt-test", client=client)
        async with aclosing(cast("AsyncGenerator[Chunk]", model.respond(ASK))) as chunks:
            assert await anext(chunks) == TextChunk("One")
        await asyncio.wait_for(server.left.wait(), 60)


async def test_the_official_client_uses_its_connections_again() -> None:
    async with RawServer(HI, HI, HI) as server, _client(server) as client:
        for _ in range(3):
            await answered(OpenAIModel("gpt-test", client=client), ASK)
        assert server.connections == 1


async def test_failures_of_the_official_client_are_ours() -> None:
    cases: list[tuple[Any, type[Exception]]] = [
        (whole({"error": {"message": "no", "code": "invalid_api_key"}}, 401), AuthenticationError),
        (whole({"error": {"message": "slow"}}, 429, retry_after="7"), RateLimitError),
        ([CUT], ModelConnectionError),
        ([STREAM + event(delta(content="One")), CUT], ModelConnectionError),
        ([STREAM + event(delta(content="One")), HANG], ModelTimeoutError),
        ([HANG], ModelTimeoutError),
        (stream("{"), MalformedResponseError),
        (whole(b"<p>", content_type="text/html"), MalformedResponseError),
    ]
    for reply, kind in cases:
        limit = ModelSettings(timeout=0.1 if kind is ModelTimeoutError else 20)
        request = ModelRequest([UserMessage("Hello")], settings=limit)
        async with RawServer(reply) as server, _client(server) as client:
            with pytest.raises(kind) as caught:
                await heard(OpenAIModel("gpt-test", client=client), request)
        assert type(caught.value) is kind
        if isinstance(caught.value, RateLimitError):
            assert caught.value.retry_after == 7


async def test_a_whole_answer_by_the_official_client() -> None:
    reply = whole({"choices": [{"message": {"content": "Hi."}, "finish_reason": "stop"}]})
    async with RawServer(reply) as server, _client(server) as client:
        model = OpenAIModel("gpt-test", client=client)
        response = await answered(model, ModelRequest([UserMessage("Hello")], stream=False))
        await model.aclose()
        assert not client.is_closed()
    assert response.message == AssistantMessage("Hi.")


async def test_nobody_is_there_for_the_official_client() -> None:
    async with RawServer() as server:
        client = _client(server)
    async with client:
        with pytest.raises(ModelConnectionError, match="cannot be reached at"):
            await heard(OpenAIModel("gpt-test", client=client), ASK)
