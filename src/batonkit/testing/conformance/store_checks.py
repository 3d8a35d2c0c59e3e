"""Helpers of the store suite, and checks of leases, notes and threads."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import wraps
from typing import TypeAlias, TypeVar

from ...errors import RunConflictError, RunNotFoundError, ThreadBusyError
from ...stores import FINISHED_STATUSES, Lease, RunRecord, Store

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


def check_name(check: Callable[..., object]) -> str:
    """Return the name of a check, for pytest's `ids=`."""
    return getattr(check, "__name__", repr(check))


@asynccontextmanager
async def opened(open: Open) -> AsyncGenerator[Store]:
    """Open a store and close it at the end."""
    store = open()
    try:
        yield store
    finally:
        await store.close()


CHECKS: list[StoreCheck] = []
"""The checks of the suite, in the order of their definition."""


def add_check(check: StoreCheck) -> StoreCheck:
    """Add a check to the suite."""
    CHECKS.append(check)
    return check


def store_check(body: Callable[[Store], Awaitable[None]]) -> StoreCheck:
    """Add a check that needs one open store."""

    @wraps(body)
    async def check(open: Open) -> None:
        async with opened(open) as store:
            await body(store)

    return add_check(check)


async def known(store: Store, run_id: str) -> RunRecord:
    """Return the record of a run that must exist."""
    record = await store.record(run_id)
    if record is None:
        raise AssertionError(f"record({run_id!r}) is None, though the run was created")
    return record


async def _renewed(store: Store, lease: Lease, ttl: float) -> Lease:
    renewed = await store.renew([lease], ttl=ttl)
    expect_same([*renewed], [lease.run_id], "the runs whose leases were renewed")
    return renewed[lease.run_id]


async def expect_log(store: Store, run_id: str, lines: Sequence[bytes]) -> None:
    """Check the lines of a run and their number in its record."""
    expect_same(list(await store.load(run_id)), list(lines), f"the log of {run_id!r}")
    expect_same((await known(store, run_id)).seq, len(lines), f"`seq` of the record of {run_id!r}")


@store_check
async def a_lease_is_held_by_one_worker(store: Store) -> None:
    """No other worker can take a lease while it lasts, and trying changes nothing."""
    lease = await store.create("r", [b"one"], worker="me", ttl=60)
    await expect_error(store.acquire("r", "you", ttl=60), RunConflictError, "acquire of a lease that is held")
    record = await known(store, "r")
    expect_same((record.worker, record.fence), ("me", 1), "who has the lease")
    await store.append("r", 1, [b"two"], fence=lease.fence)
    await expect_log(store, "r", [b"one", b"two"])


@store_check
async def an_expired_lease_can_be_taken(store: Store) -> None:
    """An expired lease is taken with a higher fence; lines with the old fence are refused."""
    old = await store.create("r", [b"one"], worker="me", ttl=0)
    new = await store.acquire("r", "you", ttl=60)
    expect_same((new.run_id, new.worker, new.fence), ("r", "you", old.fence + 1), "the lease that was taken")
    expect_same((await known(store, "r")).worker, "you", "the owner in the record")
    attempt = store.append("r", 1, [b"late"], fence=old.fence, status="completed")
    await expect_error(attempt, RunConflictError, "append with an older fence")
    await expect_error(store.append("r", 1, [], fence=old.fence), RunConflictError, "append of nothing, older fence")
    await expect_log(store, "r", [b"one"])
    expect_same((await known(store, "r")).status, "running", "the status after a late writer")
    await store.append("r", 1, [b"two"], fence=new.fence)
    await store.append("r", 2, [b"three"])
    await expect_log(store, "r", [b"one", b"two", b"three"])


@store_check
async def a_worker_may_take_its_lease_again(store: Store) -> None:
    """A worker takes its own lease again with a higher fence."""
    fences = [(await store.create("r", [b"one"], worker="me", ttl=60)).fence]
    fences += [(await store.acquire("r", "me", ttl=60)).fence for _ in range(3)]
    expect_same(fences, [1, 2, 3, 4], "the fences of one owner")
    await expect_error(store.append("r", 1, [b"late"], fence=3), RunConflictError, "append with an older fence")


