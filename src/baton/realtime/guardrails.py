"""Output guardrails on a response while it is being spoken, checked at intervals of its transcript."""

import asyncio
from collections.abc import Callable
from typing import Any

from ..agents import AgentContext
from ..context import RunContext
from ..errors import GuardrailTrippedError
from ..tools.guardrails import Guardrail, GuardrailChecks


class ResponseGuard:
    """Checks one response.

    `on_trip` is called at most once; `on_failure` if a guardrail raises while the response is in progress.
    """

    def __init__(
        self,
        guardrails: tuple[Guardrail, ...],
        ctx: AgentContext[Any],
        key: str,
        *,
        interval: int,
        on_trip: Callable[[GuardrailTrippedError], None],
        on_failure: Callable[[BaseException], None],
    ) -> None:
        self._guardrails = guardrails
        self._ctx = ctx
        self._key = key
        self._interval = interval
        self._on_trip = on_trip
        self._on_failure = on_failure
        self._text = ""
        self._checked = 0
        self._checks = 0
        self._task: asyncio.Task[None] | None = None
        self._is_finished = False

    def add_text(self, text: str) -> None:
        """Add transcript text, and start a check if enough of it is unchecked."""
        self._text += text
        if len(self._text) - self._checked >= self._interval and self._task is None:
            self._task = asyncio.create_task(self._check(), name="baton guardrails")
            self._task.add_done_callback(self._on_done)

    async def finish(self, text: str) -> None:
        """Check the complete text. Raises the error of a guardrail that failed."""
        if self._task is not None:
            await self._task
        if not self._is_finished and text and (text != self._text or self._checked < len(text)):
            self._text = text
            await self._check()

    async def stop(self) -> None:
        """Cancel the current check and start no more."""
        self._is_finished = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    def _on_done(self, task: "asyncio.Task[None]") -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            # Reported at once: a response that cannot be checked must not be completed.
            self._on_failure(error)

    async def _check(self) -> None:
        while not self._is_finished:
            self._checked, self._checks = len(self._text), self._checks + 1
            ctx = RunContext(self._ctx._run, self._ctx._origin, f"{self._key}/g{self._checks}")
            trip = await GuardrailChecks(self._guardrails, ctx, "output").run(self._text)
            if trip is not None:
                self._is_finished = True
                self._on_trip(trip)
            elif len(self._text) - self._checked < self._interval:
                break
        self._task = None


class ResponseGuards:
    """The guards of one activation, one per response."""

    def __init__(self, guardrails: tuple[Guardrail, ...], ctx: AgentContext[Any]) -> None:
        self._guardrails = guardrails
        self._ctx = ctx
        self._guards: dict[str, ResponseGuard] = {}
        self._early: dict[str, str] = {}
        """Text that arrived before its response's start event was processed."""

    def start(
        self,
        response_id: str,
        key: str,
        *,
        interval: int,
        on_trip: Callable[[GuardrailTrippedError], None],
        on_failure: Callable[[BaseException], None],
    ) -> None:
        """Start to check a response, each time after `interval` more characters."""
        if self._guardrails:
            guard = ResponseGuard(
                self._guardrails, self._ctx, key, interval=interval, on_trip=on_trip, on_failure=on_failure
            )
            self._guards[response_id] = guard
            guard.add_text(self._early.pop(response_id, ""))

    def add_text(self, response_id: str, text: str) -> None:
        """Add transcript text of a response."""
        guard = self._guards.get(response_id)
        if guard is not None:
            guard.add_text(text)
        elif self._guardrails:
            self._early[response_id] = self._early.get(response_id, "") + text

    async def finish(self, response_id: str, text: str) -> None:
        """Check the complete text of a response."""
        guard = self._guards.get(response_id)
        if guard is not None:
            await guard.finish(text)
            del self._guards[response_id]

    async def stop(self) -> None:
        """Stop all checks."""
        for guard in self._guards.values():
            await guard.stop()
