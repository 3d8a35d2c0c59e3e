"""Somebody who wants to be told of tasks."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from tests.adapters.a2a.stage import served


@asynccontextmanager
async def webhook() -> AsyncGenerator[tuple[str, "asyncio.Queue[tuple[dict[str, str], Any]]"]]:
    """An address to be called at, and the headers and bodies of the calls."""
    heard: asyncio.Queue[tuple[dict[str, str], Any]] = asyncio.Queue()

    async def hear(request: Request) -> Response:
        heard.put_nowait((dict(request.headers), await request.json()))
        return Response()

    async with served(Starlette(routes=[Route("/hook", hear, methods=["POST"])])) as url:
        yield f"{url}/hook", heard
