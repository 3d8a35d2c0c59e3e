"""The connection of a live conversation: sending in order, reading, and having another one when it is lost."""

import asyncio
import logging
from collections.abc import Iterable
from contextlib import suppress
from typing import Protocol

from ..errors import BatonError, ModelConnectionError, ModelError, RunError, SessionLostError
from ..messages import Message, ToolMessage
from .base import RealtimeConnection, RealtimeModel
from .commands import AddItem, AppendAudio, ClearAudio, Command, CommitAudio
from .settings import SessionSettings
from .signals import ItemAdded, Signal, Trouble

_logger = logging.getLogger("baton.realtime")
_OF_THE_USER = (AppendAudio, CommitAudio, ClearAudio)
_MOST_TRIES = 3
_LONGEST_PAUSE = 8.0


class Listener(Protocol):
    """Whose conversation it is."""

    def present_settings(self) -> SessionSettings:
        """Who has the floor, and what the model is to be."""
        ...

    def everything_said(self) -> Iterable[Message]:
        """All that a model must know that has heard nothing yet."""
        ...

    async def hear(self, signal: Signal) -> None:
        """Take in what the model says."""
        ...

    def lost(self, attempt: int, because: str) -> None:
        """The connection is gone; this is the attempt to have another."""
        ...

    async def restored(self) -> None:
        """There is a connection again, and the model knows everything."""
        ...

    def ended(self, error: BaseException | None) -> None:
        """There is no connection any more: the provider has closed it, or it is lost for good."""
        ...


class Line:
    """One conversation's connection to its model. Whoever sends waits while there is none.

    What was said is told again on a new connection, in one place: so what is sent here must be part of the transcript
    before it is sent, and is sent on each connection once.
    """

    def __init__(
        self, model: RealtimeModel, listener: Listener, *, max_reconnects: int, pause: float, name: str
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
        self._unacknowledged: dict[str, tuple[AddItem, int]] = {}
        """Items that the provider has not taken yet, by item id, and how often each was sent."""
        self._count = 0
        self._lost: ModelConnectionError | None = None
        """What sending has found out about the connection, before reading has."""
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
        while True:
            if not isinstance(command, _OF_THE_USER) and not self._is_up.is_set():
                return False
            await self._is_up.wait()
            async with self._sending:
                if isinstance(command, _OF_THE_USER):
                    self._refuse_if_closed()
                elif self._is_over:
                    return False
                if self._is_up.is_set() and await self._passed_on(command):
                    return True
            if not isinstance(command, _OF_THE_USER):
                return False

    async def tell(self, message: Message, name: str) -> bool:
        """Tell the model something that is part of the transcript, once on each connection; False if all is over."""
        await self._is_up.wait()
        async with self._sending:
            if self._is_over:
                return False
            if self._is_up.is_set() and name not in self._known:
                # Known from now on: if this is not sent, everything is told again on the next connection.
                self._known.add(name)
                await self._passed_on(self._item(message, name))
            return True

    def has_told(self, name: str) -> bool:
        """Whether the model knows this, or will be told with all the rest on the next connection."""
        return name in self._known

    async def close(self) -> None:
        """Send nothing more, and return when everything is closed."""
        self.is_closed = True
        self._is_up.set()
        reader = self._reader
        if reader is not None and reader is not asyncio.current_task():
            reader.cancel()
            await asyncio.wait([reader])
        async with self._sending:
            await self._hang_up()

    @property
    def _is_over(self) -> bool:
        return self.is_closed or self._failure is not None

    def _refuse_if_closed(self) -> None:
        if self._failure is not None:
            raise self._failure
        if self.is_closed:
            raise RunError(f"the conversation `{self._name}` is closed; nothing can be sent in it any more")

    async def _passed_on(self, command: Command) -> bool:
        assert self._connection is not None
        try:
            await self._connection.send(command)
        except ModelConnectionError as error:
            # Whoever reads finds out by the closing, and sees to a new connection.
            self._is_up.clear()
            self._lost = error
            _logger.info("`%s` could not be sent: %s", type(command).__name__, error)
            with suppress(ModelError):
                await self._connection.close()
            return False
        return True

    def _item(self, message: Message, name: str, tries: int = 1) -> AddItem:
        self._count += 1
        command = AddItem(message, f"item_{self._count}", f"add_{self._count}")
        self._unacknowledged[command.item_id] = (command, tries)
        return command

    async def _connect(self) -> None:
        async with self._sending:
            self._known.clear()
            self._unacknowledged.clear()
            self._lost = None
            connection = self._connection = await self._model.connect(self._listener.present_settings())
            for message in self._listener.everything_said():
                if isinstance(message, ToolMessage):
                    self._known.add(message.call_id)
                await connection.send(self._item(message, ""))
            self._is_up.set()

    async def _read(self) -> None:
        try:
            while True:
                lost = await self._read_one()
                if lost is None:
                    self.is_closed = True
                    self._is_up.set()
                    self._listener.ended(None)
                    return
                self._is_up.clear()
                if self.is_closed:
                    return
                await self._reconnect(lost)
        except Exception as error:  # noqa: BLE001 - whoever has the floor raises it, and the run ends with it
            self._failure = error if isinstance(error, BatonError) else RunError(f"{type(error).__name__}: {error}")
            self._is_up.set()
            self._listener.ended(error)

    async def _read_one(self) -> ModelConnectionError | None:
        """Read one connection to its end: how it was lost, None if it was closed in good order."""
        assert self._connection is not None
        try:
            async for signal in self._connection:
                if isinstance(signal, ItemAdded):
                    self._unacknowledged.pop(signal.item_id, None)
                elif isinstance(signal, Trouble) and await self._is_mended(signal):
                    continue
                await self._listener.hear(signal)
        except ModelConnectionError as error:
            return error
        return self._lost

    async def _is_mended(self, trouble: Trouble) -> bool:
        """Send an item again that the provider did not take."""
        for item_id, (command, tries) in list(self._unacknowledged.items()):
            if trouble.command_id and command.id == trouble.command_id:
                del self._unacknowledged[item_id]
                if tries >= _MOST_TRIES:
                    return False
                async with self._sending:
                    await self._passed_on(self._item(command.message, "", tries + 1))
                return True
        return False

    async def _reconnect(self, error: ModelConnectionError) -> None:
        pause, because = self._pause, str(error)
        for attempt in range(1, self._max_reconnects + 1):
            self._listener.lost(attempt, because)
            await self._hang_up()
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)
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
