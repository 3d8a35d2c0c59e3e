"""The part of a server that all providers share: a socket, a script, and a record of who asked what and who left.

A socket of this machine that a server has for as long as it is entered.

One answer on its way to a client: whole or in pieces, and what goes wrong with it on purpose.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection, Iterable, Iterator, Mapping
from contextlib import aclosing
from logging import getLogger
from types import TracebackType
from typing import Any, Self, TypeAlias, TypedDict, cast

from aiohttp import web
from msgspec.structs import replace
from tests.servers.base import AnswerStream, APIEndpoint, ReceivedRequest, RequestRejectedError, ValidRequest

from baton.errors import (
    ContextTooLongError,
    EmptyResponseError,
    MalformedResponseError,
    ModelConnectionError,
    ModelError,
    ModelNotFoundError,
    ModelTimeoutError,
    SetupError,
)
from baton.messages import AssistantMessage, Usage
from baton.models import Chunk, ModelRequest, ModelResponse, ToolCallChunk, assemble_response
from baton.testing.scripted import ScriptedModel, ScriptStep, operations

_MOST_BYTES = 64 * 1024 * 1024


class LoopbackServer(ABC):
    """Listens on a free port while it is entered."""

    stops_with_its_client = True
    """Whether whoever answers a request is cancelled as soon as its connection is gone."""

    def __init__(self) -> None:
        self.is_closing = False
        """Whether it is about to shut down: who leaves now does so because of that."""
        self._port = 0
        self._site: asyncio.Server | None = None
        self._web: web.Server | None = None

    @abstractmethod
    async def handle(self, http: web.BaseRequest) -> web.StreamResponse:
        """Answer one request."""

    @property
    def origin(self) -> str:
        """Scheme, host and port."""
        if not self._port:
            raise SetupError(f"{type(self).__name__} has no address yet; enter it first: async with server: …")
        return f"http://127.0.0.1:{self._port}"

    async def __aenter__(self) -> Self:
        if self._site is not None:
            raise SetupError(f"{type(self).__name__} was entered before; make one for each `async with`")
        loop = asyncio.get_running_loop()

        def large(message: Any, payload: Any, protocol: Any, writer: Any, task: Any) -> web.BaseRequest:
            return web.BaseRequest(message, payload, protocol, writer, task, loop, client_max_size=_MOST_BYTES)

        stops = self.stops_with_its_client
        self._web = web.Server(self.handle, request_factory=large, handler_cancellation=stops, access_log=None)
        self._site = await loop.create_server(self._web, "127.0.0.1", 0, backlog=1024)
        self._port = self._site.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._site is None or self._web is None:
            return
        self.is_closing = True
        self._site.close()
        for connection in self._web.connections:
            # Whoever is still answering is stopped by this, as if its client had gone.
            connection.force_close()
        await self._web.shutdown(1.0)


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
        for operation in operations(chunk, "", in_words=True):
            if not isinstance(operation, asyncio.Event | BaseException | ModelResponse):
                yield from pieces_of(operation)
        yield chunk
    elif type(chunk) is ToolCallChunk and len(chunk.arguments) > _SHORTEST_DELTA:
        size = max(_SHORTEST_DELTA, len(chunk.arguments) // _MOST_DELTAS + 1)
        yield ToolCallChunk(chunk.index, chunk.id, chunk.name, chunk.arguments[:size])
        for start in range(size, len(chunk.arguments), size):
            yield ToolCallChunk(chunk.index, arguments=chunk.arguments[start : start + size])
    else:
        yield chunk


_Steps: TypeAlias = Iterable[ScriptStep] | Mapping[str, Iterable[ScriptStep]]
_Chunks: TypeAlias = AsyncGenerator[Chunk, None]


class ServerOptions(TypedDict, total=False):
    """What every server can be given beside its steps."""

    by: Callable[[ReceivedRequest], str] | None
    models: Collection[str] | None
    api_key: str
    cycle: bool
    context_window: int | None
    delay: float
    record: bool


class ProviderServer(LoopbackServer):
    """A provider on this machine: enter it with `async with`, and give a client its `base_url` and `api_key`.

    Steps are those of a ScriptedModel: a list, or a mapping with a list for each model name; `by`, a function of the
    request, chooses another key of the mapping. `models` are the names it knows; by default those of the mapping, or
    any. A request of more than about `context_window` tokens is too long. `delay` is the time between two pieces.
    """

    def __init__(
        self,
        steps: Iterable[ScriptStep] | Mapping[str, Iterable[ScriptStep]],
        *,
        by: Callable[[ReceivedRequest], str] | None = None,
        models: Collection[str] | None = None,
        api_key: str = "test-key",
        cycle: bool = False,
        context_window: int | None = None,
        delay: float = 0.0,
        record: bool = True,
    ) -> None:
        super().__init__()
        keys = tuple(cast("Mapping[str, object]", steps)) if isinstance(steps, Mapping) else ()
        self.script = ScriptedModel(cast("_Steps", steps), name=type(self).__name__, cycle=cycle, record=False)
        """The model behind it."""
        self.models: Collection[str] | None = models if models is not None or by is not None else keys or None
        self.api_key = api_key
        self.context_window = context_window
        self.requests: list[ReceivedRequest] = []
        """Every request, in order, also those that were refused."""
        self.closed: list[ReceivedRequest] = []
        """The requests whose clients went away before the answer was all there, in the order in which they went."""
        self._key_of: Callable[[ReceivedRequest], str] = by or (_its_model if keys else _nobody)
        self._delay = delay
        self._record = record
        self._somebody_left = asyncio.Event()
        self._departures_told = 0

    @abstractmethod
    def route(self, received: ReceivedRequest) -> APIEndpoint | bytes:
        """The address a request is for, or the JSON it gets at once; a Rejection without a key or such an address."""

    @abstractmethod
    def refused(self, error: ModelError, received: ReceivedRequest) -> RequestRejectedError:
        """How the provider says this before an answer has begun."""

    @property
    @abstractmethod
    def base_url(self) -> str:
        """What a client of this provider is given as its base url."""

    @property
    def understood(self) -> list[ModelRequest]:
        """What the requests that were in order say to a model, in Baton's own words."""
        return [received.request for received in self.requests if received.asked is not None]

    @property
    def rejected(self) -> list[ReceivedRequest]:
        """The requests that were refused."""
        return [received for received in self.requests if received.rejection is not None]

    @property
    def remaining(self) -> int:
        """How many steps have not been played yet."""
        return self.script.remaining

    def assert_done(self) -> None:
        """Fail if there are steps that were never played, and say which."""
        self.script.assert_done()

    async def client_left(self, within: float = 1.0) -> ReceivedRequest:
        """Wait for the next client that goes away in the middle of an answer; AssertionError if none does in time."""
        try:
            async with asyncio.timeout(within):
                while len(self.closed) <= self._departures_told:
                    self._somebody_left.clear()
                    await self._somebody_left.wait()
        except TimeoutError:
            who = type(self).__name__
            raise AssertionError(f"no client closed its connection to {who} within {within:g} s") from None
        self._departures_told += 1
        return self.closed[self._departures_told - 1]

    async def handle(self, http: web.BaseRequest) -> web.StreamResponse:
        """Answer one request."""
        raw = await http.read()
        received = ReceivedRequest(http.method, http.path, query=http.query, headers=http.headers, raw=raw)
        if self._record:
            self.requests.append(received)
        try:
            return await self._respond(http, received)
        except RequestRejectedError as rejection:
            received.rejection = rejection
            headers = {"content-type": JSON, **rejection.headers}
            return web.Response(status=rejection.status, body=rejection.body, headers=headers)
        except (asyncio.CancelledError, ConnectionError):
            if not (received.is_cut or self.is_closing):
                received.has_left = True
                self.closed.append(received)
                self._somebody_left.set()
            raise

    async def _respond(self, http: web.BaseRequest, received: ReceivedRequest) -> web.StreamResponse:
        endpoint = self.route(received)
        if isinstance(endpoint, bytes):
            return web.Response(body=endpoint, content_type=JSON)
        asked = received.asked = endpoint.read(received)
        try:
            self._admit(asked, received)
            request = replace(asked.request, agent=self._key_of(received))
            async with aclosing(cast("_Chunks", self.script.respond(request))) as chunks:
                return await ScriptedExchange(http, endpoint, received=received, asked=asked, delay=self._delay).answer(
                    chunks
                )
        except ModelError as error:
            raise self.refused(error, received) from error

    def _admit(self, asked: ValidRequest, received: ReceivedRequest) -> None:
        if self.models is not None and asked.model not in self.models:
            raise ModelNotFoundError(f"The model `{asked.model}` does not exist or you do not have access to it.")
        window = self.context_window
        if window is not None and received.tokens > window:
            raise ContextTooLongError(
                f"This model's maximum context length is {window} tokens. However, your messages resulted in "
                f"{received.tokens} tokens. Please reduce the length of the messages."
            )


def _its_model(received: ReceivedRequest) -> str:
    return received.model


def _nobody(received: ReceivedRequest) -> str:
    return ""
