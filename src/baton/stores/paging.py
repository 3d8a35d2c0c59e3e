"""Pages of records: what was asked for, in order, and where the next page begins.

A page begins after a record, not after a number of them, so that runs created or deleted meanwhile move nothing.
"""

from collections.abc import AsyncIterator, Collection, Iterable, Sequence

from msgspec import Struct

from ..errors import SetupError, StoreError
from .base import Page, RunRecord, RunStatus, Store
from .rules import checked_status

_A_PAGE = 500

Place = tuple[float, str]
"""Where a record stands in the order of all: when it was created, and its id if several were created at once."""


class Query(Struct, frozen=True, kw_only=True):
    """What `list` was asked for, checked."""

    status: tuple[RunStatus, ...] | None
    thread: str | None
    since: float | None
    until: float | None
    limit: int
    after: Place | None
    oldest_first: bool

    def accepts(self, record: RunRecord) -> bool:
        """Whether a record belongs on a page, wherever it stands."""
        return (self.status is None or record.status in self.status) and (
            self.thread is None or record.thread == self.thread
        )

    def reaches(self, place: Place) -> bool:
        """Whether a place is within the time that was asked for, and on this page or a later one."""
        if (self.since is not None and place[0] < self.since) or (self.until is not None and place[0] >= self.until):
            return False
        return self.after is None or (place > self.after if self.oldest_first else place < self.after)


def asked(
    *,
    status: Collection[RunStatus] | None,
    thread: str | None,
    since: float | None,
    until: float | None,
    limit: int,
    after: str,
    oldest_first: bool,
) -> Query:
    """The query, or an error that says what is wrong with it."""
    if limit < 1:
        raise SetupError(f"limit is {limit}; a page has at least 1 record")
    return Query(
        status=None if status is None else checked_status(status),
        thread=thread,
        since=since,
        until=until,
        limit=limit,
        after=_place_in(after) if after else None,
        oldest_first=oldest_first,
    )


def place_of(record: RunRecord) -> Place:
    """Where a record stands."""
    return record.created_at, record.run_id


def page_of(query: Query, records: Sequence[RunRecord]) -> Page:
    """A page of records that are in order already; one more than `limit` says that there is another page."""
    if len(records) <= query.limit:
        return Page(tuple(records))
    shown = tuple(records[: query.limit])
    return Page(shown, f"{shown[-1].created_at!r} {shown[-1].run_id}")


def chosen(query: Query, records: Iterable[RunRecord]) -> Page:
    """The page that a query asks for, out of all records there are in any order."""
    fitting = [record for record in records if query.accepts(record) and query.reaches(place_of(record))]
    fitting.sort(key=place_of, reverse=not query.oldest_first)
    return page_of(query, fitting[: query.limit + 1])


async def all_records(
    store: Store,
    *,
    status: Collection[RunStatus] | None = None,
    thread: str | None = None,
    oldest_first: bool = False,
) -> AsyncIterator[RunRecord]:
    """Every record that was asked for, however many pages there are."""
    after = ""
    while True:
        page = await store.list(status=status, thread=thread, limit=_A_PAGE, after=after, oldest_first=oldest_first)
        for record in page.records:
            yield record
        after = page.next
        if not after:
            return


def _place_in(after: str) -> Place:
    moment, _, run_id = after.partition(" ")
    try:
        return float(moment), run_id
    except ValueError:
        raise StoreError(f"`after` is {after!r}; it must be the `next` of the page before") from None
