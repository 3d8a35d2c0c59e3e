"""Parsing responses of the Responses API."""

from typing import Any

import pytest
from pydantic import BaseModel
from tests.models.openai.raw_server import (
    HANG,
    STREAM,
    RawServer,
    event,
    json_reply,
    read_chunks,
    read_response,
    stream,
)

from batonkit import Agent, Runner
from batonkit.errors import (
    ContentFilterError,
    ContextTooLongError,
    EmptyResponseError,
    MalformedResponseError,
    ModelConnectionError,
    ModelError,
    OverloadedError,
    RateLimitError,
)
from batonkit.log import TextDelta
from batonkit.messages import AssistantMessage, Image, Reasoning, Text, ToolCall, Usage, UserMessage
from batonkit.models import Chunk, ModelRequest, ModelResponse, ModelSettings, ReasoningChunk, TextChunk, ToolCallChunk
from batonkit.stores import MemoryStore

ASK = ModelRequest([UserMessage("Hello")], settings=ModelSettings(max_retries=0))
ASK_UNSTREAMED = ModelRequest([UserMessage("Hello")], stream=False, settings=ModelSettings(max_retries=0))
USAGE = {
    "input_tokens": 20,
    "output_tokens": 9,
    "input_tokens_details": {"cached_tokens": 16},
    "output_tokens_details": {"reasoning_tokens": 5},
}
REASONING_ITEM = {
    "type": "reasoning",
    "id": "rs_1",
    "summary": [{"type": "summary_text", "text": "I add."}],
    "encrypted_content": "secret",
}
CALL_ITEM = {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "add", "arguments": '{"a":1}'}
MESSAGE_ITEM = {
    "type": "message",
    "id": "m_1",
    "role": "assistant",
    "content": [{"type": "output_text", "text": "Hello you."}],
}
SIGNATURE = {
    "id": "rs_1",
    "summary": [{"type": "summary_text", "text": "I add."}],
    "encrypted_content": "secret",
    "calls_before": 0,
    "messages_before": 0,
}


def _event(kind: str, index: int = 0, **fields: Any) -> dict[str, Any]:
    return {"type": f"response.{kind}", "output_index": index, "sequence_number": 0, **fields}


def _end(*output: dict[str, Any], status: str = "completed", **fields: Any) -> dict[str, Any]:
    response = {"object": "response", "status": status, "output": list(output), "usage": USAGE, **fields}
    return {"type": f"response.{status}", "response": response}


async def _chunks(*payloads: Any, request: ModelRequest = ASK) -> list[Chunk]:
    async with RawServer(stream(*payloads)) as server:
        return await read_chunks(server.model(api="responses"), request)


async def test_reasoning_calls_and_text_are_streamed() -> None:
    chunks = await _chunks(
        {"type": "response.created", "response": {"status": "in_progress", "output": []}},
        _event("output_item.added", item={"type": "reasoning", "id": "rs_1", "summary": []}),
        _event("reasoning_summary_part.added", summary_index=0),
        _event("reasoning_summary_text.delta", delta="I "),
        _event("reasoning_summary_text.delta", delta="add."),
        _event("output_item.done", item=REASONING_ITEM),
        _event("output_item.added", 1, item={**CALL_ITEM, "arguments": ""}),
        _event("function_call_arguments.delta", 1, delta='{"a"'),
        _event("function_call_arguments.delta", 1, delta=":1}"),
        _event("function_call_arguments.done", 1, arguments='{"a":1}'),
        _event("output_item.done", 1, item=CALL_ITEM),
        _event("output_item.added", 2, item={**MESSAGE_ITEM, "content": []}),
        _event("output_text.delta", 2, delta="Hello "),
        _event("output_text.delta", 2, delta="you."),
        _event("output_text.done", 2, text="Hello you."),
        _event("output_item.done", 2, item=MESSAGE_ITEM),
        _end(REASONING_ITEM, CALL_ITEM, MESSAGE_ITEM),
    )
    assert chunks == [
        ReasoningChunk("I "),
        ReasoningChunk("add."),
        ReasoningChunk("", Reasoning("I add.", "openai", SIGNATURE)),
        ToolCallChunk(0, "c1", "add"),
        ToolCallChunk(0, arguments='{"a"'),
        ToolCallChunk(0, arguments=":1}"),
        TextChunk("Hello "),
        TextChunk("you."),
        ModelResponse(None, Usage(20, 9, 16, 5), "tool_calls"),
    ]


EXPECTED_MESSAGE = AssistantMessage(
    "Hello you.", (ToolCall("c1", "add", '{"a":1}'),), (Reasoning("I add.", "openai", SIGNATURE),)
)


