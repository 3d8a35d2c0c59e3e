"""Checks of stores: leases, requests to cancel, what is runnable, and threads."""

import asyncio
from collections.abc import Sequence

from ...errors import RunConflictError, ThreadBusyError
from ...stores import FINISHED_STATUSES, Lease, Store
from .store_checks import SupportsRunLocks, expect, expect_error, expect_log, expect_same, record_of, store_check


async def _renewed(store: Store, lease: Lease, ttl: float) -> Lease:
    renewed = await store.renew([lease], ttl=ttl)
    expect_same([*renewed], [lease.run_id], "the runs whose leases were renewed")
    return renewed[lease.run_id]


@store_check
async def a_lease_is_held_by_one_worker(store: Store) -> None:
    """No other worker can take a lease while it lasts, and trying changes nothing."""
    lease = await store.create("r", [b"one"], worker="me", ttl=60)
    await expect_error(store.acquire("r", "you", ttl=60), RunConflictError, "acquire of a lease that is held")
    record = await record_of(store, "r")
    expect_same((record.worker, record.fence), ("me", 1), "who has the lease")
    await store.append("r", 1, [b"two"], fence=lease.fence)
    await expect_log(store, "r", [b"one", b"two"])


@store_check
async def an_expired_lease_can_be_taken(store: Store) -> None:
    """An expired lease is taken with a higher fence; lines with the old fence are refused."""
    old = await store.create("r", [b"one"], worker="me", ttl=0)
    new = await store.acquire("r", "you", ttl=60)
    expect_same((new.run_id, new.worker, new.fence), ("r", "you", old.fence + 1), "the lease that was taken")
    expect_same((await record_of(store, "r")).worker, "you", "the owner in the record")
    attempt = store.append("r", 1, [b"late"], fence=old.fence, status="completed")
    await expect_error(attempt, RunConflictError, "append with an older fence")
    await expect_error(store.append("r", 1, [], fence=old.fence), RunConflictError, "append of nothing, older fence")
    await expect_log(store, "r", [b"one"])
    expect_same((await record_of(store, "r")).status, "running", "the status after a late writer")
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
    expect_same((await record_of(store, "r")).lease_until, longer.until, "`lease_until` of the record")
    await expect_error(store.acquire("r", "you", ttl=60), RunConflictError, "acquire of a renewed lease")
    await store.renew([longer], ttl=0)
    await store.acquire("r", "you", ttl=60)
    expect_same(dict(await store.renew([longer], ttl=60)), {}, "the renewal of a lease that was taken")
    expect_same((await record_of(store, "r")).worker, "you", "the worker after a late renewal")


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
    expect_same((await record_of(store, "r3")).worker, "you", "the worker of the lease that was taken")
    expect_same(renewed["r5"].cancel_requested, "after_turn", "`cancel_requested` of a renewed lease")
    expect((await record_of(store, "r1199")).is_leased, "the last lease was not renewed")
    expect_same(dict(await store.renew([], ttl=60)), {}, "the renewal of no leases")


@store_check
async def runs_of_all_owners_are_found_with_a_limit_for_each(store: Store) -> None:
    """`runnable` with `per_owner` finds runs behind many of another owner; `driven` counts."""
    for number in range(30):
        await store.create(f"a{number}", [], owner="ada")
    await store.create("urgent", [], owner="ada", priority=1)
    await store.create("due", [], owner="bob", wake_at=1.0)
    await store.create("waits", [], owner="bob", status="suspended", wake_at=2.0)
    await store.create("free", [])
    await store.create("freer", [])
    found = [run.run_id for run in await store.runnable(limit=10, per_owner=2)]
    expect_same(found, ["urgent", "a0", "due", "waits", "free", "freer"], "two runs of each owner")
    found = [run.run_id for run in await store.runnable(limit=10, per_owner=2, driven={"ada": 1, "bob": 3})]
    expect_same(found, ["urgent", "free", "freer"], "runs beside those that are driven")
    found = [run.run_id for run in await store.runnable(limit=3, per_owner=2)]
    expect_same(found, ["urgent", "a0", "due"], "two runs of each owner, at most three")
    found = [run.run_id for run in await store.runnable(limit=10, per_owner=2, teams=["other"])]
    expect_same(found, [], "runs of another team")
    await store.acquire("a0", "me", ttl=60)
    await store.acquire("a1", "dead", ttl=0)
    found = [run.run_id for run in await store.runnable(limit=10, per_owner=2, driven={"bob": 2})]
    expect_same(found, ["urgent", "a1", "free", "freer"], "runs that no worker holds")


