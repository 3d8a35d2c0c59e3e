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

from ..._checks import check_arguments, check_choice, check_positive
from ...errors import RunExistsError, SetupError, StoreError, ThreadBusyError
from ...log.codec import READER_VERSION
from .. import inboxes, records
from ..records import COLUMNS, Append, LeaseMethods, NewLog, require_run, row_to_record
from ..sql_files import load_queries
from ..store import (
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
    WaitMode,
)
from .commits import LoopCommitter, ThreadCommitter
from .file import MAX_LINES, SQLiteConnection, StoreLockedError, Work

T = TypeVar("T")
_BATCH = 500
"""The number of runs that one statement changes."""

SQL = load_queries(__file__, columns=COLUMNS, inbox_columns=inboxes.INBOX_COLUMNS, max_lines=str(MAX_LINES))


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
            last = _last_run(connection, record.thread)
            oldest = _oldest_messages(connection, record.thread, limit=2) if record.thread else ()
            state = inboxes.inbox_state(oldest[1][1] if len(oldest) > 1 else None) if from_inbox else ""
            values = {**asdict(new), "previous": last, "inbox": state, "origins": json.dumps(new.origins)}
            try:
                number = connection.execute(SQL["create_run"], values).lastrowid
            except IntegrityError:
                if self._find(connection, record.run_id) is not None:
                    raise RunExistsError(record.run_id) from None
                _raise_thread_busy(connection, record.thread)
            first = oldest[0][0] if oldest else ""
            inboxes.check_turn(record.thread, first, record.run_id, from_inbox=from_inbox)
            records.check_previous(record.thread, last, previous)
            if from_inbox:
                connection.execute(SQL["drop_message"], {"run_id": record.run_id})
            if piece:
                connection.execute(SQL["add_piece"], {"run": number, "first": 0, "lines": piece})
            _put_notes(connection, number, log.notes)
            return records.to_lease(record)

        return await self._write_run(record.run_id, insert)

    async def _append(self, change: Append) -> RunFlags:
        run_id = change.run_id
        seq = change.expected_seq
        piece = self._pack(seq, change.lines)
        changes_record = change.status is not None or change.wake_at is not None or change.release
        statement = SQL["append_and_change"] if changes_record else SQL["append"]
        values = {
            "run_id": run_id,
            "expected_seq": seq,
            "count": len(change.lines),
            "fence": change.fence,
            "now": self._clock(),
            "reader": change.reader,
            "status": change.status,
            "wake_at": change.wake_at,
            "no_cancel": change.no_cancel,
            "release": change.release,
        }

        def add(connection: Connection) -> RunFlags:
            before = self._find(connection, run_id) if change.may_revive else None
            try:
                updated = connection.execute(statement, values).fetchone()
            except IntegrityError:
                _raise_thread_busy(connection, self._get(connection, run_id).thread)
            if updated is None:
                change.check(self._get(connection, run_id))
                raise self._damaged(run_id)
            if before is not None and before.thread and not records.keeps_thread_busy(before.status):
                records.check_is_last(run_id, _last_run(connection, before.thread))
            if piece:
                connection.execute(SQL["add_piece"], {"run": updated[0], "first": seq, "lines": piece})
            if change.notes:
                _put_notes(connection, updated[0], change.notes)
            if change.take:
                return RunFlags(updated[1], self._take(connection, run_id, change.take))
            return RunFlags(*updated[1:])

        return await self._write_run(run_id, add)

    def _take(self, connection: Connection, run_id: str, take: Sequence[str]) -> InboxState:
        thread = self._get(connection, run_id).thread
        count = len(take)
        oldest = _oldest_messages(connection, thread, limit=count + 1)
        inboxes.check_taken(take, [row[0] for row in oldest[:count]])
        connection.executemany(SQL["drop_message"], [{"run_id": taken} for taken in take])
        state = inboxes.inbox_state(oldest[count][1] if len(oldest) > count else None)
        connection.execute(SQL["set_inbox"], {"run_id": run_id, "inbox": state})
        return state

    async def load(self, run_id: str, *, start: int = 0) -> Sequence[bytes]:
        """Load lines; see `Store.load`."""
        seq, found = require_run(await self._read(self._select_pieces(run_id, start)), run_id, self)
        return records.join_pieces(found, start=start, end=seq)

    def _select_pieces(self, run_id: str, start: int) -> Work[tuple[int, Sequence[tuple[int, bytes]]] | None]:
        def pieces(connection: Connection) -> tuple[int, Sequence[tuple[int, bytes]]] | None:
            row = connection.execute(SQL["log_position"], {"run_id": run_id}).fetchone()
            if row is None:
                return None
            number, seq = row
            if not isinstance(number, int) or not isinstance(seq, int):
                raise self._damaged(run_id)
            origin = place = number * MAX_LINES
            if start:
                (place,) = connection.execute(SQL["first_place"], {"origin": origin, "start": start}).fetchone()
            return seq, connection.execute(SQL["load"], {"origin": origin, "place": place}).fetchall()

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
        self,
        *,
        teams: Collection[str] | None = None,
        limit: int = 100,
        reader: int = READER_VERSION,
        per_owner: int | None = None,
        driven: Mapping[str, int] = NOTHING_DRIVEN,
    ) -> Sequence[RunRecord]:
        """Return the runs to drive; see `Store.runnable`."""
        names = None if teams is None else json.dumps([*teams])
        values = {"now": self._clock(), "limit": limit, "teams": names, "reader": reader}
        if per_owner is not None:
            values |= {"per_owner": per_owner, "driven": json.dumps(dict(driven))}
            return self._to_records(await self._fetch(SQL["runnable_by_owner"], values))
        return self._to_records(await self._fetch(SQL["runnable"], values))

    async def put_note(self, run_id: str, name: str, note: bytes | None) -> None:
        """Set or remove a note; see `SupportsNotes.put_note`."""
        records.check_names(run_id, name=name)

        def put(connection: Connection) -> None:
            number = self._get(connection, run_id).number
            statement = SQL["drop_note"] if note is None else SQL["put_note"]
            connection.execute(statement, {"run": number, "name": name, "note": note})

        await self._write(put)

    async def notes(self, run_id: str) -> Mapping[str, bytes]:
        """Return a run's notes; see `SupportsNotes.notes`."""
        return dict(await self._fetch(SQL["notes"], {"run_id": run_id}))

    async def read_notes(self, run_ids: Sequence[str], name: str) -> Mapping[str, bytes]:
        """Return one note of several runs; see `SupportsNotes.read_notes`."""
        return dict(await self._fetch(SQL["read_notes"], {"run_ids": json.dumps([*run_ids]), "name": name}))

    async def thread_notes(self, thread: str, name: str, *, before: int, limit: int = 100) -> Sequence[RunNote]:
        """Return runs of a thread with a note; see `SupportsNotes.thread_notes`."""
        values = {"thread": thread, "name": name, "before": before, "limit": limit}
        return [RunNote(*row) for row in await self._fetch(SQL["thread_notes"], values)]

    async def delete(self, run_id: str, *, fence: int | None = None) -> bool:
        """Delete a run; see `Store.delete`."""

        def delete(connection: Connection) -> bool:
            row = connection.execute(SQL["run_to_delete"], {"run_id": run_id, "fence": fence}).fetchone()
            return _delete_runs(connection, [] if row is None else [row[0]]) > 0

        return await self._write(delete)

    async def expire(self, older_than: float, *, status: Collection[RunStatus] = FINISHED_STATUSES) -> int:
        """Delete old runs; see `SupportsRetention.expire`."""
        statuses = records.check_statuses(status)
        now = self._clock()
        deleted = 0
        select = SQL["old_ended_runs"] if {*statuses} == {*FINISHED_STATUSES} else SQL["old_runs"]
        values = {"statuses": json.dumps(statuses), "changed_before": now - older_than, "now": now}
        while True:
            count = await self._delete_some(select, values)
            deleted += count
            if count < _BATCH:
                return deleted

    async def erase(self, *, owner: str = "", thread: str = "") -> int:
        """Delete everything of an owner or a thread; see `SupportsRetention.erase`."""
        values = {"name": owner or thread, "origin": records.erased_origin(owner, thread)}
        deleted = 0
        drop = SQL["drop_messages_of_owner"] if owner else SQL["drop_messages_of_thread"]
        await self._write(lambda connection: connection.execute(drop, values))
        select = SQL["runs_of_owner"] if owner else SQL["runs_of_thread"]
        # Until none is left: a run may be forked meanwhile.
        while count := await self._delete_some(select, values):
            deleted += count
        await self._retry_locked(self._file.checkpoint)
        return deleted

    async def _delete_some(self, select: str, values: Mapping[str, object]) -> int:
        """Delete a batch of runs, so that other writers need not wait for all of them."""

        def delete(connection: Connection) -> int:
            rows = connection.execute(select, {**values, "limit": _BATCH}).fetchall()
            return _delete_runs(connection, [number for (number,) in rows])

        return await self._write(delete)

    async def renew(self, leases: Sequence[Lease], *, ttl: float) -> Mapping[str, Lease]:
        """Renew leases; see `Store.renew`."""
        renewed: dict[str, Lease] = {}
        for start in range(0, len(leases), _BATCH):
            until = self._clock() + ttl
            batch = json.dumps([(lease.run_id, lease.fence) for lease in leases[start : start + _BATCH]])
            values = {"until": until, "ttl": ttl, "leases": batch}
            rows = await self._write(lambda file, values=values: file.execute(SQL["renew"], values).fetchall())
            for run_id, worker, fence, cancel_requested, inbox in rows:
                renewed[run_id] = Lease(run_id, worker, fence, until, cancel_requested, inbox)
        return renewed

    async def enqueue(self, message: WaitingMessage, *, limit: int) -> bool:
        """Add a waiting message; see `SupportsInbox.enqueue`."""
        records.check_names(message.run_id, thread=message.thread, owner=message.owner)
        thread = message.thread
        now = self._clock()

        def add(connection: Connection) -> bool:
            if self._find(connection, message.run_id) is not None:
                raise RunExistsError(message.run_id)
            (count,) = connection.execute(SQL["count_messages"], {"thread": thread}).fetchone()
            inboxes.check_room(thread, count, limit)
            try:
                connection.execute(SQL["enqueue"], asdict(message) | {"created_at": now})
            except IntegrityError:
                raise RunExistsError(message.run_id) from None
            return self._tell(connection, thread, lambda run, state: inboxes.after_enqueue(run, state, message.mode))

        return await self._write(add)

    async def waiting(self, run_id: str) -> WaitingMessage | None:
        """Return a waiting message; see `SupportsInbox.waiting`."""
        rows = await self._fetch(SQL["message"], {"run_id": run_id})
        return inboxes.row_to_message(rows[0]) if rows else None

    async def inbox(self, thread: str, *, limit: int = 100) -> Sequence[WaitingMessage]:
        """Return the messages of a thread; see `SupportsInbox.inbox`."""
        rows = await self._fetch(SQL["inbox"], {"thread": thread, "limit": limit})
        return [inboxes.row_to_message(row) for row in rows]

    async def withdraw(self, run_id: str) -> bool:
        """Remove a waiting message; see `SupportsInbox.withdraw`."""

        def remove(connection: Connection) -> bool:
            row = connection.execute(SQL["message"], {"run_id": run_id}).fetchone()
            if row is not None:
                connection.execute(SQL["drop_message"], {"run_id": run_id})
                self._tell(connection, inboxes.row_to_message(row).thread)
            return row is not None

        return await self._write(remove)

    async def notify(self, thread: str) -> bool:
        """Tell a thread's unfinished run what waits; see `SupportsInbox.notify`."""
        return await self._write(lambda connection: self._tell(connection, thread))

    async def idle_threads(self, *, limit: int = 100) -> Sequence[str]:
        """Return threads whose messages wait for no run; see `SupportsInbox.idle_threads`."""
        return [thread for (thread,) in await self._fetch(SQL["idle_threads"], {"limit": limit})]

    def _tell(
        self, connection: Connection, thread: str, update: Callable[[RunRecord, InboxState], RunRecord] | None = None
    ) -> bool:
        """Set `inbox` of the thread's unfinished run; return whether there is one."""
        busy = connection.execute(SQL["busy_run"], {"thread": thread}).fetchone() if thread else None
        if busy is None:
            return False
        oldest = _oldest_messages(connection, thread, limit=1)
        run = self._get(connection, busy[0])
        state = inboxes.inbox_state(oldest[0][1] if oldest else None)
        updated = update(run, state) if update is not None else replace(run, inbox=state)
        connection.execute(SQL["update_lease"], asdict(updated))
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
        return await self._retry_locked(lambda: self._file.write(work))

    async def _fetch(self, statement: str, values: Mapping[str, object]) -> Sequence[Any]:
        return await self._read(lambda connection: connection.execute(statement, values).fetchall())

    async def _read(self, work: Work[T]) -> T:
        return await self._retry_locked(lambda: self._file.read(work))

    async def _retry_locked(self, do: Callable[[], T]) -> T:
        """Retry while another process has locked the file, without blocking other tasks."""
        deadline = time.monotonic() + self.timeout
        pause = 0.001
        while True:
            try:
                return do()
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
                connection.execute(SQL["update_lease"], asdict(new))
            return new

        return await self._write(write)

    def _pack(self, expected_seq: int, lines: Sequence[bytes]) -> bytes:
        if expected_seq + len(lines) >= MAX_LINES:
            raise StoreError(f"a log has at most {MAX_LINES - 1} lines", store=self._name)
        return records.pack_lines(lines) if lines else b""

    def _find(self, connection: Connection, run_id: str) -> RunRecord | None:
        row = connection.execute(SQL["record"], {"run_id": run_id}).fetchone()
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


def _last_run(connection: Connection, thread: str) -> str:
    row = connection.execute(SQL["last_run"], {"thread": thread}).fetchone() if thread else None
    return "" if row is None else row[0]


def _oldest_messages(connection: Connection, thread: str, *, limit: int) -> Sequence[tuple[str, WaitMode]]:
    """Return the ids and modes of the messages that have waited longest."""
    return connection.execute(SQL["oldest_messages"], {"thread": thread, "limit": limit}).fetchall()


def _put_notes(connection: Connection, run: int | None, notes: Mapping[str, bytes]) -> None:
    for name, note in notes.items():
        connection.execute(SQL["put_note"], {"run": run, "name": name, "note": note})


def _delete_runs(connection: Connection, numbers: Sequence[int]) -> int:
    for number in numbers:
        for statement in (SQL["delete_run"], SQL["delete_notes"], SQL["delete_pieces"]):
            connection.execute(statement, {"number": number})
    return len(numbers)


def _raise_thread_busy(connection: Connection, thread: str) -> NoReturn:
    run_id, status = connection.execute(SQL["busy_run"], {"thread": thread}).fetchone()
    raise ThreadBusyError(thread, run_id, status)
