"""A store in a PostgreSQL database, for several machines. Needs the extra `postgres`."""

from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from functools import partial
from random import getrandbits
from typing import TYPE_CHECKING, Any, LiteralString, Unpack

from msgspec.structs import asdict

from ..arguments import check_arguments, check_positive
from ..errors import RunConflictError, RunExistsError, SetupError, ThreadBusyError
from ..events.codec import READER_VERSION
from . import inbox as inboxes
from . import records
from .base import (
    FINISHED_STATUSES,
    CancelWhen,
    Lease,
    RecordPage,
    RunFilters,
    RunFlags,
    RunNote,
    RunRecord,
    RunStatus,
    WaitingMessage,
)
from .records import CHANNEL, COLUMNS, NEW_COLUMNS, Append, NewLog, WriteMethods, require_run, row_to_record

if TYPE_CHECKING:
    from .postgres_pool import Connection

_BATCH = 1000
"""The number of runs that one statement deletes or renews."""
# The server's clock, because the clocks of the workers may differ.
_NOW: LiteralString = "extract(epoch FROM clock_timestamp())::float8"
_LAST_RUN: LiteralString = """
SELECT run_id FROM baton_runs WHERE thread = %(thread)s AND thread <> '' ORDER BY number DESC LIMIT 1"""
# Of two writers with the same predecessor, the index `baton_thread_chains` refuses one.
_CREATE: LiteralString = f"""
WITH now AS (SELECT {_NOW} AS at, coalesce(({_LAST_RUN}), '') AS last), begun AS (
    INSERT INTO baton_runs({NEW_COLUMNS}, last_write)
    SELECT %(run_id)s, %(status)s, %(seq)s, %(thread)s, last, %(owner)s, at, at, at, %(worker)s, at + %(lease_seconds)s,
        %(lease_seconds)s, 1, '', %(team)s, %(priority)s, %(wake_at)s, %(inbox)s, %(reader)s, %(origins)s, %(write)s
    FROM now WHERE (%(expected)s::text IS NULL OR %(expected)s = last) AND (%(from_inbox)s OR %(thread)s = ''
        OR NOT EXISTS (SELECT 1 FROM baton_inbox WHERE thread = %(thread)s))
    RETURNING number, lease_until
), kept AS (
    INSERT INTO baton_pieces SELECT number, 0, %(piece)s FROM begun WHERE %(seq)s > 0
), noted AS (
    INSERT INTO baton_notes(run, name, note)
    SELECT number, name, note FROM begun, unnest(%(names)s::text[], %(notes)s::bytea[]) AS given(name, note)
), queued AS (
    INSERT INTO baton_runnable SELECT number, %(team)s, %(priority)s, %(wake_at)s FROM begun WHERE
        (%(status)s = 'running' AND %(lease_seconds)s <= 0) OR (%(status)s = 'suspended' AND %(wake_at)s > 0))
SELECT lease_until FROM begun"""
# A lease with more than its seconds left is not valid: the clock was set back.
_IS_LEASED: LiteralString = f"(lease_until > {_NOW} AND lease_until <= {_NOW} + lease_seconds + 1)"
# A writer that lost its connection retries; `last_write` shows whether its first attempt succeeded.
_MOVE: LiteralString = f"""
WITH moved AS (
    UPDATE baton_runs SET seq = seq + %(count)s, updated_at = {_NOW}, status = coalesce(%(status)s, status),
        changed_at = CASE WHEN coalesce(%(status)s, status) = status THEN changed_at ELSE {_NOW} END,
        wake_at = coalesce(%(wake_at)s, wake_at), cancel_requested = coalesce(%(no_cancel)s, cancel_requested),
        reader = greatest(reader, %(reader)s), last_write = %(write)s,
        lease_until = CASE WHEN %(release)s AND coalesce(%(no_cancel)s, cancel_requested) = '' THEN 0
            ELSE lease_until END
    WHERE run_id = %(run_id)s AND seq = %(expected_seq)s AND fence = coalesce(%(fence)s, fence)
        AND last_write <> %(write)s
    RETURNING number, cancel_requested, inbox, team, priority, wake_at,
        (status = 'running' AND NOT {_IS_LEASED}) OR (status = 'suspended' AND wake_at > 0) AS is_waiting
), kept AS (
    INSERT INTO baton_pieces SELECT number, %(expected_seq)s, %(piece)s FROM moved WHERE %(count)s > 0)"""
