"""The journal, which stores a run's events before it delivers them, and the heartbeat that renews leases."""

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Container, Coroutine, Mapping, Sequence
from time import monotonic
from typing import Any, Protocol, TypeAlias

from msgspec import Struct

from ...context.run_state import RecordMessage, SentMessage
from ...errors import BatonError, MessageGoneError, RunConflictError, RunNotFoundError, StoreError, ThreadBusyError
from ...log import Delta, Event, UserMessageAdded, encode_event
from ...log.codec import encode_header
from ...log.log import EventSink
from ...stores import (
    AppendOptions,
    CancelRequest,
    CancelWhen,
    FullStore,
    InboxState,
    Lease,
    RunFlags,
    RunRecord,
    RunStatus,
    Store,
)
from ...stores.parts import innermost_store
from ..background.relay import RunRelay
from ..threads.waiting_messages import user_messages_of

_logger = logging.getLogger("baton.runner")
_ATTEMPTS = 6
_FIRST_PAUSE = 0.05
_MAX_RENEW_INTERVAL = 2.0
_DEFAULT_STORE_SECONDS = 10.0
"""The time limit of a cancelled run's last write, for stores without a `timeout`."""
_LAST_SECONDS = 1.0
"""The time limit of a cancelled run's last write if the store took long already."""

CreateRun: TypeAlias = Callable[[Sequence[bytes]], Awaitable[Lease]]
Delivery: TypeAlias = tuple[Callable[[Any], None], Event | Delta]
"""A method of the sink, and the item to call it with."""


class _Batch(Struct, frozen=True):
    """Lines and a status to store in one append, and the items to deliver afterwards."""

    lines: Sequence[bytes]
    status: RunStatus | None
    undelivered: Sequence[Delivery]
    wake_at: float = 0.0
    """The time at which a worker drives the run next; stored together with a status."""
    notes: Mapping[str, bytes] = {}
    """Notes to store together with the lines."""
    take: Sequence[str] = ()
    """Ids of the waiting messages that the lines record."""


