"""Code that all stores share: record transitions, lease methods, queries and pages, table rows, packed lines."""

import struct
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Sequence
from struct import pack, unpack_from
from typing import Any, Literal, LiteralString, Unpack
from zlib import crc32

from msgspec import Struct, ValidationError, convert
from msgspec.structs import replace

from ..arguments import check_choice, check_keywords
from ..errors import LogError, RunConflictError, RunNotFoundError, SetupError, StoreError
from .base import FINISHED_STATUSES, RUN_STATUSES, Lease, RecordPage, RunFilters, RunRecord, RunStatus, Store


def to_lease(record: RunRecord) -> Lease:
    """Return the lease in a record."""
    return Lease(record.run_id, record.worker, record.fence, record.lease_until)


def new_record(run_id: str, lines: int, *, thread: str, owner: str, worker: str, ttl: float, now: float) -> RunRecord:
    """Return the record of a new run."""
    check_names(run_id, thread=thread, owner=owner, worker=worker)
    return RunRecord(
        run_id=run_id,
        seq=lines,
        thread=thread,
        owner=owner,
        created_at=now,
        updated_at=now,
        worker=worker,
        lease_until=now + ttl,
        fence=1,
    )


def after_append(
    record: RunRecord, expected_seq: int, lines: int, *, status: RunStatus | None, fence: int | None, now: float
) -> RunRecord:
    """Return the record after an append. Raises RunConflictError."""
    if (refused := append_conflict(record, expected_seq, fence)) is not None:
        raise refused
    return replace(record, seq=expected_seq + lines, status=status or record.status, updated_at=now)


def append_conflict(record: RunRecord, expected_seq: int, fence: int | None) -> RunConflictError | None:
    """Return the error for a writer with these expectations, or None if it may append."""
    if fence is not None and fence != record.fence:
        return _lease_taken_error(record, fence)
    if expected_seq != record.seq:
        return RunConflictError(
            record.run_id, f"its log has {record.seq} lines, but the writer expected {expected_seq}"
        )
    return None


def after_acquire(record: RunRecord, worker: str, *, ttl: float, now: float) -> RunRecord:
    """Return the record after a worker acquired the lease. Raises RunConflictError."""
    if record.worker != worker and record.lease_until > now:
        raise lease_held_error(record, now)
    return replace(record, worker=worker, fence=record.fence + 1, lease_until=now + ttl, cancel_requested="")


def lease_held_error(record: RunRecord, now: float) -> RunConflictError:
    """Return the error for a lease that another worker holds."""
    return RunConflictError(
        record.run_id, f"`{record.worker}` holds its lease for another {max(record.lease_until - now, 0.0):.1f} s"
    )


def after_renew(record: RunRecord, lease: Lease, *, ttl: float, now: float) -> RunRecord:
    """Return the record after a renewal. Raises RunConflictError for an old lease."""
    if record.fence != lease.fence:
        raise _lease_taken_error(record, lease.fence)
    return replace(record, lease_until=now + ttl)


def after_release(record: RunRecord, lease: Lease) -> RunRecord:
    """Return the record after a release; unchanged if the lease is an old one."""
    return replace(record, lease_until=0.0) if record.fence == lease.fence else record


def after_cancel_request(record: RunRecord, when: Literal["now", "after_turn"]) -> RunRecord | None:
    """Return the record with a cancellation request, or None if the run is not running."""
    if record.status != "running":
        return None
    return replace(record, cancel_requested="now" if record.cancel_requested == "now" else when)


