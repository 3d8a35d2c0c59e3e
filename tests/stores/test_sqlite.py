"""Failures of an SQLite store: typed errors, no partial writes, and recovery afterwards."""

import asyncio
import gc
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Literal

import pytest
from tests.waiting import until

from batonkit import Agent, Runner
from batonkit.errors import LogError, RunConflictError, RunNotFoundError, SetupError, StoreError
from batonkit.runs import read_summaries
from batonkit.stores import RunFlags, SQLiteStore
from batonkit.testing import ScriptedModel

LINE = b'{"text":"' + b"x" * 500 + b'"}'


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "runs.db"


async def _fill(path: Path, *, runs: int = 3, lines: int = 30) -> None:
    store = SQLiteStore(path)
    for number in range(runs):
        await store.create(f"run{number}", [LINE] * 2)
        for seq in range(2, lines):
            await store.append(f"run{number}", seq, [LINE])
    await store.close()


async def test_a_lease_runs_out_by_the_clock(path: Path) -> None:
    now = 1000.0
    store = SQLiteStore(path, clock=lambda: now)
    await store.create("r", [], worker="me", ttl=30)
    now = 1029.9
    with pytest.raises(RunConflictError, match=r"`me` holds its lease for another 0\.1 s"):
        await store.acquire("r", "you", ttl=30)
    now = 1030.0
    assert (await store.acquire("r", "you", ttl=30)).until == 1060.0
    await store.append("r", 0, [], status="completed", fence=2)
    now = 1100.0
    assert await store.expire(70.1) == 0
    assert await store.expire(70.0) == 1
    await store.close()


@pytest.mark.parametrize("durability", ["process", "power"])
async def test_a_full_database_rejects_writes_until_there_is_space(path: Path, durability: str) -> None:
    store = SQLiteStore(path, durability="power" if durability == "power" else "process")
    await store.create("r", [LINE])
    file = store._group._file if store._group else store._file
    pages: int = file.read(lambda connection: connection.execute("PRAGMA page_count").fetchone()[0])
    file.read(lambda connection: connection.execute(f"PRAGMA max_page_count = {pages + 4}"))
    with pytest.raises(StoreError, match=r"runs\.db'\): it is full, or its disk is; free some space") as full:
        await store.append("r", 1, [LINE, LINE * 1000], status="completed")
    assert full.value.store == repr(store)
    assert list(await store.load("r")) == [LINE]
    record = await store.record("r")
    assert record is not None
    assert (record.seq, record.status) == (1, "running")
    await store.append("r", 1, [LINE])
    await store.close()
    await store.append("r", 2, [LINE * 1000])
    assert len(await store.load("r")) == 3
    await store.close()


async def test_a_failed_write_does_not_affect_the_others_of_its_group(path: Path) -> None:
    store = SQLiteStore(path, durability="power")
    for number in range(6):
        await store.create(f"r{number}", [LINE])
    assert store._group is not None
    file = store._group._file
    pages: int = file.read(lambda connection: connection.execute("PRAGMA page_count").fetchone()[0])
    file.read(lambda connection: connection.execute(f"PRAGMA max_page_count = {pages + 20}"))
    sizes = [1, 1, 10_000, 1, 1, 1]
    appends = [store.append(f"r{number}", 1, [LINE * size]) for number, size in enumerate(sizes)]
    appends.append(store.append("r0", 7, [LINE]))
    outcomes = await asyncio.gather(*appends, return_exceptions=True)
    assert [type(one) for one in outcomes] == [*[RunFlags] * 2, StoreError, *[RunFlags] * 3, RunConflictError]
    assert [len(await store.load(f"r{number}")) for number in range(6)] == [2, 2, 1, 2, 2, 2]
    await store.close()


@pytest.fixture
def lock_file(path: Path) -> Iterator[Callable[[], sqlite3.Connection]]:
    """Return a function that locks the file like another process; roll back its connection to unlock."""
    held: list[sqlite3.Connection] = []

    def lock() -> sqlite3.Connection:
        held.append(sqlite3.connect(path, isolation_level=None))
        held[-1].execute("BEGIN IMMEDIATE")
        return held[-1]

    yield lock
    for connection in held:
        connection.close()


