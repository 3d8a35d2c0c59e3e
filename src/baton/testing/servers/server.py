"""The part of a server that all providers share: a socket, a script, and a record of who asked what and who left."""

import asyncio
from abc import abstractmethod
from collections.abc import AsyncGenerator, Callable, Collection, Iterable, Mapping
from contextlib import aclosing
from typing import TypeAlias, TypedDict, cast

from aiohttp import web
from msgspec.structs import replace

from ...errors import ContextTooLongError, ModelError, ModelNotFoundError
from ...models import Chunk, ModelRequest
from ..scripted import ScriptedModel
from ..steps import ScriptStep
from .base import APIEndpoint
from .exchange import JSON, ScriptedExchange
from .loopback import LoopbackServer
from .received import ReceivedRequest, RequestRejectedError, ValidRequest

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
