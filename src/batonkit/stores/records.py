"""Code that all stores share: record transitions, lease methods, queries and pages, table rows, packed lines."""

import asyncio
import struct
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from struct import pack, unpack_from
from typing import Any, Literal, LiteralString, TypeVar, Unpack
from zlib import crc32

from msgspec import DecodeError, Struct, convert
from msgspec.json import decode
from msgspec.structs import replace

from .._checks import check_choice, check_keywords
from ..errors import LogError, RunConflictError, RunNotFoundError, SetupError, StoreError, ThreadBusyError
from .inboxes import stronger_request
from .store import (
    FINISHED_STATUSES,
    INTERNAL_NOTES,
    RUN_STATUSES,
    AppendOptions,
    CancelWhen,
    CreateOptions,
    InboxState,
    Lease,
    RecordPage,
    RunFilters,
    RunFlags,
    RunRecord,
    RunStatus,
    Store,
)

T = TypeVar("T")


_CLOCK_TOLERANCE = 1.0
"""Seconds by which a lease may exceed its duration before the clock counts as set back."""


def to_lease(record: RunRecord) -> Lease:
    """Return the lease in a record."""
    return Lease(record.run_id, record.worker, record.fence, record.lease_until, record.cancel_requested, record.inbox)


def to_flags(record: RunRecord) -> RunFlags:
    """Return the requests to the driver in a record."""
    return RunFlags(record.cancel_requested, record.inbox)


def has_valid_lease(record: RunRecord, now: float) -> bool:
    """Return whether the lease in a record is valid; it is not if the clock was set back since."""
    return 0 < record.lease_until - now <= record.lease_seconds + _CLOCK_TOLERANCE


def read_at(record: RunRecord, now: float) -> RunRecord:
    """Return the record with `is_leased` and `is_due` as they are now."""
    is_leased = has_valid_lease(record, now)
    is_due = record.wake_at <= now
    if record.is_leased == is_leased and record.is_due == is_due:
        return record
    return replace(record, is_leased=is_leased, is_due=is_due)


class Append(Struct, frozen=True):
    """The arguments of `Store.append`."""

    run_id: str
    expected_seq: int
    lines: Sequence[bytes]
    status: RunStatus | None = None
    fence: int | None = None
    wake_at: float | None = None
    take: Sequence[str] = ()
    reader: int = 1
    notes: Mapping[str, bytes] = {}
    release: bool = False

    def check(self, record: RunRecord) -> None:
        """Raise RunConflictError unless the writer may append to the run with this record."""
        if self.fence is not None and self.fence != record.fence:
            raise RunConflictError(
                record.run_id,
                f"`{record.worker}` acquired its lease (fence {record.fence}; the writer has {self.fence})",
            )
        if self.expected_seq != record.seq:
            raise RunConflictError(
                self.run_id, f"its log has {record.seq} lines, but the writer expected {self.expected_seq}"
            )

    def apply(self, record: RunRecord, now: float, *, inbox: InboxState | None = None) -> RunRecord:
        """Return the record after the append. Raises RunConflictError."""
        self.check(record)
        status = self.status or record.status
        cancel_requested = "" if status in FINISHED_STATUSES else record.cancel_requested
        return replace(
            record,
            seq=self.expected_seq + len(self.lines),
            status=status,
            updated_at=now,
            changed_at=record.changed_at if status == record.status else now,
            cancel_requested=cancel_requested,
            wake_at=record.wake_at if self.wake_at is None else self.wake_at,
            inbox=record.inbox if inbox is None else inbox,
            reader=max(record.reader, self.reader),
            lease_until=0.0 if self.release and not cancel_requested else record.lease_until,
        )

    @property
    def may_revive(self) -> bool:
        """True if the append may make a finished run continue."""
        return self.status is not None and keeps_thread_busy(self.status)

    @property
    def no_cancel(self) -> str | None:
        """Return the new `cancel_requested`, or None if it does not change."""
        return "" if self.status in FINISHED_STATUSES else None


def after_acquire(record: RunRecord, worker: str, *, ttl: float, now: float) -> RunRecord:
    """Return the record after a worker acquired the lease. Raises RunConflictError."""
    if record.worker != worker and has_valid_lease(record, now):
        seconds = record.lease_until - now
        reason = f"`{record.worker}` holds its lease for another {seconds:.1f} s"
        raise RunConflictError(record.run_id, f"{reason}; if that worker has died, the run is free then")
    return replace(record, worker=worker, fence=record.fence + 1, lease_until=now + ttl, lease_seconds=ttl)


