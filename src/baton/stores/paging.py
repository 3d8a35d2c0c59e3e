"""Pages of records: what was asked for, in order, and where the next page begins.

A page begins after a record, not after a number of them, so that runs created or deleted meanwhile move nothing.
"""

from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Literal, Unpack

from msgspec import Struct

from ..errors import SetupError, StoreError, check_choice
from .base import RecordPage, RunFilters, RunRecord, RunStatus, Store
from .rules import checked_status

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
