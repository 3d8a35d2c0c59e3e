"""Anthropic's server, asked by Anthropic's own client and by requests that no client of its would send."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import anthropic
import pytest
from anthropic import AsyncAnthropic
from tests.servers import AnthropicServer
from tests.servers.clients import posted

from baton.errors import OverloadedError, RateLimitError
from baton.messages import AssistantMessage, Reasoning, Usage
from baton.models import ModelResponse
from baton.testing import ScriptedStream, ScriptStep, call, say

MODEL = "claude-opus-5-5"
HELLO: list[Any] = [{"role": "user", "content": "Hello"}]
WAVE: Any = {"name": "wave", "input_schema": {"type": "object", "properties": {}}}
USE: dict[str, Any] = {"type": "tool_use", "id": "t1", "name": "wave", "input": {}}
RESULT = {"type": "tool_result", "tool_use_id": "t1", "content": "waved"}
NEW = {"anthropic-version": "2026-10-21", "x-api-key": "test-key"}


@asynccontextmanager
async def played(*steps: ScriptStep) -> AsyncGenerator[tuple[AsyncAnthropic, AnthropicServer]]:
    async with (
        AnthropicServer(steps) as server,
        AsyncAnthropic(api_key=server.api_key, base_url=server.base_url, max_retries=0) as client,
    ):
        yield client, server


async def test_an_answer_in_one_piece() -> None:
    thoughtful = AssistantMessage("One moment.", (call("wave", times=2),), (Reasoning("Hm."),))
    async with played(ModelResponse(thoughtful, Usage(70, 20, cached_tokens=30, reasoning_tokens=5))) as (client, _):
        said = await client.messages.create(model=MODEL, max_tokens=100, messages=HELLO, tools=[WAVE])
    assert [block.type for block in said.content] == ["thinking", "text", "tool_use"]
    assert said.stop_reason == "tool_use"
    assert said.usage.input_tokens == 40
    assert said.usage.cache_read_input_tokens == 30
    assert said.usage.output_tokens_details is not None
    assert said.usage.output_tokens_details.thinking_tokens == 5


async def test_the_official_accumulator_makes_the_same_of_a_stream() -> None:
    redacted = Reasoning("", signature={"data": "hidden"})
    steps = ScriptedStream(Reasoning("First. "), redacted, "One ", "moment.", call("wave", why="a" * 40), call("bow"))
    async with (
        played(steps) as (client, _),
        client.messages.stream(model=MODEL, max_tokens=100, messages=HELLO, tools=[WAVE]) as stream,
    ):
        events = [event.type async for event in stream]
        said = await stream.get_final_message()
    kinds = ["thinking", "redacted_thinking", "text", "tool_use", "tool_use"]
    assert [block.type for block in said.content] == kinds
    assert said.content[0].type == "thinking"
    assert (said.content[0].thinking, bool(said.content[0].signature)) == ("First. ", True)
    assert [block.input for block in said.content if block.type == "tool_use"] == [{"why": "a" * 40}, {}]
    assert [events.count(kind) for kind in ("content_block_start", "content_block_stop")] == [5, 5]
    assert (events[0], events[-1]) == ("message_start", "message_stop")


async def test_an_error_in_the_middle_is_an_error_to_the_client() -> None:
    async with played(ScriptedStream("So ", OverloadedError("busy"))) as (client, _):
        with pytest.raises(anthropic.APIStatusError) as raised:
            async with client.messages.stream(model=MODEL, max_tokens=100, messages=HELLO) as stream:
                await stream.get_final_message()
    assert raised.value.type == "overloaded_error"


async def test_errors_have_the_types_of_the_official_client() -> None:
    async with played(RateLimitError("slow down", retry_after=3), OverloadedError("busy")) as (client, _):
        with pytest.raises(anthropic.RateLimitError) as limited:
            await client.messages.create(model=MODEL, max_tokens=100, messages=HELLO)
        with pytest.raises(anthropic.OverloadedError):
            await client.messages.create(model=MODEL, max_tokens=100, messages=HELLO)
    assert limited.value.response.headers["retry-after"] == "3"
    assert limited.value.request_id


async def test_a_model_that_is_not_there() -> None:
    async with (
        AnthropicServer({"claude-small": ["Hi."]}) as server,
        AsyncAnthropic(api_key=server.api_key, base_url=server.base_url, max_retries=0) as client,
    ):
        with pytest.raises(anthropic.NotFoundError, match="model: claude-large"):
            await client.messages.create(model="claude-large", max_tokens=10, messages=HELLO)
        assert [model.id async for model in client.models.list()] == ["claude-small"]


async def test_thoughts_are_known_again() -> None:
    async with played(AssistantMessage("Yes.", reasoning=(Reasoning("Hm."),)), "Done.") as (client, _):
        said = await client.messages.create(model=MODEL, max_tokens=100, messages=HELLO)
        again: list[Any] = [*HELLO, said.to_param(), {"role": "user", "content": "So?"}]
        assert (await client.messages.create(model=MODEL, max_tokens=100, messages=again)).content[0].type == "text"


async def test_it_understands_what_the_client_says() -> None:
    messages: list[Any] = [
        *HELLO,
        {"role": "assistant", "content": [USE]},
        {"role": "user", "content": [{**RESULT, "is_error": True}, {"type": "text", "text": "So?"}]},
    ]
    async with played(say("Done.")) as (client, server):
        await client.messages.create(model=MODEL, max_tokens=9, system="Be kind.", messages=messages, tools=[WAVE])
    asked = server.understood[0]
    assert asked.instructions == "Be kind."
    assert [type(message).__name__ for message in asked.messages] == [
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


@pytest.mark.parametrize("why", BAD_MESSAGES)
async def test_conversations_that_it_refuses(why: str) -> None:
    async with AnthropicServer(["Never said."]) as server:
        body = {"model": MODEL, "max_tokens": 100, "messages": BAD_MESSAGES[why], "tools": [WAVE]}
        status, said = await posted(server, "/v1/messages", body, **NEW)
    assert (status, said["type"], said["error"]["type"]) == (400, "error", "invalid_request_error")
    assert why in said["error"]["message"]


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


@pytest.mark.parametrize("why", BAD_OPTIONS)
async def test_options_that_it_refuses(why: str) -> None:
    body = {"model": MODEL, "max_tokens": 1500, "messages": HELLO, **BAD_OPTIONS[why]}
    async with AnthropicServer(["Never said."]) as server:
        status, said = await posted(
            server, "/v1/messages", {key: value for key, value in body.items() if value is not None}, **NEW
        )
    assert status == 400
    assert why in said["error"]["message"]


async def test_tools_must_be_there_where_they_were_called() -> None:
    body = {"model": MODEL, "max_tokens": 9, "messages": [USER, CALLED, {"role": "user", "content": [RESULT]}]}
    async with AnthropicServer(["Never said."]) as server:
        status, said = await posted(server, "/v1/messages", body, **NEW)
    assert (status, "must define tools" in said["error"]["message"]) == (400, True)


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"x-api-key": "wrong", "anthropic-version": "2026-10-21"}, 401),
        ({"x-api-key": "test-key"}, 400),
        ({"x-api-key": "test-key", "anthropic-version": "1999-01-01"}, 400),
        ({"authorization": "", "anthropic-version": "2026-10-21"}, 401),
    ],
)
async def test_who_may_ask(headers: dict[str, str], status: int) -> None:
    body = {"model": MODEL, "max_tokens": 9, "messages": HELLO}
    async with AnthropicServer(["Never said."]) as server:
        assert (await posted(server, "/v1/messages", body, **headers))[0] == status
        assert (await posted(server, "/v1/complete", body, **NEW))[0] == 404
