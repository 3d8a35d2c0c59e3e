"""Answers of Responses become our values."""

from typing import Any

import pytest
from tests.models.openai.raw import HANG, STREAM, RawServer, answered, event, heard, stream, whole

from baton.errors import (
    ContentFilterError,
    ContextTooLongError,
    EmptyResponseError,
    MalformedResponseError,
    ModelConnectionError,
    ModelError,
    OverloadedError,
    RateLimitError,
)
from baton.messages import AssistantMessage, Image, Reasoning, ToolCall, Usage, UserMessage
from baton.models import Chunk, ModelRequest, ModelResponse, ReasoningChunk, TextChunk, ToolCallChunk

ASK = ModelRequest([UserMessage("Hello")])
ASK_WHOLE = ModelRequest([UserMessage("Hello")], stream=False)
USAGE = {
    "input_tokens": 20,
    "output_tokens": 9,
    "input_tokens_details": {"cached_tokens": 16},
    "output_tokens_details": {"reasoning_tokens": 5},
}
THOUGHT = {
    "type": "reasoning",
    "id": "rs_1",
    "summary": [{"type": "summary_text", "text": "I add."}],
    "encrypted_content": "secret",
}
CALL = {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "add", "arguments": '{"a":1}'}
SAID = {"type": "message", "id": "m_1", "role": "assistant", "content": [{"type": "output_text", "text": "Hello you."}]}
KEPT = {
    "id": "rs_1",
    "summary": [{"type": "summary_text", "text": "I add."}],
    "encrypted_content": "secret",
    "calls_before": 0,
}


def _event(kind: str, index: int = 0, **fields: Any) -> dict[str, Any]:
    return {"type": f"response.{kind}", "output_index": index, "sequence_number": 0, **fields}


def _end(*output: dict[str, Any], status: str = "completed", **fields: Any) -> dict[str, Any]:
    response = {"object": "response", "status": status, "output": list(output), "usage": USAGE, **fields}
    return {"type": f"response.{status}", "response": response}


async def _chunks(*payloads: Any, request: ModelRequest = ASK) -> list[Chunk]:
    async with RawServer(stream(*payloads)) as server:
        return await heard(server.model(api="responses"), request)


async def test_text_thoughts_and_calls_piece_by_piece() -> None:
    chunks = await _chunks(
        {"type": "response.created", "response": {"status": "in_progress", "output": []}},
        _event("output_item.added", item={"type": "reasoning", "id": "rs_1", "summary": []}),
        _event("reasoning_summary_part.added", summary_index=0),
        _event("reasoning_summary_text.delta", delta="I "),
        _event("reasoning_summary_text.delta", delta="add."),
        _event("output_item.done", item=THOUGHT),
        _event("output_item.added", 1, item={**CALL, "arguments": ""}),
        _event("function_call_arguments.delta", 1, delta='{"a"'),
        _event("function_call_arguments.delta", 1, delta=":1}"),
        _event("function_call_arguments.done", 1, arguments='{"a":1}'),
        _event("output_item.done", 1, item=CALL),
        _event("output_item.added", 2, item={**SAID, "content": []}),
        _event("output_text.delta", 2, delta="Hello "),
        _event("output_text.delta", 2, delta="you."),
        _event("output_text.done", 2, text="Hello you."),
        _event("output_item.done", 2, item=SAID),
        _end(THOUGHT, CALL, SAID),
    )
    assert chunks == [
        ReasoningChunk("I "),
        ReasoningChunk("add."),
        ReasoningChunk("", Reasoning("I add.", "openai", KEPT)),
        ToolCallChunk(0, "c1", "add"),
        ToolCallChunk(0, arguments='{"a"'),
        ToolCallChunk(0, arguments=":1}"),
        TextChunk("Hello "),
        TextChunk("you."),
        ModelResponse(None, Usage(20, 9, 16, 5), "tool_calls"),
    ]


WHOLE = AssistantMessage("Hello you.", (ToolCall("c1", "add", '{"a":1}'),), (Reasoning("I add.", "openai", KEPT),))


async def test_a_whole_answer_is_one_response() -> None:
    async with RawServer(whole(_end(THOUGHT, CALL, SAID)["response"])) as server:
        (only,) = await heard(server.model(api="responses"), ASK_WHOLE)
        assert server.asked[0].path == "/v1/responses"
    assert only == ModelResponse(WHOLE, Usage(20, 9, 16, 5), "tool_calls")


