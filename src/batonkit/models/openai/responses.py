"""Requests and responses of OpenAI's Responses API."""

import re
from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec import Struct

from ...errors import ModelError
from ...messages import AssistantMessage, Content, Image, Part, Reasoning, Text, ToolMessage, media_of, text_of
from ..encoding import Block, signed_reasoning, without_none
from ..model import Chunk, ModelRequest, PartChunk, ReasoningChunk, TextChunk, ToolCallChunk
from ..provider_errors import cut_short, malformed
from ..settings import ModelSettings, require_supported
from .chat_messages import fitting_arguments, fitting_id, fitting_name, from_base64, responses_part
from .dialect import Dialect, LogprobItem, OpenAIStreamParser, TokenUsage, to_logprobs
from .errors import failed_inside

_MAX_ID = 64
_REASONING = re.compile(r"^(?:o\d|gpt-[5-9]|gpt-\d\d|codex|computer-use)")
_NOT_REASONING = re.compile(r"-chat(?:-|$)")


def is_reasoning_model(model: str) -> bool:
    """Check whether a model of this name is known to reason."""
    return bool(_REASONING.match(model)) and not _NOT_REASONING.search(model)


class ResponsesDialect(Dialect, frozen=True):
    """The Responses API, and the ways in which requests to it differ."""

    store: bool | None = False
    keeps_reasoning: bool = False

    is_flat = True

    def body(self, request: ModelRequest) -> Block:
        """Build the body of a request, as OpenAI's client would send it. Raises ModelRequestError."""
        settings = require_supported(request.settings, self.name, self.lacks)
        text = {"format": self.output_format(request), "verbosity": settings.verbosity}
        effort = settings.reasoning_effort
        instructions: str | None = self.instructions(request)
        items = self.encode_history(request.messages)
        if not items:
            # The input may not be empty.
            items = [{"role": "system", "content": instructions}]
            instructions = None
        fields = {
            **self.shared_fields(request, settings),
            "input": items,
            "instructions": instructions or None,
            "max_output_tokens": settings.max_tokens,
            "reasoning": {"effort": effort} if effort is not None else None,
            "text": without_none(text) or None,
            "truncation": settings.truncation,
            "store": self.store,
            "include": self._included(settings) or None,
        }
        return without_none(fields)

    def _included(self, settings: ModelSettings) -> list[str]:
        reasoning = ["reasoning.encrypted_content"] if self.keeps_reasoning else []
        return [*reasoning, "message.output_text.logprobs"] if settings.wants_logprobs else reasoning

    def parser(self, request: ModelRequest) -> "ResponsesStreamParser":
        """Create the parser of the response to a request."""
        return ResponsesStreamParser(self, request)

    def encode_part(self, part: Part) -> Block:
        """Encode a part of a user message or a tool result."""
        return responses_part(part, self.name)

    def encode_result(self, message: ToolMessage, pending: list[Part]) -> Block:
        """Encode a tool result, which may contain media."""
        text = text_of(message.content)
        media = media_of(message.content)
        output = [self.encode_part(part) for part in message.content if not isinstance(part, str)] if media else text
        return {"type": "function_call_output", "call_id": fitting_id(message.tool_call_id, _MAX_ID), "output": output}

    def encode_response(self, message: AssistantMessage, text: str) -> list[Block]:
        """Encode a model's message as items, with reasoning before the output that it led to."""
        thoughts = [fields for _, fields in signed_reasoning(message, self.provider)]
        items: list[Block] = []
        said = list(_encode_texts(message.content))
        for position, item in enumerate(said):
            early = [each for each in thoughts if not each.get("calls_before") and _messages_before(each) <= position]
            items += [_encode_reasoning(fields) for fields in early]
            thoughts = [each for each in thoughts if each not in early]
            items.append(item)
        for position, call in enumerate(message.tool_calls):
            items += [_encode_reasoning(each) for each in thoughts if each.get("calls_before", 0) == position]
            name = fitting_name(call.name)
            arguments = fitting_arguments(call.arguments)
            id = fitting_id(call.id, _MAX_ID)
            items.append({"type": "function_call", "call_id": id, "name": name, "arguments": arguments})
        # Reasoning may not stand at the end: the API requires the output that it led to.
        return items


