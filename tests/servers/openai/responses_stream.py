"""The Responses API: responses and their items, unstreamed or as server-sent events."""

import time
from itertools import count
from typing import Any

import msgspec
from tests.servers.base import AnswerStream, ValidRequest
from tests.servers.openai.chat import answer_text, logprob_item
from tests.servers.openai.errors import kind_and_code
from tests.servers.openai.responses_schema import ENCRYPTED_PREFIX, ResponsesRequest

from batonkit.errors import ContentFilterError, ModelError
from batonkit.messages import AssistantMessage, Reasoning, Usage
from batonkit.models import Chunk, ModelResponse, PartChunk, ReasoningChunk, TextChunk, ToolCallChunk

_ids = count(1)
_encode = msgspec.json.Encoder().encode
_INCOMPLETE = {"length": "max_output_tokens", "content_filter": "content_filter"}
_ENCRYPTED = "reasoning.encrypted_content"
_LOGPROBS = "message.output_text.logprobs"


def new_id(prefix: str) -> str:
    """Return a new id with this prefix."""
    return f"{prefix}_{next(_ids):032x}"


def response_object(valid: ValidRequest, whole: ModelResponse) -> bytes:
    """Encode an unstreamed response."""
    answer = whole.message or AssistantMessage()
    output = [reasoning_item(valid, block) for block in answer.reasoning]
    text = answer_text(answer)
    if text:
        part = text_part(text, is_refusal=whole.stop_reason == "refusal", logprobs=requested_logprobs(valid, whole))
        output.append(message(new_id("msg"), [part]))
    output += [call_item(new_id("fc"), call.id, call.name, call.arguments) for call in answer.tool_calls]
    return _encode(completed_response(new_response(valid, new_id("resp")), whole, output))


def new_response(valid: ValidRequest, id: str) -> dict[str, Any]:
    """Create a response without output."""
    wire: ResponsesRequest = valid.wire
    text, reasoning = wire.text, wire.reasoning
    return {
        "id": id,
        "object": "response",
        "created_at": int(time.time()),
        "status": "in_progress",
        "background": False,
        "error": None,
        "incomplete_details": None,
        "instructions": wire.instructions,
        "max_output_tokens": wire.max_output_tokens,
        "max_tool_calls": wire.max_tool_calls,
        "model": wire.model,
        "output": [],
        "parallel_tool_calls": wire.parallel_tool_calls is not False,
        "previous_response_id": None,
        "prompt_cache_key": wire.prompt_cache_key,
        "reasoning": {
            "effort": reasoning.effort if reasoning is not None else None,
            "summary": reasoning.summary if reasoning is not None else None,
        },
        "safety_identifier": wire.safety_identifier,
        "service_tier": "default",
        "store": wire.store is not False,
        "temperature": 1.0 if wire.temperature is None else wire.temperature,
        "text": {"format": (text.format if text is not None else None) or {"type": "text"}, "verbosity": "medium"},
        "tool_choice": wire.tool_choice or "auto",
        "tools": wire.tools or [],
        "top_logprobs": 0,
        "top_p": 1.0 if wire.top_p is None else wire.top_p,
        "truncation": wire.truncation or "disabled",
        "usage": None,
        "user": wire.user,
        "metadata": wire.metadata or {},
    }


