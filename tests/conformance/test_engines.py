"""Every engine does what the conformance suite wants of any engine."""

from functools import partial
from pathlib import Path

import pytest
from tests.runs.recording_store import ManualClock

from batonkit.stores import MemoryStore, SQLiteStore, Store
from batonkit.testing.conformance import check_name
from batonkit.testing.conformance.engine_checks import ENGINE_CHECKS, EngineCheck, EnginePlace
from batonkit.worker import LocalEngine


def new_local_engine(store: Store) -> LocalEngine:
    """Create an engine, which finds the store by itself."""
    return LocalEngine(interval=0.01)


@pytest.fixture(params=["memory", "sqlite"])
def store_place(request: pytest.FixtureRequest, tmp_path: Path) -> EnginePlace:
    """A place for the local engine in each kind of store, where time passes when a check says so."""
    clock = ManualClock()

    async def let_pass(seconds: float) -> None:
        clock.now += seconds

    memory = MemoryStore(clock=clock)
    open_store = (
        partial(SQLiteStore, tmp_path / "runs.db", clock=clock) if request.param == "sqlite" else lambda: memory
    )
    # This engine looks at all runs when one of its workers can take another.
    return EnginePlace(open_store, new_local_engine, settle=0, let_pass=let_pass)


@pytest.mark.parametrize("check", ENGINE_CHECKS, ids=check_name)
async def test_the_local_engine(store_place: EnginePlace, check: EngineCheck) -> None:
    await check(store_place)
