"""A realtime model of OpenAI, over the websocket of its official SDK.

One open conversation with OpenAI.
"""

import asyncio
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import suppress
from logging import getLogger
from typing import TYPE_CHECKING, Any

from ...errors import AuthenticationError, ModelConnectionError
from ...models.provider_errors import cut_short
from ...models.sdk_clients import PerEventLoop, require_extra
from ..protocol import Command, ConfigureSession, ProviderErrorReceived, SessionConfigured, SessionReady, Signal
from ..settings import SessionConfig
from .decoding import OpenAIEventDecoder, closed, complaint, not_opened
from .encoding import VOICES, OpenAICommandEncoder, check_settings

if TYPE_CHECKING:
    from openai import AsyncOpenAI
    from openai.resources.realtime.realtime import AsyncRealtimeConnection
    from websockets.exceptions import ConnectionClosed

_log = getLogger(__name__)
_FIRST = "baton_first_settings"
_LONGEST_CLOSING = 3.0


class OpenAIRealtimeConnection:
    """A websocket of the SDK. Its own reconnection is not used: who is reconnected has lost its conversation."""

    def __init__(self, model: str, websocket: "AsyncRealtimeConnection") -> None:
        self._model = model
        self._websocket = websocket
        self._sender = OpenAICommandEncoder(model)
        self._reader = OpenAIEventDecoder(model, self._sender)
        self._early: list[Signal] = []
        self._is_closed = False
        # Looked up once: `websockets` finds its names anew each time, and this one is wanted for every piece of audio.
        self._cut = _closing_error()

    async def open(self, settings: SessionConfig) -> None:
        """Wait until the session is there, and is what it is told to be. Raises a ModelError if it cannot be."""
        while not isinstance(await self._first_signal(), SessionReady):
            pass
        # If it is closed already, reading tells why, and sending does not.
        with suppress(ModelConnectionError):
            await self.send(ConfigureSession(settings, id=_FIRST))
        while not isinstance(await self._first_signal(), SessionConfigured):
            pass

    async def send(self, command: Command) -> None:
        """Send one command."""
        if self._is_closed:
            raise ModelConnectionError(f"the connection to `{self._model}` is closed", model=self._model)
        try:
            # All are written before the first is sent: what cannot be sent as a whole is not sent in part.
            for frame in list(self._sender.frames(command)):
                await self._websocket.send_raw(frame)
        except self._cut as error:
            raise cut_short(self._model, has_begun=True, because=error) from error

    async def __aiter__(self) -> AsyncIterator[Signal]:
        while self._early:
            yield self._early.pop(0)
        while True:
            try:
                signal = await self._next()
            except EOFError:
                return
            if signal is not None:
                yield signal

    async def close(self) -> None:
        """Close it. A provider that does not even read is not waited for: the websocket's keep-alive ends that."""
        self._is_closed = True
        try:
            async with asyncio.timeout(_LONGEST_CLOSING):
                await self._websocket.close()
        except TimeoutError:
            _log.info("`%s` did not take its leave within %g s", self._model, _LONGEST_CLOSING)

    async def _first_signal(self) -> Signal | None:
        try:
            signal = await self._next()
        except EOFError:
            raise cut_short(self._model, has_begun=False) from None
        if isinstance(signal, ProviderErrorReceived):
            raise complaint(self._model, signal)
        if signal is not None and not isinstance(signal, SessionConfigured):
            self._early.append(signal)
        return signal

    async def _next(self) -> Signal | None:
        """What the next event says. EOFError if there is none because the connection was closed in good order."""
        try:
            raw = await self._websocket.recv_bytes()
        except self._cut as error:
            failure = None if self._is_closed else closed(self._model, error)
            if failure is None:
                raise EOFError from None
            raise failure from error
        return self._reader.signal(raw)


def _closing_error() -> "type[ConnectionClosed]":
    from websockets.exceptions import ConnectionClosed

    return ConnectionClosed


