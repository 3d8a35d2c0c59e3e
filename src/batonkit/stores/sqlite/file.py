"""Connections to one SQLite file, which create its tables."""

import os
import sqlite3
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import Literal, TypeVar
from weakref import finalize

from ...errors import StoreError
from ..records import check_layout
from ..sql_files import read_sql, split_statements

T = TypeVar("T")
Work = Callable[[sqlite3.Connection], T]

APPLICATION = 0x4241544F
"""The application id in the file's header: "BATO"."""
LAYOUT = 1
"""The layout that `schema.sql` creates."""
MAX_LINES = 1 << 24
"""The key of a piece is `run * MAX_LINES + first line`: the pieces of a run are neighbours in one tree."""

_ADVICE = {
    sqlite3.SQLITE_FULL: "it is full, or its disk is; free some space and try again",
    sqlite3.SQLITE_READONLY: "it is not writable; allow this user to write to the file and its folder",
    sqlite3.SQLITE_BUSY: "another process has locked it; wait for that process, or raise SQLiteStore(timeout=…)",
    sqlite3.SQLITE_CANTOPEN: "it cannot be opened; its folder must exist, and this user must be allowed to write there",
    sqlite3.SQLITE_CORRUPT: "the file is damaged; restore it from a backup, or `sqlite3 FILE .recover` what is left",
    sqlite3.SQLITE_NOTADB: "the file is not an SQLite database, or its header is damaged; choose another file",
    sqlite3.SQLITE_IOERR: "the disk failed to read or write; check the disk and its quota",
    sqlite3.SQLITE_PERM: "this user has no permission to use the file",
}
_LOCKED = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})
_RECOVERABLE = frozenset({*_LOCKED, sqlite3.SQLITE_FULL, sqlite3.SQLITE_CONSTRAINT})
"""Errors after which the connection remains usable; after others the file is reopened."""


class StoreLockedError(StoreError):
    """Another process has locked the file; retrying may succeed."""