@store_check
async def a_run_is_deleted_on_the_fence(store: Store) -> None:
    """`delete` with a fence keeps a run whose lease was acquired since."""
    old = await store.create("r", [b"one"], worker="me", ttl=0)
    new = await store.acquire("r", "you", ttl=60)
    expect_same(await store.delete("r", fence=old.fence), False, "delete with an older fence")
    await store.append("r", 1, [b"two"], fence=new.fence)
    await expect_log(store, "r", [b"one", b"two"])
    expect_same(await store.delete("r", fence=new.fence), True, "delete with the fence of the lease")
    expect_same(await store.record("r"), None, "a deleted run")
    expect_same(await store.delete("r", fence=new.fence), False, "delete of a run that is gone")


@store_check
async def a_locked_run_does_not_delay_the_leases_of_others(store: Store) -> None:
    """While one run is locked from outside, all other leases are renewed, and its own later."""
    if not isinstance(store, SupportsRunLocks):
        return
    leases = [await store.create(f"r{number}", [b"one"], worker="me", ttl=60) for number in range(150)]
    async with store.lock_run("r70"):
        renewed = await store.renew(leases, ttl=90)
        expect_same({f"r{number}" for number in range(150)} - {*renewed}, {"r70"}, "the leases that were not renewed")
        locked = await record_of(store, "r70")
        expect_same((locked.fence, locked.is_leased), (leases[70].fence, True), "the lease of the locked run")
    renewed = await store.renew(leases, ttl=120)
    expect_same(len(renewed), 150, "the number of leases that were renewed once the run was unlocked")


@store_check
async def a_lease_can_be_released(store: Store) -> None:
    """A released lease can be taken at once; a late release does nothing."""
    lease = await store.create("r", [b"one"], worker="me", ttl=60)
    await store.release(lease)
    await store.release(lease)
    taken = await store.acquire("r", "you", ttl=60)
    await store.release(lease)
    await expect_error(store.acquire("r", "me", ttl=60), RunConflictError, "acquire after a late release")
    expect_same((await record_of(store, "r")).lease_until, taken.until, "`lease_until` after a late release")


@store_check
async def an_append_can_release_the_lease(store: Store) -> None:
    """An append can end the lease together with the status; a refused one does not."""
    await store.create("r", [b"one"], worker="me", ttl=60)
    refused = store.append("r", 7, [b"two"], status="completed", fence=1, release=True)
    await expect_error(refused, RunConflictError, "append to a run of another length")
    await expect_error(store.acquire("r", "you", ttl=60), RunConflictError, "acquire after a refused append")
    await store.append("r", 1, [b"two"], status="completed", fence=1, release=True)
    expect((await record_of(store, "r")).is_leased is False, "the lease is still valid")
    expect_same((await store.acquire("r", "you", ttl=60)).fence, 2, "the fence of the next lease")
    await store.create("s", [b"one"], worker="me", ttl=60)
    await store.append("s", 1, [], fence=1, release=True)
    expect_same([run.run_id for run in await store.runnable()], ["s"], "runnable runs after the release")


@store_check
async def a_suspended_run_can_be_acquired_at_once(store: Store) -> None:
    """An append can suspend a run and end the lease, unless a cancellation is requested."""
    await store.create("r", [b"one"], worker="me", ttl=60)
    await store.append("r", 1, [b"two"], status="suspended", fence=1, release=True)
    record = await record_of(store, "r")
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
        expect(not (await record_of(store, run_id)).is_leased, "a late renewal has revived a lease")
        await store.acquire(run_id, "you", ttl=60)


