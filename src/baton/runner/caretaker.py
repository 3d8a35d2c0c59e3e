"""Looks after runs whose driver has died, or that nobody has driven yet: a hub goes on with them."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeAlias

from ..errors import BatonError, RunConflictError, RunNotFoundError
from ..stores import RunRecord

if TYPE_CHECKING:
    from .hub import BackgroundRunner

_logger = logging.getLogger("baton.runner")
_LONGEST_PAUSE = 1.0
_MOST_WORK = 0.05
"""Which part of the time may go into looking, for stores that have to read much for it."""

PickedUp: TypeAlias = Callable[[RunRecord], Awaitable[None]]
"""Is told of a run that a hub goes on with, as its record was before."""


class RecoveryLoop:
    """One for each hub, however many apps show its runs."""

    def __init__(self, hub: "BackgroundRunner") -> None:
        self.picked_up: list[PickedUp] = []
        """Who is told of runs that were picked up."""
        self._hub = hub
        self._context: Callable[[str], Any] | None = None
        self._given_up: set[str] = set()
        self._task: asyncio.Task[None] | None = None

    def start(self, context: Callable[[str], Any] | None = None) -> None:
        """Look again and again from now on; safe to call again.

        `context` makes the context object of a run from the name of its caller.
        """
        self._context = context or self._context
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._look_again_and_again(), name="baton caretaker")

    async def stop(self) -> None:
        """Look no more. What was picked up goes on."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])

    async def look(self) -> None:
        """Go on with all that is unfinished now, and driven by nobody."""
        hub = self._hub
        for record in await hub.runner.list_unfinished():
            if hub.is_driving(record.run_id) or record.run_id in self._given_up:
                continue
            context = None if self._context is None else self._context(record.owner)
            try:
                await hub.take_over(record.run_id, context=context)
            except (RunConflictError, RunNotFoundError):
                continue  # Somebody else was faster.
            except BatonError:
                # The team has changed, for instance. It would be the same the next time.
                self._given_up.add(record.run_id)
                _logger.warning("run `%s` cannot be driven on here", record.run_id, exc_info=True)
            else:
                for tell in self.picked_up:
                    await tell(record)

    async def _look_again_and_again(self) -> None:
        pause = min(_LONGEST_PAUSE, self._hub.runner.lease_seconds / 3)
        while True:
            began = monotonic()
            try:
                await self.look()
            except BatonError:
                # The store may be away for a while; what is driven here goes on as long as its lease lasts.
                _logger.warning("unfinished runs could not be looked for", exc_info=True)
            await asyncio.sleep(max(pause, (monotonic() - began) / _MOST_WORK))
