"""Recorder of the events of a session; tests can wait for events."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from tests.waiting import PATIENCE

from batonkit.errors import BatonError
from batonkit.log import AgentResponded, ControlTransferred, Delta, Event, ToolReturned
from batonkit.realtime import (
    PlaybackTracker,
    RealtimeAgent,
    RealtimeModel,
    RealtimeRunner,
    RealtimeSession,
    RealtimeSettings,
)

TEXT_ONLY = RealtimeSettings(modality="text")
E = TypeVar("E", bound="Event | Delta")


def make_runner(
    agent: RealtimeAgent,
    model: RealtimeModel,
    *,
    settings: RealtimeSettings = TEXT_ONLY,
    reconnect_delay: float = 0.01,
    **options: Any,
) -> RealtimeRunner[Any]:
    """Create a runner for text sessions that reconnects quickly."""
    return RealtimeRunner(agent, model=model, settings=settings, reconnect_delay=reconnect_delay, **options)


def unplayed() -> PlaybackTracker:
    """Create a tracker whose clock stands still: audio counts as played only as far as a test reports it."""
    return PlaybackTracker(clock=lambda: 0.0)


class SessionRecorder:
    """Records everything that a session delivers."""

    def __init__(self, session: RealtimeSession) -> None:
        self.session = session
        self.events: list[Event | Delta] = []
        self.failure: BatonError | None = None
        """The error of a failed session."""
        self._has_new = asyncio.Event()
        self._has_ended = asyncio.Event()

    async def record(self) -> None:
        """Record events until the session has ended."""
        try:
            async for event in self.session:
                self.events.append(event)
                self._has_new.set()
        except BatonError as error:
            self.failure = error
        finally:
            self._has_ended.set()

    def of_type(self, kind: type[E]) -> list[E]:
        """Return the events of a class."""
        return [event for event in self.events if isinstance(event, kind)]

    async def wait_for(
        self,
        kind: type[E],
        nth: int = 1,
        *,
        where: Callable[[Any], bool] = lambda event: True,
        within: float = PATIENCE,
    ) -> E:
        """Wait for the nth event of a class, counted from the start of the session."""
        try:
            async with asyncio.timeout(within):
                while len(found := [event for event in self.of_type(kind) if where(event)]) < nth:
                    self._has_new.clear()
                    await self._has_new.wait()
        except TimeoutError:
            kinds = ", ".join(type(event).__name__ for event in self.events[-30:])
            raise AssertionError(f"waited {within:g} s for {kind.__name__} number {nth}; received: {kinds}") from None
        return found[nth - 1]

    async def wait_until_ended(self, within: float = PATIENCE) -> None:
        """Wait until the session has ended."""
        await asyncio.wait_for(self._has_ended.wait(), within)

    async def wait_for_response(self, nth: int = 1) -> AgentResponded:
        """Wait for the nth response."""
        return await self.wait_for(AgentResponded, nth)

    @property
    def response_texts(self) -> list[str]:
        """The texts of all responses that have text."""
        return [response.text for response in self.of_type(AgentResponded) if response.text]

    @property
    def tool_results(self) -> list[tuple[str, str]]:
        """Name and result of all tool calls."""
        return [(each.tool_name, str(each.content)) for each in self.of_type(ToolReturned)]

    @property
    def transfers(self) -> list[tuple[str, str]]:
        """Source and target of all transfers."""
        return [(each.agent, each.target) for each in self.of_type(ControlTransferred)]


@asynccontextmanager
async def record_session(session: RealtimeSession) -> AsyncGenerator[SessionRecorder, None]:
    """Open a session and record it until it has ended."""
    async with session:
        recorder = SessionRecorder(session)
        task = asyncio.create_task(recorder.record())
        try:
            yield recorder
        finally:
            await session.close()
            await task
