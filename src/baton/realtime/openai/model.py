"""Models of OpenAI's Realtime API, and their connections."""

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
from .decoding import OpenAIEventDecoder, close_error, connect_error, open_error
from .encoding import VOICES, OpenAICommandEncoder, check_settings

if TYPE_CHECKING:
    from openai import AsyncOpenAI
    from openai.resources.realtime.realtime import AsyncRealtimeConnection
    from websockets.exceptions import ConnectionClosed

_log = getLogger(__name__)
_FIRST = "baton_first_settings"
_MAX_CLOSE_SECONDS = 3.0


class OpenAIRealtimeConnection:
    """A session over the SDK's websocket.

    The SDK's own reconnection is not used, because it loses the conversation.
    """

    def __init__(self, model: str, websocket: "AsyncRealtimeConnection") -> None:
        self._model = model
        self._websocket = websocket
        self._encoder = OpenAICommandEncoder(model)
        self._decoder = OpenAIEventDecoder(model, self._encoder)
        self._early: list[Signal] = []
        self._is_closed = False
        # Looked up once: `websockets` resolves its names at each access, and every chunk of audio needs this one.
        self._closed_error = _closed_error()

    async def open(self, settings: SessionConfig) -> None:
        """Wait until the session is open and configured. Raises ModelError if that fails."""
        while not isinstance(await self._first_signal(), SessionReady):
            pass
        # If it is closed already, the reason comes from reading, not from sending.
        with suppress(ModelConnectionError):
            await self.send(ConfigureSession(settings, id=_FIRST))
        while not isinstance(await self._first_signal(), SessionConfigured):
            pass

    async def send(self, command: Command) -> None:
        """Send one command.

        Args:
            command: The command.

        Raises:
            ModelConnectionError: The connection is closed.
        """
        if self._is_closed:
            raise ModelConnectionError(f"the connection to `{self._model}` is closed", model=self._model)
        try:
            # All are encoded before the first is sent, so that an invalid command is not sent in part.
            for frame in list(self._encoder.frames(command)):
                await self._websocket.send_raw(frame)
        except self._closed_error as error:
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
        """Close the connection; a provider that does not respond is given a few seconds."""
        self._is_closed = True
        try:
            async with asyncio.timeout(_MAX_CLOSE_SECONDS):
                await self._websocket.close()
        except TimeoutError:
            _log.info("`%s` did not close the websocket within %g s", self._model, _MAX_CLOSE_SECONDS)

    async def _first_signal(self) -> Signal | None:
        try:
            signal = await self._next()
        except EOFError:
            raise cut_short(self._model, has_begun=False) from None
        if isinstance(signal, ProviderErrorReceived):
            raise open_error(self._model, signal)
        if signal is not None and not isinstance(signal, SessionConfigured):
            self._early.append(signal)
        return signal

    async def _next(self) -> Signal | None:
        """Decode the next event. Raises EOFError if the connection was closed normally."""
        try:
            raw = await self._websocket.recv_bytes()
        except self._closed_error as error:
            failure = None if self._is_closed else close_error(self._model, error)
            if failure is None:
                raise EOFError from None
            raise failure from error
        return self._decoder.decode(raw)


def _closed_error() -> "type[ConnectionClosed]":
    from websockets.exceptions import ConnectionClosed

    return ConnectionClosed


async def open_connection(
    model: str, websocket: "AsyncRealtimeConnection", settings: SessionConfig, *, within: float
) -> OpenAIRealtimeConnection:
    """Open and configure a session on a websocket, which is closed if that fails.

    Args:
        model: Name of the model, for errors.
        websocket: The websocket.
        settings: The initial configuration.
        within: Timeout in seconds.
    """
    connection = OpenAIRealtimeConnection(model, websocket)
    try:
        async with asyncio.timeout(within):
            await connection.open(settings)
    except BaseException:
        await connection.close()
        raise
    return connection


_CLOSE_TIMEOUT = 2.0
_MAX_QUEUE = 16_384
"""Maximum of unread events. Large, because a long history is sent without reading, and a full queue blocks both."""


class OpenAIRealtimeModel:
    """A model of OpenAI's Realtime API, such as `gpt-realtime`."""

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
        """Create a model; nothing is connected yet.

        Args:
            model: Name of the model.
            api_key: The API key; by default, that of OPENAI_API_KEY.
            base_url: Address of the API, starting with http(s) or ws(s).
            client: An AsyncOpenAI or AsyncAzureOpenAI to use instead; you close it.
            headers: Additional headers of the handshake.
            query: Additional query parameters of the handshake.
            voices: Names of the voices it can speak with.
            timeout: Seconds that opening a session may take.
        """
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
        self._client = client
        self._clients = PerEventLoop(self._new_client, _close_client)

    @property
    def name(self) -> str:
        """The name of the model after `openai:`."""
        return f"openai:{self.model}"

    def check(self, settings: SessionConfig) -> None:
        """Validate a configuration.

        Args:
            settings: The configuration.

        Raises:
            SetupError: OpenAI would reject it.
        """
        check_settings(settings, self.name, self._voices)

    async def connect(self, settings: SessionConfig) -> OpenAIRealtimeConnection:
        """Open a session.

        Args:
            settings: The initial configuration.

        Raises:
            ModelError: The session could not be opened.
        """
        try:
            websocket = await self._websocket()
            return await open_connection(self.name, websocket, settings, within=self._timeout)
        except TimeoutError as error:
            raise connect_error(self.name, error, self._timeout) from error

    async def aclose(self) -> None:
        """Close the SDK client of this event loop; open sessions are not affected."""
        await self._clients.close()

    async def _websocket(self) -> "AsyncRealtimeConnection":
        from openai import OpenAIError
        from websockets.exceptions import WebSocketException

        options: Any = {"close_timeout": _CLOSE_TIMEOUT, "max_queue": _MAX_QUEUE}
        try:
            async with asyncio.timeout(self._timeout):
                client = self._client or await self._clients.get()
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
            raise connect_error(self.name, error, self._timeout) from error

    def _new_client(self) -> "AsyncOpenAI":
        from openai import AsyncOpenAI

        return AsyncOpenAI(api_key=self._api_key, base_url=self._base_url, max_retries=0)


def _as_http(base_url: str | None) -> str | None:
    """Convert a websocket address to http, which is what the SDK expects."""
    for websocket, http in (("ws://", "http://"), ("wss://", "https://")):
        if base_url is not None and base_url.startswith(websocket):
            return http + base_url.removeprefix(websocket)
    return base_url


async def _close_client(client: "AsyncOpenAI") -> None:
    await client.close()