def after_cancel_request(record: RunRecord, when: CancelWhen) -> RunRecord | None:
    """Return the record with a cancellation request, or None if the run has finished."""
    if not keeps_thread_busy(record.status):
        return None
    return replace(record, cancel_requested=stronger_request(record.cancel_requested, when))


def is_runnable(record: RunRecord, teams: Collection[str] | None, reader: int, now: float) -> bool:
    """Return whether `runnable` should return a run."""
    if record.reader > reader or (teams is not None and record.team not in teams):
        return False
    needs_worker = record.status == "running" or (record.status == "suspended" and record.wake_at > 0)
    return needs_worker and record.wake_at <= now and not has_valid_lease(record, now)


def runnable_order(record: RunRecord) -> tuple[int, int]:
    """Return the sort key of runs that wait for a worker."""
    return -record.priority, record.number


def first_runnable(
    records: Iterable[RunRecord], *, limit: int, per_owner: int | None, driven: Mapping[str, int]
) -> Sequence[RunRecord]:
    """Select from all runnable runs those that `runnable` returns, in its order."""
    first: list[RunRecord] = []
    counts = Counter(driven)
    for record in sorted(records, key=runnable_order):
        if len(first) == limit:
            break
        if per_owner is None or not record.owner or counts[record.owner] < per_owner:
            counts[record.owner] += 1
            first.append(record)
    return first


def check_previous(thread: str, last: str, previous: str | None) -> str:
    """Return the last run of a thread. Raises ThreadBusyError if it is not the expected one."""
    if previous is not None and previous != last:
        raise ThreadBusyError(thread, last, "just finished")
    return last


def check_is_last(run_id: str, last: str) -> None:
    """Raise RunConflictError if a run that is to continue is not the last one of its thread."""
    if run_id != last:
        reason = f"run `{last}` follows it; resume a copy: runner.runs.fork({run_id!r})"
        raise RunConflictError(run_id, reason, problem="is not the last one of its thread")


class NewLog(Struct, frozen=True):
    """The first lines of a log, the notes beside it, and the run that it is copied from."""

    lines: Sequence[bytes]
    notes: Mapping[str, bytes]
    forked_from: str


class WriteMethods:
    """The methods that create and extend runs, for all stores."""

    _clock: Callable[[], float]

    async def create(self, run_id: str, lines: Sequence[bytes], **options: Unpack[CreateOptions]) -> Lease:
        """Create a run; see `Store.create`."""
        check_keywords("create()", options, CreateOptions.__annotations__)
        fields: dict[str, Any] = {**options}
        previous = fields.pop("previous", None)
        ttl = fields.pop("ttl", 0.0)
        from_inbox = fields.pop("from_inbox", False)
        log = NewLog(lines, fields.pop("notes", {}), fields.pop("forked_from", ""))
        now = self._clock()
        record = RunRecord(
            run_id=run_id,
            seq=len(lines),
            created_at=now,
            updated_at=now,
            changed_at=now,
            lease_until=now + ttl,
            lease_seconds=ttl,
            fence=1,
            **fields,
        )
        check_names(run_id, thread=record.thread, owner=record.owner, worker=record.worker, team=record.team)
        return await self._create(record, log, previous if record.thread else None, from_inbox=from_inbox)

    async def append(
        self, run_id: str, expected_seq: int, lines: Sequence[bytes], **options: Unpack[AppendOptions]
    ) -> RunFlags:
        """Append lines; see `Store.append`."""
        return await self._append(Append(run_id, expected_seq, lines, **options))

    async def _create(self, record: RunRecord, log: NewLog, previous: str | None, *, from_inbox: bool) -> Lease:
        """Store a new run; the store sets its `number`, `previous` and `inbox`."""
        raise NotImplementedError

    async def _append(self, change: Append) -> RunFlags:
        raise NotImplementedError


