"""A store in one SQLite file, which several processes of a machine may use at once."""

import asyncio
import os
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from sqlite3 import Connection, IntegrityError
from typing import Any, Literal, NoReturn, TypeVar, Unpack

from ..errors import RunExistsError, RunNotFoundError, SetupError, StoreError, ThreadBusyError, check_choice
from . import records
from .base import FINISHED_STATUSES, Lease, RecordPage, RunFilters, RunRecord, RunStatus
from .records import COLUMNS, among, counting, log_of, packed, page_of, parse_filters, record_in, row_of, selection
from .sqlite_file import LINES_OF_A_RUN, GroupCommitter, SQLiteConnection, StoreLockedError, Work

T = TypeVar("T")

_CREATE = f"INSERT INTO runs({COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
_KEEP = f"INSERT INTO pieces SELECT number * {LINES_OF_A_RUN} + ?, ? FROM runs WHERE run_id = ?"
_MOVE = """
UPDATE runs SET seq = seq + ?, updated_at = ?, status = coalesce(?, status)
WHERE run_id = ? AND seq = ? AND fence = coalesce(?, fence)"""
_LEASE = "UPDATE runs SET worker = ?, lease_until = ?, fence = ?, cancel_requested = ? WHERE run_id = ?"
_RECORD = f"SELECT {COLUMNS} FROM runs WHERE run_id = ?"
_BUSY = "SELECT run_id, status FROM runs WHERE thread = ? AND status IN ('running', 'suspended')"
_NUMBER = "SELECT number, seq FROM runs WHERE run_id = ?"
_FROM = "SELECT coalesce(max(place), ?1) FROM pieces WHERE place BETWEEN ?1 AND ?2"
# Whatever a damaged row holds comes as bytes, and the checksum tells.
_LOAD = "SELECT place - ?, coalesce(CAST(lines AS BLOB), x'') FROM pieces WHERE place BETWEEN ? AND ? ORDER BY place"
_PUT_NOTE = """
INSERT INTO notes(run, name, note) SELECT number, ?, ? FROM runs WHERE run_id = ?
ON CONFLICT(run, name) DO UPDATE SET note = excluded.note"""
_DROP_NOTE = "DELETE FROM notes WHERE run = (SELECT number FROM runs WHERE run_id = ?) AND name = ?"
_NOTES = """
SELECT name, note FROM notes WHERE run = (SELECT number FROM runs WHERE run_id = ?) ORDER BY notes.number"""
_FORGET = (
    "DELETE FROM runs WHERE number = ?1",
    "DELETE FROM notes WHERE run = ?1",
    f"DELETE FROM pieces WHERE place BETWEEN ?1 * {LINES_OF_A_RUN} AND ?1 * {LINES_OF_A_RUN} + {LINES_OF_A_RUN - 1}",
)


