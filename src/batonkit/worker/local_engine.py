"""The engine `local`: each worker polls the store, any store, for runs to drive."""

import asyncio
from collections.abc import Sequence
from time import monotonic

from .._checks import check_arguments, check_positive
from ..runs.stored.recovery import RecoveryLoop
from ..stores import RunRecord
from .engine import RunDriver

_UNHEALTHY_AFTER = 10.0


class LocalEngine:
    """An engine that polls the store, any store, for runs that no worker drives.

    Args:
        interval: Seconds between two polls of an idle worker. A worker whose runs end polls sooner.
    """

    name = "local"
    has_limits = True

    @check_arguments
    def __init__(self, *, interval: float = 0.1) -> None:
        check_positive("LocalEngine(interval=…)", interval)
        self._interval = interval
        self._recovery: RecoveryLoop | None = None
        self._started = monotonic()

    async def serve(self, driver: RunDriver) -> None:
        """Poll until `stop` is called; see `Engine.serve`.

        Args:
            driver: The worker.
        """
        deliveries: set[asyncio.Task[None]] = set()

        async def take(records: Sequence[RunRecord]) -> None:
            for record in records:
                if driver.accepts(record):
                    delivery = asyncio.create_task(self._deliver(driver, record), name=f"baton {record.run_id}")
                    deliveries.add(delivery)
                    delivery.add_done_callback(deliveries.discard)
                    # It is counted as driven once its task has started.
                    await asyncio.sleep(0)

        self._started = monotonic()
        repository = driver.runner._repository
        interval = min(self._interval, repository.ttl / 3)
        self._recovery = RecoveryLoop(
            repository,
            take,
            driver.failures,
            interval=interval,
            teams=driver.teams,
            free=lambda: driver.free,
            per_owner=driver.limits.per_owner,
            driven=lambda: driver.driven,
        )
        await asyncio.wait([self._recovery.start()])
        while deliveries:
            await asyncio.wait(deliveries)

    async def stop(self) -> None:
        """Stop polling; see `Engine.stop`."""
        if self._recovery is not None:
            await self._recovery.stop()

    def problem(self) -> str:
        """Return when the store was reached last, if that is long ago; see `Engine.problem`."""
        reached = self._recovery.last_success if self._recovery is not None else None
        silent = monotonic() - (reached or self._started)
        return f"the store has not answered for {silent:.0f} s" if silent > _UNHEALTHY_AFTER else ""

    async def _deliver(self, driver: RunDriver, record: RunRecord) -> None:
        outcome = await driver.drive(record.run_id, owner=record.owner)
        if outcome.retry_in is not None:
            driver.failures.postpone(record.run_id, outcome.retry_in)
        if self._recovery is not None:
            self._recovery.wake()
