"""One answer out of several attempts: what retrying and failing over have in common."""

from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Sequence
from typing import TypeAlias

from msgspec.structs import replace

from ..errors import ModelError
from .base import Chunk, Model, ModelRequest, ModelResponse, ReasoningChunk, TextChunk
from .collect import assemble_response

NextAttempt: TypeAlias = Callable[[Sequence[ModelError], bool], Awaitable[Model | None]]
"""Who tries after these failures, the latest last; the flag says whether output was already passed on. None: nobody."""


async def answer(request: ModelRequest, first: Model, *, next_attempt: NextAttempt) -> AsyncIterator[Chunk]:
    """The chunks of the first attempt that does not fail, ended by a Response that names the model behind it."""
    model = first
    failures: list[ModelError] = []
    has_output = has_leftovers = False
    while True:
        # What a failed attempt has left with the reader is made void by a Response that is the whole answer.
        repeated: list[Chunk] | None = [] if has_leftovers else None
        is_ended = False
        chunks = model.respond(request)
        try:
            async for chunk in chunks:
                if repeated is not None:
                    repeated.append(chunk)
                if type(chunk) is ModelResponse:
                    if repeated is not None:
                        continue
                    is_ended = True
                    chunk = chunk if chunk.model else replace(chunk, model=model.name)
                has_leftovers = True
                has_output = has_output or _is_output(chunk)
                yield chunk
            if not is_ended:
                yield (
                    assemble_response(repeated, model.name) if repeated is not None else ModelResponse(model=model.name)
                )
            return
        except ModelError as error:
            failures.append(error)
        finally:
            await _close(chunks)
        following = await next_attempt(failures, has_output)
        if following is None:
            raise failures[-1]
        model = following


def is_retryable(error: ModelError) -> bool:
    """Whether the error says that the same request may succeed later."""
    return error.retryable


def _is_output(chunk: Chunk) -> bool:
    # Thinking may be shown twice without harm; what the user reads as the answer, and calls, may not.
    if type(chunk) is TextChunk:
        return bool(chunk.text)
    return type(chunk) is not ReasoningChunk


async def _close(chunks: AsyncIterable[Chunk]) -> None:
    # The protocol asks for an iterator only; one written as a class need not have anything to close.
    close = getattr(chunks, "aclose", None)
    if close is not None:
        await close()
