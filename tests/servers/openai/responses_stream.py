"""Responses: an answer as server-sent events, item by item.

Responses: the object that an answer is, and the items in it.
"""

import time
from itertools import count
from typing import Any

import msgspec
from tests.servers.base import AnswerStream, ValidRequest
from tests.servers.openai.chat import spoken
from tests.servers.openai.errors import kind_and_code
from tests.servers.openai.responses_schema import SEAL, ResponsesRequest

from baton.errors import ContentFilterError, ModelError
from baton.messages import AssistantMessage, Reasoning, Usage
from baton.models import Chunk, ModelResponse, PartChunk, ReasoningChunk, TextChunk, ToolCallChunk

_ids = count(1)
_encode = msgspec.json.Encoder().encode
_INCOMPLETE = {"length": "max_output_tokens", "content_filter": "content_filter"}
_ENCRYPTED = "reasoning.encrypted_content"


def new_id(prefix: str) -> str:
    """An id such as OpenAI gives: what kind of thing it is, and a number."""
    return f"{prefix}_{next(_ids):032x}"


def response_object(asked: ValidRequest, whole: ModelResponse) -> bytes:
    """An answer in one piece."""
    said = whole.message or AssistantMessage()
    output = [thought(asked, block) for block in said.reasoning]
    text = spoken(said)
    if text:
        part = spoken_part(text, is_refusal=whole.stop_reason == "refusal")
        output.append(message(new_id("msg"), [part]))
    output += [called(new_id("fc"), call.id, call.name, call.arguments) for call in said.tool_calls]
    return _encode(ended(started(asked, new_id("resp")), whole, output))


def started(asked: ValidRequest, id: str) -> dict[str, Any]:
    """A response of which nothing is there yet."""
    wire: ResponsesRequest = asked.wire
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


def ended(response: dict[str, Any], whole: ModelResponse, output: list[dict[str, Any]]) -> dict[str, Any]:
    """The response with all that is in it."""
    reason = _INCOMPLETE.get(whole.stop_reason)
    details = {"reason": reason} if reason else None
    status = "incomplete" if reason else "completed"
    used = usage_of(whole.usage)
    return {**response, "status": status, "incomplete_details": details, "output": output, "usage": used}


def failed(response: dict[str, Any], error: ModelError) -> dict[str, Any]:
    """The response, given up."""
    code = kind_and_code(error)[1] or "server_error"
    return {**response, "status": "failed", "error": {"code": code, "message": str(error)}}


def message(id: str, content: list[dict[str, Any]], status: str = "completed") -> dict[str, Any]:
    """An item of text."""
    return {"type": "message", "id": id, "status": status, "role": "assistant", "content": content}


def spoken_part(text: str, *, is_refusal: bool) -> dict[str, Any]:
    """The text in an item."""
    if is_refusal:
        return {"type": "refusal", "refusal": text}
    return {"type": "output_text", "annotations": [], "logprobs": [], "text": text}


def called(id: str, call_id: str, name: str, arguments: str, status: str = "completed") -> dict[str, Any]:
    """An item that is a call."""
    item = {"type": "function_call", "id": id, "call_id": call_id, "name": name, "arguments": arguments}
    return {**item, "status": status}


def thought(asked: ValidRequest, block: Reasoning, id: str = "") -> dict[str, Any]:
    """An item of reasoning: a summary and the sealed thought, each only if it was asked for."""
    wire: ResponsesRequest = asked.wire
    summary = [{"type": "summary_text", "text": block.text}] if is_told(asked) and block.text else []
    item: dict[str, Any] = {"type": "reasoning", "id": id or new_id("rs"), "summary": summary}
    if _ENCRYPTED in (wire.include or ()):
        item["encrypted_content"] = f"{SEAL}{len(block.text)}"
    return item


def is_told(asked: ValidRequest) -> bool:
    """Whether the request wants a summary of thoughts."""
    wire: ResponsesRequest = asked.wire
    return wire.reasoning is not None and (wire.reasoning.summary or wire.reasoning.generate_summary) is not None


def usage_of(usage: Usage | None) -> dict[str, Any]:
    """Usage as Responses tell it."""
    used = usage or Usage()
    return {
        "input_tokens": used.input_tokens,
        "input_tokens_details": {"cached_tokens": used.cached_tokens},
        "output_tokens": used.output_tokens,
        "output_tokens_details": {"reasoning_tokens": used.reasoning_tokens},
        "total_tokens": used.total_tokens,
    }


class _Open:
    """An item that still grows."""

    __slots__ = ("id", "index", "item", "pieces")

    def __init__(self, index: int, item: dict[str, Any]) -> None:
        self.id: str = item["id"]
        self.index = index
        self.item = item
        self.pieces: list[str] = []

    @property
    def whole(self) -> str:
        """What has come so far."""
        return "".join(self.pieces)


