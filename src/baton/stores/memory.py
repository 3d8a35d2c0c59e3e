"""A store in the memory of one process, for tests and for runs that need not outlive it."""

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from threading import Lock
from typing import Unpack

from ..errors import RunExistsError, RunNotFoundError, ThreadBusyError
from . import records
from .base import FINISHED_STATUSES, Lease, RecordPage, RunFilters, RunRecord, RunStatus
from .records import LeaseMethods, parse_filters, select_page


class MemoryStore(LeaseMethods):
    """A store in memory; its runs are lost when the process ends.

    No method waits, so that each is atomic for other tasks; the lock is for other threads.

    Args:
        clock: Returns the time, for tests.
    """

    is_immediate = True

    def __init__(self, *, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._records: dict[str, RunRecord] = {}
        self._lines: dict[str, list[bytes]] = {}
        self._notes: dict[str, dict[str, bytes]] = {}
        self._busy: dict[str, str] = {}
        """Unfinished runs by thread."""
        self._lock = Lock()

    def __repr__(self) -> str:
        return "MemoryStore()"

    async def create(
        self,
        run_id: str,
        lines: Sequence[bytes],
        *,
        thread: str = "",
        owner: str = "",
        worker: str = "",
        ttl: float = 0.0,
    ) -> Lease:
        """Create a run; see `Store.create`."""
        record = records.new_record(
            run_id, len(lines), thread=thread, owner=owner, worker=worker, ttl=ttl, now=self._clock()
        )
        with self._lock:
            if run_id in self._records:
                raise RunExistsError(run_id)
            self._put(record)
            self._lines[run_id] = list(lines)
        return records.to_lease(record)

    async def append(
        self,
        run_id: str,
        expected_seq: int,
        lines: Sequence[bytes],
        *,
        status: RunStatus | None = None,
        fence: int | None = None,
    ) -> None:
        """Append lines; see `Store.append`."""
        now = self._clock()
        with self._lock:
            record = self._get(run_id)
            self._put(records.after_append(record, expected_seq, len(lines), status=status, fence=fence, now=now))
            self._lines[run_id].extend(lines)

    async def load(self, run_id: str, *, start: int = 0) -> Sequence[bytes]:
        """Load lines; see `Store.load`."""
        with self._lock:
            self._get(run_id)
            return self._lines[run_id][start:]

    async def record(self, run_id: str) -> RunRecord | None:
        """Return a run's record; see `Store.record`."""
        return self._records.get(run_id)

    async def list(self, **filters: Unpack[RunFilters]) -> RecordPage:
        """Return a page of records; see `Store.list`."""
        query = parse_filters(filters)
        with self._lock:
            records = [*self._records.values()]
        return select_page(query, records)

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
            expired = [
                one for one in self._records.values() if records.is_expired(one, older_than, status=status, now=now)
            ]
            return sum(self._delete_run(one.run_id) for one in expired)

    async def close(self) -> None:
        """Do nothing; the runs stay."""

    async def _update_record(self, run_id: str, update: Callable[[RunRecord], RunRecord | None]) -> RunRecord | None:
        with self._lock:
            record = self._records.get(run_id)
            updated = None if record is None else update(record)
            if updated is not None:
                self._records[run_id] = updated
            return updated

    def _get(self, run_id: str) -> RunRecord:
        if (record := self._records.get(run_id)) is None:
            raise RunNotFoundError(run_id, store=repr(self))
        return record

    def _put(self, record: RunRecord) -> None:
        """Set a record. Raises ThreadBusyError if another run keeps its thread busy."""
        if record.thread:
            busy = self._busy.get(record.thread, "")
            if not records.keeps_thread_busy(record.status):
                if busy == record.run_id:
                    del self._busy[record.thread]
            elif busy and busy != record.run_id:
                raise ThreadBusyError(record.thread, busy, self._records[busy].status)
            else:
                self._busy[record.thread] = record.run_id
        self._records[record.run_id] = record

    def _delete_run(self, run_id: str) -> bool:
        record = self._records.pop(run_id, None)
        if record is None:
            return False
        del self._lines[run_id]
        self._notes.pop(run_id, None)
        if self._busy.get(record.thread) == run_id:
            del self._busy[record.thread]
        return True
