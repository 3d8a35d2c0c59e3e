"""Chat Completions: an answer is written, whole or as chunks of server-sent events."""

import time
from itertools import count
from typing import Any

import msgspec

from ....errors import ContentFilterError, ModelError
from ....messages import AssistantMessage, ToolCall, Usage, media_of, text_of
from ....models import Chunk, ModelResponse, PartChunk, ReasoningChunk, TextChunk, ToolCallChunk
from ..base import AnswerStream
from ..received import ValidRequest
from .chat_wire import ChatRequest, ReasoningField
from .errors import kind_and_code

_ids = count(1)
_encode = msgspec.json.Encoder().encode
_REASONS = frozenset({"stop", "length", "content_filter", "tool_calls"})
_DONE = b"data: [DONE]\n\n"


def completion(asked: ValidRequest, whole: ModelResponse, reasoning_field: ReasoningField) -> bytes:
    """An answer in one piece."""
    said = whole.message or AssistantMessage()
    text = spoken(said)
    is_refusal = whole.stop_reason == "refusal"
    message: dict[str, Any] = {
        "role": "assistant",
        "content": None if is_refusal or (not text and said.tool_calls) else text,
        "refusal": text if is_refusal else None,
        "annotations": [],
    }
    thoughts = "".join([block.text for block in said.reasoning])
    if reasoning_field and thoughts:
        message[reasoning_field] = thoughts
    if said.tool_calls:
        message["tool_calls"] = [_call(call) for call in said.tool_calls]
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": finish_reason(whole)}
    return _encode({**_head(asked, "chat.completion"), "choices": [choice], "usage": usage_of(whole.usage)})


class ChatStream(AnswerStream):
    """An answer as chunks."""

    def __init__(self, asked: ValidRequest, reasoning_field: ReasoningField) -> None:
        wire: ChatRequest = asked.wire
        self._reasoning_field = reasoning_field
        self._wants_usage = wire.stream_options is not None and bool(wire.stream_options.include_usage)
        self._head = _head(asked, "chat.completion.chunk")
        # Only the delta differs from chunk to chunk, so what stands around it is encoded once.
        self._before = b"data: " + _encode(self._head)[:-1] + b',"choices":[{"index":0,"delta":'
        self._no_usage = b',"usage":null' if self._wants_usage else b""
        self._after = b',"logprobs":null,"finish_reason":null}]' + self._no_usage + b"}\n\n"
        self._seen: set[int] = set()

    def begin(self) -> bytes:
        """The chunk with the role."""
        return self._delta({"role": "assistant", "content": "", "refusal": None})

    def chunk(self, chunk: Chunk) -> bytes:
        """A chunk with a piece of text, of a thought or of a call."""
        if type(chunk) is TextChunk:
            return self._delta({"refusal" if self.is_refusal else "content": chunk.text})
        if type(chunk) is ToolCallChunk:
            return self._delta({"tool_calls": [self._call(chunk)]})
        if type(chunk) is ReasoningChunk:
            return self._delta({self._reasoning_field: chunk.text}) if self._reasoning_field and chunk.text else b""
        if type(chunk) is PartChunk:
            return self._delta({"content": spoken(AssistantMessage((chunk.part,)))})
        return b""

    def end(self, whole: ModelResponse) -> bytes:
        """The reason for the end, usage if it was asked for, and the last line."""
        return self._finished(finish_reason(whole)) + self._usage(whole.usage) + _DONE

    def failed(self, error: ModelError) -> bytes:
        """An error in place of a chunk; what the filter stops ends with a reason of its own."""
        if isinstance(error, ContentFilterError):
            return self._finished("content_filter") + _DONE
        kind, code = kind_and_code(error)
        body = {"error": {"message": str(error), "type": kind, "param": None, "code": code}}
        return b"data: " + _encode(body) + b"\n\n"

    def _delta(self, delta: dict[str, Any]) -> bytes:
        return self._before + _encode(delta) + self._after

    def _call(self, chunk: ToolCallChunk) -> dict[str, Any]:
        if chunk.index in self._seen:
            return {"index": chunk.index, "function": {"arguments": chunk.arguments}}
        self._seen.add(chunk.index)
        function = {"name": chunk.name, "arguments": chunk.arguments}
        return {"index": chunk.index, "id": chunk.id, "type": "function", "function": function}

    def _finished(self, reason: str) -> bytes:
        ending = b'{},"logprobs":null,"finish_reason":' + _encode(reason) + b"}]"
        return self._before + ending + self._no_usage + b"}\n\n"

    def _usage(self, usage: Usage | None) -> bytes:
        if not self._wants_usage:
            return b""
        return b"data: " + _encode({**self._head, "choices": [], "usage": usage_of(usage)}) + b"\n\n"


def finish_reason(whole: ModelResponse) -> str:
    """Why the answer ended: what the script says, or what the answer is."""
    if whole.stop_reason in _REASONS:
        return whole.stop_reason
    return "tool_calls" if whole.message is not None and whole.message.tool_calls else "stop"


def spoken(said: AssistantMessage) -> str:
    """The text of an answer; a ModelError if there is something in it that this wire cannot carry."""
    media = media_of(said.content)
    if media:
        kinds = ", ".join([type(part).__name__ for part in media])
        raise ModelError(f"the script answers with {kinds}, which OpenAI's models do not send on this address")
    return text_of(said.content)


def usage_of(usage: Usage | None) -> dict[str, Any]:
    """Usage as Chat Completions tell it."""
    used = usage or Usage()
    return {
        "prompt_tokens": used.input_tokens,
        "completion_tokens": used.output_tokens,
        "total_tokens": used.total_tokens,
        "prompt_tokens_details": {"cached_tokens": used.cached_tokens, "audio_tokens": 0},
        "completion_tokens_details": {
            "reasoning_tokens": used.reasoning_tokens,
            "audio_tokens": 0,
            "accepted_prediction_tokens": 0,
            "rejected_prediction_tokens": 0,
        },
    }


def _head(asked: ValidRequest, kind: str) -> dict[str, Any]:
    return {
        "id": f"chatcmpl-{next(_ids):024d}",
        "object": kind,
        "created": int(time.time()),
        "model": asked.model,
        "service_tier": "default",
        "system_fingerprint": "fp_baton",
    }


def _call(call: ToolCall) -> dict[str, Any]:
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
