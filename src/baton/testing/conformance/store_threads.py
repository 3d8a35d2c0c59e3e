"""Checks of stores: a thread has one run at a time."""

from ...errors import ThreadBusyError
from ...stores import FINISHED_STATUSES
from .expectations import expect_error, expect_same
from .store_checks import Open, StoreCheck, expect_log, known, opened


async def a_thread_is_busy_until_its_run_has_ended(open: Open) -> None:
    """Running and suspended runs keep it busy; each way to end frees it. Runs without a thread are never in the way."""
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
    """Whatever its status was."""
    async with opened(open) as store:
        await store.create("r", [b"one"], thread="t")
        await store.delete("r")
        await store.create("s", [b"one"], thread="t")
        await store.append("s", 1, [], status="suspended")
        await store.expire(0, status=("suspended",))
        await store.create("u", [b"one"], thread="t")
        await expect_error(store.create("v", [], thread="t"), ThreadBusyError, "a second run of the thread")


async def a_finished_run_goes_on_only_in_a_free_thread(open: Open) -> None:
    """A cancelled run may be resumed; not while its thread has another. Nothing is written then."""
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


CHECKS: tuple[StoreCheck, ...] = (
    a_thread_is_busy_until_its_run_has_ended,
    a_deleted_run_frees_its_thread,
    a_finished_run_goes_on_only_in_a_free_thread,
)
