"""Every engine does what the conformance suite wants of any engine."""

from functools import partial
from pathlib import Path

import pytest

from baton.stores import MemoryStore, SQLiteStore, Store
from baton.testing.conformance import check_name
from baton.testing.conformance.engines import ENGINE_CHECKS, EngineCheck, Place
from baton.worker import LocalEngine


def new_local_engine(store: Store) -> LocalEngine:
    """Create an engine, which finds the store by itself."""
    return LocalEngine()


@pytest.fixture(params=["memory", "sqlite"])
def store_place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """A place for the local engine in each kind of store."""
    match request.param:
        case "memory":
            store = MemoryStore()
            return Place(lambda: store, new_local_engine)
        case _:
            return Place(partial(SQLiteStore, tmp_path / "runs.db"), new_local_engine)


@pytest.mark.parametrize("check", ENGINE_CHECKS, ids=check_name)
async def test_the_local_engine(store_place: Place, check: EngineCheck) -> None:
    # G7
    await check(store_place)
