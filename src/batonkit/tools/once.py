"""Tools whose effect must happen at most once, and the questions that are asked before an effect could be repeated."""

from collections.abc import Sequence
from time import time
from typing import Any, Literal, TypeAlias

import msgspec
from msgspec import Struct

from .._wording import show
from ..context import RunContext
from ..context.run_context import SuspendRun
from ..context.values import to_json_value
from ..errors import AnswerError, NotEncodableError
from ..log import CallInDoubt, InterruptAnswered, InterruptRaised, SettledCall, StepCompleted, keys
from ..log.events import payload_fields
from ..log.log import Log
from ..log.once_calls import INTENT, PAUSED, ForkedFrom, Intent
from ..messages import text_of
from .base_tool import Tool, ToolResult, ToolWrapper, unwrap_tool
from .results import to_tool_result
from .worker_threads import CHECK_BEFORE_CALL

ToolEffect: TypeAlias = Literal["read", "idempotent", "once"]
"""Effect of a tool call outside: none, one that may happen twice, or one that must happen at most once."""

_OUTCOME_FORMS = 'answer {"result": …} with what it returned, {"error": "…"} with why it failed, or {"run_again": true}'
_NOT_MADE_IN_FORK = "This call was not made: the run is a copy of another one, to try something out."
_NOT_EXECUTED = "This call was not executed."


def tool_effect(tool: Tool) -> ToolEffect:
    """Return the declared effect of a tool; `"idempotent"` by default."""
    return getattr(unwrap_tool(tool), "effect", "idempotent")


