"""The Responses API with the official client, and requests that OpenAI would refuse."""

from typing import Any, cast

import openai
import pytest
from openai.types.responses import Response as OfficialResponse
from pydantic import BaseModel
from tests.servers import OpenAIServer
from tests.servers.clients import official_client, post

from batonkit.errors import ContentFilterError, OverloadedError
from batonkit.messages import (
    AssistantMessage,
    Data,
    File,
    Image,
    Reasoning,
    SystemMessage,
    Text,
    ToolCall,
    ToolMessage,
    Usage,
    UserMessage,
)
from batonkit.models import ModelResponse, ModelSettings, ToolCallChunk
from batonkit.testing import ScriptedStream, ScriptStep, call, say

PATH = "/v1/responses"
CALL: dict[str, Any] = {"type": "function_call", "call_id": "a", "name": "wave", "arguments": "{}"}
RESULT: dict[str, Any] = {"type": "function_call_output", "call_id": "a", "output": "done"}
WAVE: dict[str, Any] = {"type": "function", "name": "wave", "parameters": None, "strict": None}
LOOSE: dict[str, Any] = {"type": "object", "properties": {"a": {"type": "string"}}}


async def complete(step: ScriptStep, *, streams: bool, **options: Any) -> OfficialResponse:
    async with OpenAIServer([step]) as server, official_client(server) as client:
        if not streams:
            request_options: dict[str, Any] = {"model": "gpt-test", "input": "Hello", **options}
            return cast("OfficialResponse", await client.responses.create(**request_options))
        async with client.responses.stream(model="gpt-test", input="Hello", **options) as stream:
            return await stream.get_final_response()


async def events(step: ScriptStep, **options: Any) -> list[Any]:
    async with OpenAIServer([step]) as server, official_client(server) as client:
        stream = await client.responses.create(model="gpt-test", input="Hello", stream=True, **options)
        return [event async for event in stream]


@pytest.mark.parametrize("streams", [False, True])
async def test_text_calls_and_reasoning_are_read_by_the_official_client(streams: bool) -> None:
    said = AssistantMessage(
        "One moment, please.",
        (call("find", city="Rome, the eternal one"), call("wave")),
        (Reasoning("First, think."),),
    )
    response = await complete(
        ModelResponse(said, Usage(7, 5, 3, 2)),
        streams=streams,
        reasoning={"summary": "auto"},
        include=["reasoning.encrypted_content"],
    )
    reasoning_item, message, find, wave = response.output
    assert reasoning_item.type == "reasoning"
    assert reasoning_item.summary[0].text == "First, think."
    assert reasoning_item.encrypted_content
    assert message.type == "message"
    assert response.output_text == "One moment, please."
    assert find.type == "function_call"
    assert wave.type == "function_call"
    assert (find.call_id, find.name, find.arguments) == ("call_1", "find", '{"city":"Rome, the eternal one"}')
    assert (wave.call_id, wave.arguments) == ("call_2", "{}")
    assert (find.id or "").startswith("fc_")
    assert response.status == "completed"
    usage = response.usage
    assert usage is not None
    assert (usage.input_tokens, usage.output_tokens, usage.total_tokens) == (7, 5, 12)
    assert (usage.input_tokens_details.cached_tokens, usage.output_tokens_details.reasoning_tokens) == (3, 2)


async def test_reasoning_is_sent_only_if_requested() -> None:
    response = await complete(AssistantMessage("Yes.", reasoning=(Reasoning("Hm."),)), streams=True)
    reasoning_item = response.output[0]
    assert reasoning_item.type == "reasoning"
    assert reasoning_item.summary == []
    assert reasoning_item.encrypted_content is None


async def test_events_are_numbered_and_streamed() -> None:
    received = await events(say("One two three.", call("find", city="Rome, of course")))
    assert [event.sequence_number for event in received] == list(range(len(received)))
    assert [event.delta for event in received if event.type == "response.output_text.delta"] == [
        "One ",
        "two ",
        "three.",
    ]
    arguments = [event.delta for event in received if event.type == "response.function_call_arguments.delta"]
    assert len(arguments) >= 2
    assert "".join(arguments) == '{"city":"Rome, of course"}'
    assert [event.type for event in received][:2] == ["response.created", "response.in_progress"]
    assert received[-1].type == "response.completed"


async def test_interleaved_calls_are_separated() -> None:
    chunks = [
        ToolCallChunk(0, "a", "wave", '{"at":'),
        ToolCallChunk(1, "b", "bow"),
        ToolCallChunk(0, "", "", "1}"),
        ToolCallChunk(1, "", "", "{}"),
    ]
    response = await complete(ScriptedStream(*chunks), streams=True)
    assert [item.arguments for item in response.output if item.type == "function_call"] == ['{"at":1}', "{}"]


