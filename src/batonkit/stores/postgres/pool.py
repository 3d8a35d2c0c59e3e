"""Connection pools for one PostgreSQL database, which create its tables. The only module that imports psycopg."""

import asyncio
import os
import socket
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import nullcontext, suppress
from time import monotonic
from typing import Any, LiteralString, TypeVar
from weakref import WeakSet

from psycopg import AsyncConnection, AsyncCursor, AsyncPipeline, Error, IntegrityError, OperationalError, errors
from psycopg.conninfo import conninfo_to_dict
from psycopg.sql import SQL, Identifier
from psycopg_pool import AsyncConnectionPool, PoolTimeout

from ...errors import SetupError, StoreError
from ..records import check_layout, copy_of
from ..sql_files import read_sql

LAYOUT = 1
"""The layout that `schema.sql` creates."""
_LOCK = 0x4241544F
"""The advisory lock of the process that creates the tables: "BATO"."""

_ATTEMPTS = 6
_FIRST_PAUSE = 0.02
_SESSION = """
SELECT set_config(name, %(timeout)s, false)
FROM unnest(ARRAY['lock_timeout', 'idle_in_transaction_session_timeout']) AS name WHERE current_setting(name) = '0'"""
"""Let the server give up what a process no longer waits for, unless the user has set other limits."""

T = TypeVar("T")
Row = tuple[Any, ...]
Values = Mapping[str, Any] | Sequence[Any]
Connection = AsyncConnection[Row]
Pool = AsyncConnectionPool[Connection]
Work = Callable[[Connection], Awaitable[T]]


async def execute(connection: Connection, statement: LiteralString, values: Values) -> list[Row]:
    """Execute a statement; return its rows."""
    cursor = await connection.execute(statement, values, binary=True)
    return await cursor.fetchall() if cursor.description is not None else []


async def _execute_many(
    connection: Connection, statements: Sequence[tuple[LiteralString, Sequence[Values]]], lock_seconds: float
) -> list[list[list[Row]]]:
    cursors: list[AsyncCursor[Row]] = []
    async with connection.pipeline() if AsyncPipeline.is_supported() else nullcontext(), connection.transaction():
        await connection.execute("SELECT set_config('lock_timeout', %s, true)", (f"{lock_seconds * 1000:.0f}ms",))
        for statement, values in statements:
            cursors.append(connection.cursor(binary=True))
            await cursors[-1].executemany(statement, values, returning=True)
    return [[rows async for rows in _result_sets(cursor)] for cursor in cursors]


async def _result_sets(cursor: AsyncCursor[Row]) -> AsyncGenerator[list[Row]]:
    yield await cursor.fetchall()
    while cursor.nextset():
        yield await cursor.fetchall()


