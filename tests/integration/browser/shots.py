"""Make the screenshots of Studio in the docs, and measure its budgets: `make shots`. Look at the pictures."""

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from PIL import Image
from playwright.sync_api import Browser, Page, sync_playwright
from tests.integration.browser import desk
from tests.integration.browser.serving import ARGUMENTS, CHROMIUM, Studio, serve_studio

PICTURES = Path(__file__).parents[3] / "docs" / "images" / "studio"
SIZE: Any = {"width": 1280, "height": 800}
Act = Callable[[Page], None]


def _read(page: Page) -> None:
    page.locator(".body .msg").first.wait_for()


def _diff(page: Page) -> None:
    page.keyboard.press("d")
    page.locator(".body .msg.added").first.wait_for()


def _fork(page: Page) -> None:
    page.keyboard.press("f")
    page.locator(".form fieldset select").select_option("transfer_to_refunds")
    page.get_by_label("Arguments (JSON)").fill('{"reason": "refund", "priority": 1, "order": "D-3"}')
    page.locator(".form .primary").scroll_into_view_if_needed()


def _speech(page: Page) -> None:
    page.locator(".lanes .bar.speech").first.wait_for()


def _conversation(page: Page) -> None:
    page.keyboard.press("c")
    page.locator(".lines > details summary").click()


def _numbers(page: Page) -> None:
    page.locator(".numbers td").first.wait_for()


def _heat(page: Page) -> None:
    page.locator(".stage .node .second", has_text="call").first.wait_for()


SHOTS: tuple[tuple[str, str, str, Act], ...] = (
    ("run", "dark", "broken@8", _read),
    ("diff", "dark", "broken@8", _diff),
    ("question", "light", "open@8", _read),
    ("wrong", "light", "wrong@6", _read),
    ("fork", "light", "wrong@3", _fork),
    ("parallel", "light", "parallel@7", _read),
    ("live", "light", "live@9", _speech),
    ("conversation", "dark", "warranty@22", _conversation),
    ("compare", "light", "/compare/broken/forked", _numbers),
    ("team", "dark", "/team", _heat),
    ("long", "dark", "long@5000", _read),
)
"""The name, the theme and the place of each picture, and what to do there."""


def take(browser: Browser, studio: Studio) -> None:
    """Take all pictures.

    Args:
        browser: The browser.
        studio: The Studio to show.
    """
    PICTURES.mkdir(parents=True, exist_ok=True)
    for name, theme, place, act in SHOTS:
        context = browser.new_context(viewport=SIZE, color_scheme=theme)  # pyright: ignore[reportArgumentType]
        page = context.new_page()
        page.goto(studio.sign_in_url())
        page.locator(".sidebar li a").first.wait_for()
        page.goto(f"{studio.url}/#{place}")
        page.locator("main h1").wait_for()
        act(page)
        page.evaluate("() => document.fonts.ready")
        file = PICTURES / f"{name}.png"
        page.screenshot(path=file)
        context.close()
        # 256 colours are enough for a page of text, and a third of the size.
        Image.open(file).convert("RGB").quantize(256, method=Image.Quantize.MAXCOVERAGE).save(file, optimize=True)
        print(f"{file.name}: {file.stat().st_size // 1024} kB")


def measure(browser: Browser, studio: Studio) -> bool:
    """Measure the budgets; return whether all are kept.

    Args:
        browser: The browser.
        studio: The Studio to measure.
    """
    is_kept = True
    for run, seconds in (("broken", 1.0), ("long", 2.0)):
        context = browser.new_context(viewport={"width": 1440, "height": 900})
        page = context.new_page()
        page.goto(studio.sign_in_url())
        page.locator(".sidebar li a").first.wait_for()
        page.goto("about:blank")
        page.goto(f"{studio.url}/#{run}@5")
        page.locator(".inspector .msg").first.wait_for()
        painted: float = page.evaluate("() => performance.getEntriesByName('painted')[0].startTime / 1000")
        nodes: int = page.evaluate("() => document.querySelectorAll('*').length")
        session: Any = context.new_cdp_session(page)
        session.send("Performance.enable", {"timeDomain": "threadTicks"})
        before = _task_seconds(session)
        frame: float = page.evaluate(SCROLL)
        cpu = (_task_seconds(session) - before) * 1000 / FRAMES
        events = int(page.evaluate("() => Number(document.querySelector('.tall').style.height.slice(0, -2)) / 28"))
        print(f"{run}: {events} events painted after {painted:.2f} s, {nodes} nodes")
        print(f"  scrolling: longest frame {frame:.0f} ms, {cpu:.0f} ms of CPU per frame")
        is_kept = is_kept and painted <= seconds and nodes <= 2000 and frame <= 100
        context.close()
    return is_kept


def _task_seconds(session: Any) -> float:
    metrics = session.send("Performance.getMetrics")["metrics"]
    return next(each["value"] for each in metrics if each["name"] == "TaskDuration")


FRAMES = 120
SCROLL = """() => new Promise((resolve) => {
  const lanes = document.querySelector('.lanes'); let longest = 0, last = performance.now(), count = 0;
  const step = (now) => {
    longest = Math.max(longest, count ? now - last : 0); last = now;
    lanes.scrollLeft += 120;
    if (++count < 120) requestAnimationFrame(step); else resolve(longest);
  };
  requestAnimationFrame(step);
})"""


def main() -> int:
    """Make the pictures and measure the budgets; return 1 if one is not kept."""
    with TemporaryDirectory() as folder:
        store = Path(folder) / "runs.db"
        asyncio.run(desk.seed(store))
        with serve_studio(store) as studio, sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
            is_kept = measure(browser, studio)
            take(browser, studio)
            browser.close()
    return 0 if is_kept else 1


if __name__ == "__main__":
    sys.exit(main())
