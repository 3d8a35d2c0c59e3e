"""A socket of this machine that a server has for as long as it is entered."""

import asyncio
from abc import ABC, abstractmethod
from types import TracebackType
from typing import Any, Self

from aiohttp import web

from ...errors import SetupError

_MOST_BYTES = 64 * 1024 * 1024


class LoopbackServer(ABC):
    """Listens on a free port while it is entered."""

    stops_with_its_client = True
    """Whether whoever answers a request is cancelled as soon as its connection is gone."""

    def __init__(self) -> None:
        self.is_closing = False
        """Whether it is about to shut down: who leaves now does so because of that."""
        self._port = 0
        self._site: asyncio.Server | None = None
        self._web: web.Server | None = None

    @abstractmethod
    async def handle(self, http: web.BaseRequest) -> web.StreamResponse:
        """Answer one request."""

    @property
    def origin(self) -> str:
        """Scheme, host and port."""
        if not self._port:
            raise SetupError(f"{type(self).__name__} has no address yet; enter it first: async with server: …")
        return f"http://127.0.0.1:{self._port}"

    async def __aenter__(self) -> Self:
        if self._site is not None:
            raise SetupError(f"{type(self).__name__} was entered before; make one for each `async with`")
        loop = asyncio.get_running_loop()

        def large(message: Any, payload: Any, protocol: Any, writer: Any, task: Any) -> web.BaseRequest:
            return web.BaseRequest(message, payload, protocol, writer, task, loop, client_max_size=_MOST_BYTES)

        stops = self.stops_with_its_client
        self._web = web.Server(self.handle, request_factory=large, handler_cancellation=stops, access_log=None)
        self._site = await loop.create_server(self._web, "127.0.0.1", 0, backlog=1024)
        self._port = self._site.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._site is None or self._web is None:
            return
        self.is_closing = True
        self._site.close()
        for connection in self._web.connections:
            # Whoever is still answering is stopped by this, as if its client had gone.
            connection.force_close()
        await self._web.shutdown(1.0)
