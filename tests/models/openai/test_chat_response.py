"""Parsing responses of Chat Completions, also of servers that only resemble OpenAI's."""

from base64 import b64encode
from typing import Any

import pytest
from tests.models.openai.raw_server import RawServer, delta, json_reply, read_chunks, read_response, stream

from batonkit.messages import AssistantMessage, Audio, Reasoning, ToolCall, Usage, UserMessage
from batonkit.models import ModelRequest, ModelResponse, ModelSettings, ReasoningChunk, TextChunk, ToolCallChunk

ASK = ModelRequest([UserMessage("Hello")])
ASK_UNSTREAMED = ModelRequest([UserMessage("Hello")], stream=False)


def _calls_delta(*fragments: dict[str, Any]) -> dict[str, Any]:
    return delta(tool_calls=list(fragments))


def _call_fragment(
    index: int | None = None, id: str | None = None, name: str | None = None, arguments: Any = None
) -> dict[str, Any]:
    function = {key: value for key, value in {"name": name, "arguments": arguments}.items() if value is not None}
    fragment = {"index": index, "id": id, "type": "function", "function": function}
    return {key: value for key, value in fragment.items() if value is not None}


async def _read_message(*payloads: Any) -> AssistantMessage:
    async with RawServer(stream(*payloads, "[DONE]")) as server:
        response = await read_response(server.model(), ASK)
    assert response.message is not None
    return response.message


async def test_text_is_streamed_and_usage_comes_at_the_end() -> None:
    usage = {
        "prompt_tokens": 20,
        "completion_tokens": 9,
        "prompt_tokens_details": {"cached_tokens": 16},
        "completion_tokens_details": {"reasoning_tokens": 5},
    }
    last: dict[str, Any] = {"choices": [], "usage": usage}
    texts = delta(role="assistant", content=""), delta(content="One "), delta(content="two."), delta("stop")
    async with RawServer(stream(*texts, last, "[DONE]")) as server:
        chunks = await read_chunks(server.model(), ASK)
    assert chunks == [TextChunk("One "), TextChunk("two."), ModelResponse(None, Usage(20, 9, 16, 5), "stop")]


async def test_an_unstreamed_response_is_one_chunk() -> None:
    function = {"name": "add", "arguments": '{"a": 1}'}
    message = {"role": "assistant", "content": "Let me see.", "tool_calls": [{"id": "c1", "function": function}]}
    body = {"choices": [{"message": message, "finish_reason": "tool_calls"}], "usage": {"prompt_tokens": 3}}
    async with RawServer(json_reply(body)) as server:
        (only,) = await read_chunks(server.model(), ASK_UNSTREAMED)
        assert "stream" not in server.requests[0].body
    expected = AssistantMessage("Let me see.", (ToolCall("c1", "add", '{"a": 1}'),))
    assert only == ModelResponse(expected, Usage(3), "tool_calls")


async def test_interleaved_fragments_of_parallel_calls() -> None:
    payloads = (
        _calls_delta(_call_fragment(0, "c1", "add", "")),
        _calls_delta(_call_fragment(0, arguments='{"a"')),
        _calls_delta(_call_fragment(1, "c2", "sub", "")),
        _calls_delta(_call_fragment(0, arguments=": 1}"), _call_fragment(1, arguments='{"b": 2}')),
        delta("tool_calls"),
        "[DONE]",
    )
    async with RawServer(stream(*payloads)) as server:
        chunks = await read_chunks(server.model(), ASK)
    assert chunks[:3] == [
        ToolCallChunk(0, "c1", "add"),
        ToolCallChunk(0, arguments='{"a"'),
        ToolCallChunk(1, "c2", "sub"),
    ]
    assert chunks[-1] == ModelResponse(stop_reason="tool_calls")
    assert (await _read_message(*payloads[:-1])).tool_calls == (
        ToolCall("c1", "add", '{"a": 1}'),
        ToolCall("c2", "sub", '{"b": 2}'),
    )


@pytest.mark.parametrize(
    ("sent", "kept"),
    [
        # Azure begins with an event about the prompt, whose id is empty.
        (["", "c1", "c1"], "c1"),
        # Some servers number their responses, or give each event an id of its own.
        ([17, 17, 17], "17"),
        (["c1", "c2", None], "c1"),
        ([None, None, None], ""),
    ],
)
async def test_the_first_id_is_that_of_the_response(sent: list[Any], kept: str) -> None:
    deltas = [delta(content="Hel"), delta(content="lo"), delta("stop")]
    payloads = [{"id": id, **each} for id, each in zip(sent, deltas, strict=True)]
    async with RawServer(stream(*payloads, "[DONE]")) as server:
        assert (await read_chunks(server.model(), ASK))[-1] == ModelResponse(stop_reason="stop", id=kept)


ONE, TWO = ToolCall("c1", "add", '{"a":1}'), ToolCall("c2", "sub", '{"b":2}')


