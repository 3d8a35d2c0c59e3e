"""The schema of the PostgreSQL engine: procrastinate's tables beside the store's, and functions that fill them.

`queue_schema.sql` creates it. It holds no state of runs: the store says which runs need a job.
"""

from collections.abc import Mapping
from typing import Any

from procrastinate.schema import SchemaManager
from psycopg import AsyncConnection
from psycopg.sql import SQL, Composed, Identifier, Literal

from ..errors import SetupError
from ..stores.sql_files import read_sql

LAYOUT = 2
"""The layout of this schema; raise it with every change of it, and of procrastinate's own schema."""
TASK = "baton.drive"
"""The name of procrastinate's task."""
ANY_TEAM = "any"
"""The queue of runs whose team is unknown."""
_LOCK = 4_210_773_301
_OWNER_LOCK = 1_111_577_680


class QueueSchema:
    """The names and the statements of one queue."""

    def __init__(self, store_schema: str) -> None:
        self.name = "baton_queue" if store_schema == "public" else f"baton_queue_{store_schema}"[:63]
        """The name of the queue's schema; a store outside of `public` has one of its own."""
        self._names: Mapping[str, Any] = {
            "queue": Identifier(self.name),
            "store": Identifier(store_schema),
            "layout": Literal(LAYOUT),
            "any_team": Literal(ANY_TEAM),
            "task": Literal(TASK),
            "lock": Literal(_OWNER_LOCK),
        }

    def format(self, statement: str) -> Composed:
        """Fill in the names of the schemas."""
        return SQL(statement).format(**self._names)  # pyright: ignore[reportArgumentType] - only our own statements

    async def create(self, connection: AsyncConnection[Any]) -> None:
        """Create the schema unless it exists. Raises SetupError if it has another layout."""
        await connection.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
        layout = await self._layout(connection)
        if layout == LAYOUT:
            return
        if layout is not None:
            raise SetupError(
                f"the queue in the schema `{self.name}` has layout {layout}, but this version of Baton has layout "
                f"{LAYOUT}: it was made by an unreleased version, or by a newer one; upgrade Baton, or stop all "
                f'workers and DROP SCHEMA "{self.name}" CASCADE, which loses no run'
            )
        # In the order in which writers lock the tables, so that neither waits for the other: see the triggers.
        await connection.execute(self.format("LOCK TABLE {store}.baton_runs, {store}.baton_runnable"))
        await connection.execute(self.format("CREATE SCHEMA {queue}"))
        await connection.execute(self.format("SET LOCAL search_path = {queue}"))
        await connection.execute(SchemaManager.get_schema().encode())
        await connection.execute(self.format(read_sql(__file__, "queue_schema.sql")))

    async def _layout(self, connection: AsyncConnection[Any]) -> int | None:
        """Return the layout of the schema in the database; None if there is none."""
        table = await (
            await connection.execute("SELECT to_regclass(%s)", (f'"{self.name}".baton_settings',))
        ).fetchone()
        if table is None or table[0] is None:
            return None
        settings = await connection.execute(self.format("SELECT layout FROM {queue}.baton_settings"))
        row = await settings.fetchone()
        return 0 if row is None else row[0]
