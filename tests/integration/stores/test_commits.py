"""Group commits: runs that write at the same time share a transaction, and one failure stays with its own run."""

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest
from tests.postgres import PostgresServer
from tests.stores import test_commits as commits
from tests.stores.test_commits import (
    LIMIT,
    _outcome,
    create_runs,
    kinds,
    lengths,
    together,
)

from batonkit.errors import StoreError
from batonkit.stores import Lease, PostgresStore, RunFlags


@pytest.fixture
async def postgres(postgres_url: str) -> AsyncIterator[PostgresStore]:
    opened = PostgresStore(postgres_url)
    async with asyncio.timeout(LIMIT):
        yield opened
        await opened.close()


CHECKS = [
    commits.test_a_refused_write_fails_alone,
    commits.test_of_runs_with_the_same_key_in_one_group_one_wins,
    commits.test_an_append_returns_its_own_flags,
    commits.test_leases_are_renewed_while_runs_write,
    commits.test_a_cancelled_writer_has_written_all_or_nothing,
    commits.test_a_store_that_is_closed_has_written_what_waits,
    commits.test_after_a_failed_commit_only_the_run_that_caused_it_fails,
]


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__.removeprefix("test_"))
async def test_group_commits_in_postgres(
    check: Callable[[PostgresStore], Awaitable[None]], postgres: PostgresStore
) -> None:
    await check(postgres)


async def test_writes_of_several_runs_share_a_transaction_in_postgres(postgres: PostgresStore) -> None:
    await create_runs(postgres, 20)
    outcomes = await together(*[postgres.append(f"r{number}", 1, [b"x"], fence=1) for number in range(20)])
    assert kinds(outcomes) == [RunFlags] * 20
    rows = await postgres._pool.fetch("SELECT count(DISTINCT xmin::text) FROM baton_pieces WHERE first = 1", ())
    assert rows[0][0] == 2
    assert await lengths(postgres, 20) == [2] * 20


async def test_a_locked_run_does_not_hold_up_the_others(postgres_url: str) -> None:
    store = PostgresStore(postgres_url, timeout=20)
    await create_runs(store, 8)
    async with await psycopg.AsyncConnection.connect(postgres_url) as other:
        await other.execute("SELECT 1 FROM baton_runs WHERE run_id IN ('r0', 'r5') FOR UPDATE")
        # One is written alone, the other one in a group.
        tasks = [asyncio.ensure_future(store.append(f"r{number}", 1, [b"1"])) for number in range(8)]
        free = [task for number, task in enumerate(tasks) if number not in (0, 5)]
        async with asyncio.timeout(LIMIT):
            assert kinds(await together(*[_outcome(task) for task in free])) == [RunFlags] * 6
        assert not tasks[0].done()
        assert not tasks[5].done()
        await other.rollback()
    assert kinds(await together(_outcome(tasks[0]), _outcome(tasks[5]))) == [RunFlags] * 2
    await store.close()


async def test_a_value_that_cannot_be_stored_fails_alone(postgres: PostgresStore) -> None:
    await create_runs(postgres, 5)
    names = ["n", "n", "n", "zero\0byte", "n"]
    outcomes = await together(
        *[postgres.append(f"r{number}", 1, [], notes={name: b""}) for number, name in enumerate(names)]
    )
    assert kinds(outcomes) == [RunFlags, RunFlags, RunFlags, StoreError, RunFlags]


async def test_a_group_whose_response_was_lost_is_not_repeated(
    postgres: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await create_runs(postgres, 5)
    commit, cuts = psycopg.AsyncTransaction.__aexit__, [1]

    async def commit_and_disconnect(transaction: psycopg.AsyncTransaction, *error: Any) -> bool:
        ended = await commit(transaction, *error)
        if cuts and transaction.connection.pgconn.pipeline_status:
            cuts.clear()
            await transaction.connection._pipeline.sync()  # pyright: ignore
            transaction.connection.pgconn.finish()
            raise psycopg.OperationalError("server closed the connection unexpectedly")
        return ended

    monkeypatch.setattr(psycopg.AsyncTransaction, "__aexit__", commit_and_disconnect)
    outcomes = await together(
        *[postgres.append(f"r{number}", 1, [b"1"], fence=1) for number in range(5)], postgres.create("new", [b"0"])
    )
    assert not cuts
    assert kinds(outcomes) == [*[RunFlags] * 5, Lease]
    assert await lengths(postgres, 5) == [2] * 5
    assert list(await postgres.load("new")) == [b"0"]


async def test_writers_wait_for_a_server_that_hangs_no_longer_than_their_limit(
    own_postgres_server: PostgresServer,
) -> None:
    # Also for those that wait for the transaction of others.
    store = PostgresStore(own_postgres_server.empty_place(), timeout=3, max_connections=2)
    await create_runs(store, 9)
    children = Path(f"/proc/{own_postgres_server.pid}/task/{own_postgres_server.pid}/children").read_text().split()
    backends = [int(child) for child in children] + [own_postgres_server.pid]
    for pid in backends:
        os.kill(pid, signal.SIGSTOP)
    try:
        started = time.monotonic()
        tasks = [asyncio.ensure_future(store.append(f"r{number}", 1, [b"1"])) for number in range(6)]
        await asyncio.sleep(0.5)
        late = [asyncio.ensure_future(store.append(f"r{number}", 1, [b"1"])) for number in (6, 7, 8)]
        await asyncio.sleep(0.5)
        tasks[0].cancel()
        tasks[3].cancel()
        late[1].cancel()
        outcomes = await together(*[_outcome(task) for task in (*tasks, *late)])
        took = time.monotonic() - started
    finally:
        for pid in backends:
            os.kill(pid, signal.SIGCONT)
    cancelled = asyncio.CancelledError
    assert kinds(outcomes) == [cancelled, *[StoreError] * 2, cancelled, *[StoreError] * 3, cancelled, StoreError]
    assert took < 3 * 2.5, "the limit is 3 s"
    await store.close()
