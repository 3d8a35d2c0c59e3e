"""Chromium pages without a network, for scripts that draw pictures."""

from collections.abc import Generator
from contextlib import contextmanager

from playwright.sync_api import Page, sync_playwright

CHROMIUM = "/usr/bin/chromium"


@contextmanager
def open_page(width: int, height: int) -> Generator[Page]:
    """Open an empty page.

    Args:
        width: The width of the viewport, in pixels.
        height: Its height.
    """
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        context = browser.new_context(viewport={"width": width, "height": height}, offline=True)
        yield context.new_page()
        browser.close()
