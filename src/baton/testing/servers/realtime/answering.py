"""Who answers in a session: one response at a time, begun and stopped as the client or its speech wants it."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from typing import Any, TypeAlias

from ....models import Chunk
from ..openai.errors import wrong
from .conversation import ServedConversation
from .line import ServedConnection
from .speaking import ResponsePace, ResponseWriter

Ask: TypeAlias = Callable[[dict[str, Any]], AsyncIterator[Chunk]]
"""Asks the script for an answer, under these settings."""


class ResponseQueue:
    """The responses of one session. `afterwards` is awaited whenever one has ended."""

    def __init__(
        self,
        line: ServedConnection,
        conversation: ServedConversation,
        *,
        pace: ResponsePace,
        ask: Ask,
        afterwards: Callable[[], Awaitable[None]],
    ) -> None:
        self._line = line
        self._conversation = conversation
        self._pace = pace
        self._ask = ask
        self._afterwards = afterwards
        self._speaking: ResponseWriter | None = None
        self._playing: asyncio.Task[None] | None = None
        self._next: dict[str, Any] | None = None
        self._had_audio = False

    @property
    def is_under_way(self) -> bool:
        """Whether a response is under way."""
        return self._playing is not None and not self._playing.done()

    @property
    def has_audio(self) -> bool:
        """Whether anything was ever spoken."""
        return self._had_audio or (self._speaking is not None and self._speaking.has_spoken)

    async def create(self, settings: dict[str, Any], metadata: Any) -> None:
        """Begin a response that the client wants; a Rejection if there is one already."""
        speaking, playing = self._speaking, self._playing
        if speaking is not None and playing is not None and speaking.is_ending:
            # The client may know already that it has ended: it is only its task that has not.
            await asyncio.wait([playing])
        if self.is_under_way and self._speaking is not None:
            message = (
                f"Conversation already has an active response in progress: {self._speaking.id}. "
                "Wait until the response is finished before creating a new one."
            )
            raise wrong(message, code="conversation_already_has_active_response")
        await self._begin(settings, metadata)

    async def follow(self, settings: dict[str, Any]) -> None:
        """Begin a response as soon as none is under way."""
        if self.is_under_way:
            self._next = settings
        else:
            await self._begin(settings, None)

    async def cancel_by_hand(self, response_id: str | None) -> None:
        """Stop the response that the client wants to be stopped; a Rejection if that is none."""
        running = self._speaking.id if self._speaking is not None and self.is_under_way else None
        if running is None or response_id not in (None, running) or not await self.cancel("client_cancelled"):
            raise wrong("Cancellation failed: no active response found", code="response_cancel_not_active")

    async def cancel(self, reason: str) -> bool:
        """Stop the response under way; False if there is none, or if it has just said everything."""
        speaking, playing = self._speaking, self._playing
        if speaking is None or playing is None or playing.done():
            return False
        if speaking.is_ending:
            await asyncio.wait([playing])
            return False
        speaking.stop(playing)
        await asyncio.wait([playing])
        if speaking.is_ending:
            return False
        await speaking.end("cancelled", reason)
        await self._after_one(speaking)
        return True

    async def close(self) -> None:
        """Stop, because the line is gone."""
        if self._playing is not None:
            self._playing.cancel()
            await asyncio.wait([self._playing])

    async def _begin(self, settings: dict[str, Any], metadata: Any) -> None:
        speaking = ResponseWriter(self._line, self._conversation, settings=settings, metadata=metadata, pace=self._pace)
        self._speaking = speaking
        # Begun here and not in the task, which may be stopped before it has done anything.
        await speaking.begin()
        self._playing = asyncio.create_task(self._play(speaking, settings))

    async def _play(self, speaking: ResponseWriter, settings: dict[str, Any]) -> None:
        # A line that is gone needs no answer: whoever reads from it finds out by itself.
        with suppress(ConnectionError):
            await speaking.play(lambda: self._ask(settings))
            await self._after_one(speaking)

    async def _after_one(self, speaking: ResponseWriter) -> None:
        self._had_audio = self._had_audio or speaking.has_spoken
        await self._afterwards()
        if self._next is not None:
            settings, self._next = self._next, None
            await self._begin(settings, None)
