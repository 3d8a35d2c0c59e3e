"""Stores do what the conformance suite wants on PostgreSQL, and when several processes share them."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest
from tests.conformance.test_stores import ALL_CHECKS, Open
from tests.postgres import locked_run

from batonkit.stores import PostgresStore, SQLiteStore
from batonkit.testing.conformance import (
    CHANNEL_CHECKS,
    SHARED_INBOX_CHECKS,
    SHARED_STORE_CHECKS,
    StoreCheck,
    check_name,
)


class LockablePostgresStore(PostgresStore):
    """A store whose runs the checks can lock from outside."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self._url = url

    @asynccontextmanager
    async def lock_run(self, run_id: str) -> AsyncGenerator[None]:
        async with locked_run(self._url, run_id):
            yield


@pytest.fixture(params=["sqlite", "sqlite-power", "postgres"])
def shared_place(request: pytest.FixtureRequest, tmp_path: Path) -> Open:
    match request.param:
        case "sqlite":
            return partial(SQLiteStore, tmp_path / "runs.db")
        case "sqlite-power":
            return partial(SQLiteStore, tmp_path / "runs.db", durability="power")
        case _:
            return partial(PostgresStore, request.getfixturevalue("postgres_url"))


@pytest.mark.parametrize("check", [*ALL_CHECKS, *CHANNEL_CHECKS], ids=check_name)
async def test_postgres(postgres_url: str, check: StoreCheck) -> None:
    await check(partial(LockablePostgresStore, postgres_url))


@pytest.mark.parametrize("check", [*SHARED_STORE_CHECKS, *SHARED_INBOX_CHECKS], ids=check_name)
async def test_stores_that_processes_share(shared_place: Open, check: StoreCheck) -> None:
    await check(shared_place)
