"""Serve apps on local sockets, and send them requests."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import httpx
import msgspec
from tests.waiting import PATIENCE

from batonkit.serve import serve_in_background


class Client:
    """A JSON client for one server."""

    def __init__(self, session: aiohttp.ClientSession, url: str, token: str = "") -> None:
        self.session = session
        self.url = url
        self.headers = {"Authorization": f"Bearer {token}"} if token else {}

    async def ask(self, method: str, path: str, **options: Any) -> tuple[int, Any]:
        """Send a request; return the status, and the body as JSON if there is one."""
        headers = {**self.headers, **options.pop("headers", {})}
        async with self.session.request(method, self.url + path, headers=headers, **options) as answer:
            body = await answer.read()
            return answer.status, msgspec.json.decode(body) if body else None

    async def get(self, path: str, **options: Any) -> tuple[int, Any]:
        """GET."""
        return await self.ask("GET", path, **options)

    async def post(self, path: str, body: Any = None, **options: Any) -> tuple[int, Any]:
        """POST, with a body as JSON if there is one."""
        return await self.ask("POST", path, **({} if body is None else {"json": body}), **options)

    async def events(self, path: str, *, after: int | None = None) -> AsyncGenerator[dict[str, str]]:
        """Yield the frames of a stream as fields; a comment has the name ""."""
        headers = {**self.headers, **({} if after is None else {"Last-Event-ID": str(after)})}
        async with self.session.get(self.url + path, headers=headers) as answer:
            assert answer.status == 200, await answer.text()
            assert answer.content_type == "text/event-stream"
            async for each in frames_in(answer.content):
                yield each


async def frames_in(content: aiohttp.StreamReader) -> AsyncGenerator[dict[str, str]]:
    """Yield the frames of an event stream."""
    fields: dict[str, str] = {}
    async for line in content:
        text = line.decode().rstrip("\n")
        if text:
            name, _, value = text.partition(": ")
            fields[name] = value
        elif fields:
            yield fields
            fields = {}


@asynccontextmanager
async def client_of(app: Any, token: str = "") -> AsyncGenerator[Client]:
    """Serve an app, and yield a client for it."""
    async with serve_in_background(app, drain=0) as url, aiohttp.ClientSession() as session:
        yield Client(session, url, token)


def http_client(**options: Any) -> httpx.AsyncClient:
    """Create a client for local servers that waits for a response as long as `until` waits for a state."""
    # Loading the certificates of authorities takes longer than most tests.
    return httpx.AsyncClient(timeout=PATIENCE, verify=False, **options)