async def opened(
    model: str, websocket: "AsyncRealtimeConnection", settings: SessionConfig, *, within: float
) -> OpenAIRealtimeConnection:
    """The conversation on this websocket, once it is set up. If that fails, the websocket is closed."""
    connection = OpenAIRealtimeConnection(model, websocket)
    try:
        async with asyncio.timeout(within):
            await connection.open(settings)
    except BaseException:
        await connection.close()
        raise
    return connection


_SECONDS_TO_CLOSE = 2.0
_MOST_WAITING = 16_384
"""How many events may wait to be read. Not few: who tells a long history reads only afterwards, and while nothing is
read, the provider reads nothing either."""


class OpenAIRealtimeModel:
    """A model of OpenAI's Realtime API, such as `gpt-realtime`.

    The key is `api_key`, or else OPENAI_API_KEY. `base_url` may begin with http(s) or ws(s). With `client`, an
    AsyncOpenAI or AsyncAzureOpenAI, that one is used; closing it is up to you. `voices` are those that it can speak
    with; `timeout` is how long it may take to open a conversation.
    """

    def __init__(
        self,
        model: str = "gpt-realtime",
        *,
        api_key: str | None = None,
        base_url: str | None = None,
        client: "AsyncOpenAI | None" = None,
        headers: Mapping[str, str] | None = None,
        query: Mapping[str, str] | None = None,
        voices: Collection[str] = VOICES,
        timeout: float = 10.0,
    ) -> None:
        self.model = model
        require_extra(
            "openai", "websockets", model=self.name, what="the SDK of OpenAI and websockets", extra="realtime"
        )
        self._api_key = api_key
        self._base_url = _as_http(base_url)
        self._headers = dict(headers or {})
        self._query = dict(query or {})
        self._voices = voices
        self._timeout = timeout
        self._given = client
        self._clients = PerEventLoop(self._made, _closed)

    @property
    def name(self) -> str:
        """`openai:` and the model's name."""
        return f"openai:{self.model}"

    def check(self, settings: SessionConfig) -> None:
        """Raise SetupError if OpenAI would not take these settings."""
        check_settings(settings, self.name, self._voices)

    async def connect(self, settings: SessionConfig) -> OpenAIRealtimeConnection:
        """Open a conversation under these settings."""
        try:
            websocket = await self._websocket()
            return await opened(self.name, websocket, settings, within=self._timeout)
        except TimeoutError as error:
            raise not_opened(self.name, error, self._timeout) from error

    async def aclose(self) -> None:
        """Close what is kept for this event loop; conversations stay open, and it closes by itself with the loop."""
        await self._clients.close()

    async def _websocket(self) -> "AsyncRealtimeConnection":
        from openai import OpenAIError
        from websockets.exceptions import WebSocketException

        options: Any = {"close_timeout": _SECONDS_TO_CLOSE, "max_queue": _MOST_WAITING}
        try:
            async with asyncio.timeout(self._timeout):
                client = self._given or await self._clients.get()
                return await client.realtime.connect(
                    model=self.model,
                    extra_headers=self._headers,
                    extra_query=dict(self._query),
                    websocket_connection_options=options,
                ).enter()
        except OpenAIError as error:
            advice = "set OPENAI_API_KEY, or give OpenAIRealtimeModel(…, api_key=…)"
            raise AuthenticationError(f"`{self.name}` needs a key: {advice} ({error})", model=self.name) from error
        except (WebSocketException, OSError) as error:
            raise not_opened(self.name, error, self._timeout) from error

    def _made(self) -> "AsyncOpenAI":
        from openai import AsyncOpenAI

        return AsyncOpenAI(api_key=self._api_key, base_url=self._base_url, max_retries=0)


def _as_http(base_url: str | None) -> str | None:
    """The address as the SDK wants it: it makes a websocket's of it by itself."""
    for websocket, http in (("ws://", "http://"), ("wss://", "https://")):
        if base_url is not None and base_url.startswith(websocket):
            return http + base_url.removeprefix(websocket)
    return base_url


async def _closed(client: "AsyncOpenAI") -> None:
    await client.close()
