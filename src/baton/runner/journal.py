"""The journal, which stores a run's events before it delivers them, and the heartbeat that renews leases."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, Literal, Protocol, TypeAlias

from msgspec import Struct

from ..errors import RunConflictError, RunError, RunNotFoundError, StoreError, ThreadBusyError
from ..events import Delta, Event, encode_event
from ..events.codec import encode_header
from ..log import EventSink
from ..stores import Lease, RunStatus, Store

_logger = logging.getLogger("baton.runner")
_ATTEMPTS = 6
_FIRST_PAUSE = 0.05
_MAX_RENEW_INTERVAL = 2.0

CreateRun: TypeAlias = Callable[[Sequence[bytes]], Awaitable[Lease]]


class _Batch(Struct, frozen=True):
    """Lines and a status to store in one append, and the items to deliver afterwards."""

    lines: Sequence[bytes]
    status: RunStatus | None
    undelivered: Sequence[Event | Delta]


class Journal:
    """An event sink that stores events in batches and delivers them once they are stored.

    After a failure it accepts nothing more and raises the failure to every waiter, so that the run stops.
    """

    def __init__(
        self,
        store: Store,
        *,
        create: CreateRun | None = None,
        lease: Lease | None = None,
        seq: int = 0,
        status: RunStatus | None = None,
        sink: EventSink | None = None,
    ) -> None:
        """Create a journal for a new run (`create`) or for a stored one (`lease` and `seq`).

        Args:
            store: Where the events go.
            create: Creates the run in the store with its first lines.
            lease: The lease on a stored run.
            seq: The number of lines that the stored run has.
            status: A status to store with the first batch.
            sink: Receives the events once they are stored.
        """
        self._store = store
        self._create = create
        self.lease = lease
        self.is_released = False
        """True once the lease has been released."""
        self._seq = seq
        self._lines: list[bytes] = []
        self._undelivered: list[Event | Delta] = []
        self._hushed: set[str] = set()
        """Keys of undelivered events that only observers receive."""
        self._status: RunStatus | None = status
        self._writing: asyncio.Future[None] | None = None
        self.sink = sink
        self.failure: BaseException | None = None

    @property
    def is_full(self) -> bool:
        """Return whether events wait to be stored, or the sink is full."""
        return bool(self._lines) or self.failure is not None or (self.sink is not None and self.sink.is_full)

    @property
    def can_defer(self) -> bool:
        """Return whether storing may be delayed and combined with later events."""
        return (self.sink is None or self.sink.can_defer) and self.failure is None

    @property
    def has_subscribers(self) -> bool:
        """Return whether deltas have a receiver."""
        return self.sink is not None and self.sink.has_subscribers

    def put(self, event: Event | Delta) -> None:
        """Add an event or delta. A delta is delivered at once unless undelivered events precede it."""
        if isinstance(event, Event):
            self._add_line(event)
        if self.sink is None or self.failure is not None:
            return
        if self._lines or self._writing is not None:
            self._undelivered.append(event)
        else:
            self.sink.put(event)

    def put_muted(self, event: Event) -> None:
        """Add an event that is stored but delivered to observers only."""
        self._add_line(event)
        if self.sink is not None and self.failure is None:
            self._hushed.add(event.key)
            self._undelivered.append(event)

    async def drain(self) -> None:
        """Return when everything is stored and delivered. Raises the store's error."""
        while self._lines or self._status is not None or self._writing is not None:
            if self.failure is not None:
                raise self.failure
            if self._writing is not None:
                await asyncio.wait([self._writing])
            else:
                await self._write_pending()
        if self.failure is not None:
            raise self.failure
        if self.sink is not None and self.sink.is_full:
            await self.sink.drain()

    async def finish(self, status: RunStatus) -> None:
        """Store the remaining events together with the final status, and release the lease."""
        try:
            if self.failure is None:
                self._status = status
                await self.drain()
        finally:
            await self._release()

    def fail(self, error: BaseException) -> None:
        """Discard what is not stored and accept nothing more."""
        if self.failure is None:
            self.failure = error
            self._lines.clear()
            self._undelivered.clear()
            self._status = None

    def _add_line(self, event: Event) -> None:
        # Encoded here, so that a value that is not JSON fails where it is produced.
        if self.failure is None:
            self._lines.append(encode_event(event))

    async def _release(self) -> None:
        if self.lease is None:
            return
        try:
            await self._store.release(self.lease)
            self.is_released = True
        except StoreError:
            # The lease expires by itself, and the events are stored.
            _logger.warning("could not release the lease on run `%s`", self.lease.run_id, exc_info=True)

    async def _write_pending(self) -> None:
        batch = _Batch(self._lines, self._status, self._undelivered)
        self._lines, self._status, self._undelivered = [], None, []
        writing = self._writing = asyncio.get_running_loop().create_future()
        try:
            if self._create is not None:
                await _shielded(self._commit(batch))
                return
            try:
                await self._commit(batch)
            except asyncio.CancelledError:
                # The store has all of the batch or none of it, and only the store knows which.
                await _shielded(self._commit(batch, is_retry=True), is_cancelled=True)
        finally:
            self._writing = None
            writing.set_result(None)

    async def _commit(self, batch: _Batch, *, is_retry: bool = False) -> None:
        try:
            if self._create is not None:
                await self._create_run(self._create, batch)
            else:
                await self._append(batch, is_retry=is_retry)
        except Exception as error:
            self.fail(error)
            raise
        if self.sink is not None:
            undelivered = batch.undelivered
            if not self._lines:
                # Only deltas can have arrived meanwhile.
                undelivered, self._undelivered = [*undelivered, *self._undelivered], []
            for event in undelivered:
                if self._hushed and isinstance(event, Event) and event.key in self._hushed:
                    self._hushed.remove(event.key)
                    self.sink.put_muted(event)
                else:
                    self.sink.put(event)

    async def _create_run(self, create: CreateRun, batch: _Batch) -> None:
        self.lease = await create([encode_header(), *batch.lines])
        self._create, self._seq = None, len(batch.lines) + 1
        if batch.status is not None:
            await self._append(_Batch((), batch.status, ()), is_retry=False)

    async def _append(self, batch: _Batch, *, is_retry: bool) -> None:
        lease, pause = self.lease, _FIRST_PAUSE
        assert lease is not None
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                await self._store.append(lease.run_id, self._seq, batch.lines, status=batch.status, fence=lease.fence)
                break
            except RunConflictError:
                if (is_retry or attempt > 1) and await self._was_written(lease, len(batch.lines)):
                    break
                raise
            except ThreadBusyError:
                raise
            except StoreError:
                if attempt == _ATTEMPTS:
                    raise
                _logger.warning("could not write to run `%s`; retrying", lease.run_id, exc_info=True)
                await asyncio.sleep(pause)
                pause *= 2
        self._seq += len(batch.lines)

    async def _was_written(self, lease: Lease, count: int) -> bool:
        """Return whether an earlier attempt succeeded although its confirmation was lost."""
        record = await self._store.record(lease.run_id)
        return record is not None and record.fence == lease.fence and record.seq == self._seq + count


