"""A store in a PostgreSQL database, for several machines. Needs the extra `postgres`."""

from collections.abc import Collection, Mapping, Sequence
from random import getrandbits
from typing import Literal, LiteralString, Unpack

from ..errors import RunConflictError, RunExistsError, RunNotFoundError, SetupError, ThreadBusyError
from . import records
from .base import FINISHED_STATUSES, Lease, RecordPage, RunFilters, RunRecord, RunStatus
from .records import COLUMNS, count_query, join_pieces, make_page, pack_lines, page_query, parse_filters, row_to_record

# The server's clock, because the clocks of the workers may differ.
_NOW: LiteralString = "extract(epoch FROM clock_timestamp())::float8"
_CREATE: LiteralString = f"""
WITH now AS (SELECT {_NOW} AS at), begun AS (
    INSERT INTO baton_runs({COLUMNS}, last_write)
    SELECT %(run_id)s, 'running', %(count)s, %(thread)s, %(owner)s, at, at, %(worker)s, at + %(ttl)s, 1, '', %(write)s
    FROM now
    RETURNING number, lease_until
), kept AS (
    INSERT INTO baton_pieces SELECT number, 0, %(piece)s FROM begun WHERE %(count)s > 0)
SELECT lease_until FROM begun"""
# A writer that lost its connection retries; `last_write` shows whether its first attempt succeeded.
_APPEND: LiteralString = f"""
WITH moved AS (
    UPDATE baton_runs SET seq = seq + %(count)s, updated_at = {_NOW}, status = coalesce(%(status)s, status),
        last_write = %(write)s
    WHERE run_id = %(run_id)s AND seq = %(expected)s AND fence = coalesce(%(fence)s, fence)
        AND last_write <> %(write)s
    RETURNING number
), kept AS (
    INSERT INTO baton_pieces SELECT number, %(expected)s, %(piece)s FROM moved WHERE %(count)s > 0)
SELECT number FROM moved"""
_LOAD: LiteralString = """
SELECT seq, first, lines FROM baton_runs LEFT JOIN baton_pieces ON run = number AND first >= coalesce((
    SELECT max(first) FROM baton_pieces JOIN baton_runs ON run = number
    WHERE run_id = %(run_id)s AND first <= %(start)s), 0)
WHERE run_id = %(run_id)s ORDER BY first"""
_ACQUIRE: LiteralString = f"""
UPDATE baton_runs SET worker = %(worker)s, fence = fence + 1, lease_until = {_NOW} + %(ttl)s, cancel_requested = ''
WHERE run_id = %(run_id)s AND (worker = %(worker)s OR lease_until <= {_NOW}) RETURNING {COLUMNS}"""
_RENEW: LiteralString = f"""
UPDATE baton_runs SET lease_until = {_NOW} + %(ttl)s
WHERE run_id = %(run_id)s AND fence = %(fence)s RETURNING {COLUMNS}"""
_RELEASE: LiteralString = "UPDATE baton_runs SET lease_until = 0 WHERE run_id = %s AND fence = %s"
_CANCEL: LiteralString = """
UPDATE baton_runs SET cancel_requested = CASE cancel_requested WHEN 'now' THEN 'now' ELSE %s END
WHERE run_id = %s AND status = 'running' RETURNING number"""
_RECORD: LiteralString = f"SELECT {COLUMNS}, last_write, {_NOW} FROM baton_runs WHERE run_id = %s"
_BUSY: LiteralString = """
SELECT run_id, status FROM baton_runs WHERE thread = %s AND thread <> '' AND status IN ('running', 'suspended')"""
_PUT_NOTE: LiteralString = """
INSERT INTO baton_notes(run, name, note) SELECT number, %(name)s, %(note)s FROM baton_runs WHERE run_id = %(run_id)s
ON CONFLICT (run, name) DO UPDATE SET note = excluded.note RETURNING run"""
_DROP_NOTE: LiteralString = """
WITH dropped AS (
    DELETE FROM baton_notes USING baton_runs r WHERE run = r.number AND r.run_id = %(run_id)s AND name = %(name)s)
SELECT number FROM baton_runs WHERE run_id = %(run_id)s"""
_NOTES: LiteralString = """
SELECT name, note FROM baton_notes JOIN baton_runs r ON run = r.number WHERE run_id = %s ORDER BY baton_notes.number"""
_DELETE: LiteralString = "DELETE FROM baton_runs WHERE run_id = %s RETURNING number"
_EXPIRE: LiteralString = f"""
DELETE FROM baton_runs WHERE status = ANY(%s) AND updated_at <= {_NOW} - %s AND lease_until <= {_NOW}
RETURNING number"""