@pytest.mark.parametrize(
    "payloads",
    [
        # Several complete calls in one chunk, with and without indexes.
        [_calls_delta(_call_fragment(0, "c1", "add", '{"a":1}'), _call_fragment(1, "c2", "sub", '{"b":2}'))],
        [_calls_delta(_call_fragment(None, "c1", "add", '{"a":1}'), _call_fragment(None, "c2", "sub", '{"b":2}'))],
        # Every call has the index 0.
        [
            _calls_delta(_call_fragment(0, "c1", "add", '{"a":1}')),
            _calls_delta(_call_fragment(0, "c2", "sub", '{"b":2}')),
        ],
        [
            _calls_delta(_call_fragment(0, "c1", "add", "")),
            _calls_delta(_call_fragment(0, arguments='{"a":1}')),
            _calls_delta(_call_fragment(0, "c2", "sub", "")),
            _calls_delta(_call_fragment(0, arguments='{"b":2}')),
        ],
        # Every fragment has a different id.
        [
            _calls_delta(_call_fragment(0, "c1", "add", '{"a"'), _call_fragment(1, "c2", "sub", "")),
            _calls_delta(_call_fragment(0, "c3", None, ":1}"), _call_fragment(1, "c4", None, '{"b":2}')),
        ],
        # Every fragment has the id and the name.
        [
            _calls_delta(_call_fragment(0, "c1", "add", '{"a"')),
            _calls_delta(_call_fragment(0, "c1", "add", ":1}")),
            _calls_delta(_call_fragment(1, "c2", "sub", '{"b":2}')),
        ],
        # No indexes; a fragment without id and name continues the last call.
        [
            _calls_delta(_call_fragment(None, "c1", "add", '{"a"')),
            _calls_delta(_call_fragment(arguments=":1}")),
            _calls_delta(_call_fragment(0, "c2", "sub", '{"b":2}')),
        ],
        # Arguments that are not strings.
        [_calls_delta(_call_fragment(0, "c1", "add", {"a": 1}), _call_fragment(1, "c2", "sub", {"b": 2}))],
        # Indexes that do not start at 0, ids only later, empty fragments in between.
        [
            _calls_delta(_call_fragment(1, "", "add", "")),
            _calls_delta(_call_fragment(1, "c1", "", '{"a":1}')),
            _calls_delta(_call_fragment(5, "c2", "sub", '{"b":2}')),
            _calls_delta({"index": 5}),
            delta(tool_calls=None),
        ],
    ],
)
async def test_fragments_are_assigned_to_their_calls(payloads: list[dict[str, Any]]) -> None:
    assert (await _read_message(*payloads, delta("tool_calls"))).tool_calls == (ONE, TWO)


async def test_calls_without_ids_and_arguments_are_kept() -> None:
    message = await _read_message(
        _calls_delta(_call_fragment(0, None, "now", ""), _call_fragment(1, None, "here")), delta("stop")
    )
    assert message.tool_calls == (ToolCall("", "now", "{}"), ToolCall("", "here", "{}"))


async def test_calls_without_ids_that_share_an_index_are_kept_apart() -> None:
    message = await _read_message(
        _calls_delta(_call_fragment(0, None, "now", "{}")),
        _calls_delta(_call_fragment(0, None, "here", "{}")),
        delta("stop"),
    )
    assert message.tool_calls == (ToolCall("", "now", "{}"), ToolCall("", "here", "{}"))


@pytest.mark.parametrize(
    "payloads",
    [
        [_calls_delta(_call_fragment(0, None, "add", '{"a":1}'), _call_fragment(0, None, "add", '{"a":2}'))],
        [
            _calls_delta(_call_fragment(0, None, "add", '{"a":1}')),
            _calls_delta(_call_fragment(0, None, "add", '{"a":2}')),
        ],
        [
            _calls_delta(_call_fragment(0, None, "add", '{"a"')),
            _calls_delta(_call_fragment(0, None, "add", ":1}")),
            _calls_delta(_call_fragment(0, None, "add", "")),
            _calls_delta(_call_fragment(0, None, "add", '{"a":')),
            _calls_delta(_call_fragment(0, None, "add", "2}")),
        ],
        [
            _calls_delta(_call_fragment(0, None, "add", '{"a":1}')),
            _calls_delta(_call_fragment(0, None, "add", "")),
            _calls_delta(_call_fragment(0, None, None, '{"a":2}')),
        ],
    ],
    ids=["one chunk", "two chunks", "name in every piece", "name first"],
)
async def test_calls_of_one_tool_without_ids_that_share_an_index_are_kept_apart(payloads: list[dict[str, Any]]) -> None:
    message = await _read_message(*payloads, delta("tool_calls"))
    assert message.tool_calls == (ToolCall("", "add", '{"a":1}'), ToolCall("", "add", '{"a":2}'))


LONE = "\\ud83d"
"""Half of a surrogate pair, as it is escaped in JSON."""


