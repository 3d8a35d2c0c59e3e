"""Queues between a publisher, which never waits, and its readers."""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Generic, TypeVar

T = TypeVar("T")

_MAX_PENDING = 4096


class Subscriber(Generic[T]):
    """A queue of items for one reader, which never holds up the publisher.

    A reader that is too slow loses items: droppable ones first, or else all later ones.
    """

    def __init__(self, max_pending: int = _MAX_PENDING, *, droppable: Callable[[T], bool] | None = None) -> None:
        self.is_closed = False
        """True once no more items will be added."""
        self._max_pending = max_pending
        self._droppable = droppable
        self._pending: deque[T] = deque()
        self._changed = asyncio.Event()
        self._silence_timer: asyncio.TimerHandle | None = None
        self._silent_at = 0.0

    def put(self, item: T) -> None:
        """Queue an item, unless the subscriber is closed."""
        if self.is_closed:
            return
        if len(self._pending) >= self._max_pending:
            if self._droppable is None:
                self.close()
                return
            if self._droppable(item):
                return
        self._pending.append(item)
        self._changed.set()

    def close(self) -> None:
        """End the reader's iteration after the items that are already queued."""
        self.is_closed = True
        self._changed.set()

    async def take(self, silence: float | None = None) -> list[T] | None:
        """Wait for items, and return all that are queued; None if there are no more."""
        if silence is not None and not self._pending:
            loop = asyncio.get_running_loop()
            self._silent_at = loop.time() + silence
            if self._silence_timer is None:
                # One timer for many items: it is only set again when it fires too early.
                self._silence_timer = loop.call_at(self._silent_at, self._check_silence, loop)
        while not self._pending:
            if self.is_closed:
                return None
            self._changed.clear()
            await self._changed.wait()
            if silence is not None and self._silence_timer is None:
                break
        taken = [*self._pending]
        self._pending.clear()
        return taken

    def stop_timer(self) -> None:
        """Cancel the timer of `take`; for a reader that stops."""
        if self._silence_timer is not None:
            self._silence_timer.cancel()

    def _check_silence(self, loop: asyncio.AbstractEventLoop) -> None:
        if loop.time() < self._silent_at:
            self._silence_timer = loop.call_at(self._silent_at, self._check_silence, loop)
        else:
            self._silence_timer = None
            self._changed.set()


async def iter_batches(source: AsyncGenerator[T], silence: float | None) -> AsyncGenerator[Sequence[T]]:
    """Yield the items of a source one by one, and an empty batch after each silence.

    Closes the source.
    """
    pending: asyncio.Future[T] | None = None
    try:
        while True:
            pending = pending or asyncio.ensure_future(anext(source))
            done, _ = await asyncio.wait([pending], timeout=silence)
            if not done:
                yield ()
                continue
            finished = pending
            pending = None
            try:
                item = finished.result()
            except StopAsyncIteration:
                return
            yield (item,)
    finally:
        if pending is not None:
            pending.cancel()
            await asyncio.wait([pending])
        await source.aclose()


class Broadcast(Generic[T]):
    """Publishes items to any number of subscribers."""

    def __init__(self) -> None:
        self.subscribers: set[Subscriber[T]] = set()
        """The current subscribers; add and discard them freely."""

    def publish(self, item: T) -> None:
        """Queue an item for every subscriber."""
        for subscriber in self.subscribers:
            subscriber.put(item)

    def close(self) -> None:
        """Close every subscriber."""
        for subscriber in self.subscribers:
            subscriber.close()
