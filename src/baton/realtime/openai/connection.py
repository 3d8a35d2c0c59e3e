"""One open conversation with OpenAI."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from logging import getLogger
from typing import TYPE_CHECKING

from ...errors import ModelConnectionError
from ...models.failures import cut_short
from ..commands import Command, ConfigureSession
from ..settings import SessionConfig
from ..signals import ProviderErrorReceived, SessionConfigured, SessionReady, Signal
from .failures import closed, complaint
from .reading import OpenAIEventDecoder
from .sending import OpenAICommandEncoder

if TYPE_CHECKING:
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
