"""A page of another origin, and one that rebinds its host name to this machine, at servers without authentication."""

import asyncio
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, sync_playwright
from tests.integration.browser.serving import ARGUMENTS, CHROMIUM
from tests.integration.serving import TEAM, Served, serving

from batonkit import Agent, Runner

PROTOCOLS = ("--api", "--a2a", "--agui", "--openai", "--ai-sdk", "--studio")
AGUI: dict[str, Any] = {
    "threadId": "t",
    "runId": "r",
    "state": None,
    "tools": [],
    "context": [],
    "forwardedProps": {},
    "messages": [{"id": "1", "role": "user", "content": "hi"}],
}
A2A = {"message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "hi"}]}}
CHAT = {"model": "Desk", "messages": [{"role": "user", "content": "hi"}]}
UI = {"id": "c", "messages": [{"id": "1", "role": "user", "parts": [{"type": "text", "text": "hi"}]}]}
REQUESTS: list[tuple[str, str, Any]] = [
    *[("GET", path, None) for path in ("/runs", "/runs/r1", "/runs/r1/events", "/threads", "/usage", "/v1/models")],
    *[("GET", path, None) for path in ("/a2a/.well-known/agent-card.json", "/a2a/tasks")],
    *[("GET", path, None) for path in ("/studio/", "/studio/config.json", "/studio/api/runs", "/studio/api/team")],
    ("GET", "/studio/export/r1.html", None),
    ("POST", "/runs", {"input": "hi"}),
    ("POST", "/runs/r1/cancel", None),
    ("POST", "/runs/r1/resume", None),
    ("DELETE", "/runs/r1", None),
    ("POST", "/agui", AGUI),
    ("POST", "/a2a/message:send", A2A),
    ("POST", "/v1/chat/completions", CHAT),
    ("POST", "/v1/responses", {"model": "Desk", "input": "hi"}),
    ("POST", "/api/chat", UI),
    ("POST", "/studio/api/runs", {"input": "hi"}),
    ("POST", "/studio/api/runs/r1/fork", {"start": True}),
]
FETCH = """async ([base, requests]) => {
    const seen = [];
    for (const [method, path, body] of requests) {
        for (const type of ["application/json", "text/plain"]) {
            const headers = body ? {"Content-Type": type, "A2A-Version": "1.0"} : {};
            try {
                const response = await fetch(base + path, {method, headers, credentials: "include",
                    body: body && JSON.stringify(body)});
                seen.push([method, path, response.status, await response.text()]);
            } catch (error) {
                seen.push([method, path, 0, ""]);
            }
            // Without headers that a browser would ask for first.
            await fetch(base + path, {method: method === "GET" ? "GET" : "POST", mode: "no-cors",
                credentials: "include",
                body: method === "GET" ? undefined : JSON.stringify(body)}).catch(() => null);
        }
    }
    return seen;
}"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a team that has one run, which a page must not see."""
    folder = tmp_path_factory.mktemp("desk")
    (folder / "desk.py").write_text(TEAM)

    async def make_run() -> None:
        async with Runner(Agent("Desk"), store=folder / "runs.db") as runner:
            await runner.submit("SECRET-QUESTION", run_id="r1")
            await runner.runs.cancel("r1")

    # Playwright's own event loop runs in this thread.
    with ThreadPoolExecutor(1) as threads:
        threads.submit(lambda: asyncio.run(make_run())).result()
    return folder


@pytest.fixture(scope="module")
def server(folder: Path) -> Generator[Served]:
    """`baton serve` with every protocol, without authentication."""
    with serving(folder, "serve", "desk:desk", "--store", "runs.db", *PROTOCOLS, ready="studio: ") as served:
        yield served


def _stored(folder: Path) -> list[tuple[str, str]]:
    async def read() -> list[tuple[str, str]]:
        async with Runner(Agent("Desk"), store=folder / "runs.db") as runner:
            return [(record.run_id, record.status) for record in (await runner.runs.list()).records]

    with ThreadPoolExecutor(1) as threads:
        return threads.submit(lambda: asyncio.run(read())).result()


def _fetch(page: Page, base: str, *, remove: str = "") -> list[tuple[str, str, int, str]]:
    requests = [(method, path.removeprefix(remove), body) for method, path, body in REQUESTS]
    return [tuple(each) for each in page.evaluate(FETCH, [base, requests])]


def _assert_nothing_happened(seen: list[tuple[str, str, int, str]], folder: Path) -> None:
    assert seen
    assert [each for each in seen if 200 <= each[2] < 400] == []
    assert "SECRET" not in str(seen)
    assert _stored(folder) == [("r1", "cancelled")], "nothing was started, answered, changed or deleted"
    assert not (folder / "paid").exists()


class _EmptyPage(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        """Print nothing."""


@pytest.fixture
def foreign_page(browser: Browser) -> Generator[Page]:
    """A page of another origin on this machine."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _EmptyPage) as other:
        thread = Thread(target=partial(other.serve_forever, poll_interval=0.01))
        thread.start()
        with browser.new_context() as context:
            page = context.new_page()
            page.goto(f"http://127.0.0.1:{other.server_port}/")
            yield page
        other.shutdown()
        thread.join()


def test_a_page_of_another_origin_reads_and_starts_nothing(foreign_page: Page, server: Served, folder: Path) -> None:
    for base in (server.url, f"http://localhost:{server.port}"):
        _assert_nothing_happened(_fetch(foreign_page, base), folder)


def test_a_page_of_another_port_cannot_use_a_signed_in_studio(foreign_page: Page, folder: Path) -> None:
    # For a browser both pages are of the same site, so it sends the cookie.
    with serving(folder, "studio", "desk:desk", "--store", "runs.db", ready="Studio: ") as served:
        studio = foreign_page.context.new_page()
        studio.goto(served.sign_in_url)
        assert studio.evaluate("fetch('/api/runs').then(response => response.status)") == 200
        _assert_nothing_happened(_fetch(foreign_page, served.url, remove="/studio"), folder)


@pytest.mark.parametrize(
    "name",
    [
        *("rebound.example", "rebound_name.example", "_.example", "a{b.example", "a{b}_c.example", "127.0.0.1.example"),
        *("localhost.example", "a~b.example", "a!b$c.example", "a'b.example", "xn--bcher-kva.example", "a.localhost"),
    ],
)
def test_a_page_that_rebinds_its_name_reads_and_starts_nothing(name: str, server: Served, folder: Path) -> None:
    rebinding = "--host-resolver-rules=MAP *.example 127.0.0.1, MAP *.localhost 127.0.0.1"
    # Playwright of the other tests runs in this thread.
    with ThreadPoolExecutor(1) as threads:
        seen = threads.submit(_fetch_rebound, rebinding, f"http://{name}:{server.port}").result()
    _assert_nothing_happened(seen, folder)


def _fetch_rebound(rebinding: str, base: str) -> list[tuple[str, str, int, str]]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=[*ARGUMENTS, rebinding])
        page = browser.new_page()
        # A page of the same origin as far as the browser knows.
        page.goto(f"{base}/nothing")
        seen = _fetch(page, base)
        browser.close()
        return seen


def test_a_page_of_the_server_itself_is_answered(browser: Browser, tmp_path: Path) -> None:
    # Otherwise the tests above would prove nothing.
    (tmp_path / "desk.py").write_text(TEAM)
    with (
        serving(tmp_path, "serve", "desk:desk", "--store", "runs.db", *PROTOCOLS, ready="studio: ") as served,
        browser.new_context() as context,
    ):
        page = context.new_page()
        page.goto(f"{served.url}/nothing")
        started = {path for method, path, status, _ in _fetch(page, served.url) if method == "POST" and status < 300}
        assert started >= {"/runs", "/agui", "/a2a/message:send", "/v1/chat/completions", "/v1/responses", "/api/chat"}
