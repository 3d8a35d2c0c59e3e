"""Checks of stores: records are found by status, thread and time, page by page, and forgotten when they are old."""

from typing import Any

from ...errors import BatonError
from ...stores import FINISHED_STATUSES, RecordPage, RunStatus, Store
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


async def runs_are_listed_by_caller(open: Open) -> None:
    """Those of one caller, those of nobody, or all; with other conditions, and page by page."""
    async with opened(open) as store:
        for number, caller in enumerate(("ada", "bob", "", "ada", "ada", "")):
            await store.create(f"r{number}", [b"one"], thread=f"t{number}", owner=caller)
        await store.append("r3", 1, [], status="failed")
        expect_same((await known(store, "r0")).owner, "ada", "`caller` of a record")
        expect_same(await _ids(store, caller="ada"), {"r0", "r3", "r4"}, "one caller's runs")
        expect_same(await _ids(store, caller=""), {"r2", "r5"}, "the runs of nobody")
        expect_same(await _ids(store, caller=None), {f"r{number}" for number in range(6)}, "everybody's runs")
        expect_same(await _ids(store, caller="eve"), set[str](), "the runs of a caller who has none")
        expect_same(await _ids(store, caller="ada", status=["failed"]), {"r3"}, "one caller's failed runs")
        expect_same(await _ids(store, caller="ada", thread="t1"), set[str](), "one caller's runs in another's thread")
        for caller in ("ada", "", None):
            whole = [record.run_id for record in (await store.list(owner=caller)).records]
            pages = await _pages(store, limit=2, oldest_first=False, caller=caller)
            expect_same([run_id for page in pages for run_id in page], whole, "pages of a caller's runs, put together")


async def runs_are_listed_by_their_last_change(open: Open) -> None:
    """In the order of `updated_at`, which `since` and `until` then go by, page by page."""
    async with opened(open) as store:
        await _create(store, "abcde")
        for run_id in "cab":
            await store.append(run_id, 1, [b"two"])
        newest = [record.run_id for record in (await store.list(order_by="updated")).records]
        expect_same(newest[:3], ["b", "a", "c"], "the runs that changed last")
        oldest = [record.run_id for record in (await store.list(order_by="updated", oldest_first=True)).records]
        expect_same(oldest, newest[::-1], "the oldest changes first, beside the newest first")
        pages = await _pages(store, limit=2, oldest_first=False, by="changed")
        expect_same([run_id for page in pages for run_id in page], newest, "pages by change, put together")
        moment = (await known(store, "a")).updated_at
        expect_same(await _ids(store, by="changed", since=moment), {"a", "b"}, "runs that changed since then")
        expect_same(await _ids(store, by="changed", until=moment), {"c", "d", "e"}, "runs that did not")


async def pages_tell_how_many_there_are(open: Open) -> None:
    """On all pages, if that was asked for."""
    async with opened(open) as store:
        expect_same((await store.list(count_total=True)).total, 0, "how many there are in an empty store")
        await _create(store, "abcde")
        await store.append("b", 1, [b"two"], status="completed")
        first = await store.list(limit=2, count_total=True)
        expect_same((len(first.records), first.total), (2, 5), "how many are on a page, and on all")
        expect_same(
            (await store.list(limit=2, count_total=True, cursor=first.next_cursor)).total,
            5,
            "the same on the next page",
        )
        expect_same((await store.list(status=["completed"], count_total=True)).total, 1, "how many are completed")
        moment = (await known(store, "b")).updated_at
        expect_same(
            (await store.list(order_by="updated", since=moment, count_total=True)).total, 1, "how many changed since"
        )
        expect_same((await store.list(limit=2)).total, None, "the total if nobody asked")


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
        expect_same(await store.list(), RecordPage(), "the list of an empty store")
        await _create(store, "abcdefg")
        for oldest_first in (False, True):
            whole = [record.run_id for record in (await store.list(oldest_first=oldest_first)).records]
            for limit in (1, 2, 3, 6, 7, 8):
                pages = await _pages(store, limit=limit, oldest_first=oldest_first)
                expect_same([run_id for page in pages for run_id in page], whole, f"pages of {limit}, put together")
                expect_same({len(page) for page in pages[:-1]} - {limit}, set[int](), f"sizes of pages of {limit}")
        await expect_error(store.list(limit=0), BatonError, "a page of no records")
        await expect_error(store.list(cursor="no place"), BatonError, "a page after no place")


async def pages_are_steady_while_runs_come_and_go(open: Open) -> None:
    """Runs that are created or deleted meanwhile make no page repeat or skip another record."""
    async with opened(open) as store:
        await _create(store, [f"old {number}" for number in range(9)])
        for oldest_first in (False, True):
            before = [record.run_id for record in (await store.list(oldest_first=oldest_first)).records]
            seen: list[str] = []
            after = ""
            while not seen or after:
                page = await store.list(limit=2, cursor=after, oldest_first=oldest_first)
                seen += [record.run_id for record in page.records]
                after = page.next_cursor
                await store.create(f"new {oldest_first} {len(seen)}", [b"x"])
                expect_same(await store.delete(seen[-1]), True, "delete of a run on a page")
                expect(len(seen) < 100, "the pages do not come to an end")
            expect_same(seen[: len(before)], before, "runs on pages that were there before the first")
            expect_same(len(set(seen)), len(seen), "how many runs stand on pages, each counted once")


async def old_runs_expire(open: Open) -> None:
    """Those that have ended, unless other statuses are named, and not written to for long."""
    async with opened(open) as store:
        for number, status in enumerate((*FINISHED_STATUSES, "running", "suspended")):
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


async def _pages(store: Store, *, limit: int, oldest_first: bool, **asked: Any) -> list[list[str]]:
    pages: list[list[str]] = []
    after = ""
    while True:
        page = await store.list(limit=limit, cursor=after, oldest_first=oldest_first, **asked)
        pages.append([record.run_id for record in page.records])
        after = page.next_cursor
        if not after or len(pages) > 100:
            return pages


CHECKS: tuple[StoreCheck, ...] = (
    runs_are_listed_by_status_and_thread,
    runs_are_listed_by_caller,
    runs_are_listed_by_their_last_change,
    pages_tell_how_many_there_are,
    runs_are_listed_by_time,
    pages_follow_one_another,
    pages_are_steady_while_runs_come_and_go,
    old_runs_expire,
    a_run_whose_lease_is_held_does_not_expire,
)