class OutcomeReport(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """The answer to the question whether a call took effect."""

    result: Any = None
    """The call's result, if it took effect."""
    error: str = ""
    """Why the call failed."""
    run_again: bool = False
    """True if it did not take effect, and the tool may be called now."""


def parse_outcome_report(answer: Any) -> OutcomeReport:
    """Parse an outcome report. Raises AnswerError if it is not valid."""
    try:
        return msgspec.convert(answer, OutcomeReport)
    except msgspec.ValidationError as error:
        raise AnswerError(
            f"{show(answer)} does not report the outcome of the call ({error}); {_OUTCOME_FORMS}"
        ) from None


def _to_result(report: OutcomeReport, tool: str, *, is_final: bool = False) -> ToolResult:
    if report.error:
        return ToolResult(report.error, is_error=True)
    return to_tool_result(report.result, tool, is_final=is_final)


class OnceTool(ToolWrapper):
    """Records the intent before each call, so that no call runs twice.

    If a crash leaves only the intent behind, the run is interrupted with a question about the outcome; in a fork, it
    is interrupted before each call.
    """

    def __init__(self, inner: Tool, *, is_final: bool = False) -> None:
        super().__init__(inner)
        self._is_final = is_final

    async def call(self, ctx: RunContext[Any], arguments: str) -> ToolResult:
        """Record the intent and call the tool; ask before it in a fork or after a crash."""
        log = ctx._run.log
        fork = ctx._run.fork
        # An attempt that the fork itself has begun was permitted by the answer to this question.
        if fork is not None and not log.has(keys.intent(ctx._scope, 1)):
            report = await self._ask_in_fork(ctx, fork, arguments)
            if not report.run_again:
                return _to_result(report, self.spec.name, is_final=self._is_final)
        attempt = 1
        while log.find(keys.intent(ctx._scope, attempt), StepCompleted) is not None:
            # An attempt that was suspended by the tool's own question is known to be over.
            if log.find(keys.pause(ctx._scope, attempt), StepCompleted) is None:
                report = await self._ask_outcome(ctx, attempt, arguments)
                if not report.run_again:
                    return _to_result(report, self.spec.name, is_final=self._is_final)
            attempt += 1
        return await self._attempt(ctx, attempt, arguments)

    async def _attempt(self, ctx: RunContext[Any], attempt: int, arguments: str) -> ToolResult:
        """Record the intent, then call the tool."""
        log = ctx._run.log
        key = keys.intent(ctx._scope, attempt)
        log.announce(key, StepCompleted)
        intent = Intent(self.spec.name, arguments, ctx.idempotency_key)
        log.write(StepCompleted(key, ctx._origin, time(), INTENT, msgspec.to_builtins(intent)))
        await log.settle()
        # Another worker may have asked for the outcome while this one was frozen.
        lease = ctx._run.signals.lease
        token = CHECK_BEFORE_CALL.set(None if lease is None else lease.check)
        try:
            if lease is not None:
                lease.check()
            return await self.inner.call(ctx, arguments)
        except SuspendRun:
            log.write(StepCompleted(keys.pause(ctx._scope, attempt), ctx._origin, time(), PAUSED))
            await log.settle()
            raise
        finally:
            CHECK_BEFORE_CALL.reset(token)

    async def _ask_outcome(self, ctx: RunContext[Any], attempt: int, arguments: str) -> OutcomeReport:
        question = _question(self.spec.name, arguments, ctx.idempotency_key)
        if (lease := ctx._run.signals.lease) is not None and lease.previous_worker:
            question |= {"previous_worker": lease.previous_worker, "last_heartbeat": lease.last_heartbeat}
        return await _ask(ctx, keys.unknown_outcome(ctx._scope, attempt), question)

    async def _ask_in_fork(self, ctx: RunContext[Any], fork: ForkedFrom, arguments: str) -> OutcomeReport:
        """Ask whether a fork may make a call; the default is the outcome in the original run."""
        original = fork.find(ctx._scope, self.spec.name, arguments)
        outcome = None if original is None else original.outcome
        if outcome is None:
            default: dict[str, Any] = {"error": _NOT_MADE_IN_FORK}
        else:
            default = {"error" if outcome.is_error else "result": text_of(outcome.content)}
        question = _question(self.spec.name, arguments, ctx.idempotency_key)
        question |= {"forked_from": fork.source, "default": default}
        return await _ask(ctx, keys.unknown_outcome(ctx._scope, 0), question)


class EarlierCallsTool(ToolWrapper):
    """Asks for the outcomes of calls in doubt before another call of their tool.

    If a person reports that they took effect or failed, the call is not made: the model decides again, knowing that.
    """

    async def call(self, ctx: RunContext[Any], arguments: str) -> ToolResult:
        """Ask for the outcomes that are not known, then call the tool."""
        run = ctx._run
        outcomes: list[_EarlierOutcome] = []
        for number, doubt in enumerate(run.calls_in_doubt, 1):
            if doubt.tool == self.spec.name and doubt.event not in run.settled_calls:
                report = await _ask_about(ctx, doubt, keys.earlier_outcome(ctx._scope, number))
                outcomes.append(_EarlierOutcome(doubt, report))
        if not outcomes:
            return await self.inner.call(ctx, arguments)
        if all(outcome.report.run_again for outcome in outcomes):
            result = await self.inner.call(ctx, arguments)
        else:
            result = ToolResult(_not_made(self.spec.name, outcomes), is_error=True)
        return msgspec.structs.replace(result, settles=tuple([outcome.settled for outcome in outcomes]))


class _EarlierOutcome(Struct, frozen=True):
    """The outcome of a call in doubt, as a person reported it."""

    doubt: CallInDoubt
    report: OutcomeReport

    @property
    def settled(self) -> SettledCall:
        """The outcome, as agents read it."""
        if self.report.run_again:
            return SettledCall(self.doubt.event, _NOT_EXECUTED, is_error=True)
        result = _to_result(self.report, self.doubt.tool)
        return SettledCall(self.doubt.event, result.content, result.is_error)


def _not_made(tool: str, outcomes: Sequence[_EarlierOutcome]) -> str:
    """Return the result of a call that is not made, with the outcomes of earlier calls."""
    lines = [f"{each.doubt.arguments}: {text_of(each.settled.content)}" for each in outcomes]
    return (
        f"This call of `{tool}` was not made, because the outcome of an earlier call was not known. A person has now "
        "reported it:\n" + "\n".join(lines) + f"\nCall `{tool}` again only if that is still needed."
    )


async def _ask_about(ctx: RunContext[Any], doubt: CallInDoubt, scope: keys.Key) -> OutcomeReport:
    """Ask for the outcome of a call in doubt, unless another call has asked for it."""
    log = ctx._run.log
    call = {"run_id": doubt.event.run_id, "key": doubt.event.key}
    asked = _find_question(log, call)
    if asked is None or asked.key == keys.interrupt(scope, 1):
        question = _question(doubt.tool, doubt.arguments, doubt.idempotency_key)
        return await _ask(ctx, scope, question | {"earlier_call": call})
    answered = log.peek(keys.answer(asked.key))
    answer = answered.answer if isinstance(answered, InterruptAnswered) else await ctx._wait_for_answer(asked)
    return parse_outcome_report(answer)


def _find_question(log: Log, call: dict[str, str]) -> InterruptRaised | None:
    """Return the question about a call in doubt that is open or answered, if there is one."""
    asked = [event for event in log.events if isinstance(event, InterruptRaised)]
    about = [event for event in asked if payload_fields(event.payload).get("earlier_call") == call]
    # A question whose call was dismissed is neither.
    known = [event for event in about if log.has(keys.answer(event.key)) or event.key in log.open_interrupts()]
    return known[0] if known else None


async def _ask(ctx: RunContext[Any], scope: keys.Key, question: dict[str, Any]) -> OutcomeReport:
    # A scope of its own: the tool's own questions are counted from one.
    inner: RunContext[Any] = RunContext(ctx._run, ctx._origin, scope, ctx.tool_call)
    return parse_outcome_report(await inner.interrupt(question))


def _question(tool: str, arguments: str, idempotency_key: str) -> dict[str, Any]:
    shown = shown_arguments(arguments)
    return {
        "kind": "unknown_outcome",
        "tool": tool,
        "arguments": arguments if shown is None else shown,
        "idempotency_key": idempotency_key,
    }


def shown_arguments(arguments: str) -> Any:
    """Parse arguments for a question; None if they are not JSON, or a log cannot hold them."""
    import json

    try:
        return to_json_value("the arguments", json.loads(arguments.strip() or "{}"), is_strict=True)
    except (ValueError, NotEncodableError):
        return None
