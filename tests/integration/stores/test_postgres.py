"""Failures of a PostgreSQL store: typed errors, no partial writes, and recovery afterwards."""

import asyncio
import builtins
import re
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import psycopg
import pytest
from tests.postgres import PostgresAddress, PostgresServer, locked_run

from batonkit.errors import LogError, MissingExtraError, RunConflictError, RunExistsError, SetupError, StoreError
from batonkit.stores import PostgresStore, Store
from batonkit.stores.postgres import pool as postgres_pool


@asynccontextmanager
async def _open_store(url: str, **options: Any) -> AsyncGenerator[Store]:
    store = PostgresStore(url, **options)
    try:
        yield store
    finally:
        await store.close()


async def test_a_restart_of_the_server_during_a_run_is_survived(own_postgres_server: PostgresServer) -> None:
    async with _open_store(own_postgres_server.empty_place()) as store:
        await store.create("r", [b"0"])
        await asyncio.gather(*(store.create(f"other{number}", []) for number in range(8)))
        own_postgres_server.stop(crash=True)
        own_postgres_server.start()
        await store.append("r", 1, [b"1"])
        assert list(await store.load("r")) == [b"0", b"1"]
        own_postgres_server.stop()
        down = asyncio.create_task(store.append("r", 2, [b"2"]))
        await asyncio.sleep(0)
        await asyncio.to_thread(own_postgres_server.start)
        await down
        assert list(await store.load("r")) == [b"0", b"1", b"2"]


async def test_a_server_that_stays_down_raises_a_store_error(own_postgres_server: PostgresServer) -> None:
    async with _open_store(own_postgres_server.empty_place(), timeout=2) as store:
        await store.create("r", [b"0"])
        own_postgres_server.stop()
        with pytest.raises(StoreError, match="the server cannot be reached; check that it runs") as gone:
            await store.append("r", 1, [b"1"])
        assert gone.value.store == repr(store)
        own_postgres_server.start()
        await store.append("r", 1, [b"1"], status="completed")
        assert list(await store.load("r")) == [b"0", b"1"]


async def test_closed_connections_are_replaced(own_postgres_server: PostgresServer) -> None:
    async with _open_store(own_postgres_server.empty_place()) as store:
        await store.create("r", [])
        for seq in range(3):
            _cut_all(own_postgres_server)
            await store.append("r", seq, [b"%d" % seq])
        _cut_all(own_postgres_server)
        assert list(await store.load("r")) == [b"0", b"1", b"2"]


class _CutsWhileOpening:
    """Cuts the connections that begin to create the tables, as a server does that an administrator restarts."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, server: PostgresServer, *, cuts: int) -> None:
        self.cuts = cuts
        execute = psycopg.AsyncConnection[Any].execute

        async def cut_and_execute(
            connection: psycopg.AsyncConnection[Any], statement: Any, *args: Any, **more: Any
        ) -> Any:
            if self.cuts and "baton_layout" in str(statement):
                self.cuts -= 1
                _cut_all(server)
            return await execute(connection, statement, *args, **more)

        monkeypatch.setattr(psycopg.AsyncConnection, "execute", cut_and_execute)


async def test_the_first_use_survives_connections_that_are_cut(
    own_postgres_server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    cutting = _CutsWhileOpening(monkeypatch, own_postgres_server, cuts=3)
    async with _open_store(own_postgres_server.empty_place()) as store:
        await store.create("r", [b"0"])
        assert cutting.cuts == 0
        assert list(await store.load("r")) == [b"0"]


async def test_sessions_do_not_hold_or_await_locks_longer_than_a_call_lasts(postgres_url: str) -> None:
    store = PostgresStore(postgres_url, timeout=7)
    assert await _session_limits(store) == ("7s", "7s")
    await store.close()


async def test_limits_of_sessions_that_the_address_sets_are_kept(postgres_url: str) -> None:
    store = PostgresStore(postgres_url.replace("options=", "options=-clock_timeout%3D3s%20"), timeout=7)
    assert await _session_limits(store) == ("3s", "7s")
    await store.close()


async def _session_limits(store: PostgresStore) -> tuple[Any, ...]:
    names = "current_setting('lock_timeout'), current_setting('idle_in_transaction_session_timeout')"
    return (await store._pool.fetch(f"SELECT {names}", ()))[0]


async def test_a_write_to_a_run_that_stays_locked_raises_a_store_error(postgres_url: str) -> None:
    async with _open_store(postgres_url.replace("options=", "options=-clock_timeout%3D300ms%20")) as store:
        await store.create("r", [])
        async with locked_run(postgres_url, "r"):
            with pytest.raises(StoreError, match="another transaction has locked these rows for too long"):
                await store.append("r", 0, [b"0"])
        await store.append("r", 0, [b"0"])


class _LostResponse:
    """Closes the connection once, after the server has committed and before its response arrives."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.cuts = 0
        execute = psycopg.AsyncConnection[Any].execute

        async def execute_and_disconnect(
            connection: psycopg.AsyncConnection[Any], statement: Any, *args: Any, **more: Any
        ) -> Any:
            cursor = await execute(connection, statement, *args, **more)
            if self.cuts and "last_write" in str(statement):
                self.cuts -= 1
                connection.pgconn.finish()
                raise psycopg.OperationalError("server closed the connection unexpectedly")
            return cursor

        monkeypatch.setattr(psycopg.AsyncConnection, "execute", execute_and_disconnect)


