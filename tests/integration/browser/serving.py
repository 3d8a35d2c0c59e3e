"""Serve Studio on a local port in a thread of its own, and open pages of it."""

import asyncio
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread
from typing import Any

from tests.integration.browser import desk

from batonkit import Agent
from batonkit.serve import serve_in_background
from batonkit.serve.studio import StudioApp, studio_app

CHROMIUM = "/usr/bin/chromium"
ARGUMENTS = [
    *("--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"),
    *("--disable-sync", "--no-first-run"),
]


class Studio:
    """A Studio that is being served.

    Args:
        app: The app.
        url: Its address.
    """

    def __init__(self, app: StudioApp, url: str) -> None:
        self.app = app
        self.url = url

    def sign_in_url(self, place: str = "") -> str:
        """Return a URL that opens the page once."""
        return self.app.url(self.url, place)


@contextmanager
def serve_studio(store: Path, root: Agent | None = None, **options: Any) -> Generator[Studio]:
    """Serve Studio for the desk.

    Args:
        store: The file of the store.
        root: The root agent of another team than the desk.
        options: Options of `studio_app`.
    """
    served: list[Studio] = []
    is_up, can_end = Event(), Event()

    async def serve() -> None:
        runner = desk.make_runner(store, root)
        app = studio_app(runner, **options)
        async with serve_in_background(app, drain=0) as url:
            served.append(Studio(app, url))
            is_up.set()
            await asyncio.to_thread(can_end.wait)
        await runner.close()

    thread = Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    try:
        assert is_up.wait(30), "Studio did not start"
        yield served[0]
    finally:
        can_end.set()
        thread.join()
