"""Faults of real stores during a run: typed errors, nothing lost, and the run can be resumed afterwards."""

import asyncio
import sqlite3
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from tests.postgres import PostgresServer

from baton import Agent, RunContext, Runner, tool
from baton.errors import StoreError
from baton.stores import PostgresStore, SQLiteStore, Store
from baton.testing import ScriptedModel, call

Fault = Callable[[], Awaitable[None]]


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Attempts come one after the other."""
    monkeypatch.setattr("baton.runner.journal._FIRST_PAUSE", 0.001)


class Shop:
    """A team that pays three times; the fault happens with the second, once it is paid."""

    def __init__(self, fault: Fault) -> None:
        self.paid: Counter[str] = Counter()
        self._fault: Fault | None = fault

    def runner(self, store: Store) -> Runner[Any, Any]:
        @tool
        async def pay(ctx: RunContext, number: int) -> str:
            """Pay."""
            self.paid[ctx.idempotency_key] += 1
            if number == 2 and self._fault is not None:
                fault, self._fault = self._fault, None
                await fault()
            return f"paid {number} {'x' * 20_000}"

        def next_step(request: Any) -> Any:
            made = sum(bool(getattr(message, "tool_calls", ())) for message in request.messages)
            return call("pay", number=made + 1) if made < 3 else "done"

        return Runner(
            Agent("A", model=ScriptedModel([next_step], cycle=True), tools=[pay]), store=store, lease_seconds=0.05
        )


async def finishes_after_repair(shop: Shop, broken: Store, repair: Fault, whole: Store) -> None:
    """The run fails with a StoreError, and another runner ends it when the fault is gone."""
    with pytest.raises(StoreError):
        await shop.runner(broken).run("hi", run_id="r")
    await repair()
    other = shop.runner(whole)
    while not await other.list_unfinished():
        await asyncio.sleep(0.01)
    assert await other.recover() == {"r": "completed"}
    result = await other.replay("r")
    assert result.output == "done"
    # The one whose result was lost is paid again under the same key; none of the others is.
    assert sorted(shop.paid.items()) == [("r:1/m1.0", 1), ("r:1/m2.0", 2), ("r:1/m3.0", 1)]


def connection_of(store: SQLiteStore, statement: str) -> Any:
    """Have the store's own connection do something."""
    file = store._file
    return file.read(lambda connection: connection.execute(statement).fetchall())


async def test_a_full_disk(tmp_path: Path) -> None:
    # D8
    store = SQLiteStore(tmp_path / "runs.db")

    async def fill() -> None:
        ((pages,),) = connection_of(store, "PRAGMA page_count")
        connection_of(store, f"PRAGMA max_page_count = {pages + 1}")

    async def repair() -> None:
        await store.close()

    await finishes_after_repair(Shop(fill), store, repair, store)
    await store.close()


async def test_a_file_that_may_not_be_written_to(tmp_path: Path) -> None:
    # D8
    store, other = SQLiteStore(tmp_path / "runs.db"), SQLiteStore(tmp_path / "runs.db")

    async def forbid() -> None:
        # As often as the store reopens the file.
        opened = store._file._connect

        def read_only() -> sqlite3.Connection:
            connection = opened()
            connection.execute("PRAGMA query_only = 1")
            return connection

        await store.close()
        store._file._connect = read_only

    async def repair() -> None:
        await store.close()

    await finishes_after_repair(Shop(forbid), store, repair, other)
    await other.close()


async def test_a_locked_database(tmp_path: Path) -> None:
    # D8
    path = tmp_path / "runs.db"
    store = SQLiteStore(path, timeout=0.005)
    held: list[sqlite3.Connection] = []

    async def lock() -> None:
        connection = sqlite3.connect(path, isolation_level=None)
        connection.execute("BEGIN IMMEDIATE")
        held.append(connection)

    async def repair() -> None:
        held[0].close()

    await finishes_after_repair(Shop(lock), store, repair, store)
    await store.close()


async def test_a_lock_that_is_let_go_in_time_is_not_noticed(tmp_path: Path) -> None:
    # D8
    path = tmp_path / "runs.db"
    store = SQLiteStore(path, timeout=5)

    async def lock_for_a_moment() -> None:
        connection = sqlite3.connect(path, isolation_level=None)
        connection.execute("BEGIN IMMEDIATE")
        asyncio.get_running_loop().call_later(0.02, connection.close)

    shop = Shop(lock_for_a_moment)
    assert (await shop.runner(store).run("hi")).output == "done"
    assert set(shop.paid.values()) == {1}
    await store.close()


async def test_connections_to_postgres_that_are_cut_are_not_noticed(
    postgres_server: PostgresServer, postgres_url: str
) -> None:
    # D8
    async def cut() -> None:
        everybody = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()"
        await asyncio.to_thread(postgres_server.execute, everybody + " AND backend_type = 'client backend'")

    shop = Shop(cut)
    store = PostgresStore(postgres_url)
    result = await shop.runner(store).run("hi", run_id="r")
    assert (result.output, set(shop.paid.values())) == ("done", {1})
    assert (await shop.runner(store).replay("r")).events == result.events
    await store.close()


async def test_a_postgres_server_that_stops_in_the_middle_of_a_run(
    postgres_server: PostgresServer, postgres_url: str
) -> None:
    # D8
    store = PostgresStore(postgres_url, timeout=2)

    async def crash() -> None:
        await asyncio.to_thread(postgres_server.stop, crash=True)

    async def repair() -> None:
        await asyncio.to_thread(postgres_server.start)

    await finishes_after_repair(Shop(crash), store, repair, store)
    await store.close()


async def test_a_postgres_server_that_restarts_is_not_noticed(
    postgres_server: PostgresServer, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # D8
    monkeypatch.setattr("baton.runner.journal._FIRST_PAUSE", 0.05)
    store = PostgresStore(postgres_url)

    async def restart() -> None:
        await asyncio.to_thread(postgres_server.stop, crash=True)
        await asyncio.to_thread(postgres_server.start)

    shop = Shop(restart)
    assert (await shop.runner(store).run("hi")).output == "done"
    assert set(shop.paid.values()) == {1}
    await store.close()
