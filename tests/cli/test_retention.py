"""`baton runs expire` and `baton runs erase`."""

import asyncio
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from batonkit.stores import SQLiteStore
from batonkit.stores.retention import read_archive

Invoke = Callable[..., Any]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in an empty folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def fill_store(*, days: float = 0.0) -> None:
    """Create runs of two owners in runs.db, some days ago."""

    async def fill() -> None:
        store = SQLiteStore("runs.db", clock=lambda: time.time() - days * 86400)
        for number in range(3):
            await store.create(f"r{number}", [b'{"format":2}'], owner="ada" if number else "bob", thread=f"t{number}")
            await store.append(f"r{number}", 1, [], status="completed")
        await store.close()

    asyncio.run(fill())


def run_ids() -> list[str]:
    """Return the ids of the runs in runs.db."""

    async def read() -> list[str]:
        store = SQLiteStore("runs.db")
        try:
            return [record.run_id for record in (await store.list(oldest_first=True)).records]
        finally:
            await store.close()

    return asyncio.run(read())


def test_old_runs_are_archived_and_deleted(baton: Invoke) -> None:
    fill_store(days=31)
    command = ("runs", "expire", "--store", "runs.db", "--older-than", "30d", "--archive", "old.jsonl.gz")
    assert "pass --yes" in baton(*command).stderr
    result = baton(*command, "--yes")
    assert (result.exit_code, result.stderr) == (0, "deleted 3 runs\n")
    assert (run_ids(), len(read_archive("old.jsonl.gz"))) == ([], 3)
    assert baton(*command, "--yes").exit_code != 0
    wrong = baton("runs", "expire", "--store", "runs.db", "--older-than", "30", "--yes")
    assert "'30' is not a duration; write 30d, 12h, 15m or 90s" in wrong.stderr


def test_a_damaged_run_is_kept_and_named_and_the_exit_code_tells(baton: Invoke) -> None:
    fill_store(days=31)
    with closing(sqlite3.connect("runs.db")) as connection, connection:
        connection.execute("UPDATE pieces SET lines = x'00' WHERE place = (SELECT min(place) FROM pieces)")
    command = ("runs", "expire", "--store", "runs.db", "--older-than", "30d", "--archive", "old.jsonl.gz")
    result = baton(*command, "--yes")
    assert result.exit_code == 1
    assert "kept run r0, which cannot be archived: " in result.stderr
    assert result.stderr.endswith("deleted 2 runs\n")
    assert (run_ids(), len(read_archive("old.jsonl.gz"))) == (["r0"], 2)


def test_young_runs_are_kept(baton: Invoke) -> None:
    fill_store()
    assert baton("runs", "expire", "--store", "runs.db", "--older-than", "12h", "--yes").stderr == "deleted 0 runs\n"
    assert len(run_ids()) == 3


def test_an_owner_or_a_thread_is_erased(baton: Invoke) -> None:
    fill_store()
    assert baton("runs", "erase", "--store", "runs.db", "--yes").exit_code == 2
    result = baton("runs", "erase", "--store", "runs.db", "--owner", "ada", "--yes")
    assert (result.stderr, run_ids()) == ("erased 2 runs of owner ada\n", ["r0"])
    result = baton("runs", "erase", "--store", "runs.db", "--thread", "t0", "--yes")
    assert (result.stderr, run_ids()) == ("erased 1 run of thread t0\n", [])
