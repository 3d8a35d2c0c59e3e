"""A store in the memory of one process: for tests, and for runs that need not outlive it."""

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from threading import Lock
from typing import Literal, Unpack

from ..errors import RunExistsError, RunNotFoundError, ThreadBusyError
from . import records
from .base import FINISHED_STATUSES, Lease, RecordPage, RunFilters, RunRecord, RunStatus
from .records import parse_filters, select_page


class MemoryStore:
    """Keeps logs in memory. Whatever it holds is gone when the process ends.

    No method waits for anything, so that to other tasks each happens at once; the lock is for other threads.
    """

    is_immediate = True

    def __init__(self, *, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._records: dict[str, RunRecord] = {}
        self._lines: dict[str, list[bytes]] = {}
        self._notes: dict[str, dict[str, bytes]] = {}
        self._busy: dict[str, str] = {}
        """The run that keeps a thread busy, by thread."""
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
        """Begin a run with its first lines."""
        record = records.begun(
            run_id, len(lines), thread=thread, owner=owner, worker=worker, ttl=ttl, now=self._clock()
        )
        with self._lock:
            if run_id in self._records:
                raise RunExistsError(run_id)
            self._put(record)
            self._lines[run_id] = list(lines)
        return records.lease_of(record)

    async def append(
        self,
        run_id: str,
        expected_seq: int,
        lines: Sequence[bytes],
        *,
        status: RunStatus | None = None,
        fence: int | None = None,
    ) -> None:
        """Add lines after the first `expected_seq`."""
        now = self._clock()
        with self._lock:
            record = self._known(run_id)
            self._put(records.appended(record, expected_seq, len(lines), status=status, fence=fence, now=now))
            self._lines[run_id].extend(lines)

    async def load(self, run_id: str, *, start: int = 0) -> Sequence[bytes]:
        """The lines of a run from number `start` on."""
        with self._lock:
            self._known(run_id)
            return self._lines[run_id][start:]

    async def record(self, run_id: str) -> RunRecord | None:
        """What is known about a run."""
        return self._records.get(run_id)

    async def list(self, **wanted: Unpack[RunFilters]) -> RecordPage:
        """A page of records."""
        query = parse_filters(wanted)
        with self._lock:
            records = [*self._records.values()]
        return select_page(query, records)

    async def put_note(self, run_id: str, name: str, note: bytes | None) -> None:
        """Keep a note beside a run's log, or take it away."""
        records.checked_names(run_id, name=name)
        with self._lock:
            self._known(run_id)
            notes = self._notes.setdefault(run_id, {})
            if note is None:
                notes.pop(name, None)
            else:
                notes[name] = note

    async def notes(self, run_id: str) -> Mapping[str, bytes]:
        """The notes of a run by name."""
        with self._lock:
            return dict(self._notes.get(run_id, {}))

    async def delete(self, run_id: str) -> bool:
        """Forget a run."""
        with self._lock:
            return self._forget(run_id)

    async def expire(self, older_than: float, *, status: Collection[RunStatus] = FINISHED_STATUSES) -> int:
        """Forget runs that nobody has written to for long."""
        status, now = records.checked_status(status), self._clock()
        with self._lock:
            expired = [
                one for one in self._records.values() if records.is_expired(one, older_than, status=status, now=now)
            ]
            return sum(self._forget(one.run_id) for one in expired)

    async def acquire(self, run_id: str, worker: str, *, ttl: float) -> Lease:
        """Take the lease on a run."""
        with self._lock:
            record = records.acquired(self._known(run_id), worker, ttl=ttl, now=self._clock())
            self._records[run_id] = record
        return records.lease_of(record)

    async def renew(self, lease: Lease, *, ttl: float) -> Lease:
        """Hold a lease for longer."""
        with self._lock:
            record = records.renewed(self._known(lease.run_id), lease, ttl=ttl, now=self._clock())
            self._records[lease.run_id] = record
        return records.lease_of(record)

    async def release(self, lease: Lease) -> None:
        """Give a lease back."""
        with self._lock:
            if (record := self._records.get(lease.run_id)) is not None:
                self._records[lease.run_id] = records.released(record, lease)

    async def request_cancel(self, run_id: str, when: Literal["now", "after_turn"]) -> bool:
        """Leave word for the run's driver to stop."""
        with self._lock:
            record = self._records.get(run_id)
            asked_record = record and records.asked_to_cancel(record, when)
            if asked_record is None:
                return False
            self._records[run_id] = asked_record
            return True

    async def close(self) -> None:
        """Nothing to give back; the runs stay."""

    def _known(self, run_id: str) -> RunRecord:
        if (record := self._records.get(run_id)) is None:
            raise RunNotFoundError(run_id, store=repr(self))
        return record

    def _put(self, record: RunRecord) -> None:
        """Keep a record, unless another run keeps its thread busy."""
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

    def _forget(self, run_id: str) -> bool:
        record = self._records.pop(run_id, None)
        if record is None:
            return False
        del self._lines[run_id]
        self._notes.pop(run_id, None)
        if self._busy.get(record.thread) == run_id:
            del self._busy[record.thread]
        return True