_APPEND: LiteralString = f"{_MOVE} SELECT cancel_requested, inbox FROM moved"
# If the status changes, the run becomes runnable, or stops being so, in the same transaction.
_APPEND_AND_QUEUE: LiteralString = f"""{_MOVE}, noted AS (
    INSERT INTO baton_notes(run, name, note)
    SELECT number, name, note FROM moved, unnest(%(names)s::text[], %(notes)s::bytea[]) AS given(name, note)
    ON CONFLICT (run, name) DO UPDATE SET note = excluded.note
), dropped AS (
    DELETE FROM baton_runnable USING moved WHERE run = number AND NOT is_waiting
), queued AS (
    INSERT INTO baton_runnable SELECT number, team, priority, wake_at FROM moved WHERE is_waiting
    ON CONFLICT (run) DO UPDATE SET wake_at = excluded.wake_at)
SELECT cancel_requested, inbox FROM moved"""
_LOAD: LiteralString = """
SELECT seq, first, lines FROM baton_runs LEFT JOIN baton_pieces ON run = number AND first >= coalesce((
    SELECT max(first) FROM baton_pieces JOIN baton_runs ON run = number
    WHERE run_id = %(run_id)s AND first <= %(start)s), 0)
WHERE run_id = %(run_id)s ORDER BY first"""
_LEASE: LiteralString = "run_id, worker, fence, lease_until, cancel_requested, inbox"
# A suspended run stays runnable until its worker has stored that it continues.
_ACQUIRE: LiteralString = f"""
WITH taken AS (
    UPDATE baton_runs SET worker = %(worker)s, fence = fence + 1, lease_until = {_NOW} + %(ttl)s,
        lease_seconds = %(ttl)s
    WHERE run_id = %(run_id)s AND (worker = %(worker)s OR NOT {_IS_LEASED})
    RETURNING number, status, {_LEASE}
), dropped AS (
    DELETE FROM baton_runnable USING taken WHERE run = number AND status = 'running' AND %(ttl)s > 0)
SELECT {_LEASE} FROM taken"""
_RENEW: LiteralString = f"""
UPDATE baton_runs SET lease_until = {_NOW} + %(ttl)s, lease_seconds = %(ttl)s
FROM unnest(%(run_ids)s::text[], %(fences)s::integer[]) AS held(id, held_fence)
WHERE run_id = id AND fence = held_fence AND lease_until > 0 RETURNING {_LEASE}"""
_RELEASE: LiteralString = """
WITH freed AS (
    UPDATE baton_runs SET lease_until = 0 WHERE run_id = %s AND fence = %s
    RETURNING number, status, team, priority, wake_at)
INSERT INTO baton_runnable SELECT number, team, priority, wake_at FROM freed WHERE status = 'running'
ON CONFLICT (run) DO NOTHING"""
_CANCEL: LiteralString = """
UPDATE baton_runs SET cancel_requested = CASE WHEN cancel_requested = ANY(%(weaker)s) THEN %(when)s
    ELSE cancel_requested END
WHERE run_id = %(run_id)s AND status IN ('running', 'suspended') RETURNING number"""
_STATEMENT_NOW: LiteralString = "extract(epoch FROM statement_timestamp())::float8"
# Subqueries and arrays instead of joins: whatever the planner expects, it looks rows up by their numbers.
_IS_FREE: LiteralString = f"NOT {_IS_LEASED} AND reader <= %(reader)s"
_IS_FREE_IN_QUEUE: LiteralString = f"(SELECT {_IS_FREE} FROM baton_runs WHERE number = run)"
_WAITING_NOW: LiteralString = f"""
SELECT run FROM baton_runnable WHERE wake_at = 0 AND {_IS_FREE_IN_QUEUE}
ORDER BY priority DESC, run LIMIT %(limit)s"""
_WAITING_NOW_BY_TEAM: LiteralString = f"""
SELECT run FROM unnest(%(teams)s::text[]) AS wanted(name), LATERAL (
    SELECT run FROM baton_runnable WHERE team = name AND wake_at = 0 AND {_IS_FREE_IN_QUEUE}
    ORDER BY priority DESC, run LIMIT %(limit)s) AS first"""


