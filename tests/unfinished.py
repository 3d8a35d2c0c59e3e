"""Runs that no live worker drives: listing them, and driving all of them once, as a worker does."""

import asyncio
import logging
from typing import Any

from batonkit import Runner
from batonkit.errors import RunConflictError
from batonkit.stores import RunRecord, RunStatus

_logger = logging.getLogger("baton.runner")


async def list_unfinished(runner: Runner[Any, Any]) -> list[RunRecord]:
    """Return the runs that a worker should drive now, by priority and age."""
    return [*await runner._repository.store.runnable(limit=1000)]


async def recover(runner: Runner[Any, Any], *, context: Any = None, max_concurrency: int = 8) -> dict[str, RunStatus]:
    """Drive all unfinished runs, except those that other workers take; return the statuses by run id.

    A run that cannot be driven stays `running`, and the reason is logged.
    """
    await runner._repository.inbox.promote_idle()
    semaphore = asyncio.Semaphore(max_concurrency)
    statuses: dict[str, RunStatus] = {}

    async def drive(run_id: str) -> None:
        async with semaphore:
            try:
                statuses[run_id] = (await runner.runs.drive(run_id, context=context)).status
            except RunConflictError:
                return
            except Exception:
                _logger.exception("could not drive run `%s`", run_id)
                statuses[run_id] = "running"

    async with asyncio.TaskGroup() as tasks:
        for record in await list_unfinished(runner):
            tasks.create_task(drive(record.run_id))
    return statuses