async def test_a_write_whose_response_was_lost_is_not_repeated(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost_response = _LostResponse(monkeypatch)
    async with _open_store(postgres_url) as store:
        await store.create("first", [])
        lost_response.cuts = 1
        lease = await store.create("r", [b"0"], worker="me", ttl=60)
        assert lost_response.cuts == 0
        assert (lease.fence, lease.worker) == (1, "me")
        lost_response.cuts = 1
        await store.append("r", 1, [b"1"], fence=lease.fence)
        assert lost_response.cuts == 0
        assert list(await store.load("r")) == [b"0", b"1"]
        with pytest.raises(RunConflictError):
            await store.append("r", 1, [b"1"])
        with pytest.raises(RunExistsError):
            await store.create("r", [b"0"], worker="me", ttl=60)


async def test_an_unreachable_server_raises_a_store_error() -> None:
    async with _open_store("postgresql://baton:secret@127.0.0.1:1/runs", timeout=2) as store:
        with pytest.raises(StoreError, match="the server cannot be reached") as refused:
            await store.create("r", [])
    assert "PostgresStore('postgresql://baton@127.0.0.1:1/runs')" in str(refused.value)
    assert "secret" not in f"{refused.value}{store!r}"


async def test_a_missing_database_raises_a_store_error(postgres_server: PostgresAddress) -> None:
    url = postgres_server.url_of("nowhere")
    async with _open_store(url) as store:
        with pytest.raises(StoreError, match="there is no such database; create it first"):
            await store.create("r", [])
        postgres_server.execute("CREATE DATABASE nowhere")
        try:
            await store.create("r", [])
            await store.close()
        finally:
            postgres_server.execute("DROP DATABASE nowhere WITH (FORCE)")


async def test_a_wrong_password_raises_a_store_error(own_postgres_server: PostgresServer) -> None:
    own_postgres_server.execute("CREATE ROLE clerk LOGIN SUPERUSER PASSWORD 'right'")
    rules = own_postgres_server.folder / "data" / "pg_hba.conf"
    rules.write_text("local all clerk scram-sha-256\nlocal all all trust\n")
    own_postgres_server.execute("SELECT pg_reload_conf()")
    wrong = own_postgres_server.url_of("postgres", user="clerk:wrong")
    async with _open_store(wrong) as store:
        with pytest.raises(StoreError, match="the server rejects this user or password") as refused:
            await store.create("r", [])
    assert "wrong@" not in str(refused.value)
    async with _open_store(own_postgres_server.url_of("postgres", user="clerk:right")) as store:
        await store.create("r", [])


async def test_a_user_without_create_privilege_raises_a_store_error(
    postgres_server: PostgresAddress, postgres_url: str
) -> None:
    postgres_server.execute("DROP ROLE IF EXISTS guest")
    postgres_server.execute("CREATE ROLE guest LOGIN")
    async with _open_store(postgres_server.url_of("postgres", user="guest")) as store:
        with pytest.raises(StoreError, match="this user lacks a privilege; grant it CREATE"):
            await store.create("r", [])


async def test_a_read_only_server_raises_a_store_error_on_writes(postgres_url: str) -> None:
    async with _open_store(postgres_url) as store:
        await store.create("r", [b"0"])
    reading = postgres_url.replace("-csearch_path", "-cdefault_transaction_read_only%3Don%20-csearch_path")
    async with _open_store(reading) as store:
        assert list(await store.load("r")) == [b"0"]
        with pytest.raises(StoreError, match="the server is read-only"):
            await store.append("r", 1, [b"1"])


async def test_no_index_has_a_column_that_renewals_or_appends_change(postgres_url: str) -> None:
    # Each of them would turn HOT updates into changes of every index.
    async with _open_store(postgres_url) as store:
        await store.runnable()
    with psycopg.connect(postgres_url) as connection:
        found = connection.execute(
            "SELECT indexdef FROM pg_indexes WHERE tablename = 'baton_runs' AND schemaname = current_schema()"
        ).fetchall()
        options = connection.execute("SELECT reloptions FROM pg_class WHERE oid = 'baton_runs'::regclass").fetchone()
    changed = {"lease_until", "lease_seconds", "updated_at", "seq", "last_write", "reader", "wake_at", "inbox"}
    assert len(found) >= 10
    assert [text for (text,) in found if changed & {*re.findall(r"\w+", text)}] == []
    assert options == (["fillfactor=50"],)


@pytest.mark.parametrize("change", ["UPDATE baton_layout SET version = 7", "DELETE FROM baton_layout"])
async def test_tables_with_another_layout_are_refused_and_kept(postgres_url: str, change: str) -> None:
    async with _open_store(postgres_url) as store:
        await store.create("r", [])
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(change.encode())
    async with _open_store(postgres_url) as store:
        with pytest.raises(
            StoreError, match=r"its layout is (7|None), but this version of Baton has layout 1: it was made by an unrel"
        ):
            await store.load("r")
    with psycopg.connect(postgres_url) as connection:
        assert connection.execute("SELECT run_id FROM baton_runs").fetchall() == [("r",)]


async def test_removed_tables_raise_and_are_created_again(postgres_url: str) -> None:
    async with _open_store(postgres_url) as store:
        await store.create("r", [])
        with psycopg.connect(postgres_url, autocommit=True) as connection:
            connection.execute(
                "DROP TABLE baton_notes, baton_pieces, baton_runnable, baton_runs, baton_inbox, baton_layout"
            )
        with pytest.raises(StoreError, match="its tables were changed or removed"):
            await store.append("r", 0, [b"0"])
        await store.close()
        await store.create("r", [])


@pytest.mark.parametrize(
    ("statement", "where"),
    [
        ("UPDATE baton_pieces SET lines = set_byte(lines, 14, 0) WHERE first = 2", 2),
        ("DELETE FROM baton_pieces WHERE first = 1", 1),
        ("DELETE FROM baton_pieces WHERE first = 3", 3),
    ],
)
async def test_damaged_and_missing_lines_are_detected(postgres_url: str, statement: str, where: int) -> None:
    async with _open_store(postgres_url) as store:
        await store.create("r", [b"{}"])
        for seq in range(1, 4):
            await store.append("r", seq, [b'{"a":1}'])
        with psycopg.connect(postgres_url, autocommit=True) as connection:
            connection.execute(statement.encode())
        with pytest.raises(LogError) as broken:
            await store.load("r")
        assert broken.value.position == where


async def test_more_tasks_than_connections_are_queued(postgres_url: str) -> None:
    async with _open_store(postgres_url, max_connections=2) as store:
        await asyncio.gather(*(store.create(f"r{number}", [b"0"]) for number in range(40)))
        assert len((await store.list()).records) == 40


def test_a_store_can_be_used_in_consecutive_event_loops(postgres_url: str) -> None:
    store = PostgresStore(postgres_url)
    asyncio.run(store.create("r", [b"0"]))
    asyncio.run(store.append("r", 1, [b"1"]))

    async def read_and_close() -> list[bytes]:
        lines = list(await store.load("r"))
        await store.close()
        return lines

    assert asyncio.run(read_and_close()) == [b"0", b"1"]


def test_an_invalid_address_is_refused() -> None:
    with pytest.raises(SetupError, match=r"cannot parse the address of PostgresStore: .*nonsense"):
        PostgresStore("postgresql://host/runs?nonsense=1")


def test_a_missing_package_error_has_the_pip_command(monkeypatch: pytest.MonkeyPatch) -> None:
    real_import = builtins.__import__

    def refuse(name: str, *rest: Any, **more: Any) -> Any:
        if name.partition(".")[0] in ("psycopg", "psycopg_pool"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return real_import(name, *rest, **more)

    monkeypatch.delitem(sys.modules, "batonkit.stores.postgres.pool", raising=False)
    monkeypatch.setattr(builtins, "__import__", refuse)
    message = r"PostgresStore needs `psycopg`, which is not installed: pip install 'batonkit\[postgres\]'"
    with pytest.raises(MissingExtraError, match=message):
        PostgresStore("postgresql://host/runs")


def _cut_all(server: PostgresServer) -> None:
    server.execute(
        "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity "
        "WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'"
    )


async def test_one_connection_finds_out_why_many_callers_got_none(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Otherwise every caller would connect to a server that has no connection to spare.
    store = PostgresStore(postgres_url, max_connections=1, timeout=4)
    await store.create("r", [])
    explained: list[object] = []
    explain = postgres_pool.PostgresPool._explain_timeout

    async def count(self: Any, pool: Any) -> StoreError:
        explained.append(pool)
        while pool.get_stats().get("requests_errors", 0) < 20:  # Until every caller has waited long enough.
            await asyncio.sleep(0.01)
        return await explain(self, pool)

    monkeypatch.setattr(postgres_pool.PostgresPool, "_explain_timeout", count)
    pool = await store._pool._open()
    async with pool.connection():
        ended = await asyncio.gather(*[store.record("r") for _ in range(20)], return_exceptions=True)
    assert {str(error) for error in ended if isinstance(error, StoreError)} == {
        f"{store!r}: all 1 connections were in use for 2 s; raise PostgresStore(max_connections=…)"
    }
    assert len(explained) == 1
    await store.close()
