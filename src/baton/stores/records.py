"""What may become of a record: the rules of the contract as functions from one record to the next.

Stores that read a record, change it and write it back live by these; stores that let a database decide say the same in
SQL, and ask here only for the words in which something is refused.

Pages of records: what was asked for, in order, and where the next page begins.

A page begins after a record, not after a number of them, so that runs created or deleted meanwhile move nothing.

Records as rows of a table, and pages of them as a statement: what the stores in databases have in common.

Lines that were appended together as one piece of bytes with a checksum, as stores keep them.

A piece is a checksum, the number of lines, the length of each, and the lines: 8 bytes and 4 for each line. Lines may
hold any bytes. One flipped bit anywhere is noticed.
"""

import struct
from collections.abc import AsyncIterator, Collection, Iterable, Sequence
from struct import pack, unpack_from
from typing import Any, Literal, LiteralString, Unpack
from zlib import crc32

from msgspec import Struct, ValidationError, convert
from msgspec.structs import replace

from ..errors import LogError, RunConflictError, SetupError, StoreError, check_choice
from .base import FINISHED_STATUSES, RUN_STATUSES, Lease, RecordPage, RunFilters, RunRecord, RunStatus, Store


def lease_of(record: RunRecord) -> Lease:
    """The lease that a record tells of."""
    return Lease(record.run_id, record.worker, record.fence, record.lease_until)


def begun(run_id: str, lines: int, *, thread: str, owner: str, worker: str, ttl: float, now: float) -> RunRecord:
    """The record of a new run."""
    checked_names(run_id, thread=thread, owner=owner, worker=worker)
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


def appended(
    record: RunRecord, expected_seq: int, lines: int, *, status: RunStatus | None, fence: int | None, now: float
) -> RunRecord:
    """The record after lines have been added, or RunConflictError."""
    if (refused := refusal(record, expected_seq, fence)) is not None:
        raise refused
    return replace(record, seq=expected_seq + lines, status=status or record.status, updated_at=now)


def refusal(record: RunRecord, expected_seq: int, fence: int | None) -> RunConflictError | None:
    """Why a writer who expects this must stop, or None if it may write."""
    if fence is not None and fence != record.fence:
        return _taken(record, fence)
    if expected_seq != record.seq:
        return RunConflictError(record.run_id, f"its log has {record.seq} lines, and the writer knew {expected_seq}")
    return None


def acquired(record: RunRecord, worker: str, *, ttl: float, now: float) -> RunRecord:
    """The record after a worker has taken the lease, or RunConflictError if another has it."""
    if record.worker != worker and record.lease_until > now:
        raise held(record, now)
    return replace(record, worker=worker, fence=record.fence + 1, lease_until=now + ttl, cancel_requested="")


def held(record: RunRecord, now: float) -> RunConflictError:
    """Somebody else has the lease."""
    return RunConflictError(
        record.run_id, f"`{record.worker}` has its lease for another {max(record.lease_until - now, 0.0):.1f} s"
    )


def renewed(record: RunRecord, lease: Lease, *, ttl: float, now: float) -> RunRecord:
    """The record after a lease has been made longer, or RunConflictError if it is not the newest."""
    if record.fence != lease.fence:
        raise _taken(record, lease.fence)
    return replace(record, lease_until=now + ttl)


def released(record: RunRecord, lease: Lease) -> RunRecord:
    """The record after a lease has been given back; as it was if the lease is not the newest."""
    return replace(record, lease_until=0.0) if record.fence == lease.fence else record


def asked_to_cancel(record: RunRecord, when: Literal["now", "after_turn"]) -> RunRecord | None:
    """The record with word for its driver, or None if it is not running. Who was told "now" is not told to wait."""
    if record.status != "running":
        return None
    return replace(record, cancel_requested="now" if record.cancel_requested == "now" else when)


def is_expired(record: RunRecord, older_than: float, *, status: Collection[RunStatus], now: float) -> bool:
    """Whether a run may be forgotten: nobody has written to it for long, and nobody drives it."""
    return record.status in status and record.updated_at <= now - older_than and record.lease_until <= now


def keeps_thread_busy(status: str) -> bool:
    """Whether a run with this status keeps other runs of its thread from beginning."""
    return status not in FINISHED_STATUSES


