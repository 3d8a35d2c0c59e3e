"""Several callbacks at once: all of them end before anything goes on, and the first failure is the one raised."""

import asyncio
from collections.abc import Sequence
from typing import Any

from ..context import is_to_await


async def settled(value: Any) -> Any:
    """What a callback gave, awaited if it is something to wait for."""
    return await value if is_to_await(value) else value


async def settled_call(callback: Any, *args: Any) -> Any:
    """What a callback gives; called only when this is awaited, so that none is left unawaited if another fails."""
    return await settled(callback(*args))


async def together(*values: Any) -> list[Any]:
    """What several callbacks gave. If one fails, the others are cancelled and waited for, and its error is raised."""
    waiting = [value for value in values if is_to_await(value)]
    if len(waiting) < 2:
        return [await settled(value) for value in values]
    return await _gathered(values)


async def _gathered(values: Sequence[Any]) -> list[Any]:
    tasks = [asyncio.ensure_future(settled(value)) for value in values]
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
