"""The events of Anthropic's stream as chunks of an answer."""

from collections.abc import Iterator
from typing import Any

from ...errors import ModelError
from ...messages import Reasoning, Usage
from ..base import Chunk, ModelResponse, ReasoningChunk, TextChunk, ToolCallChunk
from ..failures import empty

_STOP_REASONS = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "pause_turn": "stop",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "tool_use": "tool_calls",
    "refusal": "refusal",
}


class AnthropicStreamParser:
    """An answer, as far as it has come. What is wrong with an event shows as a KeyError, TypeError or ValueError."""

    def __init__(self, model: str) -> None:
        self.is_complete = False
        self._model = model
        self._usage: dict[str, Any] = {}
        self._stop_reason: str = ""
        self._explanation: str = ""
        self._calls: dict[int, int] = {}
        self._thinking: dict[int, _Thinking] = {}
        self._written = 0

    def chunks(self, event: dict[str, Any]) -> Iterator[Chunk]:
        """What this event adds to the answer; kinds that are not known add nothing."""
        match event["type"]:
            case "content_block_delta":
                yield from self._delta(event["index"], event["delta"])
            case "content_block_start":
                yield from self._start(event["index"], event["content_block"])
            case "content_block_stop":
                thinking = self._thinking.pop(event["index"], None)
                if thinking is not None:
                    yield ReasoningChunk(whole=thinking.closed())
            case "message_start":
                self._count(event["message"].get("usage") or {})
            case "message_delta":
                self._stopped(event["delta"])
                self._count(event.get("usage") or {})
            case "message_stop":
                self.is_complete = True
            case _:
                pass

    def end(self) -> ModelResponse | ModelError:
        """How it ended: an error, if nothing was said."""
        if not self._written and not self._calls:
            error = empty(self._model, self._stop_reason)
            if self._explanation:
                error.add_note(f"The provider explains: {self._explanation}")
            return error
        return ModelResponse(None, self._used(), self._stop_reason, self._model)

    def _start(self, index: int, block: dict[str, Any]) -> Iterator[Chunk]:
        match block["type"]:
            case "text":
                yield from self._text(block.get("text", ""))
            case "tool_use":
                position = self._calls[index] = len(self._calls)
                yield ToolCallChunk(position, block["id"], block["name"])
            case "thinking":
                thinking = self._thinking[index] = _Thinking(self._so_far())
                yield from thinking.more(block.get("thinking", ""))
                thinking.signature += block.get("signature", "")
            case "redacted_thinking":
                opaque = {"data": block["data"], **self._so_far()}
                yield ReasoningChunk(whole=Reasoning("", "anthropic", opaque))
            case _:
                pass

    def _delta(self, index: int, delta: dict[str, Any]) -> Iterator[Chunk]:
        match delta["type"]:
            case "text_delta":
                yield from self._text(delta["text"])
            case "input_json_delta":
                # Tools that run at Anthropic's are called in the same words, and are none of ours.
                if index in self._calls and delta["partial_json"]:
                    yield ToolCallChunk(self._calls[index], arguments=delta["partial_json"])
            case "thinking_delta":
                yield from self._thinking[index].more(delta["thinking"])
            case "signature_delta":
                self._thinking[index].signature += delta["signature"]
            case _:
                pass

    def _text(self, text: str) -> Iterator[Chunk]:
        if text:
            self._written += len(text)
            yield TextChunk(text)

    def _so_far(self) -> dict[str, Any]:
        """Where in the answer a thought stands, unless it stands at its beginning."""
        return {"after": [self._written, len(self._calls)]} if self._written or self._calls else {}

    def _stopped(self, delta: dict[str, Any]) -> None:
        reason: str | None = delta.get("stop_reason")
        if reason:
            self._stop_reason = _STOP_REASONS.get(reason, reason)
        details: dict[str, Any] = delta.get("stop_details") or {}
        self._explanation = details.get("explanation") or self._explanation

    def _count(self, usage: dict[str, Any]) -> None:
        # Later counts include the earlier ones; what is not repeated has not changed.
        self._usage |= {key: value for key, value in usage.items() if value is not None}

    def _used(self) -> Usage:
        used = self._usage
        cached = used.get("cache_read_input_tokens", 0)
        return Usage(
            input_tokens=used.get("input_tokens", 0) + cached + used.get("cache_creation_input_tokens", 0),
            output_tokens=used.get("output_tokens", 0),
            cached_tokens=cached,
            reasoning_tokens=used.get("output_tokens_details", {}).get("thinking_tokens", 0),
            model_calls=1,
        )


class _Thinking:
    """One block of thoughts, as far as it has come."""

    __slots__ = ("_place", "_text", "signature")

    def __init__(self, place: dict[str, Any]) -> None:
        self.signature = ""
        self._place = place
        self._text: list[str] = []

    def more(self, text: str) -> Iterator[Chunk]:
        if text:
            self._text.append(text)
            yield ReasoningChunk(text)

    def closed(self) -> Reasoning:
        opaque = {"signature": self.signature, **self._place} if self.signature else None
        return Reasoning("".join(self._text), "anthropic", opaque)
