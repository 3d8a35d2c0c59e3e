"""A request in the words of Responses.

An answer of Responses, as chunks.
"""

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
    split,
)
from .endpoint import StructuredOutputMode
from .errors import failed_inside

_LONGEST_ID = 64
_THINKS = re.compile(r"^(?:o\d|gpt-[5-9]|gpt-\d\d|codex|computer-use)")
_DOES_NOT_THINK = re.compile(r"-chat(?:-|$)")


class ResponsesDialect(Struct, frozen=True):
    """In what one endpoint differs from another."""

    model: str
    name: str
    provider: str = "openai"
    structured: StructuredOutputMode = "native"
    store: bool | None = False
    thinks: bool = False
    """Whether to ask for the model's reasoning in a form that can be sent back; others refuse that."""


def thinks(model: str) -> bool:
    """Whether a model of this name is known to reason."""
    return bool(_THINKS.match(model)) and not _DOES_NOT_THINK.search(model)


def responses_body(request: ModelRequest, manner: ResponsesDialect) -> dict[str, Any]:
    """The body of the request, as the official client would send it."""
    settings = request.settings
    body: dict[str, Any] = {"model": manner.model, "input": _items(request.messages, manner)}
    instructions = instructions_with_schema(request, manner.structured)
    if not body["input"]:
        # Something must be said, and where nobody has said anything that is the instructions.
        body["input"] = [{"role": "system", "content": instructions}]
    elif instructions:
        body["instructions"] = instructions
    add_tools(body, request, manner.structured, form=_tool, named=_named)
    if settings.temperature is not None:
        body["temperature"] = settings.temperature
    if settings.top_p is not None:
        body["top_p"] = settings.top_p
    if settings.max_tokens is not None:
        body["max_output_tokens"] = settings.max_tokens
    if settings.reasoning_effort is not None:
        body["reasoning"] = {"effort": settings.reasoning_effort}
    if request.output_schema is not None and manner.structured == "native":
        body["text"] = {"format": {"type": "json_schema", **schema_format(request.output_schema)}}
    elif request.output_schema is not None and manner.structured == "json_object":
        body["text"] = {"format": {"type": "json_object"}}
    if manner.store is not None:
        body["store"] = manner.store
    if manner.thinks:
        body["include"] = ["reasoning.encrypted_content"]
    if request.stream:
        body["stream"] = True
    return body


def _named(tool: str) -> dict[str, Any]:
    return {"type": "function", "name": tool}


def _tool(spec: ToolSpec) -> dict[str, Any]:
    # Strictness is said always: here a tool that does not say so is taken as strict.
    tool: dict[str, Any] = {
        "type": "function",
        "name": spec.name,
        "parameters": spec.parameters,
        "strict": spec.strict,
    }
    return {**tool, "description": spec.description} if spec.description else tool


def _items(messages: Sequence[Message], manner: ResponsesDialect) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = []
    # Media that an assistant made can only be shown by the user, and not before the results of its calls.
    waiting: list[Part] = []
    for message in messages:
        if waiting and not isinstance(message, ToolMessage):
            items.append(_from_user(tuple(waiting), manner))
            waiting.clear()
        if isinstance(message, ToolMessage):
            items.append(_result(message, manner))
        elif isinstance(message, AssistantMessage):
            items.extend(_from_assistant(message, manner, waiting))
        elif isinstance(message, UserMessage):
            items.append(_from_user(message.content, manner))
        else:
            text, media = split(message.content)
            waiting.extend(media)
            items.append({"role": "system", "content": text})
    if waiting:
        items.append(_from_user(tuple(waiting), manner))
    return items


def _result(message: ToolMessage, manner: ResponsesDialect) -> dict[str, Any]:
    content = message.content
    output: Any = content
    if not isinstance(content, str):
        text, media = split(content)
        output = [responses_part(part, manner.name) for part in content] if media else text
    return {"type": "function_call_output", "call_id": fitting_id(message.tool_call_id, _LONGEST_ID), "output": output}


