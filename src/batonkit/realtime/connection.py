"""A connection that sends commands in order, dispatches signals, and reconnects when it is lost."""

import asyncio
import logging
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, field
from time import monotonic
from typing import Any, Protocol, TypeAlias

from msgspec.structs import replace

from ..errors import BatonError, ModelConnectionError, ModelError, ModelRequestError, RunError, SessionLostError
from ..messages import Message, ToolMessage
from . import protocol
from .voice_settings import SessionConfig, SessionOptions

_logger = logging.getLogger("baton.realtime")
_AUDIO_COMMANDS = (protocol.AppendAudio, protocol.CommitAudio, protocol.ClearAudio)
_PROGRESS = (protocol.ResponseEnded, protocol.AudioCommitted)
"""Signals after which the count of reconnect attempts starts again."""
_VOICE_LOCKED = "cannot_update_voice"
_Confirmed: TypeAlias = protocol.AddItem | protocol.ConfigureSession
_MAX_TRIES = 3
_MAX_DELAY = 8.0
_STABLE_SECONDS = 30.0
"""A connection that lasted this long resets the count of reconnect attempts."""


class ConnectionListener(Protocol):
    """Receiver of a connection's signals and state changes."""

    def current_config(self) -> SessionConfig:
        """Return the configuration of the active agent."""
        ...

    def transcript_messages(self) -> Iterable[Message]:
        """Return the conversation so far, to be sent on a new connection."""
        ...

    async def on_signal(self, signal: protocol.Signal) -> None:
        """Handle a signal of the model."""

    async def on_disconnected(self, attempt: int, reason: str) -> None:
        """Handle the loss of the connection, before a reconnect attempt."""

    def on_item_resent(self) -> None:
        """Handle the resending of an item that the provider had rejected."""

    async def on_reconnected(self) -> None:
        """Handle a new connection, after the conversation was sent on it."""

    def on_closed(self, error: BaseException | None) -> None:
        """Handle the end: the provider closed the connection, or it is lost for good."""


