"""Deleting old runs, with an archive written first."""

import gzip
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from tests.runs.recording_store import ManualClock

from batonkit import Agent, RunContext, Runner, tool
from batonkit.errors import LogError, RunConflictError, SetupError
from batonkit.log import decode_lines
from batonkit.stores import Lease, MemoryStore, SQLiteStore
from batonkit.stores.retention import ExpiredRuns, expire_runs, read_archive
from batonkit.testing import FaultyStore, ScriptedModel, call

DAY = 86400.0


async def old_runs(clock: ManualClock, count: int) -> MemoryStore:
    """Create a store with completed runs, a day apart from one another; the last one has just ended."""
    store = MemoryStore(clock=clock)
    runner = Runner(Agent("A", model=ScriptedModel(["done"], cycle=True)), store=store)
    for number in range(count):
        await runner.run("hi", run_id=f"r{number}", owner="ada")
        clock.now += DAY if number < count - 1 else 0
    return store


async def test_old_runs_are_archived_and_deleted(tmp_path: Path) -> None:
    clock, archive = ManualClock(), tmp_path / "old.jsonl.gz"
    store = await old_runs(clock, 5)
    await store.put_note("r0", "mine", b"\xff")
    logs = {f"r{number}": [*await store.load(f"r{number}")] for number in range(5)}
    assert await expire_runs(store, 2.5 * DAY, archive=archive) == ExpiredRuns(2)
    assert {record.run_id for record in (await store.list()).records} == {"r2", "r3", "r4"}
    archived = read_archive(archive)
    assert [run.record.run_id for run in archived] == ["r0", "r1"]
    for run in archived:
        lines = [bytes(line) for line in run.log]
        assert lines == logs[run.record.run_id]
        assert decode_lines(lines)[0].key == "run"
    assert archived[0].notes["mine"] == b"\xff"
    assert archived[0].notes.keys() == {"mine", "baton.summary"}
    with pytest.raises(SetupError, match="exists; choose another file"):
        await expire_runs(store, DAY, archive=archive)
    assert await expire_runs(store, DAY / 2) == ExpiredRuns(2)


async def test_a_run_that_a_worker_holds_is_kept(tmp_path: Path) -> None:
    store = await old_runs(ManualClock(), 3)
    await store.acquire("r0", "someone", ttl=60)
    assert await expire_runs(store, DAY / 2, archive=tmp_path / "a.gz") == ExpiredRuns(1)
    assert {record.run_id for record in (await store.list()).records} == {"r0", "r2"}


async def test_a_run_that_changed_meanwhile_is_kept_and_can_be_driven_at_once(tmp_path: Path) -> None:
    clock = ManualClock()
    store = await old_runs(clock, 3)
    acquire = store.acquire

    async def acquire_late(run_id: str, worker: str, *, ttl: float) -> Lease:
        # Before the archive has the lease, someone adds an event.
        other = await acquire(run_id, "other", ttl=ttl)
        record = await store.record(run_id)
        assert record is not None
        await store.append(run_id, record.seq, [b"{}"], status="running", fence=other.fence)
        await store.release(other)
        return await acquire(run_id, worker, ttl=ttl)

    store.acquire = acquire_late
    assert await expire_runs(store, DAY / 2, archive=tmp_path / "a.gz") == ExpiredRuns(0)
    store.acquire = acquire
    for run_id in ("r0", "r1"):
        assert (await store.acquire(run_id, "worker", ttl=60)).worker == "worker"


async def test_a_run_is_deleted_only_once_it_is_archived(tmp_path: Path) -> None:
    store = FaultyStore(await old_runs(ManualClock(), 3))
    store.fail("delete")
    with pytest.raises(Exception, match="planned fault"):
        await expire_runs(store, DAY / 2, archive=tmp_path / "a.gz")
    with gzip.open(tmp_path / "a.gz") as file:
        assert len(file.readlines()) == 2
    assert (await store.list(count_total=True)).total == 3