async def test_waiting_for_a_locked_file_does_not_block_other_tasks(
    path: Path, lock_file: Callable[[], sqlite3.Connection]
) -> None:
    store = SQLiteStore(path, timeout=60)
    await store.create("r", [])
    other = lock_file()
    append = asyncio.create_task(store.append("r", 0, [LINE]))
    for _ in range(5):
        await asyncio.sleep(0)
    assert not append.done()
    assert list(await store.load("r")) == [], "reading does not wait"
    other.execute("ROLLBACK")
    await append
    assert list(await store.load("r")) == [LINE]
    await store.close()


@pytest.mark.parametrize("durability", ["process", "power"])
async def test_a_store_opens_a_file_that_another_process_is_about_to_create(path: Path, durability: str) -> None:
    with closing(SQLiteStore(path)._file) as file:
        file.read(lambda connection: None)
    other = sqlite3.connect(path, isolation_level=None)
    # The state between the first process's tables and its change to WAL, in which SQLite does not wait.
    other.execute("PRAGMA journal_mode = DELETE")
    other.execute("BEGIN IMMEDIATE")
    store = SQLiteStore(path, durability="power" if durability == "power" else "process", timeout=60)
    file, attempts = store._group._file if store._group else store._file, list[str]()
    connect = file._connect

    def count_attempts() -> sqlite3.Connection:
        attempts.append("connect")
        return connect()

    file._connect = count_attempts
    create = asyncio.create_task(store.create("r", [LINE]))
    await until(lambda: len(attempts) > 2)
    assert not create.done()
    other.execute("ROLLBACK")
    other.close()
    await create
    assert list(await store.load("r")) == [LINE]
    await store.close()


@pytest.mark.parametrize("durability", ["process", "power"])
async def test_a_file_that_stays_locked_raises_a_store_error(
    path: Path, durability: str, lock_file: Callable[[], sqlite3.Connection]
) -> None:
    store = SQLiteStore(path, durability="power" if durability == "power" else "process", timeout=0.02)
    await store.create("r", [])
    other = lock_file()
    with pytest.raises(StoreError, match="another process has locked it; wait for that process"):
        await store.append("r", 0, [LINE])
    assert list(await store.load("r")) == []
    other.execute("ROLLBACK")
    await store.append("r", 0, [LINE])
    await store.close()


async def test_a_missing_folder_raises_a_store_error(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "later" / "runs.db")
    with pytest.raises(StoreError, match="it cannot be opened; its folder must exist"):
        await store.create("r", [])
    (tmp_path / "later").mkdir()
    await store.create("r", [])
    await store.close()
    with pytest.raises(StoreError, match="it cannot be opened"):
        await SQLiteStore(tmp_path).create("r", [])


async def test_a_file_that_is_not_a_database_is_refused_and_kept(path: Path) -> None:
    text = "These are notes, and not a database.\n" * 100
    path.write_text(text)
    store = SQLiteStore(path)
    with pytest.raises(StoreError, match="the file is not an SQLite database"):
        await store.create("r", [])
    assert path.read_text() == text
    path.unlink()
    await store.create("r", [])
    await store.close()


async def test_the_database_of_another_program_is_refused_and_kept(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE customers(name)")
        connection.commit()
    before = path.read_bytes()
    with pytest.raises(StoreError, match="the database of another program; choose another file"):
        await SQLiteStore(path).create("r", [])
    assert path.read_bytes() == before


@pytest.mark.parametrize("layout", [0, 2, 7])
async def test_a_file_with_another_layout_is_refused_and_kept(path: Path, layout: int) -> None:
    await _fill(path, runs=1, lines=3)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"PRAGMA user_version = {layout}")
    before = path.read_bytes()
    with pytest.raises(
        StoreError,
        match=rf"its layout is {layout}, but this version of Baton has layout 1: it was made by an unreleased version, "
        "or by a newer one; upgrade Baton, or delete what is there, or point the store elsewhere",
    ):
        await SQLiteStore(path).load("run0")
    assert path.read_bytes() == before


