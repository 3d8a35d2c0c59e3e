"""Records as rows of a table, and pages of them as a statement: what the stores in databases have in common."""

from collections.abc import Sequence
from typing import Any, LiteralString

from msgspec import ValidationError, convert

from ..errors import StoreError
from .base import RunRecord
from .paging import RunQuery

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
