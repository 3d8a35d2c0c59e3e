"""A clock for the running event loop that only tests advance, for time limits that expire when a test says so."""

import asyncio


class LoopClock:
    """Replaces the time of the running event loop: no timer fires until the test advances the clock.

    Create it inside the test; each test has an event loop of its own.
    """

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.now = loop.time()
        """The time of the event loop."""
        loop.time = self._read

    def advance(self, seconds: float) -> None:
        """Let time pass; timers that are due fire in the next turn of the loop."""
        self.now += seconds

    def _read(self) -> float:
        return self.now
