"""A tool that asks a person first: whether it may run, and with which arguments."""

import json
from collections.abc import Awaitable, Callable
from functools import partial
from inspect import isawaitable
from typing import Any, TypeAlias

import msgspec
from msgspec import Struct

from ..context import RunContext
from ..errors import AnswerError, SetupError
from .base import Tool, ToolResult
from .checking import checker_of
from .wrapping import ToolWrapper

APPROVED_FOR_GOOD = "baton.approved_for_good:"
"""With a tool's name after it, the key in the run's values under which `always=True` is kept. Delete it to revoke."""

NeedsApproval: TypeAlias = bool | Callable[[RunContext[Any], dict[str, Any]], bool | Awaitable[bool]]
"""Whether a call must be approved: always, never, or as a function of the context and the arguments decides."""

_WORKS = "answer True or False, Approval(…), or a dict with `approved` and, if wanted, `reason`, `arguments`, `always`"


class Approval(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """A person's word on a call. `arguments` replace the model's; `always` is for this tool in the rest of the run."""

    approved: bool
    reason: str = ""
    arguments: dict[str, Any] | None = None
    always: bool = False


def parse_approval(answer: Any) -> Approval:
    """What an answer to the question means. Raises AnswerError if it is not an answer to such a question."""
    if isinstance(answer, bool):
        return Approval(answer)
    if isinstance(answer, Approval):
        approval = answer
    elif isinstance(answer, dict):
        try:
            approval = msgspec.convert(answer, Approval)
        except msgspec.ValidationError as error:
            raise AnswerError(f"{answer!r} does not approve or reject a call ({error}); {_WORKS}") from None
    else:
        raise AnswerError(f"{answer!r} does not approve or reject a call; {_WORKS}")
    if approval.always and not approval.approved:
        raise AnswerError("`always` approves a tool for the rest of the run; a rejection is for one call: leave it out")
    return approval


class ApprovalTool(ToolWrapper):
    """Has calls of a tool approved. Arguments that do not fit go back to the model: nobody is asked about them."""

    def __init__(self, inner: Tool, needs_approval: NeedsApproval = True) -> None:
        super().__init__(inner)
        if not isinstance(needs_approval, bool) and not callable(needs_approval):
            works = "use True, False or a function (ctx, arguments) -> bool"
            raise SetupError(f"{inner!r} has needs_approval={needs_approval!r}; {works}")
        self.needs_approval: NeedsApproval = needs_approval
        self._checked = checker_of(inner)

    async def call(self, ctx: RunContext[Any], arguments: str) -> ToolResult:
        """Ask if need be, then do it, with other arguments if the answer has some; or say that it was not allowed."""
        given = self._checked(arguments)
        if isinstance(given, ToolResult):
            return given
        # Recorded, because it must not change under a question that is already asked: not by a fickle function, and
        # not by another call of this turn whose answer was "always". A rejection would else be passed over.
        if not await ctx.step("needs_approval", partial(self._must_ask, ctx, given)):
            return await self.inner.call(ctx, arguments)
        name = self.spec.name
        question = {"kind": "approval", "tool": name, "arguments": json.loads(arguments.strip() or "{}")}
        approval = parse_approval(await ctx.interrupt(question))
        if not approval.approved:
            return _rejected(name, approval.reason)
        if approval.always:
            ctx.values.set(APPROVED_FOR_GOOD + name, True)
        if approval.arguments is None:
            return await self.inner.call(ctx, arguments)
        return await self._call_edited(ctx, approval.arguments)

    async def _must_ask(self, ctx: RunContext[Any], given: dict[str, Any]) -> bool:
        if ctx.values.get(APPROVED_FOR_GOOD + self.spec.name):
            return False
        if isinstance(self.needs_approval, bool):
            return self.needs_approval
        verdict = self.needs_approval(ctx, given)
        return bool(await verdict if isawaitable(verdict) else verdict)

    async def _call_edited(self, ctx: RunContext[Any], edited: dict[str, Any]) -> ToolResult:
        arguments = json.dumps(edited)
        given = self._checked(arguments)
        if isinstance(given, ToolResult):
            reason = f"The person who approved this call changed its arguments to {arguments}. {given.content}"
            return ToolResult(reason, is_error=True)
        return await self.inner.call(ctx, arguments)


def _rejected(name: str, reason: str) -> ToolResult:
    because = f": {reason}" if reason else ". Do not call it again with the same arguments."
    return ToolResult(f"This call of `{name}` was not approved{because}", is_error=True)
