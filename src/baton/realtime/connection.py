"""A connection that sends commands in order, dispatches signals, and reconnects when it is lost."""

import asyncio
import logging
from collections.abc import Iterable
from contextlib import suppress
from time import monotonic
from typing import Protocol

from msgspec.structs import replace

from ..errors import BatonError, ModelConnectionError, ModelError, ModelRequestError, RunError, SessionLostError
from ..messages import Message, ToolMessage
from .protocol import (
    AddItem,
    AppendAudio,
    AudioCommitted,
    ClearAudio,
    Command,
    CommitAudio,
    ConfigureSession,
    ItemAdded,
    ProviderErrorReceived,
    RealtimeConnection,
    RealtimeModel,
    ResponseEnded,
    SessionConfigured,
    Signal,
)
from .settings import SessionConfig

_logger = logging.getLogger("baton.realtime")
_AUDIO_COMMANDS = (AppendAudio, CommitAudio, ClearAudio)
_PROGRESS = (ResponseEnded, AudioCommitted)
"""Signals after which the count of reconnect attempts starts again."""
_VOICE_LOCKED = "cannot_update_voice"
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

    async def on_signal(self, signal: Signal) -> None:
        """Handle a signal of the model."""
        ...

    async def on_disconnected(self, attempt: int, reason: str) -> None:
        """Handle the loss of the connection, before a reconnect attempt."""
        ...

    def on_item_resent(self) -> None:
        """Handle the resending of an item that the provider had rejected."""
        ...

    async def on_reconnected(self) -> None:
        """Handle a new connection, after the conversation was sent on it."""
        ...

    def on_closed(self, error: BaseException | None) -> None:
        """Handle the end: the provider closed the connection, or it is lost for good."""
        ...


