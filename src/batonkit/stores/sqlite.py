"""A store in one SQLite file, which several processes of one machine may share."""

import asyncio
import json
import os
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from sqlite3 import Connection, IntegrityError
from typing import Any, Literal, NoReturn, TypeVar, Unpack

from msgspec.structs import asdict, replace

from ..arguments import check_arguments, check_choice, check_positive
from ..errors import RunExistsError, SetupError, StoreError, ThreadBusyError
from ..events.codec import READER_VERSION
from . import inbox as inboxes
from . import records
from .base import (
    FINISHED_STATUSES,
    INTERNAL_NOTES,
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
from .records import COLUMNS, NEW_COLUMNS, Append, LeaseMethods, NewLog, require_run, row_to_record
from .sqlite_commits import LoopCommitter, ThreadCommitter
from .sqlite_file import MAX_LINES, VERSION, SQLiteConnection, StoreLockedError, Work

T = TypeVar("T")
_BATCH = 500
"""The number of runs that one statement changes."""

_CREATE = f"INSERT INTO runs({NEW_COLUMNS}) VALUES (:{NEW_COLUMNS.replace(', ', ', :')})"
_ADD_PIECE = f"INSERT INTO pieces VALUES (? * {MAX_LINES} + ?, ?)"
_ADVANCED = "seq = seq + ?1, updated_at = ?2, reader = max(reader, ?3)"
_CHANGED = """
    status = coalesce(?7, status), changed_at = iif(coalesce(?7, status) = status, changed_at, ?2),
    wake_at = coalesce(?8, wake_at), cancel_requested = coalesce(?9, cancel_requested),
    lease_until = iif(?10 AND coalesce(?9, cancel_requested) = '', 0.0, lease_until)"""
_OF_WRITER = "run_id = ?4 AND seq = ?5 AND fence = coalesce(?6, fence) RETURNING number, cancel_requested, inbox"
# For nearly every append. It sets no column that an index has, so that two pages change instead of six.
_ADVANCE_RUN = f"UPDATE runs SET {_ADVANCED} WHERE {_OF_WRITER}"
_CHANGE_RUN = f"UPDATE runs SET {_ADVANCED}, {_CHANGED} WHERE {_OF_WRITER}"
_LEASE = """
UPDATE runs SET worker = :worker, lease_until = :lease_until, lease_seconds = :lease_seconds, fence = :fence,
    cancel_requested = :cancel_requested, inbox = :inbox
WHERE run_id = :run_id"""
_RENEW = """
UPDATE runs SET lease_until = :until, lease_seconds = :ttl FROM json_each(:leases) AS lease
WHERE run_id = lease.value ->> 0 AND fence = lease.value ->> 1 AND lease_until > 0
RETURNING run_id, worker, fence, cancel_requested, inbox"""
_RECORD = f"SELECT {COLUMNS} FROM runs WHERE run_id = ?"
_LAST_RUN = "SELECT run_id FROM runs WHERE thread = ? AND thread <> '' ORDER BY number DESC LIMIT 1"
_RUNNABLE = f"""
SELECT {COLUMNS} FROM runs
WHERE (status = 'running' OR (status = 'suspended' AND wake_at > 0)) AND wake_at <= :now
    AND NOT lease_until - :now BETWEEN 1e-9 AND lease_seconds + 1 AND reader <= :reader
    AND (:teams IS NULL OR team IN (SELECT value FROM json_each(:teams)))
ORDER BY priority DESC, number LIMIT :limit"""
_BUSY = "SELECT run_id, status FROM runs WHERE thread = ? AND status IN ('running', 'suspended')"
_NUMBER = "SELECT number, seq FROM runs WHERE run_id = ?"
_FROM = "SELECT coalesce(max(place), ?1) FROM pieces WHERE place BETWEEN ?1 AND ?2"
# The cast makes a damaged row come as bytes, so that the checksum detects it.
_LOAD = "SELECT place - ?, coalesce(CAST(lines AS BLOB), x'') FROM pieces WHERE place BETWEEN ? AND ? ORDER BY place"
_PUT_NOTE = """
INSERT INTO notes(run, name, note) SELECT number, ?, ? FROM runs WHERE run_id = ?
ON CONFLICT(run, name) DO UPDATE SET note = excluded.note"""
_DROP_NOTE = "DELETE FROM notes WHERE run = (SELECT number FROM runs WHERE run_id = ?) AND name = ?"
_NOTES = f"""
SELECT name, note FROM notes WHERE run = (SELECT number FROM runs WHERE run_id = ?)
    AND name NOT LIKE '{INTERNAL_NOTES}%' ORDER BY notes.number"""
_READ_NOTES = """
SELECT run_id, note FROM json_each(?1) JOIN runs ON run_id = value JOIN notes ON run = runs.number AND name = ?2"""
_THREAD_NOTES = """
SELECT run_id, runs.number, seq, note FROM runs LEFT JOIN notes ON run = runs.number AND name = ?
WHERE thread = ? AND thread <> '' AND runs.number < ? ORDER BY runs.number DESC LIMIT ?"""
_ENQUEUE = "INSERT INTO inbox(run_id, thread, mode, owner, body, created_at) VALUES (?, ?, ?, ?, ?, ?)"
_MESSAGE = f"SELECT {inboxes.INBOX_COLUMNS} FROM inbox WHERE run_id = ?"
_INBOX = f"SELECT {inboxes.INBOX_COLUMNS} FROM inbox WHERE thread = ? ORDER BY number LIMIT ?"
_OLDEST = "SELECT run_id, mode FROM inbox WHERE thread = ? ORDER BY number LIMIT ?"
_COUNT_MESSAGES = "SELECT count(*) FROM inbox WHERE thread = ?"
_DROP_MESSAGE = "DELETE FROM inbox WHERE run_id = ?"
_IDLE = """
SELECT thread FROM inbox WHERE NOT EXISTS (
    SELECT 1 FROM runs WHERE runs.thread = inbox.thread AND runs.thread <> '' AND status IN ('running', 'suspended'))
GROUP BY thread ORDER BY min(number) LIMIT ?"""
_FORKS_OF = """
SELECT number FROM runs WHERE origins <> '[]' AND EXISTS (SELECT 1 FROM json_each(origins) WHERE value = ?)"""
_DELETE_RUN = (
    "DELETE FROM runs WHERE number = ?1",
    "DELETE FROM notes WHERE run = ?1",
    f"DELETE FROM pieces WHERE place BETWEEN ?1 * {MAX_LINES} AND ?1 * {MAX_LINES} + {MAX_LINES - 1}",
)


class SQLiteStore(LeaseMethods):
    """A store backed by one SQLite file.

    Args:
        path: The file; created when it is first needed.
        durability: `"process"` survives a crash of the process, but a power failure may lose the newest lines;
            `"power"` waits for the disk on every append.
        timeout: Seconds to wait for another process that has locked the file.
        lease_seconds: How long a run stays reserved for a worker that died.
        clock: Returns the time, for tests.
    """

    @check_arguments
    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        durability: Literal["process", "power"] = "process",
        timeout: float = 10.0,
        lease_seconds: float = 30.0,
        clock: Callable[[], float] = time.time,
    ) -> None:
        check_choice("durability", durability, ("process", "power"))
        check_positive("SQLiteStore(timeout=…)", timeout)
        check_positive("SQLiteStore(lease_seconds=…)", lease_seconds)
        if str(path) in ("", ":memory:"):
            raise SetupError(f"SQLiteStore({str(path)!r}) has no file; pass a file name, or use MemoryStore()")
        # Absolute, so that the store stays the same when the program changes its working directory.
        self.path = Path(path).absolute()
        self.durability = durability
        self.timeout = timeout
        self.lease_seconds = lease_seconds
        self._clock = clock
        self._name = f"SQLiteStore({os.fspath(path)!r})"
        self._file = SQLiteConnection(self.path, name=self._name, synchronous="NORMAL")
        self._commits = LoopCommitter(self._file)
        self._group: ThreadCommitter | None = None
        if durability == "power":
            file = SQLiteConnection(self.path, name=self._name, synchronous="FULL", timeout=timeout)
            self._group = ThreadCommitter(file)

    def __repr__(self) -> str:
        return self._name

    async def _create(self, record: RunRecord, log: NewLog, previous: str | None, *, from_inbox: bool) -> Lease:
        piece = self._pack(0, log.lines)

        def insert(connection: Connection) -> Lease:
            source = self._get(connection, log.forked_from) if log.forked_from else None
            new = record if source is None else records.after_fork(record, source)
            found = connection.execute(_LAST_RUN, (record.thread,)).fetchone() if record.thread else None
            last, state = found[0] if found is not None else "", ""
            oldest = connection.execute(_OLDEST, (record.thread, 2)).fetchall() if record.thread else ()
            if from_inbox:
                state = inboxes.inbox_state(oldest[1][1] if len(oldest) > 1 else None)
            try:
                values = {**asdict(new), "previous": last, "inbox": state, "origins": json.dumps(new.origins)}
                number = connection.execute(_CREATE, values).lastrowid
            except IntegrityError:
                if self._find(connection, record.run_id) is not None:
                    raise RunExistsError(record.run_id) from None
                _raise_thread_busy(connection, record.thread)
            first = oldest[0][0] if oldest else ""
            inboxes.check_turn(record.thread, first, record.run_id, from_inbox=from_inbox)
            records.check_previous(record.thread, last, previous)
            if from_inbox:
                connection.execute(_DROP_MESSAGE, (record.run_id,))
            if piece:
                connection.execute(_ADD_PIECE, (number, 0, piece))
            _put_notes(connection, record.run_id, log.notes)
            return records.to_lease(record)

        return await self._write_run(record.run_id, insert)

    async def _append(self, change: Append) -> RunFlags:
        run_id, seq, lines = change.run_id, change.expected_seq, change.lines
        piece = self._pack(seq, lines)
        update, values = _ADVANCE_RUN, (len(lines), self._clock(), change.reader, run_id, seq, change.fence)
        if change.status is not None or change.wake_at is not None or change.release:
            update, values = _CHANGE_RUN, (*values, change.status, change.wake_at, change.no_cancel, change.release)

        def add(connection: Connection) -> RunFlags:
            before = self._find(connection, run_id) if change.may_revive else None
            try:
                updated = connection.execute(update, values).fetchone()
            except IntegrityError:
                _raise_thread_busy(connection, self._get(connection, run_id).thread)
            if updated is None:
                change.check(self._get(connection, run_id))
                raise self._damaged(run_id)
            if before is not None and before.thread and not records.keeps_thread_busy(before.status):
                records.check_is_last(run_id, connection.execute(_LAST_RUN, (before.thread,)).fetchone()[0])
            if piece:
                connection.execute(_ADD_PIECE, (updated[0], seq, piece))
            if change.notes:
                _put_notes(connection, run_id, change.notes)
            if change.take:
                return RunFlags(updated[1], self._take(connection, run_id, change.take))
            return RunFlags(*updated[1:])

        return await self._write_run(run_id, add)

    def _take(self, connection: Connection, run_id: str, take: Sequence[str]) -> InboxState:
        thread, count = self._get(connection, run_id).thread, len(take)
        oldest = connection.execute(_OLDEST, (thread, count + 1)).fetchall()
        inboxes.check_taken(take, [row[0] for row in oldest[:count]])
        connection.executemany(_DROP_MESSAGE, [(taken,) for taken in take])
        state = inboxes.inbox_state(oldest[count][1] if len(oldest) > count else None)
        connection.execute("UPDATE runs SET inbox = ? WHERE run_id = ?", (state, run_id))
        return state

    async def load(self, run_id: str, *, start: int = 0) -> Sequence[bytes]:
        """Load lines; see `Store.load`."""
        seq, found = require_run(await self._read(self._select_pieces(run_id, start)), run_id, self)
        return records.join_pieces(found, start=start, end=seq)

    def _select_pieces(self, run_id: str, start: int) -> Work[tuple[int, Sequence[tuple[int, bytes]]] | None]:
        def pieces(connection: Connection) -> tuple[int, Sequence[tuple[int, bytes]]] | None:
            row = connection.execute(_NUMBER, (run_id,)).fetchone()
            if row is None:
                return None
            number, seq = row
            if not isinstance(number, int) or not isinstance(seq, int):
                raise self._damaged(run_id)
            origin = number * MAX_LINES
            # The line may be in the middle of a piece that starts before it.
            (place,) = connection.execute(_FROM, (origin, origin + start)).fetchone() if start else (origin,)
            return seq, connection.execute(_LOAD, (origin, place, origin + MAX_LINES - 1)).fetchall()

        return pieces

    async def record(self, run_id: str) -> RunRecord | None:
        """Return a run's record; see `Store.record`."""
        return await self._read(lambda connection: self._find(connection, run_id))

    async def list(self, **filters: Unpack[RunFilters]) -> RecordPage:
        """Return a page of records; see `Store.list`."""
        query = records.parse_filters(filters)
        page, count = records.page_queries(query, table="runs", mark="?")

        def select(connection: Connection) -> tuple[Sequence[Sequence[Any]], int | None]:
            total = connection.execute(*count).fetchone()[0] if query.count_total else None
            return connection.execute(*page).fetchall(), total

        rows, total = await self._read(select)
        return records.make_page(query, self._to_records(rows), total)

    async def runnable(
        self, *, teams: Collection[str] | None = None, limit: int = 100, reader: int = READER_VERSION
    ) -> Sequence[RunRecord]:
        """Return the runs to drive; see `Store.runnable`."""
        names = None if teams is None else json.dumps([*teams])
        values = {"now": self._clock(), "limit": limit, "teams": names, "reader": reader}
        return self._to_records(await self._read(lambda connection: connection.execute(_RUNNABLE, values).fetchall()))

    async def put_note(self, run_id: str, name: str, note: bytes | None) -> None:
        """Set or remove a note; see `Store.put_note`."""
        records.check_names(run_id, name=name)

        def put(connection: Connection) -> None:
            self._get(connection, run_id)
            values = (run_id, name) if note is None else (name, note, run_id)
            connection.execute(_DROP_NOTE if note is None else _PUT_NOTE, values)

        await self._write(put)

    async def notes(self, run_id: str) -> Mapping[str, bytes]:
        """Return a run's notes; see `Store.notes`."""
        return dict(await self._read(lambda connection: connection.execute(_NOTES, (run_id,)).fetchall()))

    async def read_notes(self, run_ids: Sequence[str], name: str) -> Mapping[str, bytes]:
        """Return one note of several runs; see `Store.read_notes`."""
        values = (json.dumps([*run_ids]), name)
        return dict(await self._read(lambda connection: connection.execute(_READ_NOTES, values).fetchall()))

    async def thread_notes(self, thread: str, name: str, *, before: int, limit: int = 100) -> Sequence[RunNote]:
        """Return runs of a thread with a note; see `Store.thread_notes`."""
        values = (name, thread, before, limit)
        rows = await self._read(lambda connection: connection.execute(_THREAD_NOTES, values).fetchall())
        return [RunNote(*row) for row in rows]

    async def delete(self, run_id: str) -> bool:
        """Delete a run; see `Store.delete`."""

        def delete(connection: Connection) -> bool:
            rows = connection.execute("SELECT number FROM runs WHERE run_id = ?", (run_id,)).fetchall()
            return _delete_run(connection, rows) > 0

        return await self._write(delete)

    async def expire(self, older_than: float, *, status: Collection[RunStatus] = FINISHED_STATUSES) -> int:
        """Delete old runs; see `Store.expire`."""
        statuses, now = records.check_statuses(status), self._clock()
        # The index of finished runs serves these statuses only as literals.
        condition = records.ENDED if {*statuses} == {*FINISHED_STATUSES} else ""
        statuses, condition = ((), condition) if condition else (statuses, records.status_condition(statuses, mark="?"))
        matching = f"{condition} AND changed_at <= ? AND lease_until <= ?"
        statement = f"SELECT number FROM runs WHERE {matching} LIMIT {_BATCH}"
        values, deleted = (*statuses, now - older_than, now), 0
        # In batches, so that other writers need not wait for all of them.
        while True:
            count = await self._write(lambda file: _delete_run(file, file.execute(statement, values).fetchall()))
            deleted += count
            if count < _BATCH:
                return deleted

    async def erase(self, *, owner: str = "", thread: str = "") -> int:
        """Delete everything of an owner or a thread; see `Store.erase`."""
        origin = records.erased_origin(owner, thread)
        condition, name = ("owner = ? AND owner <> ''", owner) if owner else ("thread = ? AND thread <> ''", thread)
        statement = f"SELECT number FROM runs WHERE {condition} UNION {_FORKS_OF} LIMIT {_BATCH}"
        await self._write(lambda file: file.execute(f"DELETE FROM inbox WHERE {condition}", (name,)))
        values, deleted = (name, origin), 0
        # Until none is left: a run may be forked meanwhile.
        while count := await self._write(lambda file: _delete_run(file, file.execute(statement, values).fetchall())):
            deleted += count
        return deleted

    async def layout(self) -> tuple[int, int]:
        """Return the version of the file's layout, 0 if there is no file, and the newest version."""
        return self._file.layout_version() if self.path.exists() else 0, VERSION

    async def renew(self, leases: Sequence[Lease], *, ttl: float) -> Mapping[str, Lease]:
        """Renew leases; see `Store.renew`."""
        renewed: dict[str, Lease] = {}
        for start in range(0, len(leases), _BATCH):
            until = self._clock() + ttl
            batch = json.dumps([(lease.run_id, lease.fence) for lease in leases[start : start + _BATCH]])
            values = {"until": until, "ttl": ttl, "leases": batch}
            rows = await self._write(lambda file, values=values: file.execute(_RENEW, values).fetchall())
            for run_id, worker, fence, cancel_requested, inbox in rows:
                renewed[run_id] = Lease(run_id, worker, fence, until, cancel_requested, inbox)
        return renewed

    async def enqueue(self, message: WaitingMessage, *, limit: int) -> bool:
        """Add a waiting message; see `Store.enqueue`."""
        records.check_names(message.run_id, thread=message.thread, owner=message.owner)
        thread, now = message.thread, self._clock()

        def add(connection: Connection) -> bool:
            if self._find(connection, message.run_id) is not None:
                raise RunExistsError(message.run_id)
            values = (message.run_id, thread, message.mode, message.owner, message.body, now)
            (count,) = connection.execute(_COUNT_MESSAGES, (thread,)).fetchone()
            inboxes.check_room(thread, count, limit)
            try:
                connection.execute(_ENQUEUE, values)
            except IntegrityError:
                raise RunExistsError(message.run_id) from None
            return self._tell(connection, thread, lambda run, state: inboxes.after_enqueue(run, state, message.mode))

        return await self._write(add)

    async def waiting(self, run_id: str) -> WaitingMessage | None:
        """Return a waiting message; see `Store.waiting`."""
        row = await self._read(lambda connection: connection.execute(_MESSAGE, (run_id,)).fetchone())
        return None if row is None else inboxes.row_to_message(row)

    async def inbox(self, thread: str, *, limit: int = 100) -> Sequence[WaitingMessage]:
        """Return the messages of a thread; see `Store.inbox`."""
        rows = await self._read(lambda connection: connection.execute(_INBOX, (thread, limit)).fetchall())
        return [inboxes.row_to_message(row) for row in rows]

    async def withdraw(self, run_id: str) -> bool:
        """Remove a waiting message; see `Store.withdraw`."""

        def remove(connection: Connection) -> bool:
            row = connection.execute(_MESSAGE, (run_id,)).fetchone()
            if row is not None:
                connection.execute(_DROP_MESSAGE, (run_id,))
                self._tell(connection, inboxes.row_to_message(row).thread)
            return row is not None

        return await self._write(remove)

    async def notify(self, thread: str) -> bool:
        """Tell a thread's unfinished run what waits; see `Store.notify`."""
        return await self._write(lambda connection: self._tell(connection, thread))

    async def idle_threads(self, *, limit: int = 100) -> Sequence[str]:
        """Return threads whose messages wait for no run; see `Store.idle_threads`."""
        rows = await self._read(lambda connection: connection.execute(_IDLE, (limit,)).fetchall())
        return [row[0] for row in rows]

    def _tell(
        self, connection: Connection, thread: str, update: Callable[[RunRecord, InboxState], RunRecord] | None = None
    ) -> bool:
        """Set `inbox` of the thread's unfinished run; return whether there is one."""
        busy = connection.execute(_BUSY, (thread,)).fetchone() if thread else None
        if busy is None:
            return False
        oldest = connection.execute(_OLDEST, (thread, 1)).fetchone()
        run, state = self._get(connection, busy[0]), inboxes.inbox_state(None if oldest is None else oldest[1])
        connection.execute(_LEASE, asdict(update(run, state) if update is not None else replace(run, inbox=state)))
        return True

    async def close(self) -> None:
        """Close the file."""
        self._commits.commit()
        if self._group is not None:
            await asyncio.to_thread(self._group.close)
        self._file.close()

    async def _write_run(self, run_id: str, work: Work[T]) -> T:
        """Write to a run, in one transaction with other runs that write at the same time."""
        if self._group is None and (joined := self._commits.join(run_id, work)) is not None:
            result = await joined
            if result is not None:
                return result
        return await self._write(work)

    async def _write(self, work: Work[T]) -> T:
        if self._group is not None:
            return await self._group.write(work)
        return await self._retry_locked(self._file.write, work)

    async def _read(self, work: Work[T]) -> T:
        return await self._retry_locked(self._file.read, work)

    async def _retry_locked(self, do: Callable[[Work[T]], T], work: Work[T]) -> T:
        """Retry while another process has locked the file, without blocking other tasks."""
        deadline, pause = time.monotonic() + self.timeout, 0.001
        while True:
            try:
                return do(work)
            except StoreLockedError as locked:
                if time.monotonic() >= deadline:
                    raise StoreError(*locked.args) from locked
            await asyncio.sleep(pause)
            pause = min(pause * 2, 0.05)

    async def _update_record(self, run_id: str, update: Callable[[RunRecord], RunRecord | None]) -> RunRecord | None:
        def write(connection: Connection) -> RunRecord | None:
            known = self._find(connection, run_id)
            new = None if known is None else update(known)
            if new is not None:
                connection.execute(_LEASE, asdict(new))
            return new

        return await self._write(write)

    def _pack(self, expected_seq: int, lines: Sequence[bytes]) -> bytes:
        if expected_seq + len(lines) >= MAX_LINES:
            raise StoreError(f"a log has at most {MAX_LINES - 1} lines", store=self._name)
        return records.pack_lines(lines) if lines else b""

    def _find(self, connection: Connection, run_id: str) -> RunRecord | None:
        row = connection.execute(_RECORD, (run_id,)).fetchone()
        return None if row is None else self._to_records([row])[0]

    def _to_records(self, rows: Sequence[Sequence[Any]]) -> Sequence[RunRecord]:
        now = self._clock()
        return [row_to_record(row, now=now, store=self._name) for row in rows]

    def _get(self, connection: Connection, run_id: str) -> RunRecord:
        return require_run(self._find(connection, run_id), run_id, self)

    def _damaged(self, run_id: str) -> StoreError:
        return StoreError(
            f"the index of run `{run_id}` does not match its record; the file is damaged", store=self._name
        )


def _put_notes(connection: Connection, run_id: str, notes: Mapping[str, bytes]) -> None:
    for name, note in notes.items():
        connection.execute(_PUT_NOTE, (name, note, run_id))


def _delete_run(connection: Connection, rows: Sequence[tuple[int]]) -> int:
    for (number,) in rows:
        for statement in _DELETE_RUN:
            connection.execute(statement, (number,))
    return len(rows)


def _raise_thread_busy(connection: Connection, thread: str) -> NoReturn:
    run_id, status = connection.execute(_BUSY, (thread,)).fetchone()
    raise ThreadBusyError(thread, run_id, status)