async def test_an_unstreamed_response_is_one_chunk() -> None:
    async with RawServer(json_reply(_end(REASONING_ITEM, CALL_ITEM, MESSAGE_ITEM)["response"])) as server:
        (only,) = await read_chunks(server.model(api="responses"), ASK_UNSTREAMED)
        assert server.requests[0].path == "/v1/responses"
    assert only == ModelResponse(EXPECTED_MESSAGE, Usage(20, 9, 16, 5), "tool_calls")


async def test_output_that_is_only_in_the_final_event_is_used() -> None:
    async with RawServer(stream(_end(REASONING_ITEM, CALL_ITEM, MESSAGE_ITEM), "[DONE]")) as server:
        response = await read_response(server.model(api="responses"), ASK)
    assert response.message == EXPECTED_MESSAGE


async def test_reading_stops_after_the_final_event() -> None:
    async with RawServer([STREAM + event(_end(MESSAGE_ITEM)), HANG]) as server:
        assert (await read_response(server.model(api="responses"), ASK)).message == AssistantMessage("Hello you.")


async def test_reasoning_records_the_number_of_calls_before_it() -> None:
    second = {**REASONING_ITEM, "id": "rs_2"}
    async with RawServer(stream(_end(REASONING_ITEM, CALL_ITEM, second, {**CALL_ITEM, "call_id": "c2"}))) as server:
        message = (await read_response(server.model(api="responses"), ASK)).message
    assert message is not None
    assert [block.signature["calls_before"] for block in message.reasoning] == [0, 1]


async def test_parts_of_a_reasoning_summary_are_joined() -> None:
    chunks = await _chunks(
        _event("reasoning_summary_part.added", summary_index=0),
        _event("reasoning_summary_text.delta", delta="One"),
        _event("reasoning_summary_part.added", summary_index=1),
        _event("reasoning_summary_text.delta", delta="Two"),
        _event("output_text.delta", 1, delta="Hi."),
        _end(),
    )
    assert "".join(chunk.text for chunk in chunks if type(chunk) is ReasoningChunk) == "One\n\nTwo"


async def test_a_refusal_has_the_stop_reason_refusal() -> None:
    refused = {"type": "message", "content": [{"type": "refusal", "refusal": "No."}]}
    for payloads in ([_event("refusal.delta", delta="No."), _end(refused)], [_end(refused)]):
        assert (await _chunks(*payloads))[-1] == ModelResponse(None, Usage(20, 9, 16, 5), "refusal")


async def test_an_image_in_the_response() -> None:
    async with RawServer(stream(_end({"type": "image_generation_call", "result": "MTIz"}))) as server:
        message = (await read_response(server.model(api="responses"), ASK)).message
    assert message == AssistantMessage((Image(data=b"123"),))


async def test_an_incomplete_response_has_the_stop_reason_length() -> None:
    end = _end(MESSAGE_ITEM, status="incomplete", incomplete_details={"reason": "max_output_tokens"})
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
        (
            [_end(MESSAGE_ITEM, status="incomplete", incomplete_details={"reason": "content_filter"})],
            ContentFilterError,
            False,
        ),
        ([_event("output_text.delta", delta="Hi.")], ModelConnectionError, True),
        ([_event("output_text.delta", delta="Hi."), "[DONE]"], ModelConnectionError, True),
        ([_event("output_text.delta", delta="Hi."), "{"], MalformedResponseError, True),
        ([_end(MESSAGE_ITEM, status="cancelled")], ModelError, False),
        ([_end({"type": "image_generation_call", "result": "?"})], MalformedResponseError, True),
    ],
)
async def test_failures_map_to_errors(payloads: list[Any], kind: type[ModelError], retryable: bool) -> None:
    with pytest.raises(ModelError) as caught:
        await _chunks(*payloads)
    assert type(caught.value) is kind
    assert caught.value.retryable is retryable


async def test_a_response_without_output_is_malformed() -> None:
    async with RawServer(json_reply({"choices": []})) as server:
        with pytest.raises(MalformedResponseError, match="it has no output"):
            await read_response(server.model(api="responses"), ASK_UNSTREAMED)


COMMENTARY = {**MESSAGE_ITEM, "phase": "commentary", "content": [{"type": "output_text", "text": "I look it up."}]}
ANSWER = {
    **MESSAGE_ITEM,
    "id": "m_2",
    "phase": "final_answer",
    "content": [{"type": "output_text", "text": '{"city":"Rome"}'}],
}


