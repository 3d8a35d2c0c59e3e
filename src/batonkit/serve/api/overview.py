"""The endpoints of the HTTP API that show all runs together: their changes, threads and usage."""

import asyncio
from collections.abc import AsyncGenerator, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import cast, get_args

import msgspec
from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response

from ...inspection.policies import estimate_policies
from ...inspection.usage import UsageKey, UsageRow, merge_usage, usage_by
from ...runs import read_summaries, usage_from_events
from ...runs.background.broadcast import iter_batches
from ...stores import RunFilters, RunRecord, Store, iter_records
from ..http.auth import Principal
from ..http.sse import SSEResponse, encode_frame, iter_frames
from . import inspection_schemas
from . import run_schemas as schemas
from .endpoints import ApiEndpoints, EndpointTable, json_response, parse_choice, parse_time, path_id
from .search import NO_SUMMARY

_POLL_SECONDS = 0.5
_OVERLAP_SECONDS = 2.0
"""Changes of this long before the last one are read again: a store may show them late."""
_PAGE = 200
_MAX_THREAD_RUNS = 1000
_MAX_USAGE_RUNS = 1000
_MAX_CACHED = 4096
_BY: tuple[UsageKey, ...] = get_args(UsageKey)


class UsageCache(dict[tuple[str, str], tuple[int, tuple[UsageRow, ...]]]):
    """The usage of runs by id and grouping, with the length of the log at that time."""


class RunChange(Struct, frozen=True):
    """A run that has changed, and the time to resume after."""

    record: RunRecord
    until: float


@dataclass(eq=False)
class OverviewEndpoints(ApiEndpoints):
    """The endpoints that show all runs of a principal together."""

    _usage: UsageCache = field(default_factory=UsageCache, init=False)

    def endpoints(self) -> EndpointTable:
        """Return the endpoints by path and method."""
        return {
            "/events": {"GET": self._stream_changes},
            "/threads": {"GET": self._list_threads},
            "/usage": {"GET": self._report_usage},
            "/runs/{id}/usage": {"GET": self._run_usage},
        }

    async def _stream_changes(self, principal: Principal, request: Request) -> Response:
        header = request.headers.get("last-event-id")
        after = parse_time(header or request.query_params.get("after"), "Last-Event-ID" if header else "after")
        if request.method == "HEAD":
            return Response(media_type="text/event-stream")
        changes = iter_batches(watch_runs(self.store, principal.owner_filter, after), self.heartbeat)
        return SSEResponse(iter_frames(changes, partial(self._encode_change, principal)))

    def _encode_change(self, principal: Principal, change: RunChange) -> Iterator[bytes]:
        view = schemas.to_run_view(change.record, principal)
        yield encode_frame(msgspec.json.encode(view), event="run", id=f"{change.until:.6f}")

    async def _list_threads(self, principal: Principal, request: Request) -> Response:
        threads: dict[str, list[RunRecord]] = {}
        for record in await _newest(self.store, _MAX_THREAD_RUNS, owner=principal.owner_filter):
            if record.thread:
                threads.setdefault(record.thread, []).append(record)
        newest = sorted(threads.values(), key=lambda runs: runs[0].updated_at, reverse=True)[: schemas.MAX_PAGE_SIZE]
        summaries = await read_summaries(self.store, [runs[0].run_id for runs in newest])
        entries = [
            inspection_schemas.ThreadEntry(
                principal.to_public_id(runs[0].thread),
                len(runs),
                principal.to_public_id(runs[0].run_id),
                runs[0].status,
                runs[0].updated_at,
                summaries.get(runs[0].run_id, NO_SUMMARY).text,
            )
            for runs in newest
        ]
        return json_response(inspection_schemas.ThreadPage(tuple(entries)))

    async def _run_usage(self, principal: Principal, request: Request) -> Response:
        record = await self.require_run(principal, path_id(request, "run"))
        events = await self.background.runner.runs.events(record.run_id)
        view = inspection_schemas.RunUsageView(
            usage_from_events(events).total,
            usage_by(events, "agent"),
            usage_by(events, "edge"),
            usage_by(events, "model"),
            usage_by(events, "tool"),
            await asyncio.to_thread(estimate_policies, events),
        )
        return json_response(view)

    async def _report_usage(self, principal: Principal, request: Request) -> Response:
        query = request.query_params
        by = cast("UsageKey", parse_choice(query.get("by", "day"), "by", _BY))
        since = parse_time(query.get("since"), "since")
        until = parse_time(query.get("until"), "until")
        records = await _newest(self.store, _MAX_USAGE_RUNS + 1, owner=principal.owner_filter, since=since, until=until)
        covered = records[:_MAX_USAGE_RUNS]
        rows = merge_usage([await self._usage_of(record, by) for record in covered])
        report = inspection_schemas.UsageReport(by, rows, len(covered), len(covered) == len(records))
        return json_response(report)

    async def _usage_of(self, record: RunRecord, by: UsageKey) -> tuple[UsageRow, ...]:
        known = self._usage.get((record.run_id, by))
        if known is not None and known[0] == record.seq:
            return known[1]
        rows = usage_by(await self.background.runner.runs.events(record.run_id), by)
        # Some stores answer without waiting, and the leases of live runs must be renewed meanwhile.
        await asyncio.sleep(0)
        if len(self._usage) >= _MAX_CACHED:
            self._usage.clear()
        self._usage[record.run_id, by] = (record.seq, rows)
        return rows


async def watch_runs(store: Store, owner: str | None, after: float | None) -> AsyncGenerator[RunChange]:
    """Yield runs whenever they have changed, at least once for each change of status."""
    seen: dict[str, tuple[int, str]] = {}
    if after is None:
        page = await store.list(owner=owner, order_by="changed", limit=_PAGE)
        seen = {record.run_id: (record.seq, record.status) for record in page.records}
        after = max((record.changed_at for record in page.records), default=0.0)
    while True:
        async for record in _changed(store, owner, max(0.0, after - _OVERLAP_SECONDS)):
            state = (record.seq, record.status)
            after = max(after, record.changed_at)
            if seen.get(record.run_id) != state:
                seen[record.run_id] = state
                yield RunChange(record, after)
        if len(seen) > _MAX_CACHED:
            # Runs that are forgotten are reported again if they change.
            seen = dict([*seen.items()][-_MAX_CACHED // 2 :])
        await asyncio.sleep(_POLL_SECONDS)


async def _changed(store: Store, owner: str | None, since: float) -> AsyncGenerator[RunRecord]:
    """Yield runs whose status has changed since a time, the oldest first, then running ones."""
    filters = RunFilters(owner=owner, order_by="changed", since=since, oldest_first=True, limit=_PAGE)
    async for record in iter_records(store, **filters):
        yield record
    for record in (await store.list(owner=owner, status=["running"], limit=_PAGE)).records:
        yield record


async def _newest(
    store: Store, limit: int, *, owner: str | None, since: float | None = None, until: float | None = None
) -> list[RunRecord]:
    """Return up to `limit` of the newest runs."""
    records: list[RunRecord] = []
    async for record in iter_records(store, owner=owner, since=since, until=until, limit=_PAGE):
        records.append(record)
        if len(records) == limit:
            break
    return records
