"""Checks of stores: notes beside the logs."""

import asyncio
from collections.abc import Callable

from ...errors import RunConflictError, RunNotFoundError
from .store_checks import StoreWithNotes, expect_error, expect_log, expect_same, notes_check, opened, record_of


@notes_check
async def notes_are_written_with_lines(store: StoreWithNotes) -> None:
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


@notes_check
async def the_runs_of_a_thread_are_read_with_their_notes(store: StoreWithNotes) -> None:
    """`thread_notes` returns pages of a thread's runs, newest first, with and without the note."""
    for number in range(5):
        notes = {} if number == 2 else {"baton.thread": bytes([number]), "other": b"x"}
        await store.create(f"r{number}", [b"one"] * (number + 1), thread="t", status="completed", notes=notes)
        await store.create(f"o{number}", [b"one"], thread="other", status="completed", notes={"baton.thread": b"no"})
    last = (await record_of(store, "r4")).number
    first = await store.thread_notes("t", "baton.thread", before=last, limit=2)
    expect_same([(one.run_id, one.seq, one.note) for one in first], [("r3", 4, b"\x03"), ("r2", 3, None)], "a page")
    rest = await store.thread_notes("t", "baton.thread", before=first[-1].number)
    expect_same([(one.run_id, one.note) for one in rest], [("r1", b"\x01"), ("r0", b"\x00")], "the next page")
    await store.delete("r1")
    rest = await store.thread_notes("t", "baton.thread", before=first[-1].number)
    expect_same([(one.run_id, one.seq) for one in rest], [("r0", 1)], "the page without a deleted run")
    expect_same([*await store.thread_notes("t", "baton.thread", before=rest[-1].number)], [], "the last page")


@notes_check.opening
async def notes_are_kept_by_name(open: Callable[[], StoreWithNotes]) -> None:
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


@notes_check
async def notes_are_no_part_of_the_log(store: StoreWithNotes) -> None:
    """Notes need no lease and change neither lines nor record."""
    await store.create("r", [b"one"], worker="me", ttl=60)
    before = await record_of(store, "r")
    await store.put_note("r", "n", b"note")
    expect_same(await record_of(store, "r"), before, "the record after a note")
    await expect_log(store, "r", [b"one"])
    expect_same([one.run_id for one in (await store.list()).records], ["r"], "all runs")
    names = [f"n{number}" for number in range(10)]
    await asyncio.gather(*(store.put_note("r", name, name.encode()) for name in names))
    wanted = {"n": b"note"} | {name: name.encode() for name in names}
    expect_same(dict(await store.notes("r")), wanted, "the notes that several tasks put")


@notes_check
async def notes_go_with_their_run(store: StoreWithNotes) -> None:
    """Notes are deleted with their run; missing runs have none."""
    await expect_error(store.put_note("none", "n", b"x"), RunNotFoundError, "a note of a run that is not there")
    await expect_error(store.put_note("none", "n", None), RunNotFoundError, "to take away a note of no run")
    expect_same(dict(await store.notes("none")), {}, "the notes of a run that is not there")
    for run_id in ("r", "other"):
        await store.create(run_id, [])
        await store.put_note(run_id, "n", run_id.encode())
    expect_same(await store.delete("r"), True, "delete")
    await store.create("r", [])
    expect_same(dict(await store.notes("r")), {}, "the notes of a run that was created again")
    expect_same(dict(await store.notes("other")), {"n": b"other"}, "the notes of another run")
