"""Wait for a state instead of for time."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from time import monotonic
from typing import Any, NoReturn, TypeVar

Value = TypeVar("Value")

PATIENCE = 120.0
"""Seconds after which a state will not come any more, however busy the machine is."""


async def until(
    read: Callable[[], Value | Awaitable[Value]],
    is_reached: Callable[[Value], object] = bool,
    *,
    within: float = PATIENCE,
) -> Value:
    """Read a value again and again until it is what the test waits for, and return it.

    Args:
        read: Reads the value; may be async.
        is_reached: Tells whether the value is the one; by default, whether it is true.
        within: Seconds after which the test fails and says what was read last.
    """
    deadline = monotonic() + within
    while True:
        read_value: Any = read()
        value: Value = await read_value if inspect.isawaitable(read_value) else read_value
        if is_reached(value):
            return value
        assert monotonic() < deadline, f"not within {within} s; last seen: {value!r}"
        await asyncio.sleep(0.005)


async def forever() -> NoReturn:
    """Wait until cancelled."""
    await asyncio.Event().wait()
    raise AssertionError("nothing sets this event")
