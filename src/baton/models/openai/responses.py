"""Requests and responses of OpenAI's Responses API."""

import re
from collections.abc import Sequence
from typing import Any, cast

import msgspec
from msgspec import Struct

from ...errors import ModelError
from ...messages import (
    AssistantMessage,
    Content,
    Image,
    Message,
    Part,
    Reasoning,
    ToolMessage,
    ToolSpec,
    Usage,
    UserMessage,
)
from ..base import Chunk, ModelRequest, ModelResponse, PartChunk, ReasoningChunk, TextChunk, ToolCallChunk
from ..provider_errors import cut_short, empty, filtered, malformed
from .encoding import (
    about,
    add_tools,
    fitting_arguments,
    fitting_id,
    fitting_name,
    from_base64,
    instructions_with_schema,
    responses_part,
    schema_format,
    split_media,
)
from .endpoint import StructuredOutputMode
from .errors import failed_inside

_MAX_ID = 64
_REASONING = re.compile(r"^(?:o\d|gpt-[5-9]|gpt-\d\d|codex|computer-use)")
_NOT_REASONING = re.compile(r"-chat(?:-|$)")


class ResponsesDialect(Struct, frozen=True):
    """The ways in which endpoints differ.

    Args:
        model: The provider's name for the model.
        name: The model's name in Baton, for errors.
        provider: The provider, to recognize its own reasoning.
        structured: The way to request structured output.
        store: Whether the provider stores the response; None omits the field.
        keeps_reasoning: Whether to request reasoning that can be sent back; other models reject that.
    """

    model: str
    name: str
    provider: str = "openai"
    structured: StructuredOutputMode = "native"
    store: bool | None = False
    keeps_reasoning: bool = False


def is_reasoning_model(model: str) -> bool:
    """Check whether a model of this name is known to reason."""
    return bool(_REASONING.match(model)) and not _NOT_REASONING.search(model)


def responses_body(request: ModelRequest, dialect: ResponsesDialect) -> dict[str, Any]:
    """Build the body of a request, as OpenAI's client would send it."""
    settings = request.settings
    body: dict[str, Any] = {"model": dialect.model, "input": _items(request.messages, dialect)}
    instructions = instructions_with_schema(request, dialect.structured)
    if not body["input"]:
        # The input may not be empty.
        body["input"] = [{"role": "system", "content": instructions}]
    elif instructions:
        body["instructions"] = instructions
    add_tools(body, request, dialect.structured, encode=_tool, encode_choice=_choice)
    if settings.temperature is not None:
        body["temperature"] = settings.temperature
    if settings.top_p is not None:
        body["top_p"] = settings.top_p
    if settings.max_tokens is not None:
        body["max_output_tokens"] = settings.max_tokens
    if settings.reasoning_effort is not None:
        body["reasoning"] = {"effort": settings.reasoning_effort}
    if request.output_schema is not None and dialect.structured == "native":
        body["text"] = {"format": {"type": "json_schema", **schema_format(request.output_schema)}}
    elif request.output_schema is not None and dialect.structured == "json_object":
        body["text"] = {"format": {"type": "json_object"}}
    if dialect.store is not None:
        body["store"] = dialect.store
    if dialect.keeps_reasoning:
        body["include"] = ["reasoning.encrypted_content"]
    if request.stream:
        body["stream"] = True
    return body


def _choice(tool: str) -> dict[str, Any]:
    return {"type": "function", "name": tool}


def _tool(spec: ToolSpec) -> dict[str, Any]:
    # `strict` is always sent: here it is true by default.
    tool = {"type": "function", "name": spec.name, "parameters": spec.parameters, "strict": spec.strict}
    return {**tool, "description": spec.description} if spec.description else tool


def _items(messages: Sequence[Message], dialect: ResponsesDialect) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = []
    # Media of an assistant is sent in a user message, after the results of its calls.
    pending: list[Part] = []
    for message in messages:
        if pending and not isinstance(message, ToolMessage):
            items.append(_from_user(tuple(pending), dialect))
            pending.clear()
        if isinstance(message, ToolMessage):
            items.append(_result(message, dialect))
        elif isinstance(message, AssistantMessage):
            items.extend(_from_assistant(message, dialect, pending))
        elif isinstance(message, UserMessage):
            items.append(_from_user(message.content, dialect))
        else:
            text, media = split_media(message.content)
            pending.extend(media)
            items.append({"role": "system", "content": text})
    if pending:
        items.append(_from_user(tuple(pending), dialect))
    return items


def _result(message: ToolMessage, dialect: ResponsesDialect) -> dict[str, Any]:
    content = message.content
    output: Any = content
    if not isinstance(content, str):
        text, media = split_media(content)
        output = [responses_part(part, dialect.name) for part in content] if media else text
    return {"type": "function_call_output", "call_id": fitting_id(message.tool_call_id, _MAX_ID), "output": output}


