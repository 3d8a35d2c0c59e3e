"""The Gemini API: an answer is written, whole or as server-sent events.

What Google says when something is wrong: a code, a status in words, a message and details.
"""

from base64 import b64encode
from itertools import count
from typing import Any

import msgspec
from tests.servers.base import AnswerStream, HttpFault, RequestRejectedError, ValidRequest, headers_of, status_of
from tests.servers.validation import InvalidBodyError

from baton.errors import ContentFilterError, ContextTooLongError, ModelError, OverloadedError, RateLimitError
from baton.messages import AssistantMessage, Data, Part, Text, ToolCall, Usage, text_of
from baton.models import Chunk, ModelResponse, PartChunk, ReasoningChunk, TextChunk, ToolCallChunk, assemble_response

_TYPES = "type.googleapis.com/google.rpc."
_WORDS = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    429: "RESOURCE_EXHAUSTED",
    500: "INTERNAL",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}
_KINDS = {"str": "TYPE_STRING", "int": "TYPE_INT32", "float": "TYPE_FLOAT", "bool": "TYPE_BOOL"}


def wrong(message: str, *, status: int = 400, details: list[dict[str, Any]] | None = None) -> RequestRejectedError:
    """A request that is not in order."""
    return RequestRejectedError(status, body_of(status, message, details))


def bad_key() -> RequestRejectedError:
    """A key that is not known, which is a bad argument in Google's eyes."""
    info = {"@type": f"{_TYPES}ErrorInfo", "reason": "API_KEY_INVALID", "domain": "googleapis.com"}
    return wrong("API key not valid. Please pass a valid API key.", details=[info])


def told(invalid: InvalidBodyError) -> RequestRejectedError:
    """A body that does not have the right form."""
    place = invalid.place
    where, _, name = place.rpartition(".")
    at = f" at '{where}'" if where else ""
    match invalid.kind:
        case "json":
            return wrong(f"Invalid JSON payload received. {invalid.given}")
        case "unknown":
            return wrong(f'Invalid JSON payload received. Unknown name "{name}"{at}: Cannot find field.')
        case "missing":
            return wrong(f"* GenerateContentRequest.{place}: [FIELD_INVALID] required field is not set.")
        case "type":
            kind = _KINDS.get(invalid.wanted, invalid.wanted)
            return wrong(f"Invalid value at '{place}' ({kind}), got {invalid.given}")
        case _:
            return wrong(f"Invalid value at '{place}': {invalid.given}")


def refused(error: ModelError, tokens: int, window: int | None, streams: bool) -> RequestRejectedError:
    """A scripted error, before anything of the answer was sent."""
    if isinstance(error, ContentFilterError):
        return _blocked(error, streams)
    status = status_of(error)
    headers = headers_of(error)
    if isinstance(error, HttpFault) and error.body is not None:
        return RequestRejectedError(status, error.body, headers=headers)
    message = str(error)
    if isinstance(error, ContextTooLongError):
        limit = window or tokens - 1
        message = f"The input token count ({tokens}) exceeds the maximum number of tokens allowed ({limit})."
    details = None
    if isinstance(error, RateLimitError) and error.retry_after is not None:
        details = [{"@type": f"{_TYPES}RetryInfo", "retryDelay": f"{error.retry_after:g}s"}]
    return RequestRejectedError(status, body_of(status, message, details), headers=headers)


def body_of(status: int, message: str, details: list[dict[str, Any]] | None = None) -> dict[str, Any]:
    """The body of an error, which is also what stands in a stream."""
    error: dict[str, Any] = {"code": status, "message": message, "status": _WORDS.get(status, "UNKNOWN")}
    return {"error": {**error, "details": details} if details else error}


def code_of(error: ModelError) -> int:
    """The code of an error in the middle of a stream."""
    return 503 if isinstance(error, OverloadedError) else status_of(error)


def _blocked(error: ModelError, streams: bool) -> RequestRejectedError:
    # A prompt that the filter stops is not an error to Google, but an answer without candidates.
    feedback = {"promptFeedback": {"blockReason": "SAFETY", "blockReasonMessage": str(error)}}
    body = msgspec.json.encode({**feedback, "usageMetadata": {"promptTokenCount": 1, "totalTokenCount": 1}})
    if not streams:
        return RequestRejectedError(200, body)
    return RequestRejectedError(200, b"data: " + body + b"\r\n\r\n", headers={"content-type": "text/event-stream"})


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
