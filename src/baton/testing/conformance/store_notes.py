"""Checks of stores: notes are kept beside a run, whoever drives it, and go with it."""

import asyncio

from ...errors import RunNotFoundError
from .expectations import expect_error, expect_same
from .store_checks import Open, StoreCheck, expect_log, known, opened


async def notes_are_kept_by_name(open: Open) -> None:
    """Any bytes under any name, the oldest first; the last to write wins, and None takes a note away."""
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
    """They need no lease, and change neither the lines nor the record; no list shows them."""
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
    """When it is deleted or expires. Those of others stay, and there are none of a run that is not there."""
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


CHECKS: tuple[StoreCheck, ...] = (notes_are_kept_by_name, notes_are_no_part_of_the_log, notes_go_with_their_run)