class Journal:
    """An event sink that stores events in batches and delivers them once they are stored.

    After a failure it accepts nothing more and raises the failure to every waiter, so that the run stops.
    """

    def __init__(
        self,
        store: FullStore,
        *,
        create: CreateRun | None = None,
        lease: Lease | None = None,
        lease_deadline: float = math.inf,
        seq: int = 0,
        status: RunStatus | None = None,
        sink: EventSink | None = None,
        thread: str = "",
        run: "SupportsStop | None" = None,
    ) -> None:
        """Create a journal for a new run (`create`) or for a stored one (`lease` and `seq`)."""
        self._store = store
        self._create = create
        self.lease = lease
        self.thread = thread
        self.run = run
        self.cancel_requested: CancelRequest = ""
        """The request to cancel the run, as of the last append."""
        self.inbox: InboxState = lease.inbox if lease is not None else ""
        """The messages that wait for the thread, as of the last append or renewal of the lease."""
        self.previous_worker = ""
        self.last_heartbeat = 0.0
        self.lease_deadline = lease_deadline
        """The monotonic time until which the lease is valid for certain."""
        self._store_seconds: float = getattr(innermost_store(store), "timeout", _DEFAULT_STORE_SECONDS)
        self.is_released = False
        """True once the lease has been released."""
        self._seq = seq
        self._lines: list[bytes] = []
        self._undelivered: list[Delivery] = []
        self._status: RunStatus | None = status
        self._wake_at = 0.0
        self._notes: dict[str, bytes] = {}
        self.relay: RunRelay | None = None
        """Tells other processes that watch the run; None if no one may watch it."""
        self._count = max(seq - 1, 0)
        """The number of events, also of those that are not stored yet."""
        self.reader = 0
        """The version that the record must name from the next append on; 0 if it does so already."""
        self._is_writing = False
        self._written: asyncio.Future[None] | None = None
        """The end of the write in progress, for tasks that wait for it."""
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
    def is_steered(self) -> bool:
        """Return whether a message to steer the run waits."""
        return self.inbox == "steer"

    @property
    def has_subscribers(self) -> bool:
        """Return whether deltas have a receiver."""
        if self.sink is not None and self.sink.has_subscribers:
            return True
        # Another process may begin to watch the run in the middle of a response.
        return self.relay is not None and self.relay.is_live

    def put(self, event: Event | Delta) -> None:
        """Add an event or delta. A delta is delivered at once unless undelivered events precede it."""
        if isinstance(event, Event):
            self._add_line(event)
        elif self.relay is not None and self.relay.is_live and self.lease is not None:
            self.relay.put(self.lease.run_id, self._count, event)
        if self.sink is None or self.failure is not None:
            return
        if self._lines or self._is_writing:
            self._undelivered.append((self.sink.put, event))
        else:
            self.sink.put(event)

    def put_muted(self, event: Event) -> None:
        """Add an event that is stored but delivered to observers only."""
        self._add_line(event)
        if self.sink is not None and self.failure is None:
            self._undelivered.append((self.sink.put_muted, event))

    async def drain(self) -> None:
        """Return when everything is stored and delivered. Raises the store's error."""
        while self._lines or self._status is not None or self._is_writing:
            if self.failure is not None:
                raise self.failure
            if self._is_writing:
                self._written = self._written or asyncio.get_running_loop().create_future()
                await asyncio.wait([self._written])
            else:
                batch = _Batch(self._lines, self._status, self._undelivered, self._wake_at, self._notes)
                self._lines = []
                self._status = None
                self._undelivered = []
                self._notes = {}
                await self._write(batch)
        if self.failure is not None:
            raise self.failure
        if self.sink is not None and self.sink.is_full:
            await self.sink.drain()

    async def catch_up(self) -> None:
        """Wait for the reader of the sink."""
        if self.sink is not None:
            await self.sink.catch_up()

    async def take_message(self, record: RecordMessage) -> Sequence[UserMessageAdded]:
        """Take the next message that steers the run, and store its events in the same transaction."""
        while self.is_steered:
            waiting = await self._store.inbox(self.thread, limit=1)
            if not waiting or waiting[0].mode != "steer":
                # An older message does not steer, or all of them were withdrawn.
                self.inbox = "waiting"
                break
            message = waiting[0]
            events = await record([SentMessage(one, message.run_id) for one in user_messages_of(message)])
            await self.drain()
            sink = self.sink
            delivery = [(sink.put, event) for event in events] if sink is not None else ()
            lines = [encode_event(event) for event in events]
            try:
                await self._write(_Batch(lines, None, delivery, take=[message.run_id]))
            except MessageGoneError:
                continue  # It was withdrawn meanwhile.
            self._count += len(events)
            return events
        return ()

    async def finish(
        self, status: RunStatus, *, wake_at: float = 0.0, notes: Mapping[str, bytes] | None = None
    ) -> None:
        """Store the remaining events and the status; the lease ends with it.

        If the run is to be cancelled and has not finished, the lease stays.
        """
        if self.failure is None:
            self._status = status
            self._wake_at = wake_at
            self._notes.update(notes or {})
            await self.drain()

    async def release(self) -> None:
        """Release the lease, although the run may be cancelled again meanwhile.

        If the store does not answer, the lease expires by itself.
        """
        if self.lease is None or self.is_released or isinstance(self.failure, _UnconfirmedError):
            return
        try:
            await self._release(self.lease)
        except asyncio.CancelledError:
            await self._finish_despite_cancel(self._release(self.lease), seconds=self._store_seconds)

    async def _release(self, lease: Lease) -> None:
        try:
            await self._store.release(lease)
            self.is_released = True
        except StoreError:
            _logger.warning("could not release the lease on run `%s`", lease.run_id, exc_info=True)

    def check(self) -> None:
        """Raise RunConflictError, and store nothing more, unless the lease is certain to be valid."""
        if monotonic() >= self.lease_deadline and self.lease is not None:
            error = RunConflictError(self.lease.run_id, "this worker did not renew its lease in time")
            self.fail(error)
            raise error

    async def now(self) -> float:
        """Return the time of the store's clock."""
        return await self._store.now()

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
            self._count += 1

    async def _write(self, batch: _Batch) -> None:
        self._is_writing = True
        started = monotonic()
        try:
            if self._create is not None:
                await self._finish_despite_cancel(self._commit(batch))
                return
            try:
                await self._commit(batch)
            except asyncio.CancelledError:
                # The store has all of the batch or none of it, and only the store knows which.
                # If it took long already, the store hangs.
                left = max(_LAST_SECONDS, started + self._store_seconds - monotonic())
                await self._finish_despite_cancel(self._commit(batch, is_retry=True), seconds=left)
        finally:
            written = self._written
            self._is_writing = False
            self._written = None
            if written is not None:
                written.set_result(None)

    async def _commit(self, batch: _Batch, *, is_retry: bool = False) -> None:
        try:
            if self._create is not None:
                self.lease = await self._create([encode_header(), *batch.lines])
                self._create = None
                self._seq = len(batch.lines) + 1
                if batch.status is not None or batch.notes:
                    await self._append(_Batch((), batch.status, (), batch.wake_at, batch.notes), is_retry=False)
            else:
                await self._append(batch, is_retry=is_retry)
        except MessageGoneError:
            raise
        except Exception as error:
            self.fail(error)
            raise
        undelivered = batch.undelivered
        if not self._lines:
            # Only deltas can have arrived meanwhile.
            undelivered = [*undelivered, *self._undelivered]
            self._undelivered = []
        for deliver, event in undelivered:
            deliver(event)

    async def _append(self, batch: _Batch, *, is_retry: bool) -> None:
        lease = self.lease
        assert lease is not None
        options = self._options(batch, lease)
        flags = await self._append_until_it_works(batch, lease, options, is_retry=is_retry)
        self.cancel_requested = flags.cancel_requested
        self.inbox = flags.inbox
        if flags.cancel_requested and self.run is not None:
            self.run._stop_on_request(flags.cancel_requested)
        self._seq += len(batch.lines)
        self.is_released = options.get("release", False) and not flags.cancel_requested
        if self.relay is not None:
            self.relay.stored(lease.run_id, self._seq - 1)

    async def _append_until_it_works(
        self, batch: _Batch, lease: Lease, options: AppendOptions, *, is_retry: bool
    ) -> RunFlags:
        attempt = 1
        pause = _FIRST_PAUSE
        while True:
            try:
                return await self._store.append(lease.run_id, self._seq, batch.lines, **options)
            except RunConflictError:
                written = await self._written_flags(lease, len(batch.lines)) if is_retry or attempt > 1 else None
                if written is None:
                    raise
                return written
            except (ThreadBusyError, MessageGoneError):
                raise
            except StoreError:
                if attempt == _ATTEMPTS:
                    raise
                _logger.warning("could not write to run `%s`; retrying", lease.run_id, exc_info=True)
                await asyncio.sleep(pause)
                attempt = attempt + 1
                pause = pause * 2

    def _options(self, batch: _Batch, lease: Lease) -> AppendOptions:
        options: AppendOptions = {"fence": lease.fence}
        if batch.status is not None:
            # A reader that sees the run stopped can acquire its lease.
            options |= {"status": batch.status, "wake_at": batch.wake_at, "release": batch.status != "running"}
        if batch.notes:
            options["notes"] = batch.notes
        if batch.take:
            options["take"] = batch.take
        if self.reader:
            options["reader"] = self.reader
        return options

    async def _written_flags(self, lease: Lease, count: int) -> RunFlags | None:
        """Return the flags if an earlier attempt succeeded and its confirmation was lost, else None."""
        record = await self._store.record(lease.run_id)
        if record is None or record.fence != lease.fence or record.seq != self._seq + count:
            return None
        return RunFlags(record.cancel_requested, record.inbox)

    async def _finish_despite_cancel(self, work: Coroutine[Any, Any, None], *, seconds: float | None = None) -> None:
        """Finish a write although the run is cancelled, and raise CancelledError afterwards.

        After the store's time limit the write is left alone: whether it succeeded shows when the run is resumed.
        """
        task = asyncio.ensure_future(work)
        is_cancelled = seconds is not None
        deadline = None if seconds is None else monotonic() + seconds
        while not task.done():
            try:
                await asyncio.wait([task], timeout=None if deadline is None else deadline - monotonic())
            except asyncio.CancelledError:
                is_cancelled = True
                deadline = deadline or monotonic() + self._store_seconds
            if deadline is not None and monotonic() >= deadline and not task.done():
                task.add_done_callback(_retrieve)
                task.cancel()
                self.fail(_UnconfirmedError(f"the store did not answer within {self._store_seconds:g} s"))
                raise asyncio.CancelledError
        failure = None if task.cancelled() else task.exception()
        if is_cancelled or task.cancelled():
            raise asyncio.CancelledError
        if failure is not None:
            raise failure


