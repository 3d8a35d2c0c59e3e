"""What goes from a scripted provider to its client: signals in order, and how it ends."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Literal

from ...realtime.signals import Signal


class SignalQueue:
    """Signals that were told, how far the client has read them, and what comes after the last of them."""

    def __init__(self) -> None:
        self.signals: list[Signal] = []
        self.end: Literal["", "ended", "closed"] | BaseException = ""
        """"" while it is open; whether the provider ended it or the client closed it; or what cut it."""
        self._read = 0
        self._happened = asyncio.Event()

    @property
    def read(self) -> list[Signal]:
        """What the client has read."""
        return self.signals[: self._read]

    @property
    def unread(self) -> list[Signal]:
        """What is on its way to the client."""
        return self.signals[self._read :]

    def tell(self, *signals: Signal) -> None:
        """Tell the client this."""
        self.signals += signals
        self.wake()

    def stop(self, end: Literal["ended", "closed"] | BaseException) -> None:
        """Let this come after all that was told; whatever it was stopped with first stays, unless the client closes."""
        if not self.end or end == "closed":
            self.end = end
        self.wake()

    async def __aiter__(self) -> AsyncIterator[Signal]:
        while self.end != "closed":
            if self._read < len(self.signals):
                self._read += 1
                self.wake()
                yield self.signals[self._read - 1]
            elif isinstance(self.end, BaseException):
                raise self.end
            elif self.end:
                return
            else:
                await self._happened.wait()

    def wake(self) -> None:
        """Something has happened: whoever waits may look again."""
        self._happened.set()
        self._happened = asyncio.Event()

    async def until(self, is_so: Callable[[], bool], *, within: float, wanted: Callable[[], str]) -> None:
        """Until this is so. Raises AssertionError, saying what was wanted, if it is not so in time."""
        try:
            async with asyncio.timeout(within):
                while not is_so():
                    await self._happened.wait()
        except TimeoutError:
            raise AssertionError(f"waited {within:g} s for {wanted()}") from None
