"""Faults of real stores during a run: typed errors, nothing lost, and the run can be resumed afterwards."""

import asyncio

import pytest
from tests.postgres import PostgresServer
from tests.runs.test_journal_store_faults import PayingTeam, assert_recovers
from tests.unfinished import list_unfinished
from tests.waiting import until

from batonkit.errors import StoreError
from batonkit.stores import PostgresStore


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Retry with short pauses."""
    monkeypatch.setattr("batonkit.runs.stored.journal._FIRST_PAUSE", 0.001)


async def test_closed_postgres_connections_do_not_affect_the_run(own_postgres_server: PostgresServer) -> None:
    async def cut() -> None:
        terminate_others = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()"
        await asyncio.to_thread(own_postgres_server.execute, terminate_others + " AND backend_type = 'client backend'")

    team = PayingTeam(cut)
    store = PostgresStore(own_postgres_server.empty_place())
    result = await team.runner(store).run("hi", run_id="r")
    assert (result.output, set(team.paid.values())) == ("done", {1})
    assert (await team.runner(store).runs.replay("r")).events == result.events
    await store.close()


async def test_a_run_survives_a_stopped_postgres_server(own_postgres_server: PostgresServer) -> None:
    store = PostgresStore(own_postgres_server.empty_place(), timeout=2)

    async def crash() -> None:
        await asyncio.to_thread(own_postgres_server.stop, crash=True)

    team = PayingTeam(crash, lease_seconds=2.0)
    with pytest.raises(StoreError):
        await team.runner(store).run("hi", run_id="r")
    await asyncio.to_thread(own_postgres_server.start)
    other = team.runner(store)
    await until(lambda: list_unfinished(other))
    await assert_recovers(team, other)
    await store.close()


async def test_a_restart_of_the_postgres_server_does_not_affect_the_run(
    own_postgres_server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("batonkit.runs.stored.journal._FIRST_PAUSE", 0.05)
    store = PostgresStore(own_postgres_server.empty_place())

    async def restart() -> None:
        await asyncio.to_thread(own_postgres_server.stop, crash=True)
        await asyncio.to_thread(own_postgres_server.start)

    team = PayingTeam(restart)
    assert (await team.runner(store).run("hi")).output == "done"
    assert set(team.paid.values()) == {1}
    await store.close()
