"""One answer on its way to a client: whole or in pieces, and what goes wrong with it on purpose."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from logging import getLogger

from aiohttp import web
from msgspec.structs import replace

from ...errors import EmptyResponseError, MalformedResponseError, ModelConnectionError, ModelError, ModelTimeoutError
from ...messages import AssistantMessage, Usage
from ...models import Chunk, ModelResponse, ToolCallChunk, assemble_response
from ..steps import happenings
from .base import AnswerStream, APIEndpoint
from .received import ReceivedRequest, ValidRequest

_log = getLogger(__name__)

JSON = "application/json"
REFUSAL = "refusal"
"""The stop reason that makes an answer of a script a refusal."""
_SHORTEST_DELTA = 8
_MOST_DELTAS = 16
_CHARACTERS_OF_A_TOKEN = 4


class ScriptedExchange:
    """A request that is being answered."""

    def __init__(
        self,
        http: web.BaseRequest,
        endpoint: APIEndpoint,
        *,
        received: ReceivedRequest,
        asked: ValidRequest,
        delay: float,
    ) -> None:
        self._http = http
        self._endpoint = endpoint
        self._received = received
        self._asked = asked
        self._delay = delay
        self._given: list[Chunk] = []
        self._stream: AnswerStream | None = None
        self._beginning = b""
        self._response: web.StreamResponse | None = None

    async def answer(self, chunks: AsyncIterator[Chunk]) -> web.StreamResponse:
        """Send these chunks. What fails before anything is sent is raised, for the provider to say it in its way."""
        try:
            if self._asked.streams:
                return await self._in_pieces(chunks)
            self._given = [chunk async for chunk in chunks]
            return self._whole()
        except ConnectionError:
            raise
        except ModelError as error:
            return await self._failed(error)
        except Exception as error:  # noqa: BLE001 - a step that raises becomes a status, or the client would wait
            _log.exception("a step failed")
            return await self._failed(ModelError(f"{type(error).__name__}: {error}"))

    def _whole(self) -> web.StreamResponse:
        return web.Response(body=self._endpoint.whole(self._asked, self._complete()), content_type=JSON)

    async def _in_pieces(self, chunks: AsyncIterator[Chunk]) -> web.StreamResponse:
        async for chunk in chunks:
            if type(chunk) is ModelResponse and (chunk.message is None or self._given):
                self._given.append(chunk)
                continue
            if type(chunk) is ModelResponse and chunk.stop_reason == REFUSAL:
                self._begun().is_refusal = True
            for piece in pieces_of(chunk):
                if type(piece) is not ModelResponse:
                    await self._write(self._begun().chunk(piece))
                self._given.append(piece)
        return await self._ended()

    async def _ended(self) -> web.StreamResponse:
        await self._write(self._begun().end(self._complete()))
        return await self._closed()

    async def _failed(self, error: ModelError) -> web.StreamResponse:
        match error:
            case ModelConnectionError():
                return self._cut()
            case ModelTimeoutError():
                # Nothing more comes; the client's own patience ends it, and that cancels this.
                await asyncio.get_running_loop().create_future()
            case MalformedResponseError():
                if not self._asked.streams:
                    return web.Response(body=str(error).encode(), content_type=JSON)
                await self._write(self._begun().garbage(str(error)))
            case EmptyResponseError():
                return await self._ended() if self._asked.streams else self._whole()
            case _ if self._stream is None:
                raise error
            case _:
                await self._write(self._begun().failed(error))
        return await self._closed()

    def _begun(self) -> AnswerStream:
        if self._stream is None:
            self._stream = self._endpoint.stream(self._asked)
            # Before any piece is made, because some formats number their events.
            self._beginning = self._stream.begin()
        return self._stream

    async def _write(self, data: bytes) -> None:
        if self._response is None:
            headers = {"content-type": self._endpoint.stream_type, "cache-control": "no-cache"}
            self._response = web.StreamResponse(headers=headers)
            await self._response.prepare(self._http)
            data = self._beginning + data
        elif self._delay:
            await asyncio.sleep(self._delay)
        if data:
            await self._response.write(data)

    async def _closed(self) -> web.StreamResponse:
        assert self._response is not None
        await self._response.write_eof()
        return self._response

    def _cut(self) -> web.StreamResponse:
        self._received.is_cut = True
        if self._http.transport is not None:
            # What was written is still sent; the end of the body, which would make it look complete, is not.
            self._http.transport.close()
        return self._response or web.Response()

    def _complete(self) -> ModelResponse:
        whole = assemble_response(self._given)
        usage = whole.usage
        if usage is None:
            said = whole.message or AssistantMessage()
            spoken = len(str(said.content)) + sum(len(call.name) + len(call.arguments) for call in said.tool_calls)
            usage = Usage(self._received.tokens, spoken // _CHARACTERS_OF_A_TOKEN + 1)
        return replace(whole, usage=usage, message=whole.message or AssistantMessage())


def pieces_of(chunk: Chunk) -> Iterator[Chunk]:
    """The chunk as a provider sends it: an answer word by word, the arguments of a call in several deltas."""
    if type(chunk) is ModelResponse:
        for happening in happenings(chunk, "", in_words=True):
            if not isinstance(happening, asyncio.Event | BaseException | ModelResponse):
                yield from pieces_of(happening)
        yield chunk
    elif type(chunk) is ToolCallChunk and len(chunk.arguments) > _SHORTEST_DELTA:
        size = max(_SHORTEST_DELTA, len(chunk.arguments) // _MOST_DELTAS + 1)
        yield ToolCallChunk(chunk.index, chunk.id, chunk.name, chunk.arguments[:size])
        for start in range(size, len(chunk.arguments), size):
            yield ToolCallChunk(chunk.index, arguments=chunk.arguments[start : start + size])
    else:
        yield chunk
