"""Work that must end in time, and the error that says so if it does not."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")


async def run_with_deadline(work: Awaitable[T], seconds: float, late: Callable[[], Exception]) -> T:
    """What the work gives. Raises what `late` makes when the seconds are over; a TimeoutError of its own stays one."""
    deadline = asyncio.timeout(seconds)
    try:
        async with deadline:
            return await work
    except TimeoutError:
        if deadline.expired():
            raise late() from None
        raise
