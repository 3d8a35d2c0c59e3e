"""A model around a model: its first answer is held back until guardrails, asked at the same time, let it through."""

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Sequence

from ..messages import Message
from ..models import Chunk, Model, ModelRequest
from ..tools.verdicts import GuardrailChecks


class GuardedModel:
    """The model of one activation, with the checks of that activation's input beside its first call."""

    __slots__ = ("_checks", "_has_passed", "_messages", "_model")

    def __init__(self, model: Model, checks: GuardrailChecks, messages: Sequence[Message]) -> None:
        self._model = model
        self._checks = checks
        self._messages = messages
        self._has_passed = False

    @property
    def name(self) -> str:
        """The name of the model inside."""
        return self._model.name

    def respond(self, request: ModelRequest) -> AsyncIterable[Chunk]:
        """The answer of the model inside."""
        return self._model.respond(request) if self._has_passed else self._held_back(request)

    async def finish(self) -> None:
        """Ask the guardrails now if the agent never asked its model. Raises GuardrailTrippedError if one says no."""
        if not self._has_passed:
            await self._checks.enforce(self._messages)
            self._has_passed = True

    async def _held_back(self, request: ModelRequest) -> AsyncIterator[Chunk]:
        heard: asyncio.Queue[Chunk | None] = asyncio.Queue()
        # One task reads the answer from its beginning to its end: what a provider opens in a task it must close there.
        hearing = asyncio.create_task(self._hear(request, heard))
        try:
            await self._checks.enforce(self._messages, on_trip=hearing.cancel)
            self._has_passed = True
            while (chunk := await heard.get()) is not None:
                yield chunk
            await hearing
        finally:
            hearing.cancel()
            await asyncio.gather(hearing, return_exceptions=True)

    async def _hear(self, request: ModelRequest, heard: "asyncio.Queue[Chunk | None]") -> None:
        try:
            chunks = self._model.respond(request)
            try:
                async for chunk in chunks:
                    heard.put_nowait(chunk)
            finally:
                close = getattr(chunks, "aclose", None)
                if close is not None:
                    await close()
        finally:
            heard.put_nowait(None)
