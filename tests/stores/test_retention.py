"""Deleting old runs, with an archive written first."""

import gzip
from pathlib import Path

import pytest
from tests.runs.recording_store import ManualClock

from batonkit import Agent, Runner
from batonkit.errors import SetupError
from batonkit.log import decode_lines
from batonkit.stores import Lease, MemoryStore
from batonkit.stores.retention import expire_runs, read_archive
from batonkit.testing import FaultyStore, ScriptedModel

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
    assert await expire_runs(store, 2.5 * DAY, archive=archive) == 2
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
    assert await expire_runs(store, DAY / 2) == 2


async def test_a_run_that_a_worker_holds_is_kept(tmp_path: Path) -> None:
    store = await old_runs(ManualClock(), 3)
    await store.acquire("r0", "someone", ttl=60)
    assert await expire_runs(store, DAY / 2, archive=tmp_path / "a.gz") == 1
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
    assert await expire_runs(store, DAY / 2, archive=tmp_path / "a.gz") == 0
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
