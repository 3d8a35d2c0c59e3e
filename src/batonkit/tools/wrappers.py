"""Tools that wrap another tool: approval, timeouts and guardrails."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from inspect import isawaitable
from types import TracebackType
from typing import Any, Literal, TypeAlias, cast

import msgspec
from msgspec import Struct

from .._checks import CheckedStructMeta, check_callback
from .._wording import show
from ..context import RunContext
from ..context.values import to_json_value
from ..errors import AnswerError, GuardrailTrippedError, SetupError, ToolTimeoutError
from ..log import ValueChanges, keys
from .base_tool import Tool, ToolResult, ToolWrapper, argument_checker
from .once import shown_arguments
from .results import FATAL_ERRORS, ErrorPolicy, to_error_result
from .tool_guardrails import Guardrail, GuardrailChecks, Guardrails, copy_changes
from .worker_threads import GIVE_UP

APPROVED_FOR_GOOD = "baton.approved_for_good:"
"""Prefix of the key in the run's values that records `always=True`. Delete the key to revoke the approval.

A JSON list follows: the agents that the agent is nested in, the agent and the tool, such as `["Clerk","pay"]`.
"""

NeedsApproval: TypeAlias = bool | Callable[[RunContext[Any], dict[str, Any]], bool | Awaitable[bool]]
"""Approval of calls: always, never, or as a function `(ctx, arguments) -> bool` decides."""

_APPROVAL_FORMS = (
    "answer True or False, Approval(…), or a dict with `approved` and optionally `reason`, `arguments`, `always`"
)


class Approval(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True, metaclass=CheckedStructMeta):
    """The answer to an approval request."""

    approved: bool
    """True if the call may run."""
    reason: str = ""
    """Why it was rejected; the model reads it."""
    arguments: dict[str, Any] | None = None
    """Arguments that replace the model's."""
    always: bool = False
    """True if this tool of this agent, at this place if the agent is nested, is approved for the rest of the run."""


def parse_approval(answer: Any) -> Approval:
    """Parse the answer to an approval request. Raises AnswerError if it is not valid."""
    if isinstance(answer, bool):
        return Approval(answer)
    if isinstance(answer, Approval):
        approval = answer
    elif isinstance(answer, dict):
        try:
            approval = msgspec.convert(answer, Approval)
        except msgspec.ValidationError as error:
            raise AnswerError(
                f"{show(cast(object, answer))} does not approve or reject a call ({error}); {_APPROVAL_FORMS}"
            ) from None
    else:
        raise AnswerError(f"{show(answer)} does not approve or reject a call; {_APPROVAL_FORMS}")
    if approval.always and not approval.approved:
        raise AnswerError("`always` approves a tool for the rest of the run; leave it out of a rejection")
    return approval


