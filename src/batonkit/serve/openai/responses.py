"""Responses: a turn as a list of output items, streamed or whole."""

from collections.abc import Iterator, Mapping
from itertools import count
from typing import Any

import msgspec
from msgspec import Struct

from ...log import RunStarted
from ...messages import ToolCall, Usage
from ..frontend_tools import TOOLS
from ..http.auth import Principal
from ..http.message_parts import (
    CallWritten,
    PartClosed,
    PartExtended,
    PartKind,
    PartOpened,
    PartsDiscarded,
    PartUpdate,
)
from ..http.sse import encode_frame
from .turns import Turn, TurnEnd

METADATA = "openai.metadata"
"""The key of a run's values that holds the metadata of the request."""
PREFIX = "resp_"
"""The first characters of the ids of responses."""
_STATUS = {"running": "in_progress", "suspended": "completed"}
_EMPTY = {"temperature": None, "top_p": None, "instructions": None, "parallel_tool_calls": True, "tool_choice": "auto"}


def response_head(turn: Turn, model: str, started: RunStarted, principal: Principal) -> dict[str, Any]:
    """Return the fields of a response that do not depend on its outcome."""
    thread = principal.to_public_id(started.thread)
    # A conversation that the client did not name is named after its first response.
    is_named = not thread.startswith(PREFIX)
    previous = principal.to_public_id(started.previous_run_id)
    return {
        "id": turn.response_id,
        "object": "response",
        "created_at": int(started.timestamp),
        "model": model,
        "metadata": started.values.get(METADATA) or {},
        "tools": [{"type": "function", **tool, "strict": False} for tool in started.values.get(TOOLS) or ()],
        "conversation": {"id": thread} if is_named and thread else None,
        "previous_response_id": None if is_named else previous or None,
        **_EMPTY,
    }


class _ItemFormat(Struct, frozen=True):
    """The format of a part as an output item with one piece of content."""

    prefix: str
    item: dict[str, Any]
    field: str
    """The field of the item that has the content."""
    content: dict[str, Any]
    content_event: str
    text_event: str
    text_fields: dict[str, Any] = {}

    @property
    def index_field(self) -> str:
        return f"{self.field}_index"


_FORMATS: dict[PartKind, _ItemFormat] = {
    "text": _ItemFormat(
        prefix="msg_",
        item={"type": "message", "role": "assistant"},
        field="content",
        content={"type": "output_text", "annotations": []},
        content_event="response.content_part",
        text_event="response.output_text",
        text_fields={"logprobs": []},
    ),
    "reasoning": _ItemFormat(
        prefix="rs_",
        item={"type": "reasoning"},
        field="summary",
        content={"type": "summary_text"},
        content_event="response.reasoning_summary_part",
        text_event="response.reasoning_summary_text",
    ),
}


