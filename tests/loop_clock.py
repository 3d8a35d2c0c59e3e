"""Let an event loop believe that time has passed."""

import asyncio

import pytest


class LoopClock:
    """Moves the time of the running event loop forward: timers fire that would be due then.

    Args:
        monkeypatch: Restores the loop's clock.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        loop = asyncio.get_running_loop()
        self._read = loop.time
        self._skipped = 0.0
        monkeypatch.setattr(loop, "time", self._time)

    def _time(self) -> float:
        return self._read() + self._skipped

    def advance(self, seconds: float) -> None:
        """Let this much time pass."""
        self._skipped += seconds
