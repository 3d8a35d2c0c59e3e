"""The connection to a remote service: its card, and the SDK's client on an HTTP client of our own."""

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from a2a.client import Client, ClientConfig, ClientFactory
from a2a.client.card_resolver import A2ACardResolver
from a2a.types.a2a_pb2 import (
    AgentCard,
    CancelTaskRequest,
    GetTaskRequest,
    Message,
    SendMessageRequest,
    StreamResponse,
    SubscribeToTaskRequest,
    Task,
)
from a2a.utils.constants import TransportProtocol

if TYPE_CHECKING:
    import httpx

_CONNECT = 10.0

Credentials: TypeAlias = str | Callable[[], Mapping[str, str] | Awaitable[Mapping[str, str]]]
"""A bearer token, or a function that gives the headers for the next request."""


class A2AServiceClient:
    """One service, in one event loop."""

    def __init__(
        self, where: str | AgentCard, *, auth: Credentials | None, headers: Mapping[str, str], timeout: float
    ) -> None:
        import httpx

        self._where = where
        self._auth = auth
        # Answers may take long; that there is no connection is known soon.
        limits = httpx.Timeout(timeout, connect=_CONNECT)
        hooks: dict[str, list[Callable[..., Any]]] = {"request": [self._sign]}
        self._http = httpx.AsyncClient(timeout=limits, headers=dict(headers), event_hooks=hooks)
        self._client: Client | None = None
        self.card: AgentCard | None = where if isinstance(where, AgentCard) else None

    async def _sign(self, request: "httpx.Request") -> None:
        if isinstance(self._auth, str):
            request.headers["Authorization"] = f"Bearer {self._auth}"
        elif self._auth is not None:
            given = self._auth()
            request.headers.update(await given if isawaitable(given) else given)

    async def client(self) -> Client:
        """The SDK's client; the card is fetched when it is first needed."""
        if self._client is None:
            if self.card is None:
                self.card = await A2ACardResolver(self._http, cast("str", self._where)).get_agent_card()
            config = ClientConfig(
                httpx_client=self._http,
                supported_protocol_bindings=[TransportProtocol.JSONRPC, TransportProtocol.HTTP_JSON],
                streaming=self.streams,
                polling=not self.streams,
            )
            self._client = ClientFactory(config).create(self.card)
        return self._client

    @property
    def streams(self) -> bool:
        """Whether the service tells what happens while it happens."""
        return self.card is not None and self.card.capabilities.streaming

    async def send(self, message: Message) -> AsyncGenerator[StreamResponse]:
        """Say something; what comes of it. If the service does not stream, that is a task to look at again."""
        client = await self.client()
        async for response in _closing(client.send_message(SendMessageRequest(message=message))):
            yield response

    async def listen(self, task_id: str) -> AsyncGenerator[StreamResponse]:
        """How a task stands, and what happens in it if the service streams."""
        client = await self.client()
        if not self.streams:
            yield StreamResponse(task=await self.get(task_id))
            return
        async for response in _closing(client.subscribe(SubscribeToTaskRequest(id=task_id))):
            yield response

    async def get(self, task_id: str) -> Task:
        """How a task stands."""
        return await (await self.client()).get_task(GetTaskRequest(id=task_id))

    async def cancel(self, task_id: str) -> None:
        """Have a task stopped."""
        await (await self.client()).cancel_task(CancelTaskRequest(id=task_id))

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()


async def _closing(responses: AsyncIterator[StreamResponse]) -> AsyncGenerator[StreamResponse]:
    # The SDK's generators, one inside the other, would close the response only when they are collected.
    stream = cast("AsyncGenerator[StreamResponse]", responses)
    try:
        async for response in stream:
            yield response
    finally:
        await stream.aclose()
