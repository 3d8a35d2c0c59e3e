"""Helpers of the store suite, and checks of leases, notes and threads."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import TypeAlias, TypeVar

from ...errors import RunConflictError, RunNotFoundError, ThreadBusyError
from ...stores import FINISHED_STATUSES, RunRecord, Store

E = TypeVar("E", bound=BaseException)


def expect(holds: bool, otherwise: str) -> None:
    """Raise AssertionError with this message unless the condition holds."""
    if not holds:
        raise AssertionError(otherwise)


def expect_same(found: object, wanted: object, what: str) -> None:
    """Raise AssertionError unless both are equal."""
    if found != wanted:
        raise AssertionError(f"{what}: wanted {_shown(wanted)}, found {_shown(found)}")


async def expect_error(attempt: Awaitable[object], kind: type[E], what: str) -> E:
    """Return the error of this kind that an attempt raises; otherwise raise AssertionError."""
    try:
        result = await attempt
    except kind as error:
        return error
    except Exception as error:
        raise AssertionError(f"{what}: wanted {kind.__name__}, and {type(error).__name__} came: {error}") from error
    raise AssertionError(f"{what}: wanted {kind.__name__}, and it went well: {_shown(result)}")


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 200 else f"{text[:200]}… ({len(text)} characters)"


Open: TypeAlias = Callable[[], Store]
"""Opens a store, each time at the same location."""

StoreCheck: TypeAlias = Callable[[Open], Awaitable[None]]
"""A check: raises AssertionError if the store breaks the contract."""


def check_name(check: StoreCheck) -> str:
    """Return the name of a check, for pytest's `ids=`.

    Args:
        check: The check.
    """
    return getattr(check, "__name__", repr(check))


@asynccontextmanager
async def opened(open: Open) -> AsyncGenerator[Store]:
    """Open a store and close it at the end."""
    store = open()
    try:
        yield store
    finally:
        await store.close()


async def known(store: Store, run_id: str) -> RunRecord:
    """Return the record of a run that must exist."""
    record = await store.record(run_id)
    if record is None:
        raise AssertionError(f"record({run_id!r}) is None, though the run was created")
    return record


async def expect_log(store: Store, run_id: str, lines: Sequence[bytes]) -> None:
    """Check the lines of a run and their number in its record."""
    expect_same(list(await store.load(run_id)), list(lines), f"the log of {run_id!r}")
    expect_same((await known(store, run_id)).seq, len(lines), f"`seq` of the record of {run_id!r}")


async def a_lease_is_held_by_one_worker(open: Open) -> None:
    """No other worker can take a lease while it lasts, and trying changes nothing."""
    async with opened(open) as store:
        lease = await store.create("r", [b"one"], worker="me", ttl=60)
        await expect_error(store.acquire("r", "you", ttl=60), RunConflictError, "acquire of a lease that is held")
        record = await known(store, "r")
        expect_same((record.worker, record.fence), ("me", 1), "who has the lease")
        await store.append("r", 1, [b"two"], fence=lease.fence)
        await expect_log(store, "r", [b"one", b"two"])


async def an_expired_lease_can_be_taken(open: Open) -> None:
    """An expired lease is taken with a higher fence; lines with the old fence are refused."""
    async with opened(open) as store:
        old = await store.create("r", [b"one"], worker="me", ttl=0)
        new = await store.acquire("r", "you", ttl=60)
        expect_same((new.run_id, new.worker, new.fence), ("r", "you", old.fence + 1), "the lease that was taken")
        expect_same((await known(store, "r")).worker, "you", "the owner in the record")
        attempt = store.append("r", 1, [b"late"], fence=old.fence, status="completed")
        await expect_error(attempt, RunConflictError, "append with an older fence")
        await expect_error(
            store.append("r", 1, [], fence=old.fence), RunConflictError, "append of nothing, older fence"
        )
        await expect_log(store, "r", [b"one"])
        expect_same((await known(store, "r")).status, "running", "the status after a late writer")
        await store.append("r", 1, [b"two"], fence=new.fence)
        await store.append("r", 2, [b"three"])
        await expect_log(store, "r", [b"one", b"two", b"three"])


async def a_worker_may_take_its_lease_again(open: Open) -> None:
    """A worker takes its own lease again with a higher fence."""
    async with opened(open) as store:
        fences = [(await store.create("r", [b"one"], worker="me", ttl=60)).fence]
        fences += [(await store.acquire("r", "me", ttl=60)).fence for _ in range(3)]
        expect_same(fences, [1, 2, 3, 4], "the fences of one owner")
        await expect_error(store.append("r", 1, [b"late"], fence=3), RunConflictError, "append with an older fence")


async def a_lease_can_be_renewed(open: Open) -> None:
    """A lease is renewed for any duration, also after it expired, unless it was taken."""
    async with opened(open) as store:
        lease = await store.create("r", [b"one"], worker="me", ttl=0)
        longer = await store.renew(lease, ttl=60)
        expect_same((longer.worker, longer.fence), ("me", 1), "a renewed lease")
        expect(longer.until > lease.until, "a renewed lease does not last longer")
        expect_same((await known(store, "r")).lease_until, longer.until, "`lease_until` of the record")
        await expect_error(store.acquire("r", "you", ttl=60), RunConflictError, "acquire of a renewed lease")
        await store.renew(longer, ttl=0)
        await store.acquire("r", "you", ttl=60)
        await expect_error(store.renew(longer, ttl=60), RunConflictError, "renew of a lease that was taken")
        expect_same((await known(store, "r")).worker, "you", "the owner after a late renewal")


async def a_lease_can_be_released(open: Open) -> None:
    """A released lease can be taken at once; a late release does nothing."""
    async with opened(open) as store:
        lease = await store.create("r", [b"one"], worker="me", ttl=60)
        await store.release(lease)
        await store.release(lease)
        taken = await store.acquire("r", "you", ttl=60)
        await store.release(lease)
        await expect_error(store.acquire("r", "me", ttl=60), RunConflictError, "acquire after a late release")
        expect_same((await known(store, "r")).lease_until, taken.until, "`lease_until` after a late release")


async def a_cancel_request_is_kept(open: Open) -> None:
    """A cancel request is kept until the lease is taken; "now" wins; only running runs take one."""
    async with opened(open) as store:
        lease = await store.create("r", [b"one"], worker="me", ttl=0)
        expect_same(await store.request_cancel("r", "after_turn"), True, "ask_to_cancel of a running run")
        expect_same((await known(store, "r")).cancel_requested, "after_turn", "`cancel` of the record")
        await store.request_cancel("r", "now")
        await store.request_cancel("r", "after_turn")
        expect_same((await known(store, "r")).cancel_requested, "now", "`cancel` after now and after_turn")
        await store.append("r", 1, [b"two"], fence=lease.fence)
        await store.renew(lease, ttl=0)
        expect_same((await known(store, "r")).cancel_requested, "now", "`cancel` after append and renew")
        await store.acquire("r", "you", ttl=0)
        expect_same((await known(store, "r")).cancel_requested, "", "`cancel` after the lease was taken")
        for status in ("suspended", "completed"):
            await store.append("r", 2, [], status=status)
            expect_same(await store.request_cancel("r", "now"), False, f"ask_to_cancel of a {status} run")
        expect_same((await known(store, "r")).cancel_requested, "", "`cancel` of a run that was not running")


LEASE_CHECKS: tuple[StoreCheck, ...] = (
    a_lease_is_held_by_one_worker,
    an_expired_lease_can_be_taken,
    a_worker_may_take_its_lease_again,
    a_lease_can_be_renewed,
    a_lease_can_be_released,
    a_cancel_request_is_kept,
)


async def notes_are_kept_by_name(open: Open) -> None:
    """Notes are bytes by name, oldest first; the last write wins, and None deletes."""
    async with opened(open) as store:
        await store.create("r", [b"one"])
        expect_same(dict(await store.notes("r")), {}, "the notes of a new run")
        await store.put_note("r", "b/1", b"\x00\xff")
        await store.put_note("r", "日本 'a'", b"")
        await store.put_note("r", "c", b"three")
        await store.put_note("r", "b/1", b"again")
        await store.put_note("r", "c", None)
        await store.put_note("r", "never there", None)
        wanted = [("b/1", b"again"), ("日本 'a'", b"")]
        expect_same([*(await store.notes("r")).items()], wanted, "the notes, the oldest first")
    async with opened(open) as later:
        expect_same([*(await later.notes("r")).items()], wanted, "the notes, read by another store")


async def notes_are_no_part_of_the_log(open: Open) -> None:
    """Notes need no lease and change neither lines nor record."""
    async with opened(open) as store:
        await store.create("r", [b"one"], worker="me", ttl=60)
        before = await known(store, "r")
        await store.put_note("r", "n", b"note")
        expect_same(await known(store, "r"), before, "the record after a note")
        await expect_log(store, "r", [b"one"])
        expect_same([one.run_id for one in (await store.list()).records], ["r"], "all runs")
        names = [f"n{number}" for number in range(10)]
        await asyncio.gather(*(store.put_note("r", name, name.encode()) for name in names))
        wanted = {"n": b"note"} | {name: name.encode() for name in names}
        expect_same(dict(await store.notes("r")), wanted, "the notes that several tasks put")


async def notes_go_with_their_run(open: Open) -> None:
    """Notes are deleted with their run; missing runs have none."""
    async with opened(open) as store:
        await expect_error(store.put_note("none", "n", b"x"), RunNotFoundError, "a note of a run that is not there")
        await expect_error(store.put_note("none", "n", None), RunNotFoundError, "to take away a note of no run")
        expect_same(dict(await store.notes("none")), {}, "the notes of a run that is not there")
        for run_id in ("r", "s", "other"):
            await store.create(run_id, [])
            await store.put_note(run_id, "n", run_id.encode())
        await store.append("s", 0, [], status="completed")
        expect_same((await store.delete("r"), await store.expire(0)), (True, 1), "delete, and expire")
        await store.create("r", [])
        await store.create("s", [])
        for run_id in ("r", "s"):
            expect_same(dict(await store.notes(run_id)), {}, "the notes of a run that was made anew")
        expect_same(dict(await store.notes("other")), {"n": b"other"}, "the notes of another run")


NOTE_CHECKS: tuple[StoreCheck, ...] = (
    notes_are_kept_by_name,
    notes_are_no_part_of_the_log,
    notes_go_with_their_run,
)


async def a_thread_is_busy_until_its_run_has_ended(open: Open) -> None:
    """Running and suspended runs keep a thread busy; each way to end frees it."""
    async with opened(open) as store:
        for number, ending in enumerate(FINISHED_STATUSES):
            run_id = f"r{number}"
            await store.create(run_id, [b"one"], thread="t")
            busy = await expect_error(
                store.create("other", [], thread="t"), ThreadBusyError, "a second run of a thread"
            )
            expect_same((busy.thread, busy.run_id, busy.status), ("t", run_id, "running"), "what ThreadBusyError tells")
            await store.append(run_id, 1, [], status="suspended")
            busy = await expect_error(
                store.create("other", [], thread="t"), ThreadBusyError, "while the first is suspended"
            )
            expect_same(busy.status, "suspended", "`status` of ThreadBusyError")
            await store.append(run_id, 1, [], status=ending)
        expect_same(await store.record("other"), None, "the record of a run that was refused")
        await store.create("free1", [])
        await store.create("free2", [])
        await store.create("elsewhere", [], thread="t2")


async def a_deleted_run_frees_its_thread(open: Open) -> None:
    """Deleting a run frees its thread, whatever its status."""
    async with opened(open) as store:
        await store.create("r", [b"one"], thread="t")
        await store.delete("r")
        await store.create("s", [b"one"], thread="t")
        await store.append("s", 1, [], status="suspended")
        await store.expire(0, status=("suspended",))
        await store.create("u", [b"one"], thread="t")
        await expect_error(store.create("v", [], thread="t"), ThreadBusyError, "a second run of the thread")


async def a_finished_run_resumes_only_in_a_free_thread(open: Open) -> None:
    """A cancelled run is not resumed while its thread is busy, and nothing is written."""
    async with opened(open) as store:
        await store.create("r", [b"one"], thread="t")
        await store.append("r", 1, [], status="cancelled")
        await store.create("s", [b"one"], thread="t")
        attempt = store.append("r", 1, [b"two"], status="running")
        busy = await expect_error(attempt, ThreadBusyError, "going on in a thread that is busy")
        expect_same(busy.run_id, "s", "`run_id` of ThreadBusyError")
        await expect_log(store, "r", [b"one"])
        expect_same((await known(store, "r")).status, "cancelled", "the status of a run that may not go on")
        await store.append("r", 1, [b"two"])
        await store.append("s", 1, [], status="completed")
        await store.append("r", 2, [b"three"], status="running")
        await expect_log(store, "r", [b"one", b"two", b"three"])
        await expect_error(
            store.create("u", [], thread="t"), ThreadBusyError, "a new run while the resumed one goes on"
        )


THREAD_CHECKS: tuple[StoreCheck, ...] = (
    a_thread_is_busy_until_its_run_has_ended,
    a_deleted_run_frees_its_thread,
    a_finished_run_resumes_only_in_a_free_thread,
)