async def test_an_answer_that_is_told_only_at_the_end() -> None:
    async with RawServer(stream(_end(THOUGHT, CALL, SAID), "[DONE]")) as server:
        response = await answered(server.model(api="responses"), ASK)
    assert response.message == WHOLE


async def test_nothing_is_waited_for_after_the_last_event() -> None:
    async with RawServer([STREAM + event(_end(SAID)), HANG]) as server:
        assert (await answered(server.model(api="responses"), ASK)).message == AssistantMessage("Hello you.")


async def test_a_second_thought_stands_before_the_second_call() -> None:
    second = {**THOUGHT, "id": "rs_2"}
    async with RawServer(stream(_end(THOUGHT, CALL, second, {**CALL, "call_id": "c2"}))) as server:
        message = (await answered(server.model(api="responses"), ASK)).message
    assert message is not None
    assert [block.signature["calls_before"] for block in message.reasoning] == [0, 1]


async def test_thoughts_in_several_parts() -> None:
    chunks = await _chunks(
        _event("reasoning_summary_part.added", summary_index=0),
        _event("reasoning_summary_text.delta", delta="One"),
        _event("reasoning_summary_part.added", summary_index=1),
        _event("reasoning_summary_text.delta", delta="Two"),
        _event("output_text.delta", 1, delta="Hi."),
        _end(),
    )
    assert "".join(chunk.text for chunk in chunks if type(chunk) is ReasoningChunk) == "One\n\nTwo"


async def test_a_refusal() -> None:
    refused = {"type": "message", "content": [{"type": "refusal", "refusal": "No."}]}
    for payloads in ([_event("refusal.delta", delta="No."), _end(refused)], [_end(refused)]):
        assert (await _chunks(*payloads))[-1] == ModelResponse(None, Usage(20, 9, 16, 5), "refusal")


async def test_an_image_in_the_answer() -> None:
    async with RawServer(stream(_end({"type": "image_generation_call", "result": "MTIz"}))) as server:
        message = (await answered(server.model(api="responses"), ASK)).message
    assert message == AssistantMessage((Image(data=b"123"),))


async def test_an_answer_that_ran_out_of_tokens() -> None:
    end = _end(SAID, status="incomplete", incomplete_details={"reason": "max_output_tokens"})
    assert (await _chunks(end))[-1] == ModelResponse(None, Usage(20, 9, 16, 5), "length")


@pytest.mark.parametrize(
    ("payloads", "kind", "retryable"),
    [
        ([_end(status="failed", error={"code": "server_error", "message": "Oh"})], OverloadedError, True),
        ([_end(status="failed", error={"code": "rate_limit_exceeded", "message": "Oh"})], RateLimitError, True),
        ([{"type": "error", "code": "server_error", "message": "Oh"}], OverloadedError, True),
        ([{"error": {"code": 400, "message": "maximum context length"}}], ContextTooLongError, False),
        ([_end()], EmptyResponseError, True),
        ([_end(status="incomplete", incomplete_details={"reason": "max_output_tokens"})], EmptyResponseError, False),
        ([_end(status="incomplete", incomplete_details={"reason": "content_filter"})], ContentFilterError, False),
        ([_end(SAID, status="incomplete", incomplete_details={"reason": "content_filter"})], ContentFilterError, False),
        ([_event("output_text.delta", delta="Hi.")], ModelConnectionError, True),
        ([_event("output_text.delta", delta="Hi."), "[DONE]"], ModelConnectionError, True),
        ([_event("output_text.delta", delta="Hi."), "{"], MalformedResponseError, True),
        ([_end(SAID, status="cancelled")], ModelError, False),
        ([_end({"type": "image_generation_call", "result": "?"})], MalformedResponseError, True),
    ],
)
async def test_what_goes_wrong(payloads: list[Any], kind: type[ModelError], retryable: bool) -> None:
    with pytest.raises(ModelError) as caught:
        await _chunks(*payloads)
    assert type(caught.value) is kind
    assert caught.value.retryable is retryable


async def test_a_whole_answer_of_another_kind() -> None:
    async with RawServer(whole({"choices": []})) as server:
        with pytest.raises(MalformedResponseError, match="it has no output"):
            await answered(server.model(api="responses"), ASK_WHOLE)