def _select_runnable(waiting_now: LiteralString) -> LiteralString:
    """Select runs that wait for a worker, whose time has come, or whose worker died."""
    is_wanted: LiteralString = "(%(teams)s::text[] IS NULL OR team = ANY(%(teams)s))"
    return f"""
SELECT {COLUMNS}, {_NOW} FROM baton_runs WHERE number = ANY(ARRAY(
    ({waiting_now})
    UNION (SELECT run FROM baton_runnable WHERE wake_at > 0 AND wake_at <= {_STATEMENT_NOW}
        AND {is_wanted} AND {_IS_FREE_IN_QUEUE} ORDER BY wake_at LIMIT %(limit)s)
    UNION (SELECT number FROM baton_runs WHERE status = 'running' AND worker <> '' AND {is_wanted}
        AND wake_at <= {_NOW} AND {_IS_FREE} ORDER BY number LIMIT %(limit)s)
)) ORDER BY priority DESC, number LIMIT %(limit)s"""


_RUNNABLE = _select_runnable(_WAITING_NOW)
_RUNNABLE_BY_TEAM = _select_runnable(_WAITING_NOW_BY_TEAM)
_RECORD: LiteralString = f"SELECT last_write, {COLUMNS}, {_NOW} FROM baton_runs WHERE run_id = %s"
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
SELECT name, note FROM baton_notes JOIN baton_runs r ON run = r.number
WHERE run_id = %s AND name NOT LIKE 'baton.%%' ORDER BY baton_notes.number"""
_READ_NOTES: LiteralString = """
SELECT run_id, note FROM baton_notes JOIN baton_runs r ON run = r.number WHERE run_id = ANY(%s) AND name = %s"""
_THREAD_NOTES: LiteralString = """
SELECT run_id, r.number, seq, note FROM baton_runs r LEFT JOIN baton_notes n ON n.run = r.number AND name = %s
WHERE thread = %s AND thread <> '' AND r.number < %s ORDER BY r.number DESC LIMIT %s"""
_DELETE: LiteralString = "DELETE FROM baton_runs WHERE run_id = %s RETURNING number"


_EXPIRE: LiteralString = f"""
DELETE FROM baton_runs WHERE number = ANY(ARRAY(
    SELECT number FROM unnest(%(status)s::text[]) AS wanted(name), LATERAL (
        SELECT number FROM baton_runs
        WHERE status = name AND changed_at <= {_STATEMENT_NOW} - %(older_than)s AND NOT {_IS_LEASED}
        ORDER BY changed_at LIMIT 1000 FOR UPDATE SKIP LOCKED) AS old
    LIMIT 1000))
RETURNING number"""


def _erase(matching: LiteralString) -> LiteralString:
    return f"""
DELETE FROM baton_runs WHERE number = ANY(ARRAY(
    (SELECT number FROM baton_runs WHERE {matching} LIMIT 1000) UNION
    (SELECT number FROM baton_runs WHERE origins <> '{{}}' AND origins @> ARRAY[%(origin)s] LIMIT 1000)))
RETURNING number"""


_ERASE_OWNER = _erase("owner = %(owner)s")
_ERASE_THREAD = _erase("thread = %(thread)s AND thread <> ''")
_ERASE_INBOX: LiteralString = """
DELETE FROM baton_inbox WHERE (owner = %(owner)s AND owner <> '') OR (thread = %(thread)s AND thread <> '')"""

# Serialises the changes to a thread's inbox. Each later statement of the transaction sees what was committed before.
_LOCK_INBOX: LiteralString = "SELECT pg_advisory_xact_lock(1111577679, hashtext(%s))"
_STATE: LiteralString = """
coalesce((SELECT CASE mode WHEN 'steer' THEN 'steer' ELSE 'waiting' END FROM baton_inbox
    WHERE thread = %(thread)s ORDER BY number LIMIT 1), '')"""
# It waits for an append in progress: either that append returns the new state, or the run has finished for this one.
_TELL: LiteralString = f"""
UPDATE baton_runs SET inbox = {_STATE}, cancel_requested = CASE
    WHEN %(mode)s = 'preempt' AND status = 'running' AND cancel_requested = '' THEN 'after_turn'
    ELSE cancel_requested END
