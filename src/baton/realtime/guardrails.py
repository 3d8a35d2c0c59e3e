"""Guardrails on what an agent says while it says it: asked now and then, not at every word."""

import asyncio
from collections.abc import Callable
from typing import Any

from ..agents import AgentContext
from ..context import RunContext
from ..errors import GuardrailTrippedError
from ..tools.guardrails import Guardrail, GuardrailChecks


class ResponseGuard:
    """Judges one response. `on_trip` is called once, with the first no; `on_failure` if a guardrail fails meanwhile."""

    def __init__(
        self,
        guardrails: tuple[Guardrail, ...],
        ctx: AgentContext[Any],
        key: str,
        *,
        step: int,
        on_trip: Callable[[GuardrailTrippedError], None],
        on_failure: Callable[[BaseException], None],
    ) -> None:
        self._guardrails = guardrails
        self._ctx = ctx
        self._key = key
        self._step = step
        self._on_trip = on_trip
        self._on_failure = on_failure
        self._text = ""
        self._judged = 0
        self._asked = 0
        self._task: asyncio.Task[None] | None = None
        self._is_over = False

    def hear(self, text: str) -> None:
        """Take in more of the transcript; if there is enough that nobody has judged, it is judged now."""
        self._text += text
        if len(self._text) - self._judged >= self._step and self._task is None:
            self._task = asyncio.create_task(self._judge(), name="baton guardrails")
            self._task.add_done_callback(self._ended)

    async def finish(self, text: str) -> None:
        """Have all of it judged, now that it is said. Raises what a guardrail raised that failed."""
        if self._task is not None:
            await self._task
        if not self._is_over and text and (text != self._text or self._judged < len(text)):
            self._text = text
            await self._judge()

    async def stop(self) -> None:
        """Judge nothing more."""
        self._is_over = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    def _ended(self, task: "asyncio.Task[None]") -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            # At once: what nobody can judge must not be said to its end.
            self._on_failure(error)

    async def _judge(self) -> None:
        while not self._is_over:
            self._judged, self._asked = len(self._text), self._asked + 1
            place = RunContext(self._ctx._run, self._ctx._origin, f"{self._key}/g{self._asked}")
            trip = await GuardrailChecks(self._guardrails, place, "output").run(self._text)
            if trip is not None:
                self._is_over = True
                self._on_trip(trip)
            elif len(self._text) - self._judged < self._step:
                break
        self._task = None


class ResponseGuards:
    """The guardrails of one activation. Each response is judged by itself, from its first word on."""

    def __init__(self, guardrails: tuple[Guardrail, ...], ctx: AgentContext[Any]) -> None:
        self._guardrails = guardrails
        self._ctx = ctx
        self._guards: dict[str, ResponseGuard] = {}
        self._early: dict[str, str] = {}
        """What was said in responses of which it has not been taken note yet that they have begun."""

    def begin(
        self,
        response_id: str,
        key: str,
        *,
        step: int,
        on_trip: Callable[[GuardrailTrippedError], None],
        on_failure: Callable[[BaseException], None],
    ) -> None:
        """Judge what is said in this response. `step` is after how many characters more the guardrails are asked."""
        if self._guardrails:
            guard = ResponseGuard(self._guardrails, self._ctx, key, step=step, on_trip=on_trip, on_failure=on_failure)
            self._guards[response_id] = guard
            guard.hear(self._early.pop(response_id, ""))

    def hear(self, response_id: str, text: str) -> None:
        """A piece of what is said."""
        guard = self._guards.get(response_id)
        if guard is not None:
            guard.hear(text)
        elif self._guardrails:
            self._early[response_id] = self._early.get(response_id, "") + text

    async def finish(self, response_id: str, text: str) -> None:
        """Have all of a response judged, now that it is said."""
        guard = self._guards.get(response_id)
        if guard is not None:
            await guard.finish(text)
            del self._guards[response_id]

    async def stop(self) -> None:
        """Judge nothing more."""
        for guard in self._guards.values():
            await guard.stop()
