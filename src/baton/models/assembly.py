"""How the chunks of an answer become the whole answer."""

from collections.abc import AsyncIterable, Sequence
from typing import cast

import msgspec

from ..messages import AssistantMessage, Content, Part, Reasoning, Text, ToolCall
from .base import Chunk, ModelResponse, PartChunk, ReasoningChunk, TextChunk, ToolCallChunk

_UNENDED = ModelResponse()
_NO_ARGUMENTS = "{}"


def assemble_response(chunks: Sequence[Chunk], model_name: str = "") -> ModelResponse:
    """The whole answer that these chunks make; `model_name` is who gave it, unless the answer says so itself."""
    if len(chunks) == 1:
        only = chunks[0]
        if type(only) is ModelResponse and only.message is not None:
            return _completed(only, only.message, model_name)
    assembly = _Assembly()
    for chunk in chunks:
        assembly.add(chunk)
    return assembly.response(model_name)


async def collect_response(chunks: AsyncIterable[Chunk], model_name: str = "") -> ModelResponse:
    """The same, for chunks that are still to come."""
    return assemble_response([chunk async for chunk in chunks], model_name)


class _Assembly:
    """An answer, as far as it has come."""

    __slots__ = ("_calls", "_end", "_has_parts", "_pieces", "_reasoning", "_thoughts")

    def __init__(self) -> None:
        self._pieces: list[str | Part] = []
        self._has_parts = False
        self._calls: dict[int, _GrowingCall] = {}
        self._thoughts: list[str] = []
        self._reasoning: list[Reasoning] = []
        self._end = _UNENDED

    def add(self, chunk: Chunk) -> None:
        """Take one more chunk."""
        # Text comes first because nearly every chunk is text, and this runs once per token.
        if type(chunk) is TextChunk:
            self._pieces.append(chunk.text)
        elif type(chunk) is ToolCallChunk:
            call = self._calls.get(chunk.index)
            if call is None:
                call = self._calls[chunk.index] = _GrowingCall()
            call.add(chunk)
        elif type(chunk) is ReasoningChunk:
            self._think(chunk)
        elif type(chunk) is PartChunk:
            self._pieces.append(chunk.part)
            self._has_parts = True
        elif type(chunk) is ModelResponse:
            self._end = chunk

    def response(self, model_name: str) -> ModelResponse:
        """The whole of it."""
        message = self._end.message
        if message is None:
            message = AssistantMessage(self._content(), self._assembled_calls(), self._all_reasoning())
        return _completed(self._end, message, model_name)

    def _think(self, chunk: ReasoningChunk) -> None:
        if chunk.text:
            self._thoughts.append(chunk.text)
        whole = chunk.whole
        if whole is not None:
            # Some providers close a block with its signature alone: its text is what came before.
            if not whole.text and self._thoughts:
                whole = msgspec.structs.replace(whole, text="".join(self._thoughts))
            self._reasoning.append(whole)
            self._thoughts.clear()

    def _all_reasoning(self) -> tuple[Reasoning, ...]:
        unclosed = (Reasoning("".join(self._thoughts)),) if self._thoughts else ()
        return (*self._reasoning, *unclosed)

    def _content(self) -> Content:
        if not self._has_parts:
            return "".join(cast(list[str], self._pieces))
        parts: list[Part] = []
        text: list[str] = []
        for piece in self._pieces:
            if isinstance(piece, str):
                text.append(piece)
                continue
            _close_text(text, parts)
            parts.append(piece)
        _close_text(text, parts)
        return tuple(parts)

    def _assembled_calls(self) -> tuple[ToolCall, ...]:
        return tuple(self._calls[index].finished() for index in sorted(self._calls))


class _GrowingCall:
    """One call, as far as it has come."""

    __slots__ = ("_arguments", "_id", "_name")

    def __init__(self) -> None:
        self._id = ""
        self._name = ""
        self._arguments: list[str] = []

    def add(self, chunk: ToolCallChunk) -> None:
        # Some providers repeat id and name with every piece, so they are taken once and never joined.
        self._id = self._id or chunk.id
        self._name = self._name or chunk.name
        self._arguments.append(chunk.arguments)

    def finished(self) -> ToolCall:
        return ToolCall(self._id, self._name, "".join(self._arguments) or _NO_ARGUMENTS)


def _close_text(text: list[str], parts: list[Part]) -> None:
    whole = "".join(text)
    if whole:
        parts.append(Text(whole))
    text.clear()


def _completed(end: ModelResponse, message: AssistantMessage, model_name: str) -> ModelResponse:
    for call in message.tool_calls:
        # Providers send an empty string for a call without arguments; no reader of calls should have to know.
        if not call.arguments:
            message = _with_arguments(message)
            break
    if message is end.message and (end.model or not model_name):
        return end
    return ModelResponse(message, end.usage, end.stop_reason, end.model or model_name)


def _with_arguments(message: AssistantMessage) -> AssistantMessage:
    calls = tuple(ToolCall(call.id, call.name, call.arguments or _NO_ARGUMENTS) for call in message.tool_calls)
    return msgspec.structs.replace(message, tool_calls=calls)
