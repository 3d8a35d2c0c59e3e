"""A PostgreSQL server for tests that want one, and how long the property tests run.

They run as `default` with every test run, as `soak` with HYPOTHESIS_PROFILE=soak (make soak).

A soak tries LAWS examples of most laws, 1500 if that is not set, which takes about an hour on two slow cores.
"""

import gc
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from tests.unclosed import created, is_closed, watch_clients

if TYPE_CHECKING:
    from tests.postgres import PostgresServer
    from tests.temporal_server import TemporalServer

_SLOW_IS_FINE = [HealthCheck.too_slow, HealthCheck.data_too_large]
# Explaining a failure takes longer than finding it, and our plans explain themselves.
_ALL_BUT_EXPLAIN = [phase for phase in Phase if phase is not Phase.explain]

settings.register_profile(
    "default",
    max_examples=25,
    stateful_step_count=15,
    deadline=None,
    derandomize=False,
    print_blob=True,
    phases=_ALL_BUT_EXPLAIN,
    suppress_health_check=_SLOW_IS_FINE,
)
settings.register_profile(
    "soak", settings.get_profile("default"), max_examples=int(os.environ.get("LAWS", "1500")), stateful_step_count=40
)
PROFILE = os.environ.get("HYPOTHESIS_PROFILE", "default")
settings.load_profile(PROFILE)

watch_clients()


_SLOW = ("soak", "worker", "journeys", "conformance", "mcp", "laws", "serving", "inspection", "cli", "stores")
"""Folders with files that take long, which are started first: otherwise one process works on them at the end."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A soak takes as long as it takes; slow tests come first."""
    if PROFILE == "soak":
        for item in items:
            item.add_marker(pytest.mark.timeout(0))
    _name_apart(items)
    items.sort(key=_start_order)


def _start_order(item: pytest.Item) -> int:
    folder = item.nodeid.removeprefix("tests/").partition("/")[0]
    return _SLOW.index(folder) if folder in _SLOW else len(_SLOW)


def _name_apart(items: list[Any]) -> None:
    """Give tests that schemathesis makes their own node ids: of those with the same one, xdist runs only the first."""
    known: set[str] = set()
    for item in items:
        if item.nodeid in known:
            item._id = item.parent.id.child(item.name)
        if item.nodeid in known:
            raise pytest.UsageError(f"two tests are called {item.nodeid}")
        known.add(item.nodeid)


@pytest.fixture(autouse=True)
def no_unclosed_clients() -> Iterator[None]:
    """Fail a test that leaves an HTTP client open, and collect it while no event loop is running."""
    yield
    unclosed = [repr(client) for client in created if not is_closed(client)]
    created.clear()
    if unclosed:
        gc.collect()
        pytest.fail(f"not closed: {unclosed}")


@pytest.fixture(scope="session")
def postgres_server() -> "Iterator[PostgresServer]":
    """A PostgreSQL server for all tests of a session."""
    from tests.postgres import PostgresServer

    server = PostgresServer()
    try:
        server.start()
        yield server
    finally:
        server.remove()


@pytest.fixture
def postgres_url(postgres_server: "PostgresServer") -> str:
    """An empty place in the session's PostgreSQL server."""
    return postgres_server.empty_place()


@pytest.fixture(scope="session")
def temporal_server(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[TemporalServer]":
    """A Temporal server for all tests of a session."""
    from tests.temporal_server import TemporalServer

    server = TemporalServer(tmp_path_factory.mktemp("temporal"))
    try:
        server.start()
        yield server
    finally:
        server.stop()
