"""Several callbacks at once: all of them end before anything goes on, and the first failure is the one raised."""

import asyncio
from collections.abc import Sequence
from typing import Any

from ..context import needs_await


async def maybe_await(value: Any) -> Any:
    """What a callback gave, awaited if it is something to wait for."""
    return await value if needs_await(value) else value


async def call_and_await(callback: Any, *args: Any) -> Any:
    """What a callback gives; called only when this is awaited, so that none is left unawaited if another fails."""
    return await maybe_await(callback(*args))


async def gather_callbacks(*values: Any) -> list[Any]:
    """What several callbacks gave. If one fails, the others are cancelled and waited for, and its error is raised."""
    waiting = [value for value in values if needs_await(value)]
    if len(waiting) < 2:
        return [await maybe_await(value) for value in values]
    return await _gathered(values)


async def _gathered(values: Sequence[Any]) -> list[Any]:
    tasks = [asyncio.ensure_future(maybe_await(value)) for value in values]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
    finally:
        for task in tasks:
            task.cancel()
        ended: Sequence[Any] = await asyncio.gather(*tasks, return_exceptions=True)
    errors = [each for each in ended if isinstance(each, BaseException)]
    if errors:
        raise next((error for error in errors if not isinstance(error, asyncio.CancelledError)), errors[0])
    return list(ended)