@store_check
async def a_lease_can_be_renewed(store: Store) -> None:
    """A lease is renewed for any duration, also after it expired, unless it was taken."""
    lease = await store.create("r", [b"one"], worker="me", ttl=0)
    longer = await _renewed(store, lease, 60)
    expect_same((longer.worker, longer.fence), ("me", 1), "a renewed lease")
    expect(longer.until > lease.until, "a renewed lease does not last longer")
    expect_same((await known(store, "r")).lease_until, longer.until, "`lease_until` of the record")
    await expect_error(store.acquire("r", "you", ttl=60), RunConflictError, "acquire of a renewed lease")
    await store.renew([longer], ttl=0)
    await store.acquire("r", "you", ttl=60)
    expect_same(dict(await store.renew([longer], ttl=60)), {}, "the renewal of a lease that was taken")
    expect_same((await known(store, "r")).worker, "you", "the worker after a late renewal")


@store_check
async def leases_are_renewed_together(store: Store) -> None:
    """One call renews many leases; those that are lost are missing, and the others are renewed."""
    leases = [await store.create(f"r{number}", [b"one"], worker="me", ttl=0) for number in range(1200)]
    await store.acquire("r3", "you", ttl=60)
    await store.delete("r4")
    await store.request_cancel("r5", "after_turn")
    renewed = await store.renew(leases, ttl=60)
    expect_same(len(renewed), 1198, "the number of renewed leases")
    expect({"r3", "r4"}.isdisjoint(renewed), "a lease that was taken, or whose run was deleted, was renewed")
    expect_same((await known(store, "r3")).worker, "you", "the worker of the lease that was taken")
    expect_same(renewed["r5"].cancel_requested, "after_turn", "`cancel_requested` of a renewed lease")
    expect((await known(store, "r1199")).is_leased, "the last lease was not renewed")
    expect_same(dict(await store.renew([], ttl=60)), {}, "the renewal of no leases")


@store_check
async def a_lease_can_be_released(store: Store) -> None:
    """A released lease can be taken at once; a late release does nothing."""
    lease = await store.create("r", [b"one"], worker="me", ttl=60)
    await store.release(lease)
    await store.release(lease)
    taken = await store.acquire("r", "you", ttl=60)
    await store.release(lease)
    await expect_error(store.acquire("r", "me", ttl=60), RunConflictError, "acquire after a late release")
    expect_same((await known(store, "r")).lease_until, taken.until, "`lease_until` after a late release")


@store_check
async def an_append_can_release_the_lease(store: Store) -> None:
    """An append can end the lease together with the status; a refused one does not."""
    await store.create("r", [b"one"], worker="me", ttl=60)
    refused = store.append("r", 7, [b"two"], status="completed", fence=1, release=True)
    await expect_error(refused, RunConflictError, "append to a run of another length")
    await expect_error(store.acquire("r", "you", ttl=60), RunConflictError, "acquire after a refused append")
    await store.append("r", 1, [b"two"], status="completed", fence=1, release=True)
    expect((await known(store, "r")).is_leased is False, "the lease is still valid")
    expect_same((await store.acquire("r", "you", ttl=60)).fence, 2, "the fence of the next lease")
    await store.create("s", [b"one"], worker="me", ttl=60)
    await store.append("s", 1, [], fence=1, release=True)
    expect_same([run.run_id for run in await store.runnable()], ["s"], "runnable runs after the release")


