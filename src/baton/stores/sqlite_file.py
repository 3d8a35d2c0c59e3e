"""One SQLite file: opened when first needed, laid out once, and whatever goes wrong with it as a StoreError.

Commits that wait for the disk, in a thread of their own, shared by everybody who waits at the same time.
"""

import asyncio
import os
import sqlite3
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from sqlite3 import Connection, Error
from threading import Lock
from typing import Any, Literal, TypeVar

from ..errors import BatonError, StoreError

T = TypeVar("T")
Work = Callable[[sqlite3.Connection], T]

APPLICATION = 0x4241544F
"""Marks the file as Baton's own: "BATO"."""
VERSION = 3
LINES_OF_A_RUN = 1 << 24
"""The key of a piece is `run * LINES_OF_A_RUN + first line`: in one tree, the pieces of a run are neighbours."""

_LAYOUT = f"""
CREATE TABLE runs(
    number INTEGER PRIMARY KEY, run_id TEXT NOT NULL UNIQUE, status TEXT NOT NULL, seq INTEGER NOT NULL,
    thread TEXT NOT NULL, created_at REAL NOT NULL, updated_at REAL NOT NULL, owner TEXT NOT NULL,
    lease_until REAL NOT NULL, fence INTEGER NOT NULL, cancel TEXT NOT NULL);
CREATE INDEX runs_by_time ON runs(created_at, run_id);
CREATE INDEX runs_by_status ON runs(status, created_at, run_id);
CREATE INDEX runs_by_thread ON runs(thread, created_at, run_id) WHERE thread != '';
CREATE UNIQUE INDEX busy_threads ON runs(thread) WHERE thread != '' AND status IN ('running', 'suspended');
CREATE TABLE pieces(place INTEGER PRIMARY KEY, lines BLOB NOT NULL);
PRAGMA application_id = {APPLICATION};
"""
_FROM_1 = """
ALTER TABLE runs ADD COLUMN caller TEXT NOT NULL DEFAULT '';
CREATE INDEX runs_by_caller ON runs(caller, created_at, run_id) WHERE caller != '';
CREATE TABLE notes(
    number INTEGER PRIMARY KEY, run INTEGER NOT NULL, name TEXT NOT NULL, note BLOB NOT NULL, UNIQUE(run, name));
"""
_FROM_2 = """
ALTER TABLE runs RENAME COLUMN owner TO worker;
ALTER TABLE runs RENAME COLUMN caller TO owner;
ALTER TABLE runs RENAME COLUMN cancel TO cancel_requested;
DROP INDEX runs_by_caller;
CREATE INDEX runs_by_owner ON runs(owner, created_at, run_id) WHERE owner != '';
"""
_MIGRATIONS = (_LAYOUT, _FROM_1, _FROM_2)
"""The statements that bring a file from version N, its index here, to the next version."""

_ADVICE = {
    sqlite3.SQLITE_FULL: "it is full, or its disk is; make room and try again",
    sqlite3.SQLITE_READONLY: "it may not be written to; allow this user to write to the file and its folder",
    sqlite3.SQLITE_BUSY: "another process has locked it; let that one finish, or raise SQLiteStore(timeout=…)",
    sqlite3.SQLITE_CANTOPEN: "it cannot be opened; its folder must exist, and this user must be allowed to write there",
    sqlite3.SQLITE_CORRUPT: "the file is damaged; restore it from a backup, or `sqlite3 FILE .recover` what is left",
    sqlite3.SQLITE_NOTADB: "the file is no SQLite database, or its beginning is damaged; name another file",
    sqlite3.SQLITE_IOERR: "the disk failed to read or write; look at the disk, and at its quota",
    sqlite3.SQLITE_PERM: "this user may not use the file",
}
_LOCKED = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})
_HARMLESS = frozenset({*_LOCKED, sqlite3.SQLITE_FULL, sqlite3.SQLITE_CONSTRAINT})
"""Failures after which a connection is as good as before; after others the file is opened anew."""


class StoreLockedError(StoreError):
    """Another process has the file locked. It is worth trying again soon."""


