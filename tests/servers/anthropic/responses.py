"""Responses of the Messages API, unstreamed or as server-sent events, and its errors."""

import re
from itertools import count
from typing import Any

import msgspec
from tests.servers.base import AnswerStream, HttpFault, RequestRejectedError, ValidRequest, headers_of, status_of
from tests.servers.validation import InvalidBodyError

from batonkit.errors import (
    AuthenticationError,
    ContentFilterError,
    ContextTooLongError,
    ModelError,
    ModelNotFoundError,
    OverloadedError,
    RateLimitError,
)
from batonkit.messages import AssistantMessage, Reasoning, ToolCall, Usage, media_of, text_of
from batonkit.models import Chunk, ModelResponse, PartChunk, ReasoningChunk, TextChunk, ToolCallChunk

INVALID = "invalid_request_error"
_OVERLOADED = 529
_ids = count(1)
_INDEX = re.compile(r"\[(\d+)\]")
_KINDS: tuple[tuple[type[ModelError], str], ...] = (
    (AuthenticationError, "authentication_error"),
    (ModelNotFoundError, "not_found_error"),
    (RateLimitError, "rate_limit_error"),
    (OverloadedError, "overloaded_error"),
)
_OF_STATUS = {
    400: INVALID,
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    500: "api_error",
    504: "timeout_error",
    529: "overloaded_error",
}
_TYPES = {
    "str": "Input should be a valid string",
    "int": "Input should be a valid integer",
    "bool": "Input should be a valid boolean",
    "array": "Input should be a valid list",
    "object": "Input should be a valid dictionary",
}


def wrong(message: str, *, status: int = 400, kind: str = "") -> RequestRejectedError:
    """Create the rejection of an invalid request."""
    return RequestRejectedError(status, body_of(kind or _OF_STATUS.get(status, INVALID), message), headers=request_id())


def rejection_of(invalid: InvalidBodyError) -> RequestRejectedError:
    """Create the rejection of a malformed body; a path has dots, as in `messages.0.content`."""
    place = _INDEX.sub(r".\1", invalid.place).lstrip(".")
    match invalid.kind:
        case "json":
            return wrong(f"The request body is not valid JSON: {invalid.given}")
        case "unknown":
            return wrong(f"{place}: Extra inputs are not permitted")
        case "missing":
            return wrong(f"{place}: Field required")
        case "value":
            return wrong(f"{place}: Input tag or value {invalid.given} does not match any of the expected ones")
        case "type":
            kinds = [_TYPES.get(kind, f"Input should be {kind}") for kind in invalid.wanted.split(" | ")]
            return wrong(f"{place}: {' or '.join(kinds)}")
        case _:
            return wrong(f"{place}: {invalid.given}")


def refused(error: ModelError, tokens: int, window: int | None) -> RequestRejectedError:
    """Create the rejection for a scripted error before the response has started."""
    status = status_of(error, _OVERLOADED)
    headers = {**headers_of(error), **request_id()}
    if isinstance(error, HttpFault) and error.body is not None:
        return RequestRejectedError(status, error.body, headers=headers)
    message = message_of(error)
    if isinstance(error, ContextTooLongError):
        message = f"prompt is too long: {tokens} tokens > {window or tokens - 1} maximum"
    return RequestRejectedError(status, body_of(kind_of(error), message), headers=headers)


def kind_of(error: ModelError) -> str:
    """Return Anthropic's type of an error."""
    if isinstance(error, HttpFault):
        return _OF_STATUS.get(error.status, INVALID if error.status < 500 else "api_error")
    kind_name = next((kind_name for kind, kind_name in _KINDS if isinstance(error, kind)), "")
    return kind_name or (INVALID if status_of(error) < 500 else "api_error")


def message_of(error: ModelError) -> str:
    """Return the message of an error; a content filter can only be recognised by its message."""
    answer = str(error)
    return f"Output blocked by content filtering policy: {answer}" if isinstance(error, ContentFilterError) else answer


def body_of(kind: str, message: str) -> dict[str, object]:
    """Create the body of an error, which is also the data of an `error` event."""
    return {"type": "error", "error": {"type": kind, "message": message}}


def request_id() -> dict[str, str]:
    """Create the header with the request id."""
    return {"request-id": f"req_{next(_ids):020d}"}


_encode = msgspec.json.Encoder().encode
_REASONS = {
    "stop": "end_turn",
    "length": "max_tokens",
    "tool_calls": "tool_use",
    "refusal": "refusal",
    "content_filter": "refusal",
}


class Signatures(dict[str, str]):
    """The reasoning that was sent, by signature."""

    def of(self, block: Reasoning) -> dict[str, Any]:
        """Return the signed block of this reasoning."""
        opaque: Any = block.signature or {}
        if "data" in opaque:
            self[opaque["data"]] = ""
            return {"type": "redacted_thinking", "data": opaque["data"]}
        signature = opaque.get("signature") or f"sig_{next(_ids)}"
        self[signature] = block.text
        return {"type": "thinking", "thinking": block.text, "signature": signature}


def message(valid: ValidRequest, whole: ModelResponse, signatures: Signatures) -> bytes:
    """Encode an unstreamed response."""
    answer = whole.message or AssistantMessage()
    text = answer_text(answer)
    blocks: list[dict[str, Any]] = [signatures.of(block) for block in answer.reasoning]
    if text:
        blocks.append({"type": "text", "text": text})
    blocks += [_call(call) for call in answer.tool_calls]
    head = {**_head(valid), "content": blocks, "usage": usage_of(whole.usage)}
    return _encode({**head, **_stop_fields(whole)})