@store_check
async def a_suspended_run_can_be_acquired_at_once(store: Store) -> None:
    """An append can suspend a run and end the lease, unless a cancellation is requested."""
    await store.create("r", [b"one"], worker="me", ttl=60)
    await store.append("r", 1, [b"two"], status="suspended", fence=1, release=True)
    record = await known(store, "r")
    expect_same((record.status, record.is_leased), ("suspended", False), "the status and `is_leased`")
    lease = await store.acquire("r", "you", ttl=60)
    await store.append("r", 2, [b"three"], status="running", fence=lease.fence, release=True)
    expect_same([run.run_id for run in await store.runnable()], ["r"], "the runnable runs after an answer")
    await store.create("s", [b"one"], worker="me", ttl=60)
    await store.request_cancel("s", "now")
    flags = await store.append("s", 1, [b"two"], status="suspended", fence=1, release=True)
    expect_same(flags.cancel_requested, "now", "the request that append returns")
    await expect_error(store.acquire("s", "you", ttl=60), RunConflictError, "acquire of a run that is to be cancelled")
    await store.append("s", 2, [b"three"], status="cancelled", fence=1, release=True)
    expect_same((await store.acquire("s", "you", ttl=60)).fence, 2, "the fence of the lease on a cancelled run")


@store_check
async def a_released_lease_is_not_renewed(store: Store) -> None:
    """A renewal that arrives after the release does nothing."""
    released = await store.create("r", [b"one"], worker="me", ttl=60)
    await store.release(released)
    stopped = await store.create("s", [b"one"], worker="me", ttl=60)
    await store.append("s", 1, [b"two"], status="suspended", fence=stopped.fence, release=True)
    expect_same(dict(await store.renew([released, stopped], ttl=60)), {}, "the renewal of leases that were released")
    for run_id in ("r", "s"):
        expect(not (await known(store, run_id)).is_leased, "a late renewal has revived a lease")
        await store.acquire(run_id, "you", ttl=60)


@store_check
async def a_cancel_request_is_kept(store: Store) -> None:
    """A request to cancel is kept until the run has finished, and "now" wins."""
    lease = await store.create("r", [b"one"], worker="me", ttl=0)
    expect_same(
        (await store.append("r", 1, [])).cancel_requested, "", "the request that append returns before there is one"
    )
    expect_same(await store.request_cancel("r", "after_turn"), True, "request_cancel of a running run")
    expect_same((await known(store, "r")).cancel_requested, "after_turn", "`cancel_requested` of the record")
    await store.request_cancel("r", "now")
    await store.request_cancel("r", "after_turn")
    expect_same((await known(store, "r")).cancel_requested, "now", "`cancel_requested` after now and after_turn")
    expect_same(
        (await store.append("r", 1, [b"two"], fence=lease.fence)).cancel_requested,
        "now",
        "the request that append returns",
    )
    expect_same((await _renewed(store, lease, 0)).cancel_requested, "now", "the request that renew returns")
    expect_same((await store.acquire("r", "you", ttl=0)).cancel_requested, "now", "the request that acquire returns")
    expect_same(
        (await store.append("r", 2, [], status="suspended")).cancel_requested,
        "now",
        "the request when the run is suspended",
    )
    expect_same(await store.request_cancel("r", "now"), True, "request_cancel of a suspended run")
    expect_same(
        (await store.append("r", 2, [], status="cancelled")).cancel_requested,
        "",
        "the request when the run is cancelled",
    )
    expect_same(await store.request_cancel("r", "now"), False, "request_cancel of a cancelled run")
    await store.append("r", 2, [], status="running")
    expect_same((await known(store, "r")).cancel_requested, "", "`cancel_requested` of a run that was resumed")


