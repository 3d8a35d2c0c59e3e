"""A store in PostgreSQL when things go wrong: typed errors, nothing half-written, and it works again afterwards."""

import asyncio
import builtins
import sys
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import psycopg
import pytest
from tests.postgres import PostgresServer

from baton.errors import LogError, RunConflictError, RunExistsError, SetupError, StoreError
from baton.stores import PostgresStore, Store


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    """A server of one's own, to stop and start."""
    server = PostgresServer()
    try:
        server.start()
        yield server
    finally:
        server.remove()


@asynccontextmanager
async def _opened(url: str, **options: Any) -> AsyncGenerator[Store]:
    store = PostgresStore(url, **options)
    try:
        yield store
    finally:
        await store.close()


async def test_a_server_that_restarts_in_the_middle_of_a_run(server: PostgresServer) -> None:
    async with _opened(server.empty_place()) as store:
        await store.create("r", [b"0"])
        await asyncio.gather(*(store.create(f"other{number}", []) for number in range(8)))
        server.stop(crash=True)
        server.start()
        await store.append("r", 1, [b"1"])
        assert list(await store.load("r")) == [b"0", b"1"]
        server.stop()
        down = asyncio.create_task(store.append("r", 2, [b"2"]))
        await asyncio.sleep(0)
        await asyncio.to_thread(server.start)
        await down
        assert list(await store.load("r")) == [b"0", b"1", b"2"]


async def test_a_server_that_is_gone_for_long(server: PostgresServer) -> None:
    async with _opened(server.empty_place(), timeout=2) as store:
        await store.create("r", [b"0"])
        server.stop()
        with pytest.raises(StoreError, match="the server cannot be reached; check that it runs") as gone:
            await store.append("r", 1, [b"1"])
        assert gone.value.store == repr(store)
        server.start()
        await store.append("r", 1, [b"1"], status="completed")
        assert list(await store.load("r")) == [b"0", b"1"]


async def test_connections_that_are_cut(postgres_server: PostgresServer, postgres_url: str) -> None:
    async with _opened(postgres_url) as store:
        await store.create("r", [])
        for seq in range(3):
            _cut_all(postgres_server)
            await store.append("r", seq, [b"%d" % seq])
        _cut_all(postgres_server)
        assert list(await store.load("r")) == [b"0", b"1", b"2"]