WHERE thread = %(thread)s AND thread <> '' AND status IN ('running', 'suspended') RETURNING run_id"""
_ENQUEUE: LiteralString = f"""
INSERT INTO baton_inbox(run_id, thread, mode, owner, body, created_at, last_write)
VALUES (%(run_id)s, %(thread)s, %(mode)s, %(owner)s, %(body)s, {_NOW}, %(write)s)"""
_COUNT_MESSAGES: LiteralString = "SELECT count(*) FROM baton_inbox WHERE thread = %s"
_MESSAGE: LiteralString = f"SELECT last_write, {inboxes.INBOX_COLUMNS} FROM baton_inbox WHERE run_id = %s"
_INBOX: LiteralString = f"""
SELECT {inboxes.INBOX_COLUMNS} FROM baton_inbox WHERE thread = %s ORDER BY number LIMIT %s"""
_OLDEST: LiteralString = "SELECT run_id, mode FROM baton_inbox WHERE thread = %s ORDER BY number LIMIT %s"
_DROP_MESSAGES: LiteralString = "DELETE FROM baton_inbox WHERE run_id = ANY(%s)"
_IDLE: LiteralString = """
SELECT thread FROM baton_inbox i WHERE NOT EXISTS (
    SELECT 1 FROM baton_runs r WHERE r.thread = i.thread AND r.thread <> '' AND r.status IN ('running', 'suspended'))