class LeaseMethods:
    """The lease methods of stores that read a record, change it and write it back."""

    _clock: Callable[[], float]

    async def _update_record(self, run_id: str, update: Callable[[RunRecord], RunRecord | None]) -> RunRecord | None:
        """Replace a record atomically; return the new one, or None if there is none."""
        raise NotImplementedError

    async def acquire(self, run_id: str, worker: str, *, ttl: float) -> Lease:
        """Acquire a lease; see `Store.acquire`."""
        return await self._update_lease(
            run_id, lambda record: after_acquire(record, worker, ttl=ttl, now=self._clock())
        )

    async def renew(self, lease: Lease, *, ttl: float) -> Lease:
        """Renew a lease; see `Store.renew`."""
        return await self._update_lease(
            lease.run_id, lambda record: after_renew(record, lease, ttl=ttl, now=self._clock())
        )

    async def release(self, lease: Lease) -> None:
        """Release a lease; see `Store.release`."""
        await self._update_record(lease.run_id, lambda record: after_release(record, lease))

    async def request_cancel(self, run_id: str, when: Literal["now", "after_turn"]) -> bool:
        """Request cancellation; see `Store.request_cancel`."""
        return await self._update_record(run_id, lambda record: after_cancel_request(record, when)) is not None

    async def _update_lease(self, run_id: str, update: Callable[[RunRecord], RunRecord]) -> Lease:
        record = await self._update_record(run_id, update)
        if record is None:
            raise RunNotFoundError(run_id, store=repr(self))
        return to_lease(record)


def is_expired(record: RunRecord, older_than: float, *, status: Collection[RunStatus], now: float) -> bool:
    """Return whether `expire` should delete a run."""
    return record.status in status and record.updated_at <= now - older_than and record.lease_until <= now


def keeps_thread_busy(status: str) -> bool:
    """Return whether a run with this status prevents other runs of its thread."""
    return status not in FINISHED_STATUSES


def check_names(run_id: str, **others: str) -> None:
    """Raise SetupError for names that not every store accepts, such as zero bytes."""
    if not run_id:
        raise SetupError("run_id is empty; pass another one, or omit it")
    for parameter, name in (("run_id", run_id), *others.items()):
        if "\0" in name or not _is_encodable(name):
            raise SetupError(f"{parameter} is {name!r}, which has characters that cannot be stored; use plain text")


def check_statuses(status: Collection[RunStatus]) -> tuple[RunStatus, ...]:
    """Validate a collection of statuses. Raises SetupError."""
    if isinstance(status, str):
        raise SetupError(f"status is {status!r}; it must be a collection, such as ({status!r},)")
    for one in status:
        check_choice("status", one, RUN_STATUSES)
    return tuple(status)


def _lease_taken_error(record: RunRecord, fence: int) -> RunConflictError:
    return RunConflictError(
        record.run_id, f"`{record.worker}` acquired its lease (fence {record.fence}; the writer has {fence})"
    )


