"""Answers of Chat Completions become our values, also those of servers that only resemble OpenAI's."""

from base64 import b64encode
from typing import Any

import pytest
from tests.models.openai.raw import RawServer, answered, delta, heard, stream, whole

from baton.messages import AssistantMessage, Audio, Reasoning, ToolCall, Usage, UserMessage
from baton.models import ModelRequest, ModelResponse, ModelSettings, ReasoningChunk, TextChunk, ToolCallChunk

ASK = ModelRequest([UserMessage("Hello")])
ASK_WHOLE = ModelRequest([UserMessage("Hello")], stream=False)


def _calls(*pieces: dict[str, Any]) -> dict[str, Any]:
    return delta(tool_calls=list(pieces))


def _piece(
    index: int | None = None, id: str | None = None, name: str | None = None, arguments: Any = None
) -> dict[str, Any]:
    function = {key: value for key, value in {"name": name, "arguments": arguments}.items() if value is not None}
    piece = {"index": index, "id": id, "type": "function", "function": function}
    return {key: value for key, value in piece.items() if value is not None}


async def _said(*payloads: Any) -> AssistantMessage:
    async with RawServer(stream(*payloads, "[DONE]")) as server:
        response = await answered(server.model(), ASK)
    assert response.message is not None
    return response.message


async def test_text_comes_piece_by_piece_and_usage_at_the_end() -> None:
    usage = {
        "prompt_tokens": 20,
        "completion_tokens": 9,
        "prompt_tokens_details": {"cached_tokens": 16},
        "completion_tokens_details": {"reasoning_tokens": 5},
    }
    last: dict[str, Any] = {"choices": [], "usage": usage}
    texts = delta(role="assistant", content=""), delta(content="One "), delta(content="two."), delta("stop")
    async with RawServer(stream(*texts, last, "[DONE]")) as server:
        chunks = await heard(server.model(), ASK)
    assert chunks == [TextChunk("One "), TextChunk("two."), ModelResponse(None, Usage(20, 9, 16, 5), "stop")]


async def test_a_whole_answer_is_one_response() -> None:
    function = {"name": "add", "arguments": '{"a": 1}'}
    message = {"role": "assistant", "content": "Let me see.", "tool_calls": [{"id": "c1", "function": function}]}
    body = {"choices": [{"message": message, "finish_reason": "tool_calls"}], "usage": {"prompt_tokens": 3}}
    async with RawServer(whole(body)) as server:
        (only,) = await heard(server.model(), ASK_WHOLE)
        assert "stream" not in server.asked[0].body
    said = AssistantMessage("Let me see.", (ToolCall("c1", "add", '{"a": 1}'),))
    assert only == ModelResponse(said, Usage(3), "tool_calls")


async def test_parallel_calls_in_pieces() -> None:
    payloads = (
        _calls(_piece(0, "c1", "add", "")),
        _calls(_piece(0, arguments='{"a"')),
        _calls(_piece(1, "c2", "sub", "")),
        _calls(_piece(0, arguments=": 1}"), _piece(1, arguments='{"b": 2}')),
        delta("tool_calls"),
        "[DONE]",
    )
    async with RawServer(stream(*payloads)) as server:
        chunks = await heard(server.model(), ASK)
    assert chunks[:3] == [
        ToolCallChunk(0, "c1", "add"),
        ToolCallChunk(0, arguments='{"a"'),
        ToolCallChunk(1, "c2", "sub"),
    ]
    assert chunks[-1] == ModelResponse(stop_reason="tool_calls")
    assert (await _said(*payloads[:-1])).tool_calls == (
        ToolCall("c1", "add", '{"a": 1}'),
        ToolCall("c2", "sub", '{"b": 2}'),
    )


ONE, TWO = ToolCall("c1", "add", '{"a":1}'), ToolCall("c2", "sub", '{"b":2}')


@pytest.mark.parametrize(
    "payloads",
    [
        # Several whole calls in one chunk, numbered or not.
        [_calls(_piece(0, "c1", "add", '{"a":1}'), _piece(1, "c2", "sub", '{"b":2}'))],
        [_calls(_piece(None, "c1", "add", '{"a":1}'), _piece(None, "c2", "sub", '{"b":2}'))],
        # Every call has the number 0.
        [_calls(_piece(0, "c1", "add", '{"a":1}')), _calls(_piece(0, "c2", "sub", '{"b":2}'))],
        [
            _calls(_piece(0, "c1", "add", "")),
            _calls(_piece(0, arguments='{"a":1}')),
            _calls(_piece(0, "c2", "sub", "")),
            _calls(_piece(0, arguments='{"b":2}')),
        ],
        # Every piece has an id of its own.
        [
            _calls(_piece(0, "c1", "add", '{"a"'), _piece(1, "c2", "sub", "")),
            _calls(_piece(0, "c3", None, ":1}"), _piece(1, "c4", None, '{"b":2}')),
        ],
        # Id and name come with every piece.
        [
            _calls(_piece(0, "c1", "add", '{"a"')),
            _calls(_piece(0, "c1", "add", ":1}")),
            _calls(_piece(1, "c2", "sub", '{"b":2}')),
        ],
        # No numbers; what has neither id nor name goes on with the last call.
        [
            _calls(_piece(None, "c1", "add", '{"a"')),
            _calls(_piece(arguments=":1}")),
            _calls(_piece(0, "c2", "sub", '{"b":2}')),
        ],
        # Arguments that are no text.
        [_calls(_piece(0, "c1", "add", {"a": 1}), _piece(1, "c2", "sub", {"b": 2}))],
        # Numbers that do not begin with 0, ids only later, empty pieces between.
        [
            _calls(_piece(1, "", "add", "")),
            _calls(_piece(1, "c1", "", '{"a":1}')),
            _calls(_piece(5, "c2", "sub", '{"b":2}')),
            _calls({"index": 5}),
            delta(tool_calls=None),
        ],
    ],
)
async def test_calls_are_told_apart_however_they_come(payloads: list[dict[str, Any]]) -> None:
    assert (await _said(*payloads, delta("tool_calls"))).tool_calls == (ONE, TWO)


