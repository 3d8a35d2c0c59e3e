"""Open pages of Studio that have signed in."""

from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, ConsoleMessage, Locator, Page, expect
from tests.integration.browser.serving import Studio, serve_studio

from batonkit import Agent

SIZE: Any = {"width": 1440, "height": 900}
PHONE: Any = {"width": 390, "height": 844}
expect.set_options(timeout=60_000)

Open = Callable[..., Page]


@contextmanager
def opened_pages(browser: Browser, studio: Studio, seeded: Path) -> Generator[Open]:
    """Open pages that have signed in; console errors and requests to other origins fail the test.

    A page of another team has a server of its own. It is closed before its server stops, or it would report that
    it can no longer connect.

    Args:
        browser: The browser.
        studio: The Studio of the desk.
        seeded: The store of the desk.
    """
    trouble: list[str] = []
    stack = ExitStack()

    def open_page(place: str, team: Agent | None = None, **options: Any) -> Page:
        served = stack.enter_context(serve_studio(seeded, team)) if team else studio
        context = stack.enter_context(browser.new_context(**{"viewport": SIZE, **options}))
        context.set_default_timeout(60_000)
        page = context.new_page()
        page.on("console", lambda m: trouble.append(_describe(m)) if m.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: trouble.append(str(error)))
        page.on("request", lambda r: trouble.append(r.url) if not r.url.startswith((served.url, "data:")) else None)
        page.goto(served.sign_in_url())
        page.locator(".sidebar li a").first.wait_for(state="attached")
        page.goto(f"{served.url}/#{place}")
        return page

    with stack:
        yield open_page
    # Chromium reports the response to an invalid answer, which a test sends on purpose.
    assert [text for text in trouble if "status of 422" not in text] == []


def _describe(message: ConsoleMessage) -> str:
    return f"{message.text} at {message.location['url']}"


def selected_row(page: Page, text: str) -> Locator:
    """Return the chosen row of the log, if it contains a text.

    Args:
        page: The page of a run.
        text: The text.
    """
    return page.locator(f'[role=option][aria-selected=true]:has-text("{text}")')
