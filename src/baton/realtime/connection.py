"""The connection of a live conversation: sending in order, reading, and having another one when it is lost."""

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
_OF_THE_USER = (AppendAudio, CommitAudio, ClearAudio)
_PROGRESS = (ResponseEnded, AudioCommitted)
"""What shows that a connection is good for something."""
_VOICE_IS_FIXED = "cannot_update_voice"
_MOST_TRIES = 3
_LONGEST_PAUSE = 8.0
_LASTING = 30.0
"""After so many seconds a connection was a good one, whatever was said on it."""


class ConnectionListener(Protocol):
    """Whose conversation it is."""

    def present_settings(self) -> SessionConfig:
        """Who has the floor, and what the model is to be."""
        ...

    def everything_said(self) -> Iterable[Message]:
        """All that a model must know that has heard nothing yet."""
        ...

    async def hear(self, signal: Signal) -> None:
        """Take in what the model says."""
        ...

    async def lost(self, attempt: int, because: str) -> None:
        """The connection is gone; this is the attempt to have another."""
        ...

    def told_late(self) -> None:
        """The provider has been told something again that it did not take at first."""
        ...

    async def restored(self) -> None:
        """There is a connection again, and the model knows everything."""
        ...

    def ended(self, error: BaseException | None) -> None:
        """There is no connection any more: the provider has closed it, or it is lost for good."""
        ...


