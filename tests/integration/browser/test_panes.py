"""The panes of Studio: their borders, narrow screens, and what may not be cut off."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect
from tests.integration.browser.pages import PHONE, Open

from batonkit import Agent, Runner
from batonkit.testing import ScriptedModel, call


def _size(page: Page, selector: str, side: str) -> float:
    box: Any = page.locator(selector).bounding_box()
    return box[side]


@pytest.mark.parametrize(
    ("label", "pane", "side", "key", "dragged"),
    [
        ("Width of the list of runs", ".sidebar", "width", "ArrowRight", (80, 0)),
        ("Height of the lanes", ".lanes", "height", "ArrowDown", (0, -80)),
        ("Width of the details", ".inspector", "width", "ArrowLeft", (-80, 0)),
    ],
)
def test_the_border_of_a_pane_is_dragged_and_remembered(
    open_page: Open, label: str, pane: str, side: str, key: str, dragged: tuple[int, int]
) -> None:
    page = open_page("broken")
    page.locator(".row").first.wait_for()
    border = page.get_by_role("separator", name=label)
    first = _size(page, pane, side)
    share = int(border.get_attribute("aria-valuenow") or 0)
    box: Any = border.bounding_box()
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x + dragged[0], y + dragged[1], steps=4)
    page.mouse.up()
    moved = -80 if label == "Height of the lanes" else 80
    assert _size(page, pane, side) == pytest.approx(first + moved, abs=2)
    expect(border).not_to_have_attribute("aria-valuenow", str(share))
    page.reload()
    page.locator(".row").first.wait_for()
    assert _size(page, pane, side) == pytest.approx(first + moved, abs=2)
    border.focus()
    page.keyboard.press(key)
    assert _size(page, pane, side) == pytest.approx(first + moved + 24, abs=2)
    page.keyboard.press("Enter")
    assert _size(page, pane, side) == pytest.approx(first, abs=2)
    # The keys move the border, not the chosen event.
    expect(page.locator("#event-1")).to_have_attribute("aria-selected", "true")


def test_the_border_of_the_conversation_is_moved_with_keys_to_its_ends(open_page: Open) -> None:
    page = open_page("broken")
    page.keyboard.press("c")
    page.get_by_role("separator", name="Width of the details").focus()
    page.keyboard.press("Home")
    assert _size(page, ".inspector", "width") == pytest.approx(280, abs=2)
    wide = _size(page, ".chat", "width")
    page.keyboard.press("End")
    assert _size(page, ".chat", "width") == pytest.approx(300, abs=3)
    assert wide > 800


@pytest.mark.parametrize(
    "place",
    ["warranty@14", "open@8", "failed", "live@9", "/new", "/team", "/usage", "/report", "/compare/broken/forked"],
)
def test_a_phone_shows_every_page_without_scrolling_sideways(open_page: Open, place: str) -> None:
    page = open_page(place, viewport=PHONE)
    page.locator("main h1").wait_for()
    page.locator(".lanes .bar, .composer, .stage, .numbers, .lead").first.wait_for()
    assert page.evaluate("() => document.documentElement.scrollWidth") == PHONE["width"]
    assert page.evaluate("() => document.querySelector('main').scrollWidth") == PHONE["width"]


def test_a_phone_reaches_all_views_of_a_run(open_page: Open) -> None:
    page = open_page("broken@8", viewport=PHONE)
    expect(page.locator(".lanes .bar").first).to_be_visible()
    page.locator("#event-8").scroll_into_view_if_needed()
    expect(page.locator("#event-8")).to_be_in_viewport()
    page.get_by_role("button", name="Conversation").click()
    expect(page.locator(".line.user").first).to_be_visible()
    page.get_by_role("button", name="Details").click()
    expect(page.locator(".body")).to_contain_text("You settle order A-17")
    assert page.evaluate("() => document.documentElement.scrollWidth") == PHONE["width"]
    runs = page.get_by_role("button", name="Runs", exact=True)
    runs.click()
    expect(runs).to_have_attribute("aria-expanded", "true")
    page.locator('.sidebar a[href="#late"]').click()
    expect(page.locator("h1")).to_contain_text("Where is my parcel?")
    expect(page.locator(".sidebar li a").first).to_be_hidden()
    for name in ("New run", "Team", "Usage", "Reports"):
        page.get_by_role("link", name=name, exact=True).click()
        expect(page.locator("main h1")).to_have_text(name)


def _around() -> Agent:
    """Return a team with edges that run around its agents, and from an agent to itself."""
    beta = Agent("Beta", description="b", handoffs=["Triage", "Delta"])
    gamma = Agent("Gamma", description="c", handoffs=["Triage", "Beta"])
    delta = Agent("Delta", description="d", handoffs=["Delta", "Gamma", "Triage"])
    return Agent("Triage", description="a", handoffs=["Triage", beta, gamma, delta])


IS_INSIDE = """marks => marks.every(mark => {
  const around = mark.ownerSVGElement.getBoundingClientRect(), box = mark.getBoundingClientRect();
  return box.left >= around.left && box.right <= around.right && box.top >= around.top && box.bottom <= around.bottom;
})"""


def test_arcs_are_not_cut_off(open_page: Open, seeded: Path) -> None:
    script = {
        "Triage": [call("transfer_to_triage"), call("transfer_to_delta")],
        "Delta": [call("transfer_to_delta"), "ok"],
    }

    async def run() -> None:
        async with Runner(_around(), model=ScriptedModel(script), store=seeded) as runner:
            await runner.run("Around", run_id="around")

    with ThreadPoolExecutor(1) as threads:
        threads.submit(lambda: asyncio.run(run())).result()
    page = open_page("around@5", _around())
    hops = page.locator(".lanes .hop .shaft")
    expect(hops).to_have_count(3)
    assert hops.evaluate_all(IS_INSIDE)
    # Nothing else is drawn over an arc: it can be clicked.
    page.locator(".lanes .hop").first.click()
    expect(page.locator(".lanes .hop").first).to_have_class("hop tone1 on")
    for place in ("around@5", "/team"):
        page.evaluate("place => { location.hash = place }", place)
        edges = page.locator("svg.graph .edge")
        expect(edges).to_have_count(11)
        assert edges.evaluate_all(IS_INSIDE)