class SQLiteConnection:
    """A connection to a file that runs one transaction at a time."""

    def __init__(self, path: Path, *, name: str, synchronous: Literal["NORMAL", "FULL"], timeout: float = 0.0) -> None:
        self._path = os.fspath(path)
        self._name = name
        self._synchronous = synchronous
        self._timeout = timeout
        self._connection: sqlite3.Connection | None = None
        # Closes the file also if the store is dropped without `close`, as in a notebook.
        self._finalizer: finalize[[int, sqlite3.Connection], SQLiteConnection] | None = None
        self._identity = (0, 0, 0)
        self._lock = Lock()

    def write(self, work: Work[T]) -> T:
        """Run `work` in a write transaction."""
        return self._transact("BEGIN IMMEDIATE", work)

    def read(self, work: Work[T]) -> T:
        """Run `work` in a read transaction."""
        return self._transact("BEGIN", work)

    def checkpoint(self) -> None:
        """Move the -wal file's content to the file and truncate it: it has copies of deleted rows.

        Raises:
            StoreLockedError: Another connection reads or writes.
        """
        with self._lock:
            try:
                is_busy, _, _ = self._open().execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            except sqlite3.Error as failure:
                raise self._to_store_error(failure) from failure
            if is_busy:
                advice = (
                    "the runs are deleted, but copies stay in the -wal file while another process uses it; try again"
                )
                raise StoreLockedError(advice, store=self._name)

    def close(self) -> None:
        """Close the file; it is reopened when needed."""
        with self._lock:
            self._disconnect()

    def _transact(self, begin: str, work: Work[T]) -> T:
        with self._lock:
            connection = self._open()
            try:
                connection.execute(begin)
                result = work(connection)
                connection.execute("COMMIT")
            except BaseException as failure:
                self._rollback(connection)
                if isinstance(failure, sqlite3.Error | UnicodeError):
                    raise self._to_store_error(failure) from failure
                raise
            return result

    def _open(self) -> sqlite3.Connection:
        """Return the connection; reconnect if the file was replaced or this process forked."""
        identity = self._file_identity()
        if self._connection is not None:
            if identity == self._identity:
                return self._connection
            self._disconnect()
        self._connection = self._connect_when_unlocked()
        self._finalizer = finalize(self, _close_in_process, os.getpid(), self._connection)
        self._identity = self._file_identity()
        return self._connection

    def _connect_when_unlocked(self) -> sqlite3.Connection:
        # SQLite's own timeout does not apply to the change to WAL while another process creates the tables.
        deadline = time.monotonic() + self._timeout
        while True:
            try:
                return self._connect()
            except (sqlite3.Error, UnicodeError) as failure:
                error = self._to_store_error(failure)
                if not isinstance(error, StoreLockedError) or time.monotonic() >= deadline:
                    raise error from failure
            time.sleep(0.01)

    def _file_identity(self) -> tuple[int, int, int]:
        try:
            found = os.stat(self._path)
        except OSError:
            return (os.getpid(), 0, 0)
        return (os.getpid(), found.st_dev, found.st_ino)

    def _connect(self) -> sqlite3.Connection:
        self._create_file()
        connection = sqlite3.connect(
            self._path, timeout=self._timeout, isolation_level=None, check_same_thread=False, cached_statements=64
        )
        try:
            self._create_tables(connection)
            connection.execute("PRAGMA journal_mode = WAL").fetchone()
            connection.execute(f"PRAGMA synchronous = {self._synchronous}")
            # Overwrite what is deleted, so that no conversation can be read from free pages.
            connection.execute("PRAGMA secure_delete = ON").fetchone()
        except BaseException:
            connection.close()
            raise
        return connection

    def _create_file(self) -> None:
        """Create an empty file for this user only, unless there is one."""
        # SQLite gives its mode to the -wal and -shm files, and says why if it cannot be created.
        with suppress(OSError):
            os.close(os.open(self._path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))

    def _create_tables(self, connection: sqlite3.Connection) -> None:
        """Create the tables unless they exist. Raises StoreError for a file that is not Baton's."""
        if self._has_tables(connection):
            return
        connection.execute("BEGIN IMMEDIATE")
        try:
            # Another process may have created them meanwhile.
            if not self._has_tables(connection):
                for statement in split_statements(read_sql(__file__, "schema.sql")):
                    connection.execute(statement)
            connection.execute("COMMIT")
        except BaseException:
            self._rollback(connection)
            raise

    def _has_tables(self, connection: sqlite3.Connection) -> bool:
        """Return whether the file has Baton's tables; False if it is new."""
        (application,) = connection.execute("PRAGMA application_id").fetchone()
        (layout,) = connection.execute("PRAGMA user_version").fetchone()
        if application == APPLICATION:
            check_layout(layout, LAYOUT, self._name)
            return True
        (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        if application or layout or tables:
            raise StoreError("it is the database of another program; choose another file", store=self._name)
        return False

    def _rollback(self, connection: sqlite3.Connection) -> None:
        # A full disk may have rolled back already; on a broken one closing the connection does.
        with suppress(sqlite3.Error):
            if connection.in_transaction:
                connection.execute("ROLLBACK")

    def _disconnect(self) -> None:
        self._connection = None
        if self._finalizer is not None:
            self._finalizer()

    def _to_store_error(self, failure: sqlite3.Error | UnicodeError) -> StoreError:
        if isinstance(failure, UnicodeEncodeError):
            return StoreError("a name has characters that cannot be stored; use plain text", store=self._name)
        is_garbled = isinstance(failure, UnicodeDecodeError) or str(failure).startswith("Could not decode")
        code = sqlite3.SQLITE_CORRUPT if is_garbled else getattr(failure, "sqlite_errorcode", 0) & 0xFF
        if code not in _RECOVERABLE:
            self._disconnect()
        advice = _ADVICE.get(code, "SQLite refused")
        kind = StoreLockedError if code in _LOCKED else StoreError
        return kind(f"{advice} ({failure})", store=self._name)


def _close_in_process(pid: int, connection: sqlite3.Connection) -> None:
    # A connection inherited by a fork belongs to the parent: closing it would release the parent's locks.
    if pid == os.getpid():
        connection.close()
