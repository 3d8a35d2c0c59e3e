"""While a server is there, runs whose driver has died, or that nobody has driven yet, are driven by it."""

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from ..errors import BatonError, RunConflict
from ..runner import Hub

_logger = logging.getLogger("baton.server")


@asynccontextmanager
async def recovering(hub: Hub, *, every: float = 5.0) -> AsyncGenerator[None]:
    """Look for such runs every so many seconds, and have the hub go on with them."""
    task = asyncio.create_task(_recover(hub, every), name="baton recovery")
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])


async def _recover(hub: Hub, every: float) -> None:
    given_up: set[str] = set()
    while True:
        try:
            found = [record.run_id for record in await hub.runner.unfinished()]
        except BatonError:
            _logger.warning("the store cannot be asked for unfinished runs", exc_info=True)
            found = []
        for run_id in found:
            if run_id not in given_up and not hub.is_here(run_id):
                await _go_on(hub, run_id, given_up)
        await asyncio.sleep(every)


async def _go_on(hub: Hub, run_id: str, given_up: set[str]) -> None:
    try:
        await hub.resume(run_id)
    except RunConflict:
        _logger.info("run `%s` is driven by somebody else", run_id)
    except BatonError:
        # The team has changed, for instance. It would be the same the next time.
        given_up.add(run_id)
        _logger.warning("run `%s` cannot be driven on here", run_id, exc_info=True)