async def test_calls_without_ids_or_arguments() -> None:
    said = await _said(_calls(_piece(0, None, "now", ""), _piece(1, None, "here")), delta("stop"))
    assert said.tool_calls == (ToolCall("", "now", "{}"), ToolCall("", "here", "{}"))


async def test_calls_without_ids_that_have_one_number() -> None:
    said = await _said(_calls(_piece(0, None, "now", "{}")), _calls(_piece(0, None, "here", "{}")), delta("stop"))
    assert said.tool_calls == (ToolCall("", "now", "{}"), ToolCall("", "here", "{}"))


async def test_the_oldest_way_to_call() -> None:
    payloads = delta(function_call={"name": "add", "arguments": '{"a"'}), delta(function_call={"arguments": ":1}"})
    said = await _said(*payloads, delta("function_call"))
    assert said.tool_calls == (ToolCall("", "add", '{"a":1}'),)


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
async def test_thoughts_are_told_apart_from_the_answer(field: str) -> None:
    payloads = delta(**{field: "Let "}), delta(**{field: "me."}, content=None), delta(content="Yes."), delta("stop")
    async with RawServer(stream(*payloads, "[DONE]")) as server:
        chunks = await heard(server.model(provider="deepseek"), ASK)
    assert chunks[:2] == [ReasoningChunk("Let "), ReasoningChunk("me.")]
    async with RawServer(stream(*payloads, "[DONE]")) as server:
        response = await answered(server.model(provider="deepseek"), ASK)
    assert response.message == AssistantMessage("Yes.", reasoning=(Reasoning("Let me.", "deepseek"),))


async def test_a_refusal_is_an_answer_with_a_reason_of_its_own() -> None:
    async with RawServer(stream(delta(refusal="I "), delta(refusal="won't."), delta("stop"), "[DONE]")) as server:
        response = await answered(server.model(), ASK)
    assert response.message == AssistantMessage("I won't.")
    assert response.stop_reason == "refusal"


@pytest.mark.parametrize(
    ("sent", "ours"),
    [
        ("stop", "stop"),
        ("eos", "stop"),
        ("length", "length"),
        ("max_tokens", "length"),
        ("tool_calls", "stop"),
        ("something_new", "something_new"),
    ],
)
async def test_reasons_to_stop_have_one_name_each(sent: str, ours: str) -> None:
    async with RawServer(stream(delta(sent, content="Hi."), "[DONE]")) as server:
        assert (await answered(server.model(), ASK)).stop_reason == ours


async def test_calls_are_the_reason_whatever_the_server_says() -> None:
    async with RawServer(stream(_calls(_piece(0, "c1", "add", "{}")), delta("stop"), "[DONE]")) as server:
        assert (await answered(server.model(), ASK)).stop_reason == "tool_calls"


async def test_an_end_needs_a_reason_or_a_mark() -> None:
    async with RawServer(stream(delta(content="Hi."), "[DONE]"), stream(delta("stop", content="Hi."))) as server:
        for _ in range(2):
            assert (await answered(server.model(), ASK)).stop_reason == "stop"


async def test_content_in_parts_and_further_choices() -> None:
    parts: list[Any] = [{"type": "text", "text": "Hi"}, {"type": "thinking"}, {"type": "text", "text": "."}]
    second = {"choices": [{"index": 1, "delta": {"content": "Never mind."}, "finish_reason": "stop"}]}
    assert (await _said(delta(content=parts), second, delta("stop"))).content == "Hi."


async def test_sound_in_the_answer() -> None:
    sound = [
        delta(audio={"id": "a", "transcript": "Hel"}),
        delta(audio={"data": b64encode(b"12").decode(), "transcript": "lo"}),
        delta(audio={"data": b64encode(b"34").decode()}),
        delta("stop"),
    ]
    settings = ModelSettings(extra_body={"modalities": ["text", "audio"], "audio": {"format": "pcm16"}})
    async with RawServer(stream(*sound, "[DONE]")) as server:
        response = await answered(server.model(), ModelRequest([UserMessage("Hi")], settings=settings))
    assert response.message == AssistantMessage((Audio(None, b"1234", "audio/pcm", "Hello"),))


async def test_numbers_may_be_text_and_unknown_things_are_passed_over() -> None:
    usage = {"prompt_tokens": "3", "completion_tokens": 4, "prompt_cache_hit_tokens": 2, "cost": {"x": 1}}
    payload = {
        "id": 7,
        "choices": [{"index": "0", "delta": {"content": "Hi."}, "finish_reason": "stop"}],
        "usage": usage,
    }
    async with RawServer(stream(payload)) as server:
        assert (await answered(server.model(), ASK)).usage == Usage(3, 4, 2)