async def _shielded(work: Coroutine[Any, Any, None], *, is_cancelled: bool = False) -> None:
    """Finish the work despite cancellation, and raise CancelledError afterwards."""
    task = asyncio.ensure_future(work)
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError:
            is_cancelled = True
    failure = None if task.cancelled() else task.exception()
    if is_cancelled or task.cancelled():
        raise asyncio.CancelledError
    if failure is not None:
        raise failure


class SupportsStop(Protocol):
    """A run that can be stopped from outside the task that drives it."""

    def _stop_for(self, error: RunError, driver: "asyncio.Task[Any]") -> None:
        """Stop now with this error; `driver` is the task that drives the run."""
        ...

    def _stop_on_request(self, when: Literal["now", "after_turn"], driver: "asyncio.Task[Any]") -> None:
        """Stop because cancellation was requested in the store."""
        ...


class LeaseHeartbeat:
    """Renews the leases of all runs that a runner drives, and stops runs that lost theirs."""

    def __init__(self, store: Store, ttl: float) -> None:
        self._store = store
        self._ttl = ttl
        self._runs: dict[Journal, tuple[SupportsStop, asyncio.Task[Any]]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None

    def add(self, journal: Journal, run: SupportsStop) -> None:
        """Renew this run's lease from now on. Must be called by the task that drives the run."""
        driver = asyncio.current_task()
        assert driver is not None
        self._runs[journal] = (run, driver)
        if self._timer is None and self._task is None:
            self._schedule()

    def remove(self, journal: Journal) -> None:
        """Stop renewing this run's lease."""
        self._runs.pop(journal, None)
        if not self._runs and self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _schedule(self) -> None:
        # A timer instead of a sleeping task: most runs end before it is due, and a timer costs next to nothing.
        interval = min(self._ttl / 3, _MAX_RENEW_INTERVAL)
        self._timer = asyncio.get_running_loop().call_later(interval, self._start_renewal)

    def _start_renewal(self) -> None:
        self._timer = None
        self._task = asyncio.ensure_future(self._renew_all())

    async def _renew_all(self) -> None:
        try:
            for journal in [*self._runs]:
                try:
                    await self._renew(journal)
                except Exception:
                    # Any exception of a store: the other runs must keep their leases.
                    _logger.exception("could not renew a lease")
        finally:
            self._task = None
            if self._runs:
                self._schedule()

    async def _renew(self, journal: Journal) -> None:
        lease = journal.lease
        if lease is None or journal not in self._runs:
            return
        try:
            renewed = await self._store.renew(lease, ttl=self._ttl)
            record = await self._store.record(lease.run_id)
        except (RunConflictError, RunNotFoundError) as error:
            # A run that stopped meanwhile loses nothing, and its task may be busy with something else.
            if journal in self._runs:
                run, driver = self._runs[journal]
                journal.fail(error)
                run._stop_for(error, driver)
        except StoreError:
            _logger.warning("could not renew the lease on run `%s`", lease.run_id, exc_info=True)
        else:
            if journal.lease is lease:
                journal.lease = renewed
            if record is not None and record.cancel_requested and journal in self._runs:
                run, driver = self._runs[journal]
                run._stop_on_request(record.cancel_requested, driver)
