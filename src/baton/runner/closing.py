"""The end of what was opened for a run."""

import asyncio
import logging
from typing import Any

from ..context import RunState

_logger = logging.getLogger("baton.runner")


async def close_run_resources(run: RunState[Any]) -> None:
    """Close all that was opened for the run. What goes wrong there is logged: the run is over, and has its result."""
    things = [*run.opened.items()]
    run.opened.clear()
    endings = await asyncio.gather(*[thing.close() for _, thing in things], return_exceptions=True)
    for (owner, _), ending in zip(things, endings, strict=True):
        if isinstance(ending, BaseException):
            _logger.warning("what run `%s` opened for %r did not close well", run.id, owner, exc_info=ending)