class MessageStream(AnswerStream):
    """A response as events: start, deltas and stop of each block."""

    def __init__(self, valid: ValidRequest, signatures: Signatures, input_tokens: int) -> None:
        self._valid = valid
        self._signatures = signatures
        self._input_tokens = input_tokens
        self._index = -1
        self._open = ""
        self._reasoning_texts: list[str] = []
        self._opaque: Any = None

    def begin(self) -> bytes:
        """Encode the message without content, and a ping."""
        usage = {**usage_of(Usage(self._input_tokens, 1)), "output_tokens": 1}
        start: dict[str, Any] = {
            **_head(self._valid),
            "content": [],
            "usage": usage,
            "stop_reason": None,
            "stop_sequence": None,
        }
        return _event("message_start", message=start) + _event("ping")

    def chunk(self, chunk: Chunk) -> bytes:
        """Encode the events of a chunk of text, reasoning or a call."""
        if type(chunk) is TextChunk:
            opening = self._open_block("text", {"type": "text", "text": ""})
            return opening + self._delta({"type": "text_delta", "text": chunk.text})
        if type(chunk) is ToolCallChunk:
            return self._call(chunk)
        if type(chunk) is ReasoningChunk:
            return self._reasoning_events(chunk)
        if type(chunk) is PartChunk:
            text = answer_text(AssistantMessage((chunk.part,)))
            return self.chunk(TextChunk(text)) if text else b""
        return b""

    def end(self, whole: ModelResponse) -> bytes:
        """Encode the stop reason and the usage."""
        usage = usage_of(whole.usage)
        delta = _event("message_delta", delta=_stop_fields(whole), usage=usage)
        return self._close_block() + delta + _event("message_stop")

    def failed(self, error: ModelError) -> bytes:
        """Encode an `error` event, after which the stream ends."""
        return _event("error", error=body_of(kind_of(error), message_of(error))["error"])

    def garbage(self, text: str) -> bytes:
        """Encode an event with invalid data."""
        return f"event: content_block_delta\ndata: {text}\n\n".encode()

    def _call(self, chunk: ToolCallChunk) -> bytes:
        block: dict[str, Any] = {"type": "tool_use", "id": chunk.id, "name": chunk.name, "input": {}}
        opening = self._open_block(f"call {chunk.index}", block)
        # The first delta is empty, as with Anthropic.
        first = self._delta({"type": "input_json_delta", "partial_json": ""}) if opening else b""
        if not chunk.arguments or chunk.arguments == "{}":
            return opening + first
        return opening + first + self._delta({"type": "input_json_delta", "partial_json": chunk.arguments})

    def _reasoning_events(self, chunk: ReasoningChunk) -> bytes:
        whole = chunk.whole
        opaque: Any = whole.signature if whole is not None else None
        if whole is not None and "data" in (opaque or {}):
            return self._open_block("redacted", self._signatures.of(whole)) + self._close_block()
        opening = self._open_block("thinking", {"type": "thinking", "thinking": "", "signature": ""})
        events = opening
        if chunk.text:
            self._reasoning_texts.append(chunk.text)
            events += self._delta({"type": "thinking_delta", "thinking": chunk.text})
        if whole is None:
            return events
        self._opaque = opaque
        return events + self._close_block()

    def _open_block(self, kind: str, block: dict[str, Any]) -> bytes:
        if self._open == kind:
            return b""
        closing = self._close_block()
        self._index += 1
        self._open = kind
        return closing + _event("content_block_start", index=self._index, content_block=block)

    def _close_block(self) -> bytes:
        if not self._open:
            return b""
        signing = b""
        if self._open == "thinking":
            signed = self._signatures.of(Reasoning("".join(self._reasoning_texts), signature=self._opaque))
            signing = self._delta({"type": "signature_delta", "signature": signed["signature"]})
            self._reasoning_texts.clear()
            self._opaque = None
        self._open = ""
        return signing + _event("content_block_stop", index=self._index)

    def _delta(self, delta: dict[str, Any]) -> bytes:
        return _event("content_block_delta", index=self._index, delta=delta)


def answer_text(answer: AssistantMessage) -> str:
    """Return the text of a message; raise a ModelError if it has media, which this API cannot send."""
    media = media_of(answer.content)
    if media:
        kinds = ", ".join([type(part).__name__ for part in media])
        raise ModelError(f"the script answers with {kinds}, which Anthropic's models do not send")
    return text_of(answer.content)


def usage_of(usage: Usage | None) -> dict[str, Any]:
    """Return the usage in the format of the Messages API: input tokens do not include cached ones."""
    used = usage or Usage()
    return {
        "input_tokens": used.input_tokens - used.cached_tokens,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": used.cached_tokens,
        "output_tokens": used.output_tokens,
        "output_tokens_details": {"thinking_tokens": used.reasoning_tokens},
    }


def _stop_fields(whole: ModelResponse) -> dict[str, Any]:
    has_calls = whole.message is not None and bool(whole.message.tool_calls)
    reason = _REASONS.get(whole.stop_reason) or ("tool_use" if has_calls else "end_turn")
    ending: dict[str, Any] = {"stop_reason": reason, "stop_sequence": None}
    if reason == "refusal":
        ending["stop_details"] = {"type": "refusal", "category": None, "explanation": "The script says so."}
    return ending


def _head(valid: ValidRequest) -> dict[str, Any]:
    return {"id": f"msg_{next(_ids):024d}", "type": "message", "role": "assistant", "model": valid.model}


def _call(call: ToolCall) -> dict[str, Any]:
    return {"type": "tool_use", "id": call.id, "name": call.name, "input": msgspec.json.decode(call.arguments or "{}")}


def _event(kind: str, **fields: Any) -> bytes:
    return f"event: {kind}\ndata: ".encode() + _encode({"type": kind, **fields}) + b"\n\n"