def completed_response(response: dict[str, Any], whole: ModelResponse, output: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the response with its output, status and usage."""
    reason = _INCOMPLETE.get(whole.stop_reason)
    details = {"reason": reason} if reason else None
    status = "incomplete" if reason else "completed"
    usage_fields = usage_of(whole.usage)
    return {**response, "status": status, "incomplete_details": details, "output": output, "usage": usage_fields}


def failed(response: dict[str, Any], error: ModelError) -> dict[str, Any]:
    """Return the response with the status failed."""
    code = kind_and_code(error)[1] or "server_error"
    return {**response, "status": "failed", "error": {"code": code, "message": str(error)}}


def message(id: str, content: list[dict[str, Any]], status: str = "completed") -> dict[str, Any]:
    """Create a message item."""
    return {"type": "message", "id": id, "status": status, "role": "assistant", "content": content}


def text_part(text: str, *, is_refusal: bool, logprobs: list[dict[str, Any]] | None = None) -> dict[str, Any]:
    """Create the text part of an item."""
    if is_refusal:
        return {"type": "refusal", "refusal": text}
    return {"type": "output_text", "annotations": [], "logprobs": logprobs or [], "text": text}


def requested_logprobs(valid: ValidRequest, whole: ModelResponse) -> list[dict[str, Any]]:
    """Return the scripted log probabilities if the request includes them."""
    wire: ResponsesRequest = valid.wire
    return [logprob_item(each) for each in whole.logprobs] if _LOGPROBS in (wire.include or ()) else []


def call_item(id: str, call_id: str, name: str, arguments: str, status: str = "completed") -> dict[str, Any]:
    """Create a function call item."""
    item = {"type": "function_call", "id": id, "call_id": call_id, "name": name, "arguments": arguments}
    return {**item, "status": status}


def reasoning_item(valid: ValidRequest, block: Reasoning, id: str = "") -> dict[str, Any]:
    """Create a reasoning item: the summary and the encrypted content, each only if requested."""
    wire: ResponsesRequest = valid.wire
    summary = [{"type": "summary_text", "text": block.text}] if wants_summary(valid) and block.text else []
    item: dict[str, Any] = {"type": "reasoning", "id": id or new_id("rs"), "summary": summary}
    if _ENCRYPTED in (wire.include or ()):
        item["encrypted_content"] = f"{ENCRYPTED_PREFIX}{len(block.text)}"
    return item


def wants_summary(valid: ValidRequest) -> bool:
    """Return whether the request asks for a summary of the reasoning."""
    wire: ResponsesRequest = valid.wire
    return wire.reasoning is not None and (wire.reasoning.summary or wire.reasoning.generate_summary) is not None


def usage_of(usage: Usage | None) -> dict[str, Any]:
    """Return the usage in the format of the Responses API."""
    usage_fields = usage or Usage()
    return {
        "input_tokens": usage_fields.input_tokens,
        "input_tokens_details": {"cached_tokens": usage_fields.cached_tokens},
        "output_tokens": usage_fields.output_tokens,
        "output_tokens_details": {"reasoning_tokens": usage_fields.reasoning_tokens},
        "total_tokens": usage_fields.total_tokens,
    }


class _OpenItem:
    """An item that is not complete yet."""

    __slots__ = ("id", "index", "item", "parts")

    def __init__(self, index: int, item: dict[str, Any]) -> None:
        self.id: str = item["id"]
        self.index = index
        self.item = item
        self.parts: list[str] = []

    @property
    def whole(self) -> str:
        """Return the text so far."""
        return "".join(self.parts)


class ResponseStream(AnswerStream):
    """The events of one response. An item is closed before an item of another type starts."""

    def __init__(self, valid: ValidRequest) -> None:
        self._valid = valid
        self._response = new_response(valid, new_id("resp"))
        self._sequence = 0
        self._output: list[dict[str, Any]] = []
        self._text: _OpenItem | None = None
        self._reasoning: _OpenItem | None = None
        self._calls: dict[int, _OpenItem] = {}
        self._token_logprobs: list[dict[str, Any]] = []

    def begin(self) -> bytes:
        """Encode the events for the creation and the start of the response."""
        return self._event("response.created", response=self._response) + self._event(
            "response.in_progress", response=self._response
        )

    def chunk(self, chunk: Chunk) -> bytes:
        """Encode the events of one chunk."""
        if type(chunk) is TextChunk:
            return self._add_text(chunk.text)
        if type(chunk) is ToolCallChunk:
            return self._add_call(chunk)
        if type(chunk) is ReasoningChunk:
            return self._add_reasoning(chunk)
        if type(chunk) is PartChunk:
            return self._add_text(answer_text(AssistantMessage((chunk.part,))))
        return b""

    def end(self, whole: ModelResponse) -> bytes:
        """Close all open items, and encode the complete response."""
        self._token_logprobs = requested_logprobs(self._valid, whole)
        before = self._close_all()
        response = completed_response(self._response, whole, self._output)
        return before + self._event(f"response.{response['status']}", response=response)

    def failed(self, error: ModelError) -> bytes:
        """Close all open items, and encode the failed or filtered response."""
        before = self._close_all()
        if isinstance(error, ContentFilterError):
            response = completed_response(self._response, ModelResponse(stop_reason="content_filter"), self._output)
            return before + self._event("response.incomplete", response=response)
        return before + self._event("response.failed", response=failed(self._response, error))

    def _add_text(self, text: str) -> bytes:
        before = b""
        if self._text is None:
            before = self._close_reasoning() + self._close_calls()
            self._text, opened = self._open(message(new_id("msg"), [], "in_progress"))
            before += opened + self._in_part("response.content_part.added", part=self._part(""))
        self._text.parts.append(text)
        return before + self._in_part(f"response.{self._kind}.delta", delta=text, **self._logprobs())

    def _close_text(self) -> bytes:
        if self._text is None:
            return b""
        whole = self._text.whole
        word = "refusal" if self.is_refusal else "text"
        done = self._in_part(f"response.{self._kind}.done", **{word: whole}, **self._logprobs())
        done += self._in_part("response.content_part.done", part=self._part(whole))
        item, self._text = self._text, None
        return done + self._close(item, message(item.id, [self._part(whole)]))

    def _add_call(self, chunk: ToolCallChunk) -> bytes:
        before = b""
        call = self._calls.get(chunk.index)
        if call is None:
            before = self._close_reasoning() + self._close_text() + self._close_calls(only_finished=True)
            call, opened = self._open(call_item(new_id("fc"), chunk.id, chunk.name, "", "in_progress"))
            self._calls[chunk.index] = call
            before += opened
        if not chunk.arguments:
            return before
        call.parts.append(chunk.arguments)
        position = {"item_id": call.id, "output_index": call.index}
        return before + self._event("response.function_call_arguments.delta", **position, delta=chunk.arguments)

    def _close_calls(self, *, only_finished: bool = False) -> bytes:
        done = b""
        for index, call in list(self._calls.items()):
            if only_finished and not _is_json(call.whole):
                # The chunks of two calls may be interleaved; this call is not complete.
                continue
            del self._calls[index]
            position = {"item_id": call.id, "output_index": call.index}
            item = {**call.item, "arguments": call.whole, "status": "completed"}
            done += self._event("response.function_call_arguments.done", **position, arguments=call.whole)
            done += self._close(call, item)
        return done

    def _add_reasoning(self, chunk: ReasoningChunk) -> bytes:
        before = b""
        if self._reasoning is None:
            before = self._close_text() + self._close_calls()
            self._reasoning, opened = self._open({"type": "reasoning", "id": new_id("rs"), "summary": []})
            before += opened
            if wants_summary(self._valid):
                before += self._in_summary("part.added", part={"type": "summary_text", "text": ""})
        if chunk.text:
            self._reasoning.parts.append(chunk.text)
            if wants_summary(self._valid):
                before += self._in_summary("text.delta", delta=chunk.text)
        return before + (self._close_reasoning() if chunk.whole is not None else b"")

    def _close_reasoning(self) -> bytes:
        if self._reasoning is None:
            return b""
        whole, done = self._reasoning.whole, b""
        if wants_summary(self._valid):
            done = self._in_summary("text.done", text=whole)
            done += self._in_summary("part.done", part={"type": "summary_text", "text": whole})
        item, self._reasoning = self._reasoning, None
        return done + self._close(item, reasoning_item(self._valid, Reasoning(whole), item.id))

    def _close_all(self) -> bytes:
        return self._close_reasoning() + self._close_text() + self._close_calls()

    def _open(self, item: dict[str, Any]) -> tuple[_OpenItem, bytes]:
        opened = _OpenItem(len(self._output), item)
        self._output.append(item)
        return opened, self._event("response.output_item.added", output_index=opened.index, item=item)

    def _close(self, opened: _OpenItem, item: dict[str, Any]) -> bytes:
        self._output[opened.index] = item
        return self._event("response.output_item.done", output_index=opened.index, item=item)

    def _in_part(self, kind: str, **fields: Any) -> bytes:
        assert self._text is not None
        return self._event(kind, item_id=self._text.id, output_index=self._text.index, content_index=0, **fields)

    def _in_summary(self, kind: str, **fields: Any) -> bytes:
        assert self._reasoning is not None
        position = {"item_id": self._reasoning.id, "output_index": self._reasoning.index, "summary_index": 0}
        return self._event(f"response.reasoning_summary_{kind}", **position, **fields)

    @property
    def _kind(self) -> str:
        return "refusal" if self.is_refusal else "output_text"

    def _part(self, text: str) -> dict[str, Any]:
        return text_part(text, is_refusal=self.is_refusal, logprobs=self._token_logprobs)

    def _logprobs(self) -> dict[str, Any]:
        return {} if self.is_refusal else {"logprobs": self._token_logprobs}

    def _event(self, kind: str, **fields: Any) -> bytes:
        number = self._sequence
        self._sequence += 1
        data = _encode({"type": kind, "sequence_number": number, **fields})
        return b"event: " + kind.encode() + b"\ndata: " + data + b"\n\n"


def _is_json(text: str) -> bool:
    try:
        msgspec.json.decode(text)
    except msgspec.DecodeError:
        return False
    return True