class SlowStore(MemoryStore):
    """A store that takes longer to load a log than a lease of an archive lasts."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(clock=clock)
        self.manual_clock = clock
        self.loaded: list[str] = []

    async def load(self, run_id: str, *, start: int = 0) -> Sequence[bytes]:
        self.manual_clock.now += 90
        self.loaded.append(run_id)
        return await super().load(run_id, start=start)


async def slow_store() -> SlowStore:
    """Create a slow store with four runs that have just completed."""
    store = SlowStore(ManualClock())
    for number in range(4):
        await store.create(f"r{number}", [b"{}"], status="completed")
    store.manual_clock.now += 1
    return store


async def test_a_slow_archive_keeps_its_leases_until_the_runs_are_deleted(tmp_path: Path) -> None:
    store = await slow_store()
    delete, refused = store.delete, list[str]()

    async def delete_while_a_worker_looks(run_id: str, *, fence: int | None = None) -> bool:
        with pytest.raises(RunConflictError):
            await store.acquire(run_id, "worker", ttl=60)
        refused.append(run_id)
        return await delete(run_id, fence=fence)

    store.delete = delete_while_a_worker_looks
    assert await expire_runs(store, 0, archive=tmp_path / "a.gz") == ExpiredRuns(4)
    assert refused == store.loaded


async def test_a_run_that_was_resumed_while_it_was_archived_is_kept(tmp_path: Path) -> None:
    store = await slow_store()

    renew = store.renew

    async def renew_too_late(leases: Sequence[Lease], *, ttl: float) -> Mapping[str, Lease]:
        store.renew = renew
        lease = await store.acquire("r0", "worker", ttl=60)
        await store.append("r0", 1, [b"[]"], fence=lease.fence, release=True)
        return await renew(leases, ttl=ttl)

    store.renew = renew_too_late
    assert await expire_runs(store, 0, archive=tmp_path / "a.gz") == ExpiredRuns(3)
    assert [*await store.load("r0")] == [b"{}", b"[]"]


class DamagedStore(MemoryStore):
    """A store with one log that is damaged and one with a line that is not JSON."""

    async def load(self, run_id: str, *, start: int = 0) -> Sequence[bytes]:
        if run_id == "r0":
            raise LogError(1, "the checksum is wrong")
        return [b"{"] if run_id == "r1" else await super().load(run_id, start=start)


async def test_damaged_runs_are_kept_and_reported_and_the_others_archived(tmp_path: Path) -> None:
    store = DamagedStore()
    for number in range(4):
        await store.create(f"r{number}", [b"{}"], status="completed")
    expired = await expire_runs(store, 0, archive=tmp_path / "a.gz")
    assert expired.deleted == 2
    assert "the checksum is wrong" in expired.damaged["r0"]
    assert "malformed" in expired.damaged["r1"]
    assert [run.record.run_id for run in read_archive(tmp_path / "a.gz")] == ["r2", "r3"]
    for run_id in ("r0", "r1"):
        assert (await store.acquire(run_id, "worker", ttl=60)).worker == "worker"


@tool
async def remember(ctx: RunContext, text: str) -> str:
    """Remember a text."""
    ctx.values.set("thread:remembered", text)
    return "remembered"


async def test_runs_that_continue_a_thread_of_an_erased_owner_are_erased_too(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    store = SQLiteStore(path)
    model = ScriptedModel([call("remember", text="quokka"), "Done."] + ["Hello."] * 4)
    runner = Runner(Agent("A", model=model, tools=[remember]), store=store)
    await runner.run("hi", thread="t", owner="ada", run_id="of-ada")
    await runner.run("hello", thread="t", owner="bob", run_id="after-ada")
    following = await runner.run("hello again", thread="t", owner="bob", run_id="later")
    assert following.values["thread:remembered"] == "quokka"
    await runner.run("hello", thread="u", owner="bob", run_id="elsewhere")
    assert await store.erase(owner="ada") == 3
    assert {record.run_id for record in (await store.list()).records} == {"elsewhere"}
    assert not [file.name for file in tmp_path.iterdir() if b"quokka" in file.read_bytes()]
    await store.close()


async def test_runs_of_an_owner_before_those_of_an_erased_one_are_kept() -> None:
    store = MemoryStore()
    runner = Runner(Agent("A", model=ScriptedModel(["Hello."], cycle=True)), store=store)
    await runner.run("hi", thread="t", owner="bob", run_id="before")
    await runner.run("hi", thread="t", owner="ada", run_id="of-ada")
    assert await store.erase(owner="ada") == 1
    assert {record.run_id for record in (await store.list()).records} == {"before"}


async def test_an_archive_can_be_read_by_its_owner_only(tmp_path: Path) -> None:
    await expire_runs(await old_runs(ManualClock(), 2), DAY / 2, archive=tmp_path / "a.gz")
    assert (tmp_path / "a.gz").stat().st_mode & 0o777 == 0o600
