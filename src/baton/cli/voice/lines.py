"""What a person types while something else goes on."""

import asyncio
import os
import sys
from codecs import getincrementaldecoder
from collections.abc import Iterator
from contextlib import suppress
from io import UnsupportedOperation
from itertools import chain
from threading import Thread

_AT_ONCE = 4096


class StdinReader:
    """The lines of stdin. Reading them waits for nobody, and keeps nobody waiting."""

    def __init__(self) -> None:
        self._lines: asyncio.Queue[str | None] = asyncio.Queue()
        self._loop = asyncio.get_running_loop()
        # A thread that waits for a line cannot be stopped; as a daemon it does not outlive the program.
        Thread(target=self._read, name="baton stdin", daemon=True).start()

    async def next(self) -> str | None:
        """The next line, without the space around it; None when there are no more."""
        return await self._lines.get()

    def _read(self) -> None:
        # Who has left no longer has a loop, and no use for what is typed.
        with suppress(RuntimeError):
            for line in chain(_lines_of_stdin(), [None]):
                self._loop.call_soon_threadsafe(self._lines.put_nowait, line)


def _lines_of_stdin() -> Iterator[str]:
    try:
        descriptor = sys.stdin.fileno()
    except UnsupportedOperation:
        yield from (line.strip() for line in sys.stdin)
        return
    # Past Python's own buffer: a thread that waits in it when the program ends takes the interpreter down with it.
    decoder, begun = getincrementaldecoder("utf-8")("replace"), ""
    while piece := os.read(descriptor, _AT_ONCE):
        *whole, begun = (begun + decoder.decode(piece)).split("\n")
        yield from (line.strip() for line in whole)
    if begun.strip():
        yield begun.strip()
