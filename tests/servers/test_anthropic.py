"""The Anthropic server with the official client and with invalid requests."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import anthropic
import pytest
from anthropic import AsyncAnthropic
from tests.servers import AnthropicServer
from tests.servers.clients import post

from batonkit.errors import OverloadedError, RateLimitError
from batonkit.messages import AssistantMessage, Reasoning, Usage
from batonkit.models import ModelResponse
from batonkit.testing import ScriptedStream, ScriptStep, call, say

MODEL = "claude-opus-5-5"
HELLO: list[Any] = [{"role": "user", "content": "Hello"}]
WAVE: Any = {"name": "wave", "input_schema": {"type": "object", "properties": {}}}
USE: dict[str, Any] = {"type": "tool_use", "id": "t1", "name": "wave", "input": {}}
RESULT = {"type": "tool_result", "tool_use_id": "t1", "content": "waved"}
HEADERS = {"anthropic-version": "2026-10-21", "x-api-key": "test-key"}


@asynccontextmanager
async def scripted(*steps: ScriptStep) -> AsyncGenerator[tuple[AsyncAnthropic, AnthropicServer]]:
    async with (
        AnthropicServer(steps) as server,
        AsyncAnthropic(api_key=server.api_key, base_url=server.base_url, max_retries=0) as client,
    ):
        yield client, server


async def test_an_unstreamed_response() -> None:
    thoughtful = AssistantMessage("One moment.", (call("wave", times=2),), (Reasoning("Hm."),))
    async with scripted(ModelResponse(thoughtful, Usage(70, 20, cached_tokens=30, reasoning_tokens=5))) as (client, _):
        response = await client.messages.create(model=MODEL, max_tokens=100, messages=HELLO, tools=[WAVE])
    assert [block.type for block in response.content] == ["thinking", "text", "tool_use"]
    assert response.stop_reason == "tool_use"
    assert response.usage.input_tokens == 40
    assert response.usage.cache_read_input_tokens == 30
    assert response.usage.output_tokens_details is not None
    assert response.usage.output_tokens_details.thinking_tokens == 5


async def test_the_official_client_accumulates_a_stream() -> None:
    redacted = Reasoning("", signature={"data": "hidden"})
    steps = ScriptedStream(Reasoning("First. "), redacted, "One ", "moment.", call("wave", why="a" * 40), call("bow"))
    async with (
        scripted(steps) as (client, _),
        client.messages.stream(model=MODEL, max_tokens=100, messages=HELLO, tools=[WAVE]) as stream,
    ):
        events = [event.type async for event in stream]
        response = await stream.get_final_message()
    kinds = ["thinking", "redacted_thinking", "text", "tool_use", "tool_use"]
    assert [block.type for block in response.content] == kinds
    assert response.content[0].type == "thinking"
    assert (response.content[0].thinking, bool(response.content[0].signature)) == ("First. ", True)
    assert [block.input for block in response.content if block.type == "tool_use"] == [{"why": "a" * 40}, {}]
    assert [events.count(kind) for kind in ("content_block_start", "content_block_stop")] == [5, 5]
    assert (events[0], events[-1]) == ("message_start", "message_stop")


async def test_an_error_in_the_middle_of_a_stream_is_raised_by_the_client() -> None:
    async with scripted(ScriptedStream("So ", OverloadedError("busy"))) as (client, _):
        with pytest.raises(anthropic.APIStatusError) as raised:
            async with client.messages.stream(model=MODEL, max_tokens=100, messages=HELLO) as stream:
                await stream.get_final_message()
    assert raised.value.type == "overloaded_error"


async def test_errors_are_mapped_by_the_official_client() -> None:
    async with scripted(RateLimitError("slow down", retry_after=3), OverloadedError("busy")) as (client, _):
        with pytest.raises(anthropic.RateLimitError) as limited:
            await client.messages.create(model=MODEL, max_tokens=100, messages=HELLO)
        with pytest.raises(anthropic.OverloadedError):
            await client.messages.create(model=MODEL, max_tokens=100, messages=HELLO)
    assert limited.value.response.headers["retry-after"] == "3"
    assert limited.value.request_id


async def test_an_unknown_model_is_refused() -> None:
    async with (
        AnthropicServer({"claude-small": ["Hi."]}) as server,
        AsyncAnthropic(api_key=server.api_key, base_url=server.base_url, max_retries=0) as client,
    ):
        with pytest.raises(anthropic.NotFoundError, match="model: claude-large"):
            await client.messages.create(model="claude-large", max_tokens=10, messages=HELLO)
        assert [model.id async for model in client.models.list()] == ["claude-small"]


async def test_reasoning_that_is_sent_back_is_accepted() -> None:
    async with scripted(AssistantMessage("Yes.", reasoning=(Reasoning("Hm."),)), "Done.") as (client, _):
        response = await client.messages.create(model=MODEL, max_tokens=100, messages=HELLO)
        again: list[Any] = [*HELLO, response.to_param(), {"role": "user", "content": "So?"}]
        assert (await client.messages.create(model=MODEL, max_tokens=100, messages=again)).content[0].type == "text"


async def test_requests_are_converted_to_batons_types() -> None:
    messages: list[Any] = [
        *HELLO,
        {"role": "assistant", "content": [USE]},
        {"role": "user", "content": [{**RESULT, "is_error": True}, {"type": "text", "text": "So?"}]},
    ]
    async with scripted(say("Done.")) as (client, server):
        await client.messages.create(model=MODEL, max_tokens=9, system="Be kind.", messages=messages, tools=[WAVE])
    request = server.understood[0]
    assert request.instructions == "Be kind."
    assert [type(message).__name__ for message in request.messages] == [
        *("UserMessage", "AssistantMessage", "ToolMessage", "UserMessage"),
    ]


USER, ASSISTANT = {"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Yes."}
CALLED = {"role": "assistant", "content": [USE]}
BAD_MESSAGES: dict[str, Any] = {
    "at least one message": [],
    'first message must use the "user" role': [ASSISTANT, USER],
    "must end with a user message": [USER, ASSISTANT],
    "roles must alternate": [USER, USER],
    "must contain non-whitespace text": [{"role": "user", "content": " "}],
    "messages.0: all messages must have non-empty content": [{"role": "user", "content": []}],
    "without `tool_result` blocks immediately after: t1": [USER, CALLED, USER],
    "unexpected `tool_use_id`": [{"role": "user", "content": [RESULT]}],
    "each tool_use must have a single result": [USER, CALLED, {"role": "user", "content": [RESULT, RESULT]}],
    "must come first": [USER, CALLED, {"role": "user", "content": [{"type": "text", "text": "So"}, RESULT]}],
    "`tool_use` ids must be unique": [USER, {"role": "assistant", "content": [USE, USE]}, USER],
    "can only be in `assistant` messages": [{"role": "user", "content": [USE]}],
    "Invalid `signature`": [
        USER,
        {"role": "assistant", "content": [{"type": "thinking", "thinking": "Hm.", "signature": "forged"}]},
        USER,
    ],
    'all content must be type "text"': [
        USER,
        CALLED,
        {
            "role": "user",
            "content": [
                {
                    **RESULT,
                    "is_error": True,
                    "content": [{"type": "image", "source": {"type": "url", "url": "https://e.org"}}],
                }
            ],
        },
    ],
    "`document` blocks can only be in `user` messages": [
        USER,
        {"role": "assistant", "content": [{"type": "document", "source": {"type": "url", "url": "https://e.org"}}]},
        USER,
    ],
    "messages.0.role": [{"role": "system", "content": "Be kind."}],
    "messages.0.content.0.colour: Extra inputs are not permitted": [
        {"role": "user", "content": [{"type": "text", "text": "Hi", "colour": "red"}]}
    ],
}


@pytest.mark.parametrize("message", BAD_MESSAGES)
async def test_invalid_conversations_are_refused(message: str) -> None:
    async with AnthropicServer(["Never said."]) as server:
        body = {"model": MODEL, "max_tokens": 100, "messages": BAD_MESSAGES[message], "tools": [WAVE]}
        status, response = await post(server, "/v1/messages", body, **HEADERS)
    assert (status, response["type"], response["error"]["type"]) == (400, "error", "invalid_request_error")
    assert message in response["error"]["message"]


BAD_OPTIONS: dict[str, dict[str, Any]] = {
    "max_tokens: Field required": {"max_tokens": None},
    "temperature: Extra inputs are not permitted": {"temperature": 1.0},
    "colour: Extra inputs are not permitted": {"colour": "red"},
    "max_tokens: Input should be a valid integer": {"max_tokens": "many"},
    "budget_tokens: Input should be greater than or equal to 1024": {
        "thinking": {"type": "enabled", "budget_tokens": 10}
    },
    "`max_tokens` must be greater than": {"thinking": {"type": "enabled", "budget_tokens": 2000}},
    "Thinking may not be enabled": {
        "thinking": {"type": "adaptive"},
        "tools": [WAVE],
        "tool_choice": {"type": "any"},
    },
    "tool_choice may only be specified": {"tool_choice": {"type": "auto"}},
    "Tool 'bow' not found": {"tools": [WAVE], "tool_choice": {"type": "tool", "name": "bow"}},
    "Tool names must be unique": {"tools": [WAVE, WAVE]},
    "String should match pattern": {"tools": [{**WAVE, "name": "no spaces"}]},
    "input_schema.type: Field required": {"tools": [{"name": "wave", "input_schema": {}}]},
    "'additionalProperties' must be explicitly set to false": {
        "output_config": {"format": {"type": "json_schema", "schema": {"type": "object", "properties": {}}}}
    },
    "property 'minimum' is not supported": {
        "output_config": {"format": {"type": "json_schema", "schema": {"type": "integer", "minimum": 1}}}
    },
}


@pytest.mark.parametrize("message", BAD_OPTIONS)
async def test_invalid_options_are_refused(message: str) -> None:
    body = {"model": MODEL, "max_tokens": 1500, "messages": HELLO, **BAD_OPTIONS[message]}
    async with AnthropicServer(["Never said."]) as server:
        status, response = await post(
            server, "/v1/messages", {key: value for key, value in body.items() if value is not None}, **HEADERS
        )
    assert status == 400
    assert message in response["error"]["message"]


async def test_called_tools_must_be_declared() -> None:
    body = {"model": MODEL, "max_tokens": 9, "messages": [USER, CALLED, {"role": "user", "content": [RESULT]}]}
    async with AnthropicServer(["Never said."]) as server:
        status, response = await post(server, "/v1/messages", body, **HEADERS)
    assert (status, "must define tools" in response["error"]["message"]) == (400, True)


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"x-api-key": "wrong", "anthropic-version": "2026-10-21"}, 401),
        ({"x-api-key": "test-key"}, 400),
        ({"x-api-key": "test-key", "anthropic-version": "1999-01-01"}, 400),
        ({"authorization": "", "anthropic-version": "2026-10-21"}, 401),
    ],
)
async def test_keys_versions_and_paths_are_checked(headers: dict[str, str], status: int) -> None:
    body = {"model": MODEL, "max_tokens": 9, "messages": HELLO}
    async with AnthropicServer(["Never said."]) as server:
        assert (await post(server, "/v1/messages", body, **headers))[0] == status
        assert (await post(server, "/v1/complete", body, **HEADERS))[0] == 404
