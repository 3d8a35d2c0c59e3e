"""Checks of stores: lines are kept as they came, in order, once."""

from ...errors import RunConflictError, RunExistsError, RunNotFoundError
from ...stores import Lease
from .expectations import expect, expect_error, expect_same
from .store_checks import Open, StoreCheck, expect_log, known, opened

_ODD_LINES = (b"", b"\n", b"a\nb\r\n", b"\x00\xff\xfe", '{"text":"日本語 🏃"}'.encode(), b'{"plain":1}')
_ODD_NAMES = ("a", "a/0", "a/1", "a b", "é", "日本語", "🏃", "per%cent", "quo'te\"s", "under_score", "A", "x" * 200)


async def a_new_run_is_as_it_was_created(open: Open) -> None:
    """Its lines, its record and the lease of its maker."""
    async with opened(open) as store:
        lease = await store.create("r", [b"one", b"two"], thread="t", worker="me", ttl=60)
        record = await known(store, "r")
        await expect_log(store, "r", [b"one", b"two"])
        expect_same((lease.run_id, lease.worker, lease.fence), ("r", "me", 1), "the lease that create gives")
        expect_same(lease.until, record.lease_until, "`until` of the lease")
        expect_same((record.run_id, record.status, record.thread), ("r", "running", "t"), "the record")
        expect_same((record.worker, record.fence, record.cancel_requested), ("me", 1, ""), "who drives, in the record")
        expect(record.created_at > 0 and record.updated_at >= record.created_at, "the record's times do not fit")
        expect(record.lease_until - record.created_at > 50, "the lease of 60 s is shorter")


async def a_run_may_begin_without_lines(open: Open) -> None:
    """And get some later."""
    async with opened(open) as store:
        lease = await store.create("r", [])
        expect_same((lease.fence, lease.worker), (1, ""), "the lease of a run without an owner")
        await expect_log(store, "r", [])
        await store.append("r", 0, [b"one"])
        await expect_log(store, "r", [b"one"])


async def lines_are_kept_byte_by_byte(open: Open) -> None:
    """Whatever bytes they are: a store does not read them."""
    async with opened(open) as store:
        await store.create("r", _ODD_LINES)
        await store.append("r", len(_ODD_LINES), [b""])
        await store.append("r", len(_ODD_LINES) + 1, _ODD_LINES)
        await expect_log(store, "r", [*_ODD_LINES, b"", *_ODD_LINES])


async def large_lines_are_kept(open: Open) -> None:
    """A line of a megabyte between small ones."""
    large = bytes(range(256)) * 4096
    async with opened(open) as store:
        await store.create("r", [b"before"])
        await store.append("r", 1, [large, b"between", large])
        await store.append("r", 4, [b"after"])
        await expect_log(store, "r", [b"before", large, b"between", large, b"after"])


async def a_log_can_be_read_from_any_line(open: Open) -> None:
    """Also from one in the middle of what was appended at once, and from behind the end."""
    lines = [b"%d" % number for number in range(12)]
    async with opened(open) as store:
        await store.create("r", lines[:1])
        for begin, end in ((1, 4), (4, 5), (5, 12)):
            await store.append("r", begin, lines[begin:end])
        for start in range(15):
            expect_same(list(await store.load("r", start=start)), lines[start:], f"load(start={start})")


async def many_lines_stay_in_order(open: Open) -> None:
    """A thousand, in portions of different sizes."""
    lines = [b'{"seq":%d}' % number for number in range(1000)]
    async with opened(open) as store:
        await store.create("r", [])
        begin = 0
        while begin < len(lines):
            portion = lines[begin : begin + 1 + begin % 13]
            await store.append("r", begin, portion)
            begin += len(portion)
        await expect_log(store, "r", lines)


async def an_append_sets_the_status(open: Open) -> None:
    """Also one without lines; and without a status it leaves the status as it is."""
    async with opened(open) as store:
        await store.create("r", [b"one"])
        before = await known(store, "r")
        await store.append("r", 1, [b"two"], status="suspended")
        expect_same((await known(store, "r")).status, "suspended", "the status")
        await store.append("r", 2, [b"three"])
        expect_same((await known(store, "r")).status, "suspended", "the status after an append without one")
        await store.append("r", 3, [], status="completed")
        after = await known(store, "r")
        expect_same((after.status, after.seq), ("completed", 3), "status and seq after an append without lines")
        expect(after.updated_at >= before.updated_at, "updated_at went back")
        expect_same(after.created_at, before.created_at, "created_at")