@store_check
async def a_cancel_request_is_kept(store: Store) -> None:
    """A request to cancel is kept until the run has finished, and "now" wins."""
    lease = await store.create("r", [b"one"], worker="me", ttl=0)
    expect_same(
        (await store.append("r", 1, [])).cancel_requested, "", "the request that append returns before there is one"
    )
    expect_same(await store.request_cancel("r", "after_turn"), True, "request_cancel of a running run")
    expect_same((await record_of(store, "r")).cancel_requested, "after_turn", "`cancel_requested` of the record")
    await store.request_cancel("r", "now")
    await store.request_cancel("r", "after_turn")
    expect_same((await record_of(store, "r")).cancel_requested, "now", "`cancel_requested` after now and after_turn")
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
    expect_same((await record_of(store, "r")).cancel_requested, "", "`cancel_requested` of a run that was resumed")


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
    expect_same((await record_of(store, "later")).is_due, False, "`is_due` of a run with a `wake_at` in the future")
    expect_same((await record_of(store, "urgent")).is_due, True, "`is_due` of a run without a `wake_at`")
    expect((await record_of(store, "held")).is_leased, "`is_leased` is false for a run that is held")
    expect(not (await record_of(store, "urgent")).is_leased, "`is_leased` is true for a run without a worker")


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
    expect_same(
        (await record_of(store, "old")).reader, 2, "the reader after an append of a newer version, and an older"
    )


@store_check
async def the_clock_is_that_of_the_records(store: Store) -> None:
    """The store tells the time that it writes into records."""
    before = await store.now()
    await store.create("r", [b"one"], worker="me", ttl=60)
    record = await record_of(store, "r")
    after = await store.now()
    expect(before <= record.created_at <= after, f"created at {record.created_at}, between {before} and {after}")
    expect(before + 60 <= record.lease_until <= after + 60, "the lease does not last for its seconds")


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
    record = await record_of(store, created[0])
    expect_same(record.previous, "a", "`previous` of the record")
    await store.append(created[0], 1, [], status="failed")
    await expect_error(store.create("c", [], thread="t", previous="a"), ThreadBusyError, "a second successor of a run")
    await store.create("c", [], thread="t")
    expect_same((await record_of(store, "c")).previous, created[0], "`previous` of a run created without one")
    expect(record.number < (await record_of(store, "c")).number, "a later run has a lower number")


@store_check
async def a_run_can_be_created_suspended(store: Store) -> None:
    """A run is created with any status, so that no worker drives it in between."""
    await store.create("r", [b"one"], status="suspended", thread="t")
    expect_same((await record_of(store, "r")).status, "suspended", "the status of a new run")
    expect_same(list(await store.runnable()), [], "the runnable runs")
    await expect_error(store.create("s", [], thread="t"), ThreadBusyError, "a run beside a suspended one")


@store_check
async def a_deleted_run_frees_its_thread(store: Store) -> None:
    """Deleting a run frees its thread, whatever its status."""
    await store.create("r", [b"one"], thread="t")
    await store.delete("r")
    await store.create("s", [b"one"], thread="t")
    await store.append("s", 1, [], status="suspended")
    await store.delete("s")
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
    expect_same((await record_of(store, "r")).status, "cancelled", "the status of a run that may not go on")
    await store.append("r", 1, [b"two"])
    await store.append("s", 1, [], status="cancelled")
    for status in ("running", "suspended"):
        attempt = store.append("r", 2, [b"three"], status=status)
        await expect_error(attempt, RunConflictError, f"{status} again although another run follows")
    await expect_log(store, "r", [b"one", b"two"])
    expect_same((await record_of(store, "r")).status, "cancelled", "the status of a run that is followed by another")
    await store.append("s", 1, [b"two"], status="running")
    await store.append("s", 2, [], status="failed")
    await store.delete("s")
    await store.append("r", 2, [b"three"], status="running")
    await expect_log(store, "r", [b"one", b"two", b"three"])
    await expect_error(store.create("u", [], thread="t"), ThreadBusyError, "a new run while the resumed one goes on")