def _from_assistant(message: AssistantMessage, manner: ResponsesDialect, waiting: list[Part]) -> list[dict[str, Any]]:
    text, media = split(message.content)
    if media:
        waiting.extend(about("", media))
    own = [
        block for block in message.reasoning if block.provider == manner.provider and isinstance(block.signature, dict)
    ]
    items = [_thought(block) for block in own if _calls_before(block) == 0]
    if text:
        items.append({"role": "assistant", "content": text})
    for position, call in enumerate(message.tool_calls):
        if position:
            items += [_thought(block) for block in own if _calls_before(block) == position]
        name, arguments = fitting_name(call.name), fitting_arguments(call.arguments)
        id = fitting_id(call.id, _LONGEST_ID)
        items.append({"type": "function_call", "call_id": id, "name": name, "arguments": arguments})
    # A thought that led to nothing may not stand at the end: the API wants what it led to.
    return items if text or message.tool_calls else []


def _thought(block: Reasoning) -> dict[str, Any]:
    kept = cast("dict[str, Any]", block.signature)
    return {"type": "reasoning", **{key: kept[key] for key in ("id", "summary", "encrypted_content") if key in kept}}


def _calls_before(block: Reasoning) -> int:
    return cast("dict[str, Any]", block.signature).get("calls_before", 0)


def _from_user(content: Content, manner: ResponsesDialect) -> dict[str, Any]:
    if isinstance(content, str):
        return {"role": "user", "content": content}
    return {"role": "user", "content": [responses_part(part, manner.name) for part in content]}


