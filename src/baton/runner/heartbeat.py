"""Holds the leases of the runs that are under way here, and listens for word from others to stop them."""

import asyncio
import logging
from typing import Any, Literal, Protocol

from ..errors import RunConflictError, RunError, RunNotFoundError, StoreError
from ..stores import Store
from .journal import Journal

_logger = logging.getLogger("baton.runner")
_LONGEST_PAUSE = 2.0


class SupportsStop(Protocol):
    """A run under way, as the heartbeat sees it."""

    def _stop_for(self, error: RunError, driver: "asyncio.Task[Any]") -> None:
        """Stop now: the run is somebody else's, or gone. `driver` is the task that drives it."""
        ...

    def _stop_on_request(self, when: Literal["now", "after_turn"], driver: "asyncio.Task[Any]") -> None:
        """Stop because somebody left word to."""
        ...


class LeaseHeartbeat:
    """One task for all runs of a runner: it is there only while there are any."""

    def __init__(self, store: Store, ttl: float) -> None:
        self._store = store
        self._ttl = ttl
        self._runs: dict[Journal, tuple[SupportsStop, asyncio.Task[Any]]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None

    def hold(self, journal: Journal, run: SupportsStop) -> None:
        """Hold this run's lease from now on. Called by the task that drives the run."""
        driver = asyncio.current_task()
        assert driver is not None
        self._runs[journal] = (run, driver)
        if self._timer is None and self._task is None:
            self._wait()

    def let_go(self, journal: Journal) -> None:
        """Hold it no longer."""
        self._runs.pop(journal, None)
        if not self._runs and self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _wait(self) -> None:
        # A timer and not a task that sleeps: most runs are over before it is due, and a timer costs next to nothing.
        pause = min(self._ttl / 3, _LONGEST_PAUSE)
        self._timer = asyncio.get_running_loop().call_later(pause, self._beat)

    def _beat(self) -> None:
        self._timer = None
        self._task = asyncio.ensure_future(self._renew_all())

    async def _renew_all(self) -> None:
        try:
            for journal in [*self._runs]:
                try:
                    await self._renew(journal)
                except Exception:
                    # Whatever a store raises: the other runs must not lose their leases for it.
                    _logger.exception("a lease could not be renewed")
        finally:
            self._task = None
            if self._runs:
                self._wait()

    async def _renew(self, journal: Journal) -> None:
        lease = journal.lease
        if lease is None or journal not in self._runs:
            return
        try:
            renewed = await self._store.renew(lease, ttl=self._ttl)
            record = await self._store.record(lease.run_id)
        except (RunConflictError, RunNotFoundError) as error:
            # A run that has stopped meanwhile has nothing to lose, and its task may be at something else by now.
            if journal in self._runs:
                run, driver = self._runs[journal]
                journal.fail(error)
                run._stop_for(error, driver)
        except StoreError:
            _logger.warning("the lease on run `%s` could not be renewed", lease.run_id, exc_info=True)
        else:
            if journal.lease is lease:
                journal.lease = renewed
            if record is not None and record.cancel_requested and journal in self._runs:
                run, driver = self._runs[journal]
                run._stop_on_request(record.cancel_requested, driver)
