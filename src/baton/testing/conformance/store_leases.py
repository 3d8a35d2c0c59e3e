"""Checks of stores: one owner drives a run, and whoever drove it before cannot write.

A lease of no seconds has run out as soon as it is given, so that nothing here needs to wait.
"""

from ...errors import RunConflictError
from .expectations import expect, expect_error, expect_same
from .store_checks import Open, StoreCheck, expect_log, known, opened


async def a_lease_is_held_by_one_owner(open: Open) -> None:
    """Nobody else gets it while it lasts, and asking for it changes nothing."""
    async with opened(open) as store:
        lease = await store.create("r", [b"one"], worker="me", ttl=60)
        await expect_error(store.acquire("r", "you", ttl=60), RunConflictError, "acquire of a lease that is held")
        record = await known(store, "r")
        expect_same((record.worker, record.fence), ("me", 1), "who has the lease")
        await store.append("r", 1, [b"two"], fence=lease.fence)
        await expect_log(store, "r", [b"one", b"two"])


async def a_lease_that_ran_out_can_be_taken(open: Open) -> None:
    """With a higher fence; lines that come with the old one are refused."""
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


async def the_same_owner_may_take_a_lease_again(open: Open) -> None:
    """With a higher fence each time: what it began before is late now."""
    async with opened(open) as store:
        fences = [(await store.create("r", [b"one"], worker="me", ttl=60)).fence]
        fences += [(await store.acquire("r", "me", ttl=60)).fence for _ in range(3)]
        expect_same(fences, [1, 2, 3, 4], "the fences of one owner")
        await expect_error(store.append("r", 1, [b"late"], fence=3), RunConflictError, "append with an older fence")


async def a_lease_can_be_renewed(open: Open) -> None:
    """For longer and for shorter, also after it ran out, unless it has been taken since."""
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
    """Then anybody may take it at once; releasing it late does nothing."""
    async with opened(open) as store:
        lease = await store.create("r", [b"one"], worker="me", ttl=60)
        await store.release(lease)
        await store.release(lease)
        taken = await store.acquire("r", "you", ttl=60)
        await store.release(lease)
        await expect_error(store.acquire("r", "me", ttl=60), RunConflictError, "acquire after a late release")
        expect_same((await known(store, "r")).lease_until, taken.until, "`lease_until` after a late release")


async def word_for_the_driver_is_kept(open: Open) -> None:
    """Until somebody takes the lease; "now" is not softened; a run that does not run is not told."""
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


CHECKS: tuple[StoreCheck, ...] = (
    a_lease_is_held_by_one_owner,
    a_lease_that_ran_out_can_be_taken,
    the_same_owner_may_take_a_lease_again,
    a_lease_can_be_renewed,
    a_lease_can_be_released,
    word_for_the_driver_is_kept,
)