class ApprovalTool(ToolWrapper):
    """Requests approval before calls with valid arguments."""

    def __init__(self, inner: Tool, needs_approval: NeedsApproval = True) -> None:
        super().__init__(inner)
        if not isinstance(needs_approval, bool) and not callable(needs_approval):
            allowed = "use True, False or a function (ctx, arguments) -> bool"
            raise SetupError(f"{inner!r} has needs_approval={show(needs_approval)}; {allowed}")
        if not isinstance(needs_approval, bool):
            check_callback(f"needs_approval of tool `{inner.spec.name}`", needs_approval, "ctx", "arguments")
        self.needs_approval: NeedsApproval = needs_approval
        self._check_arguments = argument_checker(inner)

    async def call(self, ctx: RunContext[Any], arguments: str) -> ToolResult:
        """Request approval if needed, then call the tool."""
        parsed = self._check_arguments(arguments)
        if isinstance(parsed, ToolResult):
            return parsed
        # Recorded: the decision must not change after the question was asked, neither by a function that is not
        # deterministic nor by `always` in the answer to another call of this turn.
        if not await ctx.step("needs_approval", partial(self._must_ask, ctx, parsed)):
            return await self.inner.call(ctx, arguments)
        name = self.spec.name
        shown = shown_arguments(arguments)
        if shown is None:
            reason = "JSON has neither NaN nor Infinity, nor halves of surrogate pairs"
            text = f"The arguments of `{name}` do not fit: {reason}. Correct them and call it again."
            return ToolResult(text, is_error=True)
        question = {"kind": "approval", "tool": name, "arguments": shown}
        approval = parse_approval(await ctx.interrupt(question))
        if not approval.approved:
            reason = f": {approval.reason}" if approval.reason else ". Do not call it again with the same arguments."
            return ToolResult(f"This call of `{name}` was not approved{reason}", is_error=True)
        if approval.always:
            # The run's id: a fork inherits the values, but not the approvals.
            ctx.values.set(self._approval_key(ctx), ctx.run_id)
        if approval.arguments is None:
            return await self.inner.call(ctx, arguments)
        return await self._call_edited(ctx, approval.arguments)

    def _approval_key(self, ctx: RunContext[Any]) -> str:
        # JSON, because names may contain any separator.
        return APPROVED_FOR_GOOD + msgspec.json.encode([*ctx._origin.place, self.spec.name]).decode()

    async def _must_ask(self, ctx: RunContext[Any], parsed: dict[str, Any]) -> bool:
        if ctx.values.get(self._approval_key(ctx)) == ctx.run_id:
            return False
        if isinstance(self.needs_approval, bool):
            return self.needs_approval
        decision = self.needs_approval(ctx, parsed)
        return bool(await decision if isawaitable(decision) else decision)

    async def _call_edited(self, ctx: RunContext[Any], edited: dict[str, Any]) -> ToolResult:
        import json

        arguments = json.dumps(edited)
        if ctx.tool_call is not None:
            ctx.tool_call = msgspec.structs.replace(ctx.tool_call, arguments=arguments)
        refusal = await self._refuse_edited(ctx, arguments)
        result = await self.inner.call(ctx, arguments) if refusal is None else refusal
        return msgspec.structs.replace(result, edited_arguments=arguments)

    async def _refuse_edited(self, ctx: RunContext[Any], arguments: str) -> ToolResult | None:
        """Return why edited arguments do not fit or do not pass the guardrails around this tool."""
        parsed = self._check_arguments(arguments)
        if isinstance(parsed, ToolResult):
            return parsed
        for check in ctx._edit_checks:
            refusal = await check(ctx, arguments)
            if refusal is not None:
                return refusal
        return None


class TimeoutTool(ToolWrapper):
    """Limits the time of each call."""

    def __init__(self, inner: Tool, seconds: float, *, on_error: ErrorPolicy = "return") -> None:
        super().__init__(inner)
        if not seconds > 0:
            raise SetupError(f"{inner!r} has timeout={show(seconds)}; give a number of seconds above 0, or None")
        self.seconds = seconds
        self.on_error: ErrorPolicy = on_error

    async def call(self, ctx: RunContext[Any], arguments: str) -> ToolResult:
        """Call the tool; apply the error policy when the time is up."""
        with _Deadline(self.seconds):
            return await self.inner.call(ctx, arguments)
        name = self.spec.name
        return to_error_result(ToolTimeoutError(name, self.seconds), name, policy=self.on_error)


class _Deadline:
    """Ends its block silently when the time is up.

    asyncio.timeout() cannot pass a message, and a function in a thread needs one: it is abandoned at once when its own
    time is up, but waited for when the run is cancelled.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._is_expired = False

    def __enter__(self) -> None:
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("a tool with a timeout must be called inside an asyncio task")
        self._task = task
        self._cancelled_before = task.cancelling()
        self._handle = asyncio.get_running_loop().call_later(self._seconds, self._expire)

    def _expire(self) -> None:
        self._is_expired = True
        self._task.cancel(GIVE_UP)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        self._handle.cancel()
        if not self._is_expired:
            return False
        # If the task was cancelled by someone else as well, that cancellation must not be swallowed.
        is_only_ours = self._task.uncancel() <= self._cancelled_before
        return is_only_ours and kind is asyncio.CancelledError


TripPolicy: TypeAlias = Literal["return", "raise"]
"""Return the guardrail's verdict to the model, or end the run."""


