"""Checks of stores: logs and listings."""

from typing import Any

from ...errors import BatonError, RunConflictError, RunExistsError, RunNotFoundError
from ...stores import Lease, RecordPage, RunStatus, Store
from .store_checks import Open, expect, expect_error, expect_log, expect_same, opened, record_of, store_check

_ODD_LINES = (b"", b"\n", b"a\nb\r\n", b"\x00\xff\xfe", '{"text":"日本語 🏃"}'.encode(), b'{"plain":1}')
_ODD_NAMES = ("a", "a/0", "a/1", "a b", "é", "日本語", "🏃", "per%cent", "quo'te\"s", "under_score", "A", "x" * 200)


@store_check
async def a_new_run_is_as_it_was_created(store: Store) -> None:
    """A new run has its lines, its record and a lease."""
    lease = await store.create("r", [b"one", b"two"], thread="t", worker="me", ttl=60)
    record = await record_of(store, "r")
    await expect_log(store, "r", [b"one", b"two"])
    expect_same((lease.run_id, lease.worker, lease.fence), ("r", "me", 1), "the lease that create gives")
    expect_same(lease.until, record.lease_until, "`until` of the lease")
    expect_same((record.run_id, record.status, record.thread), ("r", "running", "t"), "the record")
    expect_same((record.worker, record.fence, record.cancel_requested), ("me", 1, ""), "who drives, in the record")
    expect(record.created_at > 0 and record.updated_at >= record.created_at, "the record's times do not fit")
    expect(record.lease_until - record.created_at > 50, "the lease of 60 s is shorter")


@store_check
async def a_run_may_begin_without_lines(store: Store) -> None:
    """A run can be created without lines and get some later."""
    lease = await store.create("r", [])
    expect_same((lease.fence, lease.worker), (1, ""), "the lease of a run without an owner")
    await expect_log(store, "r", [])
    await store.append("r", 0, [b"one"])
    await expect_log(store, "r", [b"one"])


@store_check
async def lines_are_kept_byte_by_byte(store: Store) -> None:
    """Lines are arbitrary bytes."""
    await store.create("r", _ODD_LINES)
    await store.append("r", len(_ODD_LINES), [b""])
    await store.append("r", len(_ODD_LINES) + 1, _ODD_LINES)
    await expect_log(store, "r", [*_ODD_LINES, b"", *_ODD_LINES])


@store_check
async def large_lines_are_kept(store: Store) -> None:
    """A line of one megabyte is kept between small ones."""
    large = bytes(range(256)) * 4096
    await store.create("r", [b"before"])
    await store.append("r", 1, [large, b"between", large])
    await store.append("r", 4, [b"after"])
    await expect_log(store, "r", [b"before", large, b"between", large, b"after"])


@store_check
async def a_log_can_be_read_from_any_line(store: Store) -> None:
    """A log is read from any line, also inside a batch and after the end."""
    lines = [b"%d" % number for number in range(12)]
    await store.create("r", lines[:1])
    for begin, end in ((1, 4), (4, 5), (5, 12)):
        await store.append("r", begin, lines[begin:end])
    for start in range(15):
        expect_same(list(await store.load("r", start=start)), lines[start:], f"load(start={start})")


@store_check
async def many_lines_stay_in_order(store: Store) -> None:
    """A thousand lines in batches of different sizes stay in order."""
    lines = [b'{"seq":%d}' % number for number in range(1000)]
    await store.create("r", [])
    begin = 0
    while begin < len(lines):
        portion = lines[begin : begin + 1 + begin % 13]
        await store.append("r", begin, portion)
        begin += len(portion)
    await expect_log(store, "r", lines)


@store_check
async def an_append_sets_the_status(store: Store) -> None:
    """An append sets the status, also without lines; without a status it keeps the old one."""
    await store.create("r", [b"one"])
    before = await record_of(store, "r")
    await store.append("r", 1, [b"two"], status="suspended")
    expect_same((await record_of(store, "r")).status, "suspended", "the status")
    await store.append("r", 2, [b"three"])
    expect_same((await record_of(store, "r")).status, "suspended", "the status after an append without one")
    await store.append("r", 3, [], status="completed")
    after = await record_of(store, "r")
    expect_same((after.status, after.seq), ("completed", 3), "status and seq after an append without lines")
    expect(after.updated_at >= before.updated_at, "updated_at went back")
    expect_same(after.created_at, before.created_at, "created_at")


@store_check
async def a_wrong_expectation_is_a_conflict(store: Store) -> None:
    """A wrong expected number of lines is a conflict, and nothing is written."""
    await store.create("r", [b"one", b"two"])
    for expected in (0, 1, 3, 100):
        attempt = store.append("r", expected, [b"three"], status="completed")
        conflict = await expect_error(attempt, RunConflictError, f"append after {expected} of 2 lines")
        expect_same(conflict.run_id, "r", "`run_id` of the conflict")
    await expect_error(store.append("r", 1, []), RunConflictError, "append of nothing after 1 of 2 lines")
    await expect_log(store, "r", [b"one", b"two"])
    expect_same((await record_of(store, "r")).status, "running", "the status after conflicts")