class LeaseMethods(WriteMethods):
    """The lease methods of stores that read a record, change it and write it back."""

    async def now(self) -> float:
        """Return the time; see `Store.now`."""
        return self._clock()

    async def _update_record(self, run_id: str, update: Callable[[RunRecord], RunRecord | None]) -> RunRecord | None:
        """Replace a record atomically; return the new one, or None if there is none."""
        raise NotImplementedError

    async def acquire(self, run_id: str, worker: str, *, ttl: float) -> Lease:
        """Acquire a lease; see `Store.acquire`."""
        record = await self._update_record(
            run_id, lambda record: after_acquire(record, worker, ttl=ttl, now=self._clock())
        )
        return to_lease(require_run(record, run_id, self))

    async def release(self, lease: Lease) -> None:
        """Release a lease; see `Store.release`."""
        await self._update_record(
            lease.run_id, lambda record: replace(record, lease_until=0.0) if record.fence == lease.fence else None
        )

    async def request_cancel(self, run_id: str, when: CancelWhen) -> bool:
        """Request cancellation; see `Store.request_cancel`."""
        return await self._update_record(run_id, lambda record: after_cancel_request(record, when)) is not None


def after_renew(record: RunRecord | None, lease: Lease, *, ttl: float, now: float) -> RunRecord | None:
    """Return the record after a renewal, or None if the lease was released or is an old one."""
    if record is None or record.fence != lease.fence or not record.lease_until:
        return None
    return replace(record, lease_until=now + ttl, lease_seconds=ttl)


def public_notes(notes: Mapping[str, bytes]) -> dict[str, bytes]:
    """Return the notes that `SupportsNotes.notes` returns."""
    return {name: note for name, note in notes.items() if not name.startswith(INTERNAL_NOTES)}


def require_run(found: T | None, run_id: str, store: object) -> T:
    """Return what a store found of a run. Raises RunNotFoundError if it is None."""
    if found is None:
        raise RunNotFoundError(run_id, store=repr(store))
    return found


def copy_of(failure: StoreError) -> StoreError:
    """Return an error of its own for each waiter, because raising it adds a traceback and notes."""
    copy = StoreError(str(failure))
    copy.store = failure.store
    copy.__cause__ = failure
    return copy


def is_expired(record: RunRecord, older_than: float, status: Collection[RunStatus], now: float) -> bool:
    """Return whether `expire` should delete a run."""
    return record.status in status and record.changed_at <= now - older_than and not has_valid_lease(record, now)


def keeps_thread_busy(status: str) -> bool:
    """Return whether a run with this status prevents other runs of its thread."""
    return status not in FINISHED_STATUSES


def check_names(run_id: str, **others: str) -> None:
    """Raise SetupError for names that not every store accepts, such as zero bytes."""
    if not run_id:
        raise SetupError("run_id is empty; pass another one, or omit it")
    for parameter, name in (("run_id", run_id), *others.items()):
        # Lone surrogates cannot be encoded.
        if "\0" in name or name.encode(errors="replace").decode() != name:
            raise SetupError(f"{parameter} is {name!r}, which has characters that cannot be stored; use plain text")


def origins_of(owner: str, thread: str) -> tuple[str, ...]:
    """Return the `origins` of a copy of a run with this owner and thread."""
    return (*((f"owner:{owner}",) if owner else ()), *((f"thread:{thread}",) if thread else ()))


def after_fork(record: RunRecord, source: RunRecord) -> RunRecord:
    """Return the record of a copy of a run."""
    known = (*record.origins, *source.origins, *origins_of(source.owner, source.thread))
    return replace(record, origins=tuple(dict.fromkeys(known)))


def origins_left_by(previous: RunRecord) -> tuple[str, ...]:
    """Return the origins that the next run of a thread inherits, whose data it may hold."""
    return (*previous.origins, *origins_of(previous.owner, ""))


def erased_origin(owner: str, thread: str) -> str:
    """Return the origin of the forks to erase. Raises SetupError unless one name is given."""
    if bool(owner) == bool(thread):
        raise SetupError("erase() needs either owner=… or thread=…, and not an empty one")
    return origins_of(owner, thread)[0]


def has_data_of(record: RunRecord, origin: str) -> bool:
    """Return whether a run belongs to an owner or a thread, or is a fork of one that does."""
    return origin in record.origins or origin in origins_of(record.owner, record.thread)