class PostgresStore:
    """A store backed by a PostgreSQL database; it creates its tables `baton_…` when needed.

    Args:
        url: The address of the database.
        max_connections: The maximum number of connections per event loop.
        timeout: Seconds to wait for a connection.
    """

    def __init__(self, url: str, *, max_connections: int = 10, timeout: float = 10.0) -> None:
        try:
            from .postgres_pool import PostgresPool
        except ImportError as missing:
            raise SetupError(
                f"PostgresStore needs a package that is not installed ({missing.name or missing}); "
                "pip install 'baton-adk[postgres]'"
            ) from missing
        self._pool = PostgresPool(url, size=max_connections, timeout=timeout)

    def __repr__(self) -> str:
        return self._pool.name

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
        records.check_names(run_id, thread=thread, owner=owner, worker=worker)
        write = getrandbits(63)
        values = {"run_id": run_id, "thread": thread, "owner": owner, "worker": worker, "ttl": ttl, "write": write}
        values |= {"count": len(lines), "piece": pack_lines(lines)}
        rows = await self._pool.change(_CREATE, values)
        if rows is None:
            known = await self._find(run_id)
            if known is None:
                # The run that kept the thread busy may have finished since; then retry.
                await self._raise_thread_busy(thread)
                return await self.create(run_id, lines, thread=thread, owner=owner, worker=worker, ttl=ttl)
            if known[1] != write:
                raise RunExistsError(run_id)
            return records.to_lease(known[0])
        return Lease(run_id, worker, 1, rows[0][0])

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
        write = getrandbits(63)
        values = {"run_id": run_id, "expected": expected_seq, "status": status, "fence": fence, "write": write}
        values |= {"count": len(lines), "piece": pack_lines(lines)}
        rows = await self._pool.change(_APPEND, values)
        if rows:
            return
        known = await self._find(run_id)
        if known is None:
            raise RunNotFoundError(run_id, store=repr(self))
        record, last_write, _ = known
        if last_write == write:
            return
        if rows is None:
            await self._raise_thread_busy(record.thread)
            await self.append(run_id, expected_seq, lines, status=status, fence=fence)
            return
        raise records.append_conflict(record, expected_seq, fence) or RunConflictError(
            run_id, "another write was in progress"
        )

    async def load(self, run_id: str, *, start: int = 0) -> Sequence[bytes]:
        """Load lines; see `Store.load`."""
        rows = await self._pool.fetch(_LOAD, {"run_id": run_id, "start": start})
        if not rows:
            raise RunNotFoundError(run_id, store=repr(self))
        pieces = [(first, lines) for _, first, lines in rows if lines is not None]
        return join_pieces(pieces, start=start, end=rows[0][0])

    async def record(self, run_id: str) -> RunRecord | None:
        """Return a run's record; see `Store.record`."""
        known = await self._find(run_id)
        return None if known is None else known[0]

    async def list(self, **filters: Unpack[RunFilters]) -> RecordPage:
        """Return a page of records; see `Store.list`."""
        query = parse_filters(filters)
        total = None
        if query.count_total:
            total = (await self._pool.fetch(*count_query(query, table="baton_runs", mark="%s")))[0][0]
        rows = await self._pool.fetch(*page_query(query, table="baton_runs", mark="%s"))
        return make_page(query, [row_to_record(row, store=repr(self)) for row in rows], total)

    async def put_note(self, run_id: str, name: str, note: bytes | None) -> None:
        """Set or remove a note; see `Store.put_note`."""
        records.check_names(run_id, name=name)
        values = {"run_id": run_id, "name": name, "note": note}
        if not await self._pool.fetch(_DROP_NOTE if note is None else _PUT_NOTE, values):
            raise RunNotFoundError(run_id, store=repr(self))

    async def notes(self, run_id: str) -> Mapping[str, bytes]:
        """Return a run's notes; see `Store.notes`."""
        return {name: bytes(note) for name, note in await self._pool.fetch(_NOTES, (run_id,))}

    async def delete(self, run_id: str) -> bool:
        """Delete a run; see `Store.delete`."""
        return bool(await self._pool.fetch(_DELETE, (run_id,)))

    async def expire(self, older_than: float, *, status: Collection[RunStatus] = FINISHED_STATUSES) -> int:
        """Delete old runs; see `Store.expire`."""
        statuses = records.check_statuses(status)
        return len(await self._pool.fetch(_EXPIRE, ([*statuses], older_than)))

    async def acquire(self, run_id: str, worker: str, *, ttl: float) -> Lease:
        """Acquire a lease; see `Store.acquire`."""
        records.check_names(run_id, worker=worker)
        rows = await self._pool.fetch(_ACQUIRE, {"run_id": run_id, "worker": worker, "ttl": ttl})
        if rows:
            return records.to_lease(row_to_record(rows[0], store=repr(self)))
        record, _, now = await self._get(run_id)
        raise records.lease_held_error(record, now)

    async def renew(self, lease: Lease, *, ttl: float) -> Lease:
        """Renew a lease; see `Store.renew`."""
        rows = await self._pool.fetch(_RENEW, {"run_id": lease.run_id, "fence": lease.fence, "ttl": ttl})
        if rows:
            return records.to_lease(row_to_record(rows[0], store=repr(self)))
        record, _, now = await self._get(lease.run_id)
        return records.to_lease(records.after_renew(record, lease, ttl=ttl, now=now))

    async def release(self, lease: Lease) -> None:
        """Release a lease; see `Store.release`."""
        await self._pool.fetch(_RELEASE, (lease.run_id, lease.fence))

    async def request_cancel(self, run_id: str, when: Literal["now", "after_turn"]) -> bool:
        """Request cancellation; see `Store.request_cancel`."""
        return bool(await self._pool.fetch(_CANCEL, (when, run_id)))

    async def close(self) -> None:
        """Close the connections."""
        await self._pool.close()

    async def _find(self, run_id: str) -> tuple[RunRecord, int, float] | None:
        """Return a record, the number of its last write, and the server's time."""
        rows = await self._pool.fetch(_RECORD, (run_id,))
        return (row_to_record(rows[0][:-2], store=repr(self)), rows[0][-2], rows[0][-1]) if rows else None

    async def _get(self, run_id: str) -> tuple[RunRecord, int, float]:
        if (known := await self._find(run_id)) is None:
            raise RunNotFoundError(run_id, store=repr(self))
        return known

    async def _raise_thread_busy(self, thread: str) -> None:
        for run_id, status in await self._pool.fetch(_BUSY, (thread,)):
            raise ThreadBusyError(thread, run_id, status)