class ResponseStream(AnswerStream):
    """The events of one response. An item is opened, grows, and is closed before another kind of item begins."""

    def __init__(self, asked: ValidRequest) -> None:
        self._asked = asked
        self._response = started(asked, new_id("resp"))
        self._sequence = 0
        self._output: list[dict[str, Any]] = []
        self._text: _Open | None = None
        self._thought: _Open | None = None
        self._calls: dict[int, _Open] = {}

    def begin(self) -> bytes:
        """That the response exists, and that it is under way."""
        return self._event("response.created", response=self._response) + self._event(
            "response.in_progress", response=self._response
        )

    def chunk(self, chunk: Chunk) -> bytes:
        """The events of one piece."""
        if type(chunk) is TextChunk:
            return self._spoken(chunk.text)
        if type(chunk) is ToolCallChunk:
            return self._called(chunk)
        if type(chunk) is ReasoningChunk:
            return self._thinks(chunk)
        if type(chunk) is PartChunk:
            return self._spoken(spoken(AssistantMessage((chunk.part,))))
        return b""

    def end(self, whole: ModelResponse) -> bytes:
        """What is open is closed, and the whole response follows."""
        before = self._close_all()
        response = ended(self._response, whole, self._output)
        return before + self._event(f"response.{response['status']}", response=response)

    def failed(self, error: ModelError) -> bytes:
        """The response as far as it came, and why it goes no further."""
        before = self._close_all()
        if isinstance(error, ContentFilterError):
            response = ended(self._response, ModelResponse(stop_reason="content_filter"), self._output)
            return before + self._event("response.incomplete", response=response)
        return before + self._event("response.failed", response=failed(self._response, error))

    def _spoken(self, text: str) -> bytes:
        before = b""
        if self._text is None:
            before = self._close_thought() + self._close_calls()
            self._text, opened = self._open(message(new_id("msg"), [], "in_progress"))
            before += opened + self._in_part("response.content_part.added", part=self._part(""))
        self._text.pieces.append(text)
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

    def _called(self, chunk: ToolCallChunk) -> bytes:
        before = b""
        call = self._calls.get(chunk.index)
        if call is None:
            before = self._close_thought() + self._close_text() + self._close_calls(only_finished=True)
            call, opened = self._open(called(new_id("fc"), chunk.id, chunk.name, "", "in_progress"))
            self._calls[chunk.index] = call
            before += opened
        if not chunk.arguments:
            return before
        call.pieces.append(chunk.arguments)
        where = {"item_id": call.id, "output_index": call.index}
        return before + self._event("response.function_call_arguments.delta", **where, delta=chunk.arguments)

    def _close_calls(self, *, only_finished: bool = False) -> bytes:
        done = b""
        for index, call in list(self._calls.items()):
            if only_finished and not _is_json(call.whole):
                # The pieces of two calls may come in turns; this one has more to come.
                continue
            del self._calls[index]
            where = {"item_id": call.id, "output_index": call.index}
            item = {**call.item, "arguments": call.whole, "status": "completed"}
            done += self._event("response.function_call_arguments.done", **where, arguments=call.whole)
            done += self._close(call, item)
        return done

    def _thinks(self, chunk: ReasoningChunk) -> bytes:
        before = b""
        if self._thought is None:
            before = self._close_text() + self._close_calls()
            self._thought, opened = self._open({"type": "reasoning", "id": new_id("rs"), "summary": []})
            before += opened
            if is_told(self._asked):
                before += self._in_summary("part.added", part={"type": "summary_text", "text": ""})
        if chunk.text:
            self._thought.pieces.append(chunk.text)
            if is_told(self._asked):
                before += self._in_summary("text.delta", delta=chunk.text)
        return before + (self._close_thought() if chunk.whole is not None else b"")

    def _close_thought(self) -> bytes:
        if self._thought is None:
            return b""
        whole, done = self._thought.whole, b""
        if is_told(self._asked):
            done = self._in_summary("text.done", text=whole)
            done += self._in_summary("part.done", part={"type": "summary_text", "text": whole})
        item, self._thought = self._thought, None
        return done + self._close(item, thought(self._asked, Reasoning(whole), item.id))

    def _close_all(self) -> bytes:
        return self._close_thought() + self._close_text() + self._close_calls()

    def _open(self, item: dict[str, Any]) -> tuple[_Open, bytes]:
        opened = _Open(len(self._output), item)
        self._output.append(item)
        return opened, self._event("response.output_item.added", output_index=opened.index, item=item)

    def _close(self, opened: _Open, item: dict[str, Any]) -> bytes:
        self._output[opened.index] = item
        return self._event("response.output_item.done", output_index=opened.index, item=item)

    def _in_part(self, kind: str, **fields: Any) -> bytes:
        assert self._text is not None
        return self._event(kind, item_id=self._text.id, output_index=self._text.index, content_index=0, **fields)

    def _in_summary(self, kind: str, **fields: Any) -> bytes:
        assert self._thought is not None
        where = {"item_id": self._thought.id, "output_index": self._thought.index, "summary_index": 0}
        return self._event(f"response.reasoning_summary_{kind}", **where, **fields)

    @property
    def _kind(self) -> str:
        return "refusal" if self.is_refusal else "output_text"

    def _part(self, text: str) -> dict[str, Any]:
        return spoken_part(text, is_refusal=self.is_refusal)

    def _logprobs(self) -> dict[str, Any]:
        return {} if self.is_refusal else {"logprobs": []}

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
