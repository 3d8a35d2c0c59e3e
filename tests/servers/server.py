"""The base of all provider servers: a local socket, scripted responses and faults, and a record of requests."""

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
from tests.waiting import PATIENCE

from batonkit.errors import (
    ContextTooLongError,
    EmptyResponseError,
    MalformedResponseError,
    ModelConnectionError,
    ModelError,
    ModelNotFoundError,
    ModelTimeoutError,
    SetupError,
)
from batonkit.messages import AssistantMessage, Usage
from batonkit.models import Chunk, ModelRequest, ModelResponse, ToolCallChunk, assemble_response
from batonkit.testing.scripted import ScriptedModel, ScriptStep, operations

_MAX_BODY = 64 * 1024 * 1024


class LoopbackServer(ABC):
    """A server that listens on a free local port while it is entered."""

    stops_with_its_client = True
    """True if a handler is cancelled when its client disconnects."""

    def __init__(self) -> None:
        self.is_closing = False
        """True during the shutdown, which disconnects the clients."""
        self._port = 0
        self._site: asyncio.Server | None = None
        self._web: web.Server | None = None

    @abstractmethod
    async def handle(self, http: web.BaseRequest) -> web.StreamResponse:
        """Handle one request."""

    @property
    def origin(self) -> str:
        """Return scheme, host and port."""
        if not self._port:
            raise SetupError(f"{type(self).__name__} has no address yet; enter it first: async with server: …")
        return f"http://127.0.0.1:{self._port}"

    async def __aenter__(self) -> Self:
        if self._site is not None:
            raise SetupError(f"{type(self).__name__} was entered before; make one for each `async with`")
        loop = asyncio.get_running_loop()

        def make_request(message: Any, payload: Any, protocol: Any, writer: Any, task: Any) -> web.BaseRequest:
            return web.BaseRequest(message, payload, protocol, writer, task, loop, client_max_size=_MAX_BODY)

        stops = self.stops_with_its_client
        self._web = web.Server(self.handle, request_factory=make_request, handler_cancellation=stops, access_log=None)
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
            # This cancels running handlers, as if their clients had disconnected.
            connection.force_close()
        await self._web.shutdown(1.0)


_log = getLogger(__name__)

JSON = "application/json"
REFUSAL = "refusal"
"""The stop reason of a scripted refusal."""
_MIN_DELTA = 8
_MAX_DELTAS = 16
_CHARACTERS_PER_TOKEN = 4