class _UnconfirmedError(StoreError):
    """The store did not confirm a write within its time limit."""


def _retrieve(task: "asyncio.Future[Any]") -> None:
    if not task.cancelled():
        task.exception()


class SupportsStop(Protocol):
    """A run that can be stopped from outside the task that drives it."""

    _driver: "asyncio.Task[Any] | None"
    """That task."""

    def _stop_for(self, error: BatonError) -> None:
        """Stop now with this error."""

    def _stop_on_request(self, when: CancelWhen) -> None:
        """Stop because cancellation was requested in the store."""

    def _release_after_turn(self) -> None:
        """Let the active agents finish their turns, then leave the run to another worker."""


class LeaseHeartbeat:
    """Renews the leases of all runs that a runner drives, and stops runs that lost theirs."""

    def __init__(self, store: Store, ttl: float) -> None:
        self._store = store
        self._ttl = ttl
        self._runs: dict[Journal, SupportsStop] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None

    def add(self, journal: Journal, run: SupportsStop) -> None:
        """Renew this run's lease from now on."""
        if self._loop is not None and self._loop.is_closed():
            # Its runs, timer and task ended without a trace.
            self._runs = {}
            self._timer = None
            self._task = None
        self._loop = asyncio.get_running_loop()
        self._runs[journal] = run
        if self._timer is None and self._task is None:
            self._schedule()

    def remove(self, journal: Journal) -> None:
        """Stop renewing this run's lease."""
        self._runs.pop(journal, None)
        if not self._runs and self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def release_after_turns(self, run_ids: Container[str]) -> None:
        """Let some runs finish their turns, then leave them to other workers."""
        for journal, run in self._runs.items():
            if journal.lease is not None and journal.lease.run_id in run_ids:
                run._release_after_turn()

    def pass_on(self, run_id: str, when: CancelWhen) -> None:
        """Stop a run that is driven here at once, instead of at its next write or renewal."""
        if self._loop is not asyncio.get_running_loop():
            return
        for journal, run in self._runs.items():
            if journal.lease is not None and journal.lease.run_id == run_id:
                run._stop_on_request(when)

    def _schedule(self) -> None:
        # A timer instead of a sleeping task: most runs end before it is due, and a timer costs next to nothing.
        interval = min(self._ttl / 3, _MAX_RENEW_INTERVAL)
        self._timer = asyncio.get_running_loop().call_later(interval, self._start_renewal)

    def _start_renewal(self) -> None:
        self._timer = None
        self._task = asyncio.ensure_future(self._renew_all())

    async def _renew_all(self) -> None:
        try:
            held = {journal: journal.lease for journal in self._runs if journal.lease is not None}
            sent = monotonic()
            renewed = await self._store.renew([*held.values()], ttl=self._ttl)
            for journal, lease in held.items():
                if lease.run_id in renewed:
                    self._renewed(journal, lease, renewed[lease.run_id], sent)
                elif self._is_held(journal, lease):
                    self._not_renewed(journal, lease, await self._store.record(lease.run_id))
        except Exception:
            # Any exception of a store: the next attempt follows, and the leases last for a while.
            _logger.warning("could not renew %d leases", len(self._runs), exc_info=True)
        finally:
            self._task = None
            if self._runs:
                self._schedule()

    def _is_held(self, journal: Journal, lease: Lease) -> bool:
        # A run that stopped meanwhile loses nothing, and its task may be busy with something else.
        return journal in self._runs and journal.lease is lease

    def _renewed(self, journal: Journal, lease: Lease, renewed: Lease, sent: float) -> None:
        if self._is_held(journal, lease):
            journal.lease = renewed
            journal.lease_deadline = sent + self._ttl
            journal.inbox = renewed.inbox
            if renewed.cancel_requested:
                self._runs[journal]._stop_on_request(renewed.cancel_requested)

    def _not_renewed(self, journal: Journal, lease: Lease, record: RunRecord | None) -> None:
        if not self._is_held(journal, lease):
            return
        if record is not None and record.fence == lease.fence:
            # Another process has locked the run; the lease lasts for a while.
            _logger.warning("could not renew the lease on run `%s`; trying again", lease.run_id)
            return
        error: BatonError = RunNotFoundError(lease.run_id, store=repr(self._store))
        if record is not None:
            error = RunConflictError(lease.run_id, f"`{record.worker}` acquired its lease")
        journal.fail(error)
        self._runs[journal]._stop_for(error)
