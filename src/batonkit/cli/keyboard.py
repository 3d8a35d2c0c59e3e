"""Reads the lines that the user types in the terminal while a run is in progress."""

import asyncio
import os
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager

CTRL_D = "\x04"
"""The line that stands for the end of the input."""
_CHUNK_SIZE = 4096


@asynccontextmanager
async def typed_lines(handle: Callable[[str], Awaitable[None]]) -> AsyncGenerator[None]:
    """Pass each line that is typed during the block to a function, one after the other.

    All lines that were read are handled before the block ends; what is typed later is left for `input`. Without a
    terminal nothing is read, so that the lines of a script are messages one after the other. The same is true on
    Windows, where the event loop cannot wait for the keyboard.
    """
    if not sys.stdin.isatty():
        yield
        return
    loop = asyncio.get_running_loop()
    descriptor = sys.stdin.fileno()
    lines: asyncio.Queue[str | None] = asyncio.Queue()

    def read() -> None:
        # A terminal returns one line at a time, so that nothing is left in a buffer that `input` does not read.
        try:
            chunk = os.read(descriptor, _CHUNK_SIZE)
        except OSError:
            # The terminal was closed.
            loop.remove_reader(descriptor)
            chunk = b""
        if not chunk:
            lines.put_nowait(CTRL_D)
        for line in chunk.decode(errors="replace").splitlines():
            lines.put_nowait(line.strip())

    async def handle_all() -> None:
        while (line := await lines.get()) is not None:
            if line:
                await handle(line)

    try:
        loop.add_reader(descriptor, read)
    except NotImplementedError:
        yield
        return
    handler = asyncio.create_task(handle_all(), name="baton typed lines")
    try:
        yield
    finally:
        loop.remove_reader(descriptor)
        lines.put_nowait(None)
        await handler
