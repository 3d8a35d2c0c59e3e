"""A store in the memory of one process, for tests and for runs that need not outlive it."""

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from threading import Lock
from typing import Unpack

from msgspec.structs import replace

from .._checks import check_arguments, check_positive
from ..errors import RunExistsError, ThreadBusyError
from ..log.codec import READER_VERSION
from . import inboxes, records
from .records import Append, LeaseMethods, NewLog
from .store import (
    FINISHED_STATUSES,
    NOTHING_DRIVEN,
    InboxState,
    Lease,
    RecordPage,
    RunFilters,
    RunFlags,
    RunNote,
    RunRecord,
    RunStatus,
    WaitingMessage,
)


class RunsInMemory(LeaseMethods):
    """The methods of a store whose records, notes and messages are in memory.

    Between `_open` and `_save` no method waits, so that each is atomic for other tasks; the lock is for other threads.
    """

    def __init__(self, clock: Callable[[], float], lease_seconds: float) -> None:
        check_positive(f"{type(self).__name__}(lease_seconds=…)", lease_seconds)
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

    async def _open(self, *, lines_of: str = "") -> None:
        """Do nothing; a store that also writes what is in memory reads it here."""

    async def _save(self, *ids: str) -> None:
        """Do nothing; a store that also writes what is in memory writes here what has changed.

        It raises the failure to write one of these runs or messages.
        """

    def _touch(self, run_id: str) -> None:
        """Do nothing; a store that also writes what is in memory notes here that a run has changed."""

    async def _create(self, record: RunRecord, log: NewLog, previous: str | None, *, from_inbox: bool) -> Lease:
        await self._open()
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
            state = self._drop_messages(record.thread, 1, by=record.run_id) if from_inbox else ""
            record = replace(record, number=self._created, previous=last, inbox=state)
            self._put(record)
            self._lines[record.run_id] = list(log.lines)
            if log.notes:
                self._notes[record.run_id] = dict(log.notes)
        await self._save(record.run_id)
        return records.to_lease(record)

    async def _append(self, change: Append) -> RunFlags:
        await self._open(lines_of=change.run_id)
        now = self._clock()
        state = None
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
                self._drop_messages(record.thread, len(change.take), by=change.run_id)
        await self._save(record.run_id)
        return records.to_flags(record)

    async def load(self, run_id: str, *, start: int = 0) -> Sequence[bytes]:
        """Load lines; see `Store.load`."""
        await self._open(lines_of=run_id)
        with self._lock:
            self._get(run_id)
            return self._lines[run_id][start:]

    async def record(self, run_id: str) -> RunRecord | None:
        """Return a run's record; see `Store.record`."""
        await self._open()
        record = self._records.get(run_id)
        return None if record is None else records.read_at(record, self._clock())

    async def list(self, **filters: Unpack[RunFilters]) -> RecordPage:
        """Return a page of records; see `Store.list`."""
        await self._open()
        query = records.parse_filters(filters)
        with self._lock:
            return records.select_page(query, self._all(query.thread))

    async def runnable(
        self,
        *,
        teams: Collection[str] | None = None,
        limit: int = 100,
        reader: int = READER_VERSION,
        per_owner: int | None = None,
        driven: Mapping[str, int] = NOTHING_DRIVEN,
    ) -> Sequence[RunRecord]:
        """Return the runs to drive; see `Store.runnable`."""
        await self._open()
        now = self._clock()
        with self._lock:
            found = [record for record in self._all() if records.is_runnable(record, teams, reader, now)]
        return records.first_runnable(found, limit=limit, per_owner=per_owner, driven=driven)

    async def put_note(self, run_id: str, name: str, note: bytes | None) -> None:
        """Set or remove a note; see `SupportsNotes.put_note`."""
        records.check_names(run_id, name=name)
        await self._open()
        with self._lock:
            self._get(run_id)
            notes = self._notes.setdefault(run_id, {})
            if note is None:
                notes.pop(name, None)
            else:
                notes[name] = note
            self._touch(run_id)
        await self._save(run_id)

    async def notes(self, run_id: str) -> Mapping[str, bytes]:
        """Return a run's notes; see `SupportsNotes.notes`."""
        await self._open()
        with self._lock:
            return records.public_notes(self._notes.get(run_id, {}))

    async def read_notes(self, run_ids: Sequence[str], name: str) -> Mapping[str, bytes]:
        """Return one note of several runs; see `SupportsNotes.read_notes`."""
        await self._open()
        with self._lock:
            return {id: self._notes[id][name] for id in run_ids if name in self._notes.get(id, ())}

    async def thread_notes(self, thread: str, name: str, *, before: int, limit: int = 100) -> Sequence[RunNote]:
        """Return runs of a thread with a note; see `SupportsNotes.thread_notes`."""
        await self._open()
        with self._lock:
            runs = [self._records[run_id] for run_id in reversed(self._threads.get(thread, ()))]
            earlier = [run for run in runs if run.number < before][:limit]
            return [
                RunNote(run.run_id, run.number, run.seq, self._notes.get(run.run_id, {}).get(name)) for run in earlier
            ]

    async def delete(self, run_id: str, *, fence: int | None = None) -> bool:
        """Delete a run; see `Store.delete`."""
        await self._open()
        with self._lock:
            record = self._records.get(run_id)
            is_acquired = record is not None and fence is not None and record.fence != fence
            is_deleted = not is_acquired and self._delete_run(run_id)
        await self._save(run_id)
        return is_deleted

    async def expire(self, older_than: float, *, status: Collection[RunStatus] = FINISHED_STATUSES) -> int:
        """Delete old runs; see `SupportsRetention.expire`."""
        await self._open()
        status = records.check_statuses(status)
        now = self._clock()
        with self._lock:
            expired = [one.run_id for one in self._records.values() if records.is_expired(one, older_than, status, now)]
            for run_id in expired:
                self._delete_run(run_id)
        await self._save(*expired)
        return len(expired)

    async def erase(self, *, owner: str = "", thread: str = "") -> int:
        """Delete everything of an owner or a thread; see `SupportsRetention.erase`."""
        await self._open()
        origin = records.erased_origin(owner, thread)
        with self._lock:
            messages = [one for one in self._messages() if (one.owner == owner if owner else one.thread == thread)]
            for message in messages:
                self._withdraw(message)
            erased = [one.run_id for one in self._records.values() if records.has_data_of(one, origin)]
            for run_id in erased:
                self._delete_run(run_id)
        await self._save(*erased, *[message.run_id for message in messages])
        return len(erased)

    async def enqueue(self, message: WaitingMessage, *, limit: int) -> bool:
        """Add a waiting message; see `SupportsInbox.enqueue`."""
        records.check_names(message.run_id, thread=message.thread, owner=message.owner)
        await self._open()
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
                self._put(inboxes.after_enqueue(self._records[busy], state, message.mode))
        await self._save(message.run_id)
        return busy is not None

    async def waiting(self, run_id: str) -> WaitingMessage | None:
        """Return a waiting message; see `SupportsInbox.waiting`."""
        await self._open()
        with self._lock:
            return self._find_message(run_id)

    async def inbox(self, thread: str, *, limit: int = 100) -> Sequence[WaitingMessage]:
        """Return the messages of a thread; see `SupportsInbox.inbox`."""
        await self._open()
        with self._lock:
            return self._inboxes.get(thread, [])[:limit]

    async def withdraw(self, run_id: str) -> bool:
        """Remove a waiting message; see `SupportsInbox.withdraw`."""
        await self._open()
        with self._lock:
            message = self._find_message(run_id)
            if message is not None:
                self._withdraw(message)
        await self._save(run_id)
        return message is not None

    def _withdraw(self, message: WaitingMessage) -> None:
        self._inboxes[message.thread].remove(message)
        self._notify(message.thread, self._drop_messages(message.thread, 0))

    async def notify(self, thread: str) -> bool:
        """Tell a thread's unfinished run what waits; see `SupportsInbox.notify`."""
        await self._open()
        with self._lock:
            is_told = self._notify(thread, inboxes.state_of(self._inboxes.get(thread, ())))
            busy = self._busy.get(thread, "")
        await self._save(busy)
        return is_told

    async def idle_threads(self, *, limit: int = 100) -> Sequence[str]:
        """Return threads whose messages wait for no run; see `SupportsInbox.idle_threads`."""
        await self._open()
        with self._lock:
            idle = [waiting[0] for thread, waiting in self._inboxes.items() if thread not in self._busy]
        return [message.thread for message in sorted(idle, key=lambda message: message.number)[:limit]]

    async def renew(self, leases: Sequence[Lease], *, ttl: float) -> Mapping[str, Lease]:
        """Renew leases; see `Store.renew`."""
        await self._open()
        renewed: dict[str, Lease] = {}
        now = self._clock()
        with self._lock:
            for lease in leases:
                record = records.after_renew(self._records.get(lease.run_id), lease, ttl=ttl, now=now)
                if record is not None:
                    self._put(record)
                    renewed[lease.run_id] = records.to_lease(record)
        await self._save(*renewed)
        return renewed

    async def _update_record(self, run_id: str, update: Callable[[RunRecord], RunRecord | None]) -> RunRecord | None:
        await self._open()
        with self._lock:
            record = self._records.get(run_id)
            updated = None if record is None else update(record)
            if updated is not None:
                self._put(updated)
        await self._save(run_id)
        return updated

    def _get(self, run_id: str) -> RunRecord:
        return records.require_run(self._records.get(run_id), run_id, self)

    def _all(self, thread: str | None = None) -> Sequence[RunRecord]:
        """Return the records as they are now; only those of a thread if it has a name."""
        now = self._clock()
        found = [self._records[id] for id in self._threads.get(thread, ())] if thread else self._records.values()
        return [records.read_at(record, now) for record in found]

    def _find_message(self, run_id: str) -> WaitingMessage | None:
        return next((one for one in self._messages() if one.run_id == run_id), None)

    def _messages(self) -> Sequence[WaitingMessage]:
        return [message for waiting in self._inboxes.values() for message in waiting]

    def _drop_messages(self, thread: str, count: int, *, by: str = "") -> InboxState:
        """Remove the messages of a thread that a run takes; return the state of the rest."""
        waiting = self._inboxes[thread]
        del waiting[:count]
        if not waiting:
            del self._inboxes[thread]
        return inboxes.state_of(waiting)

    def _notify(self, thread: str, state: InboxState) -> bool:
        busy = self._busy.get(thread)
        if busy is not None:
            self._put(replace(self._records[busy], inbox=state))
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
        self._touch(record.run_id)

    def _delete_run(self, run_id: str) -> bool:
        record = self._records.pop(run_id, None)
        if record is None:
            return False
        self._touch(run_id)
        self._lines.pop(run_id, None)
        self._notes.pop(run_id, None)
        if record.thread:
            self._threads[record.thread].remove(run_id)
            if not self._threads[record.thread]:
                del self._threads[record.thread]
        if self._busy.get(record.thread) == run_id:
            del self._busy[record.thread]
        return True


class MemoryStore(RunsInMemory):
    """A store in memory; its runs are lost when the process ends.

    Args:
        lease_seconds: How long a run stays reserved for a worker that died.
        clock: Returns the time, for tests.
    """

    @check_arguments
    def __init__(self, *, lease_seconds: float = 30.0, clock: Callable[[], float] = time.time) -> None:
        super().__init__(clock, lease_seconds)

    def __repr__(self) -> str:
        return "MemoryStore()"

    async def close(self) -> None:
        """Do nothing; the runs stay."""