@store_check
async def runs_without_a_worker_are_runnable(store: Store) -> None:
    """Runs that no worker holds are runnable, the highest priority first, then the oldest."""
    await store.create("held", [b"one"], worker="me", ttl=60)
    await store.create("old", [b"one"], team="t1")
    await store.create("later", [b"one"], wake_at=4e9)
    await store.create("urgent", [b"one"], priority=5, team="t2")
    await store.create("waits", [b"one"], status="suspended")
    await store.create("due", [b"one"], status="suspended", wake_at=1.0)
    await store.create("new", [b"one"])
    await store.append("new", 1, [], status="completed")
    found = [record.run_id for record in await store.runnable()]
    expect_same(found, ["urgent", "old", "due"], "the runnable runs")
    found = [record.run_id for record in await store.runnable(teams=["t1", "t3"])]
    expect_same(found, ["old"], "the runnable runs of a team")
    expect_same(len(await store.runnable(limit=2)), 2, "the runnable runs, at most two")
    await store.append("due", 1, [], wake_at=0.0)
    await store.append("waits", 1, [], status="running")
    await store.acquire("old", "me", ttl=60)
    found = [record.run_id for record in await store.runnable()]
    expect_same(found, ["urgent", "waits"], "the runnable runs after some changed")
    expect_same((await known(store, "later")).is_due, False, "`is_due` of a run with a `wake_at` in the future")
    expect_same((await known(store, "urgent")).is_due, True, "`is_due` of a run without a `wake_at`")
    expect((await known(store, "held")).is_leased, "`is_leased` is false for a run that is held")
    expect(not (await known(store, "urgent")).is_leased, "`is_leased` is true for a run without a worker")


@store_check
async def a_run_is_runnable_from_the_write_that_makes_it_so(store: Store) -> None:
    """A run is runnable while no worker has it: after it is created, released, answered or due."""

    async def expect_runnable(wanted: Sequence[str], when: str) -> None:
        found = [record.run_id for record in await store.runnable()]
        expect_same(found, wanted, f"the runnable runs after {when}")

    lease = await store.create("r", [b"one"], worker="me", ttl=60)
    await expect_runnable([], "a run was created with a worker")
    await store.release(lease)
    await expect_runnable(["r"], "its worker released it")
    lease = await store.acquire("r", "me", ttl=60)
    await expect_runnable([], "a worker acquired it")
    await store.append("r", 1, [b"two"], status="suspended", wake_at=0.0, fence=lease.fence)
    await store.release(lease)
    await expect_runnable([], "it was suspended")
    await store.append("r", 2, [], wake_at=1.0)
    await expect_runnable(["r"], "it got a time that has passed")
    lease = await store.acquire("r", "other", ttl=60)
    await expect_runnable([], "another worker acquired it")
    await store.release(lease)
    await expect_runnable(["r"], "that worker released it before it continued")
    lease = await store.acquire("r", "other", ttl=60)
    await store.append("r", 2, [b"three"], status="running", wake_at=0.0, fence=lease.fence)
    await expect_runnable([], "that worker continues it")
    await store.renew([lease], ttl=0)
    await expect_runnable(["r"], "its lease has expired")
    lease = await store.acquire("r", "third", ttl=60)
    await store.append("r", 3, [b"four"], status="completed", fence=lease.fence)
    await store.release(lease)
    await expect_runnable([], "it completed")


@store_check
async def a_worker_skips_runs_that_it_cannot_read(store: Store) -> None:
    """`runnable` leaves out runs whose log needs a newer reader."""
    await store.create("old", [b"one"])
    await store.create("new", [b"one"], reader=3)
    await store.create("both", [b"one"], reader=2)
    for reader, wanted in ((1, ["old"]), (2, ["old", "both"]), (3, ["old", "new", "both"])):
        found = [record.run_id for record in await store.runnable(reader=reader)]
        expect_same(found, wanted, f"the runnable runs of a worker of version {reader}")
    await store.append("old", 1, [b"two"], reader=2)
    await store.append("old", 2, [b"three"], reader=1)
    expect_same((await known(store, "old")).reader, 2, "the reader after an append of a newer version, and an older")


@store_check
async def the_clock_is_that_of_the_records(store: Store) -> None:
    """The store tells the time that it writes into records."""
    before = await store.now()
    await store.create("r", [b"one"], worker="me", ttl=60)
    record = await known(store, "r")
    after = await store.now()
    expect(before <= record.created_at <= after, f"created at {record.created_at}, between {before} and {after}")
    expect(before + 60 <= record.lease_until <= after + 60, "the lease does not last for its seconds")