class Trip(BaseModel):
    city: str


def _streamed(index: int, item: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the events of a message item whose text arrives in two pieces."""
    text = item["content"][0]["text"]
    return [
        _event("output_item.added", index, item={**item, "content": []}),
        _event("output_text.delta", index, delta=text[:4]),
        _event("output_text.delta", index, delta=text[4:]),
        _event("output_item.done", index, item=item),
    ]


@pytest.mark.parametrize(
    "reply",
    [
        stream(*_streamed(0, COMMENTARY), *_streamed(1, ANSWER), _end(COMMENTARY, ANSWER)),
        stream(_end(COMMENTARY, ANSWER)),
        json_reply(_end(COMMENTARY, ANSWER)["response"]),
    ],
    ids=["streamed", "only at the end", "unstreamed"],
)
async def test_an_answer_with_commentary_before_it_fits_its_output_type(reply: bytes) -> None:
    async with RawServer(reply) as server:
        agent = Agent("Guide", model=server.model(api="responses"), output_type=Trip)
        result = await Runner(agent).run("Where?")
        assert len(server.requests) == 1
    assert result.output == Trip(city="Rome")


async def test_messages_of_a_response_are_kept_apart_and_sent_back_with_their_phase() -> None:
    reply = stream(*_streamed(0, COMMENTARY), *_streamed(1, ANSWER), _end(COMMENTARY, ANSWER))
    async with RawServer(reply, reply) as server:
        runner = Runner(Agent("Guide", model=server.model(api="responses")), store=MemoryStore())
        result = await runner.run("Where?", thread="t")
        await runner.run("Really?", thread="t")
        sent = server.requests[1].body["input"]
    assert result.output == '{"city":"Rome"}'
    assert result.messages[-1].content == (
        Text("I look it up.", phase="commentary"),
        Text('{"city":"Rome"}', phase="final_answer"),
    )
    assert sent[1:-1] == [
        {"role": "assistant", "content": "I look it up.", "phase": "commentary"},
        {"role": "assistant", "content": '{"city":"Rome"}', "phase": "final_answer"},
    ]


async def test_subscribers_receive_messages_on_lines_of_their_own() -> None:
    reply = stream(*_streamed(0, COMMENTARY), *_streamed(1, ANSWER), _end(COMMENTARY, ANSWER))
    async with RawServer(reply) as server:
        runner = Runner(Agent("Guide", model=server.model(api="responses")))
        async with runner.stream("Where?") as run:
            pieces = [event.text async for event in run if isinstance(event, TextDelta)]
    assert "".join(pieces) == 'I look it up.\n{"city":"Rome"}'


async def test_of_messages_without_a_phase_the_last_is_the_answer() -> None:
    first = {**COMMENTARY, "phase": None}
    last = {**ANSWER, "phase": None}
    async with RawServer(stream(*_streamed(0, first), *_streamed(1, last), _end(first, last))) as server:
        agent = Agent("Guide", model=server.model(api="responses"), output_type=Trip)
        assert (await Runner(agent).run("Where?")).output == Trip(city="Rome")


async def test_commentary_alone_is_the_answer() -> None:
    async with RawServer(stream(*_streamed(0, COMMENTARY), _end(COMMENTARY))) as server:
        result = await Runner(Agent("Guide", model=server.model(api="responses"))).run("Where?")
    assert result.output == "I look it up."


async def test_reasoning_stays_before_the_message_that_it_led_to() -> None:
    second = {**REASONING_ITEM, "id": "rs_2"}
    reply = stream(_end(REASONING_ITEM, COMMENTARY, second, ANSWER))
    async with RawServer(reply, stream(_end(ANSWER))) as server:
        runner = Runner(Agent("Guide", model=server.model("gpt-5", api="responses")), store=MemoryStore())
        await runner.run("Where?", thread="t")
        await runner.run("Really?", thread="t")
        sent = server.requests[1].body["input"]
    assert [item.get("id") or item.get("phase") for item in sent] == [
        None,
        "rs_1",
        "commentary",
        "rs_2",
        "final_answer",
        None,
    ]


async def test_text_before_the_call_of_the_output_tool_is_not_part_of_the_answer() -> None:
    call = {**CALL_ITEM, "name": "final_answer", "arguments": '{"city":"Rome"}'}
    async with RawServer(stream(_end(MESSAGE_ITEM, call))) as server:
        agent = Agent("Guide", model=server.model(api="responses", structured="tool"), output_type=Trip)
        assert (await Runner(agent).run("Where?")).output == Trip(city="Rome")
        assert len(server.requests) == 1
