"""Baton's requests equal those of the official client, and can be sent through it."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any, cast

import pytest
from openai import AsyncAzureOpenAI, AsyncOpenAI
from tests.models.openai.raw_server import (
    CUT,
    HANG,
    STREAM,
    RawRequest,
    RawServer,
    delta,
    event,
    json_reply,
    read_chunks,
    read_response,
    stream,
)
from tests.waiting import PATIENCE

from batonkit.errors import (
    AuthenticationError,
    MalformedResponseError,
    ModelConnectionError,
    ModelTimeoutError,
    RateLimitError,
)
from batonkit.messages import AssistantMessage, Image, Text, ToolCall, ToolMessage, ToolSpec, UserMessage
from batonkit.models import Chunk, ModelRequest, ModelSettings, OutputSchema, TextChunk
from batonkit.models.openai import OpenAIModel

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
        presence_penalty=0.5,
        frequency_penalty=-0.5,
        verbosity="low",
        truncation="auto",
        top_logprobs=2,
        metadata={"order": "A-17"},
        service_tier="flex",
        timeout=9.0,
        extra_headers={"X-Trace": "1"},
        extra_query={"trace": "1"},
        extra_body={"prompt_cache_key": "desk"},
        # Each of the two APIs lacks some of these.
        ignore_unsupported=True,
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
    "presence_penalty": 0.5,
    "frequency_penalty": -0.5,
    "verbosity": "low",
    "logprobs": True,
    "top_logprobs": 2,
    "metadata": {"order": "A-17"},
    "service_tier": "flex",
    "response_format": {"type": "json_schema", "json_schema": {"name": "Sum", "schema": SCHEMA, "strict": True}},
    "stream": True,
    "stream_options": {"include_usage": True},
    "timeout": 9.0,
    "extra_headers": {"X-Trace": "1"},
    "extra_query": {"trace": "1"},
    "extra_body": {"prompt_cache_key": "desk"},
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
    "text": {"format": {"type": "json_schema", "name": "Sum", "schema": SCHEMA, "strict": True}, "verbosity": "low"},
    "truncation": "auto",
    "include": ["message.output_text.logprobs"],
    "top_logprobs": 2,
    "metadata": {"order": "A-17"},
    "service_tier": "flex",
    "store": False,
    "stream": True,
    "timeout": 9.0,
    "extra_headers": {"X-Trace": "1"},
    "extra_query": {"trace": "1"},
    "extra_body": {"prompt_cache_key": "desk"},
}
HI = stream(delta(content="Hi."), delta("stop"), "[DONE]")
ASK = ModelRequest([UserMessage("Hello")])


def _client(server: RawServer) -> AsyncOpenAI:
    return AsyncOpenAI(api_key="key", base_url=server.base_url, organization="o", project="p", max_retries=0)


def _hello_reply(api: str) -> bytes:
    done = {"type": "message", "content": [{"type": "output_text", "text": "Hi."}]}
    end = {"type": "response.completed", "response": {"status": "completed", "output": [done]}}
    return HI if api == "chat" else stream(end)


@pytest.mark.parametrize(("api", "call"), [("chat", CHAT), ("responses", RESPONSES)])
async def test_requests_equal_those_of_the_official_client(api: Any, call: dict[str, Any]) -> None:
    async with RawServer(*[_hello_reply(api)] * 3) as server, _client(server) as client:
        resource: Any = client.chat.completions if api == "chat" else client.responses
        async for _ in await resource.create(**call):
            pass
        await read_response(server.model(api=api, organization="o", project="p"), REQUEST)
        # The URL is not OpenAI's, so Baton's own transport uses the older name of the token limit.
        official = OpenAIModel("gpt-test", api=api, client=client, provider="other" if api == "chat" else "openai")
        await read_response(official, REQUEST)
    theirs, ours, carried = server.requests
    assert ours.body == theirs.body == carried.body
    assert ours.path == theirs.path == carried.path
    assert ours.path.endswith("?trace=1")
    names = ("authorization", "content-type", "openai-organization", "openai-project", "x-trace")
    assert _headers(ours, names) == _headers(theirs, names) == _headers(carried, names)
    assert len(_headers(ours, names)) == len(names)


def _headers(request: RawRequest, names: tuple[str, ...]) -> dict[str, str]:
    return {name: request.headers[name] for name in names if name in request.headers}


@pytest.mark.parametrize("path", ["chat", "responses"])
async def test_azure_requests_equal_those_of_the_official_client(path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    async with RawServer(*[_hello_reply(path)] * 2) as server:
        endpoint = server.base_url.removesuffix("/v1")
        monkeypatch.setenv("AZURE_OPENAI_ENDPOINT", endpoint)
        monkeypatch.setenv("AZURE_OPENAI_API_KEY", "azure-key")
        monkeypatch.setenv("OPENAI_API_VERSION", "2024-10-21")
        async with AsyncAzureOpenAI(max_retries=0) as client:
            await read_response(OpenAIModel("my model", api=path, client=client), ASK)
        await read_response(OpenAIModel("my model", api=path, provider="azure"), ASK)
    theirs, ours = server.requests
    assert ours.path == theirs.path
    assert ours.body == theirs.body
    assert _headers(ours, ("api-key", "authorization")) == _headers(theirs, ("api-key", "authorization"))
    assert ours.headers["api-key"] == "azure-key"


async def test_the_official_client_streams_and_disconnects_on_close() -> None:
    async with RawServer([STREAM + event(delta(content="One")), HANG]) as server, _client(server) as client:
        model = OpenAIModel("gpt-test", client=client)
        async with aclosing(cast("AsyncGenerator[Chunk]", model.respond(ASK))) as chunks:
            assert await anext(chunks) == TextChunk("One")
        await server.client_disconnected.wait()


async def test_the_official_client_reuses_its_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("batonkit.models.event_stream.SECONDS_TO_DRAIN", PATIENCE)
    async with RawServer(HI, HI, HI) as server, _client(server) as client:
        for _ in range(3):
            await read_response(OpenAIModel("gpt-test", client=client), ASK)
        assert server.connections == 1


async def test_errors_of_the_official_client_are_mapped() -> None:
    cases: list[tuple[Any, type[Exception]]] = [
        (json_reply({"error": {"message": "no", "code": "invalid_api_key"}}, 401), AuthenticationError),
        (json_reply({"error": {"message": "slow"}}, 429, retry_after="7"), RateLimitError),
        ([CUT], ModelConnectionError),
        ([STREAM + event(delta(content="One")), CUT], ModelConnectionError),
        ([STREAM + event(delta(content="One")), HANG], ModelTimeoutError),
        ([HANG], ModelTimeoutError),
        (stream("{"), MalformedResponseError),
        (json_reply(b"<p>", content_type="text/html"), MalformedResponseError),
    ]
    for reply, kind in cases:
        limit = ModelSettings(timeout=0.1 if kind is ModelTimeoutError else PATIENCE)
        request = ModelRequest([UserMessage("Hello")], settings=limit)
        async with RawServer(reply) as server, _client(server) as client:
            with pytest.raises(kind) as caught:
                await read_chunks(OpenAIModel("gpt-test", client=client), request)
        assert type(caught.value) is kind
        if isinstance(caught.value, RateLimitError):
            assert caught.value.retry_after == 7


async def test_an_unstreamed_response_through_the_official_client() -> None:
    reply = json_reply({"choices": [{"message": {"content": "Hi."}, "finish_reason": "stop"}]})
    async with RawServer(reply) as server, _client(server) as client:
        model = OpenAIModel("gpt-test", client=client)
        response = await read_response(model, ModelRequest([UserMessage("Hello")], stream=False))
        await model.aclose()
        assert not client.is_closed()
    assert response.message == AssistantMessage("Hi.")


async def test_an_unreachable_server_raises_with_the_official_client() -> None:
    async with RawServer() as server:
        client = _client(server)
    async with client:
        with pytest.raises(ModelConnectionError, match="cannot be reached at"):
            await read_chunks(OpenAIModel("gpt-test", client=client), ASK)
