"""A model of OpenAI and a server of ours, with a connection between them that can be asked for signals."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from baton.realtime.base import RealtimeConnection
from baton.realtime.commands import Command
from baton.realtime.openai import OpenAIRealtimeModel
from baton.realtime.settings import Manners, SessionSettings
from baton.realtime.signals import Signal
from baton.testing.servers import OpenAIRealtimeServer

SPOKEN = SessionSettings("Desk", "Be kind.")
WRITTEN = SessionSettings("Desk", "Be kind.", manners=Manners(modality="text"))
S = TypeVar("S", bound=Signal)


class Talk:
    """One conversation; every signal that was read is kept."""

    def __init__(self, connection: RealtimeConnection) -> None:
        self.connection = connection
        self.signals: list[Signal] = []
        self._coming: AsyncIterator[Signal] = aiter(connection)

    async def send(self, *commands: Command) -> None:
        """Send them, one after the other."""
        for command in commands:
            await self.connection.send(command)

    async def until(self, kind: type[S], nth: int = 1) -> S:
        """The nth signal of a kind, counted from the beginning."""
        async with asyncio.timeout(5):
            while len(found := self.all(kind)) < nth:
                self.signals.append(await anext(self._coming))
        return found[nth - 1]

    async def to_the_end(self) -> None:
        """Whatever still comes."""
        async with asyncio.timeout(5):
            async for signal in self._coming:
                self.signals.append(signal)

    def all(self, kind: type[S]) -> list[S]:
        """All signals of a kind so far."""
        return [signal for signal in self.signals if isinstance(signal, kind)]


def model_of(server: OpenAIRealtimeServer, **options: Any) -> OpenAIRealtimeModel:
    """The model, aimed at the server."""
    given: dict[str, Any] = {"api_key": server.api_key, "base_url": server.base_url, **options}
    return OpenAIRealtimeModel(**given)


@asynccontextmanager
async def talk(
    server: OpenAIRealtimeServer, settings: SessionSettings = SPOKEN, **options: Any
) -> AsyncGenerator[Talk, None]:
    """A conversation between the two."""
    connection = await model_of(server, **options).connect(settings)
    try:
        yield Talk(connection)
    finally:
        await connection.close()
