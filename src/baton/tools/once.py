"""A tool that must never run twice: it says what it is about to do before it does it.

If a crash leaves open whether it was done, nobody runs it again: the run asks somebody who can find out.
"""

import json
from time import time
from typing import Any, Literal, TypeAlias

import msgspec
from msgspec import Struct

from ..context import RunContext, SuspendRun
from ..errors import AnswerError
from ..events import StepCompleted
from .base import Tool, ToolResult
from .results import to_tool_result
from .wrapping import ToolWrapper, unwrap_tool

ToolEffect: TypeAlias = Literal["read", "idempotent", "once"]
"""What a call of a tool does outside: nothing, something that may happen twice, or something that must not."""

_WORKS = 'answer {"result": …} with what it gave, {"error": "…"} with why it failed, or {"run_again": true}'


class OutcomeReport(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """What somebody found out about a call of which nobody knew whether it was done."""

    result: Any = None
    error: str = ""
    run_again: bool = False


def parse_outcome_report(answer: Any) -> OutcomeReport:
    """What the answer to such a question means. Raises AnswerError if it is not an answer to it."""
    try:
        return msgspec.convert(answer, OutcomeReport)
    except msgspec.ValidationError as error:
        raise AnswerError(f"{answer!r} does not say what became of the call ({error}); {_WORKS}") from None


class OnceTool(ToolWrapper):
    """Lets a tool run only if it is on record that it is about to, and has not been before."""

    def __init__(self, inner: Tool, *, is_final: bool = False) -> None:
        """`is_final` says that the tool's result is the agent's answer, whoever tells of it."""
        super().__init__(inner)
        self._is_final = is_final

    async def call(self, ctx: RunContext[Any], arguments: str) -> ToolResult:
        """Record the intent, then do it. If an earlier attempt has left only its intent behind, ask."""
        log, attempt = ctx._run.log, 1
        while log.find(f"{ctx._scope}/intent{attempt}", StepCompleted) is not None:
            # The tool itself asked something, and came no further: that attempt is known to be over.
            if log.find(f"{ctx._scope}/paused{attempt}", StepCompleted) is None:
                found = await self._asked(ctx, attempt, arguments)
                if not found.run_again:
                    return self._as_found(found)
            attempt += 1
        key = f"{ctx._scope}/intent{attempt}"
        log.announce(key, StepCompleted)
        log.write(StepCompleted(key, ctx._origin, time(), "intent", self.spec.name))
        await log.settle()
        try:
            return await self.inner.call(ctx, arguments)
        except SuspendRun:
            log.write(StepCompleted(f"{ctx._scope}/paused{attempt}", ctx._origin, time(), "paused"))
            await log.settle()
            raise

    async def _asked(self, ctx: RunContext[Any], attempt: int, arguments: str) -> OutcomeReport:
        question = {
            "kind": "unknown_outcome",
            "tool": self.spec.name,
            "arguments": _as_data(arguments),
            "idempotency_key": ctx.idempotency_key,
        }
        # In a place of its own: the tool's own questions are counted from one.
        place: RunContext[Any] = RunContext(ctx._run, ctx._origin, f"{ctx._scope}/unknown{attempt}", ctx.tool_call)
        return parse_outcome_report(await place.interrupt(question))

    def _as_found(self, found: OutcomeReport) -> ToolResult:
        if found.error:
            return ToolResult(found.error, is_error=True)
        return to_tool_result(found.result, self.spec.name, is_final=self._is_final)


def _as_data(arguments: str) -> Any:
    try:
        return json.loads(arguments.strip() or "{}")
    except ValueError:
        return arguments


def tool_effect(tool: Tool) -> ToolEffect:
    """What calls of the tool do outside, as far as it says."""
    return getattr(unwrap_tool(tool), "effect", "idempotent")