GROUP BY thread ORDER BY min(number) LIMIT %s"""


class PostgresStore(WriteMethods):
    """A store backed by a PostgreSQL database; it creates its tables `baton_…` when needed.

    Args:
        url: The address of the database.
        max_connections: The maximum number of connections per event loop.
        timeout: Seconds after which a call fails: to wait for a connection, and for the server to answer.
        lease_seconds: How long a run stays reserved for a worker that died.
    """

    @check_arguments
    def __init__(
        self, url: str, *, max_connections: int = 10, timeout: float = 10.0, lease_seconds: float = 30.0
    ) -> None:
        try:
            from .postgres_commits import PipelineCommitter
            from .postgres_pool import PostgresPool
        except ImportError as missing:
            raise SetupError(
                f"PostgresStore needs a package that is not installed ({missing.name or missing}); "
                "pip install 'batonkit[postgres]'"
            ) from missing
        check_positive("PostgresStore(max_connections=…)", max_connections)
        check_positive("PostgresStore(timeout=…)", timeout)
        check_positive("PostgresStore(lease_seconds=…)", lease_seconds)
        self.timeout = timeout
        """Seconds after which a call fails."""
        self.lease_seconds = lease_seconds
        """Seconds for which a run stays reserved for a worker that died."""
        self._pool = PostgresPool(url, size=max_connections, timeout=timeout)
        self._commits = PipelineCommitter(self._pool)
        # The statements add the server's time to the times of new records.
        self._clock = lambda: 0.0

    def __repr__(self) -> str:
        return self._pool.name

    async def _create(self, record: RunRecord, log: NewLog, previous: str | None, *, from_inbox: bool) -> Lease:
        values = {
            **asdict(record),
            "origins": [*record.origins],
            "piece": records.pack_lines(log.lines),
            **_note_lists(log.notes),
            "write": getrandbits(63),
            "expected": previous,
            "from_inbox": from_inbox,
        }
        if from_inbox:
            rows = await self._pool.transact(partial(_create_from_inbox, values=values))
        elif log.forked_from:
            rows = await self._pool.transact(partial(self._create_fork, record=record, log=log, values=values))
        else:
            rows = await self._commits.change(_CREATE, values)
        if rows:
            return Lease(record.run_id, record.worker, 1, rows[0][0])
        known = await self._find(record.run_id)
        if known is None:
            # The run that kept the thread busy may have finished since; then retry.
            await self._raise_thread_busy(record.thread)
            last = await self._pool.fetch(_LAST_RUN, {"thread": record.thread})
            records.check_previous(record.thread, last[0][0] if last else "", previous)
            if record.thread and not from_inbox and (oldest := await self.inbox(record.thread, limit=1)):
                inboxes.check_turn(record.thread, oldest[0].run_id, record.run_id, from_inbox=False)
            return await self._create(record, log, previous, from_inbox=from_inbox)
        if known[1] != values["write"]:
            raise RunExistsError(record.run_id)
        return records.to_lease(known[0])

    async def _create_fork(
        self, connection: "Connection", *, record: RunRecord, log: NewLog, values: dict[str, Any]
    ) -> Sequence[Sequence[Any]]:
        """Create a copy of a run, which is not deleted meanwhile."""
        found = await (await connection.execute(f"{_RECORD} FOR KEY SHARE", (log.forked_from,))).fetchone()
        source = self._to_records([require_run(found, log.forked_from, self)[1:]])[0]
        values["origins"] = [*records.after_fork(record, source).origins]
        return await (await connection.execute(_CREATE, values, binary=True)).fetchall()

    async def _append(self, change: Append) -> RunFlags:
        values = {
            "run_id": change.run_id,
            "expected_seq": change.expected_seq,
            "count": len(change.lines),
            "piece": records.pack_lines(change.lines),
            "status": change.status,
            "fence": change.fence,
            "wake_at": change.wake_at,
            "no_cancel": change.no_cancel,
            "reader": change.reader,
            "release": change.release,
            "take": change.take,
            "write": getrandbits(63),
            **_note_lists(change.notes),
        }
        is_plain = change.status is None and change.wake_at is None and not change.notes and not change.release
        statement = _APPEND if is_plain else _APPEND_AND_QUEUE
        if change.take:
            rows = await self._pool.transact(partial(_append_taking, statement=statement, values=values))
        elif change.may_revive:
            rows = await self._pool.transact(partial(_append_reviving, statement=statement, values=values))
        else:
            rows = await self._commits.change(statement, values)
        if rows:
            return RunFlags(*rows[0])
        record, last_write = await self._get(change.run_id)
        if last_write == values["write"]:
            return records.to_flags(record)
        if rows is None:
            await self._raise_thread_busy(record.thread)
            return await self._append(change)
        change.check(record)
        raise RunConflictError(change.run_id, "another write was in progress")

    async def load(self, run_id: str, *, start: int = 0) -> Sequence[bytes]:
        """Load lines; see `Store.load`."""
        rows = await self._pool.fetch(_LOAD, {"run_id": run_id, "start": start})
        return self._to_lines(run_id, rows, start)

    def _to_lines(self, run_id: str, rows: Sequence[tuple[Any, ...]], start: int) -> Sequence[bytes]:
        rows = require_run(rows or None, run_id, self)
        pieces = [(first, lines) for _, first, lines in rows if lines is not None]
        return records.join_pieces(pieces, start=start, end=rows[0][0])

    async def record(self, run_id: str) -> RunRecord | None:
        """Return a run's record; see `Store.record`."""
        known = await self._find(run_id)
        return None if known is None else known[0]

    async def list(self, **filters: Unpack[RunFilters]) -> RecordPage:
        """Return a page of records; see `Store.list`."""
        query = records.parse_filters(filters)
        page, count = records.page_queries(query, table="baton_runs", columns=f"{COLUMNS}, {_NOW}", mark="%s")
        total = (await self._pool.fetch(*count))[0][0] if query.count_total else None
        return records.make_page(query, self._to_records(await self._pool.fetch(*page)), total)

    async def runnable(
        self, *, teams: Collection[str] | None = None, limit: int = 100, reader: int = READER_VERSION
    ) -> Sequence[RunRecord]:
        """Return the runs to drive; see `Store.runnable`."""
        values = {"teams": None if teams is None else [*teams], "limit": limit, "reader": reader}
        return self._to_records(await self._pool.fetch(_RUNNABLE if teams is None else _RUNNABLE_BY_TEAM, values))

    async def put_note(self, run_id: str, name: str, note: bytes | None) -> None:
        """Set or remove a note; see `Store.put_note`."""
        records.check_names(run_id, name=name)
        values = {"run_id": run_id, "name": name, "note": note}
        require_run(await self._pool.fetch(_DROP_NOTE if note is None else _PUT_NOTE, values) or None, run_id, self)

    async def notes(self, run_id: str) -> Mapping[str, bytes]:
        """Return a run's notes; see `Store.notes`."""
        return {name: bytes(note) for name, note in await self._pool.fetch(_NOTES, (run_id,))}

    async def read_notes(self, run_ids: Sequence[str], name: str) -> Mapping[str, bytes]:
        """Return one note of several runs; see `Store.read_notes`."""
        return {run_id: bytes(note) for run_id, note in await self._pool.fetch(_READ_NOTES, ([*run_ids], name))}

    async def thread_notes(self, thread: str, name: str, *, before: int, limit: int = 100) -> Sequence[RunNote]:
        """Return runs of a thread with a note; see `Store.thread_notes`."""
        rows = await self._pool.fetch(_THREAD_NOTES, (name, thread, before, limit))
        return [
            RunNote(run_id, number, seq, None if note is None else bytes(note)) for run_id, number, seq, note in rows
        ]

    async def delete(self, run_id: str) -> bool:
        """Delete a run; see `Store.delete`."""
        return bool(await self._pool.fetch(_DELETE, (run_id,)))

    async def expire(self, older_than: float, *, status: Collection[RunStatus] = FINISHED_STATUSES) -> int:
        """Delete old runs; see `Store.expire`."""
        values = {"status": [*records.check_statuses(status)], "older_than": older_than}
        deleted = 0
        while True:
            count = len(await self._pool.fetch(_EXPIRE, values))
            deleted += count
            if count < _BATCH:
                return deleted

    async def erase(self, *, owner: str = "", thread: str = "") -> int:
        """Delete everything of an owner or a thread; see `Store.erase`."""
        values = {"owner": owner, "thread": thread, "origin": records.erased_origin(owner, thread)}
        await self._pool.fetch(_ERASE_INBOX, values)
        deleted = 0
        # Until none is left: a run may be forked meanwhile.
        while rows := await self._pool.fetch(_ERASE_OWNER if owner else _ERASE_THREAD, values):
            deleted += len(rows)
        return deleted

    async def layout(self) -> tuple[int, int]:
        """Return the version of the tables' layout, 0 if there are none, and the newest version."""
        return await self._pool.layout()

    async def acquire(self, run_id: str, worker: str, *, ttl: float) -> Lease:
        """Acquire a lease; see `Store.acquire`."""
        records.check_names(run_id, worker=worker)
        if rows := await self._pool.fetch(_ACQUIRE, {"run_id": run_id, "worker": worker, "ttl": ttl}):
            return Lease(*rows[0])
        record, _ = await self._get(run_id)
        if record.is_leased:
            raise RunConflictError(run_id, f"`{record.worker}` holds its lease")
        # It has expired since.
        return await self.acquire(run_id, worker, ttl=ttl)

    async def renew(self, leases: Sequence[Lease], *, ttl: float) -> Mapping[str, Lease]:
        """Renew leases; see `Store.renew`."""
        renewed: dict[str, Lease] = {}
        # In one order, so that two workers never wait for each other's rows.
        ordered = sorted(leases, key=lambda lease: lease.run_id)
        for start in range(0, len(ordered), _BATCH):
            batch = ordered[start : start + _BATCH]
            values = {"ttl": ttl, "run_ids": [lease.run_id for lease in batch], "fences": [one.fence for one in batch]}
            # Together with appends: two transactions with several runs never wait for each other's rows.
            renewed |= {row[0]: Lease(*row) for row in await self._commits.change(_RENEW, values) or ()}
        return renewed

    async def release(self, lease: Lease) -> None:
        """Release a lease; see `Store.release`."""
        await self._pool.fetch(_RELEASE, (lease.run_id, lease.fence))

    async def request_cancel(self, run_id: str, when: CancelWhen) -> bool:
        """Request cancellation; see `Store.request_cancel`."""
        values = {"run_id": run_id, "when": when, "weaker": inboxes.weaker_requests(when)}
        return bool(await self._pool.fetch(_CANCEL, values))

    async def enqueue(self, message: WaitingMessage, *, limit: int) -> bool:
        """Add a waiting message; see `Store.enqueue`."""
        records.check_names(message.run_id, thread=message.thread, owner=message.owner)
        values = asdict(message) | {"write": getrandbits(63)}
        is_told = await self._pool.transact(partial(_enqueue, values=values, limit=limit))
        if is_told is None:
            raise RunExistsError(message.run_id)
        return is_told

    async def waiting(self, run_id: str) -> WaitingMessage | None:
        """Return a waiting message; see `Store.waiting`."""
        rows = await self._pool.fetch(_MESSAGE, (run_id,))
        return inboxes.row_to_message(rows[0][1:]) if rows else None

    async def inbox(self, thread: str, *, limit: int = 100) -> Sequence[WaitingMessage]:
        """Return the messages of a thread; see `Store.inbox`."""
        return [inboxes.row_to_message(row) for row in await self._pool.fetch(_INBOX, (thread, limit))]

    async def withdraw(self, run_id: str) -> bool:
        """Remove a waiting message; see `Store.withdraw`."""
        message = await self.waiting(run_id)
        if message is None:
            return False

        async def remove(connection: "Connection") -> bool:
            await connection.execute(_LOCK_INBOX, (message.thread,))
            removed = await connection.execute(_DROP_MESSAGES, ([run_id],))
            await connection.execute(_TELL, {"thread": message.thread, "mode": ""})
            return removed.rowcount > 0

        return bool(await self._pool.transact(remove))

    async def notify(self, thread: str) -> bool:
        """Tell a thread's unfinished run what waits; see `Store.notify`."""

        async def tell(connection: "Connection") -> bool:
            await connection.execute(_LOCK_INBOX, (thread,))
            told = await connection.execute(_TELL, {"thread": thread, "mode": ""})
            return told.rowcount > 0

        return bool(await self._pool.transact(tell))

    async def idle_threads(self, *, limit: int = 100) -> Sequence[str]:
        """Return threads whose messages wait for no run; see `Store.idle_threads`."""
        return [thread for (thread,) in await self._pool.fetch(_IDLE, (limit,))]

    async def now(self) -> float:
        """Return the server's time; see `Store.now`."""
        return (await self._pool.fetch(f"SELECT {_NOW}", ()))[0][0]

    async def publish(self, messages: Sequence[str]) -> None:
        """Send messages; see `SupportsChannel.publish`.

        Args:
            messages: The messages.
        """
        await self._pool.fetch(
            f"SELECT pg_notify({CHANNEL}, message) FROM unnest(%s::text[]) AS message", ([*messages],)
        )

    def listen(self) -> AsyncIterator[str]:
        """Receive messages on a connection of its own; see `SupportsChannel.listen`."""
        return self._pool.listen()

    async def close(self) -> None:
        """Close the connections."""
        await self._commits.drain()
        await self._pool.close()

    async def _find(self, run_id: str) -> tuple[RunRecord, int] | None:
        """Return a record and the number of its last write."""
        rows = await self._pool.fetch(_RECORD, (run_id,))
        return (self._to_records([row[1:] for row in rows])[0], rows[0][0]) if rows else None

    async def _get(self, run_id: str) -> tuple[RunRecord, int]:
        return require_run(await self._find(run_id), run_id, self)

    def _to_records(self, rows: Sequence[Sequence[Any]]) -> Sequence[RunRecord]:
        """Convert rows of `COLUMNS` and the server's time."""
        return [row_to_record(row[:-1], now=row[-1], store=repr(self)) for row in rows]

    async def _raise_thread_busy(self, thread: str) -> None:
        for run_id, status in await self._pool.fetch(_BUSY, (thread,)):
            raise ThreadBusyError(thread, run_id, status)


