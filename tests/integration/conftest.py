"""Servers for tests that want them, started once and shared."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests import leftovers
from tests.postgres import PostgresAddress, PostgresServer
from tests.temporal_server import TemporalServer

_POSTGRES = "postgres_folder"
_LONGEST = ("soak", "conformance", "journeys", "mcp", "inspection", "serve", "worker")
"""Folders with the longest tests, which are started first: otherwise one process works on them at the end."""


def pytest_configure(config: pytest.Config) -> None:
    """Share a database server, end what tests start with the tests, and say what killed tests have left."""
    leftovers.guard()
    if config.pluginmanager.hasplugin("dsession"):
        config.pluginmanager.register(SharedPostgres())
    if hasattr(config, "workerinput") or not (cleaned := leftovers.clean_up()):
        return
    capture: Any = config.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled():
        sys.stderr.write("\n".join(["cleaned up after earlier tests:", *cleaned, ""]))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep the random order among tests that take about as long."""
    here = Path(__file__).parent
    items.sort(key=lambda item: _rank(item.path.relative_to(here).parts[0]) if item.path.is_relative_to(here) else -1)


def _rank(folder: str) -> int:
    return _LONGEST.index(folder) if folder in _LONGEST else len(_LONGEST)


class SharedPostgres:
    """Starts one server before the first process of xdist, for all of them."""

    def __init__(self) -> None:
        self._server: PostgresServer | None = None

    def pytest_configure_node(self, node: Any) -> None:
        if self._server is None:
            self._server = PostgresServer()
            self._server.start()
        node.workerinput[_POSTGRES] = str(self._server.folder)

    def pytest_unconfigure(self) -> None:
        if self._server is not None:
            self._server.remove()


@pytest.fixture(scope="session")
def postgres_server(request: pytest.FixtureRequest) -> Iterator[PostgresAddress]:
    """A PostgreSQL server that all tests share; those that stop one have `own_postgres_server`."""
    shared: dict[str, str] = getattr(request.config, "workerinput", {})
    if _POSTGRES in shared:
        yield PostgresAddress(Path(shared[_POSTGRES]))
    else:
        yield from _serve_postgres()


@pytest.fixture
def postgres_url(postgres_server: PostgresAddress) -> str:
    """An empty place in the shared PostgreSQL server."""
    return postgres_server.empty_place()


@pytest.fixture(scope="module")
def own_postgres_server() -> Iterator[PostgresServer]:
    """A PostgreSQL server for the tests of one module, which stop it or cut all its connections."""
    yield from _serve_postgres()


def _serve_postgres() -> Iterator[PostgresServer]:
    server = PostgresServer()
    try:
        server.start()
        yield server
    finally:
        server.remove()


@pytest.fixture(scope="session")
def temporal_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TemporalServer]:
    """A Temporal server for all tests of a session."""
    server = TemporalServer(tmp_path_factory.mktemp("temporal"))
    try:
        server.start()
        yield server
    finally:
        server.stop()
