"""Models of OpenAI's Realtime API, and their connections."""

import asyncio
import re
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import suppress
from logging import getLogger
from typing import TYPE_CHECKING, Any

from ..._checks import check_arguments
from ...errors import AuthenticationError, ModelConnectionError
from ...models.provider_errors import cut_short, redirected
from ...models.sdk_clients import SDKModel, load_modules
from ..protocol import Command, ConfigureSession, ProviderErrorReceived, SessionConfigured, SessionReady, Signal
from ..voice_settings import SessionConfig
from .client_events import VOICES, OpenAICommandEncoder, check_settings
from .server_events import OpenAIEventDecoder, close_error, connect_error, open_error

if TYPE_CHECKING:
    from openai import AsyncOpenAI
    from openai.resources.realtime.realtime import AsyncRealtimeConnection
    from websockets.asyncio.client import ClientConnection

_log = getLogger("baton.realtime")
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
        from websockets.exceptions import ConnectionClosed

        # Looked up once: `websockets` resolves its names at each access, and every chunk of audio needs this one.
        self._closed_error = ConnectionClosed

    async def open(self, settings: SessionConfig) -> None:
        """Wait until the session is open and configured. Raises ModelError if that fails."""
        early: list[Signal] = []
        async for signal in self:
            if isinstance(signal, ProviderErrorReceived):
                raise open_error(self._model, signal)
            if isinstance(signal, SessionConfigured):
                break
            early.append(signal)
            if isinstance(signal, SessionReady):
                # If it is closed already, the reason comes from reading, not from sending.
                with suppress(ModelConnectionError):
                    await self.send(ConfigureSession(settings, id=_FIRST))
        else:
            raise cut_short(self._model, has_begun=False)
        self._early = early

    async def send(self, command: Command) -> None:
        """Send one command.

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
                raw = await self._websocket.recv_bytes()
            except self._closed_error as error:
                failure = None if self._is_closed else close_error(self._model, error)
                if failure is None:
                    return
                raise failure from error
            signal = self._decoder.decode(raw)
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


_CLOSE_TIMEOUT = 2.0
_MAX_QUEUE = 16_384
"""Maximum of unread events. Large, because a long history is sent without reading, and a full queue blocks both."""


class OpenAIRealtimeModel(SDKModel["AsyncOpenAI"]):
    """A model of OpenAI's Realtime API, such as `gpt-realtime`."""

    provider = "openai"
    sdk_modules = ("openai", "websockets")
    extra = "realtime"

    @check_arguments
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
        super().__init__(model, api_key=api_key, base_url=_as_http(base_url), headers=headers)
        self._query = dict(query or {})
        self._voices = voices
        self._timeout = timeout
        self._client = client

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
        connection = OpenAIRealtimeConnection(self.name, await self._websocket())
        try:
            async with asyncio.timeout(self._timeout):
                await connection.open(settings)
        except BaseException as error:
            await connection.close()
            if isinstance(error, TimeoutError):
                raise connect_error(self.name, error, self._timeout) from error
            raise
        return connection

    async def _websocket(self) -> "AsyncRealtimeConnection":
        await load_modules("openai.resources.realtime.realtime", "websockets.asyncio.client")
        from openai import OpenAIError
        from websockets.exceptions import WebSocketException

        options: Any = {
            "close_timeout": _CLOSE_TIMEOUT,
            "max_queue": _MAX_QUEUE,
            "create_connection": _connection_without_redirects(self.name),
        }
        try:
            client = self._client or await self._clients.get()
            # A client may load this part of itself now, which is not the provider's time.
            realtime = client.realtime
            async with asyncio.timeout(self._timeout):
                return await realtime.connect(
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

    def _make_client(self) -> "AsyncOpenAI":
        from openai import AsyncOpenAI

        return AsyncOpenAI(api_key=self._api_key, base_url=self._base_url, max_retries=0)


def _connection_without_redirects(model: str) -> "type[ClientConnection]":
    """Return a websocket whose handshake raises ModelConnectionError for a redirect."""
    from websockets.asyncio.client import ClientConnection
    from websockets.exceptions import InvalidStatus

    class Connection(ClientConnection):
        async def handshake(self, *args: Any, **kwargs: Any) -> None:
            try:
                await super().handshake(*args, **kwargs)
            except InvalidStatus as error:
                # `websockets` would follow it, and send Azure's `api-key` and other headers along.
                if 300 <= error.response.status_code < 400:
                    raise redirected(model, error.response.status_code, error.response.headers) from error
                raise

    return Connection


def _as_http(base_url: str | None) -> str | None:
    """Convert a websocket address to http, which is what the SDK expects."""
    return None if base_url is None else re.sub(r"^ws(s?)://", r"http\1://", base_url)
