"""A store in a PostgreSQL database, for several machines. Needs the extra `postgres`."""

import json
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from functools import partial
from random import getrandbits
from time import monotonic
from typing import TYPE_CHECKING, Any, LiteralString, Unpack

from msgspec.structs import asdict

from ..._checks import check_arguments, check_positive
from ...errors import MissingExtraError, RunConflictError, RunExistsError, ThreadBusyError
from ...log.codec import READER_VERSION
from .. import inboxes, records
from ..records import COLUMNS, Append, NewLog, WriteMethods, require_run, row_to_record
from ..sql_files import load_queries
from ..store import (
    FINISHED_STATUSES,
    NOTHING_DRIVEN,
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

if TYPE_CHECKING:
    from .pool import Connection

_BATCH = 1000
"""The number of runs that one statement deletes or renews."""
_LOCK_SECONDS = 0.25
"""Seconds for which the renewal of one lease waits for a transaction that has locked the run."""
SQL = load_queries(__file__, columns=COLUMNS, inbox_columns=inboxes.INBOX_COLUMNS, batch=str(_BATCH))


class PostgresStore(WriteMethods):
    """A store backed by a PostgreSQL database; it creates its tables `baton_…` when needed.

    Args:
        url: The address of the database.
        max_connections: The maximum number of connections per event loop.
        timeout: Seconds after which a call fails: to wait for a connection, and for the server to answer. Keep it below
            `lease_seconds`: a process that freezes in a transaction can block a run for this long.
        lease_seconds: How long a run stays reserved for a worker that died.
    """

    @check_arguments
    def __init__(
        self, url: str, *, max_connections: int = 10, timeout: float = 10.0, lease_seconds: float = 30.0
    ) -> None:
        try:
            from .commits import PipelineCommitter
            from .pool import PostgresPool
        except ImportError as missing:
            raise MissingExtraError("PostgresStore", "postgres", missing) from missing
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
            rows = await self._commits.change(SQL["create_run"], values)
        if rows:
            return Lease(record.run_id, record.worker, 1, rows[0][0])
        known = await self._find(record.run_id)
        if known is None:
            # The run that kept the thread busy may have finished since; then retry.
            await self._raise_thread_busy(record.thread)
            last = await self._pool.fetch(SQL["last_run"], {"thread": record.thread})
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
        found = await (await connection.execute(SQL["locked_record"], {"run_id": log.forked_from})).fetchone()
        source = self._to_records([require_run(found, log.forked_from, self)[1:]])[0]
        values["origins"] = [*records.after_fork(record, source).origins]
        return await (await connection.execute(SQL["create_run"], values, binary=True)).fetchall()

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
        statement = SQL["append"] if is_plain else SQL["append_and_queue"]
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
        rows = await self._pool.fetch(SQL["load"], {"run_id": run_id, "start": start})
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
        page, count = records.page_queries(query, table="baton_runs", columns=f"{COLUMNS}, {SQL['now']}", mark="%s")
        total = (await self._pool.fetch(*count))[0][0] if query.count_total else None
        return records.make_page(query, self._to_records(await self._pool.fetch(*page)), total)

    async def runnable(
        self,
        *,
        teams: Collection[str] | None = None,
        limit: int = 100,
        reader: int = READER_VERSION,
        per_owner: int | None = None,
        driven: Mapping[str, int] = NOTHING_DRIVEN,
    ) -> Sequence[RunRecord]:
        """Return the runs to drive; see `Store.runnable`."""
        values = {"teams": None if teams is None else [*teams], "limit": limit, "reader": reader}
        if per_owner is not None:
            values |= {"per_owner": per_owner, "driven": json.dumps(dict(driven))}
            return self._to_records(await self._pool.fetch(SQL["runnable_by_owner"], values))
        statement = SQL["runnable"] if teams is None else SQL["runnable_by_team"]
        return self._to_records(await self._pool.fetch(statement, values))

    async def put_note(self, run_id: str, name: str, note: bytes | None) -> None:
        """Set or remove a note; see `SupportsNotes.put_note`."""
        records.check_names(run_id, name=name)
        values = {"run_id": run_id, "name": name, "note": note}
        statement = SQL["drop_note"] if note is None else SQL["put_note"]
        require_run(await self._pool.fetch(statement, values) or None, run_id, self)

    async def notes(self, run_id: str) -> Mapping[str, bytes]:
        """Return a run's notes; see `SupportsNotes.notes`."""
        return {name: bytes(note) for name, note in await self._pool.fetch(SQL["notes"], {"run_id": run_id})}

    async def read_notes(self, run_ids: Sequence[str], name: str) -> Mapping[str, bytes]:
        """Return one note of several runs; see `SupportsNotes.read_notes`."""
        rows = await self._pool.fetch(SQL["read_notes"], {"run_ids": [*run_ids], "name": name})
        return {run_id: bytes(note) for run_id, note in rows}

    async def thread_notes(self, thread: str, name: str, *, before: int, limit: int = 100) -> Sequence[RunNote]:
        """Return runs of a thread with a note; see `SupportsNotes.thread_notes`."""
        values = {"thread": thread, "name": name, "before": before, "limit": limit}
        rows = await self._pool.fetch(SQL["thread_notes"], values)
        return [
            RunNote(run_id, number, seq, None if note is None else bytes(note)) for run_id, number, seq, note in rows
        ]

    async def delete(self, run_id: str, *, fence: int | None = None) -> bool:
        """Delete a run; see `Store.delete`."""
        return bool(await self._pool.fetch(SQL["delete_run"], {"run_id": run_id, "fence": fence}))

    async def expire(self, older_than: float, *, status: Collection[RunStatus] = FINISHED_STATUSES) -> int:
        """Delete old runs; see `SupportsRetention.expire`."""
        values = {"status": [*records.check_statuses(status)], "older_than": older_than}
        deleted = 0
        while True:
            count = len(await self._pool.fetch(SQL["expire"], values))
            deleted += count
            if count < _BATCH:
                return deleted

    async def erase(self, *, owner: str = "", thread: str = "") -> int:
        """Delete everything of an owner or a thread; see `SupportsRetention.erase`."""
        values = {"owner": owner, "thread": thread, "origin": records.erased_origin(owner, thread)}
        await self._pool.fetch(SQL["erase_inbox"], values)
        deleted = 0
        # Until none is left: a run may be forked meanwhile.
        while rows := await self._pool.fetch(SQL["erase_owner"] if owner else SQL["erase_thread"], values):
            deleted += len(rows)
        return deleted

    async def acquire(self, run_id: str, worker: str, *, ttl: float) -> Lease:
        """Acquire a lease; see `Store.acquire`."""
        records.check_names(run_id, worker=worker)
        if rows := await self._pool.fetch(SQL["acquire"], {"run_id": run_id, "worker": worker, "ttl": ttl}):
            return Lease(*rows[0])
        record, _ = await self._get(run_id)
        if record.is_leased:
            raise RunConflictError(run_id, f"`{record.worker}` holds its lease")
        # It has expired since.
        return await self.acquire(run_id, worker, ttl=ttl)

    async def renew(self, leases: Sequence[Lease], *, ttl: float) -> Mapping[str, Lease]:
        """Renew leases; see `Store.renew`."""
        renewed: dict[str, Lease] = {}
        for start in range(0, len(leases), _BATCH):
            batch = leases[start : start + _BATCH]
            values = {"ttl": ttl, "run_ids": [lease.run_id for lease in batch], "fences": [one.fence for one in batch]}
            # Together with appends, which otherwise lock the rows of the runs that are busiest.
            renewed |= {row[0]: Lease(*row) for row in await self._commits.change(SQL["renew"], values) or ()}
        skipped = [lease for lease in leases if lease.run_id not in renewed]
        return {**renewed, **await self._renew_skipped(skipped, ttl)}

    async def _renew_skipped(self, leases: Sequence[Lease], ttl: float) -> Mapping[str, Lease]:
        """Renew, one by one, leases whose rows may have been locked: most locks are short."""
        renewed: dict[str, Lease] = {}
        patience = min(_LOCK_SECONDS, ttl / 20)
        # The caller knows of the leases that were renewed only when all of this is over.
        deadline = monotonic() + 4 * patience
        for lease in leases:
            values = {"ttl": ttl, "run_id": lease.run_id, "fence": lease.fence}
            left = min(patience, deadline - monotonic())
            if left <= 0:
                break
            results = await self._pool.pipeline([(SQL["renew_one"], [values])], lock_seconds=left, since=monotonic())
            if results is not None:
                renewed |= {row[0]: Lease(*row) for row in results[0][0]}
        return renewed

    async def release(self, lease: Lease) -> None:
        """Release a lease; see `Store.release`."""
        await self._pool.fetch(SQL["release"], {"run_id": lease.run_id, "fence": lease.fence})

    async def request_cancel(self, run_id: str, when: CancelWhen) -> bool:
        """Request cancellation; see `Store.request_cancel`."""
        values = {"run_id": run_id, "when": when, "weaker": inboxes.weaker_requests(when)}
        return bool(await self._pool.fetch(SQL["request_cancel"], values))

    async def enqueue(self, message: WaitingMessage, *, limit: int) -> bool:
        """Add a waiting message; see `SupportsInbox.enqueue`."""
        records.check_names(message.run_id, thread=message.thread, owner=message.owner)
        values = asdict(message) | {"write": getrandbits(63)}
        is_told = await self._pool.transact(partial(_enqueue, values=values, limit=limit))
        if is_told is None:
            raise RunExistsError(message.run_id)
        return is_told

    async def waiting(self, run_id: str) -> WaitingMessage | None:
        """Return a waiting message; see `SupportsInbox.waiting`."""
        rows = await self._pool.fetch(SQL["message"], {"run_id": run_id})
        return inboxes.row_to_message(rows[0][1:]) if rows else None

    async def inbox(self, thread: str, *, limit: int = 100) -> Sequence[WaitingMessage]:
        """Return the messages of a thread; see `SupportsInbox.inbox`."""
        rows = await self._pool.fetch(SQL["inbox"], {"thread": thread, "limit": limit})
        return [inboxes.row_to_message(row) for row in rows]

    async def withdraw(self, run_id: str) -> bool:
        """Remove a waiting message; see `SupportsInbox.withdraw`."""
        message = await self.waiting(run_id)
        if message is None:
            return False

        async def remove(connection: "Connection") -> bool:
            thread = {"thread": message.thread, "mode": ""}
            await connection.execute(SQL["lock_inbox"], thread)
            removed = await connection.execute(SQL["drop_messages"], {"run_ids": [run_id]})
            await connection.execute(SQL["tell_thread"], thread)
            return removed.rowcount > 0

        return bool(await self._pool.transact(remove))

    async def notify(self, thread: str) -> bool:
        """Tell a thread's unfinished run what waits; see `SupportsInbox.notify`."""

        async def tell(connection: "Connection") -> bool:
            await connection.execute(SQL["lock_inbox"], {"thread": thread})
            told = await connection.execute(SQL["tell_thread"], {"thread": thread, "mode": ""})
            return told.rowcount > 0

        return bool(await self._pool.transact(tell))

    async def idle_threads(self, *, limit: int = 100) -> Sequence[str]:
        """Return threads whose messages wait for no run; see `SupportsInbox.idle_threads`."""
        return [thread for (thread,) in await self._pool.fetch(SQL["idle_threads"], {"limit": limit})]

    async def now(self) -> float:
        """Return the server's time; see `Store.now`."""
        return (await self._pool.fetch(SQL["clock"], ()))[0][0]

    async def publish(self, messages: Sequence[str]) -> None:
        """Send messages; see `SupportsChannel.publish`.

        Args:
            messages: The messages.
        """
        await self._pool.fetch(SQL["publish"], {"messages": [*messages]})

    def listen(self) -> AsyncIterator[str]:
        """Receive messages on a connection of its own; see `SupportsChannel.listen`."""
        return self._pool.listen(SQL["channel"])

    async def close(self) -> None:
        """Close the connections."""
        await self._commits.drain()
        await self._pool.close()

    async def _find(self, run_id: str) -> tuple[RunRecord, int] | None:
        """Return a record and the number of its last write."""
        rows = await self._pool.fetch(SQL["record"], {"run_id": run_id})
        return (self._to_records([row[1:] for row in rows])[0], rows[0][0]) if rows else None

    async def _get(self, run_id: str) -> tuple[RunRecord, int]:
        return require_run(await self._find(run_id), run_id, self)

    def _to_records(self, rows: Sequence[Sequence[Any]]) -> Sequence[RunRecord]:
        """Convert rows of `COLUMNS` and the server's time."""
        return [row_to_record(row[:-1], now=row[-1], store=repr(self)) for row in rows]

    async def _raise_thread_busy(self, thread: str) -> None:
        for run_id, status in await self._pool.fetch(SQL["busy_run"], {"thread": thread}):
            raise ThreadBusyError(thread, run_id, status)


async def _create_from_inbox(connection: "Connection", *, values: dict[str, Any]) -> Sequence[Sequence[Any]]:
    """Remove the oldest message and create its run; return no rows if it is not its turn."""
    thread = values["thread"]
    run_id = values["run_id"]
    await connection.execute(SQL["lock_inbox"], {"thread": thread})
    known = await (await connection.execute(SQL["record"], {"run_id": run_id})).fetchone()
    if known is not None:
        return ()
    oldest = await (await connection.execute(SQL["oldest_messages"], {"thread": thread, "limit": 2})).fetchall()
    busy = await (await connection.execute(SQL["busy_run"], {"thread": thread})).fetchone()
    if busy is not None:
        return ()
    inboxes.check_turn(thread, oldest[0][0] if oldest else "", run_id, from_inbox=True)
    last = await (await connection.execute(SQL["last_run"], {"thread": thread})).fetchone()
    previous = records.check_previous(thread, last[0] if last is not None else "", values["expected"])
    await connection.execute(SQL["drop_messages"], {"run_ids": [run_id]})
    state = inboxes.inbox_state(oldest[1][1] if len(oldest) > 1 else None)
    rows = await (await connection.execute(SQL["create_run"], values | {"inbox": state}, binary=True)).fetchall()
    if not rows:
        # Another run came and went meanwhile; raising keeps the message.
        raise ThreadBusyError(thread, previous, "just finished")
    return rows


async def _append_reviving(
    connection: "Connection", *, statement: LiteralString, values: dict[str, Any]
) -> Sequence[Sequence[Any]]:
    """Append lines; a finished run that continues must be the last one of its thread."""
    run_id = values["run_id"]
    before = await (await connection.execute(SQL["thread_and_status"], {"run_id": run_id})).fetchone()
    rows = await (await connection.execute(statement, values, binary=True)).fetchall()
    if rows and before is not None and before[0] and not records.keeps_thread_busy(before[1]):
        # Afterwards, because from now on the index `baton_busy_threads` refuses further runs of the thread.
        last = await (await connection.execute(SQL["last_run"], {"thread": before[0]})).fetchone()
        records.check_is_last(run_id, last[0] if last is not None else run_id)
    return rows


def _note_lists(notes: Mapping[str, bytes]) -> dict[str, list[Any]]:
    return {"names": [*notes], "notes": [*notes.values()]}


async def _append_taking(
    connection: "Connection", *, statement: LiteralString, values: dict[str, Any]
) -> Sequence[Sequence[Any]]:
    """Append lines and remove the messages that they record; no rows if the run has moved on."""
    run_id = values["run_id"]
    take = [*values["take"]]
    found = await (await connection.execute(SQL["thread_and_status"], {"run_id": run_id})).fetchone()
    if found is None:
        return ()
    thread = found[0]
    await connection.execute(SQL["lock_inbox"], {"thread": thread})
    if not await (await connection.execute(statement, values, binary=True)).fetchall():
        return ()
    oldest = await connection.execute(SQL["oldest_messages"], {"thread": thread, "limit": len(take)})
    inboxes.check_taken(take, [taken for taken, _ in await oldest.fetchall()])
    await connection.execute(SQL["drop_messages"], {"run_ids": take})
    return await (await connection.execute(SQL["tell_run"], {"thread": thread, "run_id": run_id})).fetchall()


async def _enqueue(connection: "Connection", *, values: dict[str, Any], limit: int) -> bool:
    """Add a message; return whether an unfinished run was told."""
    thread = values["thread"]
    run_id = values["run_id"]
    await connection.execute(SQL["lock_inbox"], {"thread": thread})
    if await (await connection.execute(SQL["record"], {"run_id": run_id})).fetchone() is not None:
        raise RunExistsError(run_id)
    known = await (await connection.execute(SQL["message"], {"run_id": run_id})).fetchone()
    if known is None:
        (count,) = await (await connection.execute(SQL["count_messages"], {"thread": thread})).fetchone() or (0,)
        inboxes.check_room(thread, count, limit)
        await connection.execute(SQL["enqueue"], values)
    elif known[0] != values["write"]:
        raise RunExistsError(run_id)
    told = await connection.execute(SQL["tell_thread"], values)
    return told.rowcount > 0