class PostgresPool:
    """Runs statements and transactions, with one pool per event loop."""

    def __init__(self, url: str, *, size: int, timeout: float) -> None:
        try:
            parameters = conninfo_to_dict(url)
        except Error as problem:
            raise SetupError(f"cannot parse the address of PostgresStore: {str(problem).strip()}") from None
        self.name = f"PostgresStore({_public_url(parameters)!r})"
        self._url = url
        self._size = size
        self.timeout = timeout
        """Seconds after which a call fails."""
        self._options: dict[str, Any] = {
            "autocommit": True,
            "connect_timeout": max(2, int(timeout)),
            "tcp_user_timeout": int(timeout * 1000),
            "keepalives_idle": max(1, int(timeout)),
            "keepalives_interval": 2,
            "keepalives_count": 3,
        }
        self._pools: dict[asyncio.AbstractEventLoop, tuple[Pool, WeakSet[AsyncConnection[Row]]]] = {}
        self._opening: dict[asyncio.AbstractEventLoop, asyncio.Lock] = {}
        self._reasons: dict[asyncio.AbstractEventLoop, asyncio.Future[StoreError]] = {}

    async def fetch(self, statement: LiteralString, values: Values) -> list[Row]:
        """Run a statement, which may be executed twice if the connection is lost; return its rows."""
        return await self.change(statement, values) or []

    async def change(self, statement: LiteralString, values: Values, *, since: float | None = None) -> list[Row] | None:
        """Like `fetch`, but return None if the statement violates a unique constraint."""
        return await self._run(lambda connection: execute(connection, statement, values), since=since)

    async def pipeline(
        self,
        statements: Sequence[tuple[LiteralString, Sequence[Values]]],
        *,
        lock_seconds: float,
        since: float,
    ) -> list[list[list[Row]]] | None:
        """Execute statements in one transaction, and send them without waiting for each result.

        Returns:
            The rows for each set of values of each statement; None, with nothing written, if the server refused one
            of the statements.
        """

        async def run(connection: AsyncConnection[Row]) -> list[list[list[Row]]] | None:
            try:
                return await _execute_many(connection, statements, lock_seconds)
            except Error as failure:
                if isinstance(failure, OperationalError) and _is_disconnect(failure):
                    raise
                return None

        return await self._run(run, since=since)

    async def transact(self, work: Work[T]) -> T | None:
        """Run statements in one transaction; return None if one violates a unique constraint.

        If the connection is lost, `work` runs again, possibly after its first attempt was committed.
        """

        async def run(connection: AsyncConnection[Row]) -> T:
            async with connection.transaction():
                return await work(connection)

        return await self._run(run)

    async def _run(self, work: Work[T], *, since: float | None = None) -> T | None:
        pool = await self._open()
        used = list[AsyncConnection[Row]]()
        try:
            return await self._limited(self._run_with_retry(pool, used, work), used, since=since)
        except IntegrityError:
            return None
        except Error as failure:
            raise self._to_store_error(failure) from failure

    async def listen(self, channel: LiteralString) -> AsyncGenerator[str]:
        """Yield "" and then the messages of the channel whose name a query returns."""
        try:
            async with await AsyncConnection.connect(self._url, **self._options) as connection:
                found = await (await connection.execute(channel)).fetchone()
                assert found is not None
                await connection.execute(SQL("LISTEN {}").format(Identifier(found[0])))
                yield ""
                async for message in connection.notifies():
                    yield message.payload
        except Error as failure:
            raise self._to_store_error(failure) from failure

    async def close(self) -> None:
        """Close the connections of this event loop; they are reopened when needed."""
        self._close_orphans()
        self._opening.pop(asyncio.get_running_loop(), None)
        mine = self._pools.pop(asyncio.get_running_loop(), None)
        if mine is not None:
            await mine[0].close()

    async def _limit_session(self, connection: Connection) -> None:
        """Limit the time for which a session waits for locks, or holds them and stands still.

        Otherwise a process that stands still in a transaction would lock runs for as long as it does.
        """
        await connection.execute(_SESSION, {"timeout": f"{self.timeout * 1000:.0f}ms"})

    async def _limited(
        self, work: Coroutine[Any, Any, T], used: Sequence[AsyncConnection[Row]], *, since: float | None = None
    ) -> T:
        """Return the result of work with these connections, or abandon it after the time limit.

        psycopg waits for the server even if its task is cancelled, so a server that hangs would hang the caller.
        """
        task = asyncio.ensure_future(work)
        # Its error is not read if the caller is cancelled, or the work abandoned.
        task.add_done_callback(_retrieve)
        deadline = (monotonic() if since is None else since) + self.timeout
        cancelled = None
        while not task.done() and (left := deadline - monotonic()) > 0:
            try:
                await asyncio.wait([task], timeout=left)
            except asyncio.CancelledError as error:
                # The caller must know whether the statement was executed, as long as the server answers.
                cancelled = error
        if not task.done():
            for connection in used:
                _break_connection(connection)
            task.cancel()
        if cancelled is not None:
            raise cancelled
        if not task.done():
            raise StoreError(
                f"the server did not answer within {self.timeout:g} s; check its load, "
                "or raise PostgresStore(timeout=…)",
                store=self.name,
            )
        return task.result()

    async def _run_with_retry(self, pool: Pool, used: list[AsyncConnection[Row]], work: Work[T]) -> T:
        attempt = 1
        while True:
            try:
                return await self._run_once(pool, used, work)
            except Error as failure:
                # After a deadlock the server has undone everything, so that the other transaction can go on.
                is_deadlock = isinstance(failure, errors.DeadlockDetected)
                if attempt == _ATTEMPTS or not (is_deadlock or _is_disconnect(failure)):
                    raise
            # The other connections of the pool were probably lost too; or the pool was closed meanwhile.
            if pool.closed:
                pool = await self._open()
            else:
                await pool.check()
            await _pause(attempt)
            attempt += 1

    async def _run_once(self, pool: Pool, used: list[AsyncConnection[Row]], work: Work[T]) -> T:
        try:
            async with pool.connection() as connection:
                used[:] = [connection]
                result = await work(connection)
                used.clear()
                return result
        except PoolTimeout:
            # Many callers may have waited: one connection finds the reason for all of them.
            loop = asyncio.get_running_loop()
            reason = self._reasons.get(loop)
            if reason is None:
                reason = self._reasons[loop] = asyncio.ensure_future(self._explain_timeout(pool))
                reason.add_done_callback(lambda _: self._reasons.pop(loop, None))
            raise copy_of(await asyncio.shield(reason)) from None

    async def _open(self) -> Pool:
        loop = asyncio.get_running_loop()
        if (known := self._pools.get(loop)) is not None:
            return known[0]
        self._close_orphans()
        async with self._opening.setdefault(loop, asyncio.Lock()):
            if (known := self._pools.get(loop)) is not None:
                return known[0]
            await self._create_tables()
            connections: WeakSet[AsyncConnection[Row]] = WeakSet()

            async def configure(connection: AsyncConnection[Row]) -> None:
                connections.add(connection)
                await self._limit_session(connection)

            pool: Pool = AsyncConnectionPool(
                self._url,
                kwargs=self._options,
                min_size=1,
                max_size=self._size,
                # Half of the limit: the rest is for finding out why there is no connection.
                timeout=self.timeout / 2,
                configure=configure,
                open=False,
                name="baton",
            )
            try:
                # Wait for the first connection; otherwise the pool may open a second one that outlives the loop.
                await pool.open(wait=True, timeout=self.timeout)
            except BaseException as failure:
                await pool.close()
                if isinstance(failure, Error):
                    raise self._to_store_error(failure) from failure
                raise
            self._pools[loop] = (pool, connections)
            return pool

    def _close_orphans(self) -> None:
        """Close the connections of event loops that ended without closing the store."""
        for loop in [loop for loop in self._pools if loop.is_closed()]:
            _, connections = self._pools.pop(loop)
            for connection in [*connections]:
                connection.pgconn.finish()
        for loop in [loop for loop in self._opening if loop.is_closed()]:
            del self._opening[loop]

    async def _create_tables(self) -> None:
        """Create the tables unless they exist, again if the connection is lost."""
        attempt = 1
        while True:
            try:
                return await self._create_tables_once()
            except Error as failure:
                if attempt == _ATTEMPTS or not _is_disconnect(failure) or _is_refused(failure):
                    raise self._to_store_error(failure) from failure
            await _pause(attempt)
            attempt += 1

    async def _create_tables_once(self) -> None:
        async with await AsyncConnection.connect(self._url, **self._options) as connection:
            await self._limit_session(connection)
            if await self._limited(self._has_tables(connection), [connection]):
                return
            # Taken before the transaction, so that it sees what other processes created, which wait for each other.
            await connection.execute("SELECT pg_advisory_lock(%s)", (_LOCK,))
            async with connection.transaction():
                if not await self._has_tables(connection):
                    await connection.execute(read_sql(__file__, "schema.sql").encode())

    async def _has_tables(self, connection: AsyncConnection[Row]) -> bool:
        """Return whether there are tables. Raises StoreError if they have another layout."""
        table = await (await connection.execute("SELECT to_regclass('baton_layout')")).fetchone()
        if table is None or table[0] is None:
            return False
        layout = await (await connection.execute("SELECT max(version) FROM baton_layout")).fetchone()
        check_layout(layout[0] if layout is not None else None, LAYOUT, self.name)
        return True

    async def _explain_timeout(self, pool: Pool) -> StoreError:
        """Return the reason why the pool has no connection, found by connecting again."""
        try:
            async with await AsyncConnection.connect(self._url, **self._options):
                pass
        except Error as failure:
            # A pool backs off; a new one connects as soon as the server is available.
            self._pools.pop(asyncio.get_running_loop(), None)
            await pool.close()
            return self._to_store_error(failure)
        return StoreError(
            f"all {self._size} connections were in use for {self.timeout / 2:g} s; "
            "raise PostgresStore(max_connections=…)",
            store=self.name,
        )

    def _to_store_error(self, failure: Error) -> StoreError:
        said = str(failure).strip().replace("\n", " ")
        return StoreError(f"{_advice(failure)} ({said})", store=self.name)