def _encode_texts(content: Content) -> Iterator[Block]:
    """Encode the texts of a model: one item, or an item for each text that has a phase."""
    if isinstance(content, str) or not any(isinstance(part, Text) and part.phase for part in content):
        text = text_of(content)
        if text:
            yield {"role": "assistant", "content": text}
        return
    for part in content:
        text = text_of((part,))
        if text:
            phase = part.phase if isinstance(part, Text) else None
            yield without_none({"role": "assistant", "content": text, "phase": phase})


def _encode_reasoning(fields: Block) -> Block:
    item = {name: fields[name] for name in ("id", "summary", "encrypted_content") if name in fields}
    return {"type": "reasoning", **item}


def _messages_before(reasoning: Block) -> int:
    return reasoning.get("messages_before", 0)


_STOP_REASONS = {"max_output_tokens": "length", "max_tokens": "length"}
_TEXT_DELTAS = ("response.output_text.delta", "response.refusal.delta")
_REASONING_DELTAS = ("response.reasoning_summary_text.delta", "response.reasoning_text.delta")
_ENDS = ("response.completed", "response.incomplete", "response.failed", "response.cancelled")


class _Text(Struct):
    type: str = ""
    text: str | None = None
    refusal: str | None = None
    logprobs: list[LogprobItem] | None = None


class _Item(Struct):
    type: str = ""
    id: str | None = None
    call_id: str | None = None
    name: str | None = None
    arguments: str | None = None
    content: list[_Text] | None = None
    summary: list[_Text] | None = None
    encrypted_content: str | None = None
    result: Any = None
    phase: Any = None


class _Incomplete(Struct):
    reason: str | None = None


class _Whole(Struct):
    id: Any = None
    status: str | None = None
    output: list[_Item] | None = None
    usage: TokenUsage | None = None
    error: Any = None
    incomplete_details: _Incomplete | None = None


class _Event(Struct, gc=False):
    type: str = ""
    delta: Any = None
    output_index: int | None = None
    summary_index: int | None = None
    item: _Item | None = None
    response: _Whole | None = None
    error: Any = None


_decode_event = msgspec.json.Decoder(_Event, strict=False).decode
_decode_whole = msgspec.json.Decoder(_Whole, strict=False).decode


