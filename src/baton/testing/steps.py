"""What a scripted model can be told to do when it is asked."""

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any, TypeAlias, cast

import msgspec

from ..errors import SetupError
from ..handoffs import TRANSFER_TOOL
from ..messages import AssistantMessage, Audio, Data, File, Image, Part, Reasoning, Text, ToolCall, Usage
from ..models import Chunk, ModelRequest, ModelResponse, PartChunk, ReasoningChunk, TextChunk, ToolCallChunk
from .transcript import shown_call, spoken

Piece: TypeAlias = str | ToolCall | Part | Reasoning | Chunk | asyncio.Event | BaseException
"""A piece of a Stream: text, a call, a part, a thought, a chunk as it is, something to wait for, or a failure."""

_PIECES = (
    *(str, ToolCall, Text, Image, Audio, File, Data, Reasoning),
    *(TextChunk, ReasoningChunk, ToolCallChunk, PartChunk, ModelResponse, asyncio.Event, BaseException),
)
_WORD = re.compile(r"\S+\s*|\s+")


class ScriptedStream:
    """An answer in pieces. An exception among them is raised there; an asyncio.Event is waited for there."""

    def __init__(self, *pieces: Piece, usage: Usage | None = None, stop_reason: str = "") -> None:
        for piece in pieces:
            if not isinstance(piece, _PIECES):  # pyright: ignore[reportUnnecessaryIsInstance]
                wanted = "text, ToolCalls, parts, Reasoning, chunks, an asyncio.Event or an exception"
                raise SetupError(f"{piece!r} cannot be a piece of a Stream; give {wanted}")
        self.pieces = pieces
        self.usage = usage
        self.stop_reason = stop_reason

    def __repr__(self) -> str:
        shown = [shown_call(piece) if isinstance(piece, ToolCall) else repr(piece) for piece in self.pieces]
        return f"Stream({', '.join(shown)})"


Plain: TypeAlias = (
    str | ToolCall | Sequence[ToolCall] | AssistantMessage | ModelResponse | ScriptedStream | BaseException
)
Computed: TypeAlias = Callable[[ModelRequest], Plain | Awaitable[Plain]]
ScriptStep: TypeAlias = Plain | Computed
"""One answer: text, calls, a message, a Response, a Stream, an exception to raise, or a function of the request."""

Playable: TypeAlias = ModelResponse | ScriptedStream | BaseException
Happening: TypeAlias = Chunk | asyncio.Event | BaseException
"""What playing a step comes to: give this chunk, wait for this, or raise this."""


def call(name: str, /, **arguments: Any) -> ToolCall:
    """A call of a tool; the model that plays it gives it an id."""
    return ToolCall("", name, msgspec.json.encode(arguments).decode())


def transfer_to(agent_name: str, /) -> ToolCall:
    """A call that asks for a transfer to a sub-agent or the parent, with the one tool for that."""
    return call(TRANSFER_TOOL, agent_name=agent_name)


def say(text: str, /, *calls: ToolCall, usage: Usage | None = None) -> ModelResponse:
    """An answer of text and calls together, with what it is said to have consumed."""
    return ModelResponse(AssistantMessage(text, calls), usage)


def playable(step: Any) -> Playable | Computed:
    """The step in the form it is played in; a SetupError if it is none."""
    match step:
        case str():
            return ModelResponse(AssistantMessage(step))
        case ToolCall():
            return ModelResponse(AssistantMessage(tool_calls=(step,)))
        case AssistantMessage():
            return ModelResponse(step)
        case ModelResponse() | ScriptedStream() | BaseException():
            return step
        case [*calls] if calls and all(isinstance(each, ToolCall) for each in calls):
            return ModelResponse(AssistantMessage(tool_calls=tuple(calls)))
        case _ if callable(step) and not isinstance(step, type):
            return cast(Computed, step)
        case _:
            wanted = "text, a ToolCall, a list of them, a message, a Response, a Stream, an exception or a function"
            raise SetupError(f"{step!r} cannot be a step of a ScriptedModel; give {wanted} of the request")


def happenings(step: Playable, model_name: str, *, in_words: bool) -> Iterator[Happening]:
    """What playing this step comes to, in order."""
    if isinstance(step, BaseException):
        yield step
    elif isinstance(step, ScriptedStream):
        yield from _of_stream(step, model_name)
    elif in_words and step.message is not None:
        yield from _of_message(step, step.message)
    else:
        yield step


def described(step: Playable | Computed) -> str:
    """A step as a failing test shows it."""
    if isinstance(step, ModelResponse):
        return spoken(step.message or AssistantMessage())
    if isinstance(step, ScriptedStream):
        return repr(step)
    if isinstance(step, BaseException):
        return f"raise {step!r}"
    return f"computed by {getattr(step, '__name__', repr(step))}"


def _of_stream(stream: ScriptedStream, model_name: str) -> Iterator[Happening]:
    index = 0
    for piece in stream.pieces:
        if isinstance(piece, ToolCall):
            yield from _of_call(piece, index)
            index += 1
        elif isinstance(piece, str):
            yield TextChunk(piece)
        elif isinstance(piece, Reasoning):
            yield ReasoningChunk(piece.text, piece)
        elif isinstance(piece, Text | Image | Audio | File | Data):
            yield PartChunk(piece)
        else:
            yield piece
    if not any(isinstance(piece, ModelResponse) for piece in stream.pieces):
        yield ModelResponse(None, stream.usage, stream.stop_reason, model_name)


def _of_message(response: ModelResponse, message: AssistantMessage) -> Iterator[Chunk]:
    for block in message.reasoning:
        yield ReasoningChunk(block.text, block)
    content = message.content
    for part in (Text(content),) if isinstance(content, str) else content:
        if isinstance(part, Text):
            yield from map(TextChunk, _WORD.findall(part.text))
        else:
            yield PartChunk(part)
    for index, each in enumerate(message.tool_calls):
        yield from _of_call(each, index)
    # Chunks cannot say where one of two neighbouring text parts ends, so content in parts is repeated as a whole.
    whole = None if isinstance(content, str) else message
    yield ModelResponse(whole, response.usage, response.stop_reason, response.model)


def _of_call(each: ToolCall, index: int) -> Iterator[ToolCallChunk]:
    yield ToolCallChunk(index, each.id, each.name)
    yield ToolCallChunk(index, arguments=each.arguments)
