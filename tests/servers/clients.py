"""OpenAI's own client, aimed at a server of ours."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
from openai import AsyncOpenAI
from tests.servers import ProviderServer

HELLO: list[Any] = [{"role": "user", "content": "Hello"}]


@asynccontextmanager
async def official(server: ProviderServer, **options: Any) -> AsyncGenerator[AsyncOpenAI, None]:
    """The official client, which never tries twice."""
    settings: dict[str, Any] = {"api_key": server.api_key, "base_url": server.base_url, "max_retries": 0, **options}
    async with AsyncOpenAI(**settings) as client:
        yield client


async def posted(server: ProviderServer, path: str, body: Any, **headers: str) -> tuple[int, Any]:
    """Status and JSON of a request that no client would send: `body` is JSON, or bytes as they are."""
    sent = {"authorization": f"Bearer {server.api_key}", "content-type": "application/json", **headers}
    async with aiohttp.ClientSession() as session:
        given: dict[str, Any] = {"data": body} if isinstance(body, bytes) else {"json": body}
        async with session.post(f"{server.origin}{path}", headers=sent, **given) as response:
            return response.status, await response.json()
