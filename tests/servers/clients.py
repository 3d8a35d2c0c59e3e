"""OpenAI's client for the local servers, and raw requests."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
from openai import AsyncOpenAI
from tests.servers import ProviderServer

HELLO: list[Any] = [{"role": "user", "content": "Hello"}]


@asynccontextmanager
async def official_client(server: ProviderServer, **options: Any) -> AsyncGenerator[AsyncOpenAI, None]:
    """Create the official client without retries."""
    settings: dict[str, Any] = {"api_key": server.api_key, "base_url": server.base_url, "max_retries": 0, **options}
    async with AsyncOpenAI(**settings) as client:
        yield client


async def post(server: ProviderServer, path: str, body: Any, **headers: str) -> tuple[int, Any]:
    """Send a raw request, and return the status and the JSON body; `body` is encoded as JSON unless it is bytes."""
    all_headers = {"authorization": f"Bearer {server.api_key}", "content-type": "application/json", **headers}
    async with aiohttp.ClientSession() as session:
        content: dict[str, Any] = {"data": body} if isinstance(body, bytes) else {"json": body}
        async with session.post(f"{server.origin}{path}", headers=all_headers, **content) as response:
            return response.status, await response.json()