@store_check
async def an_id_is_taken_once(store: Store) -> None:
    """Creating a run twice is an error and changes nothing."""
    await store.create("r", [b"one"], worker="me", ttl=60)
    await expect_error(store.create("r", [b"other"], thread="t"), RunExistsError, "create with an id that is taken")
    await expect_log(store, "r", [b"one"])
    await store.create("s", [], thread="t")


@store_check
async def names_may_be_any_text(store: Store) -> None:
    """Ids, threads and owners are any text; ids with a common prefix are different runs."""
    for name in _ODD_NAMES:
        await store.create(name, [name.encode()], thread=name, worker=name, ttl=60)
    for name in _ODD_NAMES:
        await store.append(name, 1, [b"second"])
    for name in _ODD_NAMES:
        await expect_log(store, name, [name.encode(), b"second"])
        page = await store.list(thread=name)
        expect_same([one.run_id for one in page.records], [name], f"the runs of thread {name!r}")
        expect_same(page.records[0].worker, name, "the owner")


@store_check
async def a_missing_run_is_reported(store: Store) -> None:
    """A missing run raises RunNotFoundError where a run is needed, else returns nothing."""
    lease = Lease("none", "me", 1, 0.0)
    await expect_error(store.load("none"), RunNotFoundError, "load of a run that is not there")
    await expect_error(store.append("none", 0, [b"x"]), RunNotFoundError, "append to a run that is not there")
    await expect_error(store.acquire("none", "me", ttl=1), RunNotFoundError, "acquire of a run that is not there")
    expect_same(dict(await store.renew([lease], ttl=1)), {}, "the renewal for a run that is not there")
    await store.release(lease)
    expect_same(await store.record("none"), None, "record of a run that is not there")
    expect_same(await store.delete("none"), False, "delete of a run that is not there")
    expect_same(await store.request_cancel("none", "now"), False, "request_cancel of a run that is not there")


@store_check
async def a_deleted_run_is_gone(store: Store) -> None:
    """A deleted run is gone; its id can be used again."""
    await store.create("r", [b"x" * 40_000, b"two"])
    await store.append("r", 2, [b"y" * 40_000])
    await store.create("other", [b"stays"])
    expect_same(await store.delete("r"), True, "delete")
    expect_same(await store.record("r"), None, "the record of a deleted run")
    await expect_error(store.load("r"), RunNotFoundError, "load of a deleted run")
    await expect_error(store.append("r", 3, [b"x"]), RunNotFoundError, "append to a deleted run")
    expect_same([one.run_id for one in (await store.list()).records], ["other"], "the runs that are left")
    await store.create("r", [b"new"])
    await expect_log(store, "r", [b"new"])
    await expect_log(store, "other", [b"stays"])


@store_check.opening
async def a_closed_store_can_be_used_again(open: Open) -> None:
    """A closed store reopens, and others find what was written."""
    async with opened(open) as store:
        await store.create("r", [b"one"])
        await store.close()
        await store.close()
        await store.append("r", 1, [b"two"], status="suspended")
        await store.close()
        await expect_log(store, "r", [b"one", b"two"])
    async with opened(open) as later:
        await expect_log(later, "r", [b"one", b"two"])
        expect_same((await record_of(later, "r")).status, "suspended", "the status, read by another store")


@store_check
async def runs_are_listed_by_status_and_thread(store: Store) -> None:
    """Runs are listed by one or several statuses; an empty list gives nothing."""
    statuses: dict[str, RunStatus] = {"a": "running", "b": "suspended", "c": "completed", "d": "failed"}
    for run_id, status in statuses.items():
        await store.create(run_id, [b"one"], thread=f"t{run_id}" if run_id < "c" else "shared")
        await store.append(run_id, 1, [], status=status)
    expect_same(await _ids(store), {"a", "b", "c", "d"}, "all runs")
    expect_same(await _ids(store, status=["running"]), {"a"}, "the running ones")
    expect_same(await _ids(store, status=("suspended", "failed")), {"b", "d"}, "suspended and failed ones")
    expect_same(await _ids(store, status=[]), set[str](), "runs of no status")
    expect_same(await _ids(store, thread="shared"), {"c", "d"}, "the runs of a thread")
    expect_same(await _ids(store, thread="shared", status=["failed"]), {"d"}, "the failed runs of a thread")
    expect_same(await _ids(store, thread="missing"), set[str](), "the runs of a thread that is not there")
    listed = {record.run_id: record for record in (await store.list()).records}
    expect_same(listed["b"], await record_of(store, "b"), "a record in a list, beside the record itself")