async def _pause(attempt: int) -> None:
    """Wait after an attempt that failed, each time longer: connections may be cut for a while."""
    await asyncio.sleep(_FIRST_PAUSE * 2 ** (attempt - 1))


def _break_connection(connection: AsyncConnection[Row]) -> None:
    """Make every wait for the server fail at once."""
    try:
        copy = socket.socket(fileno=os.dup(connection.pgconn.socket))
    except (OSError, Error):
        return  # It is closed already.
    with copy, suppress(OSError):
        copy.shutdown(socket.SHUT_RDWR)


def _retrieve(task: "asyncio.Future[Any]") -> None:
    if not task.cancelled():
        task.exception()


_REJECTED_USER = "the server rejects this user or password; check both"
_NO_DATABASE = "there is no such database; create it first"
_CHANGED_TABLES = "its tables were changed or removed; restore them, or close this store and open it again"
_ADVICE: Sequence[tuple[type[Error], str]] = (
    (errors.InvalidPassword, _REJECTED_USER),
    (errors.InvalidAuthorizationSpecification, _REJECTED_USER),
    (errors.InvalidCatalogName, _NO_DATABASE),
    (
        errors.InsufficientPrivilege,
        "this user lacks a privilege; grant it CREATE on the schema, and read and write access to the tables",
    ),
    (errors.DiskFull, "the server's disk is full; free some space and try again"),
    (
        errors.LockNotAvailable,
        "another transaction has locked these rows for too long; find it in pg_stat_activity and end it",
    ),
    (errors.ReadOnlySqlTransaction, "the server is read-only, as a standby is; use the address of the primary"),
    (
        errors.TooManyConnections,
        "the server has no free connections; lower PostgresStore(max_connections=…) or raise the server's limit",
    ),
    (errors.UndefinedTable, _CHANGED_TABLES),
    (errors.UndefinedColumn, _CHANGED_TABLES),
    (errors.DataError, "a value cannot be stored; use plain text for names"),
)


