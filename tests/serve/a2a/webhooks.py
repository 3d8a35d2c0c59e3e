"""Webhooks served on this machine."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from tests.serve.a2a.clients import served


class Webhook:
    """A webhook that fails a given number of times before it accepts requests."""

    def __init__(self, failures: int = 0) -> None:
        self.received: list[tuple[dict[str, str], Any]] = []
        self.attempts = 0
        self._failures = failures
        self.called = asyncio.Event()
        self.ended = asyncio.Event()

    async def answer(self, request: Request) -> Response:
        self.attempts += 1
        if self.attempts <= self._failures:
            return Response(status_code=503)
        body = await request.json()
        self.received.append((dict(request.headers), body))
        self.called.set()
        if body.get("statusUpdate", {}).get("status", {}).get("state") == "TASK_STATE_COMPLETED":
            self.ended.set()
        return Response()

    @asynccontextmanager
    async def serve(self) -> AsyncGenerator[str]:
        async with served(Starlette(routes=[Route("/hook", self.answer, methods=["POST"])])) as url:
            yield f"{url}/hook"


@asynccontextmanager
async def serve_webhook() -> AsyncGenerator[tuple[str, "asyncio.Queue[tuple[dict[str, str], Any]]"]]:
    """Serve a webhook; yield its URL and a queue of the headers and bodies it received."""
    received_calls: asyncio.Queue[tuple[dict[str, str], Any]] = asyncio.Queue()

    async def receive(request: Request) -> Response:
        received_calls.put_nowait((dict(request.headers), await request.json()))
        return Response()

    async with served(Starlette(routes=[Route("/hook", receive, methods=["POST"])])) as url:
        yield f"{url}/hook", received_calls