@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize(("stop", "reason"), [("length", "max_output_tokens"), ("content_filter", "content_filter")])
async def test_a_stopped_response_is_incomplete(stop: str, reason: str, streams: bool) -> None:
    async with (
        OpenAIServer([ModelResponse(AssistantMessage("So far"), stop_reason=stop)]) as server,
        official_client(server) as client,
    ):
        if streams:
            stream = await client.responses.create(model="gpt-test", input="Hello", stream=True)
            last = [event async for event in stream][-1]
            assert last.type == "response.incomplete"
            response = last.response
        else:
            response = await client.responses.create(model="gpt-test", input="Hello")
    assert response.status == "incomplete"
    assert response.incomplete_details is not None
    assert response.incomplete_details.reason == reason


@pytest.mark.parametrize("streams", [False, True])
async def test_a_refusal_is_a_separate_part(streams: bool) -> None:
    response = await complete(ModelResponse(AssistantMessage("I will not."), stop_reason="refusal"), streams=streams)
    (message,) = response.output
    assert message.type == "message"
    assert message.content[0].type == "refusal"
    assert message.content[0].refusal == "I will not."


async def test_failures_in_the_middle_are_events() -> None:
    failed = (await events(ScriptedStream("So", OverloadedError("too much"))))[-1]
    assert failed.type == "response.failed"
    assert (failed.response.error.code, failed.response.error.message) == ("server_is_overloaded", "too much")
    filtered = (await events(ScriptedStream("So", ContentFilterError("no"))))[-1]
    assert filtered.type == "response.incomplete"


class City(BaseModel):
    name: str


async def test_structured_output_is_parsed_by_the_official_client() -> None:
    async with OpenAIServer(['{"name":"Rome"}']) as server, official_client(server) as client:
        parsed = await client.responses.parse(model="gpt-test", input="Hello", text_format=City)
    assert parsed.output_parsed == City(name="Rome")
    output = server.requests[0].request.output_schema
    assert output is not None
    assert output.name == "City"


async def test_items_that_are_sent_back_are_converted() -> None:
    """The items of a response, including reasoning, are sent back with the results of the calls."""
    first = AssistantMessage("Wait.", (ToolCall("a", "wave"),), (Reasoning("Hm."),))
    async with OpenAIServer([first, "Hi."]) as server, official_client(server) as client:
        include: list[Any] = ["reasoning.encrypted_content"]
        answer = await client.responses.create(
            model="gpt-test", input="Hello", reasoning={"summary": "auto"}, include=include, store=False
        )
        input_items: list[Any] = [{"role": "user", "content": "Hello"}]
        input_items += [item.model_dump(exclude_none=True) for item in answer.output]
        input_items += [RESULT, {"role": "developer", "content": "Hurry."}]
        await client.responses.create(model="gpt-test", input=input_items, instructions="Be kind.", store=False)
    hello, said, result, hurry = server.requests[1].request.messages
    assert server.requests[1].request.instructions == "Be kind."
    assert (hello, result, hurry) == (UserMessage("Hello"), ToolMessage("a", "wave", "done"), SystemMessage("Hurry."))
    assert isinstance(said, AssistantMessage)
    assert (said.content, said.tool_calls) == ("Wait.", first.tool_calls)
    assert [reasoning_item.text for reasoning_item in said.reasoning] == ["Hm."]


async def test_media_tools_and_settings_are_converted() -> None:
    content: list[Any] = [
        {"type": "input_text", "text": "See:"},
        {"type": "input_image", "image_url": "https://example.org/cat.png", "detail": "auto"},
        {"type": "input_file", "file_data": "data:application/pdf;base64,AAEC", "filename": "a.pdf"},
    ]
    async with OpenAIServer(["Hi."]) as server, official_client(server) as client:
        await client.responses.create(
            model="gpt-test",
            input=[{"role": "user", "content": content}],
            tools=[{**WAVE, "description": "Wave."}],  # pyright: ignore[reportArgumentType]
            tool_choice={"type": "function", "name": "wave"},
            reasoning={"effort": "low"},
            max_output_tokens=20,
        )
    request = server.requests[0].request
    image_part = Image(url="https://example.org/cat.png", detail="auto")
    file_part = File(data=b"\x00\x01\x02", media_type="application/pdf", name="a.pdf")
    assert request.messages == (UserMessage((Text("See:"), image_part, file_part)),)
    assert [(tool.name, tool.description) for tool in request.tools] == [("wave", "Wave.")]
    assert request.settings == ModelSettings(reasoning_effort="low", max_tokens=20)
    assert request.tool_choice == "wave"


async def test_each_output_message_is_a_separate_message() -> None:
    said: list[Any] = [
        {"role": "developer", "content": "Be kind."},
        {"role": "assistant", "content": "One."},
        {"role": "assistant", "content": [{"type": "output_text", "text": "Two.", "annotations": []}]},
        {"role": "user", "content": [{"type": "input_text", "text": "Three."}]},
    ]
    async with OpenAIServer(["Hi."]) as server, official_client(server) as client:
        await client.responses.create(model="gpt-test", input=said, instructions="Hurry.")
    request = server.requests[0].request
    assert request.instructions == "Hurry.\n\nBe kind."
    assert request.messages == (AssistantMessage("One."), AssistantMessage("Two."), UserMessage("Three."))


