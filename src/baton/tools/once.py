"""A tool that must never run twice: it says what it is about to do before it does it.

If a crash leaves open whether it was done, nobody runs it again: the run asks somebody who can find out.
"""

import json
from time import time
from typing import Any, Literal, TypeAlias

import msgspec
from msgspec import Struct

from ..context import RunContext, Suspend
from ..errors import AnswerError
from ..events import Stepped
from .base import Tool, ToolOutcome
from .results import outcome_of
from .wrapping import Wrapper, unwrapped

Effect: TypeAlias = Literal["read", "idempotent", "once"]
"""What a call of a tool does outside: nothing, something that may happen twice, or something that must not."""

_WORKS = 'answer {"result": …} with what it gave, {"error": "…"} with why it failed, or {"run_again": true}'


class Found(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """What somebody found out about a call of which nobody knew whether it was done."""

    result: Any = None
    error: str = ""
    run_again: bool = False


def found_out(answer: Any) -> Found:
    """What the answer to such a question means. Raises AnswerError if it is not an answer to it."""
    try:
        return msgspec.convert(answer, Found)
    except msgspec.ValidationError as error:
        raise AnswerError(f"{answer!r} does not say what became of the call ({error}); {_WORKS}") from None


class Once(Wrapper):
    """Lets a tool run only if it is on record that it is about to, and has not been before."""

    def __init__(self, inner: Tool, *, is_final: bool = False) -> None:
        """`is_final` says that the tool's result is the agent's answer, whoever tells of it."""
        super().__init__(inner)
        self._is_final = is_final

    async def call(self, ctx: RunContext[Any], arguments: str) -> ToolOutcome:
        """Record the intent, then do it. If an earlier attempt has left only its intent behind, ask."""
        log, attempt = ctx.run.log, 1
        while log.find(f"{ctx.scope}/intent{attempt}", Stepped) is not None:
            # The tool itself asked something, and came no further: that attempt is known to be over.
            if log.find(f"{ctx.scope}/paused{attempt}", Stepped) is None:
                found = await self._asked(ctx, attempt, arguments)
                if not found.run_again:
                    return self._as_found(found)
            attempt += 1
        key = f"{ctx.scope}/intent{attempt}"
        log.announce(key, Stepped)
        log.write(Stepped(key, ctx.origin, time(), "intent", self.spec.name))
        await log.settle()
        try:
            return await self.inner.call(ctx, arguments)
        except Suspend:
            log.write(Stepped(f"{ctx.scope}/paused{attempt}", ctx.origin, time(), "paused"))
            await log.settle()
            raise

    async def _asked(self, ctx: RunContext[Any], attempt: int, arguments: str) -> Found:
        question = {
            "kind": "unknown_outcome",
            "tool": self.spec.name,
            "arguments": _as_data(arguments),
            "idempotency_key": ctx.idempotency_key,
        }
        # In a place of its own: the tool's own questions are counted from one.
        place: RunContext[Any] = RunContext(ctx.run, ctx.origin, f"{ctx.scope}/unknown{attempt}", ctx.call)
        return found_out(await place.interrupt(question))

    def _as_found(self, found: Found) -> ToolOutcome:
        if found.error:
            return ToolOutcome(found.error, is_error=True)
        return outcome_of(found.result, self.spec.name, is_final=self._is_final)


def _as_data(arguments: str) -> Any:
    try:
        return json.loads(arguments.strip() or "{}")
    except ValueError:
        return arguments


def effect_of(tool: Tool) -> Effect:
    """What calls of the tool do outside, as far as it says."""
    return getattr(unwrapped(tool), "effect", "idempotent")