@store_check
async def runs_are_listed_by_owner(store: Store) -> None:
    """Runs are listed by owner, without an owner, or all; with other filters and in pages."""
    for number, owner in enumerate(("ada", "bob", "", "ada", "ada", "")):
        await store.create(f"r{number}", [b"one"], thread=f"t{number}", owner=owner)
    await store.append("r3", 1, [], status="failed")
    expect_same((await record_of(store, "r0")).owner, "ada", "`owner` of a record")
    expect_same(await _ids(store, owner="ada"), {"r0", "r3", "r4"}, "one owner's runs")
    expect_same(await _ids(store, owner=""), {"r2", "r5"}, "the runs without an owner")
    expect_same(await _ids(store, owner=None), {f"r{number}" for number in range(6)}, "all runs")
    expect_same(await _ids(store, owner="eve"), set[str](), "the runs of an owner that has none")
    expect_same(await _ids(store, owner="ada", status=["failed"]), {"r3"}, "one owner's failed runs")
    expect_same(await _ids(store, owner="ada", thread="t1"), set[str](), "one owner's runs in another's thread")
    for owner in ("ada", "", None):
        whole = [record.run_id for record in (await store.list(owner=owner)).records]
        pages = await _pages(store, limit=2, oldest_first=False, owner=owner)
        expect_same([run_id for page in pages for run_id in page], whole, "pages of an owner's runs, put together")


@store_check
async def runs_are_listed_by_their_last_change(store: Store) -> None:
    """Runs are listed in the order of `changed_at`, to which `since` and `until` then apply."""
    await _create(store, "abcde")
    for run_id in "cab":
        await store.append(run_id, 1, [b"two"], status="suspended")
    await store.append("d", 1, [b"two"])
    newest = [record.run_id for record in (await store.list(order_by="changed")).records]
    expect_same(newest[:3], ["b", "a", "c"], "the runs that changed last")
    oldest = [record.run_id for record in (await store.list(order_by="changed", oldest_first=True)).records]
    expect_same(oldest, newest[::-1], "the oldest changes first, beside the newest first")
    pages = await _pages(store, limit=2, oldest_first=False, order_by="changed")
    expect_same([run_id for page in pages for run_id in page], newest, "pages by change, put together")
    moment = (await record_of(store, "a")).changed_at
    expect_same(await _ids(store, order_by="changed", since=moment), {"a", "b"}, "runs that changed since then")
    expect_same(await _ids(store, order_by="changed", until=moment), {"c", "d", "e"}, "runs that did not")


@store_check
async def pages_count_all_records(store: Store) -> None:
    """Pages report the total if `count_total` is set."""
    expect_same(await _total(store), 0, "how many there are in an empty store")
    await _create(store, "abcde")
    await store.append("b", 1, [b"two"], status="completed")
    first = await store.list(limit=2, count_total=True)
    expect_same((len(first.records), first.total), (2, 5), "how many are on a page, and on all")
    expect_same(await _total(store, limit=2, cursor=first.next_cursor), 5, "the same on the next page")
    expect_same(await _total(store, status=["completed"]), 1, "how many are completed")
    moment = (await record_of(store, "b")).changed_at
    expect_same(await _total(store, order_by="changed", since=moment), 1, "how many changed since")
    expect_same((await store.list(limit=2)).total, None, "the total without count_total")


@store_check
async def runs_are_listed_by_time(store: Store) -> None:
    """Runs are listed from `since` and before `until`, newest or oldest first."""
    await _create(store, "abcde")
    oldest = [record.run_id for record in (await store.list(oldest_first=True)).records]
    newest = [record.run_id for record in (await store.list()).records]
    expect_same(newest, oldest[::-1], "newest first, beside oldest first")
    times = {run_id: (await record_of(store, run_id)).created_at for run_id in oldest}
    expect_same(sorted(times.values()), [times[run_id] for run_id in oldest], "times of creation, oldest first")
    middle = times[oldest[2]]
    late = {run_id for run_id in oldest if times[run_id] >= middle}
    expect_same(await _ids(store, since=middle), late, "runs since the third")
    expect_same(await _ids(store, until=middle), set(oldest) - late, "runs before the third")
    expect_same(await _ids(store, since=middle, until=middle), set[str](), "runs in no time")


@store_check
async def pages_follow_one_another(store: Store) -> None:
    """Each record is on one page; the last page has no cursor."""
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


@store_check
async def pages_are_stable_while_runs_come_and_go(store: Store) -> None:
    """Created and deleted runs make no page repeat or skip a record."""
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


async def _create(store: Store, names: Any) -> None:
    for name in names:
        await store.create(name, [b"one"])


async def _ids(store: Store, **asked: Any) -> set[str]:
    return {record.run_id for record in (await store.list(**asked)).records}


async def _total(store: Store, **asked: Any) -> int | None:
    return (await store.list(count_total=True, **asked)).total


async def _pages(store: Store, *, limit: int, oldest_first: bool, **asked: Any) -> list[list[str]]:
    pages: list[list[str]] = []
    after = ""
    while True:
        page = await store.list(limit=limit, cursor=after, oldest_first=oldest_first, **asked)
        pages.append([record.run_id for record in page.records])
        after = page.next_cursor
        if not after or len(pages) > 100:
            return pages