async def test_a_removed_file_is_detected(path: Path) -> None:
    store = SQLiteStore(path)
    await store.create("r", [LINE])
    for file in path.parent.glob("runs.db*"):
        file.unlink()
    with pytest.raises(RunNotFoundError, match="there is no run `r` in SQLiteStore"):
        await store.append("r", 1, [LINE])
    await store.create("r", [LINE])
    await store.close()


@pytest.mark.parametrize("size", [0, 10, 100, 4096, 5000, 8192, 20_000])
async def test_a_truncated_file_is_detected(path: Path, size: int) -> None:
    await _fill(path)
    whole = path.read_bytes()
    assert len(whole) > 40_000
    path.write_bytes(whole[:size])
    store = SQLiteStore(path)
    for number in range(3):
        # An empty file is a new database without runs.
        with pytest.raises((StoreError, LogError) if size else RunNotFoundError):
            await store.load(f"run{number}")
    await store.close()
    path.write_bytes(whole)
    assert len(await store.load("run0")) == 30
    await store.close()


async def test_flipped_bits_are_detected(path: Path) -> None:
    await _fill(path, runs=2, lines=12)
    whole = path.read_bytes()
    store = SQLiteStore(path)
    wanted = {f"run{number}": [LINE] * 12 for number in range(2)}
    detected = 0
    for position in range(0, len(whole), 101):
        damaged = bytearray(whole)
        damaged[position] ^= 1 << (position % 8)
        path.write_bytes(damaged)
        await store.close()
        for run_id, lines in wanted.items():
            try:
                assert list(await store.load(run_id)) == lines, f"bit at byte {position}"
            except (StoreError, LogError, RunNotFoundError):
                detected += 1
    assert detected > 100
    path.write_bytes(whole)
    await store.close()
    assert list(await store.load("run0")) == wanted["run0"]
    await store.close()


async def test_a_changed_line_is_reported_with_its_number(path: Path) -> None:
    await _fill(path, runs=1, lines=6)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("UPDATE pieces SET lines = replace(lines, 'text', 'next') WHERE place % 16777216 = 4")
        connection.execute("UPDATE pieces SET lines = CAST(lines AS BLOB)")
        connection.commit()
    store = SQLiteStore(path)
    with pytest.raises(LogError, match="at event 4: the checksum of a piece") as broken:
        await store.load("run0")
    assert broken.value.position == 4
    await store.close()


@pytest.mark.parametrize(
    ("statement", "where"),
    [
        ("DELETE FROM pieces WHERE place % 16777216 = 3", 3),
        ("DELETE FROM pieces WHERE place % 16777216 = 5", 5),
        ("DELETE FROM pieces WHERE place % 16777216 = 0", 0),
        ("DELETE FROM pieces", 0),
        ("UPDATE runs SET seq = 5", 5),
    ],
)
async def test_missing_lines_are_detected(path: Path, statement: str, where: int) -> None:
    await _fill(path, runs=1, lines=6)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(statement)
        connection.commit()
    store = SQLiteStore(path)
    with pytest.raises(LogError) as broken:
        await store.load("run0")
    assert broken.value.position == where
    await store.close()


def test_a_store_that_is_dropped_closes_its_file(path: Path) -> None:
    # As `Runner(…, store="runs.db").run_sync(…)` in a notebook. Python 3.13 warns of connections that are left open.
    asyncio.run(SQLiteStore(path).list())
    gc.collect()


async def test_a_store_can_be_used_from_several_event_loops_and_threads(path: Path) -> None:
    store = SQLiteStore(path)
    await store.create("r", [])

    async def add() -> None:
        for _ in range(20):
            while True:
                try:
                    await store.append("r", len(await store.load("r")), [LINE])
                    break
                except RunConflictError:
                    continue

    await asyncio.gather(*(asyncio.to_thread(asyncio.run, add()) for _ in range(4)))
    assert len(await store.load("r")) == 80
    await store.close()