def check_layout(found: int | None, expected: int, store: str) -> None:
    """Raise StoreError if a store has another layout than this version of Baton."""
    if found != expected:
        raise StoreError(
            f"its layout is {found}, but this version of Baton has layout {expected}: it was made by an unreleased "
            "version, or by a newer one; upgrade Baton, or delete what is there, or point the store elsewhere",
            store=store,
        )


def check_statuses(status: Collection[RunStatus]) -> tuple[RunStatus, ...]:
    """Validate a collection of statuses. Raises SetupError."""
    if isinstance(status, str):
        raise SetupError(f"status is {status!r}; it must be a collection, such as ({status!r},)")
    for one in status:
        check_choice("status", one, RUN_STATUSES)
    return tuple(dict.fromkeys(status))


_PAGE_SIZE = 500

Position = tuple[float, ...]
"""The sort key of a record: its number, or the time of its last change and its number."""


class RunQuery(Struct, frozen=True, kw_only=True):
    """Validated filters of `Store.list`."""

    status: tuple[RunStatus, ...] | None = None
    thread: str | None = None
    owner: str | None = None
    since: float | None = None
    until: float | None = None
    order_by: Literal["created", "changed"] = "created"
    limit: int = 100
    after: Position | None = None
    oldest_first: bool = False
    count_total: bool = False

    @property
    def by_time(self) -> bool:
        """True if the order is that of a time, then of the numbers."""
        return self.order_by == "changed" or self.since is not None or self.until is not None

    def time_of(self, record: RunRecord) -> float:
        """Return the time of a record that `since` and `until` apply to."""
        return record.created_at if self.order_by == "created" else record.changed_at

    def position_of(self, record: RunRecord) -> Position:
        """Return the sort key of a record."""
        return (self.time_of(record), record.number) if self.by_time else (record.number,)

    def accepts(self, record: RunRecord) -> bool:
        """Return whether a record matches the filters, apart from the cursor."""
        return (
            (self.status is None or record.status in self.status)
            and (self.thread is None or record.thread == self.thread)
            and (self.owner is None or record.owner == self.owner)
            and self.is_in_period(self.time_of(record))
        )

    def is_in_period(self, moment: float) -> bool:
        """Return whether a time is within `since` and `until`."""
        return (self.since is None or moment >= self.since) and (self.until is None or moment < self.until)

    def is_beyond(self, position: Position) -> bool:
        """Return whether a position is after the cursor."""
        return self.after is None or (position > self.after if self.oldest_first else position < self.after)


def parse_filters(filters: RunFilters) -> RunQuery:
    """Validate the filters of `Store.list`. Raises SetupError or StoreError."""
    check_keywords("list()", filters, RunFilters.__annotations__)
    fields: dict[str, Any] = {**filters}
    cursor = fields.pop("cursor", "")
    if fields.get("status") is not None:
        fields["status"] = check_statuses(fields["status"])
    query = RunQuery(**fields)
    if cursor:
        query = replace(query, after=_parse_cursor(cursor, 2 if query.by_time else 1))
    if query.limit < 1:
        raise SetupError(f"limit is {query.limit}; it must be at least 1")
    check_choice("order_by", query.order_by, ("created", "changed"))
    return query


def make_page(query: RunQuery, records: Sequence[RunRecord], total: int | None = None) -> RecordPage:
    """Make a page of sorted records; one more than `limit` means that another page follows."""
    if len(records) <= query.limit:
        return RecordPage(tuple(records), total=total)
    shown = tuple(records[: query.limit])
    return RecordPage(shown, " ".join(map(repr, query.position_of(shown[-1]))), total)


def select_page(query: RunQuery, records: Iterable[RunRecord]) -> RecordPage:
    """Select and sort the page that a query asks for from all records."""
    position_of = query.position_of
    matching = [record for record in records if query.accepts(record)]
    remaining = [record for record in matching if query.is_beyond(position_of(record))]
    remaining.sort(key=position_of, reverse=not query.oldest_first)
    return make_page(query, remaining[: query.limit + 1], len(matching) if query.count_total else None)


