"""Where a realtime model is tested: its provider, the model itself, and a conversation with it."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, ClassVar, Generic, Protocol, TypeVar

import pytest

from ...realtime.base import RealtimeConnection, RealtimeModel
from ...realtime.commands import Command
from ...realtime.settings import Manners, SessionSettings
from ...realtime.signals import Signal
from ..steps import Step

SPOKEN = SessionSettings("Tester", "Be kind.", manners=Manners(turn_detection=None))
"""A conversation that is spoken, in which the application says when the user has ceased to speak."""
WRITTEN = SessionSettings("Tester", "Be kind.", manners=Manners(modality="text", turn_detection=None))
_PATIENCE = 30.0


class RealtimeProvider(Protocol):
    """What is behind the model under test, and plays the script: a server of `baton.testing.servers`, or your own."""

    @property
    def complaints(self) -> Sequence[object]:
        """What it was sent that it does not take."""
        ...


P = TypeVar("P", bound=RealtimeProvider)
S = TypeVar("S", bound=Signal)


class Conversing:
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
        """The nth signal of a kind, counted from the beginning; AssertionError if it does not come."""
        try:
            async with asyncio.timeout(_PATIENCE):
                while len(found := self.all(kind)) < nth:
                    self.signals.append(await anext(self._coming))
        except (TimeoutError, StopAsyncIteration):
            there = ", ".join(type(signal).__name__ for signal in self.signals)
            raise AssertionError(f"there was no {nth}. {kind.__name__}; there were: {there}") from None
        return found[nth - 1]

    async def to_the_end(self) -> None:
        """Whatever still comes."""
        async with asyncio.timeout(_PATIENCE):
            async for signal in self._coming:
                self.signals.append(signal)

    def all(self, kind: type[S]) -> list[S]:
        """All signals of a kind so far."""
        return [signal for signal in self.signals if isinstance(signal, kind)]


class RealtimeBench(ABC, Generic[P]):
    """What the author of a realtime model supplies."""

    pytestmark = [pytest.mark.asyncio]
    cannot: ClassVar[frozenset[str]] = frozenset()
    """What the model cannot do, in the words of `REALTIME_ABILITIES`; those checks are skipped, and say so."""

    @abstractmethod
    def provider(self, steps: Iterable[Step], hears: Iterable[str]) -> AbstractAsyncContextManager[P]:
        """A provider that plays these steps, one for each response, and understands audio as these words."""

    @abstractmethod
    def model(self, provider: P) -> RealtimeModel:
        """The model under test, aimed at this provider."""

    @asynccontextmanager
    async def talking(
        self, *steps: Step, settings: SessionSettings = SPOKEN, hears: Iterable[str] = (), is_in_order: bool = True
    ) -> AsyncGenerator[Conversing, None]:
        """A conversation whose provider plays these steps; afterwards it must have had nothing to complain about."""
        async with self.provider(steps, hears) as provider:
            model: Any = self.model(provider)
            connection = await model.connect(settings)
            try:
                yield Conversing(connection)
            finally:
                await connection.close()
                if hasattr(model, "aclose"):
                    await model.aclose()
            if is_in_order:
                assert list(provider.complaints) == []

    def needs(self, ability: str) -> None:
        """Skip the check if the author says that the model cannot do this."""
        if ability in self.cannot:
            pytest.skip(f"{type(self).__name__} says that it cannot do: {ability}")