class ReconnectingConnection:
    """One conversation's connection to its model. Whoever sends waits while there is none.

    What was said is told again on a new connection, in one place: so what is sent here must be part of the transcript
    before it is sent, and is sent on each connection once.
    """

    def __init__(
        self, model: RealtimeModel, listener: ConnectionListener, *, max_reconnects: int, pause: float, name: str
    ) -> None:
        self._model = model
        self._listener = listener
        self._max_reconnects = max_reconnects
        self._pause = pause
        self._name = name
        self._connection: RealtimeConnection | None = None
        self._sending = asyncio.Lock()
        self._is_up = asyncio.Event()
        self._reader: asyncio.Task[None] | None = None
        self._known: set[str] = set()
        """What has been told on this connection, by the call id of a result or a name of its own."""
        self._told_first: list[Message] = []
        """What this connection was told when it was opened."""
        self._unacknowledged: dict[str, tuple[AddItem, int]] = {}
        """Items that the provider has not taken yet, by item id, and how often each was sent."""
        self._unset: dict[str, tuple[ConfigureSession, int]] = {}
        """The same for settings, by the command's id; those that were sent first come first."""
        self._count = 0
        self._attempts = 0
        """How often there was a new connection since the last one that was good for something."""
        self._since = 0.0
        self._broken: ModelConnectionError | None = None
        """What was found out about this connection in sending."""
        self.is_closed = False
        self._failure: BatonError | None = None

    @property
    def is_up(self) -> bool:
        """Whether there is a connection."""
        return self._is_up.is_set()

    @property
    def has_unacknowledged(self) -> bool:
        """Whether the provider may not know everything yet that was sent."""
        return bool(self._unacknowledged)

    async def open(self) -> None:
        """Have the first connection. Raises what the model raises."""
        await self._connect()
        self._reader = asyncio.create_task(self._read(), name=f"baton realtime {self._name}")

    async def send(self, command: Command) -> bool:
        """Send a command; whether it was sent. If the connection is lost it is not, unless it is the user's audio."""
        is_of_the_user = isinstance(command, _OF_THE_USER)
        if isinstance(command, ConfigureSession):
            command = self._setting(command)
        while True:
            if not is_of_the_user and not self._is_up.is_set():
                return False
            await self._is_up.wait()
            async with self._sending:
                if self._is_over:
                    return False
                if self._is_up.is_set() and await self._passed_on(command):
                    return True
            if not is_of_the_user:
                return False

    async def tell(self, message: Message, name: str) -> None:
        """Tell the model something that is part of the transcript, once on each connection."""
        await self._is_up.wait()
        async with self._sending:
            if self._is_over or not self._is_up.is_set() or name in self._known:
                return
            # Known from now on: if this is not sent, everything is told again on the next connection.
            self._known.add(name)
            if not any(message is told for told in self._told_first):
                await self._passed_on(self._item(message, name))

    def has_told(self, name: str) -> bool:
        """Whether the model knows this, or will be told with all the rest on the next connection."""
        return name in self._known

    def stop(self) -> None:
        """Send nothing more. Nobody waits for a connection any longer."""
        self.is_closed = True
        self._is_up.set()

    async def close(self) -> None:
        """Send nothing more, and return when everything is closed."""
        self.stop()
        reader = self._reader
        if reader is not None and reader is not asyncio.current_task():
            reader.cancel()
            await asyncio.wait([reader])
        # Not in turn: somebody may be sending to a provider that does not read, and is released by this.
        await self._hang_up()

    @property
    def _is_over(self) -> bool:
        return self.is_closed or self._failure is not None

    async def _passed_on(self, command: Command) -> bool:
        connection = self._connection
        if connection is None:
            return False
        try:
            await connection.send(command)
        except ModelConnectionError as error:
            # Whoever reads finds out by this, and sees to a new connection.
            self._broken = error
            if not self._is_over:
                self._is_up.clear()
            _logger.info("`%s` could not be sent: %s", type(command).__name__, error)
            with suppress(ModelError):
                await connection.close()
            return False
        return True

    def _setting(self, command: ConfigureSession, tries: int = 1) -> ConfigureSession:
        self._count += 1
        command = replace(command, id=f"set_{self._count}")
        self._unset[command.id] = (command, tries)
        return command

    def _item(self, message: Message, name: str, tries: int = 1) -> AddItem:
        self._count += 1
        command = AddItem(message, f"item_{self._count}", f"add_{self._count}")
        self._unacknowledged[command.item_id] = (command, tries)
        return command

    async def _connect(self) -> None:
        async with self._sending:
            self._known.clear()
            self._unacknowledged.clear()
            self._unset.clear()
            settings = self._listener.present_settings()
            connection = self._connection = await self._model.connect(settings)
            self._broken, self._since = None, monotonic()
            self._told_first = list(self._listener.everything_said())
            for message in self._told_first:
                if isinstance(message, ToolMessage):
                    self._known.add(message.tool_call_id)
                await connection.send(self._item(message, ""))
            while (present := self._listener.present_settings()) is not settings:
                # The floor has changed while the connection was being made.
                settings = present
                await connection.send(self._setting(ConfigureSession(settings)))
            self._is_up.set()

    async def _read(self) -> None:
        try:
            while True:
                error = await self._read_one()
                if self.is_closed:
                    return
                if error is None:
                    self.stop()
                    self._listener.ended(None)
                    return
                self._is_up.clear()
                await self._reconnect(error)
        except Exception as error:  # noqa: BLE001 - whoever has the floor raises it, and the run ends with it
            self._failure = error if isinstance(error, BatonError) else RunError(f"{type(error).__name__}: {error}")
            self._is_up.set()
            self._listener.ended(error)

    async def _read_one(self) -> ModelConnectionError | None:
        """Read one connection to its end; how it was lost, or None if the provider closed it in good order."""
        assert self._connection is not None
        try:
            async for signal in self._connection:
                if isinstance(signal, ItemAdded):
                    self._unacknowledged.pop(signal.item_id, None)
                elif isinstance(signal, SessionConfigured) and self._unset:
                    del self._unset[next(iter(self._unset))]
                elif isinstance(signal, _PROGRESS):
                    self._attempts = 0
                elif isinstance(signal, ProviderErrorReceived) and await self._is_mended(signal):
                    continue
                await self._listener.hear(signal)
        except ModelConnectionError as error:
            return error
        return self._broken

    async def _is_mended(self, trouble: ProviderErrorReceived) -> bool:
        """Send again what the provider did not take."""
        if trouble.command_id in self._unset:
            await self._set_again(trouble)
            return True
        for item_id, (command, tries) in list(self._unacknowledged.items()):
            if trouble.command_id and command.id == trouble.command_id:
                del self._unacknowledged[item_id]
                if tries >= _MOST_TRIES:
                    return False
                async with self._sending:
                    await self._passed_on(self._item(command.message, "", tries + 1))
                self._listener.told_late()
                return True
        return False

    async def _set_again(self, trouble: ProviderErrorReceived) -> None:
        command, tries = self._unset.pop(trouble.command_id)
        if tries >= _MOST_TRIES:
            # Whoever has the floor would speak with the words and the tools of another.
            what = f"`{self._model.name}` does not take the settings of `{command.settings.agent}`"
            raise ModelRequestError(f"{what}: {trouble.message} ({trouble.code})", model=self._model.name)
        again = replace(command, changes_voice=command.changes_voice and trouble.code != _VOICE_IS_FIXED)
        async with self._sending:
            await self._passed_on(self._setting(again, tries + 1))

    async def _reconnect(self, error: ModelConnectionError) -> None:
        because = str(error)
        if monotonic() - self._since >= _LASTING:
            self._attempts = 0
        while self._attempts < self._max_reconnects:
            pause = min(self._pause * 2**self._attempts, _LONGEST_PAUSE)
            self._attempts += 1
            await self._listener.lost(self._attempts, because)
            await self._hang_up()
            await asyncio.sleep(pause)
            try:
                await self._connect()
            except ModelError as again:
                because = str(again)
                if not again.retryable and not isinstance(again, ModelConnectionError):
                    raise
                continue
            await self._listener.restored()
            return
        what = f"the conversation `{self._name}` was cut off, and {self._max_reconnects} attempts to go on failed"
        raise SessionLostError(f"{what}: {because}", model=self._model.name, attempts=self._max_reconnects)

    async def _hang_up(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(ModelError):
                await connection.close()
