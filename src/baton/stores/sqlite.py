"""A store in one SQLite file, which several processes of one machine may share."""

import asyncio
import os
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from sqlite3 import Connection, IntegrityError
from typing import Any, Literal, NoReturn, TypeVar, Unpack

from ..arguments import check_choice
from ..errors import RunExistsError, RunNotFoundError, SetupError, StoreError, ThreadBusyError
from . import records
from .base import FINISHED_STATUSES, Lease, RecordPage, RunFilters, RunRecord, RunStatus
from .records import (
    COLUMNS,
    LeaseMethods,
    count_query,
    join_pieces,
    make_page,
    pack_lines,
    page_query,
    parse_filters,
    record_to_row,
    row_to_record,
    status_condition,
)
from .sqlite_file import MAX_LINES, GroupCommitter, SQLiteConnection, StoreLockedError, Work

T = TypeVar("T")

_CREATE = f"INSERT INTO runs({COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
_ADD_PIECE = f"INSERT INTO pieces SELECT number * {MAX_LINES} + ?, ? FROM runs WHERE run_id = ?"
_UPDATE_RUN = """
UPDATE runs SET seq = seq + ?, updated_at = ?, status = coalesce(?, status)
WHERE run_id = ? AND seq = ? AND fence = coalesce(?, fence)"""
_LEASE = "UPDATE runs SET worker = ?, lease_until = ?, fence = ?, cancel_requested = ? WHERE run_id = ?"
_RECORD = f"SELECT {COLUMNS} FROM runs WHERE run_id = ?"
_BUSY = "SELECT run_id, status FROM runs WHERE thread = ? AND status IN ('running', 'suspended')"
_NUMBER = "SELECT number, seq FROM runs WHERE run_id = ?"
_FROM = "SELECT coalesce(max(place), ?1) FROM pieces WHERE place BETWEEN ?1 AND ?2"
# The cast makes a damaged row come as bytes, so that the checksum detects it.
_LOAD = "SELECT place - ?, coalesce(CAST(lines AS BLOB), x'') FROM pieces WHERE place BETWEEN ? AND ? ORDER BY place"
_PUT_NOTE = """
INSERT INTO notes(run, name, note) SELECT number, ?, ? FROM runs WHERE run_id = ?
ON CONFLICT(run, name) DO UPDATE SET note = excluded.note"""
_DROP_NOTE = "DELETE FROM notes WHERE run = (SELECT number FROM runs WHERE run_id = ?) AND name = ?"
_NOTES = """
SELECT name, note FROM notes WHERE run = (SELECT number FROM runs WHERE run_id = ?) ORDER BY notes.number"""
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
        clock: Returns the time, for tests.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        durability: Literal["process", "power"] = "process",
        timeout: float = 10.0,
        clock: Callable[[], float] = time.time,
    ) -> None:
        check_choice("durability", durability, ("process", "power"))
        if str(path) in ("", ":memory:"):
            raise SetupError(f"SQLiteStore({str(path)!r}) has no file; pass a file name, or use MemoryStore()")
        # Absolute, so that the store stays the same when the program changes its working directory.
        self.path = Path(path).absolute()
        self.durability = durability
        self.is_immediate = durability == "process"
        self._timeout = timeout
        self._clock = clock
        self._name = f"SQLiteStore({os.fspath(path)!r})"
        self._file = SQLiteConnection(self.path, name=self._name, synchronous="NORMAL")
        self._group: GroupCommitter | None = None
        if durability == "power":
            file = SQLiteConnection(self.path, name=self._name, synchronous="FULL", timeout=timeout)
            self._group = GroupCommitter(file)

    def __repr__(self) -> str:
        return self._name

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
        piece = self._pack(0, lines)

        def insert(connection: Connection) -> Lease:
            try:
                connection.execute(_CREATE, record_to_row(record))
            except IntegrityError:
                if self._find(connection, run_id) is not None:
                    raise RunExistsError(run_id) from None
                _raise_thread_busy(connection, thread)
            if piece:
                connection.execute(_ADD_PIECE, (0, piece, run_id))
            return records.to_lease(record)

        return await self._write(insert)

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
        piece = self._pack(expected_seq, lines)
        move = (len(lines), self._clock(), status, run_id, expected_seq, fence)

        def add(connection: Connection) -> None:
            try:
                moved = connection.execute(_UPDATE_RUN, move).rowcount
            except IntegrityError:
                _raise_thread_busy(connection, self._get(connection, run_id).thread)
            if not moved:
                raise records.append_conflict(self._get(connection, run_id), expected_seq, fence) or self._damaged(
                    run_id
                )
            if piece:
                connection.execute(_ADD_PIECE, (expected_seq, piece, run_id))

        await self._write(add)

    async def load(self, run_id: str, *, start: int = 0) -> Sequence[bytes]:
        """Load lines; see `Store.load`."""

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

        found = await self._read(pieces)
        if found is None:
            raise RunNotFoundError(run_id, store=self._name)
        return join_pieces(found[1], start=start, end=found[0])

    async def record(self, run_id: str) -> RunRecord | None:
        """Return a run's record; see `Store.record`."""
        return await self._read(lambda connection: self._find(connection, run_id))

    async def list(self, **filters: Unpack[RunFilters]) -> RecordPage:
        """Return a page of records; see `Store.list`."""
        query = parse_filters(filters)
        page, count = page_query(query, table="runs", mark="?"), count_query(query, table="runs", mark="?")

        def select(connection: Connection) -> tuple[Sequence[Sequence[Any]], int | None]:
            total = connection.execute(*count).fetchone()[0] if query.count_total else None
            return connection.execute(*page).fetchall(), total

        rows, total = await self._read(select)
        return make_page(query, [row_to_record(row, store=self._name) for row in rows], total)

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

    async def delete(self, run_id: str) -> bool:
        """Delete a run; see `Store.delete`."""

        def delete(connection: Connection) -> bool:
            rows = connection.execute("SELECT number FROM runs WHERE run_id = ?", (run_id,)).fetchall()
            return _delete_run(connection, rows) > 0

        return await self._write(delete)

    async def expire(self, older_than: float, *, status: Collection[RunStatus] = FINISHED_STATUSES) -> int:
        """Delete old runs; see `Store.expire`."""
        statuses, now = records.check_statuses(status), self._clock()
        matching = f"{status_condition(statuses, mark='?')} AND updated_at <= ? AND lease_until <= ?"
        statement = f"SELECT number FROM runs WHERE {matching}"
        values = (*statuses, now - older_than, now)
        return await self._write(lambda file: _delete_run(file, file.execute(statement, values).fetchall()))

    async def close(self) -> None:
        """Close the file."""
        if self._group is not None:
            await asyncio.to_thread(self._group.close)
        self._file.close()

    async def _write(self, work: Work[T]) -> T:
        if self._group is not None:
            return await self._group.write(work)
        return await self._retry_locked(self._file.write, work)

    async def _read(self, work: Work[T]) -> T:
        return await self._retry_locked(self._file.read, work)

    async def _retry_locked(self, do: Callable[[Work[T]], T], work: Work[T]) -> T:
        """Retry while another process has locked the file, without blocking other tasks."""
        try:
            return do(work)
        except StoreLockedError as locked:
            last = locked
        deadline, pause = time.monotonic() + self._timeout, 0.001
        while time.monotonic() < deadline:
            await asyncio.sleep(pause)
            pause = min(pause * 2, 0.05)
            try:
                return do(work)
            except StoreLockedError as locked:
                last = locked
        raise StoreError(*last.args) from last

    async def _update_record(self, run_id: str, update: Callable[[RunRecord], RunRecord | None]) -> RunRecord | None:
        def write(connection: Connection) -> RunRecord | None:
            known = self._find(connection, run_id)
            new = None if known is None else update(known)
            if new is not None:
                values = (new.worker, new.lease_until, new.fence, new.cancel_requested, run_id)
                connection.execute(_LEASE, values)
            return new

        return await self._write(write)

    def _pack(self, expected_seq: int, lines: Sequence[bytes]) -> bytes:
        if expected_seq + len(lines) >= MAX_LINES:
            raise StoreError(f"a log has at most {MAX_LINES - 1} lines", store=self._name)
        return pack_lines(lines) if lines else b""

    def _find(self, connection: Connection, run_id: str) -> RunRecord | None:
        row = connection.execute(_RECORD, (run_id,)).fetchone()
        return None if row is None else row_to_record(row, store=self._name)

    def _get(self, connection: Connection, run_id: str) -> RunRecord:
        if (record := self._find(connection, run_id)) is None:
            raise RunNotFoundError(run_id, store=self._name)
        return record

    def _damaged(self, run_id: str) -> StoreError:
        return StoreError(
            f"the index of run `{run_id}` does not match its record; the file is damaged", store=self._name
        )


def _delete_run(connection: Connection, rows: Sequence[tuple[int]]) -> int:
    for (number,) in rows:
        for statement in _DELETE_RUN:
            connection.execute(statement, (number,))
    return len(rows)


def _raise_thread_busy(connection: Connection, thread: str) -> NoReturn:
    run_id, status = connection.execute(_BUSY, (thread,)).fetchone()
    raise ThreadBusyError(thread, run_id, status)