class _UncheckedResult(msgspec.Struct, frozen=True, omit_defaults=True):
    """A result before its guardrails ran, and the value changes of the call."""

    outcome: ToolResult
    changes: ValueChanges | None = None


class GuardedTool(ToolWrapper):
    """Runs guardrails on the arguments and results of a tool.

    Arguments that a person changes while approving the call are checked like those of the model.
    """

    def __init__(self, inner: Tool, before: Guardrails, after: Guardrails, *, on_trip: TripPolicy) -> None:
        super().__init__(inner)
        self.before = before
        self.after = after
        self._guardrails = (*before, *after)
        self.on_trip: TripPolicy = on_trip
        self._check_arguments = argument_checker(inner)

    async def call(self, ctx: RunContext[Any], arguments: str) -> ToolResult:
        """Call the tool between its guardrails."""
        if self.before:
            refusal = await self._check_input(ctx, arguments, "")
            if refusal is not None:
                return refusal
            ctx._edit_checks += (self._check_edited,)
        if not self.after:
            return await self.inner.call(ctx, arguments)
        # Recorded before the checks: otherwise a resumed run might call the tool again, get another result, and apply
        # the recorded verdict on the first result to it.
        recorded = await ctx.step("unjudged", lambda: self._call_unchecked(ctx, arguments))
        unchecked = msgspec.convert(recorded, _UncheckedResult)
        copy_changes(ctx, unchecked.changes)
        result = unchecked.outcome
        trip = await GuardrailChecks(self.after, ctx, "tool").run(result)
        if trip is None:
            return result
        return self._refuse(trip, f"The result of `{self.spec.name}` is withheld").of_same_call(result)

    async def _check_edited(self, ctx: RunContext[Any], arguments: str) -> ToolResult | None:
        # The number of the question: a tool may be approved in several places.
        return await self._check_input(ctx, arguments, keys.inside(ctx._scope, f"edited{ctx._asked}"))

    async def _check_input(self, ctx: RunContext[Any], arguments: str, scope: str) -> ToolResult | None:
        """Return why the tool is not called with these arguments; None if it may be."""
        parsed = self._check_arguments(arguments)
        # Invalid arguments are returned to the model: there is nothing to check yet.
        if isinstance(parsed, ToolResult):
            return parsed
        trip = await GuardrailChecks(self.before, ctx, "tool", scope).run(parsed)
        return None if trip is None else self._refuse(trip, f"This call of `{self.spec.name}` was not made")

    async def _call_unchecked(self, ctx: RunContext[Any], arguments: str) -> Any:
        try:
            result = await self.inner.call(ctx, arguments)
        except FATAL_ERRORS:
            raise
        except Exception as error:  # noqa: BLE001 - the model would read it, so it is checked like any other result
            result = to_error_result(error, self.spec.name, policy="return")
        target = result.transfer_to
        if target is not None and not isinstance(target, str):
            # A log holds names only; the run keeps the agent.
            ctx._run.dynamic_agents[target.name] = target
            result = msgspec.structs.replace(result, transfer_to=target.name)
        return to_json_value(f"the result of `{self.spec.name}`", _UncheckedResult(result, ctx._take_changes()))

    def _refuse(self, trip: GuardrailTrippedError, what: str) -> ToolResult:
        if self.on_trip == "raise":
            raise trip
        reason = f": {trip.reason}" if trip.reason else ""
        return ToolResult(f"{what}, because guardrail `{trip.guardrail}` did not pass{reason}", is_error=True)


def find_guardrails(tool: Any) -> list[Guardrail]:
    """List the guardrails of a tool and of the tools it wraps."""
    found: list[Guardrail] = []
    while tool is not None:
        found += getattr(tool, "_guardrails", ())
        tool = getattr(tool, "inner", None)
    return found
