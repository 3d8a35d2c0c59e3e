"""Clients of a realtime server: OpenAI's own, and one that can send invalid events."""

from collections.abc import AsyncGenerator, Iterable
from contextlib import asynccontextmanager
from typing import Any, cast

import aiohttp
from openai import AsyncOpenAI
from openai.resources.realtime.realtime import AsyncRealtimeConnection
from openai.types.realtime import RealtimeServerEvent
from pydantic import TypeAdapter
from tests.servers import OpenAIRealtimeServer
from tests.servers.realtime import RecordedEvent

STRICT: TypeAdapter[Any] = TypeAdapter(cast("Any", RealtimeServerEvent))
HELLO: dict[str, Any] = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hello"}]}
TEXT: dict[str, Any] = {"type": "realtime", "output_modalities": ["text"]}


@asynccontextmanager
async def official(
    server: OpenAIRealtimeServer, model: str = "gpt-realtime"
) -> AsyncGenerator[AsyncRealtimeConnection, None]:
    """Connect with OpenAI's own client."""
    client = AsyncOpenAI(api_key=server.api_key, base_url=server.base_url, max_retries=0)
    async with client, client.realtime.connect(model=model) as connection:
        yield connection


class RawClient:
    """A client that sends any JSON or text, and keeps all events it reads."""

    def __init__(self, websocket: aiohttp.ClientWebSocketResponse) -> None:
        self.websocket = websocket
        self.events: list[dict[str, Any]] = []

    async def send(self, type: str, **fields: Any) -> None:
        """Send one event."""
        await self.websocket.send_json({"type": type, **fields})

    async def until(self, type: str, nth: int = 1) -> dict[str, Any]:
        """Read until the nth event of a type, counted from the start, and return it."""
        while len(found := [event for event in self.events if event["type"] == type]) < nth:
            self.events.append(await self.websocket.receive_json())
        return found[nth - 1]

    def types(self) -> list[str]:
        """Return the types of the events so far."""
        return [event["type"] for event in self.events]


@asynccontextmanager
async def raw(server: OpenAIRealtimeServer, **headers: str) -> AsyncGenerator[RawClient, None]:
    """Connect with a raw client."""
    sent = {"authorization": f"Bearer {server.api_key}", **headers}
    url = f"{server.base_url}/realtime?model=gpt-realtime"
    async with aiohttp.ClientSession() as session, session.ws_connect(url, headers=sent) as websocket:
        client = RawClient(websocket)
        await client.until("session.created")
        yield client


def check_all(sent: Iterable[RecordedEvent]) -> None:
    """Check that the SDK accepts all events, with all fields that it requires."""
    for recorded in sent:
        parsed = STRICT.validate_json(recorded.raw)
        assert parsed.type == recorded.type