class SQLiteConnection:
    """A connection to a file, for one piece of work at a time."""

    def __init__(self, path: Path, *, name: str, synchronous: Literal["NORMAL", "FULL"], patience: float = 0.0) -> None:
        self._path = os.fspath(path)
        self._name = name
        self._synchronous = synchronous
        self._patience = patience
        self._connection: sqlite3.Connection | None = None
        self._identity = (0, 0, 0)
        self._lock = Lock()

    def write(self, work: Work[T]) -> T:
        """Do some work in a transaction of its own: all of it, or nothing."""
        return self._transact("BEGIN IMMEDIATE", work)

    def read(self, work: Work[T]) -> T:
        """Do some work that changes nothing and sees the file as it was at one moment."""
        return self._transact("BEGIN", work)

    def close(self) -> None:
        """Close the file; it is opened anew when it is next needed."""
        with self._lock:
            self._drop()

    def _transact(self, begin: str, work: Work[T]) -> T:
        with self._lock:
            connection = self._open()
            try:
                connection.execute(begin)
                result = work(connection)
                connection.execute("COMMIT")
            except BaseException as failure:
                self._undo(connection)
                if isinstance(failure, sqlite3.Error | UnicodeError):
                    raise self._explained(failure) from failure
                raise
            return result

    def _open(self) -> sqlite3.Connection:
        """The connection, to the file that has this name now: it may have been replaced, or this process forked."""
        identity = self._identity_now()
        if self._connection is not None:
            if identity == self._identity:
                return self._connection
            self._drop()
        try:
            self._connection = self._connected()
        except (sqlite3.Error, UnicodeError) as failure:
            raise self._explained(failure) from failure
        self._identity = self._identity_now()
        return self._connection

    def _identity_now(self) -> tuple[int, int, int]:
        try:
            found = os.stat(self._path)
        except OSError:
            return (os.getpid(), 0, 0)
        return (os.getpid(), found.st_dev, found.st_ino)

    def _connected(self) -> sqlite3.Connection:
        connection = sqlite3.connect(
            self._path, timeout=self._patience, isolation_level=None, check_same_thread=False, cached_statements=64
        )
        try:
            self._lay_out(connection)
            connection.execute("PRAGMA journal_mode = WAL").fetchone()
            connection.execute(f"PRAGMA synchronous = {self._synchronous}")
        except BaseException:
            connection.close()
            raise
        return connection

    def _lay_out(self, connection: sqlite3.Connection) -> None:
        """Make the tables if the file is new, or what an older Baton did not; refuse one that is not ours to change."""
        if self._version(connection) == VERSION:
            return
        connection.execute("BEGIN IMMEDIATE")
        try:
            version = self._version(connection)
            if version != VERSION:
                for statement in "".join(_MIGRATIONS[version:]).split(";"):
                    connection.execute(statement)
                connection.execute(f"PRAGMA user_version = {VERSION}")
            connection.execute("COMMIT")
        except BaseException:
            self._undo(connection)
            raise

    def _version(self, connection: sqlite3.Connection) -> int:
        """The layout that the file has; 0 if it is new."""
        (application,) = connection.execute("PRAGMA application_id").fetchone()
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        if application == APPLICATION:
            if version > VERSION:
                raise StoreError(
                    f"its layout is version {version}, made by a newer Baton; this one knows up to {VERSION}",
                    store=self._name,
                )
            return version
        (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        if application or version or tables:
            raise StoreError("it is the database of another program; name a file of its own", store=self._name)
        return 0

    def _undo(self, connection: sqlite3.Connection) -> None:
        # A full disk may have undone the transaction already, and a broken one cannot undo it: closing then does.
        with suppress(sqlite3.Error):
            if connection.in_transaction:
                connection.execute("ROLLBACK")

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        # A connection that came over a fork belongs to the parent: closing it here would let go of the parent's locks.
        if connection is not None and self._identity[0] == os.getpid():
            connection.close()

    def _explained(self, failure: sqlite3.Error | UnicodeError) -> StoreError:
        if isinstance(failure, UnicodeEncodeError):
            return StoreError("a name has characters that cannot be stored; use plain text", store=self._name)
        # What was text when it was written is no longer.
        is_garbled = isinstance(failure, UnicodeDecodeError) or str(failure).startswith("Could not decode")
        code = sqlite3.SQLITE_CORRUPT if is_garbled else getattr(failure, "sqlite_errorcode", 0) & 0xFF
        if code not in _HARMLESS:
            self._drop()
        advice = _ADVICE.get(code, "SQLite refused")
        kind = StoreLockedError if code in _LOCKED else StoreError
        return kind(f"{advice} ({failure})", store=self._name)


Job = tuple[Work[Any], Future[Any]]


class GroupCommitter:
    """Writes to a file for several tasks with one commit: whoever comes while the disk is busy shares the next."""

    def __init__(self, file: SQLiteConnection) -> None:
        self._file = file
        self._waiting: list[Job] = []
        self._is_writing = False
        self._lock = Lock()
        self._thread: ThreadPoolExecutor | None = None

    async def write(self, work: Work[T]) -> T:
        """Do some work as a part of the next transaction.

        A task that is cancelled while its work is being written learns of it when that is decided, and not before.
        """
        job: Future[T] = Future()
        self._add((work, job))
        answer = asyncio.wrap_future(job)
        try:
            return await asyncio.shield(answer)
        except asyncio.CancelledError:
            if not job.cancel():
                await asyncio.wait([answer])
                _ = answer.exception()
            raise

    def close(self) -> None:
        """Write what is waiting, end the thread and close the file."""
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.shutdown()
        self._file.close()

    def _add(self, job: Job) -> None:
        with self._lock:
            self._waiting.append(job)
            if not self._is_writing:
                self._is_writing = True
                if self._thread is None:
                    self._thread = ThreadPoolExecutor(1, thread_name_prefix="baton-sqlite")
                self._thread.submit(self._write_all)

    def _write_all(self) -> None:
        while True:
            with self._lock:
                group, self._waiting = self._waiting, []
                if not group:
                    self._is_writing = False
                    return
            group = [(work, job) for work, job in group if job.set_running_or_notify_cancel()]
            if len(group) < 2 or not self._written_together(group):
                for work, job in group:
                    _settle(job, lambda work=work: self._file.write(work))

    def _written_together(self, group: list[Job]) -> bool:
        """Whether one transaction has held them all. If not, nothing is written, and each can be tried alone."""
        outcomes: list[tuple[Any, BatonError | None]] = []

        def everything(connection: Connection) -> None:
            for work, _ in group:
                connection.execute("SAVEPOINT one")
                try:
                    outcomes.append((work(connection), None))
                except BatonError as refusal:
                    connection.execute("ROLLBACK TO one")
                    outcomes.append((None, refusal))
                connection.execute("RELEASE one")

        try:
            self._file.write(everything)
        except (BatonError, Error):
            return False
        for (_, job), (result, refusal) in zip(group, outcomes, strict=True):
            job.set_result(result) if refusal is None else job.set_exception(refusal)
        return True


def _settle(job: Future[Any], work: Callable[[], Any]) -> None:
    try:
        job.set_result(work())
    except BaseException as failure:  # noqa: BLE001 - whoever waits for the job gets it.
        job.set_exception(failure)
