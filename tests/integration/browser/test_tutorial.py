"""The page of the tutorial's web app in a real browser."""

from collections.abc import Generator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect
from tests.integration.journeys.tutorial import ENGLISH, Project

expect.set_options(timeout=60_000)


@pytest.fixture
def page(browser: Browser, tmp_path: Path) -> Generator[Page]:
    """The page of the app that the first five steps make; errors in its script fail the test."""
    project = Project(tmp_path)
    for step in ENGLISH.steps[:6]:
        project.follow(step, run=False)
    trouble: list[str] = []
    with project.served() as url, browser.new_context(base_url=url) as context:
        context.set_default_timeout(60_000)
        page = context.new_page()
        page.on("pageerror", lambda error: trouble.append(str(error)))
        page.goto("/")
        yield page
    assert trouble == []


def send(page: Page, text: str) -> None:
    page.get_by_placeholder("Your message").fill(text)
    page.get_by_role("button", name="Send").click()


def test_a_reload_restores_the_conversation_and_the_open_question(page: Page) -> None:
    conversation, question = page.locator("main"), page.locator(".question")
    send(page, "Where is order A-17?")
    expect(conversation).to_contain_text("Order A-17: a lamp for 80 EUR, delivered on Monday.")
    send(page, "It arrived broken, I want my money back.")
    expect(question).to_contain_text('Allow refund {"order":"A-17","euros":80}?')
    before = conversation.inner_text()

    page.reload()
    expect(question).to_be_visible()
    expect(conversation).to_have_text(before, use_inner_text=True)

    question.get_by_role("button", name="Yes").click()
    expect(conversation).to_contain_text("80 EUR for order A-17 are on their way to you.")
    expect(question).to_have_count(0)