class ResponseWriter:
    """Writes a turn as a response."""

    def __init__(self, head: Mapping[str, Any], *, show_agents: bool) -> None:
        self._head = head
        self._show_agents = show_agents
        self._numbers = count()
        self._items: dict[str, dict[str, Any]] = {}
        """The items by the id of their part."""
        self._indexes: dict[str, int] = {}
        """The position of every item that was begun, also of those that were discarded."""

    def start(self) -> Iterator[bytes]:
        """Return the first frames."""
        response: dict[str, Any] = {**self._head, "status": "in_progress", "output": []}
        yield self._event("response.created", response=response)
        yield self._event("response.in_progress", response=response)

    def update(self, update: PartUpdate) -> Iterator[bytes]:
        """Return the frames of a part of the answer."""
        match update:
            case PartOpened():
                yield from self._open(update)
            case PartExtended():
                yield self._extend(update)
            case PartClosed():
                yield from self._close(update)
            case PartsDiscarded():
                for id in update.ids:
                    del self._items[id]
            case CallWritten():
                pass  # Calls of the client's tools come with the outcome; others are not the client's business.

    def finish(self, outcome: TurnEnd) -> Iterator[bytes]:
        """Return the last frames."""
        response = self.body(outcome)
        for call in outcome.calls:
            yield from self._write_call(call)
        if response["status"] in ("completed", "incomplete", "failed"):
            yield self._event(f"response.{response['status']}", response=response)
        elif (error := outcome.error) is not None:
            yield self._event("error", code=error.code, message=error.message, param=None)

    def body(self, outcome: TurnEnd) -> dict[str, Any]:
        """Return the response."""
        status = _STATUS.get(outcome.status, outcome.status)
        error = outcome.error if status == "failed" else None
        is_cut = outcome.is_truncated and status == "completed" and not outcome.calls
        return {
            **self._head,
            "status": "incomplete" if is_cut else status,
            "incomplete_details": {"reason": "max_output_tokens"} if is_cut else None,
            "error": None if error is None else {"code": "server_error", "message": error.message},
            "output": [*self._items.values(), *[_call_item(call) for call in outcome.calls]],
            "usage": None if status == "in_progress" else _usage(outcome.usage),
        }

    def _open(self, opened: PartOpened) -> Iterator[bytes]:
        form = _FORMATS[opened.kind]
        item: dict[str, Any] = {"id": form.prefix + opened.id, **form.item, form.field: [], "status": "in_progress"}
        if self._show_agents and opened.kind == "text":
            item["baton"] = {"agent": opened.agent}
        self._items[opened.id] = item
        self._indexes[opened.id] = len(self._indexes)
        yield self._event("response.output_item.added", output_index=self._indexes[opened.id], item=item)
        item[form.field] = [{**form.content, "text": ""}]
        yield self._content_event(opened, f"{form.content_event}.added", part=item[form.field][0])

    def _extend(self, extended: PartExtended) -> bytes:
        form = _FORMATS[extended.kind]
        self._items[extended.id][form.field][0]["text"] += extended.text
        return self._content_event(extended, f"{form.text_event}.delta", delta=extended.text, **form.text_fields)

    def _close(self, closed: PartClosed) -> Iterator[bytes]:
        form = _FORMATS[closed.kind]
        item = self._items[closed.id]
        content = item[form.field][0]
        yield self._content_event(closed, f"{form.text_event}.done", text=content["text"], **form.text_fields)
        yield self._content_event(closed, f"{form.content_event}.done", part=content)
        item["status"] = "completed"
        yield self._event("response.output_item.done", output_index=self._indexes[closed.id], item=item)

    def _write_call(self, call: ToolCall) -> Iterator[bytes]:
        item = _call_item(call)
        place = {"output_index": self._indexes.setdefault(call.id, len(self._indexes))}
        arguments = {"item_id": item["id"], **place}
        begun = {**item, "arguments": "", "status": "in_progress"}
        yield self._event("response.output_item.added", **place, item=begun)
        yield self._event("response.function_call_arguments.delta", **arguments, delta=call.arguments)
        yield self._event("response.function_call_arguments.done", **arguments, arguments=call.arguments)
        yield self._event("response.output_item.done", **place, item=item)

    def _content_event(self, update: PartOpened | PartExtended | PartClosed, type: str, **fields: Any) -> bytes:
        form = _FORMATS[update.kind]
        place = {"item_id": form.prefix + update.id, "output_index": self._indexes[update.id], form.index_field: 0}
        return self._event(type, **place, **fields)

    def _event(self, type: str, **fields: Any) -> bytes:
        content = {"type": type, "sequence_number": next(self._numbers), **fields}
        return encode_frame(msgspec.json.encode(content), event=type)


def _call_item(call: ToolCall) -> dict[str, Any]:
    item = {"type": "function_call", "id": f"fc_{call.id}", "call_id": call.id, "name": call.name}
    return {**item, "arguments": call.arguments, "status": "completed"}


def _usage(usage: Usage) -> dict[str, Any]:
    return {
        "input_tokens": usage.input_tokens,
        "input_tokens_details": {"cached_tokens": usage.cached_tokens, "cache_write_tokens": usage.cache_write_tokens},
        "output_tokens": usage.output_tokens,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
        "total_tokens": usage.total_tokens,
    }
