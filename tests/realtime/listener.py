"""A conversation with somebody who listens to it all the time, so that a test can wait for what it wants to hear."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from baton.errors import BatonError
from baton.events import AgentResponded, ControlTransferred, Delta, Event, ToolReturned
from baton.realtime import RealtimeAgent, RealtimeModel, RealtimeRunner, RealtimeSession, RealtimeSettings

WRITTEN = RealtimeSettings(modality="text")
E = TypeVar("E", bound="Event | Delta")


def make_runner(
    agent: RealtimeAgent,
    model: RealtimeModel,
    *,
    settings: RealtimeSettings = WRITTEN,
    reconnect_delay: float = 0.01,
    **more: Any,
) -> RealtimeRunner[Any]:
    """A runner for conversations in writing, which does not wait long before it connects again."""
    return RealtimeRunner(agent, model=model, settings=settings, reconnect_delay=reconnect_delay, **more)


class Listener:
    """Everything that a session has delivered so far."""

    def __init__(self, session: RealtimeSession) -> None:
        self.session = session
        self.events: list[Event | Delta] = []
        self.failure: BatonError | None = None
        """What the conversation ended with, if it failed."""
        self._news = asyncio.Event()
        self._over = asyncio.Event()

    async def listen(self) -> None:
        """Take in everything, to the end."""
        try:
            async for event in self.session:
                self.events.append(event)
                self._news.set()
        except BatonError as error:
            self.failure = error
        finally:
            self._over.set()

    def all(self, kind: type[E]) -> list[E]:
        """Whatever there was of this kind."""
        return [event for event in self.events if isinstance(event, kind)]

    async def until(
        self, kind: type[E], nth: int = 1, *, where: Callable[[Any], bool] = lambda event: True, within: float = 60.0
    ) -> E:
        """The nth event of a kind, counted from the beginning."""
        try:
            async with asyncio.timeout(within):
                while len(found := [event for event in self.all(kind) if where(event)]) < nth:
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError:
            kinds = ", ".join(type(event).__name__ for event in self.events[-30:])
            raise AssertionError(f"waited {within:g} s for {kind.__name__} number {nth}; there came: {kinds}") from None
        return found[nth - 1]

    async def until_over(self, within: float = 60.0) -> None:
        """Until the conversation has ended by itself."""
        await asyncio.wait_for(self._over.wait(), within)

    async def said(self, nth: int = 1) -> AgentResponded:
        """What was said as number `nth`."""
        return await self.until(AgentResponded, nth)

    @property
    def words(self) -> list[str]:
        """What agents said."""
        return [said.text for said in self.all(AgentResponded) if said.text]

    @property
    def results(self) -> list[tuple[str, str]]:
        """What calls came to."""
        return [(each.tool_name, str(each.content)) for each in self.all(ToolReturned)]

    @property
    def transfers(self) -> list[tuple[str, str]]:
        """Who had the floor, and who got it."""
        return [(each.agent, each.target) for each in self.all(ControlTransferred)]


@asynccontextmanager
async def listening_to(session: RealtimeSession) -> AsyncGenerator[Listener, None]:
    """Open the conversation, and listen until it is over."""
    async with session:
        listener = Listener(session)
        task = asyncio.create_task(listener.listen())
        try:
            yield listener
        finally:
            await session.close()
            await asyncio.wait_for(task, 60)
