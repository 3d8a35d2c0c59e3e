"""A store in the memory of one process, for tests and for runs that need not outlive it."""

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from threading import Lock
from typing import Unpack

from msgspec.structs import replace

from ..arguments import check_arguments
from ..errors import RunExistsError, ThreadBusyError
from . import records
from .base import FINISHED_STATUSES, CancelRequest, Lease, RecordPage, RunFilters, RunRecord, RunStatus
from .records import Append, LeaseMethods


class MemoryStore(LeaseMethods):
    """A store in memory; its runs are lost when the process ends.

    No method waits, so that each is atomic for other tasks; the lock is for other threads.

    Args:
        clock: Returns the time, for tests.
    """

    @check_arguments
    def __init__(self, *, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._records: dict[str, RunRecord] = {}
        self._lines: dict[str, list[bytes]] = {}
        self._notes: dict[str, dict[str, bytes]] = {}
        self._busy: dict[str, str] = {}
        """Unfinished runs by thread."""
        self._threads: dict[str, list[str]] = {}
        """All runs by thread, oldest first."""
        self._created = 0
        self._lock = Lock()

    def __repr__(self) -> str:
        return "MemoryStore()"

    async def _create(self, record: RunRecord, lines: Sequence[bytes], previous: str | None) -> Lease:
        with self._lock:
            if record.run_id in self._records:
                raise RunExistsError(record.run_id)
            self._check_not_busy(record)
            last = records.check_previous(record.thread, self._last_run(record.thread), previous)
            self._created += 1
            record = replace(record, number=self._created, previous=last)
            self._put(record)
            self._lines[record.run_id] = list(lines)
        return records.to_lease(record)

    async def _append(self, change: Append) -> CancelRequest:
        now = self._clock()
        with self._lock:
            record = change.apply(self._get(change.run_id), now)
            self._check_not_busy(record)
            self._put(record)
            self._lines[change.run_id].extend(change.lines)
        return record.cancel_requested

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

    async def runnable(self, *, teams: Collection[str] | None = None, limit: int = 100) -> Sequence[RunRecord]:
        """Return the runs to drive; see `Store.runnable`."""
        now = self._clock()
        with self._lock:
            found = [record for record in self._all() if records.is_runnable(record, teams, now)]
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
            return dict(self._notes.get(run_id, {}))

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
