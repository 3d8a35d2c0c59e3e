"""The search for runs: filters of the store, words and other properties of summaries, and pages."""

import asyncio
import re
from collections.abc import Sequence

from msgspec import Struct
from starlette.datastructures import QueryParams

from ...runs import RunSummary, read_summaries
from ...stores import RUN_STATUSES, FullStore, RunFilters, RunRecord, RunStatus
from ..http.auth import Principal
from ..http.http_errors import ServingError
from . import run_schemas as schemas
from .endpoints import parse_choice, parse_int, parse_time

MAX_SEARCHED = 10_000
"""The number of newest runs whose summaries are searched."""
_PAGE = 200
_CURSOR = re.compile(r"[\x20-\x7e]{1,1000}")
_SKIP = re.compile(r"q(\d{1,6}):(.*)", re.ASCII)
_ORDERS = ("newest", "oldest", "changed")
NO_SUMMARY = RunSummary()
"""The summary of a run that was stored without one."""


class FoundRun(Struct, frozen=True):
    """A run that a search has found."""

    record: RunRecord
    summary: RunSummary


class FoundPage(Struct, frozen=True):
    """A page of runs that a search has found."""

    runs: Sequence[FoundRun]
    next_cursor: str = ""
    """The cursor of the next page; "" at the end."""


class RunSearch(Struct, frozen=True):
    """A search for runs."""

    filters: RunFilters
    limit: int
    cursor: str = ""
    words: tuple[str, ...] = ()
    agent: str = ""
    forked_from: str = ""
    min_cost: float = 0.0
    show_errors: bool = False

    async def find(self, store: FullStore) -> FoundPage:
        """Return a page of runs with their summaries. Reads no log."""
        if not self.words and not self.agent and not self.forked_from and not self.min_cost:
            page = await store.list(**self._page(self.limit, self.cursor))
            return FoundPage(await self._with_summaries(store, page.records), page.next_cursor)
        return await self._search(store)

    async def _search(self, store: FullStore) -> FoundPage:
        skip, cursor = 0, self.cursor
        if (partial_page := _SKIP.fullmatch(self.cursor)) is not None:
            skip, cursor = int(partial_page[1]), partial_page[2]
        matches: list[FoundRun] = []
        searched = 0
        while searched < MAX_SEARCHED:
            page = await store.list(**self._page(_PAGE, cursor))
            for position, run in enumerate(await self._with_summaries(store, page.records[skip:]), skip + 1):
                if self._matches(run.record, run.summary):
                    matches.append(run)
                    if len(matches) == self.limit:
                        is_last = position == len(page.records) and not page.next_cursor
                        return FoundPage(matches, "" if is_last else f"q{position}:{cursor}")
            searched += len(page.records)
            skip = 0
            cursor = page.next_cursor
            if not cursor:
                break
            # Some stores answer without waiting, and the leases of live runs must be renewed meanwhile.
            await asyncio.sleep(0)
        return FoundPage(matches)

    def _page(self, limit: int, cursor: str) -> RunFilters:
        filters = self.filters.copy()
        filters["limit"] = limit
        filters["cursor"] = cursor
        return filters

    def _matches(self, record: RunRecord, summary: RunSummary) -> bool:
        if self.agent and self.agent not in (*summary.agents, *summary.inner_agents):
            return False
        if self.forked_from and self.forked_from != summary.forked_from.rpartition("@")[0]:
            return False
        if summary.usage.cost < self.min_cost:
            return False
        agents = (*summary.agents, *summary.inner_agents)
        text = " ".join([summary.text, record.run_id, record.thread, summary.error, *agents]).lower()
        return all(word in text for word in self.words)

    async def _with_summaries(self, store: FullStore, records: Sequence[RunRecord]) -> list[FoundRun]:
        summaries = await read_summaries(store, [record.run_id for record in records])
        return [FoundRun(record, self._public(summaries.get(record.run_id, NO_SUMMARY))) for record in records]

    def _public(self, summary: RunSummary) -> RunSummary:
        return schemas.public_summary(summary, show_errors=self.show_errors)


def parse_search(query: QueryParams, principal: Principal, *, show_errors: bool) -> RunSearch:
    """Parse the parameters of `GET /runs`.

    Raises:
        ServingError: A parameter is invalid.
    """
    after = query.get("after", "")
    cost = query.get("min_cost", "0")
    if after and not _CURSOR.fullmatch(after):
        raise ServingError(422, "invalid", "`after` must be the `next` cursor of the previous page")
    if not re.fullmatch(r"\d{1,12}(\.\d{1,9})?", cost, re.ASCII):
        raise ServingError(422, "invalid", "`min_cost` must be a number")
    filters = RunFilters(
        status=_parse_statuses(query.getlist("status")),
        thread=_store_id(query.get("thread"), "thread", principal),
        owner=_parse_owner(query.get("owner"), principal),
        since=parse_time(query.get("since"), "since"),
        until=parse_time(query.get("until"), "until"),
    )
    order = parse_choice(query.get("order", "newest"), "order", _ORDERS)
    if order == "oldest":
        filters["oldest_first"] = True
    elif order == "changed":
        filters["order_by"] = "changed"
    return RunSearch(
        filters=filters,
        limit=parse_int(query.get("limit", "50"), "limit", minimum=1, maximum=schemas.MAX_PAGE_SIZE),
        cursor=after,
        words=tuple(query.get("q", "").lower().split()),
        agent=query.get("agent", ""),
        forked_from=_store_id(query.get("forked_from"), "forked_from", principal) or "",
        min_cost=float(cost),
        show_errors=show_errors,
    )


def _store_id(id: str | None, what: str, principal: Principal) -> str | None:
    if id is None:
        return None
    if not re.fullmatch(schemas.ID, id):
        raise ServingError(422, "invalid", f"`{what}` must consist of at most 128 letters, digits and . _ : -")
    return principal.to_store_id(id)


def _parse_owner(owner: str | None, principal: Principal) -> str | None:
    if owner is None:
        return principal.owner_filter
    if not principal.sees(owner):
        raise ServingError(403, "forbidden", "you see only your own runs; leave out `owner`")
    return owner


def _parse_statuses(names: list[str]) -> list[RunStatus] | None:
    statuses: list[RunStatus] = [status for status in RUN_STATUSES if status in names]
    if len(statuses) != len(set(names)):
        raise ServingError(422, "invalid", f"`status` must be one of: {', '.join(RUN_STATUSES)}")
    return statuses or None
