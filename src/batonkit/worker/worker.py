"""The worker: drives the runs that its engine delivers, counts what becomes of them, and drains."""

import asyncio
import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from time import monotonic
from typing import Any

from msgspec import Struct

from .._checks import check_arguments, check_positive
from ..errors import RunConflictError, RunNotFoundError, SetupError
from ..runs import Runner
from ..runs.stored.recovery import FailedAttempts
from ..stores import RunRecord, SupportsNotes
from ..stores.parts import require_part
from .deaths import SUSPECT_AFTER, DeathCounter, has_died
from .engine import Engine, Outcome
from .engines import resolve_engine
from .limits import NO_LIMITS, Concurrency

_logger = logging.getLogger("baton.worker")
_SUSPECT_DELAY = _BUSY_DELAY = 1.0
_STOP_SECONDS = 1.0
"""The time for runs to be released, and for the engine to stop, once the time for turns is over."""
_LOOK_INTERVAL = 0.1


class WorkerCounts(Struct):
    """The numbers of a worker since it started."""

    completed: int = 0
    """Runs that completed."""
    suspended: int = 0
    """Runs that were suspended."""
    failed: int = 0
    """Runs that failed."""
    cancelled: int = 0
    """Runs that were cancelled."""
    released: int = 0
    """Runs that were left to other workers because this one was drained."""
    postponed: int = 0
    """Attempts that failed and are tried again later."""
    parked: int = 0
    """Runs that were failed because their workers kept dying."""
    elsewhere: int = 0
    """Deliveries of runs that another worker drives."""


class _Drive(Struct, eq=False):
    """A run that is being driven."""

    task: "asyncio.Task[Outcome]"
    owner: str = ""