@store_check
async def notes_are_written_with_lines(store: Store) -> None:
    """`create` and `append` write notes with their lines; internal ones are read by name."""
    await store.create("a", [b"one"], notes={"baton.summary": b"first", "mine": b"x"})
    await store.create("b", [b"one"], thread="t", notes={"baton.summary": b"other"})
    await store.create("c", [b"one"])
    await store.append("a", 1, [b"two"], notes={"baton.summary": b"second", "baton.large": b"\x00" * 5000})
    await store.append("b", 1, [], status="completed", notes={"more": b"y"})
    expect_same(dict(await store.notes("a")), {"mine": b"x"}, "the notes without the internal ones")
    expect_same(dict(await store.notes("b")), {"more": b"y"}, "the notes of another run")
    found = await store.read_notes(["c", "b", "missing", "a"], "baton.summary")
    expect_same(dict(found), {"a": b"second", "b": b"other"}, "the summaries of several runs")
    expect_same(dict(await store.read_notes(["a"], "baton.large")), {"a": b"\x00" * 5000}, "the large note")
    late = store.append("a", 1, [b"late"], notes={"baton.summary": b"late"})
    await expect_error(late, RunConflictError, "an append with an old number of lines")
    expect_same(dict(await store.read_notes(["a"], "baton.summary")), {"a": b"second"}, "the summary after a conflict")
    await store.delete("a")
    expect_same(dict(await store.read_notes(["a"], "baton.summary")), {}, "the summary of a deleted run")


@store_check
async def the_runs_of_a_thread_are_read_with_their_notes(store: Store) -> None:
    """`thread_notes` returns pages of a thread's runs, newest first, with and without the note."""
    for number in range(5):
        notes = {} if number == 2 else {"baton.thread": bytes([number]), "other": b"x"}
        await store.create(f"r{number}", [b"one"] * (number + 1), thread="t", status="completed", notes=notes)
        await store.create(f"o{number}", [b"one"], thread="other", status="completed", notes={"baton.thread": b"no"})
    last = (await known(store, "r4")).number
    first = await store.thread_notes("t", "baton.thread", before=last, limit=2)
    expect_same([(one.run_id, one.seq, one.note) for one in first], [("r3", 4, b"\x03"), ("r2", 3, None)], "a page")
    rest = await store.thread_notes("t", "baton.thread", before=first[-1].number)
    expect_same([(one.run_id, one.note) for one in rest], [("r1", b"\x01"), ("r0", b"\x00")], "the next page")
    await store.delete("r1")
    rest = await store.thread_notes("t", "baton.thread", before=first[-1].number)
    expect_same([(one.run_id, one.seq) for one in rest], [("r0", 1)], "the page without a deleted run")
    expect_same([*await store.thread_notes("t", "baton.thread", before=rest[-1].number)], [], "the last page")


@add_check
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


@store_check
async def notes_are_no_part_of_the_log(store: Store) -> None:
    """Notes need no lease and change neither lines nor record."""
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


@store_check
async def notes_go_with_their_run(store: Store) -> None:
    """Notes are deleted with their run; missing runs have none."""
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
        expect_same(dict(await store.notes(run_id)), {}, "the notes of a run that was created again")
    expect_same(dict(await store.notes("other")), {"n": b"other"}, "the notes of another run")


@store_check
async def a_thread_is_busy_until_its_run_has_ended(store: Store) -> None:
    """Running and suspended runs keep a thread busy; each way to end frees it."""
    for number, ending in enumerate(FINISHED_STATUSES):
        run_id = f"r{number}"
        await store.create(run_id, [b"one"], thread="t")
        busy = await expect_error(store.create("other", [], thread="t"), ThreadBusyError, "a second run of a thread")
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


