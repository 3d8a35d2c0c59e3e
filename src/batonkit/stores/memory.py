"""A store in the memory of one process, for tests and for runs that need not outlive it."""

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from threading import Lock
from typing import Unpack

from msgspec.structs import replace

from ..arguments import check_arguments, check_positive
from ..errors import RunExistsError, ThreadBusyError
from ..events.codec import READER_VERSION
from . import inbox as inboxes
from . import records
from .base import (
    FINISHED_STATUSES,
    InboxState,
    Lease,
    RecordPage,
    RunFilters,
    RunFlags,
    RunRecord,
    RunStatus,
    WaitingMessage,
)
from .records import Append, LeaseMethods, NewLog


class MemoryStore(LeaseMethods):
    """A store in memory; its runs are lost when the process ends.

    No method waits, so that each is atomic for other tasks; the lock is for other threads.

    Args:
        lease_seconds: How long a run stays reserved for a worker that died.
        clock: Returns the time, for tests.
    """

    @check_arguments
    def __init__(self, *, lease_seconds: float = 30.0, clock: Callable[[], float] = time.time) -> None:
        check_positive("MemoryStore(lease_seconds=…)", lease_seconds)
        self.lease_seconds = lease_seconds
        """Seconds for which a run stays reserved for a worker that died."""
        self._clock = clock
        self._records: dict[str, RunRecord] = {}
        self._lines: dict[str, list[bytes]] = {}
        self._notes: dict[str, dict[str, bytes]] = {}
        self._busy: dict[str, str] = {}
        """Unfinished runs by thread."""
        self._threads: dict[str, list[str]] = {}
        """All runs by thread, oldest first."""
        self._inboxes: dict[str, list[WaitingMessage]] = {}
        """Waiting messages by thread, oldest first."""
        self._created = 0
        self._enqueued = 0
        self._lock = Lock()

    def __repr__(self) -> str:
        return "MemoryStore()"

    async def _create(self, record: RunRecord, log: NewLog, previous: str | None, *, from_inbox: bool) -> Lease:
        with self._lock:
            if record.run_id in self._records:
                raise RunExistsError(record.run_id)
            self._check_not_busy(record)
            waiting = self._inboxes.get(record.thread, ()) if record.thread else ()
            oldest = waiting[0].run_id if waiting else ""
            inboxes.check_turn(record.thread, oldest, record.run_id, from_inbox=from_inbox)
            last = records.check_previous(record.thread, self._last_run(record.thread), previous)
            if log.forked_from:
                record = records.after_fork(record, self._get(log.forked_from))
            self._created += 1
            state = self._drop_messages(record.thread, 1) if from_inbox else ""
            record = replace(record, number=self._created, previous=last, inbox=state)
            self._put(record)
            self._lines[record.run_id] = list(log.lines)
            if log.notes:
                self._notes[record.run_id] = dict(log.notes)
        return records.to_lease(record)

    async def _append(self, change: Append) -> RunFlags:
        now, state = self._clock(), None
        with self._lock:
            known = self._get(change.run_id)
            if change.take:
                change.check(known)
                waiting = self._inboxes.get(known.thread, [])
                inboxes.check_taken(change.take, [one.run_id for one in waiting[: len(change.take)]])
                state = inboxes.state_of(waiting[len(change.take) :])
            record = change.apply(known, now, inbox=state)
            self._check_not_busy(record)
            if change.may_revive and record.thread and not records.keeps_thread_busy(known.status):
                records.check_is_last(record.run_id, self._last_run(record.thread))
            self._put(record)
            self._lines[change.run_id].extend(change.lines)
            if change.notes:
                self._notes.setdefault(change.run_id, {}).update(change.notes)
            if change.take:
                self._drop_messages(record.thread, len(change.take))
        return records.to_flags(record)

    async def load(self, run_id: str, *, start: int = 0) -> Sequence[bytes]:
        """Load lines; see `Store.load`."""
        with self._lock:
            self._get(run_id)
            return self._lines[run_id][start:]

    async def record(self, run_id: str) -> RunRecord | None:
        """Return a run's record; see `Store.record`."""
        record = self._records.get(run_id)
        return None if record is None else records.read_at(record, self._clock())

    async def list(self, **filters: Unpack[RunFilters]) -> RecordPage:
        """Return a page of records; see `Store.list`."""
        query = records.parse_filters(filters)
        with self._lock:
            return records.select_page(query, self._all())

    async def runnable(
        self, *, teams: Collection[str] | None = None, limit: int = 100, reader: int = READER_VERSION
    ) -> Sequence[RunRecord]:
        """Return the runs to drive; see `Store.runnable`."""
        now = self._clock()
        with self._lock:
            found = [record for record in self._all() if records.is_runnable(record, teams, reader, now)]
        return sorted(found, key=records.runnable_order)[:limit]

    async def put_note(self, run_id: str, name: str, note: bytes | None) -> None:
        """Set or remove a note; see `Store.put_note`."""
        records.check_names(run_id, name=name)
        with self._lock:
            self._get(run_id)
            notes = self._notes.setdefault(run_id, {})
            if note is None:
                notes.pop(name, None)
            else:
                notes[name] = note

    async def notes(self, run_id: str) -> Mapping[str, bytes]:
        """Return a run's notes; see `Store.notes`."""
        with self._lock:
            return records.public_notes(self._notes.get(run_id, {}))

    async def read_notes(self, run_ids: Sequence[str], name: str) -> Mapping[str, bytes]:
        """Return one note of several runs; see `Store.read_notes`."""
        with self._lock:
            return {id: self._notes[id][name] for id in run_ids if name in self._notes.get(id, ())}

    async def delete(self, run_id: str) -> bool:
        """Delete a run; see `Store.delete`."""
        with self._lock:
            return self._delete_run(run_id)

    async def expire(self, older_than: float, *, status: Collection[RunStatus] = FINISHED_STATUSES) -> int:
        """Delete old runs; see `Store.expire`."""
        status, now = records.check_statuses(status), self._clock()
        with self._lock:
            expired = [one for one in self._records.values() if records.is_expired(one, older_than, status, now)]
            return sum(self._delete_run(one.run_id) for one in expired)

    async def erase(self, *, owner: str = "", thread: str = "") -> int:
        """Delete everything of an owner or a thread; see `Store.erase`."""
        origin = records.erased_origin(owner, thread)
        with self._lock:
            for name, waiting in [*self._inboxes.items()]:
                kept = [one for one in waiting if one.owner != owner] if owner else waiting if name != thread else []
                self._inboxes[name] = kept
                self._notify(name, self._drop_messages(name, 0))
            erased = [one for one in self._records.values() if records.has_data_of(one, origin)]
            return sum(self._delete_run(one.run_id) for one in erased)

    async def enqueue(self, message: WaitingMessage, *, limit: int) -> bool:
        """Add a waiting message; see `Store.enqueue`."""
        records.check_names(message.run_id, thread=message.thread, owner=message.owner)
        with self._lock:
            if message.run_id in self._records or self._find_message(message.run_id) is not None:
                raise RunExistsError(message.run_id)
            waiting = self._inboxes.setdefault(message.thread, [])
            inboxes.check_room(message.thread, len(waiting), limit)
            self._enqueued += 1
            waiting.append(replace(message, number=self._enqueued, created_at=self._clock()))
            busy = self._busy.get(message.thread)
            if busy is not None:
                state = inboxes.state_of(waiting)
                self._records[busy] = inboxes.after_enqueue(self._records[busy], state, message.mode)
            return busy is not None

    async def waiting(self, run_id: str) -> WaitingMessage | None:
        """Return a waiting message; see `Store.waiting`."""
        with self._lock:
            return self._find_message(run_id)

    async def inbox(self, thread: str, *, limit: int = 100) -> Sequence[WaitingMessage]:
        """Return the messages of a thread; see `Store.inbox`."""
        with self._lock:
            return self._inboxes.get(thread, [])[:limit]

    async def withdraw(self, run_id: str) -> bool:
        """Remove a waiting message; see `Store.withdraw`."""
        with self._lock:
            message = self._find_message(run_id)
            if message is None:
                return False
            self._inboxes[message.thread].remove(message)
            self._notify(message.thread, self._drop_messages(message.thread, 0))
            return True

    async def notify(self, thread: str) -> bool:
        """Tell a thread's unfinished run what waits; see `Store.notify`."""
        with self._lock:
            return self._notify(thread, inboxes.state_of(self._inboxes.get(thread, ())))

    async def idle_threads(self, *, limit: int = 100) -> Sequence[str]:
        """Return threads whose messages wait for no run; see `Store.idle_threads`."""
        with self._lock:
            idle = [waiting[0] for thread, waiting in self._inboxes.items() if thread not in self._busy]
        return [message.thread for message in sorted(idle, key=lambda message: message.number)[:limit]]

    async def close(self) -> None:
        """Do nothing; the runs stay."""

    async def renew(self, leases: Sequence[Lease], *, ttl: float) -> Mapping[str, Lease]:
        """Renew leases; see `Store.renew`."""
        renewed: dict[str, Lease] = {}
        now = self._clock()
        with self._lock:
            for lease in leases:
                record = records.after_renew(self._records.get(lease.run_id), lease, ttl=ttl, now=now)
                if record is not None:
                    self._records[lease.run_id] = record
                    renewed[lease.run_id] = records.to_lease(record)
        return renewed

    async def _update_record(self, run_id: str, update: Callable[[RunRecord], RunRecord | None]) -> RunRecord | None:
        with self._lock:
            record = self._records.get(run_id)
            updated = None if record is None else update(record)
            if updated is not None:
                self._records[run_id] = updated
            return updated

    def _get(self, run_id: str) -> RunRecord:
        return records.require_run(self._records.get(run_id), run_id, self)

    def _all(self) -> Sequence[RunRecord]:
        now = self._clock()
        return [records.read_at(record, now) for record in self._records.values()]

    def _find_message(self, run_id: str) -> WaitingMessage | None:
        return next((one for waiting in self._inboxes.values() for one in waiting if one.run_id == run_id), None)

    def _drop_messages(self, thread: str, count: int) -> InboxState:
        """Remove the oldest messages of a thread; return the state of what is left."""
        waiting = self._inboxes[thread]
        del waiting[:count]
        if not waiting:
            del self._inboxes[thread]
        return inboxes.state_of(waiting)

    def _notify(self, thread: str, state: InboxState) -> bool:
        busy = self._busy.get(thread)
        if busy is not None:
            self._records[busy] = replace(self._records[busy], inbox=state)
        return busy is not None

    def _last_run(self, thread: str) -> str:
        runs = self._threads.get(thread)
        return runs[-1] if runs else ""

    def _check_not_busy(self, record: RunRecord) -> None:
        busy = self._busy.get(record.thread, "")
        if busy and busy != record.run_id and records.keeps_thread_busy(record.status):
            raise ThreadBusyError(record.thread, busy, self._records[busy].status)

    def _put(self, record: RunRecord) -> None:
        if record.thread:
            if record.run_id not in self._records:
                self._threads.setdefault(record.thread, []).append(record.run_id)
            if records.keeps_thread_busy(record.status):
                self._busy[record.thread] = record.run_id
            elif self._busy.get(record.thread) == record.run_id:
                del self._busy[record.thread]
        self._records[record.run_id] = record

    def _delete_run(self, run_id: str) -> bool:
        record = self._records.pop(run_id, None)
        if record is None:
            return False
        del self._lines[run_id]
        self._notes.pop(run_id, None)
        if record.thread:
            self._threads[record.thread].remove(run_id)
            if not self._threads[record.thread]:
                del self._threads[record.thread]
        if self._busy.get(record.thread) == run_id:
            del self._busy[record.thread]
        return True
