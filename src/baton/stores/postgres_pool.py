"""Connection pools for one PostgreSQL database, its schema and migrations. The only module that imports psycopg."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, LiteralString
from weakref import WeakSet

from psycopg import AsyncConnection, Error, IntegrityError, OperationalError, errors
from psycopg.conninfo import conninfo_to_dict
from psycopg_pool import AsyncConnectionPool, PoolTimeout

from ..errors import SetupError, StoreError

VERSION = 3
_LOCK = 0x4241544F
"""The advisory lock for migrations: "BATO"."""
_LAYOUT: tuple[LiteralString, ...] = (
    """CREATE TABLE baton_runs(
        number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, run_id text COLLATE "C" NOT NULL,
        status text NOT NULL, seq integer NOT NULL, thread text NOT NULL,
        created_at float8 NOT NULL, updated_at float8 NOT NULL, owner text NOT NULL,
        lease_until float8 NOT NULL, fence integer NOT NULL, cancel text NOT NULL, last_write bigint NOT NULL,
        CONSTRAINT baton_run_ids UNIQUE (run_id)) WITH (fillfactor = 80)""",
    "CREATE INDEX baton_runs_by_time ON baton_runs(created_at, run_id)",
    "CREATE INDEX baton_runs_by_status ON baton_runs(status, created_at, run_id)",
    "CREATE INDEX baton_runs_by_thread ON baton_runs(thread, created_at, run_id) WHERE thread <> ''",
    """CREATE UNIQUE INDEX baton_busy_threads ON baton_runs(thread)
        WHERE thread <> '' AND status IN ('running', 'suspended')""",
    """CREATE TABLE baton_pieces(
        run bigint NOT NULL REFERENCES baton_runs ON DELETE CASCADE, first integer NOT NULL, lines bytea NOT NULL,
        PRIMARY KEY (run, first))""",
    "CREATE TABLE baton_layout(version integer NOT NULL)",
    "INSERT INTO baton_layout VALUES (1)",
)
_FROM_1: tuple[LiteralString, ...] = (
    "ALTER TABLE baton_runs ADD COLUMN caller text NOT NULL DEFAULT ''",
    "CREATE INDEX baton_runs_by_caller ON baton_runs(caller, created_at, run_id) WHERE caller <> ''",
    """CREATE TABLE baton_notes(
        number bigint GENERATED ALWAYS AS IDENTITY, run bigint NOT NULL REFERENCES baton_runs ON DELETE CASCADE,
        name text NOT NULL, note bytea NOT NULL, PRIMARY KEY (run, name))""",
    "INSERT INTO baton_layout VALUES (2)",
)
_FROM_2: tuple[LiteralString, ...] = (
    "ALTER TABLE baton_runs RENAME COLUMN owner TO worker",
    "ALTER TABLE baton_runs RENAME COLUMN caller TO owner",
    "ALTER TABLE baton_runs RENAME COLUMN cancel TO cancel_requested",
    "ALTER INDEX baton_runs_by_caller RENAME TO baton_runs_by_owner",
    "INSERT INTO baton_layout VALUES (3)",
)
_MIGRATIONS = (_LAYOUT, _FROM_1, _FROM_2)
"""The statements that bring the tables from version N, its index here, to the next version."""

Row = tuple[Any, ...]
Values = Mapping[str, Any] | Sequence[Any]
Pool = AsyncConnectionPool[AsyncConnection[Row]]


class PostgresPool:
    """Runs single statements in their own transactions, with one pool per event loop."""

    def __init__(self, url: str, *, size: int, timeout: float) -> None:
        try:
            known = conninfo_to_dict(url)
        except Error as problem:
            raise SetupError(f"cannot parse the address of PostgresStore: {str(problem).strip()}") from None
        self.name = f"PostgresStore({_public_url(known)!r})"
        self._url = url
        self._size = size
        self._timeout = timeout
        self._pools: dict[asyncio.AbstractEventLoop, tuple[Pool, WeakSet[AsyncConnection[Row]]]] = {}
        self._opening: dict[asyncio.AbstractEventLoop, asyncio.Lock] = {}

    async def fetch(self, statement: LiteralString, values: Values) -> list[Row]:
        """Run a statement, which may be executed twice if the connection is lost; return its rows."""
        try:
            return await self._execute_with_retry(statement, values)
        except Error as failure:
            raise self._to_store_error(failure) from failure

    async def change(self, statement: LiteralString, values: Values) -> list[Row] | None:
        """Like `fetch`, but return None if the statement violates a unique constraint."""
        try:
            return await self._execute_with_retry(statement, values)
        except IntegrityError:
            return None
        except Error as failure:
            raise self._to_store_error(failure) from failure

    async def close(self) -> None:
        """Close the connections of this event loop; they are reopened when needed."""
        self._close_orphans()
        self._opening.pop(asyncio.get_running_loop(), None)
        mine = self._pools.pop(asyncio.get_running_loop(), None)
        if mine is not None:
            await mine[0].close()

    async def _execute_with_retry(self, statement: LiteralString, values: Values) -> list[Row]:
        pool = await self._open()
        try:
            return await self._execute(pool, statement, values)
        except Error as failure:
            if not _is_disconnect(failure):
                raise
        # The other connections of the pool were probably lost too; or the pool was closed meanwhile.
        if pool.closed:
            pool = await self._open()
        else:
            await pool.check()
        return await self._execute(pool, statement, values)

    async def _execute(self, pool: Pool, statement: LiteralString, values: Values) -> list[Row]:
        try:
            async with pool.connection() as connection:
                cursor = await connection.execute(statement, values, binary=True)
                return await cursor.fetchall() if cursor.description is not None else []
        except PoolTimeout:
            raise await self._explain_timeout(pool) from None

    async def _open(self) -> Pool:
        loop = asyncio.get_running_loop()
        if (known := self._pools.get(loop)) is not None:
            return known[0]
        self._close_orphans()
        async with self._opening.setdefault(loop, asyncio.Lock()):
            if (known := self._pools.get(loop)) is not None:
                return known[0]
            await self._migrate()
            connections: WeakSet[AsyncConnection[Row]] = WeakSet()

            async def remember(connection: AsyncConnection[Row]) -> None:
                connections.add(connection)

            pool: Pool = AsyncConnectionPool(
                self._url,
                kwargs={"autocommit": True, "connect_timeout": max(2, int(self._timeout))},
                min_size=1,
                max_size=self._size,
                timeout=self._timeout,
                configure=remember,
                open=False,
                name="baton",
            )
            try:
                # Wait for the first connection; otherwise the pool may open a second one that outlives the loop.
                await pool.open(wait=True, timeout=self._timeout)
            except BaseException:
                await pool.close()
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

    async def _connect(self) -> AsyncConnection[Row]:
        wait = max(2, int(self._timeout))
        return await AsyncConnection.connect(self._url, autocommit=True, connect_timeout=wait)

    async def _migrate(self) -> None:
        """Create or migrate the tables; concurrent processes wait for each other."""
        try:
            async with await self._connect() as connection:
                if await self._version(connection) == VERSION:
                    return
                # Taken before the transaction, so that it sees what other processes created.
                await connection.execute("SELECT pg_advisory_lock(%s)", (_LOCK,))
                async with connection.transaction():
                    version = await self._version(connection)
                    for migration in _MIGRATIONS[version:]:
                        for statement in migration:
                            await connection.execute(statement)
        except Error as failure:
            raise self._to_store_error(failure) from failure

    async def _version(self, connection: AsyncConnection[Row]) -> int:
        """Return the version of the tables' layout; 0 if there are none."""
        found = await (await connection.execute("SELECT to_regclass('baton_layout')")).fetchone()
        if found is None or found[0] is None:
            return 0
        row = await (await connection.execute("SELECT max(version) FROM baton_layout")).fetchone()
        version = row[0] if row is not None and row[0] is not None else 0
        if version > VERSION:
            raise StoreError(
                f"its layout is version {version}, made by a newer Baton; this one reads up to {VERSION}",
                store=self.name,
            )
        return version

    async def _explain_timeout(self, pool: Pool) -> StoreError:
        """Return the reason why the pool has no connection, found by connecting again."""
        try:
            async with await self._connect():
                pass
        except Error as failure:
            # A pool backs off; a new one connects as soon as the server is available.
            self._pools.pop(asyncio.get_running_loop(), None)
            await pool.close()
            return self._to_store_error(failure)
        return StoreError(
            f"all {self._size} connections were in use for {self._timeout:g} s; raise PostgresStore(max_connections=…)",
            store=self.name,
        )

    def _to_store_error(self, failure: Error) -> StoreError:
        said = str(failure).strip().replace("\n", " ")
        return StoreError(f"{_advice(failure)} ({said})", store=self.name)