async def a_wrong_expectation_is_a_conflict(open: Open) -> None:
    """Too few lines or too many: nothing is written, not even the status."""
    async with opened(open) as store:
        await store.create("r", [b"one", b"two"])
        for expected in (0, 1, 3, 100):
            attempt = store.append("r", expected, [b"three"], status="completed")
            conflict = await expect_error(attempt, RunConflictError, f"append after {expected} of 2 lines")
            expect_same(conflict.run_id, "r", "`run_id` of the conflict")
        await expect_error(store.append("r", 1, []), RunConflictError, "append of nothing after 1 of 2 lines")
        await expect_log(store, "r", [b"one", b"two"])
        expect_same((await known(store, "r")).status, "running", "the status after conflicts")


async def an_id_is_taken_once(open: Open) -> None:
    """Creating it again is an error, and changes nothing."""
    async with opened(open) as store:
        await store.create("r", [b"one"], worker="me", ttl=60)
        await expect_error(store.create("r", [b"other"], thread="t"), RunExistsError, "create with an id that is taken")
        await expect_log(store, "r", [b"one"])
        await store.create("s", [], thread="t")


async def names_may_be_any_text(open: Open) -> None:
    """Ids, threads and owners; ids that begin alike are different runs."""
    async with opened(open) as store:
        for name in _ODD_NAMES:
            await store.create(name, [name.encode()], thread=name, worker=name, ttl=60)
        for name in _ODD_NAMES:
            await store.append(name, 1, [b"second"])
        for name in _ODD_NAMES:
            await expect_log(store, name, [name.encode(), b"second"])
            page = await store.list(thread=name)
            expect_same([one.run_id for one in page.records], [name], f"the runs of thread {name!r}")
            expect_same(page.records[0].worker, name, "the owner")


async def a_missing_run_is_told(open: Open) -> None:
    """By RunNotFoundError where a run is needed, and by the answer where it is not."""
    lease = Lease("none", "me", 1, 0.0)
    async with opened(open) as store:
        await expect_error(store.load("none"), RunNotFoundError, "load of a run that is not there")
        await expect_error(store.append("none", 0, [b"x"]), RunNotFoundError, "append to a run that is not there")
        await expect_error(store.acquire("none", "me", ttl=1), RunNotFoundError, "acquire of a run that is not there")
        await expect_error(store.renew(lease, ttl=1), RunNotFoundError, "renew for a run that is not there")
        await store.release(lease)
        expect_same(await store.record("none"), None, "record of a run that is not there")
        expect_same(await store.delete("none"), False, "delete of a run that is not there")
        expect_same(await store.request_cancel("none", "now"), False, "ask_to_cancel of a run that is not there")


async def a_deleted_run_is_gone(open: Open) -> None:
    """All of it: its id can be used again and has none of the old lines. Others stay."""
    async with opened(open) as store:
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


async def a_closed_store_can_be_used_again(open: Open) -> None:
    """It opens anew; and whoever opens the place later finds what was written."""
    async with opened(open) as store:
        await store.create("r", [b"one"])
        await store.close()
        await store.close()
        await store.append("r", 1, [b"two"], status="suspended")
        await store.close()
        await expect_log(store, "r", [b"one", b"two"])
    async with opened(open) as later:
        await expect_log(later, "r", [b"one", b"two"])
        expect_same((await known(later, "r")).status, "suspended", "the status, read by another store")


CHECKS: tuple[StoreCheck, ...] = (
    a_new_run_is_as_it_was_created,
    a_run_may_begin_without_lines,
    lines_are_kept_byte_by_byte,
    large_lines_are_kept,
    a_log_can_be_read_from_any_line,
    many_lines_stay_in_order,
    an_append_sets_the_status,
    a_wrong_expectation_is_a_conflict,
    an_id_is_taken_once,
    names_may_be_any_text,
    a_missing_run_is_told,
    a_deleted_run_is_gone,
    a_closed_store_can_be_used_again,
)
