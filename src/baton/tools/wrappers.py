"""A tool that asks a person first: whether it may run, and with which arguments.

A tool that must never run twice: it says what it is about to do before it does it.

If a crash leaves open whether it was done, nobody runs it again: the run asks somebody who can find out.

A tool that may only take so long.

A tool with guardrails around it: some judge the arguments before it is called, some what came out of it.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable
from functools import partial
from inspect import isawaitable
from time import time
from types import TracebackType
from typing import Any, Literal, TypeAlias

import msgspec
from msgspec import Struct

from ..context import RunContext
from ..context.run_context import SuspendRun
from ..context.values import to_json_value
from ..errors import AnswerError, GuardrailTrippedError, SetupError, ToolTimeoutError
from ..events import StepCompleted, ValueChanges
from .base import Tool, ToolResult, ToolWrapper, checker_of, unwrap_tool
from .guardrails import Guardrail, GuardrailChecks, write_again
from .results import NOT_FOR_THE_MODEL, ErrorPolicy, outcome_of_error, to_tool_result
from .worker_threads import GIVE_UP

APPROVED_FOR_GOOD = "baton.approved_for_good:"
"""With a tool's name after it, the key in the run's values under which `always=True` is kept. Delete it to revoke."""

NeedsApproval: TypeAlias = bool | Callable[[RunContext[Any], dict[str, Any]], bool | Awaitable[bool]]
"""Whether a call must be approved: always, never, or as a function of the context and the arguments decides."""

_APPROVAL_FORMS = (
    "answer True or False, Approval(…), or a dict with `approved` and, if wanted, `reason`, `arguments`, `always`"
)


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
            raise AnswerError(f"{answer!r} does not approve or reject a call ({error}); {_APPROVAL_FORMS}") from None
    else:
        raise AnswerError(f"{answer!r} does not approve or reject a call; {_APPROVAL_FORMS}")
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


ToolEffect: TypeAlias = Literal["read", "idempotent", "once"]
"""What a call of a tool does outside: nothing, something that may happen twice, or something that must not."""

_OUTCOME_FORMS = 'answer {"result": …} with what it gave, {"error": "…"} with why it failed, or {"run_again": true}'


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
        raise AnswerError(f"{answer!r} does not say what became of the call ({error}); {_OUTCOME_FORMS}") from None


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


class TimeoutTool(ToolWrapper):
    """Gives a tool so many seconds for each call; what happens then is up to `on_error`."""

    def __init__(self, inner: Tool, seconds: float, *, on_error: ErrorPolicy = "return") -> None:
        super().__init__(inner)
        if not seconds > 0:
            raise SetupError(f"{inner!r} cannot finish within {seconds!r} s; give it a timeout above 0, or None")
        self.seconds = seconds
        self.on_error: ErrorPolicy = on_error

    async def call(self, ctx: RunContext[Any], arguments: str) -> ToolResult:
        """Do it in time, or say that there was not enough of it."""
        with _Deadline(self.seconds):
            return await self.inner.call(ctx, arguments)
        name = self.spec.name
        return outcome_of_error(ToolTimeoutError(name, self.seconds), name, policy=self.on_error)


class _Deadline:
    """Ends its block, quietly, when time is up.

    asyncio.timeout() cannot say why it cancels, and a function in a thread must know: it is left behind at once
    when its own time is up, but is waited for when the run is cancelled.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._has_rung = False

    def __enter__(self) -> None:
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("a tool with a timeout must be called inside an asyncio task")
        self._task = task
        self._cancelled_before = task.cancelling()
        self._handle = asyncio.get_running_loop().call_later(self._seconds, self._ring)

    def _ring(self) -> None:
        self._has_rung = True
        self._task.cancel(GIVE_UP)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        self._handle.cancel()
        if not self._has_rung:
            return False
        # Whoever else cancelled the task meanwhile has precedence: then it is not for us to stop the cancellation.
        is_ours_alone = self._task.uncancel() <= self._cancelled_before
        return is_ours_alone and kind is asyncio.CancelledError


TripPolicy: TypeAlias = Literal["return", "raise"]
"""Tell the model what was not allowed and why, or end the run."""


class _Result(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a call came to before it was judged, and what it did to the values."""

    outcome: ToolResult
    changes: ValueChanges | None = None


class GuardedTool(ToolWrapper):
    """Has calls of a tool, and their results, judged. It is asked before any person who must approve the call."""

    def __init__(
        self, inner: Tool, before: tuple[Guardrail, ...], after: tuple[Guardrail, ...], *, on_trip: TripPolicy
    ) -> None:
        super().__init__(inner)
        self.before = before
        self.after = after
        self.on_trip: TripPolicy = on_trip
        self._checked = checker_of(inner)

    async def call(self, ctx: RunContext[Any], arguments: str) -> ToolResult:
        """Do it and give what came of it, or say which guardrail was against it."""
        if self.before:
            given = self._checked(arguments)
            # Arguments that do not fit go back to the model: there is nothing to judge yet.
            if isinstance(given, ToolResult):
                return given
            trip = await GuardrailChecks(self.before, ctx, "tool").trip(given)
            if trip is not None:
                return self._refusal(trip, f"This call of `{self.spec.name}` was not made")
        if not self.after:
            return await self.inner.call(ctx, arguments)
        # Recorded before it is judged: else a resumed run might call the tool again, get something else, and take the
        # verdict on the first result for one on the second.
        result = msgspec.convert(await ctx.step("unjudged", lambda: self._unjudged(ctx, arguments)), _Result)
        write_again(ctx, result.changes)
        outcome = result.outcome
        trip = await GuardrailChecks(self.after, ctx, "tool").trip(outcome)
        return outcome if trip is None else self._refusal(trip, f"The result of `{self.spec.name}` is withheld")

    async def _unjudged(self, ctx: RunContext[Any], arguments: str) -> Any:
        try:
            outcome = await self.inner.call(ctx, arguments)
        except NOT_FOR_THE_MODEL:
            raise
        except Exception as error:  # noqa: BLE001 - the model would read it, so it is judged like any other result
            outcome = outcome_of_error(error, self.spec.name, policy="return")
        target = outcome.transfer_to
        if target is not None and not isinstance(target, str):
            # A log holds names only; the run knows who is meant.
            ctx._run.dynamic_agents[target.name] = target
            outcome = msgspec.structs.replace(outcome, transfer_to=target.name)
        return to_json_value(f"the result of `{self.spec.name}`", _Result(outcome, ctx._take_changes()))

    def _refusal(self, trip: GuardrailTrippedError, what: str) -> ToolResult:
        if self.on_trip == "raise":
            raise trip
        because = f": {trip.reason}" if trip.reason else ""
        return ToolResult(f"{what}, because guardrail `{trip.guardrail}` is against it{because}", is_error=True)


def guardrails_inside(tool: Any) -> list[Guardrail]:
    found: list[Guardrail] = []
    while tool is not None:
        if isinstance(tool, GuardedTool):
            found += [*tool.before, *tool.after]
        tool = getattr(tool, "inner", None)
    return found