_STOP_REASONS = {"max_output_tokens": "length", "max_tokens": "length"}
_TEXTS = ("response.output_text.delta", "response.refusal.delta")
_THOUGHTS = ("response.reasoning_summary_text.delta", "response.reasoning_text.delta")
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
    """One answer, as far as it has come. Calls of `answer_tool` are the text of the answer."""

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
        """Whether the last event was there; this API has no other mark of the end."""
        return self._end is not None

    def take(self, payload: bytes) -> list[Chunk]:
        """The chunks in one event."""
        try:
            event = _decode_event(payload)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise malformed(self._name, error, payload) from None
        self._has_begun = True
        kind, chunks = event.type, list[Chunk]()
        # Text first: nearly every event is a piece of it.
        if kind in _TEXTS:
            self._has_refused = self._has_refused or kind == _TEXTS[1]
            self._seen(event).has_pieces = True
            self._say(_piece(event), chunks)
        elif kind == "response.function_call_arguments.delta":
            self._grow_call(self._seen(event), _piece(event), chunks)
        elif kind in _THOUGHTS:
            self._seen(event).has_pieces = True
            chunks.append(ReasoningChunk(_piece(event)))
        elif kind == "response.reasoning_summary_part.added" and event.summary_index:
            chunks.append(ReasoningChunk("\n\n"))
        elif kind == "response.output_item.added" and event.item is not None:
            self._begin(self._seen(event), event.item, chunks)
        elif kind == "response.output_item.done" and event.item is not None:
            self._finish(self._seen(event), event.item, chunks)
        elif kind in _ENDS and event.response is not None:
            self._take_end(event.response, chunks)
        elif kind == "error" or (event.error and not kind):
            raise failed_inside(self._name, event.error or msgspec.json.decode(payload))
        return chunks

    def take_whole(self, payload: bytes) -> list[Chunk]:
        """The chunks in an answer that came in one piece."""
        try:
            whole = _decode_whole(payload)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise malformed(self._name, error, payload) from None
        if whole.output is None and not whole.error:
            raise malformed(self._name, "it has no output", payload)
        chunks: list[Chunk] = []
        self._take_end(whole, chunks)
        return chunks

    def ended(self, *, is_done: bool) -> list[Chunk]:
        """The end. Raises if the answer was cut, or says nothing; a mark of the end counts for nothing here."""
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

    def _seen(self, event: _Event) -> "_PartialItem":
        index = event.output_index or 0
        seen = self._items.get(index)
        if seen is None:
            seen = self._items[index] = _PartialItem()
        return seen

    def _take_end(self, whole: _Whole, chunks: list[Chunk]) -> None:
        if whole.error or whole.status == "failed":
            raise failed_inside(self._name, whole.error or "it gave no reason")
        if whole.status == "cancelled":
            raise ModelError(f"the answer of `{self._name}` was cancelled at the provider", model=self._name)
        self._end = whole
        # Whatever was not told piece by piece is in here.
        for index, item in enumerate(whole.output or ()):
            seen = self._items.setdefault(index, _PartialItem())
            self._finish(seen, item, chunks)

    def _begin(self, seen: "_PartialItem", item: _Item, chunks: list[Chunk]) -> None:
        if item.type != "function_call" or seen.call is not None:
            return
        if self._answer_tool and item.name == self._answer_tool:
            seen.call = -1
            return
        seen.call = self._calls
        self._calls += 1
        chunks.append(ToolCallChunk(seen.call, item.call_id or item.id or "", item.name or ""))

    def _grow_call(self, seen: "_PartialItem", arguments: str, chunks: list[Chunk]) -> None:
        if not arguments:
            return
        seen.has_pieces = True
        if seen.call is None:
            self._begin(seen, _Item("function_call"), chunks)
        if seen.call == -1:
            self._say(arguments, chunks)
        else:
            chunks.append(ToolCallChunk(seen.call or 0, arguments=arguments))

    def _finish(self, seen: "_PartialItem", item: _Item, chunks: list[Chunk]) -> None:
        """Say what a complete item has beyond its pieces."""
        if seen.is_done:
            return
        seen.is_done = True
        if item.type == "function_call":
            self._begin(seen, item, chunks)
            if not seen.has_pieces:
                self._grow_call(seen, item.arguments or "", chunks)
        elif item.type == "reasoning" and (seen.has_pieces or item.encrypted_content or _thoughts(item)):
            chunks.append(ReasoningChunk("" if seen.has_pieces else _thoughts(item), self._thought(item)))
        elif item.type == "message" and not seen.has_pieces:
            for part in item.content or ():
                self._has_refused = self._has_refused or part.refusal is not None
                self._say(part.text or part.refusal or "", chunks)
        elif item.type == "image_generation_call" and isinstance(item.result, str):
            self._has_answer = True
            chunks.append(PartChunk(Image(data=from_base64(item.result, self._name))))

    def _thought(self, item: _Item) -> Reasoning:
        if not item.encrypted_content:
            return Reasoning(_thoughts(item), self._provider)
        kept = {
            "id": item.id or "",
            "summary": [{"type": "summary_text", "text": part.text or ""} for part in item.summary or ()],
            "encrypted_content": item.encrypted_content,
            "calls_before": self._calls,
        }
        return Reasoning(_thoughts(item), self._provider, kept)

    def _say(self, text: str, chunks: list[Chunk]) -> None:
        if text:
            self._has_answer = True
            chunks.append(TextChunk(text))


class _PartialItem:
    """An item of which something has come; `call` is the number of its call, -1 if that call is the answer."""

    __slots__ = ("call", "has_pieces", "is_done")

    def __init__(self) -> None:
        self.call: int | None = None
        self.has_pieces = False
        self.is_done = False


def _piece(event: _Event) -> str:
    return event.delta if isinstance(event.delta, str) else ""


def _thoughts(item: _Item) -> str:
    return "\n\n".join([part.text for part in (*(item.summary or ()), *(item.content or ())) if part.text])


def _usage(usage: _Usage | None) -> Usage | None:
    if usage is None:
        return None
    cached = usage.input_tokens_details.cached_tokens if usage.input_tokens_details else None
    thought = usage.output_tokens_details.reasoning_tokens if usage.output_tokens_details else None
    return Usage(
        input_tokens=usage.input_tokens or 0,
        output_tokens=usage.output_tokens or 0,
        cached_tokens=cached or 0,
        reasoning_tokens=thought or 0,
    )
