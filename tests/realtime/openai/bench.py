"""A model of OpenAI and a server of ours, with a connection between them that can be asked for signals."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from baton.realtime.openai import OpenAIRealtimeModel
from baton.realtime.settings import Manners, SessionSettings
from baton.testing.conformance.realtime_bench import Conversing
from baton.testing.servers import OpenAIRealtimeServer

SPOKEN = SessionSettings("Desk", "Be kind.")
WRITTEN = SessionSettings("Desk", "Be kind.", manners=Manners(modality="text"))


def model_of(server: OpenAIRealtimeServer, **options: Any) -> OpenAIRealtimeModel:
    """The model, aimed at the server."""
    given: dict[str, Any] = {"api_key": server.api_key, "base_url": server.base_url, **options}
    return OpenAIRealtimeModel(**given)


@asynccontextmanager
async def talk(
    server: OpenAIRealtimeServer, settings: SessionSettings = SPOKEN, **options: Any
) -> AsyncGenerator[Conversing, None]:
    """A conversation between the two."""
    connection = await model_of(server, **options).connect(settings)
    try:
        yield Conversing(connection)
    finally:
        await connection.close()