class SQLiteStore:
    """Keeps logs in an SQLite file.

    With `durability="process"` they survive whatever happens to the process; a power cut may cost the newest lines, but
    never the order of those before. With `"power"` an append returns when the disk has its lines. `timeout` is how
    long to wait for another process that has the file locked.
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
            raise SetupError(f"SQLiteStore({str(path)!r}) has no file; name one, or use MemoryStore()")
        # Resolved now, so that the store stays where it is when the program changes its folder.
        self.path = Path(path).absolute()
        self.durability = durability
        self.is_immediate = durability == "process"
        self._timeout = timeout
        self._clock = clock
        self._name = f"SQLiteStore({os.fspath(path)!r})"
        self._file = SQLiteConnection(self.path, name=self._name, synchronous="NORMAL")
        self._group: GroupCommitter | None = None
        if durability == "power":
            patient = SQLiteConnection(self.path, name=self._name, synchronous="FULL", patience=timeout)
            self._group = GroupCommitter(patient)

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
        """Begin a run with its first lines."""
        record = records.begun(
            run_id, len(lines), thread=thread, owner=owner, worker=worker, ttl=ttl, now=self._clock()
        )
        piece = self._piece(0, lines)

        def begin(connection: Connection) -> Lease:
            try:
                connection.execute(_CREATE, row_of(record))
            except IntegrityError:
                if self._found(connection, run_id) is not None:
                    raise RunExistsError(run_id) from None
                _raise_busy(connection, thread)
            if piece:
                connection.execute(_KEEP, (0, piece, run_id))
            return records.lease_of(record)

        return await self._write(begin)

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
        piece = self._piece(expected_seq, lines)
        move = (len(lines), self._clock(), status, run_id, expected_seq, fence)

        def add(connection: Connection) -> None:
            try:
                moved = connection.execute(_MOVE, move).rowcount
            except IntegrityError:
                _raise_busy(connection, self._known(connection, run_id).thread)
            if not moved:
                raise records.refusal(self._known(connection, run_id), expected_seq, fence) or self._odd(run_id)
            if piece:
                connection.execute(_KEEP, (expected_seq, piece, run_id))

        await self._write(add)

    async def load(self, run_id: str, *, start: int = 0) -> Sequence[bytes]:
        """The lines of a run from number `start` on. LogError if any are damaged or missing."""

        def pieces(connection: Connection) -> tuple[int, Sequence[tuple[int, bytes]]] | None:
            found = connection.execute(_NUMBER, (run_id,)).fetchone()
            if found is None:
                return None
            number, seq = found
            if not isinstance(number, int) or not isinstance(seq, int):
                raise self._odd(run_id)
            origin = number * LINES_OF_A_RUN
            # The line may stand in the middle of a piece; the piece then begins before it.
            (place,) = connection.execute(_FROM, (origin, origin + start)).fetchone() if start else (origin,)
            return seq, connection.execute(_LOAD, (origin, place, origin + LINES_OF_A_RUN - 1)).fetchall()

        kept = await self._read(pieces)
        if kept is None:
            raise RunNotFoundError(run_id, store=self._name)
        return log_of(kept[1], start=start, end=kept[0])

    async def record(self, run_id: str) -> RunRecord | None:
        """What is known about a run."""
        return await self._read(lambda connection: self._found(connection, run_id))

    async def list(self, **wanted: Unpack[RunFilters]) -> RecordPage:
        """A page of records."""
        query = parse_filters(wanted)
        page, count = selection(query, table="runs", mark="?"), counting(query, table="runs", mark="?")

        def found(connection: Connection) -> tuple[Sequence[Sequence[Any]], int | None]:
            total = connection.execute(*count).fetchone()[0] if query.count_total else None
            return connection.execute(*page).fetchall(), total

        rows, total = await self._read(found)
        return page_of(query, [record_in(row, store=self._name) for row in rows], total)

    async def put_note(self, run_id: str, name: str, note: bytes | None) -> None:
        """Keep a note beside a run's log, or take it away."""
        records.checked_names(run_id, name=name)

        def put(connection: Connection) -> None:
            self._known(connection, run_id)
            values = (run_id, name) if note is None else (name, note, run_id)
            connection.execute(_DROP_NOTE if note is None else _PUT_NOTE, values)

        await self._write(put)

    async def notes(self, run_id: str) -> Mapping[str, bytes]:
        """The notes of a run by name."""
        return dict(await self._read(lambda connection: connection.execute(_NOTES, (run_id,)).fetchall()))

    async def delete(self, run_id: str) -> bool:
        """Forget a run."""

        def forget(connection: Connection) -> bool:
            rows = connection.execute("SELECT number FROM runs WHERE run_id = ?", (run_id,)).fetchall()
            return _forget(connection, rows) > 0

        return await self._write(forget)

    async def expire(self, older_than: float, *, status: Collection[RunStatus] = FINISHED_STATUSES) -> int:
        """Forget runs that nobody has written to for long."""
        wanted, now = records.checked_status(status), self._clock()
        statement = f"SELECT number FROM runs WHERE {among(wanted, mark='?')} AND updated_at <= ? AND lease_until <= ?"
        values = (*wanted, now - older_than, now)
        return await self._write(lambda file: _forget(file, file.execute(statement, values).fetchall()))

    async def acquire(self, run_id: str, worker: str, *, ttl: float) -> Lease:
        """Take the lease on a run."""

        def take(connection: Connection) -> Lease:
            known = self._known(connection, run_id)
            return _lease(connection, records.acquired(known, worker, ttl=ttl, now=self._clock()))

        return await self._write(take)

    async def renew(self, lease: Lease, *, ttl: float) -> Lease:
        """Hold a lease for longer."""

        def hold(connection: Connection) -> Lease:
            known = self._known(connection, lease.run_id)
            return _lease(connection, records.renewed(known, lease, ttl=ttl, now=self._clock()))

        return await self._write(hold)

    async def release(self, lease: Lease) -> None:
        """Give a lease back."""

        def let_go(connection: Connection) -> None:
            if (known := self._found(connection, lease.run_id)) is not None:
                _lease(connection, records.released(known, lease))

        await self._write(let_go)

    async def request_cancel(self, run_id: str, when: Literal["now", "after_turn"]) -> bool:
        """Leave word for the run's driver to stop."""

        def leave_word(connection: Connection) -> bool:
            known = self._found(connection, run_id)
            told = known and records.asked_to_cancel(known, when)
            if told is None:
                return False
            _lease(connection, told)
            return True

        return await self._write(leave_word)

    async def close(self) -> None:
        """Close the file."""
        if self._group is not None:
            await asyncio.to_thread(self._group.close)
        self._file.close()

    async def _write(self, work: Work[T]) -> T:
        if self._group is not None:
            return await self._group.write(work)
        return await self._patiently(self._file.write, work)

    async def _read(self, work: Work[T]) -> T:
        return await self._patiently(self._file.read, work)

    async def _patiently(self, do: Callable[[Work[T]], T], work: Work[T]) -> T:
        """Do it here and now; while another process has the file, wait without holding up other tasks."""
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

    def _piece(self, expected_seq: int, lines: Sequence[bytes]) -> bytes:
        if expected_seq + len(lines) >= LINES_OF_A_RUN:
            raise StoreError(f"a log has at most {LINES_OF_A_RUN - 1} lines", store=self._name)
        return packed(lines) if lines else b""

    def _found(self, connection: Connection, run_id: str) -> RunRecord | None:
        row = connection.execute(_RECORD, (run_id,)).fetchone()
        return None if row is None else record_in(row, store=self._name)

    def _known(self, connection: Connection, run_id: str) -> RunRecord:
        if (record := self._found(connection, run_id)) is None:
            raise RunNotFoundError(run_id, store=self._name)
        return record

    def _odd(self, run_id: str) -> StoreError:
        return StoreError(f"the index of run `{run_id}` does not fit its record; the file is damaged", store=self._name)


def _lease(connection: Connection, record: RunRecord) -> Lease:
    values = (record.worker, record.lease_until, record.fence, record.cancel_requested, record.run_id)
    connection.execute(_LEASE, values)
    return records.lease_of(record)


def _forget(connection: Connection, rows: Sequence[tuple[int]]) -> int:
    for (number,) in rows:
        for statement in _FORGET:
            connection.execute(statement, (number,))
    return len(rows)


def _raise_busy(connection: Connection, thread: str) -> NoReturn:
    run_id, status = connection.execute(_BUSY, (thread,)).fetchone()
    raise ThreadBusyError(thread, run_id, status)
