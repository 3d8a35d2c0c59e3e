"""Between a run and whoever listens to it: what happens is stored first and told afterwards."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias

from ..errors import RunConflict, StoreError
from ..events import Delta, Event, encode_event, encode_head
from ..log import Sink
from ..stores import Lease, RunStatus, Store

_logger = logging.getLogger("baton.runner")
_ATTEMPTS = 6
_FIRST_PAUSE = 0.05

Begin: TypeAlias = Callable[[Sequence[bytes]], Awaitable[Lease]]


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
        listener: Sink | None = None,
    ) -> None:
        """`begin` makes the run with its first lines; without it, the run has `seq` lines and is held by `lease`."""
        self._store = store
        self._begin = begin
        self.lease = lease
        self._seq = seq
        self._pending: list[Event | Delta] = []
        self._hushed: set[str] = set()
        """The keys of those among them that whoever listens is not told."""
        self._status: RunStatus | None = None
        self._busy: asyncio.Future[None] | None = None
        self._is_quick = bool(getattr(store, "is_immediate", False))
        self.listener = listener
        self.failure: BaseException | None = None

    @property
    def is_full(self) -> bool:
        """Whether something waits to be stored, or the listener to be waited for."""
        return bool(self._pending) or self.failure is not None or (self.listener is not None and self.listener.is_full)

    @property
    def is_patient(self) -> bool:
        """Whether nobody listens who is in a hurry: then what happened may be stored together with what comes next."""
        return (self.listener is None or self.listener.is_patient) and self.failure is None

    def put(self, event: Event | Delta) -> None:
        """Take one event. What is not recorded is told at once, unless something that is waits before it."""
        if self.failure is not None:
            return
        if self._pending or isinstance(event, Event):
            self._pending.append(event)
        elif self.listener is not None:
            self.listener.put(event)

    def put_hushed(self, event: Event) -> None:
        """Take one event that is stored like all others, and kept from whoever listens."""
        self._hushed.add(event.key)
        self.put(event)

    async def room(self) -> None:
        """Return when everything is stored and told. Raises what the store raised."""
        while self._pending or self._busy is not None:
            if self.failure is not None:
                raise self.failure
            if self._busy is not None:
                await asyncio.wait([self._busy])
                continue
            await self._store_pending()
        if self.failure is not None:
            raise self.failure
        if self.listener is not None and self.listener.is_full:
            await self.listener.room()

    async def finish(self, status: RunStatus) -> None:
        """Store what is left together with the run's status, and give the lease back."""
        if self.failure is None:
            self._status = status
            await self.room()
        if self.lease is not None:
            try:
                await self._store.release(self.lease)
            except StoreError:
                # It runs out by itself; what matters is stored.
                _logger.warning("the lease on run `%s` could not be given back", self.lease.run_id, exc_info=True)

    def fail(self, error: BaseException) -> None:
        """Take nothing more: the run is somebody else's, or the store cannot be reached."""
        if self.failure is None:
            self.failure = error
            self._pending.clear()

    async def _store_pending(self) -> None:
        batch, self._pending = self._pending, []
        status, self._status = self._status, None
        busy = self._busy = asyncio.get_running_loop().create_future()
        cancelled: asyncio.CancelledError | None = None
        try:
            lines = [encode_event(event) for event in batch if isinstance(event, Event)]
            if self._is_quick:
                await self._write(lines, status)
            else:
                await _to_the_end(self._write(lines, status))
        except asyncio.CancelledError as error:
            if self._is_quick:
                self._pending[:0], self._status = batch, status  # Nothing was written.
                raise
            cancelled = error
        except Exception as error:
            self.fail(error)
            raise
        finally:
            self._busy = None
            busy.set_result(None)
        self._tell(batch)
        if cancelled is not None:
            raise cancelled

    def _tell(self, batch: Sequence[Event | Delta]) -> None:
        if self.listener is None:
            return
        for event in batch:
            if self._hushed and isinstance(event, Event) and event.key in self._hushed:
                self.listener.put_hushed(event)
            else:
                self.listener.put(event)
        self._hushed.difference_update([event.key for event in batch if isinstance(event, Event)])

    async def _write(self, lines: Sequence[bytes], status: RunStatus | None) -> None:
        if self._begin is not None:
            self.lease = await self._begin([encode_head(), *lines])
            self._begin, self._seq = None, len(lines) + 1
            if status is None:
                return
            lines = []
        lease, pause = self.lease, _FIRST_PAUSE
        assert lease is not None
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                await self._store.append(lease.run_id, self._seq, lines, status=status, fence=lease.fence)
                break
            except RunConflict:
                if attempt > 1 and await self._was_written(lease, len(lines)):
                    break
                raise
            except StoreError:
                if attempt == _ATTEMPTS:
                    raise
                _logger.warning("run `%s` could not be written to; trying again", lease.run_id, exc_info=True)
                await asyncio.sleep(pause)
                pause *= 2
        self._seq += len(lines)

    async def _was_written(self, lease: Lease, count: int) -> bool:
        """Whether an attempt got through of which the store could not tell us, because the connection was cut."""
        record = await self._store.record(lease.run_id)
        return record is not None and record.fence == lease.fence and record.seq == self._seq + count


async def _to_the_end(work: Awaitable[None]) -> None:
    """Do it, even if we are cancelled meanwhile: half-known writes help nobody."""
    task = asyncio.ensure_future(work)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        if not task.cancelled() and (error := task.exception()) is not None:
            raise error from None
        raise
