"""Responses: the object that an answer is, and the items in it."""

import time
from itertools import count
from typing import Any

import msgspec

from ....errors import ModelError
from ....messages import AssistantMessage, Reasoning, Usage
from ....models import ModelResponse
from ..received import ValidRequest
from .chat_answers import spoken
from .errors import kind_and_code
from .responses_checks import SEAL
from .responses_wire import ResponsesRequest

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