def _advice(failure: Error) -> str:
    said = str(failure)
    match failure:
        case errors.InvalidPassword() | errors.InvalidAuthorizationSpecification():
            return "the server rejects this user or password; check both"
        case errors.InvalidCatalogName():
            return "there is no such database; create it first"
        case errors.InsufficientPrivilege():
            return "this user lacks a privilege; grant it CREATE on the schema, and read and write access to the tables"
        case errors.DiskFull():
            return "the server's disk is full; free some space and try again"
        case errors.ReadOnlySqlTransaction():
            return "the server is read-only, as a standby is; use the address of the primary"
        case errors.TooManyConnections():
            return (
                "the server has no free connections; lower PostgresStore(max_connections=…) or raise the server's limit"
            )
        case errors.UndefinedTable() | errors.UndefinedColumn():
            return "its tables were changed or removed; restore them, or close this store and open it again"
        case errors.DataError():
            return "a value cannot be stored; use plain text for names"
        case OperationalError() if "password authentication failed" in said or "no password supplied" in said:
            return "the server rejects this user or password; check both"
        case OperationalError() if 'database "' in said and "does not exist" in said:
            return "there is no such database; create it first"
        case OperationalError() if failure.sqlstate is None:
            return "the server cannot be reached; check that it runs, and that host and port are right"
        case _:
            return "PostgreSQL refused"


def _is_disconnect(failure: Error) -> bool:
    """Return whether the connection was lost, rather than the statement refused."""
    return failure.sqlstate is None or failure.sqlstate.startswith(("08", "57P"))


def _public_url(known: Mapping[str, Any]) -> str:
    user, host, port = known.get("user"), known.get("host"), known.get("port")
    place = "".join((f"{user}@" if user else "", str(host or "localhost"), f":{port}" if port else ""))
    return f"postgresql://{place}/{known.get('dbname') or ''}"
