"""A model of OpenAI and a server of ours, with a connection between them that can be asked for signals."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from tests.servers import OpenAIRealtimeServer

from baton.realtime.openai import OpenAIRealtimeModel
from baton.realtime.settings import RealtimeSettings, SessionConfig
from baton.testing.conformance.realtime import ConversationProbe

SPOKEN = SessionConfig("Desk", "Be kind.")
WRITTEN = SessionConfig("Desk", "Be kind.", settings=RealtimeSettings(modality="text"))


def model_of(server: OpenAIRealtimeServer, **options: Any) -> OpenAIRealtimeModel:
    """The model, aimed at the server."""
    given: dict[str, Any] = {"api_key": server.api_key, "base_url": server.base_url, **options}
    return OpenAIRealtimeModel(**given)


@asynccontextmanager
async def talk(
    server: OpenAIRealtimeServer, settings: SessionConfig = SPOKEN, **options: Any
) -> AsyncGenerator[ConversationProbe, None]:
    """A conversation between the two."""
    connection = await model_of(server, **options).connect(settings)
    try:
        yield ConversationProbe(connection)
    finally:
        await connection.close()