def test_invalid_arguments_are_refused() -> None:
    with pytest.raises(SetupError, match=r"SQLiteStore\(':memory:'\) has no file; pass a file name, or use Mem"):
        SQLiteStore(":memory:")
    with pytest.raises(SetupError, match="durability is 'all'; it can be: `process`, `power`"):
        SQLiteStore("runs.db", durability="all")  # pyright: ignore[reportArgumentType] - that is the mistake


@pytest.mark.parametrize("damaged", ["[", '{"a": 1}', "[1]", b"\xff", 7])
async def test_damaged_origins_are_reported(path: Path, damaged: object) -> None:
    await _fill(path, runs=1, lines=3)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("UPDATE runs SET origins = ?", (damaged,))
        connection.commit()
    store = SQLiteStore(path)
    with pytest.raises(StoreError, match="the record of run `run0` is damaged"):
        await store.record("run0")
    await store.close()


@pytest.mark.parametrize("durability", ["process", "power"])
async def test_nothing_of_an_erased_owner_is_left_in_the_files(
    path: Path, durability: Literal["process", "power"]
) -> None:
    store = SQLiteStore(path, durability=durability)
    for number in range(20):
        await store.create(f"r{number}", [b"quokka" * 2000], owner="ada", notes={"n": b"quokka"})
        await store.create(f"s{number}", [b"wombat"], owner="bob")
    assert any(b"quokka" in file.read_bytes() for file in path.parent.iterdir())
    assert await store.erase(owner="ada") == 20
    assert not [file.name for file in path.parent.iterdir() if b"quokka" in file.read_bytes()]
    assert list(await store.load("s7")) == [b"wombat"]
    await store.close()


async def test_erasing_while_another_process_reads_says_that_copies_are_left(path: Path) -> None:
    store = SQLiteStore(path, timeout=0.1)
    await store.create("r", [b"quokka"], owner="ada")
    with closing(sqlite3.connect(path, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT * FROM pieces").fetchall()
        with pytest.raises(StoreError, match="the runs are deleted, but copies stay in the -wal file"):
            await store.erase(owner="ada")
        assert await store.record("r") is None
    assert await store.erase(owner="ada") == 0
    assert not [file.name for file in path.parent.iterdir() if b"quokka" in file.read_bytes()]
    await store.close()


async def test_new_files_can_be_read_by_their_owner_only(path: Path) -> None:
    store = SQLiteStore(path)
    await store.create("r", [b"0"])
    assert {file.name: file.stat().st_mode & 0o777 for file in path.parent.iterdir()} == {
        "runs.db": 0o600,
        "runs.db-wal": 0o600,
        "runs.db-shm": 0o600,
    }
    await store.close()


async def test_the_mode_of_a_file_that_exists_is_kept(path: Path) -> None:
    path.touch()
    path.chmod(0o640)
    store = SQLiteStore(path)
    await store.create("r", [b"0"])
    assert {file.stat().st_mode & 0o777 for file in path.parent.iterdir()} == {0o640}
    await store.close()


DAMAGED_NOTES: tuple[object, ...] = (1, 2.5, "text", b"", b"null", b"[1]", b"\xff\xfe", b'{"text":"\xf8"}')


@pytest.mark.parametrize("damaged", DAMAGED_NOTES, ids=repr)
async def test_damaged_notes_of_any_type_raise_store_errors_or_are_ignored(path: Path, damaged: object) -> None:
    store = SQLiteStore(path)
    runner = Runner(Agent("A", model=ScriptedModel(["Hello."], cycle=True)), store=store)
    await runner.run("hi", thread="t", run_id="r")
    await store.put_note("r", "mine", b"note")
    await store.close()
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE notes SET note = ?", (damaged,))
    again = Runner(Agent("A", model=ScriptedModel(["Hello."], cycle=True)), store=store)
    with pytest.raises(StoreError, match="the summary of run `r` is damaged"):
        await read_summaries(store, ["r"])
    assert [message.content for message in await again.thread("t").messages()] == ["hi", "Hello."]
    assert all(isinstance(note, bytes) for note in (await store.notes("r")).values())
    await store.close()
