"""Assembly of a response from its chunks."""

from collections.abc import AsyncIterable, Iterator, Sequence
from itertools import groupby
from typing import cast

from msgspec.structs import replace

from ..messages import AssistantMessage, Content, Part, Phase, Reasoning, Text, ToolCall
from .encoding import replace_lone_surrogates
from .model import Chunk, ModelResponse, PartChunk, ReasoningChunk, TextChunk, ToolCallChunk


def assemble_response(chunks: Sequence[Chunk], model_name: str = "") -> ModelResponse:
    """Join the chunks of a response.

    Args:
        chunks: All chunks of the response.
        model_name: The model's name, used unless the response names its model.

    Returns:
        A response with the complete message.
    """
    # A response that was not streamed is a single chunk.
    end = chunks[0] if len(chunks) == 1 else None
    if type(end) is not ModelResponse or end.message is None:
        end = _join(chunks)
    message = end.message or AssistantMessage()
    for call in message.tool_calls:
        if not call.arguments:
            break
    else:
        if message is end.message and (not model_name or end.model):
            return end
    # Some providers send an empty string for a call without arguments.
    calls = [ToolCall(each.id, each.name, each.arguments or "{}") for each in message.tool_calls]
    message = replace(message, tool_calls=tuple(calls))
    return ModelResponse(message, end.usage, end.stop_reason, end.model or model_name, end.logprobs, end.id)


async def collect_response(chunks: AsyncIterable[Chunk], model_name: str = "") -> ModelResponse:
    """Read a stream of chunks to its end and join them.

    Args:
        chunks: The stream that a model returned.
        model_name: The model's name, used unless the response names its model.

    Returns:
        A response with the complete message.
    """
    return assemble_response([chunk async for chunk in chunks], model_name)


def _join(chunks: Sequence[Chunk]) -> ModelResponse:
    end = ModelResponse()
    content: list[TextChunk | Part] = []
    calls: dict[int, list[ToolCallChunk]] = {}
    reasoning: list[ReasoningChunk] = []
    for chunk in chunks:
        # Text comes first because nearly every chunk is text, and this runs once per token.
        if type(chunk) is TextChunk:
            content.append(chunk)
        elif type(chunk) is ToolCallChunk:
            calls.setdefault(chunk.index, []).append(chunk)
        elif type(chunk) is ReasoningChunk:
            reasoning.append(chunk)
        elif type(chunk) is PartChunk:
            content.append(chunk.part)
        elif type(chunk) is ModelResponse:
            end = chunk
        else:
            end = ModelResponse()
            content = []
            calls = {}
            reasoning = []
    if end.message is not None:
        return end
    joined = tuple([_join_call(calls[index]) for index in sorted(calls)])
    message = AssistantMessage(_join_content(content), joined, tuple(_join_reasoning(reasoning)))
    return replace(end, message=message)


def _join_content(pieces: Sequence[TextChunk | Part]) -> Content:
    if all(type(piece) is TextChunk and not piece.index and piece.phase is None for piece in pieces):
        return "".join([cast("TextChunk", piece).text for piece in pieces])
    parts: list[Part] = []
    last_index = max([piece.index for piece in pieces if type(piece) is TextChunk], default=0)
    for index, group in groupby(pieces, _message_index):
        if index is None:
            parts += cast("Iterator[Part]", group)
            continue
        chunks = list(cast("Iterator[TextChunk]", group))
        text = "".join([chunk.text for chunk in chunks])
        if text:
            parts.append(Text(text, _phase_of(chunks, is_last=index == last_index)))
    match parts:
        case [Text(text, None)]:
            return text
        case _:
            return tuple(parts)


def _phase_of(chunks: Sequence[TextChunk], *, is_last: bool) -> Phase | None:
    """Return the phase of a message; unless the model says it, the last message is the answer."""
    for chunk in chunks:
        if chunk.phase is not None:
            return chunk.phase
    return None if is_last else "commentary"


def _message_index(piece: TextChunk | Part) -> int | None:
    """Return the position of the message of a piece of text; None for other parts."""
    return piece.index if type(piece) is TextChunk else None


def _join_call(pieces: Sequence[ToolCallChunk]) -> ToolCall:
    # Some providers repeat id and name with every piece, so they are taken once and never joined.
    id = next((piece.id for piece in pieces if piece.id), "")
    name = next((piece.name for piece in pieces if piece.name), "")
    return ToolCall(id, name, replace_lone_surrogates("".join([piece.arguments for piece in pieces])))


def _join_reasoning(chunks: Sequence[ReasoningChunk]) -> Iterator[Reasoning]:
    text = ""
    for chunk in chunks:
        text += chunk.text
        if chunk.whole is not None:
            # Some providers end a block with its signature alone: its text is that of the pieces before.
            yield chunk.whole if chunk.whole.text else replace(chunk.whole, text=text)
            text = ""
    if text:
        yield Reasoning(text)