def _from_assistant(message: AssistantMessage, dialect: ResponsesDialect, pending: list[Part]) -> list[dict[str, Any]]:
    text, media = split_media(message.content)
    if media:
        pending.extend(about("", media))
    own = [
        block for block in message.reasoning if block.provider == dialect.provider and isinstance(block.signature, dict)
    ]
    items = [_reasoning_item(block) for block in own if _calls_before(block) == 0]
    if text:
        items.append({"role": "assistant", "content": text})
    for position, call in enumerate(message.tool_calls):
        if position:
            items += [_reasoning_item(block) for block in own if _calls_before(block) == position]
        name, arguments = fitting_name(call.name), fitting_arguments(call.arguments)
        id = fitting_id(call.id, _MAX_ID)
        items.append({"type": "function_call", "call_id": id, "name": name, "arguments": arguments})
    # Reasoning may not stand at the end: the API requires the output that it led to.
    return items if text or message.tool_calls else []


def _reasoning_item(block: Reasoning) -> dict[str, Any]:
    fields = cast("dict[str, Any]", block.signature)
    names = ("id", "summary", "encrypted_content")
    return {"type": "reasoning", **{name: fields[name] for name in names if name in fields}}


def _calls_before(block: Reasoning) -> int:
    return cast("dict[str, Any]", block.signature).get("calls_before", 0)


def _from_user(content: Content, dialect: ResponsesDialect) -> dict[str, Any]:
    if isinstance(content, str):
        return {"role": "user", "content": content}
    return {"role": "user", "content": [responses_part(part, dialect.name) for part in content]}


_STOP_REASONS = {"max_output_tokens": "length", "max_tokens": "length"}
_TEXT_DELTAS = ("response.output_text.delta", "response.refusal.delta")
_REASONING_DELTAS = ("response.reasoning_summary_text.delta", "response.reasoning_text.delta")
_ENDS = ("response.completed", "response.incomplete", "response.failed", "response.cancelled")


class _Text(Struct):
    type: str = ""
    text: str | None = None
    refusal: str | None = None


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


class _InputDetails(Struct):
    cached_tokens: int | None = None


class _OutputDetails(Struct):
    reasoning_tokens: int | None = None


class _Usage(Struct):
    input_tokens: int | None = None
    output_tokens: int | None = None
    input_tokens_details: _InputDetails | None = None
    output_tokens_details: _OutputDetails | None = None


class _Incomplete(Struct):
    reason: str | None = None


class _Whole(Struct):
    status: str | None = None
    output: list[_Item] | None = None
    usage: _Usage | None = None
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