class Worker:
    """Drives stored runs of a team without a caller.

    These are the runs that were submitted or answered, that are due, or whose worker died. Any number of workers, in
    any number of processes, may work on one store.

    Args:
        runner: The runner; it must have a store. Its `context_factory` makes the contexts of the runs.
        engine: An engine, or the name of one: `"local"`, `"postgres"` or `"temporal"`. By default `"postgres"` for a
            PostgreSQL store if its extra is installed, and `"local"` otherwise.
        concurrency: The number of runs that are driven at once.
        drain: Seconds for turns in flight to finish when the worker is stopped.
        limits: Limits for each owner and for all owners. They hold for all workers together with the engine
            `"postgres"`, and for this worker alone with `"local"`; `"temporal"` has none.
        max_deaths: Fail a run after this many workers died while they drove it, without anything new in its log.
        accept_changes: Also drive runs that another version of the team started.
    """

    @check_arguments
    def __init__(
        self,
        runner: Runner[Any, Any],
        *,
        engine: Engine | str | None = None,
        concurrency: int = 20,
        drain: float = 10.0,
        limits: Concurrency | None = None,
        max_deaths: int = 5,
        accept_changes: bool = False,
    ) -> None:
        check_positive("Worker(concurrency=…)", concurrency)
        check_positive("Worker(max_deaths=…)", max_deaths)
        self.runner = runner
        """The runner of the team."""
        self.store = runner._require_store("Worker()")
        """The store of the runs."""
        require_part(self.store, SupportsNotes, "Worker()")
        self.engine = resolve_engine(engine, self.store)
        """The engine that delivers the runs."""
        self.concurrency = concurrency
        """The number of runs that are driven at once."""
        if limits not in (None, NO_LIMITS) and not self.engine.has_limits:
            raise SetupError(
                f"the engine `{self.engine.name}` has no limits per owner or in total; use the engine `postgres`, "
                "or only limit each worker with concurrency=…"
            )
        self.limits = limits or NO_LIMITS
        """Limits for each owner and for all owners."""
        self.teams: Sequence[str] | None = None if accept_changes else (runner.team.fingerprint, "")
        """The teams whose runs are driven; runs of unknown teams are tried."""
        self.failures = FailedAttempts(self.store)
        """The runs that could not be driven, and when to try them again."""
        self.counts = WorkerCounts()
        """The numbers of this worker."""
        self.is_stopping = False
        """True once `stop` was called."""
        self._accept_changes = accept_changes
        self._drain = drain
        self._repository = runner._repository
        self._deaths = DeathCounter(self._repository, max_deaths)
        self._drives: dict[str, _Drive] = {}
        self._stopping = asyncio.Event()
        self._hurrying = asyncio.Event()

    def __repr__(self) -> str:
        return f"Worker({self.runner!r}, engine={self.engine.name}, driving={len(self._drives)})"

    @property
    def driving(self) -> Sequence[str]:
        """The ids of the runs that are driven now."""
        return tuple(self._drives)

    @property
    def free(self) -> int:
        """The number of runs that could be taken now."""
        return 0 if self.is_stopping else self.concurrency - len(self._drives)

    @property
    def driven(self) -> Mapping[str, int]:
        """The number of runs of each owner that are driven now."""
        return Counter([drive.owner for drive in self._drives.values()])

    def accepts(self, record: RunRecord) -> bool:
        """Return whether a run would be driven now: a slot is free, and the limits allow it.

        Args:
            record: The run.
        """
        return self.free > 0 and record.run_id not in self._drives and self.limits.admits(record.owner, self.driven)

    async def run(self) -> None:
        """Drive runs until `stop` is called, then drain.

        Draining takes at most the time given to the worker, and two seconds.
        """
        serving = asyncio.create_task(self.engine.serve(self), name=f"baton engine {self.engine.name}")
        stopping = asyncio.create_task(self._stopping.wait())
        try:
            await asyncio.wait([serving, stopping], return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopping.cancel()
            self.is_stopping = True
            await self._drain_runs(serving)
        if serving.done() and not serving.cancelled():
            serving.result()

    def stop(self) -> None:
        """Take no more runs, let turns in flight finish, release the runs, and let `run` return.

        Calling it again ends the wait for the turns in flight.
        """
        if self.is_stopping:
            self._hurrying.set()
        self.is_stopping = True
        self._stopping.set()

    async def drive(self, run_id: str, *, owner: str = "", attempt: str | None = None) -> Outcome:
        """Drive one run until it stops or the worker is drained; engines call it.

        Args:
            run_id: The run.
            owner: The owner of the run, if the engine knows it.
            attempt: A name for this delivery; see `RunDriver.drive`.

        Returns:
            The outcome. A run that cannot be driven is postponed, with the reason as a note in the store.
        """
        if self.is_stopping:
            return Outcome("running", retry_in=0.0)
        if run_id in self._drives:
            return self._elsewhere()
        if self.free <= 0:
            return Outcome("running", retry_in=_BUSY_DELAY)
        drive = _Drive(asyncio.create_task(self._attempt(run_id, attempt), name=f"baton drive {run_id}"), owner)
        self._drives[run_id] = drive
        try:
            await asyncio.wait([drive.task])
        except asyncio.CancelledError:
            # The engine gave the delivery up: the run is released, and delivered again.
            drive.task.cancel()
            await asyncio.wait([drive.task])
            raise
        finally:
            del self._drives[run_id]
        if drive.task.cancelled():
            self.counts.released += 1
            return Outcome("running", retry_in=0.0)
        return drive.task.result()

    async def _attempt(self, run_id: str, attempt: str | None) -> Outcome:
        """Drive a run, or find out why not."""
        try:
            record = await self.store.record(run_id)
            if record is None:
                return Outcome()
            self._drives[run_id].owner = record.owner
            return await self._drive_known(record, attempt)
        except RunNotFoundError:
            return Outcome()
        except RunConflictError:
            if self.is_stopping:
                self.counts.released += 1
                return Outcome("running", retry_in=0.0)
            return self._elsewhere()
        except Exception as error:  # noqa: BLE001 - the store may be unavailable, or code of the user's failed.
            self.counts.postponed += 1
            return Outcome("running", retry_in=await self.failures.failed(run_id, error))

    async def _drive_known(self, record: RunRecord, attempt: str | None) -> Outcome:
        is_dead = has_died(record) and (not record.is_leased or record.worker == attempt)
        deaths = await self._deaths.count(record) if is_dead else 0
        if self._deaths.is_too_many(deaths):
            is_parked = await self._deaths.park(record, deaths)
            self.counts.parked += is_parked
            return Outcome("failed") if is_parked else self._elsewhere()
        async with AsyncExitStack() as stack:
            if deaths >= SUSPECT_AFTER:
                if self._deaths.suspects.locked():
                    return Outcome("running", retry_in=_SUSPECT_DELAY)
                await stack.enter_async_context(self._deaths.suspects)
            result = await self.runner.runs.drive(record.run_id, accept_changes=self._accept_changes, worker=attempt)
        await self.failures.succeeded(record.run_id)
        if result.status != "running":
            setattr(self.counts, result.status, getattr(self.counts, result.status) + 1)
        return Outcome(result.status, result.wake_at)

    def _elsewhere(self) -> Outcome:
        self.counts.elsewhere += 1
        return Outcome("running", retry_in=self._repository.ttl, is_elsewhere=True)

    async def _drain_runs(self, serving: "asyncio.Task[None]") -> None:
        """Stop the engine, let turns finish, and release the runs that are left."""
        await self.engine.stop()
        deadline = monotonic() + self._drain
        if self._drives:
            _logger.info("waiting up to %g s for the turns of %d runs", self._drain, len(self._drives))
        while self._drives and monotonic() < deadline and not self._hurrying.is_set():
            # Again and again: a run that was being opened cannot be told before it is open.
            self._repository.heartbeat.release_after_turns(self._drives)
            drives = [drive.task for drive in self._drives.values()]
            await asyncio.wait(drives, timeout=min(_LOOK_INTERVAL, max(0.0, deadline - monotonic())))
        for drive in self._drives.values():
            drive.task.cancel()
        _, running = await asyncio.wait([serving], timeout=_STOP_SECONDS)
        if running:
            serving.cancel()
            await asyncio.wait([serving], timeout=_STOP_SECONDS / 2)
