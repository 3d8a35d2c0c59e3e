"""Group commits: runs that write at the same time share a transaction, and one failure stays with its own run."""

import asyncio
import sqlite3
import threading
from collections.abc import AsyncIterable, AsyncIterator, Coroutine
from pathlib import Path
from typing import Any

import pytest

from batonkit import Agent, Runner, tool
from batonkit.errors import RunConflictError, RunExistsError, StoreError, ThreadBusyError
from batonkit.messages import AssistantMessage, ToolCall, ToolMessage
from batonkit.models import Chunk, CompleteResponse, ModelRequest, ModelResponse
from batonkit.stores import FullStore, Lease, PostgresStore, RunFlags, SQLiteStore, Store

LIMIT = 60.0
"""Seconds after which a test fails."""


@pytest.fixture(params=["process", "power"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    """A store whose writes are combined."""
    opened = SQLiteStore(tmp_path / "runs.db", durability=request.param)
    async with asyncio.timeout(LIMIT):
        yield opened
        await opened.close()


async def create_runs(store: Store, count: int, **options: Any) -> list[Lease]:
    return [await store.create(f"r{number}", [b"0"], worker="me", ttl=60, **options) for number in range(count)]


async def together(*writes: Coroutine[Any, Any, Any]) -> list[Any]:
    """Begin writes in one iteration of the event loop; return their results and exceptions."""
    return await asyncio.gather(*writes, return_exceptions=True)


def kinds(outcomes: list[Any]) -> list[type]:
    return [type(outcome) for outcome in outcomes]


async def lengths(store: Store, count: int) -> list[int]:
    return [len(await store.load(f"r{number}")) for number in range(count)]


def trace(store: SQLiteStore) -> list[str]:
    """Return a list that receives the statements of the store's connection."""
    statements: list[str] = []
    store._file._open().set_trace_callback(statements.append)
    return statements


async def test_writes_of_several_runs_share_a_transaction_in_sqlite(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "runs.db")
    await create_runs(store, 20)
    statements = trace(store)
    for seq in (1, 2, 3):
        outcomes = await together(*[store.append(f"r{number}", seq, [b"x"], fence=1) for number in range(20)])
        assert kinds(outcomes) == [RunFlags] * 20
    # The first run does not wait for the others; afterwards all of them wait for each other.
    assert statements.count("COMMIT") == 4
    assert await lengths(store, 20) == [4] * 20
    await store.close()


async def test_a_run_alone_waits_for_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = SQLiteStore(tmp_path / "runs.db")
    await store.create("r", [b"0"])
    loop, scheduled = asyncio.get_running_loop(), list[object]()
    await asyncio.sleep(0)

    def record(callback: Any, *_: Any, **options: Any) -> None:
        scheduled.append(callback)

    monkeypatch.setattr(loop, "call_soon", record)
    try:
        for seq in range(1, 20):
            with pytest.raises(StopIteration):  # It ends at its first step, without an iteration of the event loop.
                store.append("r", seq, [b"x"]).send(None)
    finally:
        monkeypatch.undo()
    assert scheduled == []
    assert len(await store.load("r")) == 20
    await store.close()


async def test_a_run_waits_no_more_once_the_others_have_ended(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "runs.db")
    await create_runs(store, 3)
    await together(*[store.append(f"r{number}", 1, [b"x"]) for number in range(3)])
    await store.append("r0", 2, [b"x"])
    with pytest.raises(StopIteration):
        store.append("r0", 3, [b"x"]).send(None)
    await store.close()


async def test_a_refused_write_fails_alone(store: FullStore) -> None:
    await create_runs(store, 6)
    await store.acquire("r4", "me", ttl=60)
    outcomes = await together(
        store.append("r0", 1, [b"1"], fence=1),
        store.append("r1", 1, [b"1"], fence=1),
        store.append("r2", 7, [b"1"], fence=1),
        store.append("r3", 1, [b"1"], fence=1, status="completed", notes={"n": b"note"}, release=True),
        store.append("r4", 1, [b"1"], fence=1),
        store.append("r5", 1, [], fence=1, notes={"n": b"note"}),
        store.create("r0", []),
        store.create("late", [b"0"], thread="t", previous="gone"),
        store.create("new", [b"0"], thread="t"),
    )
    assert kinds(outcomes[:6]) == [RunFlags, RunFlags, RunConflictError, RunFlags, RunConflictError, RunFlags]
    assert kinds(outcomes[6:]) == [RunExistsError, ThreadBusyError, Lease]
    assert await store.record("late") is None
    assert "its log has 1 lines, but the writer expected 7" in str(outcomes[2])
    assert "acquired its lease (fence 2; the writer has 1)" in str(outcomes[4])
    assert await lengths(store, 6) == [2, 2, 1, 2, 1, 1]
    assert [await store.notes(run_id) for run_id in ("r2", "r3", "r5")] == [{}, {"n": b"note"}, {"n": b"note"}]
    record = await store.record("r3")
    assert record is not None
    assert (record.status, record.is_leased) == ("completed", False)


async def test_of_runs_with_the_same_key_in_one_group_one_wins(store: Store) -> None:
    await create_runs(store, 1)
    outcomes = await together(
        store.append("r0", 1, [b"1"]),
        store.append("r0", 1, [b"other"]),
        store.create("same", [b"0"]),
        store.create("same", [b"0"]),
        store.create("a", [b"0"], thread="t", previous=""),
        store.create("b", [b"0"], thread="t", previous=""),
        store.create("c", [b"0"]),
    )
    assert sorted(kind.__name__ for kind in kinds(outcomes)) == sorted(
        ["RunFlags", "RunConflictError", "Lease", "RunExistsError", "Lease", "ThreadBusyError", "Lease"]
    )
    assert {kind.__name__ for kind in kinds(outcomes[4:6])} == {"Lease", "ThreadBusyError"}
    assert isinstance(outcomes[6], Lease)
    busy = next(outcome for outcome in outcomes if isinstance(outcome, ThreadBusyError))
    assert busy.run_id in ("a", "b")
    assert len(await store.load("r0")) == 2


async def test_an_append_returns_its_own_flags(store: Store) -> None:
    await create_runs(store, 5)
    await store.request_cancel("r3", "after_turn")
    outcomes = await together(*[store.append(f"r{number}", 1, [b"1"]) for number in range(5)])
    assert [flags.cancel_requested for flags in outcomes] == ["", "", "", "after_turn", ""]


async def test_leases_are_renewed_while_runs_write(store: Store) -> None:
    leases = await create_runs(store, 30)
    appends = [store.append(f"r{number}", 1, [b"1"], fence=1) for number in range(30)]
    outcomes = await together(*appends[:15], store.renew(leases, ttl=90), *appends[15:])
    assert len(outcomes.pop(15)) == 30
    assert kinds(outcomes) == [RunFlags] * 30


async def test_a_cancelled_writer_has_written_all_or_nothing(store: Store) -> None:
    await create_runs(store, 40)
    for iterations in (1, 2, 3, 5, 8):
        before = await lengths(store, 40)
        tasks = [
            asyncio.ensure_future(store.append(f"r{number}", seq, [b"1", b"2"])) for number, seq in enumerate(before)
        ]
        for _ in range(iterations):
            await asyncio.sleep(0)
        for task in tasks[::3]:
            task.cancel()
        outcomes = await together(*[_outcome(task) for task in tasks])
        after = await lengths(store, 40)
        for number, outcome in enumerate(outcomes):
            added = after[number] - before[number]
            assert added == 2 if isinstance(outcome, RunFlags) else added in (0, 2)
        assert all(isinstance(outcome, RunFlags) for number, outcome in enumerate(outcomes) if number % 3)


async def _outcome(task: "asyncio.Future[Any]") -> Any:
    return await task


async def test_a_writer_that_is_cancelled_before_the_commit_writes_nothing(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "runs.db")
    await create_runs(store, 3)
    first, second, third = [asyncio.ensure_future(store.append(f"r{number}", 1, [b"1"])) for number in range(3)]
    await asyncio.sleep(0)
    second.cancel()
    assert kinds(await together(_outcome(first), _outcome(third))) == [RunFlags] * 2
    with pytest.raises(asyncio.CancelledError):
        await second
    assert await lengths(store, 3) == [2, 1, 2]
    await store.close()


async def test_a_store_that_is_closed_has_written_what_waits(store: Store) -> None:
    await create_runs(store, 10)
    tasks = [asyncio.ensure_future(store.append(f"r{number}", 1, [b"1"])) for number in range(10)]
    await asyncio.sleep(0)
    await store.close()
    assert kinds(await together(*[_outcome(task) for task in tasks])) == [RunFlags] * 10
    # Nothing has opened it again.
    assert not store._pool._pools if isinstance(store, PostgresStore) else True
    assert store._file._connection is None if isinstance(store, SQLiteStore) else True
    assert await lengths(store, 10) == [2] * 10


_POISON = b"poison"
_FAILING_COMMIT_SQLITE = f"""
CREATE TABLE targets(number INTEGER PRIMARY KEY);
CREATE TABLE missing(number INTEGER REFERENCES targets(number) DEFERRABLE INITIALLY DEFERRED);
CREATE TRIGGER poisoned AFTER INSERT ON pieces WHEN instr(new.lines, x'{_POISON.hex()}')
    BEGIN INSERT INTO missing VALUES (1); END;
"""
_FAILING_COMMIT_POSTGRES = (
    """CREATE FUNCTION poisoned() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        IF position('poison'::bytea IN NEW.lines) > 0 THEN RAISE 'poisoned'; END IF; RETURN NULL; END $$""",
    """CREATE CONSTRAINT TRIGGER poisoned AFTER INSERT ON baton_pieces DEFERRABLE INITIALLY DEFERRED
        FOR EACH ROW EXECUTE FUNCTION poisoned()""",
)


async def _fail_commits(store: Store) -> None:
    """Let the COMMIT of a transaction fail that has a poisoned line."""
    if isinstance(store, PostgresStore):
        for statement in _FAILING_COMMIT_POSTGRES:
            await store._pool.fetch(statement, ())
    elif isinstance(store, SQLiteStore):
        file = store._group._file if store._group is not None else store._file
        file._open().executescript(_FAILING_COMMIT_SQLITE)
        file._open().execute("PRAGMA foreign_keys = ON")


async def test_after_a_failed_commit_only_the_run_that_caused_it_fails(store: Store) -> None:
    await create_runs(store, 6)
    await _fail_commits(store)
    lines = [b"1", b"1", b"1", _POISON, b"1", b"1"]
    outcomes = await together(*[store.append(f"r{number}", 1, [line]) for number, line in enumerate(lines)])
    assert kinds(outcomes) == [RunFlags, RunFlags, RunFlags, StoreError, RunFlags, RunFlags]
    assert await lengths(store, 6) == [2, 2, 2, 1, 2, 2]
    assert kinds(await together(*[store.append(f"r{number}", 2, [b"2"]) for number in (0, 1, 2)])) == [RunFlags] * 3


async def test_a_group_waits_for_a_locked_file(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "runs.db", timeout=60)
    await create_runs(store, 5)
    other = sqlite3.connect(tmp_path / "runs.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    tasks = [asyncio.ensure_future(store.append(f"r{number}", 1, [b"1"])) for number in range(5)]
    for _ in range(10):
        await asyncio.sleep(0)
    assert not any(task.done() for task in tasks)
    other.execute("ROLLBACK")
    other.close()
    assert kinds(await together(*[_outcome(task) for task in tasks])) == [RunFlags] * 5
    await store.close()


def test_event_loops_of_several_threads_share_a_file(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "runs.db")

    async def write(name: str) -> None:
        async def one(number: int) -> None:
            await store.create(f"{name}{number}", [])
            for seq in range(20):
                await store.append(f"{name}{number}", seq, [b"x"], fence=1)

        await asyncio.gather(*[one(number) for number in range(10)])

    threads = [threading.Thread(target=asyncio.run, args=(write(name),)) for name in "abc"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT)

    async def read() -> set[int]:
        found = {len(await store.load(f"{name}{number}")) for name in "abc" for number in range(10)}
        await store.close()
        return found

    assert asyncio.run(read()) == {20}


class ActsTwice:
    """A model that calls the tool twice and then answers, in as many runs as there are."""

    name = "acts-twice"

    def respond(self, request: ModelRequest) -> AsyncIterable[Chunk]:
        done = sum(isinstance(message, ToolMessage) for message in request.messages)
        calls = (ToolCall(f"c{done}", "act", "{}"),) if done < 2 else ()
        return CompleteResponse(ModelResponse(AssistantMessage("" if calls else "ok", calls)))


async def test_runs_at_once_are_stored_in_few_transactions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The renewal of leases is a transaction as well.
    monkeypatch.setattr("batonkit.runs.stored.journal._MAX_RENEW_INTERVAL", 1200.0)

    @tool(effect="idempotent")
    async def act() -> str:
        """Act."""
        return "done"

    store = SQLiteStore(tmp_path / "runs.db", lease_seconds=3600)
    runs = 50
    async with Runner(Agent("Desk", model=ActsTwice(), tools=[act]), store=store) as runner:
        statements = trace(store)
        results = await asyncio.gather(*[runner.run("hi") for _ in range(runs)])
        assert {result.status for result in results} == {"completed"}
        # Six for the first run, which is alone at first; the others write each of their six appends together.
        assert statements.count("COMMIT") <= 6 + 6 + 2
        for result in results:
            assert [event.key for event in await runner.runs.events(result.run_id)] == [
                event.key for event in result.events
            ]
            record = await store.record(result.run_id)
            assert record is not None
            assert (record.status, record.is_leased) == ("completed", False)
