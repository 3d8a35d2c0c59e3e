"""Profiles of the property tests, and rules for tests outside tests/integration.

Property tests try the same examples in every `make test`, so that only a change can make it fail. `make soak`
(HYPOTHESIS_PROFILE=soak) explores: LAWS random examples of most laws, or 500 of them.
"""

import gc
import os
import sys
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from tests import fold_law
from tests.ticks import shorten_ticks
from tests.unclosed import created, is_closed, watch_clients

_SLOW_IS_FINE = [HealthCheck.too_slow, HealthCheck.data_too_large]
# Explaining a failure takes longer than finding it, and our plans explain themselves.
_ALL_BUT_EXPLAIN = [phase for phase in Phase if phase is not Phase.explain]

settings.register_profile(
    "default",
    max_examples=25,
    stateful_step_count=15,
    deadline=None,
    derandomize=True,
    print_blob=True,
    phases=_ALL_BUT_EXPLAIN,
    suppress_health_check=_SLOW_IS_FINE,
)
settings.register_profile(
    "soak",
    settings.get_profile("default"),
    max_examples=int(os.environ.get("LAWS", "500")),
    stateful_step_count=40,
    derandomize=False,
)
PROFILE = os.environ.get("HYPOTHESIS_PROFILE", "default")
settings.load_profile(PROFILE)

watch_clients()
shorten_ticks()


_TESTS = Path(__file__).parent
_MAY_START_PROCESSES = frozenset({"architecture", "integration"})
"""Folders of tests that are not part of `make test`."""
_PROCESS_EVENTS = frozenset({"subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.exec", "os.system"})


class ProcessGuard:
    """Refuses processes to tests outside tests/integration, where `make test` could be late or leave one behind."""

    def __init__(self) -> None:
        self._is_on = False
        sys.addaudithook(self._check)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        self._is_on = item.path.relative_to(_TESTS).parts[0] not in _MAY_START_PROCESSES
        try:
            return (yield)
        finally:
            self._is_on = False

    def _check(self, event: str, arguments: tuple[object, ...]) -> None:
        if self._is_on and event in _PROCESS_EVENTS:
            raise RuntimeError(f"a test that starts a process belongs in tests/integration: {event}{arguments!r:.200}")


def pytest_configure(config: pytest.Config) -> None:
    """Watch for processes."""
    config.pluginmanager.register(ProcessGuard())


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A soak takes as long as it takes."""
    if PROFILE == "soak":
        for item in items:
            item.add_marker(pytest.mark.timeout(0))
    _name_apart(items)


def _name_apart(items: list[Any]) -> None:
    """Give tests that schemathesis makes their own node ids: of those with the same one, xdist runs only the first."""
    known: set[str] = set()
    for item in items:
        if item.nodeid in known:
            item._id = item.parent.id.child(item.name)
        if item.nodeid in known:
            raise pytest.UsageError(f"two tests are called {item.nodeid}")
        known.add(item.nodeid)


_WATCHED = ("agents", "handoffs", "journeys", "laws", "team", "workflows")
"""The folders whose runs are held to the law of the fold; with BATON_FOLD_LAW=all, it is all folders."""


@pytest.fixture(autouse=True)
def folds_to_its_history(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail a test with a run whose log does not give the history that the run had."""
    folder = request.path.relative_to(Path(__file__).parent).parts[0]
    is_watched = os.environ.get("BATON_FOLD_LAW") == "all" or folder in _WATCHED
    if not is_watched or request.node.get_closest_marker("counts_calls"):
        yield
        return
    with fold_law.watch() as violations:
        yield
    if violations:
        pytest.fail("\n".join(violations[:3]))


@pytest.fixture(autouse=True)
def no_unclosed_clients() -> Iterator[None]:
    """Fail a test that leaves an HTTP client open, and collect it while no event loop is running."""
    yield
    unclosed = [repr(client) for client in created if not is_closed(client)]
    created.clear()
    if unclosed:
        gc.collect()
        pytest.fail(f"not closed: {unclosed}")
