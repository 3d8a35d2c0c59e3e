"""Responses of the Gemini API, unstreamed or as server-sent events, and its errors."""

from base64 import b64encode
from itertools import count
from typing import Any

import msgspec
from tests.servers.base import AnswerStream, HttpFault, RequestRejectedError, ValidRequest, headers_of, status_of
from tests.servers.validation import InvalidBodyError

from batonkit.errors import ContentFilterError, ContextTooLongError, ModelError, OverloadedError, RateLimitError
from batonkit.messages import AssistantMessage, Data, Part, Text, TokenLogprob, ToolCall, Usage, text_of
from batonkit.models import Chunk, ModelResponse, PartChunk, ReasoningChunk, TextChunk, ToolCallChunk, assemble_response

_TYPES = "type.googleapis.com/google.rpc."
_STATUS_NAMES = {
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
    """Create the rejection of an invalid request."""
    return RequestRejectedError(status, body_of(status, message, details))


def bad_key() -> RequestRejectedError:
    """Create the rejection of an unknown key, which is an invalid argument for Google."""
    info = {"@type": f"{_TYPES}ErrorInfo", "reason": "API_KEY_INVALID", "domain": "googleapis.com"}
    return wrong("API key not valid. Please pass a valid API key.", details=[info])


def rejection_of(invalid: InvalidBodyError) -> RequestRejectedError:
    """Create the rejection of a malformed body."""
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
    """Create the rejection for a scripted error before the response has started."""
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
    """Create the body of an error, which is also used in streams."""
    error: dict[str, Any] = {"code": status, "message": message, "status": _STATUS_NAMES.get(status, "UNKNOWN")}
    return {"error": {**error, "details": details} if details else error}


def code_of(error: ModelError) -> int:
    """Return the code of an error in the middle of a stream."""
    return 503 if isinstance(error, OverloadedError) else status_of(error)


def _blocked(error: ModelError, streams: bool) -> RequestRejectedError:
    # For Google, a blocked prompt is not an error but a response without candidates.
    feedback = {"promptFeedback": {"blockReason": "SAFETY", "blockReasonMessage": str(error)}}
    body = msgspec.json.encode({**feedback, "usageMetadata": {"promptTokenCount": 1, "totalTokenCount": 1}})
    if not streams:
        return RequestRejectedError(200, body)
    return RequestRejectedError(200, b"data: " + body + b"\r\n\r\n", headers={"content-type": "text/event-stream"})


_ids = count(1)
_encode = msgspec.json.Encoder().encode
_REASONS = {"length": "MAX_TOKENS", "content_filter": "SAFETY"}


class Signatures(set[str]):
    """The signatures that the server sent."""

    def new(self, opaque: Any = None) -> str:
        """Return the scripted signature, or a new one."""
        given: Any = opaque or {}
        signature: str = given.get("signature") or b64encode(f"signature {next(_ids)}".encode()).decode()
        self.add(signature)
        return signature


def encode_response(valid: ValidRequest, whole: ModelResponse, signatures: Signatures, *, gives_ids: bool) -> bytes:
    """Encode an unstreamed response."""
    stream = ContentStream(valid, signatures, gives_ids=gives_ids)
    answer = whole.message or AssistantMessage()
    for block in answer.reasoning:
        stream.record_reasoning(block.text, block.signature)
    content = answer.content
    answer_parts: tuple[Part, ...] = (Text(content),) if isinstance(content, str) else content
    parts = [{"text": block.text, "thought": True} for block in answer.reasoning if block.text]
    parts += [_part(part) for part in answer_parts if part != Text("")]
    parts += [stream.call(call) for call in answer.tool_calls]
    return _encode(stream.event_body(parts, whole))


class ContentStream(AnswerStream):
    """A streamed response; each event is a GenerateContentResponse, and calls are not split."""

    def __init__(self, valid: ValidRequest, signatures: Signatures, *, gives_ids: bool) -> None:
        config = valid.wire.generation_config
        self._wants_logprobs = config is not None and bool(config.response_logprobs)
        self._signatures = signatures
        self._gives_ids = gives_ids
        self._head = {"modelVersion": valid.model, "responseId": f"response{next(_ids)}"}
        self._call: list[ToolCallChunk] = []
        self._opaque: Any = None
        self._has_reasoning = False
        self._is_signed = False

    def chunk(self, chunk: Chunk) -> bytes:
        """Encode a chunk of text, reasoning or media; a call is buffered until its last chunk."""
        if type(chunk) is ToolCallChunk:
            before = b"" if self._call and self._call[0].index == chunk.index else self._flush_call()
            self._call.append(chunk)
            return before
        before = self._flush_call()
        if type(chunk) is TextChunk:
            return before + self._event([{"text": chunk.text}])
        if type(chunk) is ReasoningChunk:
            self.record_reasoning(chunk.text, chunk.whole.signature if chunk.whole is not None else None)
            return before + (self._event([{"text": chunk.text, "thought": True}]) if chunk.text else b"")
        if type(chunk) is PartChunk:
            return before + self._event([_part(chunk.part)])
        return before

    def end(self, whole: ModelResponse) -> bytes:
        """Encode the last event: stop reason, usage, and the signature of reasoning before text."""
        before = self._flush_call()
        parts: list[dict[str, Any]] = []
        if self._has_reasoning and not self._is_signed:
            parts.append({"text": "", "thoughtSignature": self._signatures.new(self._opaque)})
        return before + _sse(self.event_body(parts, whole))

    def failed(self, error: ModelError) -> bytes:
        """Encode an error event; a content filter has its own finish reason."""
        if isinstance(error, ContentFilterError):
            return self._flush_call() + _sse(
                self.event_body([], ModelResponse(stop_reason="content_filter", usage=Usage()))
            )
        return _sse(body_of(code_of(error), str(error)))

    def record_reasoning(self, text: str, opaque: Any) -> None:
        """Record that there was reasoning, and its signature."""
        self._has_reasoning = True
        self._opaque = opaque or self._opaque

    def call(self, call: ToolCall) -> dict[str, Any]:
        """Create the part of a call; the first one of a response is signed."""
        arguments = msgspec.json.decode(call.arguments or "{}")
        named = {"id": call.id} if self._gives_ids else {}
        part: dict[str, Any] = {"functionCall": {**named, "name": call.name, "args": arguments}}
        if not self._is_signed:
            self._is_signed = True
            part["thoughtSignature"] = self._signatures.new(self._opaque)
        return part

    def event_body(self, parts: list[dict[str, Any]], whole: ModelResponse | None = None) -> dict[str, Any]:
        """Create one GenerateContentResponse; `whole` makes it the last."""
        candidate: dict[str, Any] = {"index": 0}
        if parts or whole is None:
            candidate["content"] = {"parts": parts, "role": "model"}
        if whole is None:
            return {"candidates": [candidate], **self._head}
        candidate["finishReason"] = _REASONS.get(whole.stop_reason, "STOP")
        if self._wants_logprobs:
            candidate["logprobsResult"] = _logprobs(whole.logprobs)
        return {"candidates": [candidate], "usageMetadata": usage_of(whole.usage), **self._head}

    def _flush_call(self) -> bytes:
        if not self._call:
            return b""
        message = assemble_response(self._call).message or AssistantMessage()
        self._call.clear()
        return self._event([self.call(call) for call in message.tool_calls])

    def _event(self, parts: list[dict[str, Any]]) -> bytes:
        return _sse(self.event_body(parts))


def _logprobs(tokens: tuple[TokenLogprob, ...]) -> dict[str, Any]:
    return {
        "chosenCandidates": [_candidate(each) for each in tokens],
        "topCandidates": [{"candidates": [_candidate(top) for top in each.top_logprobs]} for each in tokens],
    }


def _candidate(token: TokenLogprob) -> dict[str, Any]:
    return {"token": token.token, "logProbability": token.logprob}


def usage_of(usage: Usage | None) -> dict[str, Any]:
    """Return the usage in the format of the Gemini API: candidate tokens do not include reasoning."""
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
