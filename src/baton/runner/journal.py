"""Between a run and whoever listens to it: what happens is stored first and told afterwards.

Holds the leases of the runs that are under way here, and listens for word from others to stop them.
"""

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

Begin: TypeAlias = Callable[[Sequence[bytes]], Awaitable[Lease]]


class _Batch(Struct, frozen=True):
    """What is stored in one piece, and what is told once that is done."""

    lines: Sequence[bytes]
    status: RunStatus | None
    untold: Sequence[Event | Delta]


class Journal:
    """Keeps what happens in a run until it is stored, in one piece for all that happened since the last time.

    Once it has failed it takes nothing more, and everybody who waits for it is told why: the run must stop.
    """

    def __init__(
        self,
        store: Store,
        *,
        begin: Begin | None = None,
        lease: Lease | None = None,
        seq: int = 0,
        status: RunStatus | None = None,
        listener: EventSink | None = None,
    ) -> None:
        """`begin` makes the run with its first lines; without it, the run has `seq` lines and is held by `lease`.

        `status` is stored with whatever is stored first.
        """
        self._store = store
        self._begin = begin
        self.lease = lease
        self.is_given_back = False
        """Whether the lease is held no longer."""
        self._seq = seq
        self._lines: list[bytes] = []
        self._untold: list[Event | Delta] = []
        self._hushed: set[str] = set()
        """The keys of those among them that are kept from whoever listens."""
        self._status: RunStatus | None = status
        self._busy: asyncio.Future[None] | None = None
        self.listener = listener
        self.failure: BaseException | None = None

    @property
    def is_full(self) -> bool:
        """Whether something waits to be stored, or the listener to be waited for."""
        return bool(self._lines) or self.failure is not None or (self.listener is not None and self.listener.is_full)

    @property
    def can_defer(self) -> bool:
        """Whether nobody listens who is in a hurry: then what happened may be stored together with what comes next."""
        return (self.listener is None or self.listener.can_defer) and self.failure is None

    @property
    def has_subscribers(self) -> bool:
        """Whether somebody listens."""
        return self.listener is not None and self.listener.has_subscribers

    def put(self, event: Event | Delta) -> None:
        """Take one event. What is not recorded is told at once, unless something that is waits before it."""
        if isinstance(event, Event):
            self._keep(event)
        if self.listener is None or self.failure is not None:
            return
        if self._lines or self._busy is not None:
            self._untold.append(event)
        else:
            self.listener.put(event)

    def put_muted(self, event: Event) -> None:
        """Take one event that is stored like all others, and kept from whoever listens."""
        self._keep(event)
        if self.listener is not None and self.failure is None:
            self._hushed.add(event.key)
            self._untold.append(event)

    async def drain(self) -> None:
        """Return when everything is stored and told. Raises what the store raised."""
        while self._lines or self._status is not None or self._busy is not None:
            if self.failure is not None:
                raise self.failure
            if self._busy is not None:
                await asyncio.wait([self._busy])
            else:
                await self._store_pending()
        if self.failure is not None:
            raise self.failure
        if self.listener is not None and self.listener.is_full:
            await self.listener.drain()

    async def finish(self, status: RunStatus) -> None:
        """Store what is left together with the run's status, and give the lease back."""
        try:
            if self.failure is None:
                self._status = status
                await self.drain()
        finally:
            await self._give_back()

    def fail(self, error: BaseException) -> None:
        """Take nothing more: the run is somebody else's, or the store cannot be reached."""
        if self.failure is None:
            self.failure = error
            self._lines.clear()
            self._untold.clear()
            self._status = None

    def _keep(self, event: Event) -> None:
        # Encoded at once: what is not JSON is refused where it is made, and nothing of it is taken.
        if self.failure is None:
            self._lines.append(encode_event(event))

    async def _give_back(self) -> None:
        if self.lease is None:
            return
        try:
            await self._store.release(self.lease)
            self.is_given_back = True
        except StoreError:
            # It runs out by itself; what matters is stored.
            _logger.warning("the lease on run `%s` could not be given back", self.lease.run_id, exc_info=True)

    async def _store_pending(self) -> None:
        batch = _Batch(self._lines, self._status, self._untold)
        self._lines, self._status, self._untold = [], None, []
        busy = self._busy = asyncio.get_running_loop().create_future()
        try:
            if self._begin is not None:
                await _to_the_end(self._commit(batch))
                return
            try:
                await self._commit(batch)
            except asyncio.CancelledError:
                # The store has all of it or nothing, and only the store knows which.
                await _to_the_end(self._commit(batch, is_again=True), is_cancelled=True)
        finally:
            self._busy = None
            busy.set_result(None)

    async def _commit(self, batch: _Batch, *, is_again: bool = False) -> None:
        try:
            if self._begin is not None:
                await self._begin_with(self._begin, batch)
            else:
                await self._append(batch, is_again=is_again)
        except Exception as error:
            self.fail(error)
            raise
        if self.listener is not None:
            untold = batch.untold
            if not self._lines:
                # What is left has been put meanwhile, and is not recorded.
                untold, self._untold = [*untold, *self._untold], []
            for event in untold:
                if self._hushed and isinstance(event, Event) and event.key in self._hushed:
                    self._hushed.remove(event.key)
                    self.listener.put_muted(event)
                else:
                    self.listener.put(event)

    async def _begin_with(self, begin: Begin, batch: _Batch) -> None:
        self.lease = await begin([encode_header(), *batch.lines])
        self._begin, self._seq = None, len(batch.lines) + 1
        if batch.status is not None:
            await self._append(_Batch((), batch.status, ()), is_again=False)

    async def _append(self, batch: _Batch, *, is_again: bool) -> None:
        lease, pause = self.lease, _FIRST_PAUSE
        assert lease is not None
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                await self._store.append(lease.run_id, self._seq, batch.lines, status=batch.status, fence=lease.fence)
                break
            except RunConflictError:
                if (is_again or attempt > 1) and await self._was_written(lease, len(batch.lines)):
                    break
                raise
            except ThreadBusyError:
                raise
            except StoreError:
                if attempt == _ATTEMPTS:
                    raise
                _logger.warning("run `%s` could not be written to; trying again", lease.run_id, exc_info=True)
                await asyncio.sleep(pause)
                pause *= 2
        self._seq += len(batch.lines)

    async def _was_written(self, lease: Lease, count: int) -> bool:
        """Whether an attempt got through of which the store could not tell us, because the connection was cut."""
        record = await self._store.record(lease.run_id)
        return record is not None and record.fence == lease.fence and record.seq == self._seq + count


async def _to_the_end(work: Coroutine[Any, Any, None], *, is_cancelled: bool = False) -> None:
    """Do it, however often we are cancelled meanwhile, and only then be cancelled: half-known writes help nobody."""
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
