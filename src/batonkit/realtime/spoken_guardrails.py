"""Output guardrails on a response while it is being spoken, checked at intervals of its transcript."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

from ..agents import AgentContext
from ..context import RunContext
from ..log import keys
from ..tools.tool_guardrails import Guardrail, GuardrailChecks
from .agent_definition import RealtimeDefinition
from .mailbox import GuardrailFired, MailboxEvent, SessionEnded
from .transcript import TranscriptSlot


@dataclass(eq=False)
class ResponseGuard:
    """Checks one response, each time after `interval` more characters of its transcript.

    It posts at most one `GuardrailFired`, and `SessionEnded` if a guardrail raises while the response is in progress.
    """

    guardrails: tuple[Guardrail, ...]
    ctx: AgentContext[Any]
    slot: TranscriptSlot
    interval: int
    post: Callable[[MailboxEvent], None]
    _text: str = ""
    _checked: int = 0
    _checks: int = 0
    _task: asyncio.Task[None] | None = None
    _is_finished: bool = False

    def add_text(self, text: str) -> None:
        """Add transcript text, and start a check if enough of it is unchecked."""
        self._text += text
        if len(self._text) - self._checked >= self.interval and self._task is None:
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
            self.post(SessionEnded(error=error))

    async def _check(self) -> None:
        while not self._is_finished:
            self._checked = len(self._text)
            self._checks += 1
            ctx = RunContext(self.ctx._run, self.ctx._origin, keys.inside(self.slot.key, f"g{self._checks}"))
            trip = await GuardrailChecks(self.guardrails, ctx, "output").run(self._text)
            if trip is not None:
                self._is_finished = self.slot.is_stopped = True
                self.post(GuardrailFired(trip))
            elif len(self._text) - self._checked < self.interval:
                break
        self._task = None


class ResponseGuards:
    """The guards of one activation, one per response."""

    def __init__(self, agent: RealtimeDefinition[Any], ctx: AgentContext[Any], interval: int) -> None:
        self._guardrails = cast("tuple[Guardrail, ...]", agent.output_guardrails)
        self._ctx = ctx
        self._interval = interval
        self._guards: dict[str, ResponseGuard] = {}
        self._early: dict[str, str] = {}
        """Text that arrived before its response's start event was processed."""

    def start(self, response_id: str, slot: TranscriptSlot, post: Callable[[MailboxEvent], None]) -> None:
        """Start to check a response."""
        if self._guardrails:
            guard = ResponseGuard(self._guardrails, self._ctx, slot, self._interval, post)
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