@store_check
async def a_run_follows_the_last_run_of_its_thread(store: Store) -> None:
    """`create` checks which run it follows and inserts atomically; a refused run is not there."""
    await store.create("a", [b"one"], thread="t", previous="")
    await store.append("a", 1, [], status="completed")
    for wrong in ("", "other"):
        attempt = store.create("b", [b"one"], thread="t", previous=wrong)
        busy = await expect_error(attempt, ThreadBusyError, f"a run that follows {wrong!r} instead of the last run")
        expect_same(busy.run_id, "a", "`run_id` of ThreadBusyError")
    expect_same(await store.record("b"), None, "the record of a run that was refused")
    attempts = [store.create(f"b{number}", [b"one"], thread="t", previous="a") for number in range(8)]
    ended = await asyncio.gather(*attempts, return_exceptions=True)
    created = [lease.run_id for lease in ended if isinstance(lease, Lease)]
    refused = [error for error in ended if isinstance(error, ThreadBusyError)]
    expect_same((len(created), len(refused)), (1, 7), "runs created and refused of eight that follow the same run")
    record = await known(store, created[0])
    expect_same(record.previous, "a", "`previous` of the record")
    await store.append(created[0], 1, [], status="failed")
    await expect_error(store.create("c", [], thread="t", previous="a"), ThreadBusyError, "a second successor of a run")
    await store.create("c", [], thread="t")
    expect_same((await known(store, "c")).previous, created[0], "`previous` of a run created without one")
    expect(record.number < (await known(store, "c")).number, "a later run has a lower number")


@store_check
async def a_run_can_be_created_suspended(store: Store) -> None:
    """A run is created with any status, so that no worker drives it in between."""
    await store.create("r", [b"one"], status="suspended", thread="t")
    expect_same((await known(store, "r")).status, "suspended", "the status of a new run")
    expect_same(list(await store.runnable()), [], "the runnable runs")
    await expect_error(store.create("s", [], thread="t"), ThreadBusyError, "a run beside a suspended one")


@store_check
async def a_deleted_run_frees_its_thread(store: Store) -> None:
    """Deleting a run frees its thread, whatever its status."""
    await store.create("r", [b"one"], thread="t")
    await store.delete("r")
    await store.create("s", [b"one"], thread="t")
    await store.append("s", 1, [], status="suspended")
    await store.expire(0, status=("suspended",))
    await store.create("u", [b"one"], thread="t")
    await expect_error(store.create("v", [], thread="t"), ThreadBusyError, "a second run of the thread")


@store_check
async def a_finished_run_resumes_only_in_a_free_thread(store: Store) -> None:
    """A cancelled run resumes only if it is the last one of a thread that is not busy."""
    await store.create("r", [b"one"], thread="t")
    await store.append("r", 1, [], status="cancelled")
    await store.create("s", [b"one"], thread="t")
    attempt = store.append("r", 1, [b"two"], status="running")
    busy = await expect_error(attempt, ThreadBusyError, "going on in a thread that is busy")
    expect_same(busy.run_id, "s", "`run_id` of ThreadBusyError")
    await expect_log(store, "r", [b"one"])
    expect_same((await known(store, "r")).status, "cancelled", "the status of a run that may not go on")
    await store.append("r", 1, [b"two"])
    await store.append("s", 1, [], status="cancelled")
    for status in ("running", "suspended"):
        attempt = store.append("r", 2, [b"three"], status=status)
        await expect_error(attempt, RunConflictError, f"{status} again although another run follows")
    await expect_log(store, "r", [b"one", b"two"])
    expect_same((await known(store, "r")).status, "cancelled", "the status of a run that is followed by another")
    await store.append("s", 1, [b"two"], status="running")
    await store.append("s", 2, [], status="failed")
    await store.delete("s")
    await store.append("r", 2, [b"three"], status="running")
    await expect_log(store, "r", [b"one", b"two", b"three"])
    await expect_error(store.create("u", [], thread="t"), ThreadBusyError, "a new run while the resumed one goes on")
