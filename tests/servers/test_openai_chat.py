"""Chat Completions with the official client, and requests that OpenAI would refuse."""

from typing import Any

import openai
import pytest
from pydantic import BaseModel
from tests.servers import OpenAIServer
from tests.servers.clients import HELLO, official_client, post

from batonkit.errors import ContentFilterError
from batonkit.messages import (
    AssistantMessage,
    Audio,
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
from batonkit.models import ModelResponse, ModelSettings
from batonkit.testing import ScriptedStream, ScriptStep, call, say

PATH = "/v1/chat/completions"
CALL = {"id": "a", "type": "function", "function": {"name": "wave", "arguments": "{}"}}
CALLS: dict[str, Any] = {"role": "assistant", "content": None, "tool_calls": [CALL]}
RESULT: dict[str, Any] = {"role": "tool", "tool_call_id": "a", "content": "done"}
STRICT: dict[str, Any] = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}


def wave(**function: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": "wave", **function}}


async def complete(step: ScriptStep) -> Any:
    async with OpenAIServer([step]) as server, official_client(server) as client:
        return await client.chat.completions.create(model="gpt-test", messages=HELLO)


async def complete_streamed(step: ScriptStep, **options: Any) -> Any:
    """Return the completion that the official client accumulates from a stream."""
    request_options: dict[str, Any] = {
        "model": "gpt-test",
        "messages": HELLO,
        "stream_options": {"include_usage": True},
    }
    async with (
        OpenAIServer([step], **options) as server,
        official_client(server) as client,
        client.chat.completions.stream(**request_options) as stream,
    ):
        return await stream.get_final_completion()


@pytest.mark.parametrize("streams", [False, True])
async def test_text_and_calls_are_read_by_the_official_client(streams: bool) -> None:
    step = say("One moment, please.", call("find", city="Rome, the eternal one"), call("wave"), usage=Usage(7, 5, 3, 2))
    completion = await complete_streamed(step) if streams else await complete(step)
    choice = completion.choices[0]
    calls: list[Any] = choice.message.tool_calls
    assert choice.message.content == "One moment, please."
    assert [(each.id, each.function.name, each.function.arguments) for each in calls] == [
        ("call_1", "find", '{"city":"Rome, the eternal one"}'),
        ("call_2", "wave", "{}"),
    ]
    assert choice.finish_reason == "tool_calls"
    usage = completion.usage
    assert (usage.prompt_tokens, usage.completion_tokens, usage.total_tokens) == (7, 5, 12)
    assert usage.prompt_tokens_details.cached_tokens == 3
    assert usage.completion_tokens_details.reasoning_tokens == 2


async def test_text_and_arguments_are_streamed() -> None:
    step = say("One two three.", call("find", city="Rome, of course"))
    async with OpenAIServer([step]) as server, official_client(server) as client:
        stream = await client.chat.completions.create(model="gpt-test", messages=HELLO, stream=True)
        deltas = [chunk.choices[0].delta async for chunk in stream]
    assert [delta.content for delta in deltas if delta.content] == ["One ", "two ", "three."]
    assert sum(1 for delta in deltas if delta.tool_calls) >= 3


@pytest.mark.parametrize("reason", ["stop", "length", "content_filter"])
async def test_the_scripted_stop_reason_is_sent(reason: str) -> None:
    step = ModelResponse(AssistantMessage("So far"), stop_reason=reason)
    assert (await streamed_finish_reason(step)) == reason


async def streamed_finish_reason(step: ScriptStep) -> str | None:
    async with OpenAIServer([step]) as server, official_client(server) as client:
        stream = await client.chat.completions.create(model="gpt-test", messages=HELLO, stream=True)
        return [chunk.choices[0].finish_reason async for chunk in stream][-1]


async def test_a_content_filter_in_the_middle_ends_the_stream() -> None:
    assert await streamed_finish_reason(ScriptedStream("So", ContentFilterError("no"))) == "content_filter"


@pytest.mark.parametrize("streams", [False, True])
async def test_a_refusal_has_no_content(streams: bool) -> None:
    step = ModelResponse(AssistantMessage("I will not."), stop_reason="refusal")
    message = (await complete_streamed(step) if streams else await complete(step)).choices[0].message
    assert message.refusal == "I will not."
    assert not message.content


async def test_reasoning_is_sent_unstreamed_and_accepted_back() -> None:
    step = AssistantMessage("Yes.", reasoning=(Reasoning("Hm."),))
    async with OpenAIServer([step, "Hi."], reasoning_field="reasoning") as server:
        _, body = await post(server, PATH, {"model": "m", "messages": HELLO})
        message = {key: body["choices"][0]["message"][key] for key in ("role", "content", "reasoning")}
        status, _ = await post(server, PATH, {"model": "m", "messages": [*HELLO, message]})
    assert (message["reasoning"], status) == ("Hm.", 200)
    assert server.requests[1].request.messages[1] == step


async def test_reasoning_is_sent_only_with_a_reasoning_field() -> None:
    step = AssistantMessage("Yes.", reasoning=(Reasoning("Hm."),))
    without_reasoning = await complete_streamed(step)
    assert "reasoning_content" not in (without_reasoning.choices[0].message.model_extra or {})
    with_reasoning = await complete_streamed(step, reasoning_field="reasoning_content")
    assert with_reasoning.choices[0].message.model_extra["reasoning_content"] == "Hm."


class City(BaseModel):
    name: str


async def test_structured_output_is_parsed_by_the_official_client() -> None:
    async with OpenAIServer(['{"name":"Rome"}']) as server, official_client(server) as client:
        parsed = await client.chat.completions.parse(model="gpt-test", messages=HELLO, response_format=City)
    assert parsed.choices[0].message.parsed == City(name="Rome")
    output = server.requests[0].request.output_schema
    assert output is not None
    assert output.name == "City"


async def test_models_are_listed() -> None:
    async with OpenAIServer({"small": [], "large": []}) as server, official_client(server) as client:
        assert [model.id async for model in client.models.list()] == ["small", "large"]
        assert (await client.models.retrieve("small")).id == "small"
        with pytest.raises(openai.NotFoundError):
            await client.models.retrieve("huge")


async def test_requests_are_converted_to_batons_types() -> None:
    image_part = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAEC", "detail": "low"}}
    audio_part = {"type": "input_audio", "input_audio": {"data": "AAEC", "format": "mp3"}}
    file_part = {"type": "file", "file": {"file_data": "data:application/pdf;base64,AAEC", "filename": "a.pdf"}}
    content = [{"type": "text", "text": "See:"}, image_part, audio_part, file_part]
    messages: list[Any] = [
        {"role": "developer", "content": "Be kind."},
        {"role": "user", "content": content},
        CALLS,
        RESULT,
        {"role": "system", "content": "Hurry."},
        {"role": "assistant", "content": [{"type": "text", "text": "Done."}]},
    ]
    async with OpenAIServer(["Hi."]) as server, official_client(server) as client:
        await client.chat.completions.create(
            model="gpt-test",
            messages=messages,
            tools=[wave(description="Wave.", parameters=STRICT, strict=True)],  # pyright: ignore[reportArgumentType]
            tool_choice={"type": "function", "function": {"name": "wave"}},
            parallel_tool_calls=False,
            temperature=0.5,
            max_completion_tokens=9,
            stop="end",
            seed=3,
        )
    request = server.requests[0].request
    data = b"\x00\x01\x02"
    assert request.instructions == "Be kind."
    assert request.messages == (
        UserMessage(
            (
                Text("See:"),
                Image(data=data, detail="low"),
                Audio(data=data, media_type="audio/mpeg"),
                File(data=data, media_type="application/pdf", name="a.pdf"),
            )
        ),
        AssistantMessage(tool_calls=(ToolCall("a", "wave"),)),
        ToolMessage("a", "wave", "done"),
        SystemMessage("Hurry."),
        AssistantMessage("Done."),
    )
    assert [(tool.name, tool.description, tool.parameters, tool.strict) for tool in request.tools] == [
        ("wave", "Wave.", STRICT, True)
    ]
    assert request.settings == ModelSettings(
        temperature=0.5, max_tokens=9, parallel_tool_calls=False, stop_sequences=("end",), seed=3
    )
    assert request.tool_choice == "wave"


def strict_tool_with(schema: dict[str, Any]) -> list[dict[str, Any]]:
    """Return a strict tool with one parameter of this schema."""
    return [wave(parameters={**STRICT, "properties": {"city": schema}}, strict=True)]


LOOSE = {**STRICT, "additionalProperties": True}
WITHOUT_REQUIRED: dict[str, Any] = {**STRICT, "required": []}
DEEP = {**STRICT, "properties": {"city": {"type": "array", "items": {"type": "object"}}}}


REFUSED: list[tuple[dict[str, Any], str, str | None, str | None]] = [
    ({"model": None}, "Invalid type for 'model': expected a string", "model", "invalid_type"),
    ({"messages": []}, "empty array", "messages", "empty_array"),
    ({"messages": [{"role": "robot", "content": ""}]}, "'robot'", "messages[0].role", "invalid_value"),
    ({"messages": [{"content": ""}]}, "messages[0].role", "messages[0].role", "missing_required_parameter"),
    ({"messages": [{"role": "user"}]}, "Missing", "messages[0].content", "missing_required_parameter"),
    ({"messages": [{"role": "user", "content": []}]}, "empty array", "messages[0].content", "empty_array"),
    (
        {"messages": [{"role": "user", "content": [{"type": "x"}]}]},
        "'x'",
        "messages[0].content[0].type",
        "invalid_value",
    ),
    ({"messages": [{"role": "assistant"}]}, "got null", "messages.[0].content", None),
    ({"messages": [{**CALLS, "tool_calls": []}]}, "empty array", "messages[0].tool_calls", "empty_array"),
    ({"messages": [{**CALLS, "tool_calls": [{**CALL, "id": "a" * 41}]}]}, "length 40", None, "string_above_max_length"),
    ({"messages": [*HELLO, RESULT]}, "must be a response", "messages.[1].role", None),
    ({"messages": [*HELLO, CALLS]}, "did not have response messages: a", "messages", None),
    ({"messages": [*HELLO, CALLS, *HELLO, RESULT]}, "did not have response messages: a", "messages", None),
    ({"messages": [*HELLO, CALLS, RESULT, RESULT]}, "must be a response", "messages.[3].role", None),
    (
        {"messages": [{"role": "assistant", "content": "", "reasoning_content": "Hm"}]},
        "Unknown",
        None,
        "unknown_parameter",
    ),
    ({"temperatur": 1}, "Unknown parameter: 'temperatur'", "temperatur", "unknown_parameter"),
    ({"temperature": 3}, "above maximum", "temperature", "integer_above_max_value"),
    ({"top_p": -0.5}, "below minimum", "top_p", "decimal_below_min_value"),
    ({"max_tokens": 1, "max_completion_tokens": 1}, "same time", None, "invalid_parameter_combination"),
    ({"stop": list("abcde")}, "too long", "stop", "array_above_max_length"),
    ({"stream_options": {"include_usage": True}}, "only allowed when 'stream'", "stream_options", None),
    ({"n": 2}, "one answer", "n", None),
    ({"prediction": {}}, "does not support", "prediction", "unsupported_parameter"),
    ({"top_logprobs": 2}, "requires 'logprobs'", "top_logprobs", None),
    ({"tools": []}, "empty array", "tools", "empty_array"),
    ({"tools": [wave(name="")]}, "empty string", "tools[0].function.name", "empty_string"),
    ({"tools": [wave(name="a b")]}, "pattern", "tools[0].function.name", "invalid_value"),
    ({"tools": [wave(name="a" * 65)]}, "too long", "tools[0].function.name", "string_above_max_length"),
    ({"tools": [wave(), wave()]}, "unique", "tools[1].function.name", None),
    ({"tools": [wave(parameters={"type": "string"})]}, "'type: \"string\"'", None, "invalid_function_parameters"),
    ({"tools": [wave(parameters=LOOSE, strict=True)]}, "to be false", None, "invalid_function_parameters"),
    (
        {"tools": [wave(parameters=WITHOUT_REQUIRED, strict=True)]},
        "Missing 'city'",
        None,
        "invalid_function_parameters",
    ),
    ({"tools": [wave(parameters=DEEP, strict=True)]}, "'items'", None, "invalid_function_parameters"),
    ({"tools": strict_tool_with({"type": "array"})}, "missing items", None, "invalid_function_parameters"),
    ({"tools": strict_tool_with({"oneOf": []})}, "'oneOf' is not permitted", None, "invalid_function_parameters"),
    ({"tools": strict_tool_with({"description": "any"})}, "must have a 'type'", None, "invalid_function_parameters"),
    ({"tools": strict_tool_with({"anyOf": ["x"]})}, "must be an object", None, "invalid_function_parameters"),
    ({"tools": [wave()] * 129}, "too long", "tools", "array_above_max_length"),
    ({"tool_choice": "required"}, "only allowed when 'tools'", "tool_choice", None),
    ({"tools": [wave()], "tool_choice": wave(name="bow")}, "'bow' not found", "tool_choice", None),
    ({"parallel_tool_calls": True}, "only allowed when 'tools'", "parallel_tool_calls", None),
    (
        {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": LOOSE, "strict": True}}},
        "Invalid schema for response_format 'x'",
        "response_format",
        "invalid_json_schema",
    ),
]


@pytest.mark.parametrize(("changes", "message", "param", "code"), REFUSED)
async def test_requests_that_openai_refuses_are_refused(
    changes: dict[str, Any], message: str, param: str | None, code: str | None
) -> None:
    async with OpenAIServer(["Hi."]) as server:
        status, body = await post(server, PATH, {"model": "gpt-test", "messages": HELLO, **changes})
        error = body["error"]
        assert (status, error["type"], error["code"]) == (400, "invalid_request_error", code)
        assert message in error["message"]
        assert param is None or error["param"] == param
        assert server.remaining == 1


@pytest.mark.parametrize(
    "parameters",
    [STRICT, {**STRICT, "properties": {"city": {"anyOf": [{"type": "string"}, {"type": "null"}]}}}],
)
async def test_valid_strict_schemas_are_accepted(parameters: dict[str, Any]) -> None:
    async with OpenAIServer(["Hi."]) as server:
        body = {"model": "m", "messages": HELLO, "tools": [wave(parameters=parameters, strict=True)]}
        assert (await post(server, PATH, body))[0] == 200


@pytest.mark.parametrize("url", ["cat.png", "data:image/png;base64,###", "data:text/plain;base64,AAEC"])
async def test_invalid_images_are_refused(url: str) -> None:
    content = [{"type": "image_url", "image_url": {"url": url}}]
    async with OpenAIServer(["Hi."]) as server:
        status, body = await post(server, PATH, {"model": "m", "messages": [{"role": "user", "content": content}]})
    assert status == 400
    assert body["error"]["param"] == "messages[0].content[0].image_url.url"


async def test_keys_paths_methods_and_bodies_are_checked() -> None:
    async with OpenAIServer(["Hi."]) as server:
        body = {"model": "m", "messages": HELLO}
        assert (await post(server, PATH, body, authorization="Bearer other"))[1]["error"]["code"] == "invalid_api_key"
        assert (await post(server, PATH, body, authorization=""))[0] == 401
        assert (await post(server, "/v1/nonsense", body))[0] == 404
        assert "parse the JSON" in (await post(server, PATH, b"{nonsense"))[1]["error"]["message"]
        text_body = await post(server, PATH, b"{}", **{"content-type": "text/plain"})
        assert "Unsupported content type" in text_body[1]["error"]["message"]
        async with official_client(server) as client:
            with pytest.raises(openai.APIStatusError) as raised:
                await client.get("/chat/completions", cast_to=object)
    assert raised.value.status_code == 405
    assert len(server.rejected) == 6


async def test_scripted_media_that_cannot_be_sent_are_an_error() -> None:
    async with OpenAIServer([AssistantMessage((Image(url="https://example.org/cat.png"),))]) as server:
        status, body = await post(server, PATH, {"model": "m", "messages": HELLO})
    assert status == 500
    assert "answers with Image" in body["error"]["message"]