async def iter_records(store: Store, **filters: Unpack[RunFilters]) -> AsyncIterator[RunRecord]:
    """Iterate over the records of all pages; other tasks run between two pages.

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
        # Some stores answer without waiting, and the leases of live runs must be renewed meanwhile.
        await asyncio.sleep(0)


def _parse_cursor(cursor: str, parts: int) -> Position:
    try:
        # A number stays an integer: databases use an index only for the type of its column.
        position = tuple([int(part) if part.isdecimal() else float(part) for part in cursor.split(" ")])
    except ValueError:
        position = ()
    if len(position) != parts:
        raise StoreError(f"cursor is {cursor!r}; it must be the next_cursor of the previous page")
    return position


COLUMNS: LiteralString = (
    "run_id, number, status, seq, thread, previous, owner, created_at, updated_at, changed_at, worker, lease_until, "
    "lease_seconds, fence, cancel_requested, team, priority, wake_at, inbox, reader, origins"
)
_NAMES = COLUMNS.split(", ")


def row_to_record(row: Sequence[Any], *, now: float, store: str) -> RunRecord:
    """Convert a row of `COLUMNS`; `origins` may be JSON. Raises StoreError if it is damaged."""
    fields = dict(zip(_NAMES, row, strict=True))
    try:
        if isinstance(origins := fields["origins"], str):
            fields["origins"] = () if origins == "[]" else decode(origins)
        return read_at(convert(fields, RunRecord), now)
    except DecodeError as problem:
        raise StoreError(f"the record of run `{row[0]}` is damaged: {problem}", store=store) from problem


def status_condition(status: Sequence[str], *, mark: LiteralString) -> LiteralString:
    """Return the SQL condition for these statuses; `mark` is the placeholder of the database."""
    marks: list[LiteralString] = [mark for _ in status]
    return f"status IN ({', '.join(marks)})" if marks else "1 = 0"


Statement = tuple[LiteralString, list[Any]]
"""An SQL statement and the values of its placeholders."""


def page_queries(
    query: RunQuery, *, table: LiteralString, mark: LiteralString, columns: LiteralString = COLUMNS
) -> tuple[Statement, Statement]:
    """Return two statements: select a page and one more record, count the records on all pages."""
    conditions, values = _conditions(query, mark)
    any_status: LiteralString = "1 = 1" if query.status is None else status_condition(query.status, mark=mark)
    count = f"SELECT count(*) FROM {table} WHERE {' AND '.join((*conditions, any_status))}"
    counted = [*values, *(query.status or ())]
    time: LiteralString = "created_at" if query.order_by == "created" else "changed_at"
    if query.after is not None:
        beyond: LiteralString = ">" if query.oldest_first else "<"
        conditions.append(f"({time}, number) {beyond} ({mark}, {mark})" if query.by_time else f"number {beyond} {mark}")
        values += query.after
    direction: LiteralString = "ASC" if query.oldest_first else "DESC"
    order: LiteralString = f"{time} {direction}, number {direction}" if query.by_time else f"number {direction}"
    select: LiteralString = f"SELECT {columns} FROM {table} WHERE {' AND '.join(conditions)}"
    limited: LiteralString = f"ORDER BY {order} LIMIT {mark}"
    values.append(query.limit + 1)
    if not query.status:
        return (f"{select} AND {any_status} {limited}", values), (count, counted)
    # First a page of each status: the indexes of statuses are in order only within each of them.
    pages: list[LiteralString] = [
        f"SELECT * FROM ({select} AND status = {mark} {limited}) AS page" for _ in query.status
    ]
    of_each = [value for status in query.status for value in (*values[:-1], status, values[-1])]
    page = f"SELECT * FROM ({' UNION ALL '.join(pages)}) AS pages {limited}", [*of_each, values[-1]]
    return page, (count, counted)


def _conditions(query: RunQuery, mark: LiteralString) -> tuple[list[LiteralString], list[Any]]:
    conditions: list[LiteralString] = ["1 = 1"]
    values: list[Any] = []
    time: LiteralString = "created_at" if query.order_by == "created" else "changed_at"
    comparisons: dict[LiteralString, str | float | None] = {
        "thread =": query.thread,
        "owner =": query.owner,
        f"{time} >=": query.since,
        f"{time} <": query.until,
    }
    for comparison, value in comparisons.items():
        if value is not None:
            conditions.append(f"{comparison} {mark}")
            values.append(value)
    # Let the database use the indexes of runs that have a thread or an owner.
    if query.thread:
        conditions.append("thread <> ''")
    if query.owner:
        conditions.append("owner <> ''")
    return conditions, values


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
    """Return lines `start` to `end` of a log. Raises LogError if any are missing."""
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
