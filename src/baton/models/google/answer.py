"""The pieces of Google's stream as chunks of an answer."""

from base64 import b64encode
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import msgspec

from ...messages import Audio, File, Image, Part, Reasoning, ToolSpec, Usage
from ..base import Chunk, ModelResponse, PartChunk, ReasoningChunk, TextChunk, ToolCallChunk
from ..failures import empty, filtered, malformed, refused
from .history import wire_name

if TYPE_CHECKING:
    from google.genai import types

_STOP_REASONS = {"STOP": "stop", "MAX_TOKENS": "length", "CONTINUATION": "length"}
_FILTERS = frozenset(
    (
        *("SAFETY", "RECITATION", "LANGUAGE", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII"),
        *("IMAGE_SAFETY", "IMAGE_PROHIBITED_CONTENT", "IMAGE_RECITATION"),
    )
)
_BROKEN_CALLS = frozenset(("MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL", "MALFORMED_RESPONSE"))


class GoogleStreamParser:
    """An answer, as far as it has come."""

    def __init__(self, model: str, tools: Sequence[ToolSpec] = ()) -> None:
        self._model = model
        self._names = {wire_name(tool.name): tool.name for tool in tools}
        self._reason = ""
        self._message = ""
        self._usage: types.GenerateContentResponseUsageMetadata | None = None
        self._thoughts: list[str] = []
        self._calls = 0
        self._has_content = False

    @property
    def is_complete(self) -> bool:
        """Whether the model has said why it stopped."""
        return bool(self._reason)

    def chunks(self, piece: "types.GenerateContentResponse") -> Iterator[Chunk]:
        """What this piece adds to the answer. Raises ContentFilterError if the prompt was blocked."""
        self._usage = piece.usage_metadata or self._usage
        feedback = piece.prompt_feedback
        if feedback is not None and feedback.block_reason is not None:
            raise refused(self._model, "filtered", _why(feedback.block_reason.value, feedback.block_reason_message))
        for candidate in (piece.candidates or ())[:1]:
            content = candidate.content
            for part in (content.parts if content is not None else None) or ():
                yield from self._part(part)
            if candidate.finish_reason is not None:
                self._reason = candidate.finish_reason.value
                self._message = candidate.finish_message or ""

    def end(self) -> Iterator[Chunk]:
        """What comes last. Raises a ModelError if nothing was said, or nothing that can be used."""
        if self._thoughts:
            yield ReasoningChunk(whole=self._thought(None))
        reason = self._stop_reason()
        if self._reason in _BROKEN_CALLS:
            raise malformed(self._model, f"it says itself: {self._reason} {self._message}".strip())
        if reason == "content_filter":
            raise filtered(self._model, _why(self._reason, self._message))
        if not self._has_content:
            raise empty(self._model, reason)
        yield ModelResponse(None, self._used(), reason, self._model)

    def _part(self, part: "types.Part") -> Iterator[Chunk]:
        signature = part.thought_signature
        if part.thought:
            if part.text:
                self._thoughts.append(part.text)
                yield ReasoningChunk(part.text)
            if signature:
                yield ReasoningChunk(whole=self._thought({"signature": _base64(signature)}))
            return
        call = part.function_call
        if call is not None:
            name = self._names.get(call.name or "", call.name or "")
            if signature or self._thoughts:
                opaque = {"signature": _base64(signature), "call": self._calls, "name": name} if signature else None
                yield ReasoningChunk(whole=self._thought(opaque))
            arguments = msgspec.json.encode(call.args or {}).decode()
            # Google gives no ids, or counts them anew in each answer.
            yield ToolCallChunk(self._calls, call.id or f"call_{uuid4().hex}", name, arguments)
            self._calls += 1
            self._has_content = True
            return
        if signature or (self._thoughts and (part.text or part.inline_data)):
            yield ReasoningChunk(whole=self._thought({"signature": _base64(signature)} if signature else None))
        if part.text:
            self._has_content = True
            yield TextChunk(part.text)
        elif part.inline_data is not None and part.inline_data.data is not None:
            self._has_content = True
            yield PartChunk(_media(part.inline_data.data, part.inline_data.mime_type))

    def _thought(self, opaque: dict[str, Any] | None) -> Reasoning:
        text = "".join(self._thoughts)
        self._thoughts.clear()
        return Reasoning(text, "google", opaque)

    def _stop_reason(self) -> str:
        if self._reason in _FILTERS:
            return "content_filter"
        reason = _STOP_REASONS.get(self._reason, self._reason.lower())
        return "tool_calls" if reason == "stop" and self._calls else reason

    def _used(self) -> Usage | None:
        used = self._usage
        if used is None:
            return None
        thoughts = used.thoughts_token_count or 0
        return Usage(
            input_tokens=(used.prompt_token_count or 0) + (used.tool_use_prompt_token_count or 0),
            output_tokens=(used.candidates_token_count or 0) + thoughts,
            cached_tokens=used.cached_content_token_count or 0,
            reasoning_tokens=thoughts,
            model_calls=1,
        )


def _why(reason: str, message: str | None) -> str:
    return f"{reason}: {message}" if message else reason


def _media(data: bytes, media_type: str | None) -> Part:
    kind = media_type or "application/octet-stream"
    if kind.startswith("image/"):
        return Image(data=data, media_type=kind)
    return Audio(data=data, media_type=kind) if kind.startswith("audio/") else File(data=data, media_type=kind)


def _base64(signature: bytes) -> str:
    return b64encode(signature).decode()
