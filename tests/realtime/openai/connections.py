"""Connections between the OpenAI realtime model and the test server."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from tests.servers import OpenAIRealtimeServer
from tests.waiting import PATIENCE

from batonkit.realtime.openai import OpenAIRealtimeModel
from batonkit.realtime.voice_settings import RealtimeSettings, SessionConfig
from batonkit.testing.conformance.realtime_checks import ConversationProbe

AUDIO_CONFIG = SessionConfig("Desk", "Be kind.")
TEXT_CONFIG = SessionConfig("Desk", "Be kind.", settings=RealtimeSettings(modality="text"))


def make_model(server: OpenAIRealtimeServer, **options: Any) -> OpenAIRealtimeModel:
    """Create a model that connects to the server."""
    arguments: dict[str, Any] = {"api_key": server.api_key, "base_url": server.base_url, "timeout": PATIENCE, **options}
    return OpenAIRealtimeModel(**arguments)


@asynccontextmanager
async def connect(
    server: OpenAIRealtimeServer, settings: SessionConfig = AUDIO_CONFIG, **options: Any
) -> AsyncGenerator[ConversationProbe, None]:
    """Connect a model to the server."""
    connection = await make_model(server, **options).connect(settings)
    try:
        yield ConversationProbe(connection)
    finally:
        await connection.close()