@pytest.mark.parametrize(
    ("escaped", "text"),
    [
        (f"a{LONE}b", "a\ufffdb"),
        (LONE, "\ufffd"),
        ("\\ude00", "\ufffd"),
        (f"{LONE}\\ude00{LONE}", "\U0001f600\ufffd"),
        (f"{LONE}\\u0041", "\ufffdA"),
        (f"\\\\ud83d{LONE}", "\\ud83d\ufffd"),
    ],
)
async def test_half_of_a_surrogate_pair_is_replaced(escaped: str, text: str) -> None:
    payload = f'{{"choices":[{{"index":0,"delta":{{"content":"{escaped}"}}}}]}}'
    assert (await _read_message(payload, delta("stop"))).content == text


async def test_half_of_a_surrogate_pair_in_arguments_is_replaced() -> None:
    message = await _read_message(_calls_delta(_call_fragment(0, "c1", "add", f'{{"a":"{LONE}"}}')), delta("stop"))
    assert message.tool_calls == (ToolCall("c1", "add", '{"a":"\\ufffd"}'),)


async def test_the_deprecated_function_call_field_is_parsed() -> None:
    payloads = delta(function_call={"name": "add", "arguments": '{"a"'}), delta(function_call={"arguments": ":1}"})
    message = await _read_message(*payloads, delta("function_call"))
    assert message.tool_calls == (ToolCall("", "add", '{"a":1}'),)


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
async def test_reasoning_is_separated_from_the_text(field: str) -> None:
    payloads = delta(**{field: "Let "}), delta(**{field: "me."}, content=None), delta(content="Yes."), delta("stop")
    async with RawServer(stream(*payloads, "[DONE]")) as server:
        chunks = await read_chunks(server.model(provider="deepseek"), ASK)
    assert chunks[:2] == [ReasoningChunk("Let "), ReasoningChunk("me.")]
    async with RawServer(stream(*payloads, "[DONE]")) as server:
        response = await read_response(server.model(provider="deepseek"), ASK)
    assert response.message == AssistantMessage("Yes.", reasoning=(Reasoning("Let me.", "deepseek"),))


async def test_a_refusal_has_the_stop_reason_refusal() -> None:
    async with RawServer(stream(delta(refusal="I "), delta(refusal="won't."), delta("stop"), "[DONE]")) as server:
        response = await read_response(server.model(), ASK)
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
async def test_stop_reasons_are_normalised(sent: str, ours: str) -> None:
    async with RawServer(stream(delta(sent, content="Hi."), "[DONE]")) as server:
        assert (await read_response(server.model(), ASK)).stop_reason == ours


async def test_the_stop_reason_is_tool_calls_whenever_there_are_calls() -> None:
    async with RawServer(stream(_calls_delta(_call_fragment(0, "c1", "add", "{}")), delta("stop"), "[DONE]")) as server:
        assert (await read_response(server.model(), ASK)).stop_reason == "tool_calls"


async def test_a_stream_ends_with_a_finish_reason_or_done() -> None:
    async with RawServer(stream(delta(content="Hi."), "[DONE]"), stream(delta("stop", content="Hi."))) as server:
        for _ in range(2):
            assert (await read_response(server.model(), ASK)).stop_reason == "stop"


async def test_content_parts_are_joined_and_further_choices_are_ignored() -> None:
    parts: list[Any] = [{"type": "text", "text": "Hi"}, {"type": "thinking"}, {"type": "text", "text": "."}]
    second = {"choices": [{"index": 1, "delta": {"content": "Never mind."}, "finish_reason": "stop"}]}
    assert (await _read_message(delta(content=parts), second, delta("stop"))).content == "Hi."


async def test_audio_in_the_response() -> None:
    sound = [
        delta(audio={"id": "a", "transcript": "Hel"}),
        delta(audio={"data": b64encode(b"12").decode(), "transcript": "lo"}),
        delta(audio={"data": b64encode(b"34").decode()}),
        delta("stop"),
    ]
    settings = ModelSettings(extra_body={"modalities": ["text", "audio"], "audio": {"format": "pcm16"}})
    async with RawServer(stream(*sound, "[DONE]")) as server:
        response = await read_response(server.model(), ModelRequest([UserMessage("Hi")], settings=settings))
    assert response.message == AssistantMessage((Audio(None, b"1234", "audio/pcm", "Hello"),))


async def test_numbers_may_be_strings_and_unknown_fields_are_ignored() -> None:
    usage = {"prompt_tokens": "3", "completion_tokens": 4, "prompt_cache_hit_tokens": 2, "cost": {"x": 1}}
    payload = {
        "id": 7,
        "choices": [{"index": "0", "delta": {"content": "Hi."}, "finish_reason": "stop"}],
        "usage": usage,
    }
    async with RawServer(stream(payload)) as server:
        assert (await read_response(server.model(), ASK)).usage == Usage(3, 4, 2)