async def _create_from_inbox(connection: "Connection", *, values: dict[str, Any]) -> Sequence[Sequence[Any]]:
    """Remove the oldest message and create its run; return no rows if it is not its turn."""
    thread, run_id = values["thread"], values["run_id"]
    await connection.execute(_LOCK_INBOX, (thread,))
    known = await (await connection.execute(_RECORD, (run_id,))).fetchone()
    if known is not None:
        return ()
    oldest = await (await connection.execute(_OLDEST, (thread, 2))).fetchall()
    busy = await (await connection.execute(_BUSY, (thread,))).fetchone()
    if busy is not None:
        return ()
    inboxes.check_turn(thread, oldest[0][0] if oldest else "", run_id, from_inbox=True)
    last = await (await connection.execute(_LAST_RUN, {"thread": thread})).fetchone()
    previous = records.check_previous(thread, last[0] if last is not None else "", values["expected"])
    await connection.execute(_DROP_MESSAGES, ([run_id],))
    state = inboxes.inbox_state(oldest[1][1] if len(oldest) > 1 else None)
    rows = await (await connection.execute(_CREATE, values | {"inbox": state}, binary=True)).fetchall()
    if not rows:
        # Another run came and went meanwhile; raising keeps the message.
        raise ThreadBusyError(thread, previous, "just finished")
    return rows