class ResponsesStreamParser:
    """Converts the events of one response to chunks.

    Args:
        name: The model's name, for errors.
        provider: The provider, stored with reasoning.
        answer_tool: The output tool, whose arguments are the text of the response.
    """

    def __init__(self, name: str, provider: str, *, answer_tool: str = "") -> None:
        self._name = name
        self._provider = provider
        self._answer_tool = answer_tool
        self._items: dict[int, _PartialItem] = {}
        self._calls = 0
        self._end: _Whole | None = None
        self._has_begun = False
        self._has_answer = False
        self._has_refused = False

    @property
    def is_complete(self) -> bool:
        """True once the last event was received; this API has no other end marker."""
        return self._end is not None

    def take(self, payload: bytes) -> list[Chunk]:
        """Return the chunks of one event."""
        try:
            event = _decode_event(payload)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise malformed(self._name, error, payload) from None
        self._has_begun = True
        kind, chunks = event.type, list[Chunk]()
        # Text first: nearly every event is a piece of it.
        if kind in _TEXT_DELTAS:
            self._has_refused = self._has_refused or kind == _TEXT_DELTAS[1]
            self._item(event).has_pieces = True
            self._add_text(_piece(event), chunks)
        elif kind == "response.function_call_arguments.delta":
            self._extend_call(self._item(event), _piece(event), chunks)
        elif kind in _REASONING_DELTAS:
            self._item(event).has_pieces = True
            chunks.append(ReasoningChunk(_piece(event)))
        elif kind == "response.reasoning_summary_part.added" and event.summary_index:
            chunks.append(ReasoningChunk("\n\n"))
        elif kind == "response.output_item.added" and event.item is not None:
            self._begin(self._item(event), event.item, chunks)
        elif kind == "response.output_item.done" and event.item is not None:
            self._finish(self._item(event), event.item, chunks)
        elif kind in _ENDS and event.response is not None:
            self._take_end(event.response, chunks)
        elif kind == "error" or (event.error and not kind):
            raise failed_inside(self._name, event.error or msgspec.json.decode(payload))
        return chunks

    def take_whole(self, payload: bytes) -> list[Chunk]:
        """Return the chunks of a response that is one JSON document."""
        try:
            whole = _decode_whole(payload)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise malformed(self._name, error, payload) from None
        if whole.output is None and not whole.error:
            raise malformed(self._name, "it has no output", payload)
        chunks: list[Chunk] = []
        self._take_end(whole, chunks)
        return chunks

    def end(self, *, is_done: bool) -> list[Chunk]:
        """Return the final chunk. Raises ModelError if the response is incomplete or empty."""
        end = self._end
        if end is None:
            raise cut_short(self._name, has_begun=self._has_begun)
        reason = end.incomplete_details.reason if end.incomplete_details else None
        reason = _STOP_REASONS.get(reason, reason) if reason else "tool_calls" if self._calls else "stop"
        if reason == "content_filter":
            raise filtered(self._name)
        if not self._has_answer and not self._calls:
            raise empty(self._name, reason)
        return [ModelResponse(None, _usage(end.usage), "refusal" if self._has_refused else reason)]

    def _item(self, event: _Event) -> "_PartialItem":
        index = event.output_index or 0
        known = self._items.get(index)
        if known is None:
            known = self._items[index] = _PartialItem()
        return known

    def _take_end(self, whole: _Whole, chunks: list[Chunk]) -> None:
        if whole.error or whole.status == "failed":
            raise failed_inside(self._name, whole.error or "no reason given")
        if whole.status == "cancelled":
            raise ModelError(f"the response of `{self._name}` was cancelled by the provider", model=self._name)
        self._end = whole
        # It contains everything that was not sent in pieces.
        for index, item in enumerate(whole.output or ()):
            known = self._items.setdefault(index, _PartialItem())
            self._finish(known, item, chunks)

    def _begin(self, known: "_PartialItem", item: _Item, chunks: list[Chunk]) -> None:
        if item.type != "function_call" or known.call is not None:
            return
        if self._answer_tool and item.name == self._answer_tool:
            known.call = -1
            return
        known.call = self._calls
        self._calls += 1
        chunks.append(ToolCallChunk(known.call, item.call_id or item.id or "", item.name or ""))

    def _extend_call(self, known: "_PartialItem", arguments: str, chunks: list[Chunk]) -> None:
        if not arguments:
            return
        known.has_pieces = True
        if known.call is None:
            self._begin(known, _Item("function_call"), chunks)
        if known.call == -1:
            self._add_text(arguments, chunks)
        else:
            chunks.append(ToolCallChunk(known.call or 0, arguments=arguments))

    def _finish(self, known: "_PartialItem", item: _Item, chunks: list[Chunk]) -> None:
        """Add what a complete item has beyond its pieces."""
        if known.is_done:
            return
        known.is_done = True
        if item.type == "function_call":
            self._begin(known, item, chunks)
            if not known.has_pieces:
                self._extend_call(known, item.arguments or "", chunks)
        elif item.type == "reasoning" and (known.has_pieces or item.encrypted_content or _reasoning_text(item)):
            chunks.append(ReasoningChunk("" if known.has_pieces else _reasoning_text(item), self._to_reasoning(item)))
        elif item.type == "message" and not known.has_pieces:
            for part in item.content or ():
                self._has_refused = self._has_refused or part.refusal is not None
                self._add_text(part.text or part.refusal or "", chunks)
        elif item.type == "image_generation_call" and isinstance(item.result, str):
            self._has_answer = True
            chunks.append(PartChunk(Image(data=from_base64(item.result, self._name))))

    def _to_reasoning(self, item: _Item) -> Reasoning:
        if not item.encrypted_content:
            return Reasoning(_reasoning_text(item), self._provider)
        fields = {
            "id": item.id or "",
            "summary": [{"type": "summary_text", "text": part.text or ""} for part in item.summary or ()],
            "encrypted_content": item.encrypted_content,
            "calls_before": self._calls,
        }
        return Reasoning(_reasoning_text(item), self._provider, fields)

    def _add_text(self, text: str, chunks: list[Chunk]) -> None:
        if text:
            self._has_answer = True
            chunks.append(TextChunk(text))


class _PartialItem:
    """An incomplete item; `call` is the position of its call, -1 for the output tool."""

    __slots__ = ("call", "has_pieces", "is_done")

    def __init__(self) -> None:
        self.call: int | None = None
        self.has_pieces = False
        self.is_done = False


def _piece(event: _Event) -> str:
    return event.delta if isinstance(event.delta, str) else ""


def _reasoning_text(item: _Item) -> str:
    return "\n\n".join([part.text for part in (*(item.summary or ()), *(item.content or ())) if part.text])


def _usage(usage: _Usage | None) -> Usage | None:
    if usage is None:
        return None
    cached = usage.input_tokens_details.cached_tokens if usage.input_tokens_details else None
    reasoning = usage.output_tokens_details.reasoning_tokens if usage.output_tokens_details else None
    return Usage(
        input_tokens=usage.input_tokens or 0,
        output_tokens=usage.output_tokens or 0,
        cached_tokens=cached or 0,
        reasoning_tokens=reasoning or 0,
    )
