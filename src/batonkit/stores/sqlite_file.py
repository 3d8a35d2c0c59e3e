"""Connections to one SQLite file, its schema and migrations."""

import os
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from threading import Lock
from typing import Literal, TypeVar

from ..errors import StoreError
from .records import check_version

T = TypeVar("T")
Work = Callable[[sqlite3.Connection], T]

APPLICATION = 0x4241544F
"""The application id in the file's header: "BATO"."""
VERSION = 7
MAX_LINES = 1 << 24
"""The key of a piece is `run * MAX_LINES + first line`: the pieces of a run are neighbours in one tree."""

_LAYOUT = f"""
CREATE TABLE runs(
    number INTEGER PRIMARY KEY, run_id TEXT NOT NULL UNIQUE, status TEXT NOT NULL, seq INTEGER NOT NULL,
    thread TEXT NOT NULL, created_at REAL NOT NULL, updated_at REAL NOT NULL, worker TEXT NOT NULL,
    lease_until REAL NOT NULL, fence INTEGER NOT NULL, cancel_requested TEXT NOT NULL, owner TEXT NOT NULL DEFAULT '');
CREATE INDEX runs_by_time ON runs(created_at, run_id);
CREATE INDEX runs_by_status ON runs(status, created_at, run_id);
CREATE INDEX runs_by_thread ON runs(thread, created_at, run_id) WHERE thread != '';
CREATE INDEX runs_by_owner ON runs(owner, created_at, run_id) WHERE owner != '';
CREATE UNIQUE INDEX busy_threads ON runs(thread) WHERE thread != '' AND status IN ('running', 'suspended');
CREATE TABLE pieces(place INTEGER PRIMARY KEY, lines BLOB NOT NULL);
CREATE TABLE notes(
    number INTEGER PRIMARY KEY, run INTEGER NOT NULL, name TEXT NOT NULL, note BLOB NOT NULL, UNIQUE(run, name));
PRAGMA application_id = {APPLICATION};
"""
_FROM_3 = """
ALTER TABLE runs ADD COLUMN previous TEXT NOT NULL DEFAULT '';
ALTER TABLE runs ADD COLUMN changed_at REAL NOT NULL DEFAULT 0;
ALTER TABLE runs ADD COLUMN lease_seconds REAL NOT NULL DEFAULT 0;
ALTER TABLE runs ADD COLUMN team TEXT NOT NULL DEFAULT '';
ALTER TABLE runs ADD COLUMN priority INTEGER NOT NULL DEFAULT 0;
ALTER TABLE runs ADD COLUMN wake_at REAL NOT NULL DEFAULT 0;
UPDATE runs SET changed_at = updated_at, previous = coalesce((
    SELECT earlier.run_id FROM runs AS earlier WHERE earlier.thread = runs.thread AND earlier.thread <> ''
        AND earlier.number < runs.number ORDER BY earlier.number DESC LIMIT 1), '');
DROP INDEX runs_by_time;
DROP INDEX runs_by_status;
DROP INDEX runs_by_thread;
DROP INDEX runs_by_owner;
CREATE INDEX runs_by_time ON runs(created_at);
CREATE INDEX runs_by_change ON runs(changed_at, number);
CREATE INDEX runs_by_status ON runs(status, number);
CREATE INDEX runs_by_thread ON runs(thread, number) WHERE thread <> '';
CREATE INDEX runs_by_owner ON runs(owner, number) WHERE owner <> '';
CREATE UNIQUE INDEX thread_chains ON runs(thread, previous) WHERE thread <> '';
CREATE INDEX open_runs ON runs(priority, number) WHERE status = 'running' OR (status = 'suspended' AND wake_at > 0);
"""
_FROM_4 = """
ALTER TABLE runs ADD COLUMN inbox TEXT NOT NULL DEFAULT '';
CREATE TABLE inbox(
    number INTEGER PRIMARY KEY, run_id TEXT NOT NULL UNIQUE, thread TEXT NOT NULL, mode TEXT NOT NULL,
    owner TEXT NOT NULL, body BLOB NOT NULL, created_at REAL NOT NULL);
CREATE INDEX inbox_by_thread ON inbox(thread, number);
"""
_FROM_5 = """
ALTER TABLE runs ADD COLUMN reader INTEGER NOT NULL DEFAULT 1;
CREATE INDEX ended_runs ON runs(changed_at) WHERE status IN ('completed', 'failed', 'cancelled');
"""
# Forks of layout 6 are known by their summaries.
_FROM_6 = """
ALTER TABLE runs ADD COLUMN origins TEXT NOT NULL DEFAULT '[]';
CREATE INDEX runs_with_origins ON runs(number) WHERE origins <> '[]';
WITH RECURSIVE forks AS (
    SELECT run, rtrim(json_extract(CAST(note AS TEXT), '$.forked_from'), '0123456789') AS source FROM notes
    WHERE name = 'baton.summary'
), links AS (
    SELECT run AS fork, number AS source FROM forks JOIN runs ON run_id = substr(source, 1, length(source) - 1)
), ancestors AS (
    SELECT fork, source FROM links UNION
    SELECT a.fork, l.source FROM ancestors AS a JOIN links AS l ON l.fork = a.source
), found AS (
    SELECT fork, 'owner:' || owner AS origin FROM ancestors JOIN runs ON number = source WHERE owner <> '' UNION
    SELECT fork, 'thread:' || thread FROM ancestors JOIN runs ON number = source WHERE thread <> ''
)
UPDATE runs SET origins = known.origins
FROM (SELECT fork, json_group_array(origin) AS origins FROM found GROUP BY fork) AS known WHERE number = known.fork;
DROP INDEX runs_by_time;
CREATE INDEX runs_by_time ON runs(created_at, number);
"""
_STEPS = {3: _FROM_3, 4: _FROM_4, 5: _FROM_5, 6: _FROM_6}
_MIGRATIONS = {version: "".join(step for known, step in _STEPS.items() if known >= version) for version in _STEPS} | {
    0: _LAYOUT + "".join(_STEPS.values())
}
"""The statements that bring a file from a version to the newest one; version 0 is an empty file."""

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
        self._identity = (0, 0, 0)
        self._lock = Lock()

    def write(self, work: Work[T]) -> T:
        """Run `work` in a write transaction."""
        return self._transact("BEGIN IMMEDIATE", work)

    def read(self, work: Work[T]) -> T:
        """Run `work` in a read transaction."""
        return self._transact("BEGIN", work)

    def layout_version(self) -> int:
        """Return the version of the file's layout without migrating it."""
        try:
            with closing(sqlite3.connect(self._path, timeout=self._timeout)) as connection:
                return self._version(connection)
        except sqlite3.Error as failure:
            raise self._to_store_error(failure) from failure

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
        connection = sqlite3.connect(
            self._path, timeout=self._timeout, isolation_level=None, check_same_thread=False, cached_statements=64
        )
        try:
            self._migrate(connection)
            connection.execute("PRAGMA journal_mode = WAL").fetchone()
            connection.execute(f"PRAGMA synchronous = {self._synchronous}")
        except BaseException:
            connection.close()
            raise
        return connection

    def _migrate(self, connection: sqlite3.Connection) -> None:
        """Create or migrate the tables. Raises StoreError for a file that is not Baton's."""
        if self._version(connection) == VERSION:
            return
        connection.execute("BEGIN IMMEDIATE")
        try:
            for statement in _MIGRATIONS.get(self._version(connection), "").split(";"):
                connection.execute(statement)
            connection.execute(f"PRAGMA user_version = {VERSION}")
            connection.execute("COMMIT")
        except BaseException:
            self._rollback(connection)
            raise

    def _version(self, connection: sqlite3.Connection) -> int:
        """Return the version of the file's layout; 0 if it is new."""
        (application,) = connection.execute("PRAGMA application_id").fetchone()
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        if application == APPLICATION:
            check_version(version, {VERSION, *_MIGRATIONS}, self._name)
            return version
        (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        if application or version or tables:
            raise StoreError("it is the database of another program; choose another file", store=self._name)
        return 0

    def _rollback(self, connection: sqlite3.Connection) -> None:
        # A full disk may have rolled back already; on a broken one closing the connection does.
        with suppress(sqlite3.Error):
            if connection.in_transaction:
                connection.execute("ROLLBACK")

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        # A connection inherited by a fork belongs to the parent: closing it would release the parent's locks.
        if connection is not None and self._identity[0] == os.getpid():
            connection.close()

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
