"""Recovery: one loop that finds the runs that no live worker drives, for background runners and for workers."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from time import monotonic

from msgspec import Struct

from ...errors import LogError, ReplayMismatchError, RunNotFoundError, StoreError, TeamChangedError
from ...stores import FullStore, RunRecord, SupportsNotes
from ...stores.parts import has_part
from ...stores.store import NOTHING_DRIVEN
from .repository import RunRepository

_logger = logging.getLogger("baton.runner")
_MAX_POLL_LOAD = 0.05
"""Maximum fraction of time spent polling, for stores that are slow to list runs."""
_MAX_PAUSE = 10.0
_MAX_FOUND = 1000
_FIRST_DELAY = 1.0
_MAX_DELAY = 60.0
_PERMANENT_DELAY = 300.0
_FORGET_AFTER = 3600.0

PERMANENT_ERRORS = (TeamChangedError, LogError, ReplayMismatchError)
"""Errors for which retrying soon does not help: another version of the program has to drive the run."""
UNDRIVABLE_NOTE = "undrivable"
"""The name of the note that says why a run could not be taken over."""


class _Delay(Struct, frozen=True):
    """A run that is not taken over before a time, and the seconds that it waited last."""

    until: float
    seconds: float


class FailedAttempts:
    """The runs that could not be driven, and when each is tried again."""

    def __init__(self, store: FullStore) -> None:
        self._store = store
        self._delays: dict[str, _Delay] = {}

    def __len__(self) -> int:
        return len(self._delays)

    def is_due(self, run_id: str) -> bool:
        """Return whether a run may be tried now."""
        delay = self._delays.get(run_id)
        return delay is None or delay.until <= monotonic()

    def postpone(self, run_id: str, seconds: float) -> None:
        """Do not try a run for some time, without a reason to store."""
        self._delays[run_id] = _Delay(monotonic() + seconds, seconds)

    async def failed(self, run_id: str, error: Exception) -> float:
        """Record that a run could not be driven; return the seconds to wait before the next attempt."""
        last_delay = self._delays.get(run_id)
        first = _FIRST_DELAY
        most = _MAX_DELAY
        if isinstance(error, PERMANENT_ERRORS):
            first = _PERMANENT_DELAY
            most = _PERMANENT_DELAY
        seconds = first if last_delay is None else min(max(last_delay.seconds, first) * 2, most)
        self.postpone(run_id, seconds)
        _logger.warning("could not take over run `%s`; retrying in %g s", run_id, seconds, exc_info=error)
        await self._note(run_id, f"{type(error).__name__}: {error}")
        return seconds

    async def succeeded(self, run_id: str) -> None:
        """Forget the failures of a run."""
        if self._delays.pop(run_id, None) is not None:
            await self._note(run_id, None)

    def forget_old(self) -> None:
        """Forget runs that have not been tried for a long time."""
        oldest = monotonic() - _FORGET_AFTER
        self._delays = {run_id: delay for run_id, delay in self._delays.items() if delay.until > oldest}

    async def _note(self, run_id: str, reason: str | None) -> None:
        """Keep the reason with the run, where `baton runs` shows it."""
        note = None if reason is None else reason.encode(errors="replace")
        if not has_part(self._store, SupportsNotes):
            return
        try:
            await self._store.put_note(run_id, UNDRIVABLE_NOTE, note)
        except (StoreError, RunNotFoundError):
            _logger.warning("could not store why run `%s` is not driven", run_id, exc_info=True)


class RecoveryLoop:
    """Polls a store for runs that no live worker drives, and passes them to a function.

    These are submitted and answered runs, runs whose worker died, suspended runs whose deadline has passed, and
    messages whose thread has no unfinished run.
    """

    def __init__(
        self,
        repository: RunRepository,
        take: Callable[[Sequence[RunRecord]], Awaitable[None]],
        failures: FailedAttempts,
        *,
        interval: float,
        teams: Collection[str] | None = None,
        free: Callable[[], int] = lambda: _MAX_FOUND,
        per_owner: int | None = None,
        driven: Callable[[], Mapping[str, int]] = lambda: NOTHING_DRIVEN,
    ) -> None:
        """Create a loop that looks for as many runs as `free` says.

        Of each owner it finds as many as `per_owner` leaves beside those that are `driven`, and as have failed.
        """
        self.last_success: float | None = None
        """The monotonic time of the last poll that succeeded."""
        self._repository = repository
        self._take = take
        self._failures = failures
        self._interval = interval
        self._teams = teams
        self._free = free
        self._per_owner = per_owner
        self._driven = driven
        self._wanted = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @property
    def is_running(self) -> bool:
        """True from `start` until `stop`."""
        return self._task is not None and not self._task.done()

    def start(self) -> "asyncio.Task[None]":
        """Start polling; return the task, which ends when `stop` is called."""
        self._task = asyncio.create_task(self.run(), name="baton recovery")
        return self._task

    async def stop(self) -> None:
        """Stop polling; runs that were passed on continue."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    def wake(self) -> None:
        """Poll now instead of after the interval."""
        self._wanted.set()

    async def poll(self) -> float:
        """Take the runs that are runnable now; return the seconds that it took to find them."""
        started = monotonic()
        self._failures.forget_old()
        await self._repository.inbox.promote_idle()
        free = self._free()
        if free <= 0:
            return monotonic() - started
        # Those that failed and are not due yet must not hide others.
        failed = len(self._failures)
        found = await self._repository.store.runnable(
            teams=self._teams,
            limit=min(free + failed, _MAX_FOUND),
            per_owner=None if self._per_owner is None else self._per_owner + failed,
            driven=self._driven(),
        )
        seconds = monotonic() - started
        due = [record for record in found if self._failures.is_due(record.run_id)]
        if due:
            await self._take(due)
        return seconds

    async def run(self) -> None:
        """Poll until the task is cancelled."""
        while True:
            pause = self._interval
            self._wanted.clear()
            try:
                pause = min(max(pause, await self.poll() / _MAX_POLL_LOAD), _MAX_PAUSE)
                self.last_success = monotonic()
            except Exception:
                # The store may be unavailable for a while; runs driven here continue while their leases last.
                _logger.warning("could not list unfinished runs", exc_info=True)
            try:
                async with asyncio.timeout(pause):
                    await self._wanted.wait()
            except TimeoutError:
                continue
