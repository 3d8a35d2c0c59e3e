"""From the run to whoever listens: two tasks, so a queue, but one that hands over batches and holds the run back."""

import asyncio
import sys

from ..events import Delta, Event


class EventQueue:
    """A bounded queue of events. The writer waits when it is full, the reader when it is empty.

    Without a capacity it is never full: a live conversation does not stand still because somebody is slow to listen.
    """

    __slots__ = ("_capacity", "_items", "_reader", "_writers", "is_closed", "is_full", "is_heard", "is_patient")

    def __init__(self, capacity: int | None = 128) -> None:
        self._capacity = capacity if capacity is not None else sys.maxsize
        self._items: list[Event | Delta] = []
        self._reader: asyncio.Future[None] | None = None
        self._writers: list[asyncio.Future[None]] = []
        self.is_full = False
        self.is_closed = False
        self.is_patient = False
        self.is_heard = True

    def put(self, event: Event | Delta) -> None:
        """Take one event; never waits, but may become full."""
        items = self._items
        items.append(event)
        if len(items) >= self._capacity:
            self.is_full = True
        if self._reader is not None:
            self._wake_reader()

    def put_hushed(self, event: Event) -> None:
        """Nothing: it is not for whoever listens."""

    async def room(self) -> None:
        """Return when there is room again."""
        while self.is_full and not self.is_closed:
            waiting = asyncio.get_running_loop().create_future()
            self._writers.append(waiting)
            await waiting

    async def take(self) -> list[Event | Delta]:
        """Everything that has come in; waits for something, and gives nothing once the channel is closed and empty."""
        while not self._items and not self.is_closed:
            waiting = self._reader = asyncio.get_running_loop().create_future()
            await waiting
        taken, self._items = self._items, []
        self.is_full = False
        self._wake_writers()
        return taken

    def close(self) -> None:
        """Nothing more will come; nobody needs to wait."""
        self.is_closed = True
        self._wake_reader()
        self._wake_writers()

    def _wake_reader(self) -> None:
        waiting, self._reader = self._reader, None
        if waiting is not None and not waiting.done():
            waiting.set_result(None)

    def _wake_writers(self) -> None:
        writers, self._writers = self._writers, []
        for waiting in writers:
            if not waiting.done():
                waiting.set_result(None)
