"""Checks of stores: records are found by status, thread and time, page by page, and forgotten when they are old."""

from typing import Any

from ...errors import BatonError
from ...stores import FINISHED, Page, RunStatus, Store
from .expectations import expect, expect_error, expect_same
from .store_checks import Open, StoreCheck, known, opened


async def runs_are_listed_by_status_and_thread(open: Open) -> None:
    """One or several statuses; no status at all gives nothing."""
    statuses: dict[str, RunStatus] = {"a": "running", "b": "suspended", "c": "completed", "d": "failed"}
    async with opened(open) as store:
        for run_id, status in statuses.items():
            await store.create(run_id, [b"one"], thread=f"t{run_id}" if run_id < "c" else "shared")
            await store.append(run_id, 1, [], status=status)
        expect_same(await _ids(store), {"a", "b", "c", "d"}, "all runs")
        expect_same(await _ids(store, status=["running"]), {"a"}, "the running ones")
        expect_same(await _ids(store, status=("suspended", "failed")), {"b", "d"}, "suspended and failed ones")
        expect_same(await _ids(store, status=[]), set[str](), "runs of no status")
        expect_same(await _ids(store, thread="shared"), {"c", "d"}, "the runs of a thread")
        expect_same(await _ids(store, thread="shared", status=["failed"]), {"d"}, "the failed runs of a thread")
        expect_same(await _ids(store, thread="nobody"), set[str](), "the runs of a thread that is not there")
        listed = {record.run_id: record for record in (await store.list()).records}
        expect_same(listed["b"], await known(store, "b"), "a record in a list, beside the record itself")


async def runs_are_listed_by_time(open: Open) -> None:
    """From `since` on, and before `until`; newest first, or oldest first."""
    async with opened(open) as store:
        await _create(store, "abcde")
        oldest = [record.run_id for record in (await store.list(oldest_first=True)).records]
        newest = [record.run_id for record in (await store.list()).records]
        expect_same(newest, oldest[::-1], "newest first, beside oldest first")
        times = {run_id: (await known(store, run_id)).created_at for run_id in oldest}
        expect_same(sorted(times.values()), [times[run_id] for run_id in oldest], "times of creation, oldest first")
        middle = times[oldest[2]]
        late = {run_id for run_id in oldest if times[run_id] >= middle}
        expect_same(await _ids(store, since=middle), late, "runs since the third")
        expect_same(await _ids(store, until=middle), set(oldest) - late, "runs before the third")
        expect_same(await _ids(store, since=middle, until=middle), set[str](), "runs in no time")


async def pages_follow_one_another(open: Open) -> None:
    """Each record on one page; the last page says that there are no more."""
    async with opened(open) as store:
        expect_same(await store.list(), Page(), "the list of an empty store")
        await _create(store, "abcdefg")
        for oldest_first in (False, True):
            whole = [record.run_id for record in (await store.list(oldest_first=oldest_first)).records]
            for limit in (1, 2, 3, 6, 7, 8):
                pages = await _pages(store, limit=limit, oldest_first=oldest_first)
                expect_same([run_id for page in pages for run_id in page], whole, f"pages of {limit}, put together")
                expect_same({len(page) for page in pages[:-1]} - {limit}, set[int](), f"sizes of pages of {limit}")
        await expect_error(store.list(limit=0), BatonError, "a page of no records")
        await expect_error(store.list(after="no place"), BatonError, "a page after no place")


async def pages_are_steady_while_runs_come_and_go(open: Open) -> None:
    """Runs that are created or deleted meanwhile make no page repeat or skip another record."""
    async with opened(open) as store:
        await _create(store, [f"old {number}" for number in range(9)])
        for oldest_first in (False, True):
            before = [record.run_id for record in (await store.list(oldest_first=oldest_first)).records]
            seen: list[str] = []
            after = ""
            while not seen or after:
                page = await store.list(limit=2, after=after, oldest_first=oldest_first)
                seen += [record.run_id for record in page.records]
                after = page.next
                await store.create(f"new {oldest_first} {len(seen)}", [b"x"])
                expect_same(await store.delete(seen[-1]), True, "delete of a run on a page")
                expect(len(seen) < 100, "the pages do not come to an end")
            expect_same(seen[: len(before)], before, "runs on pages that were there before the first")
            expect_same(len(set(seen)), len(seen), "how many runs stand on pages, each counted once")


async def old_runs_expire(open: Open) -> None:
    """Those that have ended, unless other statuses are named, and not written to for long."""
    async with opened(open) as store:
        for number, status in enumerate((*FINISHED, "running", "suspended")):
            await store.create(f"r{number}", [b"x" * 20_000], thread=f"t{number}")
            await store.append(f"r{number}", 1, [b"y"], status=status)
        expect_same(await store.expire(3600), 0, "runs that have not been written to for an hour")
        expect_same(await store.expire(0), 3, "runs that expire")
        expect_same(await _ids(store), {"r3", "r4"}, "runs that are left")
        expect_same(await store.expire(0, status=("suspended",)), 1, "suspended runs that expire")
        expect_same(await store.expire(0, status=()), 0, "runs of no status that expire")
        expect_same(await _ids(store), {"r3"}, "runs that are left at last")
        await store.create("r0", [b"new"])
        expect_same(list(await store.load("r0")), [b"new"], "the log of an id that expired")


async def a_run_whose_lease_is_held_does_not_expire(open: Open) -> None:
    """Somebody is about to write to it."""
    async with opened(open) as store:
        await store.create("r", [b"one"])
        await store.append("r", 1, [], status="cancelled")
        lease = await store.acquire("r", "me", ttl=60)
        expect_same(await store.expire(0), 0, "runs that expire though somebody drives them")
        await store.release(lease)
        expect_same(await store.expire(0), 1, "runs that expire after the lease was given back")


async def _create(store: Store, names: Any) -> None:
    for name in names:
        await store.create(name, [b"one"])


async def _ids(store: Store, **asked: Any) -> set[str]:
    return {record.run_id for record in (await store.list(**asked)).records}


async def _pages(store: Store, *, limit: int, oldest_first: bool) -> list[list[str]]:
    pages: list[list[str]] = []
    after = ""
    while True:
        page = await store.list(limit=limit, after=after, oldest_first=oldest_first)
        pages.append([record.run_id for record in page.records])
        after = page.next
        if not after or len(pages) > 100:
            return pages


CHECKS: tuple[StoreCheck, ...] = (
    runs_are_listed_by_status_and_thread,
    runs_are_listed_by_time,
    pages_follow_one_another,
    pages_are_steady_while_runs_come_and_go,
    old_runs_expire,
    a_run_whose_lease_is_held_does_not_expire,
)
