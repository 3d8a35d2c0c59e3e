"""A spinner with the elapsed time, shown below the output while a run is in progress."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from time import monotonic

from rich.cells import cell_len
from rich.console import Console

_FRAMES = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_FRAME_SECONDS = 0.1
_QUIET_SECONDS = 0.3
"""The spinner appears when nothing was written for this long, so that quick steps do not flicker."""
_SAVE_CURSOR = "\x1b7"
_RESTORE_CURSOR = "\x1b8"
_CURSOR_UP = "\x1b[A"
_CLEAR_LINE = "\r\x1b[K"


class Spinner:
    """A spinner in a terminal.

    It does nothing if the output is not a terminal, or is one that cannot move the cursor. Text that the user types
    meanwhile is echoed after it, and is left alone when the next frame is drawn.
    """

    def __init__(self, console: Console, clock: Callable[[], float] = monotonic) -> None:
        self._console = console
        self._clock = clock
        self._is_enabled = console.is_terminal and not console.is_dumb_terminal and not console.legacy_windows
        self._label = self._text = ""
        self._since = self._last_output = clock()
        self._is_drawn = False
        self._is_paused = False

    def set(self, label: str) -> None:
        """Show what is in progress, and count the time from now."""
        self._label = label
        self._since = self._clock()

    def clear(self, *, is_midline: bool = False) -> None:
        """Remove the spinner before something is written; while a line is incomplete, none is drawn."""
        if self._is_drawn:
            self._write(_CLEAR_LINE)
        self._is_drawn = False
        self._is_paused = is_midline
        self._last_output = self._clock()

    def leave(self, typed: str) -> None:
        """Continue on the next line, because the user has ended that of the spinner."""
        if self._is_drawn and cell_len(self._text + typed) < self._console.width:
            self._write(f"{_CURSOR_UP}{_CLEAR_LINE}{typed}\n")
        self._is_drawn = False
        self._last_output = self._clock()

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Draw the spinner during the block whenever nothing was written for a moment."""
        if not self._is_enabled:
            yield
            return
        # Events are delivered after they are stored, so the first agent is not known yet.
        self.set("working")
        self.clear()
        drawing = asyncio.create_task(self._draw_frames(), name="baton spinner")
        try:
            yield
        finally:
            drawing.cancel()
            self.clear()

    async def _draw_frames(self) -> None:
        while True:
            self.draw()
            await asyncio.sleep(_FRAME_SECONDS)

    def draw(self) -> None:
        """Draw the next frame, if nothing was written for a moment."""
        now = self._clock()
        if self._is_paused or now - self._last_output < _QUIET_SECONDS:
            return
        frame = _FRAMES[int(now / _FRAME_SECONDS) % len(_FRAMES)]
        minutes, seconds = divmod(int(now - self._since), 60)
        # The same width in each frame, so that what is typed after it stays in place.
        self._text = f"{frame} {self._label} {minutes:2}:{seconds:02} "
        self._write(f"{_SAVE_CURSOR}\r{self._text}{_RESTORE_CURSOR}" if self._is_drawn else self._text)
        self._is_drawn = True

    def _write(self, text: str) -> None:
        self._console.file.write(text)
        self._console.file.flush()