def checked_names(run_id: str, **others: str) -> None:
    """Raise SetupError for names that not every store can keep: empty ids, zero bytes, halves of characters."""
    if not run_id:
        raise SetupError("run_id is empty; give it a name, or leave it out")
    for what, name in (("run_id", run_id), *others.items()):
        if "\0" in name or not _is_encodable(name):
            raise SetupError(f"{what} is {name!r}, which has characters that cannot be stored; use plain text")


def checked_status(status: Collection[RunStatus]) -> tuple[RunStatus, ...]:
    """The statuses that were asked for; SetupError for one that does not exist, or for a word in place of several."""
    if isinstance(status, str):
        raise SetupError(f"status is {status!r}; it must be several, such as ({status!r},)")
    for one in status:
        check_choice("status", one, RUN_STATUSES)
    return tuple(status)


def _taken(record: RunRecord, fence: int) -> RunConflictError:
    return RunConflictError(
        record.run_id, f"`{record.worker}` has taken its lease (fence {record.fence}; the writer has {fence})"
    )


def _is_encodable(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


_A_PAGE = 500

Place = tuple[float, str]
"""Where a record stands in the order of all: its time, and its id if several have the same."""


class RunQuery(Struct, frozen=True, kw_only=True):
    """What `list` was asked for, checked."""

    status: tuple[RunStatus, ...] | None
    thread: str | None
    owner: str | None
    since: float | None
    until: float | None
    order_by: Literal["created", "updated"]
    limit: int
    after: Place | None
    oldest_first: bool
    count_total: bool

    def place_of(self, record: RunRecord) -> Place:
        """Where a record stands in the order that was asked for."""
        return (record.created_at if self.order_by == "created" else record.updated_at), record.run_id

    def accepts(self, record: RunRecord) -> bool:
        """Whether a record belongs on a page, wherever it stands."""
        return (
            (self.status is None or record.status in self.status)
            and (self.thread is None or record.thread == self.thread)
            and (self.owner is None or record.owner == self.owner)
        )

    def is_in_time(self, place: Place) -> bool:
        """Whether a place is within the time that was asked for."""
        return (self.since is None or place[0] >= self.since) and (self.until is None or place[0] < self.until)

    def is_beyond(self, place: Place) -> bool:
        """Whether a place is on this page or a later one."""
        return self.after is None or (place > self.after if self.oldest_first else place < self.after)


def parse_filters(wanted: RunFilters) -> RunQuery:
    """The query, or an error that says what is wrong with it."""
    limit, status = wanted.get("limit", 100), wanted.get("status")
    if limit < 1:
        raise SetupError(f"limit is {limit}; a page has at least 1 record")
    order_by, cursor = wanted.get("order_by", "created"), wanted.get("cursor", "")
    check_choice("order_by", order_by, ("created", "updated"))
    return RunQuery(
        status=None if status is None else checked_status(status),
        thread=wanted.get("thread"),
        owner=wanted.get("owner"),
        since=wanted.get("since"),
        until=wanted.get("until"),
        order_by=order_by,
        limit=limit,
        after=_place_in(cursor) if cursor else None,
        oldest_first=wanted.get("oldest_first", False),
        count_total=wanted.get("count_total", False),
    )


def page_of(query: RunQuery, records: Sequence[RunRecord], total: int | None = None) -> RecordPage:
    """A page of records that are in order already; one more than `limit` says that there is another page."""
    if len(records) <= query.limit:
        return RecordPage(tuple(records), total=total)
    shown = tuple(records[: query.limit])
    moment, run_id = query.place_of(shown[-1])
    return RecordPage(shown, f"{moment!r} {run_id}", total)


def select_page(query: RunQuery, records: Iterable[RunRecord]) -> RecordPage:
    """The page that a query asks for, out of all records there are in any order."""
    place_of = query.place_of
    fitting = [record for record in records if query.accepts(record) and query.is_in_time(place_of(record))]
    coming = [record for record in fitting if query.is_beyond(place_of(record))]
    coming.sort(key=place_of, reverse=not query.oldest_first)
    return page_of(query, coming[: query.limit + 1], len(fitting) if query.count_total else None)


async def iter_records(store: Store, **wanted: Unpack[RunFilters]) -> AsyncIterator[RunRecord]:
    """Every record that was asked for, however many pages there are."""
    ask = RunFilters(limit=_A_PAGE)
    ask.update(wanted)
    while True:
        page = await store.list(**ask)
        for record in page.records:
            yield record
        if not page.next_cursor:
            return
        ask["cursor"] = page.next_cursor


def _place_in(cursor: str) -> Place:
    moment, _, run_id = cursor.partition(" ")
    try:
        return float(moment), run_id
    except ValueError:
        raise StoreError(f"cursor is {cursor!r}; it must be the next_cursor of the previous page") from None


COLUMNS: LiteralString = (
    "run_id, status, seq, thread, owner, created_at, updated_at, worker, lease_until, fence, cancel_requested"
)
_NAMES = COLUMNS.split(", ")


def record_in(row: Sequence[Any], *, store: str) -> RunRecord:
    """The record in a row of `COLUMNS`. StoreError if it cannot be one, because the row was damaged."""
    try:
        return convert(dict(zip(_NAMES, row, strict=True)), RunRecord)
    except ValidationError as problem:
        raise StoreError(f"the record of run `{row[0]}` is damaged: {problem}", store=store) from problem


def row_of(record: RunRecord) -> tuple[Any, ...]:
    """A record as a row of `COLUMNS`."""
    return (
        *(record.run_id, record.status, record.seq, record.thread, record.owner),
        *(
            record.created_at,
            record.updated_at,
            record.worker,
            record.lease_until,
            record.fence,
            record.cancel_requested,
        ),
    )


def among(status: Sequence[str], *, mark: LiteralString) -> LiteralString:
    """The condition that a status is one of these; `mark` is how the database writes a value that comes later."""
    marks: list[LiteralString] = [mark for _ in status]
    return f"status IN ({', '.join(marks)})" if marks else "1 = 0"


def selection(query: RunQuery, *, table: LiteralString, mark: LiteralString) -> tuple[LiteralString, list[Any]]:
    """The statement and values for a page and one record more, which tells whether another page follows."""
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


def counting(query: RunQuery, *, table: LiteralString, mark: LiteralString) -> tuple[LiteralString, list[Any]]:
    """The statement and values for how many records there are on all pages."""
    conditions, values = _conditions(query, mark)
    return f"SELECT count(*) FROM {table} WHERE {' AND '.join(conditions)}", values


def _conditions(query: RunQuery, mark: LiteralString) -> tuple[list[LiteralString], list[Any]]:
    conditions: list[LiteralString] = ["1 = 1"]
    values: list[Any] = []
    if query.status is not None:
        conditions.append(among(query.status, mark=mark))
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


_HEAD = struct.Struct("<II")
_HEAD_OF_ONE = struct.Struct("<III")


def packed(lines: Sequence[bytes]) -> bytes:
    """The lines as one piece."""
    count = len(lines)
    body = pack(f"<{count + 1}I", count, *map(len, lines)) + b"".join(lines)
    return crc32(body).to_bytes(4, "little") + body


def unpacked(piece: bytes) -> list[bytes]:
    """The lines of a piece. ValueError if it is not what was packed."""
    if len(piece) < _HEAD.size:
        raise ValueError(f"a piece of {len(piece)} bytes is cut off")
    checksum, count = _HEAD.unpack_from(piece)
    if crc32(piece[4:]) != checksum:
        raise ValueError(f"the checksum of a piece of {len(piece)} bytes does not fit: it was damaged")
    if count == 1:
        return [piece[_HEAD_OF_ONE.size :]]
    lines: list[bytes] = []
    begin = _HEAD.size + 4 * count
    for length in unpack_from(f"<{count}I", piece, _HEAD.size):
        lines.append(piece[begin : begin + length])
        begin += length
    return lines


def log_of(pieces: Iterable[tuple[int, bytes]], *, start: int, end: int) -> list[bytes]:
    """Lines `start` to `end` of a log, out of pieces with the number of their first line. LogError if any are missing.

    The first piece may begin before `start`: a piece is kept whole.
    """
    lines: list[bytes] = []
    first = -1
    for number, piece in pieces:
        if first < 0:
            first = min(number, start)
        known = first + len(lines)
        if number != known:
            raise LogError(known, f"the next line that is kept is number {number}")
        try:
            lines += unpacked(piece)
        except ValueError as problem:
            raise LogError(number, str(problem)) from problem
    known = first + len(lines) if first >= 0 else min(start, end)
    if known != end:
        raise LogError(min(known, end), f"{known} lines are kept, and the record of the run tells of {end}")
    return lines[start - first :] if first >= 0 else lines