class _CutsAfterwards:
    """Cuts the connection after the server has done what it was asked, and before the answer arrives: once."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.cuts = 0
        execute = psycopg.AsyncConnection[Any].execute

        async def done_but_cut(
            connection: psycopg.AsyncConnection[Any], statement: Any, *args: Any, **more: Any
        ) -> Any:
            cursor = await execute(connection, statement, *args, **more)
            if self.cuts and "last_write" in str(statement):
                self.cuts -= 1
                connection.pgconn.finish()
                raise psycopg.OperationalError("server closed the connection unexpectedly")
            return cursor

        monkeypatch.setattr(psycopg.AsyncConnection, "execute", done_but_cut)


async def test_a_writer_whose_answer_was_lost_knows_its_own_lines(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    cutter = _CutsAfterwards(monkeypatch)
    async with _opened(postgres_url) as store:
        await store.create("first", [])
        cutter.cuts = 1
        lease = await store.create("r", [b"0"], worker="me", ttl=60)
        assert cutter.cuts == 0
        assert (lease.fence, lease.worker) == (1, "me")
        cutter.cuts = 1
        await store.append("r", 1, [b"1"], fence=lease.fence)
        assert cutter.cuts == 0
        assert list(await store.load("r")) == [b"0", b"1"]
        with pytest.raises(RunConflictError):
            await store.append("r", 1, [b"1"])
        with pytest.raises(RunExistsError):
            await store.create("r", [b"0"], worker="me", ttl=60)


async def test_a_server_that_is_not_there() -> None:
    async with _opened("postgresql://baton:secret@127.0.0.1:1/runs", timeout=2) as store:
        with pytest.raises(StoreError, match="the server cannot be reached") as refused:
            await store.create("r", [])
    assert "PostgresStore('postgresql://baton@127.0.0.1:1/runs')" in str(refused.value)
    assert "secret" not in f"{refused.value}{store!r}"


async def test_a_database_that_is_not_there(postgres_server: PostgresServer) -> None:
    url = postgres_server.url_of("nowhere")
    async with _opened(url) as store:
        with pytest.raises(StoreError, match="there is no such database; create it first"):
            await store.create("r", [])
        postgres_server.execute("CREATE DATABASE nowhere")
        try:
            await store.create("r", [])
            await store.close()
        finally:
            postgres_server.execute("DROP DATABASE nowhere WITH (FORCE)")


async def test_a_wrong_password(server: PostgresServer) -> None:
    server.execute("CREATE ROLE clerk LOGIN SUPERUSER PASSWORD 'right'")
    rules = server.folder / "data" / "pg_hba.conf"
    rules.write_text("local all clerk scram-sha-256\nlocal all all trust\n")
    server.execute("SELECT pg_reload_conf()")
    wrong = server.url_of("postgres", user="clerk:wrong")
    async with _opened(wrong) as store:
        with pytest.raises(StoreError, match="the server rejects this user or password") as refused:
            await store.create("r", [])
    assert "wrong@" not in str(refused.value)
    async with _opened(server.url_of("postgres", user="clerk:right")) as store:
        await store.create("r", [])


async def test_a_user_who_may_not_make_tables(postgres_server: PostgresServer, postgres_url: str) -> None:
    postgres_server.execute("DROP ROLE IF EXISTS guest")
    postgres_server.execute("CREATE ROLE guest LOGIN")
    async with _opened(postgres_server.url_of("postgres", user="guest")) as store:
        with pytest.raises(StoreError, match="this user lacks a privilege; grant it CREATE"):
            await store.create("r", [])


async def test_a_server_that_takes_no_writes(postgres_url: str) -> None:
    async with _opened(postgres_url) as store:
        await store.create("r", [b"0"])
    reading = postgres_url.replace("-csearch_path", "-cdefault_transaction_read_only%3Don%20-csearch_path")
    async with _opened(reading) as store:
        assert list(await store.load("r")) == [b"0"]
        with pytest.raises(StoreError, match="the server is read-only"):
            await store.append("r", 1, [b"1"])


async def test_tables_of_version_1_are_brought_up_to_date_with_all_that_is_in_them(postgres_url: str) -> None:
    async with _opened(postgres_url) as store:
        await store.create("r", [b"0"])
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute("DROP TABLE baton_notes")
        connection.execute("ALTER TABLE baton_runs DROP COLUMN owner")
        connection.execute("ALTER TABLE baton_runs RENAME COLUMN worker TO owner")
        connection.execute("ALTER TABLE baton_runs RENAME COLUMN cancel_requested TO cancel")
        connection.execute("DELETE FROM baton_layout WHERE version > 1")
    async with _opened(postgres_url) as store, _opened(postgres_url) as other:
        both = [each.list(owner="", count_total=True) for each in (store, other)]
        assert [page.total for page in await asyncio.gather(*both)] == [1, 1]
        await other.put_note("r", "n", b"note")
        assert await store.notes("r") == {"n": b"note"}
        assert [*await store.load("r")] == [b"0"]


async def test_a_newer_layout_is_refused_by_name(postgres_url: str) -> None:
    async with _opened(postgres_url) as store:
        await store.create("r", [])
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute("UPDATE baton_layout SET version = 7")
    async with _opened(postgres_url) as store:
        with pytest.raises(StoreError, match="its layout is version 7, made by a newer Baton; this one reads up to 3"):
            await store.load("r")


async def test_tables_that_were_removed_and_come_back(postgres_url: str) -> None:
    async with _opened(postgres_url) as store:
        await store.create("r", [])
        with psycopg.connect(postgres_url, autocommit=True) as connection:
            connection.execute("DROP TABLE baton_notes, baton_pieces, baton_runs, baton_layout")
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
    async with _opened(postgres_url) as store:
        await store.create("r", [b"{}"])
        for seq in range(1, 4):
            await store.append("r", seq, [b'{"a":1}'])
        with psycopg.connect(postgres_url, autocommit=True) as connection:
            connection.execute(statement.encode())
        with pytest.raises(LogError) as broken:
            await store.load("r")
        assert broken.value.position == where


async def test_more_tasks_than_connections(postgres_url: str) -> None:
    async with _opened(postgres_url, max_connections=2) as store:
        await asyncio.gather(*(store.create(f"r{number}", [b"0"]) for number in range(40)))
        assert len((await store.list()).records) == 40


def test_a_store_is_used_in_one_event_loop_after_another(postgres_url: str) -> None:
    store = PostgresStore(postgres_url)
    asyncio.run(store.create("r", [b"0"]))
    asyncio.run(store.append("r", 1, [b"1"]))

    async def read_and_close() -> list[bytes]:
        lines = list(await store.load("r"))
        await store.close()
        return lines

    assert asyncio.run(read_and_close()) == [b"0", b"1"]


def test_an_address_that_cannot_be_read() -> None:
    with pytest.raises(SetupError, match=r"cannot parse the address of PostgresStore: .*nonsense"):
        PostgresStore("postgresql://host/runs?nonsense=1")


def test_without_its_package_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    really = builtins.__import__

    def refuse(name: str, *rest: Any, **more: Any) -> Any:
        if name.partition(".")[0] in ("psycopg", "psycopg_pool"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return really(name, *rest, **more)

    monkeypatch.delitem(sys.modules, "baton.stores.postgres_pool", raising=False)
    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(
        SetupError, match=r"a package that is not installed \(psycopg\); pip install 'baton-adk\[postgres\]'"
    ):
        PostgresStore("postgresql://host/runs")


def _cut_all(server: PostgresServer) -> None:
    server.execute(
        "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity "
        "WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'"
    )
