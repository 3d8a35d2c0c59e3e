"""Checks of stores: runs that expire, and people that are erased."""

from ...errors import RunNotFoundError, SetupError
from ...stores import FINISHED_STATUSES, Store, SupportsInbox, SupportsNotes, WaitingMessage
from .store_checks import StoreWithRetention, expect_error, expect_same, retention_check


@retention_check
async def old_runs_expire(store: StoreWithRetention) -> None:
    """Runs that ended long ago expire; other statuses can be named."""
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


@retention_check
async def a_run_whose_lease_is_held_does_not_expire(store: StoreWithRetention) -> None:
    """A run with a valid lease does not expire."""
    await store.create("r", [b"one"])
    await store.append("r", 1, [], status="cancelled")
    lease = await store.acquire("r", "me", ttl=60)
    expect_same(await store.expire(0), 0, "runs that expire while a worker holds their lease")
    await store.release(lease)
    expect_same(await store.expire(0), 1, "runs that expire after the lease was released")


@retention_check
async def notes_expire_with_their_run(store: StoreWithRetention) -> None:
    """`expire` deletes the notes of a run, if the store keeps notes."""
    if isinstance(store, SupportsNotes):
        await store.create("r", [], status="completed")
        await store.put_note("r", "n", b"old")
        expect_same(await store.expire(0), 1, "runs that expire")
        await store.create("r", [])
        expect_same(dict(await store.notes("r")), {}, "the notes of a run that was created again")


@retention_check
async def an_expired_run_frees_its_thread(store: StoreWithRetention) -> None:
    """`expire` frees the thread of a suspended run."""
    await store.create("r", [], thread="t", status="suspended")
    await store.expire(0, status=("suspended",))
    await store.create("s", [], thread="t")
    expect_same(await _ids(store), {"s"}, "runs that are left")


@retention_check
async def a_person_can_be_erased(store: StoreWithRetention) -> None:
    """`erase` deletes the runs of an owner or a thread, and nothing else."""
    for number, (owner, thread) in enumerate((("ada", "t"), ("ada", ""), ("bob", "t"), ("bob", "u"))):
        await store.create(f"r{number}", [b"one"], owner=owner, thread=thread)
        if thread == "t":
            await store.append(f"r{number}", 1, [], status="completed")
    await store.create("live", [b"one"], owner="ada", worker="me", ttl=60)
    expect_same(await store.erase(owner="ada"), 3, "the number of erased runs of an owner")
    expect_same(await _ids(store), {"r2", "r3"}, "the runs that are left")
    expect_same([one.run_id for one in await store.runnable()], ["r3"], "the runnable runs that are left")
    expect_same(await store.erase(thread="u"), 1, "the number of erased runs of a thread")
    expect_same(await store.erase(owner="nobody"), 0, "the number of erased runs of an unknown owner")
    await expect_error(store.erase(), SetupError, "erase() without a name")


@retention_check
async def notes_are_erased_with_a_person(store: StoreWithRetention) -> None:
    """`erase` deletes the notes of runs, if the store keeps notes."""
    if isinstance(store, SupportsNotes):
        for run_id, owner in (("r0", "ada"), ("r1", "bob")):
            await store.create(run_id, [b"one"], owner=owner, notes={"baton.summary": b"x"})
        await store.erase(owner="ada")
        expect_same({*await store.read_notes(["r0", "r1"], "baton.summary")}, {"r1"}, "the notes that are left")


@retention_check
async def messages_are_erased_with_a_person(store: StoreWithRetention) -> None:
    """`erase` deletes waiting messages, if the store keeps messages."""
    if isinstance(store, SupportsInbox):
        await store.create("r", [b"one"], thread="u")
        for owner in ("ada", "bob"):
            await store.enqueue(WaitingMessage(run_id=f"for {owner}", thread="u", owner=owner), limit=10)
        await store.erase(owner="ada")
        expect_same([one.run_id for one in await store.inbox("u")], ["for bob"], "the messages that are left")
        await store.erase(thread="u")
        expect_same([*await store.inbox("u")], [], "the messages of an erased thread")


@retention_check
async def forks_are_erased_with_a_person(store: StoreWithRetention) -> None:
    """`erase` deletes forks of a person's runs, and forks of those."""
    await store.create("r", [b"one"], owner="ada", thread="t", status="completed")
    await store.create("fork", [b"one"], forked_from="r", status="completed")
    await store.create("of bob", [b"one"], owner="bob", forked_from="fork")
    await store.create("copy", [b"one"], forked_from="of bob")
    await store.create("import", [b"one"], origins=("owner:ada",))
    await store.create("other", [b"one"], owner="ad", thread="owner:ada")
    await store.create("like", [b"one"], origins=('owner:a","owner:ada',))
    record = await store.record("copy")
    found = {*record.origins} if record is not None else None
    expect_same(found, {"owner:ada", "thread:t", "owner:bob"}, "the origins of a fork of forks")
    for run_id in ("r", "fork"):
        await store.delete(run_id)
    expect_same(await store.erase(thread="t"), 2, "the number of forks of a thread's run")
    expect_same(await store.erase(owner="ada"), 1, "the number of forks of an owner's run")
    left = {one.run_id for one in (await store.list()).records}
    expect_same(left, {"other", "like"}, "the runs that are left")
    await expect_error(store.create("late", [], forked_from="r"), RunNotFoundError, "a fork of a deleted run")
    expect_same(await store.record("late"), None, "a fork of a deleted run")


async def _ids(store: Store) -> set[str]:
    return {record.run_id for record in (await store.list()).records}