@dataclass(eq=False)
class ReconnectingConnection:
    """The model connection of one session. Senders of audio wait while it reconnects.

    A new connection is sent the whole transcript first. An item must therefore be part of the transcript before it is
    sent, and is sent once per connection.
    """

    _model: protocol.RealtimeModel
    _listener: ConnectionListener
    _: KW_ONLY
    name: str
    options: SessionOptions
    is_closed: bool = False
    _connection: protocol.RealtimeConnection | None = None
    _sending: asyncio.Lock = field(default_factory=asyncio.Lock)
    _connected: asyncio.Event = field(default_factory=asyncio.Event)
    _reader: asyncio.Task[None] | None = None
    _sent: set[str] = field(default_factory=set[str])
    """Names of the items sent on this connection: a result's call id, or a transcript key."""
    _initial_history: list[Message] = field(default_factory=list[Message])
    """Messages sent when this connection was opened."""
    _unconfirmed: dict[str, tuple[_Confirmed, int]] = field(default_factory=dict[str, Any])
    """Commands the provider has not confirmed, by id in order, with the number of tries."""
    _count: int = 0
    _attempts: int = 0
    """Reconnects since the last connection that made progress."""
    _connected_at: float = 0.0
    _send_error: ModelConnectionError | None = None
    _failure: BatonError | None = None

    @property
    def is_connected(self) -> bool:
        """True if a connection is open."""
        return self._connected.is_set()

    @property
    def has_unconfirmed_items(self) -> bool:
        """True if the provider has yet to confirm items that were sent."""
        return any(isinstance(command, protocol.AddItem) for command, _ in self._unconfirmed.values())

    async def open(self) -> None:
        """Open the first connection. Raises the model's error if that fails."""
        await self._connect()
        self._reader = asyncio.create_task(self._read(), name=f"baton realtime {self.name}")

    async def send(self, command: protocol.Command) -> bool:
        """Send a command; return whether it was sent.

        While there is no connection, audio commands wait for the next one and all others are dropped.
        """
        is_audio = isinstance(command, _AUDIO_COMMANDS)
        if isinstance(command, protocol.ConfigureSession):
            command = self._track(command)
        while True:
            if not is_audio and not self._connected.is_set():
                return False
            await self._connected.wait()
            async with self._sending:
                if self._is_finished:
                    return False
                if self._connected.is_set() and await self._try_send(command):
                    return True
            if not is_audio:
                return False

    async def send_item(self, message: Message, name: str) -> None:
        """Send a message that is part of the transcript, once per connection."""
        await self._connected.wait()
        async with self._sending:
            if self._is_finished or not self._connected.is_set() or name in self._sent:
                return
            # Marked first: if sending fails, the next connection starts with the whole transcript.
            self._sent.add(name)
            if not any(message is sent for sent in self._initial_history):
                await self._try_send(self._track(protocol.AddItem(message)))

    def was_sent(self, name: str) -> bool:
        """True if an item was sent on this connection, or will be with the transcript on the next."""
        return name in self._sent

    def stop(self) -> None:
        """Send nothing more, and release senders that wait for a connection."""
        self.is_closed = True
        self._connected.set()

    async def close(self) -> None:
        """Stop sending and close the connection."""
        self.stop()
        reader = self._reader
        if reader is not None and reader is not asyncio.current_task():
            reader.cancel()
            await asyncio.wait([reader])
        # Without the lock: this releases a sender that is blocked because the provider does not read.
        await self._close_connection()

    @property
    def _is_finished(self) -> bool:
        return self.is_closed or self._failure is not None

    async def _try_send(self, command: protocol.Command) -> bool:
        connection = self._connection
        if connection is None:
            return False
        try:
            await connection.send(command)
        except ModelConnectionError as error:
            # The reader notices the closed connection and reconnects.
            self._send_error = error
            if not self._is_finished:
                self._connected.clear()
            _logger.info("could not send `%s`: %s", type(command).__name__, error)
            with suppress(ModelError):
                await connection.close()
            return False
        return True

    def _track(self, command: _Confirmed, tries: int = 1) -> _Confirmed:
        """Give a command a new id, under which it waits for its confirmation."""
        self._count += 1
        if isinstance(command, protocol.AddItem):
            id = f"item_{self._count}"
            command = replace(command, item_id=id, id=id)
        else:
            command = replace(command, id=f"set_{self._count}")
        self._unconfirmed[command.id] = (command, tries)
        return command

    async def _connect(self) -> None:
        async with self._sending:
            self._sent.clear()
            self._unconfirmed.clear()
            config = self._listener.current_config()
            connection = self._connection = await self._model.connect(config)
            self._send_error = None
            self._connected_at = monotonic()
            self._initial_history = list(self._listener.transcript_messages())
            for message in self._initial_history:
                if isinstance(message, ToolMessage):
                    self._sent.add(message.tool_call_id)
                await connection.send(self._track(protocol.AddItem(message)))
            while (current := self._listener.current_config()) != config:
                # The active agent changed while the connection was being opened.
                config = current
                await connection.send(self._track(protocol.ConfigureSession(config)))
            self._connected.set()

    async def _read(self) -> None:
        try:
            while True:
                error = await self._read_connection()
                if self.is_closed:
                    return
                if error is None:
                    self.stop()
                    self._listener.on_closed(None)
                    return
                self._connected.clear()
                await self._reconnect(error)
        except Exception as error:  # noqa: BLE001 - the active agent raises it, and the run ends with it
            self._failure = error if isinstance(error, BatonError) else RunError(f"{type(error).__name__}: {error}")
            self._connected.set()
            self._listener.on_closed(error)

    async def _read_connection(self) -> ModelConnectionError | None:
        """Read to the end; return the error, or None if the provider closed the connection normally."""
        assert self._connection is not None
        try:
            async for signal in self._connection:
                if isinstance(signal, protocol.ItemAdded):
                    self._unconfirmed.pop(signal.item_id, None)
                elif isinstance(signal, protocol.SessionConfigured):
                    sent = [
                        id
                        for id, (command, _) in self._unconfirmed.items()
                        if isinstance(command, protocol.ConfigureSession)
                    ]
                    for oldest in sent[:1]:
                        del self._unconfirmed[oldest]
                elif isinstance(signal, _PROGRESS):
                    self._attempts = 0
                elif isinstance(signal, protocol.ProviderErrorReceived) and await self._resend_rejected(signal):
                    continue
                await self._listener.on_signal(signal)
        except ModelConnectionError as error:
            return error
        return self._send_error

    async def _resend_rejected(self, error: protocol.ProviderErrorReceived) -> bool:
        """Send a rejected command again; return False if the error is not about one to be retried."""
        command, tries = self._unconfirmed.pop(error.command_id, (None, 0))
        if isinstance(command, protocol.ConfigureSession):
            if tries >= _MAX_TRIES:
                # The agent would continue with the instructions and tools of another.
                what = f"`{self._model.name}` rejected the settings of `{command.settings.agent}`"
                raise ModelRequestError(f"{what}: {error.message} ({error.code})", model=self._model.name)
            command = replace(command, changes_voice=command.changes_voice and error.code != _VOICE_LOCKED)
        elif command is None or tries >= _MAX_TRIES:
            return False
        async with self._sending:
            await self._try_send(self._track(command, tries + 1))
        if isinstance(command, protocol.AddItem):
            self._listener.on_item_resent()
        return True

    async def _reconnect(self, error: ModelConnectionError) -> None:
        reason = str(error)
        if monotonic() - self._connected_at >= _STABLE_SECONDS:
            self._attempts = 0
        while self._attempts < self.options.max_reconnects:
            delay = min(self.options.reconnect_delay * 2**self._attempts, _MAX_DELAY)
            self._attempts += 1
            await self._listener.on_disconnected(self._attempts, reason)
            await self._close_connection()
            await asyncio.sleep(delay)
            try:
                await self._connect()
            except ModelError as again:
                reason = str(again)
                if not again.retryable and not isinstance(again, ModelConnectionError):
                    raise
                continue
            await self._listener.on_reconnected()
            return
        what = f"the session `{self.name}` lost its connection, and {self._attempts} reconnect attempts failed"
        raise SessionLostError(f"{what}: {reason}", model=self._model.name, attempts=self._attempts)

    async def _close_connection(self) -> None:
        connection = self._connection
        self._connection = None
        if connection is not None:
            with suppress(ModelError):
                await connection.close()