class ResponsesStreamParser(OpenAIStreamParser):
    """Converts the events of one response to chunks."""

    def __init__(self, dialect: Dialect, request: ModelRequest) -> None:
        super().__init__(dialect, request)
        self._items: dict[int, _PartialItem] = {}
        self._messages = 0
        self._end: _Whole | None = None

    def take(self, payload: bytes) -> list[Chunk]:
        """Return the chunks of one event."""
        event = self._decode(_decode_event, payload)
        kind = event.type
        chunks = self._begin()
        # Text first: nearly every event is a piece of it.
        if kind in _TEXT_DELTAS:
            self._has_refused = self._has_refused or kind == _TEXT_DELTAS[1]
            known = self._item(event)
            known.has_pieces = True
            self._add_text(_piece(event), self._message_index(known))
        elif kind == "response.function_call_arguments.delta":
            self._extend_call(self._item(event), _piece(event))
        elif kind in _REASONING_DELTAS:
            self._item(event).has_pieces = True
            chunks.append(ReasoningChunk(_piece(event)))
        elif kind == "response.reasoning_summary_part.added" and event.summary_index:
            chunks.append(ReasoningChunk("\n\n"))
        elif kind == "response.output_item.added" and event.item is not None:
            self._begin_call(self._item(event), event.item)
            self._add_phase(self._item(event), event.item)
        elif kind == "response.output_item.done" and event.item is not None:
            self._finish_item(self._item(event), event.item)
        elif kind in _ENDS and event.response is not None:
            self._take_end(event.response)
        elif kind == "error" or (event.error and not kind):
            raise failed_inside(self._model, event.error or msgspec.json.decode(payload))
        return chunks

    def take_whole(self, payload: bytes) -> list[Chunk]:
        """Return the chunks of a response that is one JSON document."""
        whole = self._decode(_decode_whole, payload)
        if whole.output is None and not whole.error:
            raise malformed(self._model, "it has no output", payload)
        chunks = self._begin()
        self._take_end(whole)
        return chunks

    def end(self, *, is_done: bool) -> list[Chunk]:
        """Return the final chunk. Raises ModelError if the response is incomplete or empty."""
        end = self._end
        if end is None:
            raise cut_short(self._model, has_begun=self.has_begun)
        reason = (end.incomplete_details and end.incomplete_details.reason) or "stop"
        usage = end.usage.to_usage() if end.usage is not None else None
        chunks = self._begin()
        self._finish(_STOP_REASONS.get(reason, reason), usage)
        return chunks

    def _item(self, event: _Event) -> "_PartialItem":
        index = event.output_index or 0
        known = self._items.get(index)
        if known is None:
            known = self._items[index] = _PartialItem()
        return known

    def _take_end(self, whole: _Whole) -> None:
        if whole.error or whole.status == "failed":
            raise failed_inside(self._model, whole.error or "no reason given")
        if whole.status == "cancelled":
            raise ModelError(f"the response of `{self._model}` was cancelled by the provider", model=self._model)
        self._end = whole
        self._response_id = str(whole.id or "")
        self.is_complete = True
        # It contains everything that was not sent in pieces.
        for index, item in enumerate(whole.output or ()):
            known = self._items.setdefault(index, _PartialItem())
            self._finish_item(known, item)

    def _message_index(self, known: "_PartialItem") -> int:
        """Return the position of a message among those of the response."""
        if known.message is None:
            known.message = self._messages
            self._messages += 1
        return known.message

    def _add_phase(self, known: "_PartialItem", item: _Item) -> None:
        """Add the phase of a message, which comes with its beginning or with its end."""
        if item.type == "message" and item.phase in ("commentary", "final_answer") and not known.has_phase:
            known.has_phase = True
            self._chunks.append(TextChunk("", self._message_index(known), item.phase))

    def _begin_call(self, known: "_PartialItem", item: _Item) -> None:
        if item.type != "function_call" or known.call is not None:
            return
        if self._answer_tool and item.name == self._answer_tool:
            known.call = -1
            return
        known.call = self._calls
        self._calls += 1
        self._chunks.append(ToolCallChunk(known.call, item.call_id or item.id or "", item.name or ""))

    def _extend_call(self, known: "_PartialItem", arguments: str) -> None:
        if not arguments:
            return
        known.has_pieces = True
        if known.call is None:
            self._begin_call(known, _Item("function_call"))
        if known.call == -1:
            self._add_text(arguments, self._message_index(known))
        else:
            self._chunks.append(ToolCallChunk(known.call or 0, arguments=arguments))

    def _finish_item(self, known: "_PartialItem", item: _Item) -> None:
        """Add what a complete item has beyond its pieces."""
        if known.is_done:
            return
        known.is_done = True
        for part in item.content or ():
            self._logprobs += to_logprobs(part.logprobs)
        if item.type == "function_call":
            self._begin_call(known, item)
            if not known.has_pieces:
                self._extend_call(known, item.arguments or "")
        elif item.type == "reasoning" and (known.has_pieces or item.encrypted_content or _reasoning_text(item)):
            self._chunks.append(
                ReasoningChunk("" if known.has_pieces else _reasoning_text(item), self._to_reasoning(item))
            )
        elif item.type == "message":
            self._add_phase(known, item)
            for part in () if known.has_pieces else item.content or ():
                self._has_refused = self._has_refused or part.refusal is not None
                self._add_text(part.text or part.refusal or "", self._message_index(known))
        elif item.type == "image_generation_call" and isinstance(item.result, str):
            self._has_answer = True
            self._chunks.append(PartChunk(Image(data=from_base64(item.result, self._model))))

    def _to_reasoning(self, item: _Item) -> Reasoning:
        if not item.encrypted_content:
            return Reasoning(_reasoning_text(item), self._provider)
        fields = {
            "id": item.id or "",
            "summary": [{"type": "summary_text", "text": part.text or ""} for part in item.summary or ()],
            "encrypted_content": item.encrypted_content,
            "calls_before": self._calls,
            "messages_before": self._messages,
        }
        return Reasoning(_reasoning_text(item), self._provider, fields)


class _PartialItem(Struct):
    """An incomplete item; `call` is the position of its call, -1 for the output tool."""

    call: int | None = None
    message: int | None = None
    has_phase: bool = False
    has_pieces: bool = False
    is_done: bool = False


def _piece(event: _Event) -> str:
    return event.delta if isinstance(event.delta, str) else ""


def _reasoning_text(item: _Item) -> str:
    return "\n\n".join([part.text for part in (*(item.summary or ()), *(item.content or ())) if part.text])
