"""Faults of real stores during a run: typed errors, nothing lost, and the run can be resumed afterwards."""

import asyncio
import sqlite3
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from tests.runs.recording_store import ManualClock
from tests.unfinished import recover

from batonkit import Agent, RunContext, Runner, tool
from batonkit.errors import StoreError
from batonkit.stores import SQLiteStore, Store
from batonkit.testing import ScriptedModel, call

Fault = Callable[[], Awaitable[None]]


LEASE_SECONDS = 3600.0


@pytest.fixture(autouse=True)
def short_pauses_and_no_renewals(monkeypatch: pytest.MonkeyPatch) -> None:
    """Retry with short pauses; let no renewal that is under way outlast the run and its fault."""
    monkeypatch.setattr("batonkit.runs.stored.journal._FIRST_PAUSE", 0.001)
    monkeypatch.setattr("batonkit.runs.stored.journal._MAX_RENEW_INTERVAL", LEASE_SECONDS / 3)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


class PayingTeam:
    """A team that pays three times; the fault happens after the second payment."""

    def __init__(self, fault: Fault, lease_seconds: float = LEASE_SECONDS) -> None:
        self.paid: Counter[str] = Counter()
        self._fault: Fault | None = fault
        self._lease_seconds = lease_seconds

    def runner(self, store: Any) -> Runner[Any, Any]:
        @tool
        async def pay(ctx: RunContext, number: int) -> str:
            """Pay."""
            self.paid[ctx.idempotency_key] += 1
            if number == 2 and self._fault is not None:
                fault, self._fault = self._fault, None
                await fault()
            return f"paid {number} {'x' * 20_000}"

        def next_step(request: Any) -> Any:
            earlier_calls = sum(bool(getattr(message, "tool_calls", ())) for message in request.messages)
            return call("pay", number=earlier_calls + 1) if earlier_calls < 3 else "done"

        agent = Agent("A", model=ScriptedModel([next_step], cycle=True), tools=[pay])
        store.lease_seconds = self._lease_seconds
        return Runner(agent, store=store)


async def assert_completes_after_repair(
    clock: ManualClock, team: PayingTeam, broken: Store, repair: Fault, repaired: Store
) -> None:
    """Assert that the run fails with a StoreError, and that another runner completes it after the repair."""
    with pytest.raises(StoreError):
        await team.runner(broken).run("hi", run_id="r")
    await repair()
    clock.now += LEASE_SECONDS
    await assert_recovers(team, team.runner(repaired))


async def assert_recovers(team: PayingTeam, other: Runner[Any, Any]) -> None:
    """Assert that a runner completes the run whose lease has expired."""
    assert await recover(other) == {"r": "completed"}
    result = await other.runs.replay("r")
    assert result.output == "done"
    # Only the payment whose result was lost is repeated, with the same key.
    assert sorted(team.paid.items()) == [("r:1/m1.0", 1), ("r:1/m2.0", 2), ("r:1/m3.0", 1)]


def execute_in(store: SQLiteStore, statement: str) -> Any:
    """Execute a statement with the store's own connection."""
    file = store._file
    return file.read(lambda connection: connection.execute(statement).fetchall())


async def test_a_run_survives_a_full_disk(tmp_path: Path, clock: ManualClock) -> None:
    store = SQLiteStore(tmp_path / "runs.db", clock=clock)

    async def fill() -> None:
        ((pages,),) = execute_in(store, "PRAGMA page_count")
        execute_in(store, f"PRAGMA max_page_count = {pages + 1}")

    async def repair() -> None:
        await store.close()

    await assert_completes_after_repair(clock, PayingTeam(fill), store, repair, store)
    await store.close()


async def test_a_run_survives_a_read_only_file(tmp_path: Path, clock: ManualClock) -> None:
    store, other = [SQLiteStore(tmp_path / "runs.db", clock=clock) for _ in range(2)]

    async def forbid() -> None:
        # Each time the store reopens the file.
        opened = store._file._connect

        def read_only() -> sqlite3.Connection:
            connection = opened()
            connection.execute("PRAGMA query_only = 1")
            return connection

        await store.close()
        store._file._connect = read_only

    async def repair() -> None:
        await store.close()

    await assert_completes_after_repair(clock, PayingTeam(forbid), store, repair, other)
    await other.close()


async def test_a_run_survives_a_locked_database(tmp_path: Path, clock: ManualClock) -> None:
    path = tmp_path / "runs.db"
    store = SQLiteStore(path, timeout=0.005, clock=clock)
    held: list[sqlite3.Connection] = []

    async def lock() -> None:
        connection = sqlite3.connect(path, isolation_level=None)
        connection.execute("BEGIN IMMEDIATE")
        held.append(connection)

    async def repair() -> None:
        held[0].close()

    await assert_completes_after_repair(clock, PayingTeam(lock), store, repair, store)
    await store.close()


async def test_a_short_lock_does_not_affect_the_run(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    store = SQLiteStore(path, timeout=60)

    async def lock_briefly() -> None:
        connection = sqlite3.connect(path, isolation_level=None)
        connection.execute("BEGIN IMMEDIATE")
        asyncio.get_running_loop().call_later(0.02, connection.close)

    team = PayingTeam(lock_briefly)
    assert (await team.runner(store).run("hi")).output == "done"
    assert set(team.paid.values()) == {1}
    await store.close()