async def _append_reviving(
    connection: "Connection", *, statement: LiteralString, values: dict[str, Any]
) -> Sequence[Sequence[Any]]:
    """Append lines; a finished run that continues must be the last one of its thread."""
    run_id = values["run_id"]
    known = "SELECT thread, status FROM baton_runs WHERE run_id = %s"
    before = await (await connection.execute(known, (run_id,))).fetchone()
    rows = await (await connection.execute(statement, values, binary=True)).fetchall()
    if rows and before is not None and before[0] and not records.keeps_thread_busy(before[1]):
        # Afterwards, because from now on the index `baton_busy_threads` refuses further runs of the thread.
        last = await (await connection.execute(_LAST_RUN, {"thread": before[0]})).fetchone()
        records.check_is_last(run_id, last[0] if last is not None else run_id)
    return rows


def _note_lists(notes: Mapping[str, bytes]) -> dict[str, list[Any]]:
    return {"names": [*notes], "notes": [*notes.values()]}


async def _append_taking(
    connection: "Connection", *, statement: LiteralString, values: dict[str, Any]
) -> Sequence[Sequence[Any]]:
    """Append lines and remove the messages that they record; no rows if the run has moved on."""
    run_id, take = values["run_id"], [*values["take"]]
    found = await (await connection.execute("SELECT thread FROM baton_runs WHERE run_id = %s", (run_id,))).fetchone()
    if found is None:
        return ()
    await connection.execute(_LOCK_INBOX, (found[0],))
    if not await (await connection.execute(statement, values, binary=True)).fetchall():
        return ()
    oldest = await (await connection.execute(_OLDEST, (found[0], len(take)))).fetchall()
    inboxes.check_taken(take, [taken for taken, _ in oldest])
    await connection.execute(_DROP_MESSAGES, (take,))
    told = f"UPDATE baton_runs SET inbox = {_STATE} WHERE run_id = %(run_id)s RETURNING cancel_requested, inbox"
    return await (await connection.execute(told, {"thread": found[0], "run_id": run_id})).fetchall()


async def _enqueue(connection: "Connection", *, values: dict[str, Any], limit: int) -> bool:
    """Add a message; return whether an unfinished run was told."""
    thread, run_id = values["thread"], values["run_id"]
    await connection.execute(_LOCK_INBOX, (thread,))
    if await (await connection.execute(_RECORD, (run_id,))).fetchone() is not None:
        raise RunExistsError(run_id)
    known = await (await connection.execute(_MESSAGE, (run_id,))).fetchone()
    if known is None:
        (count,) = await (await connection.execute(_COUNT_MESSAGES, (thread,))).fetchone() or (0,)
        inboxes.check_room(thread, count, limit)
        await connection.execute(_ENQUEUE, values)
    elif known[0] != values["write"]:
        raise RunExistsError(run_id)
    told = await connection.execute(_TELL, values)
    return told.rowcount > 0