class ReconnectingConnection:
    """The model connection of one session. Senders of audio wait while it reconnects.

    A new connection is sent the whole transcript first. An item must therefore be part of the transcript before it is
    sent, and is sent once per connection.
    """

    def __init__(
        self,
        model: RealtimeModel,
        listener: ConnectionListener,
        *,
        max_reconnects: int,
        reconnect_delay: float,
        name: str,
    ) -> None:
        self._model = model
        self._listener = listener
        self._max_reconnects = max_reconnects
        self._reconnect_delay = reconnect_delay
        self._name = name
        self._connection: RealtimeConnection | None = None
        self._sending = asyncio.Lock()
        self._connected = asyncio.Event()
        self._reader: asyncio.Task[None] | None = None
        self._sent: set[str] = set()
        """Names of the items sent on this connection: a result's call id, or a transcript key."""
        self._initial_history: list[Message] = []
        """Messages sent when this connection was opened."""
        self._unacknowledged: dict[str, tuple[AddItem, int]] = {}
        """Items the provider has not acknowledged, by item id, with the number of tries."""
        self._unconfirmed: dict[str, tuple[ConfigureSession, int]] = {}
        """Configurations the provider has not confirmed, by command id in order, with the number of tries."""
        self._count = 0
        self._attempts = 0
        """Reconnects since the last connection that made progress."""
        self._connected_at = 0.0
        self._send_error: ModelConnectionError | None = None
        self.is_closed = False
        self._failure: BatonError | None = None

    @property
    def is_connected(self) -> bool:
        """True if a connection is open."""
        return self._connected.is_set()

    @property
    def has_unacknowledged(self) -> bool:
        """True if the provider has yet to acknowledge items that were sent."""
        return bool(self._unacknowledged)

    async def open(self) -> None:
        """Open the first connection. Raises the model's error if that fails."""
        await self._connect()
        self._reader = asyncio.create_task(self._read(), name=f"baton realtime {self._name}")

    async def send(self, command: Command) -> bool:
        """Send a command; return whether it was sent.

        While there is no connection, audio commands wait for the next one and all others are dropped.
        """
        is_audio = isinstance(command, _AUDIO_COMMANDS)
        if isinstance(command, ConfigureSession):
            command = self._new_config_command(command)
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
        """Send a message that is part of the transcript, once per connection.

        Args:
            message: The message.
            name: Identifies it: a result's call id, or its transcript key.
        """
        await self._connected.wait()
        async with self._sending:
            if self._is_finished or not self._connected.is_set() or name in self._sent:
                return
            # Marked first: if sending fails, the next connection starts with the whole transcript.
            self._sent.add(name)
            if not any(message is sent for sent in self._initial_history):
                await self._try_send(self._new_item_command(message))

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

    async def _try_send(self, command: Command) -> bool:
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

    def _new_config_command(self, command: ConfigureSession, tries: int = 1) -> ConfigureSession:
        self._count += 1
        command = replace(command, id=f"set_{self._count}")
        self._unconfirmed[command.id] = (command, tries)
        return command

    def _new_item_command(self, message: Message, tries: int = 1) -> AddItem:
        self._count += 1
        command = AddItem(message, f"item_{self._count}", f"add_{self._count}")
        self._unacknowledged[command.item_id] = (command, tries)
        return command

    async def _connect(self) -> None:
        async with self._sending:
            self._sent.clear()
            self._unacknowledged.clear()
            self._unconfirmed.clear()
            config = self._listener.current_config()
            connection = self._connection = await self._model.connect(config)
            self._send_error, self._connected_at = None, monotonic()
            self._initial_history = list(self._listener.transcript_messages())
            for message in self._initial_history:
                if isinstance(message, ToolMessage):
                    self._sent.add(message.tool_call_id)
                await connection.send(self._new_item_command(message))
            while (current := self._listener.current_config()) is not config:
                # The active agent changed while the connection was being opened.
                config = current
                await connection.send(self._new_config_command(ConfigureSession(config)))
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
                if isinstance(signal, ItemAdded):
                    self._unacknowledged.pop(signal.item_id, None)
                elif isinstance(signal, SessionConfigured) and self._unconfirmed:
                    del self._unconfirmed[next(iter(self._unconfirmed))]
                elif isinstance(signal, _PROGRESS):
                    self._attempts = 0
                elif isinstance(signal, ProviderErrorReceived) and await self._resend_rejected(signal):
                    continue
                await self._listener.on_signal(signal)
        except ModelConnectionError as error:
            return error
        return self._send_error

    async def _resend_rejected(self, error: ProviderErrorReceived) -> bool:
        """Send a rejected command again; return False if the error is not about one to be retried."""
        if error.command_id in self._unconfirmed:
            await self._resend_config(error)
            return True
        for item_id, (command, tries) in list(self._unacknowledged.items()):
            if error.command_id and command.id == error.command_id:
                del self._unacknowledged[item_id]
                if tries >= _MAX_TRIES:
                    return False
                async with self._sending:
                    await self._try_send(self._new_item_command(command.message, tries + 1))
                self._listener.on_item_resent()
                return True
        return False

    async def _resend_config(self, error: ProviderErrorReceived) -> None:
        command, tries = self._unconfirmed.pop(error.command_id)
        if tries >= _MAX_TRIES:
            # The agent would continue with the instructions and tools of another.
            what = f"`{self._model.name}` rejected the settings of `{command.settings.agent}`"
            raise ModelRequestError(f"{what}: {error.message} ({error.code})", model=self._model.name)
        again = replace(command, changes_voice=command.changes_voice and error.code != _VOICE_LOCKED)
        async with self._sending:
            await self._try_send(self._new_config_command(again, tries + 1))

    async def _reconnect(self, error: ModelConnectionError) -> None:
        reason = str(error)
        if monotonic() - self._connected_at >= _STABLE_SECONDS:
            self._attempts = 0
        while self._attempts < self._max_reconnects:
            delay = min(self._reconnect_delay * 2**self._attempts, _MAX_DELAY)
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
        what = f"the session `{self._name}` lost its connection, and {self._max_reconnects} reconnect attempts failed"
        raise SessionLostError(f"{what}: {reason}", model=self._model.name, attempts=self._max_reconnects)

    async def _close_connection(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(ModelError):
                await connection.close()
