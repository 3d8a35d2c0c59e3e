"""The Gemini API: an answer is written, whole or as server-sent events."""

from base64 import b64encode
from itertools import count
from typing import Any

import msgspec

from ....errors import ContentFilterError, ModelError
from ....messages import AssistantMessage, Data, Part, Text, ToolCall, Usage, text_of
from ....models import Chunk, ModelResponse, PartChunk, ReasoningChunk, TextChunk, ToolCallChunk, assemble_response
from ..base import AnswerStream
from ..received import ValidRequest
from .errors import body_of, code_of

_ids = count(1)
_encode = msgspec.json.Encoder().encode
_REASONS = {"length": "MAX_TOKENS", "content_filter": "SAFETY"}


class Signatures(set[str]):
    """The signatures that were sent."""

    def new(self, opaque: Any = None) -> str:
        """The signature that the script gives, or another one."""
        given: Any = opaque or {}
        signature: str = given.get("signature") or b64encode(f"signature {next(_ids)}".encode()).decode()
        self.add(signature)
        return signature


def generated(asked: ValidRequest, whole: ModelResponse, signatures: Signatures, *, gives_ids: bool) -> bytes:
    """An answer in one piece."""
    stream = ContentStream(asked, signatures, gives_ids=gives_ids)
    said = whole.message or AssistantMessage()
    for thought in said.reasoning:
        stream.think(thought.text, thought.signature)
    content = said.content
    spoken: tuple[Part, ...] = (Text(content),) if isinstance(content, str) else content
    parts = [{"text": thought.text, "thought": True} for thought in said.reasoning if thought.text]
    parts += [_part(part) for part in spoken if part != Text("")]
    parts += [stream.call(call) for call in said.tool_calls]
    return _encode(stream.piece(parts, whole))


class ContentStream(AnswerStream):
    """An answer as pieces, each a response of its own; a call comes whole."""

    def __init__(self, asked: ValidRequest, signatures: Signatures, *, gives_ids: bool) -> None:
        self._signatures = signatures
        self._gives_ids = gives_ids
        self._head = {"modelVersion": asked.model, "responseId": f"response{next(_ids)}"}
        self._call: list[ToolCallChunk] = []
        self._opaque: Any = None
        self._has_thought = False
        self._is_signed = False

    def chunk(self, chunk: Chunk) -> bytes:
        """The piece of a text, of a thought or of a medium; of a call, the one before it."""
        if type(chunk) is ToolCallChunk:
            before = b"" if self._call and self._call[0].index == chunk.index else self._flushed()
            self._call.append(chunk)
            return before
        before = self._flushed()
        if type(chunk) is TextChunk:
            return before + self._event([{"text": chunk.text}])
        if type(chunk) is ReasoningChunk:
            self.think(chunk.text, chunk.whole.signature if chunk.whole is not None else None)
            return before + (self._event([{"text": chunk.text, "thought": True}]) if chunk.text else b"")
        if type(chunk) is PartChunk:
            return before + self._event([_part(chunk.part)])
        return before

    def end(self, whole: ModelResponse) -> bytes:
        """The last piece: why it ended, what was used, and the signature of thoughts that led to words."""
        before = self._flushed()
        parts: list[dict[str, Any]] = []
        if self._has_thought and not self._is_signed:
            parts.append({"text": "", "thoughtSignature": self._signatures.new(self._opaque)})
        return before + _sse(self.piece(parts, whole))

    def failed(self, error: ModelError) -> bytes:
        """An error in place of a piece; what the filter stops ends with a reason of its own."""
        if isinstance(error, ContentFilterError):
            return self._flushed() + _sse(self.piece([], ModelResponse(stop_reason="content_filter", usage=Usage())))
        return _sse(body_of(code_of(error), str(error)))

    def think(self, text: str, opaque: Any) -> None:
        """A thought was there, and this belongs to it."""
        self._has_thought = True
        self._opaque = opaque or self._opaque

    def call(self, call: ToolCall) -> dict[str, Any]:
        """The part of a call; the first one of an answer is signed."""
        arguments = msgspec.json.decode(call.arguments or "{}")
        named = {"id": call.id} if self._gives_ids else {}
        part: dict[str, Any] = {"functionCall": {**named, "name": call.name, "args": arguments}}
        if not self._is_signed:
            self._is_signed = True
            part["thoughtSignature"] = self._signatures.new(self._opaque)
        return part

    def piece(self, parts: list[dict[str, Any]], whole: ModelResponse | None = None) -> dict[str, Any]:
        """One response; `whole` makes it the last."""
        candidate: dict[str, Any] = {"index": 0}
        if parts or whole is None:
            candidate["content"] = {"parts": parts, "role": "model"}
        if whole is None:
            return {"candidates": [candidate], **self._head}
        candidate["finishReason"] = _REASONS.get(whole.stop_reason, "STOP")
        return {"candidates": [candidate], "usageMetadata": usage_of(whole.usage), **self._head}

    def _flushed(self) -> bytes:
        if not self._call:
            return b""
        message = assemble_response(self._call).message or AssistantMessage()
        self._call.clear()
        return self._event([self.call(call) for call in message.tool_calls])

    def _event(self, parts: list[dict[str, Any]]) -> bytes:
        return _sse(self.piece(parts))


def usage_of(usage: Usage | None) -> dict[str, Any]:
    """Usage as the Gemini API tells it: thoughts are not among the tokens of the candidates."""
    used = usage or Usage()
    return {
        "promptTokenCount": used.input_tokens,
        "candidatesTokenCount": used.output_tokens - used.reasoning_tokens,
        "totalTokenCount": used.total_tokens,
        **({"cachedContentTokenCount": used.cached_tokens} if used.cached_tokens else {}),
        **({"thoughtsTokenCount": used.reasoning_tokens} if used.reasoning_tokens else {}),
    }


def _part(part: Part) -> dict[str, Any]:
    if isinstance(part, Text | Data):
        return {"text": text_of((part,))}
    if part.data is not None:
        return {"inlineData": {"mimeType": part.media_type, "data": b64encode(part.data).decode()}}
    raise ModelError("the script answers with media by url, which Google's models do not send")


def _sse(body: dict[str, Any]) -> bytes:
    return b"data: " + _encode(body) + b"\r\n\r\n"