def _is_encodable(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


_PAGE_SIZE = 500

Position = tuple[float, str]
"""The sort key of a record: its time and its id."""


class RunQuery(Struct, frozen=True, kw_only=True):
    """Validated filters of `Store.list`."""

    status: tuple[RunStatus, ...] | None
    thread: str | None
    owner: str | None
    since: float | None
    until: float | None
    order_by: Literal["created", "updated"]
    limit: int
    after: Position | None
    oldest_first: bool
    count_total: bool

    def position_of(self, record: RunRecord) -> Position:
        """Return the sort key of a record."""
        return (record.created_at if self.order_by == "created" else record.updated_at), record.run_id

    def accepts(self, record: RunRecord) -> bool:
        """Return whether a record matches the filters, apart from its time."""
        return (
            (self.status is None or record.status in self.status)
            and (self.thread is None or record.thread == self.thread)
            and (self.owner is None or record.owner == self.owner)
        )

    def is_in_period(self, position: Position) -> bool:
        """Return whether a position is within `since` and `until`."""
        return (self.since is None or position[0] >= self.since) and (self.until is None or position[0] < self.until)

    def is_beyond(self, position: Position) -> bool:
        """Return whether a position is after the cursor."""
        return self.after is None or (position > self.after if self.oldest_first else position < self.after)


def parse_filters(filters: RunFilters) -> RunQuery:
    """Validate the filters of `Store.list`. Raises SetupError or StoreError."""
    check_keywords("list()", filters, RunFilters.__annotations__)
    limit, status = filters.get("limit", 100), filters.get("status")
    if limit < 1:
        raise SetupError(f"limit is {limit}; it must be at least 1")
    order_by, cursor = filters.get("order_by", "created"), filters.get("cursor", "")
    check_choice("order_by", order_by, ("created", "updated"))
    return RunQuery(
        status=None if status is None else check_statuses(status),
        thread=filters.get("thread"),
        owner=filters.get("owner"),
        since=filters.get("since"),
        until=filters.get("until"),
        order_by=order_by,
        limit=limit,
        after=_parse_cursor(cursor) if cursor else None,
        oldest_first=filters.get("oldest_first", False),
        count_total=filters.get("count_total", False),
    )


def make_page(query: RunQuery, records: Sequence[RunRecord], total: int | None = None) -> RecordPage:
    """Make a page of sorted records; one more than `limit` means that another page follows."""
    if len(records) <= query.limit:
        return RecordPage(tuple(records), total=total)
    shown = tuple(records[: query.limit])
    moment, run_id = query.position_of(shown[-1])
    return RecordPage(shown, f"{moment!r} {run_id}", total)


def select_page(query: RunQuery, records: Iterable[RunRecord]) -> RecordPage:
    """Select and sort the page that a query asks for from all records."""
    position_of = query.position_of
    matching = [record for record in records if query.accepts(record) and query.is_in_period(position_of(record))]
    remaining = [record for record in matching if query.is_beyond(position_of(record))]
    remaining.sort(key=position_of, reverse=not query.oldest_first)
    return make_page(query, remaining[: query.limit + 1], len(matching) if query.count_total else None)


async def iter_records(store: Store, **filters: Unpack[RunFilters]) -> AsyncIterator[RunRecord]:
    """Iterate over the records of all pages.

    Args:
        store: The store to list.
        **filters: See `RunFilters`; `limit` is the size of the pages that are fetched.
    """
    query = RunFilters(limit=_PAGE_SIZE)
    query.update(filters)
    while True:
        page = await store.list(**query)
        for record in page.records:
            yield record
        if not page.next_cursor:
            return
        query["cursor"] = page.next_cursor


def _parse_cursor(cursor: str) -> Position:
    moment, _, run_id = cursor.partition(" ")
    try:
        return float(moment), run_id
    except ValueError:
        raise StoreError(f"cursor is {cursor!r}; it must be the next_cursor of the previous page") from None


COLUMNS: LiteralString = (
    "run_id, status, seq, thread, owner, created_at, updated_at, worker, lease_until, fence, cancel_requested"
)
_NAMES = COLUMNS.split(", ")


def row_to_record(row: Sequence[Any], *, store: str) -> RunRecord:
    """Convert a row of `COLUMNS` to a record. Raises StoreError if it is damaged."""
    try:
        return convert(dict(zip(_NAMES, row, strict=True)), RunRecord)
    except ValidationError as problem:
        raise StoreError(f"the record of run `{row[0]}` is damaged: {problem}", store=store) from problem


def record_to_row(record: RunRecord) -> tuple[Any, ...]:
    """Convert a record to a row of `COLUMNS`."""
    return tuple([getattr(record, name) for name in _NAMES])


def status_condition(status: Sequence[str], *, mark: LiteralString) -> LiteralString:
    """Return the SQL condition for these statuses; `mark` is the placeholder of the database."""
    marks: list[LiteralString] = [mark for _ in status]
    return f"status IN ({', '.join(marks)})" if marks else "1 = 0"


def page_query(query: RunQuery, *, table: LiteralString, mark: LiteralString) -> tuple[LiteralString, list[Any]]:
    """Return the statement and values for a page and one more record."""
    conditions, values = _conditions(query, mark)
    time: LiteralString = _time(query)
    if query.after is not None:
        beyond: LiteralString = ">" if query.oldest_first else "<"
        conditions.append(f"({time}, run_id) {beyond} ({mark}, {mark})")
        values += query.after
    order: LiteralString = "ASC" if query.oldest_first else "DESC"
    where = " AND ".join(conditions)
    statement = f"SELECT {COLUMNS} FROM {table} WHERE {where} ORDER BY {time} {order}, run_id {order} LIMIT {mark}"
    return statement, [*values, query.limit + 1]


def count_query(query: RunQuery, *, table: LiteralString, mark: LiteralString) -> tuple[LiteralString, list[Any]]:
    """Return the statement and values that count the records on all pages."""
    conditions, values = _conditions(query, mark)
    return f"SELECT count(*) FROM {table} WHERE {' AND '.join(conditions)}", values


def _conditions(query: RunQuery, mark: LiteralString) -> tuple[list[LiteralString], list[Any]]:
    conditions: list[LiteralString] = ["1 = 1"]
    values: list[Any] = []
    if query.status is not None:
        conditions.append(status_condition(query.status, mark=mark))
        values += query.status
    named: tuple[tuple[LiteralString, str | None], ...] = (("thread", query.thread), ("owner", query.owner))
    for column, name in named:
        if name is not None:
            conditions.append(f"{column} = {mark}")
            values.append(name)
        if name:
            # Lets the database use the index of runs that have one.
            conditions.append(f"{column} <> ''")
    time = _time(query)
    if query.since is not None:
        conditions.append(f"{time} >= {mark}")
        values.append(query.since)
    if query.until is not None:
        conditions.append(f"{time} < {mark}")
        values.append(query.until)
    return conditions, values


def _time(query: RunQuery) -> LiteralString:
    return "created_at" if query.order_by == "created" else "updated_at"


_HEADER = struct.Struct("<II")
_SINGLE_HEADER = struct.Struct("<III")


def pack_lines(lines: Sequence[bytes]) -> bytes:
    """Pack lines into one piece: a checksum, the number of lines, their lengths, and the lines."""
    count = len(lines)
    body = pack(f"<{count + 1}I", count, *map(len, lines)) + b"".join(lines)
    return crc32(body).to_bytes(4, "little") + body


def unpack_lines(piece: bytes) -> list[bytes]:
    """Return the lines of a piece. Raises ValueError if it is damaged."""
    if len(piece) < _HEADER.size:
        raise ValueError(f"a piece of {len(piece)} bytes is truncated")
    checksum, count = _HEADER.unpack_from(piece)
    if crc32(piece[4:]) != checksum:
        raise ValueError(f"the checksum of a piece of {len(piece)} bytes is wrong: it is damaged")
    if count == 1:
        return [piece[_SINGLE_HEADER.size :]]
    lines: list[bytes] = []
    begin = _HEADER.size + 4 * count
    for length in unpack_from(f"<{count}I", piece, _HEADER.size):
        lines.append(piece[begin : begin + length])
        begin += length
    return lines


def join_pieces(pieces: Iterable[tuple[int, bytes]], *, start: int, end: int) -> list[bytes]:
    """Return lines `start` to `end` of a log. Raises LogError if any are missing.

    Args:
        pieces: Pieces with the number of their first line; the first piece may start before `start`.
        start: The number of the first line to return.
        end: The number of lines that the log must have.
    """
    lines: list[bytes] = []
    first = -1
    for number, piece in pieces:
        if first < 0:
            first = min(number, start)
        known = first + len(lines)
        if number != known:
            raise LogError(known, f"the next stored line is number {number}")
        try:
            lines += unpack_lines(piece)
        except ValueError as problem:
            raise LogError(number, str(problem)) from problem
    known = first + len(lines) if first >= 0 else min(start, end)
    if known != end:
        raise LogError(min(known, end), f"{known} lines are stored, but the run's record says {end}")
    return lines[start - first :] if first >= 0 else lines
