"""Servers for tests that want them, started once and shared."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests import leftovers
from tests.postgres import PostgresServer
from tests.temporal_server import TemporalServer

_LONGEST = ("soak", "conformance", "journeys", "mcp", "inspection", "serving", "worker")
"""Folders with the longest tests, which are started first: otherwise one process works on them at the end."""


def pytest_configure(config: pytest.Config) -> None:
    """End what tests start with the tests, and say what was left by tests that were killed."""
    leftovers.guard()
    if hasattr(config, "workerinput") or not (cleaned := leftovers.clean_up()):
        return
    capture: Any = config.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled():
        sys.stderr.write("\n".join(["cleaned up after tests that were killed:", *cleaned, ""]))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep the random order among tests that take about as long."""
    here = Path(__file__).parent
    items.sort(key=lambda item: _rank(item.path.relative_to(here).parts[0]) if item.path.is_relative_to(here) else -1)


def _rank(folder: str) -> int:
    return _LONGEST.index(folder) if folder in _LONGEST else len(_LONGEST)


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """A PostgreSQL server for all tests of a session."""
    server = PostgresServer()
    try:
        server.start()
        yield server
    finally:
        server.remove()


@pytest.fixture
def postgres_url(postgres_server: PostgresServer) -> str:
    """An empty place in the session's PostgreSQL server."""
    return postgres_server.empty_place()


@pytest.fixture(scope="session")
def temporal_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TemporalServer]:
    """A Temporal server for all tests of a session."""
    server = TemporalServer(tmp_path_factory.mktemp("temporal"))
    try:
        server.start()
        yield server
    finally:
        server.stop()