class ScriptedExchange:
    """A request and its response."""

    def __init__(
        self,
        http: web.BaseRequest,
        endpoint: APIEndpoint,
        *,
        received: ReceivedRequest,
        valid: ValidRequest,
        delay: float,
    ) -> None:
        self._http = http
        self._endpoint = endpoint
        self._received = received
        self._valid = valid
        self._delay = delay
        self._sent_chunks: list[Chunk] = []
        self._stream: AnswerStream | None = None
        self._first_bytes = b""
        self._response: web.StreamResponse | None = None

    async def answer(self, chunks: AsyncIterator[Chunk]) -> web.StreamResponse:
        """Send these chunks. Errors before the first byte are raised, so that the provider can encode them."""
        try:
            if self._valid.streams:
                return await self._send_streamed(chunks)
            self._sent_chunks = [chunk async for chunk in chunks]
            return self._send_unstreamed()
        except ConnectionError:
            raise
        except ModelError as error:
            return await self._send_error(error)
        except Exception as error:  # noqa: BLE001 - a step that raises becomes a status, or the client would wait
            _log.exception("a step failed")
            return await self._send_error(ModelError(f"{type(error).__name__}: {error}"))

    def _send_unstreamed(self) -> web.StreamResponse:
        return web.Response(body=self._endpoint.whole(self._valid, self._assembled()), content_type=JSON)

    async def _send_streamed(self, chunks: AsyncIterator[Chunk]) -> web.StreamResponse:
        async for chunk in chunks:
            if type(chunk) is ModelResponse and (chunk.message is None or self._sent_chunks):
                self._sent_chunks.append(chunk)
                continue
            if type(chunk) is ModelResponse and chunk.stop_reason == REFUSAL:
                self._start_stream().is_refusal = True
            for piece in pieces_of(chunk):
                if type(piece) is not ModelResponse:
                    await self._write(self._start_stream().chunk(piece))
                self._sent_chunks.append(piece)
        return await self._end_stream()

    async def _end_stream(self) -> web.StreamResponse:
        await self._write(self._start_stream().end(self._assembled()))
        return await self._close_stream()

    async def _send_error(self, error: ModelError) -> web.StreamResponse:
        match error:
            case ModelConnectionError():
                return self._disconnect()
            case ModelTimeoutError():
                # Nothing more is sent until the client's timeout cancels this handler.
                await asyncio.get_running_loop().create_future()
            case MalformedResponseError():
                if not self._valid.streams:
                    return web.Response(body=str(error).encode(), content_type=JSON)
                await self._write(self._start_stream().garbage(str(error)))
            case EmptyResponseError():
                return await self._end_stream() if self._valid.streams else self._send_unstreamed()
            case _ if self._stream is None:
                raise error
            case _:
                await self._write(self._start_stream().failed(error))
        return await self._close_stream()

    def _start_stream(self) -> AnswerStream:
        if self._stream is None:
            self._stream = self._endpoint.stream(self._valid)
            # Before the first chunk is encoded, because some formats number their events.
            self._first_bytes = self._stream.begin()
        return self._stream

    async def _write(self, data: bytes) -> None:
        if self._response is None:
            headers = {"content-type": self._endpoint.stream_type, "cache-control": "no-cache"}
            self._response = web.StreamResponse(headers=headers)
            await self._response.prepare(self._http)
            data = self._first_bytes + data
        elif self._delay:
            await asyncio.sleep(self._delay)
        if data:
            await self._response.write(data)

    async def _close_stream(self) -> web.StreamResponse:
        assert self._response is not None
        await self._response.write_eof()
        return self._response

    def _disconnect(self) -> web.StreamResponse:
        self._received.is_cut = True
        if self._http.transport is not None:
            # Written data is still sent, but not the end of the body, which would make it look complete.
            self._http.transport.close()
        return self._response or web.Response()

    def _assembled(self) -> ModelResponse:
        whole = assemble_response(self._sent_chunks)
        usage = whole.usage
        if usage is None:
            message = whole.message or AssistantMessage()
            length = len(str(message.content)) + sum(
                len(call.name) + len(call.arguments) for call in message.tool_calls
            )
            usage = Usage(self._received.tokens, length // _CHARACTERS_PER_TOKEN + 1)
        return replace(whole, usage=usage, message=whole.message or AssistantMessage())


def pieces_of(chunk: Chunk) -> Iterator[Chunk]:
    """Split a chunk like a provider: a response into words, the arguments of a call into several deltas."""
    if type(chunk) is ModelResponse:
        for operation in operations(chunk, "", in_words=True):
            if not isinstance(operation, asyncio.Event | BaseException | ModelResponse):
                yield from pieces_of(operation)
        yield chunk
    elif type(chunk) is ToolCallChunk and len(chunk.arguments) > _MIN_DELTA:
        size = max(_MIN_DELTA, len(chunk.arguments) // _MAX_DELTAS + 1)
        yield ToolCallChunk(chunk.index, chunk.id, chunk.name, chunk.arguments[:size])
        for start in range(size, len(chunk.arguments), size):
            yield ToolCallChunk(chunk.index, arguments=chunk.arguments[start : start + size])
    else:
        yield chunk


_Steps: TypeAlias = Iterable[ScriptStep] | Mapping[str, Iterable[ScriptStep]]
_Chunks: TypeAlias = AsyncGenerator[Chunk, None]


class ServerOptions(TypedDict, total=False):
    """The options of all servers."""

    by: Callable[[ReceivedRequest], str] | None
    models: Collection[str] | None
    api_key: str
    cycle: bool
    context_window: int | None
    delay: float
    record: bool


class ProviderServer(LoopbackServer):
    """A local provider: enter it with `async with`, and give a client its `base_url` and `api_key`.

    Steps are those of a ScriptedModel: a list, or a mapping with a list per model name; `by`, a function of the
    request, selects another key of the mapping. `models` are the known names; by default those of the mapping, or any.
    A request of more than about `context_window` tokens is too long. `delay` is the time between two chunks.
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
        """The model with the script."""
        self.models: Collection[str] | None = models if models is not None or by is not None else keys or None
        self.api_key = api_key
        self.context_window = context_window
        self.requests: list[ReceivedRequest] = []
        """All requests in order, including rejected ones."""
        self.closed: list[ReceivedRequest] = []
        """The requests whose clients disconnected before the end of the response, in order of disconnection."""
        self._key_of: Callable[[ReceivedRequest], str] = by or (_model_of if keys else _no_key)
        self._delay = delay
        self._record = record
        self._client_disconnected = asyncio.Event()
        self._reported_disconnects = 0

    @abstractmethod
    def route(self, received: ReceivedRequest) -> APIEndpoint | bytes:
        """Return the endpoint of a request, or the JSON to respond with; raise a rejection if there is none."""

    @abstractmethod
    def refused(self, error: ModelError, received: ReceivedRequest) -> RequestRejectedError:
        """Create the provider's rejection for an error before the response has started."""

    @property
    @abstractmethod
    def base_url(self) -> str:
        """Return the base URL for clients."""

    @property
    def understood(self) -> list[ModelRequest]:
        """Return the valid requests in Baton's types."""
        return [received.request for received in self.requests if received.valid is not None]

    @property
    def rejected(self) -> list[ReceivedRequest]:
        """Return the rejected requests."""
        return [received for received in self.requests if received.rejection is not None]

    @property
    def remaining(self) -> int:
        """Return the number of unused steps."""
        return self.script.remaining

    def assert_done(self) -> None:
        """Raise an AssertionError that lists the unused steps, if there are any."""
        self.script.assert_done()

    async def client_left(self, within: float = PATIENCE) -> ReceivedRequest:
        """Wait for the next client that disconnects during a response; raise an AssertionError on timeout."""
        try:
            async with asyncio.timeout(within):
                while len(self.closed) <= self._reported_disconnects:
                    self._client_disconnected.clear()
                    await self._client_disconnected.wait()
        except TimeoutError:
            server_name = type(self).__name__
            raise AssertionError(f"no client closed its connection to {server_name} within {within:g} s") from None
        self._reported_disconnects += 1
        return self.closed[self._reported_disconnects - 1]

    async def handle(self, http: web.BaseRequest) -> web.StreamResponse:
        """Handle one request."""
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
                self._client_disconnected.set()
            raise

    async def _respond(self, http: web.BaseRequest, received: ReceivedRequest) -> web.StreamResponse:
        endpoint = self.route(received)
        if isinstance(endpoint, bytes):
            return web.Response(body=endpoint, content_type=JSON)
        valid = received.valid = endpoint.read(received)
        try:
            self._check_limits(valid, received)
            request = replace(valid.request, agent=self._key_of(received))
            async with aclosing(cast("_Chunks", self.script.respond(request))) as chunks:
                return await ScriptedExchange(http, endpoint, received=received, valid=valid, delay=self._delay).answer(
                    chunks
                )
        except ModelError as error:
            raise self.refused(error, received) from error

    def _check_limits(self, valid: ValidRequest, received: ReceivedRequest) -> None:
        if self.models is not None and valid.model not in self.models:
            raise ModelNotFoundError(f"The model `{valid.model}` does not exist or you do not have access to it.")
        window = self.context_window
        if window is not None and received.tokens > window:
            raise ContextTooLongError(
                f"This model's maximum context length is {window} tokens. However, your messages resulted in "
                f"{received.tokens} tokens. Please reduce the length of the messages."
            )


def _model_of(received: ReceivedRequest) -> str:
    return received.model


def _no_key(received: ReceivedRequest) -> str:
    return ""