async def test_data_parts_are_sent_as_text() -> None:
    response = await complete(ScriptedStream("So: ", Data({"city": "Rome"})), streams=True)
    assert response.output_text == 'So: {"city":"Rome"}'


def reasoning(sealed: str | None = "baton-sealed:1") -> dict[str, Any]:
    return {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": sealed}


def said(kind: str, role: str = "assistant") -> dict[str, Any]:
    return {"role": role, "content": [{"type": kind, "text": "Hi"}]}


def with_format(**changes: Any) -> dict[str, Any]:
    return {"text": {"format": {"type": "json_schema", "name": "x", "schema": LOOSE, **changes}}}


REFUSED: list[tuple[dict[str, Any], str, str | None, str | None]] = [
    ({"input": []}, "must be provided", "input", "missing_required_parameter"),
    ({"input": None}, "must be provided", "input", "missing_required_parameter"),
    ({"messages": []}, "Unknown parameter: 'messages'", "messages", "unknown_parameter"),
    ({"input": [{"type": "song"}]}, "'song'", "input[0].type", "invalid_value"),
    ({"input": [{"role": "tool", "content": ""}]}, "'tool'", "input[0].role", "invalid_value"),
    ({"input": [{"role": "user", "content": []}]}, "empty array", "input[0].content", "empty_array"),
    ({"input": [said("input_text")]}, "'input_text'", "input[0].content[0].type", "invalid_value"),
    ({"input": [said("output_text", "user")]}, "'output_text'", "input[0].content[0].type", "invalid_value"),
    ({"input": [{**CALL, "id": "call_a"}, RESULT]}, "begins with 'fc'", "input[0].id", "invalid_value"),
    ({"input": [{**CALL, "name": "a b"}, RESULT]}, "pattern", "input[0].name", "invalid_value"),
    ({"input": [{**CALL, "tool": 1}, RESULT]}, "Unknown", "input[0].tool", "unknown_parameter"),
    ({"input": [{"type": "function_call"}]}, "Missing", "input[0].call_id", "missing_required_parameter"),
    ({"input": [{**CALL, "call_id": "a" * 65}]}, "length 64", "input[0].call_id", "string_above_max_length"),
    ({"input": [CALL]}, "No tool output found for function call a", "input", None),
    ({"input": [RESULT]}, "No tool call found", "input", None),
    ({"input": [RESULT, CALL]}, "No tool call found", "input", None),
    ({"input": [CALL, RESULT, CALL, RESULT]}, "Duplicate", "input[2].call_id", None),
    ({"input": [reasoning()]}, "without its required following item", "input", None),
    ({"input": [reasoning("forged"), CALL, RESULT]}, "not be verified", None, "invalid_encrypted_content"),
    ({"previous_response_id": "resp_1"}, "not found", "previous_response_id", "previous_response_not_found"),
    ({"background": True}, "does not support", "background", "unsupported_parameter"),
    ({"include": ["everything"]}, "'everything'", "include[0]", "invalid_value"),
    ({"max_output_tokens": 3}, ">= 16", "max_output_tokens", "integer_below_min_value"),
    ({"stop": ["x"]}, "Unknown", "stop", "unknown_parameter"),
    ({"stream_options": {}}, "only allowed when 'stream'", "stream_options", None),
    ({"tools": [{"type": "function", "function": {"name": "wave"}}]}, "tools[0]", None, None),
    ({"tools": [WAVE, WAVE]}, "unique", "tools[1].name", None),
    (
        {"tools": [{**WAVE, "parameters": LOOSE, "strict": True}]},
        "to be false",
        "tools[0].parameters",
        "invalid_function_parameters",
    ),
    ({"tool_choice": "required"}, "only allowed when 'tools'", "tool_choice", None),
    ({"tools": [WAVE], "tool_choice": {"type": "function", "name": "bow"}}, "'bow' not found", "tool_choice", None),
    (with_format(strict=True), "to be false", "text.format.schema", "invalid_json_schema"),
    (with_format(name="a b"), "pattern", "text.format.name", "invalid_value"),
]


@pytest.mark.parametrize(("changes", "message", "param", "code"), REFUSED)
async def test_requests_that_openai_refuses_are_refused(
    changes: dict[str, Any], message: str, param: str | None, code: str | None
) -> None:
    async with OpenAIServer(["Hi."]) as server:
        status, received = await post(server, PATH, {"model": "gpt-test", "input": "Hello", **changes})
        error = received["error"]
        assert (status, error["type"]) == (400, "invalid_request_error")
        assert message in error["message"]
        assert param is None or (error["param"], error["code"]) == (param, code)
        assert server.remaining == 1


async def test_reasoning_without_encrypted_content_is_not_found() -> None:
    async with OpenAIServer(["Hi."]) as server, official_client(server) as client:
        input_items: list[Any] = [reasoning(None), CALL, RESULT]
        with pytest.raises(openai.NotFoundError, match="not found"):
            await client.responses.create(model="gpt-test", input=input_items)
