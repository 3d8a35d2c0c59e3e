"""Google's client on connections of our own, so that an answer nobody wants any more ends at once."""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from typing import TYPE_CHECKING, Any, NoReturn

from ..per_loop import trusted

if TYPE_CHECKING:
    from google.genai import types
    from httpx2 import Response as HTTPResponse

_MILLISECONDS = 600_000
_MOST_CONNECTIONS = 1000
_MOST_IDLE = 100


class Connection:
    """The SDK's client in one event loop."""

    def __init__(self, api_key: str | None, base_url: str | None, headers: Mapping[str, str]) -> None:
        import httpx2
        from google.genai import Client, types

        limits = httpx2.Limits(max_connections=_MOST_CONNECTIONS, max_keepalive_connections=_MOST_IDLE)
        hooks = {"response": [self._begun]}
        self._http = httpx2.AsyncClient(verify=trusted(), limits=limits, event_hooks=hooks, follow_redirects=True)
        # The SDK wants one that is not async as well; it is never used.
        self._unused = httpx2.Client(verify=trusted())
        self._responses: dict[asyncio.Task[Any] | None, HTTPResponse] = {}
        # With a client of ours the SDK does not repeat requests either: baton.models.Retry does, and knows when not to.
        options = types.HttpOptions(
            base_url=base_url,
            headers=dict(headers),
            timeout=_MILLISECONDS,
            httpx_client=self._unused,
            httpx_async_client=self._http,
        )
        self._client = Client(api_key=api_key, http_options=options)

    async def stream(self, given: dict[str, Any]) -> AsyncGenerator["types.GenerateContentResponse"]:
        """The pieces of one answer. Closing this closes the response, also where the SDK is still in the middle."""
        task = asyncio.current_task()
        response: HTTPResponse | None = None
        try:
            models: Any = self._client.aio.models
            async for piece in await models.generate_content_stream(**given):
                if response is None:
                    response = self._responses.pop(task, None)
                yield piece
        finally:
            # The SDK's generators, one inside the other, would close it only when they are collected.
            response = response or self._responses.pop(task, None)
            if response is not None:
                await response.aclose()

    async def close(self) -> None:
        """Close all connections."""
        _disarm(self._client)
        self._unused.close()
        await self._http.aclose()

    async def _begun(self, response: "HTTPResponse") -> None:
        # A request is sent, and its first piece read, in one step of one task: that is how the two find each other.
        self._responses[asyncio.current_task()] = response


def _disarm(client: Any) -> None:
    """Keep a closed client from starting `aclose()` in whatever event loop runs when it is garbage collected."""
    for each in (client.aio, getattr(client, "_api_client", None)):
        if each is not None:
            # Its `__del__` calls this, closed or not, and ignores what it raises.
            each.aclose = _closed_already


def _closed_already() -> NoReturn:
    raise RuntimeError("the client is closed")
