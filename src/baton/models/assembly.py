"""Assembly of a response from its chunks."""

from collections.abc import AsyncIterable, Iterator, Sequence
from itertools import groupby
from typing import cast

import msgspec
from msgspec import Struct

from ..messages import AssistantMessage, Content, Part, Reasoning, Text, ToolCall
from .base import Chunk, ModelResponse, PartChunk, ReasoningChunk, RestartChunk, TextChunk, ToolCallChunk

_NO_END = ModelResponse()
_NO_ARGUMENTS = "{}"


def assemble_response(chunks: Sequence[Chunk], model_name: str = "") -> ModelResponse:
    """Join the chunks of a response.

    Args:
        chunks: All chunks of the response.
        model_name: The model's name, used unless the response names its model.

    Returns:
        A response with the complete message.
    """
    if len(chunks) == 1:
        only = chunks[0]
        if type(only) is ModelResponse and only.message is not None:
            return _complete(only, only.message, model_name)
    builder = _ResponseBuilder()
    for chunk in chunks:
        builder.add(chunk)
    return builder.response(model_name)


async def collect_response(chunks: AsyncIterable[Chunk], model_name: str = "") -> ModelResponse:
    """Read a stream of chunks to its end and join them.

    Args:
        chunks: The stream that a model returned.
        model_name: The model's name, used unless the response names its model.

    Returns:
        A response with the complete message.
    """
    return assemble_response([chunk async for chunk in chunks], model_name)


class _ResponseBuilder:
    __slots__ = ("_calls", "_content_pieces", "_end", "_has_parts", "_open_reasoning", "_reasoning")

    def __init__(self) -> None:
        self._content_pieces: list[str | Part] = []
        self._has_parts = False
        self._calls: dict[int, _PartialCall] = {}
        self._open_reasoning: list[str] = []
        self._reasoning: list[Reasoning] = []
        self._end = _NO_END

    def add(self, chunk: Chunk) -> None:
        # Text comes first because nearly every chunk is text, and this runs once per token.
        if type(chunk) is TextChunk:
            self._content_pieces.append(chunk.text)
        elif type(chunk) is ToolCallChunk:
            call = self._calls.get(chunk.index)
            if call is None:
                call = self._calls[chunk.index] = _PartialCall()
            call.add(chunk)
        elif type(chunk) is ReasoningChunk:
            self._add_reasoning(chunk)
        elif type(chunk) is PartChunk:
            self._content_pieces.append(chunk.part)
            self._has_parts = True
        elif type(chunk) is ModelResponse:
            self._end = chunk
        elif type(chunk) is RestartChunk:
            self.__init__()

    def response(self, model_name: str) -> ModelResponse:
        message = self._end.message
        if message is None:
            message = AssistantMessage(self._content(), self._joined_calls(), self._joined_reasoning())
        return _complete(self._end, message, model_name)

    def _add_reasoning(self, chunk: ReasoningChunk) -> None:
        if chunk.text:
            self._open_reasoning.append(chunk.text)
        whole = chunk.whole
        if whole is not None:
            # Some providers end a block with its signature alone: its text is that of the pieces before.
            if not whole.text and self._open_reasoning:
                whole = msgspec.structs.replace(whole, text="".join(self._open_reasoning))
            self._reasoning.append(whole)
            self._open_reasoning.clear()

    def _joined_reasoning(self) -> tuple[Reasoning, ...]:
        unclosed = (Reasoning("".join(self._open_reasoning)),) if self._open_reasoning else ()
        return (*self._reasoning, *unclosed)

    def _content(self) -> Content:
        if not self._has_parts:
            return "".join(cast(list[str], self._content_pieces))
        parts: list[Part] = []
        for is_text, pieces in groupby(self._content_pieces, lambda piece: isinstance(piece, str)):
            if not is_text:
                parts += cast("Iterator[Part]", pieces)
            elif text := "".join(cast("Iterator[str]", pieces)):
                parts.append(Text(text))
        return tuple(parts)

    def _joined_calls(self) -> tuple[ToolCall, ...]:
        return tuple(self._calls[index].build() for index in sorted(self._calls))


class _PartialCall(Struct):
    id: str = ""
    name: str = ""
    arguments: list[str] = []

    def add(self, chunk: ToolCallChunk) -> None:
        # Some providers repeat id and name with every piece, so they are stored once and never joined.
        self.id = self.id or chunk.id
        self.name = self.name or chunk.name
        self.arguments.append(chunk.arguments)

    def build(self) -> ToolCall:
        return ToolCall(self.id, self.name, "".join(self.arguments) or _NO_ARGUMENTS)


def _complete(end: ModelResponse, message: AssistantMessage, model_name: str) -> ModelResponse:
    for call in message.tool_calls:
        # Some providers send an empty string for a call without arguments.
        if not call.arguments:
            calls = [ToolCall(each.id, each.name, each.arguments or _NO_ARGUMENTS) for each in message.tool_calls]
            message = msgspec.structs.replace(message, tool_calls=tuple(calls))
            break
    if message is end.message and (end.model or not model_name):
        return end
    return ModelResponse(message, end.usage, end.stop_reason, end.model or model_name)
