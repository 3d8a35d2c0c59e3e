"""Clocks for the running event loop, for time limits that expire when a test says so.

Create them inside the test: each test has an event loop of its own.
"""

import asyncio


class LoopClock:
    """Moves the time of the running event loop forward: timers fire that would be due then."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self._real_time = loop.time
        self._skipped = 0.0
        loop.time = self._read

    def advance(self, seconds: float) -> None:
        """Let this much time pass at once."""
        self._skipped += seconds

    def _read(self) -> float:
        return self._real_time() + self._skipped


class FrozenLoopClock(LoopClock):
    """Stops the time of the running event loop: no timer fires until the test advances the clock.

    `until` does not work meanwhile, because it sleeps between two looks.
    """

    def __init__(self) -> None:
        super().__init__()
        self._start = self._real_time()

    @property
    def now(self) -> float:
        """The time of the event loop."""
        return self._read()

    def _read(self) -> float:
        return self._start + self._skipped
