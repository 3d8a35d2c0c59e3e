"""The chat page of the examples in a real browser: who speaks, a handoff, an approval, and the next turn."""

import asyncio
import runpy
from collections.abc import Generator
from pathlib import Path
from threading import Event, Thread
from typing import TYPE_CHECKING

import pytest

from batonkit.serve import serve_in_background

if TYPE_CHECKING:
    from playwright.sync_api import Browser

EXAMPLE = Path(__file__).parents[3] / "examples" / "protocols" / "chat_page.py"


@pytest.fixture
def url() -> Generator[str]:
    """The address of the example, served in a thread of its own."""
    addresses: list[str] = []
    is_up, can_end = Event(), Event()

    async def serve() -> None:
        async with serve_in_background(runpy.run_path(str(EXAMPLE))["app"], drain=0) as address:
            addresses.append(address)
            is_up.set()
            await asyncio.to_thread(can_end.wait)

    thread = Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    try:
        assert is_up.wait(30), "the example did not start"
        yield addresses[0]
    finally:
        can_end.set()
        thread.join()


@pytest.mark.parametrize("decision", ["Approve", "Deny"])
def test_the_page_shows_who_speaks_and_asks_for_approval(browser: "Browser", url: str, decision: str) -> None:
    page = browser.new_page()
    page.goto(url)
    page.fill("input", "My lamp broke.")
    page.click("text=Send")
    page.wait_for_selector("text=Desk → Refunds")
    page.wait_for_selector("text=Refunds asks for your approval.")
    page.click(f"text={decision}")
    page.wait_for_selector("text=Done: 80 EUR are on their way.")
    result = "80 EUR for order A-17 are paid back" if decision == "Approve" else "denied"
    assert result in page.inner_text(".tool")
    page.fill("input", "Thanks!")
    page.click("text=Send")
    page.wait_for_selector("text=You are welcome.")
    assert page.locator(".agent").all_inner_texts() == ["Refunds", "Refunds"]
    page.close()
