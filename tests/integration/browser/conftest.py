"""Studio and the page of the tutorial in a real browser: `make test-browser`.

These tests have a process of their own: Playwright keeps an event loop running in it.
"""

import asyncio
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser


@pytest.fixture(scope="session")
def seeded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with the runs of the desk."""
    from tests.integration.browser import desk

    store = tmp_path_factory.mktemp("studio") / "runs.db"
    # Playwright's own event loop runs in this thread.
    with ThreadPoolExecutor(1) as threads:
        threads.submit(lambda: asyncio.run(desk.seed(store))).result()
    return store


@pytest.fixture(scope="session")
def studio(seeded: Path) -> Generator[Any]:
    """A Studio for the desk."""
    from tests.integration.browser.serving import serve_studio

    with serve_studio(seeded) as served:
        yield served


@pytest.fixture
def open_page(browser: "Browser", studio: Any, seeded: Path) -> Generator[Any]:
    """Open pages of Studio; see `pages.opened_pages`."""
    from tests.integration.browser.pages import opened_pages

    with opened_pages(browser, studio, seeded) as open_page:
        yield open_page


@pytest.fixture(scope="session")
def browser() -> "Generator[Browser]":
    """Debian's Chromium."""
    from playwright.sync_api import sync_playwright
    from tests.integration.browser.serving import ARGUMENTS, CHROMIUM

    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield launched
        launched.close()
