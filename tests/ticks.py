"""Servers of tests stop at once."""

import asyncio
from contextlib import suppress
from typing import Any

import uvicorn.server
from tests.waiting import forever

_FACTOR = 20


class _ShortSleeps:
    """The module asyncio, with shorter sleeps."""

    def __getattr__(self, name: str) -> Any:
        return getattr(asyncio, name)

    async def sleep(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds / _FACTOR):
                await forever()


def shorten_ticks() -> None:
    """Let uvicorn look every 5 instead of every 100 ms whether it is to stop; most servers of tests serve for less."""
    module: Any = uvicorn.server
    module.asyncio = _ShortSleeps()