def _advice(failure: Error) -> str:
    for kind, advice in _ADVICE:
        if isinstance(failure, kind):
            return advice
    if not isinstance(failure, OperationalError):
        return "PostgreSQL refused"
    if _is_rejected_user(failure):
        return _REJECTED_USER
    if _is_missing_database(failure):
        return _NO_DATABASE
    if failure.sqlstate is None:
        return "the server cannot be reached; check that it runs, and that host and port are right"
    return "PostgreSQL refused"


def _is_disconnect(failure: Error) -> bool:
    """Return whether the connection was lost, rather than the statement refused."""
    return failure.sqlstate is None or failure.sqlstate.startswith(("08", "57P", "25P03"))


def _is_refused(failure: Error) -> bool:
    """Return whether the server refused a new connection for good."""
    return _is_rejected_user(failure) or _is_missing_database(failure)


# The errors of a new connection have no SQLSTATE.
def _is_rejected_user(failure: Error) -> bool:
    said = str(failure)
    return "password authentication failed" in said or "no password supplied" in said


def _is_missing_database(failure: Error) -> bool:
    said = str(failure)
    return 'database "' in said and "does not exist" in said


def _public_url(parameters: Mapping[str, Any]) -> str:
    user = parameters.get("user")
    host = parameters.get("host")
    port = parameters.get("port")
    place = "".join((f"{user}@" if user else "", str(host or "localhost"), f":{port}" if port else ""))
    return f"postgresql://{place}/{parameters.get('dbname') or ''}"
