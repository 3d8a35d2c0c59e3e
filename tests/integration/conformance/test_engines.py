"""Engines on PostgreSQL and Temporal do what the conformance suite wants of any engine."""

from functools import partial
from pathlib import Path

import pytest
from tests.conformance.test_engines import new_local_engine
from tests.temporal_server import TemporalServer

from batonkit.stores import PostgresStore, SQLiteStore, Store
from batonkit.testing.conformance import check_name
from batonkit.testing.conformance.engine_checks import ENGINE_CHECKS, EngineCheck, EnginePlace
from batonkit.worker import PostgresEngine, TemporalEngine


@pytest.mark.parametrize("check", ENGINE_CHECKS, ids=check_name)
async def test_the_local_engine(postgres_url: str, check: EngineCheck) -> None:
    await check(EnginePlace(partial(PostgresStore, postgres_url), new_local_engine))


@pytest.mark.parametrize("check", ENGINE_CHECKS, ids=check_name)
async def test_the_postgres_engine(postgres_url: str, check: EngineCheck) -> None:
    await check(EnginePlace(partial(PostgresStore, postgres_url), PostgresEngine))


# A server of Temporal orders the tasks of a queue by priority only if it is configured for that.
TEMPORAL_CHECKS = [check for check in ENGINE_CHECKS if check_name(check) != "urgent_runs_come_first"]


@pytest.mark.parametrize("check", TEMPORAL_CHECKS, ids=check_name)
async def test_the_temporal_engine(tmp_path: Path, temporal_server: TemporalServer, check: EngineCheck) -> None:
    def new_engine(store: Store) -> TemporalEngine:
        return TemporalEngine(temporal_server.address)

    await check(EnginePlace(partial(SQLiteStore, tmp_path / "runs.db"), new_engine))
