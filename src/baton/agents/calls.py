"""One ordinary tool call: run it, unless the log already has what it gave, and record that.

Whether a transfer that a call asks for may happen: its input, whether the target accepts, whether a person approves.

Each step is recorded, so that a resumed run neither asks nor calls back a second time.

Whether a transfer may happen in a live conversation, where several responses can be carried out at the same time.
"""

import logging
from collections.abc import Awaitable, Callable
from functools import partial
from time import time
from typing import Any

import msgspec

from ..context import RunContext
from ..context.run_context import needs_await
from ..errors import BatonError, HandoffInputError, RunError, SetupError, ToolError, ToolFailedError, ToolResultError
from ..events import StepCompleted, ToolReturned
from ..handoffs import Handoff
from ..handoffs.input import HandoffInputParser
from ..handoffs.routes import Route
from ..messages import Content, ToolCall, text_of
from ..tools import Approval, Tool, ToolResult
from ..tools.wrappers import parse_approval
from .base import AgentContext
from .hooks import HOOK_STEP, maybe_await

_logger = logging.getLogger("baton.agents")
_ENDS_THE_RUN = (SetupError, RunError, ToolFailedError, ToolResultError)


class PendingTransfer(msgspec.Struct, frozen=True):
    """What a function gave that returned an agent. Its result waits until it is known which transfer is followed."""

    target: str
    content: Content


async def execute_call(
    ctx: AgentContext[Any], tool: Tool, call: ToolCall, *, key: str
) -> ToolReturned | PendingTransfer:
    """The recorded result of the call; if there is none, the tool runs now."""
    log = ctx._run.log
    inner = RunContext(ctx._run, ctx._origin, key, call, ctx)
    if log.has_past:
        recorded = recorded_call(ctx, key)
        if recorded is not None:
            if ctx._hooks is not None:
                result = recorded if isinstance(recorded, ToolReturned) else _result_of(recorded, inner, call)
                await ctx._hooks.tool_start(inner, call, is_past=True)
                await ctx._hooks.tool_end(inner, call, result, is_past=True)
            return recorded
        log.announce_call(key)
    if ctx._hooks is not None:
        await ctx._hooks.tool_start(inner, call, is_past=log.has_past and log.has_inside_besides(key, HOOK_STEP))
    try:
        outcome = await tool.call(inner, call.arguments)
    except _ENDS_THE_RUN:
        raise
    except Exception as error:  # noqa: BLE001 - a tool's failure becomes a result that the model reads
        outcome = _failure(error, inner, call)
    if outcome.values:
        inner.values.update(outcome.values)
    changes = inner._all_changes()
    if outcome.transfer_to is not None:
        handed = await _hand_over(inner, outcome, changes)
        if ctx._hooks is not None:
            await ctx._hooks.tool_end(inner, call, _result_of(handed, inner, call))
        return handed
    returned = ToolReturned(
        key,
        ctx._origin,
        time(),
        call.id,
        call.name,
        outcome.content,
        outcome.is_error,
        outcome.is_final and not outcome.is_error,
        changes,
        outcome.breaks_loop,
    )
    log.write(returned)
    if outcome.breaks_loop:
        ctx._breaks_loop = True
    if ctx._hooks is not None:
        await ctx._hooks.tool_end(inner, call, returned)
    if log.sink is not None:
        await log.settle()
    return returned


def recorded_call(ctx: AgentContext[Any], key: str) -> ToolReturned | PendingTransfer | None:
    """What the log has of a call; None if it has not ended yet."""
    handed = ctx._run.log.find(f"{key}/agent", StepCompleted)
    if handed is not None:
        ctx._apply_changes(handed.value_changes)
        return msgspec.convert(handed.result, PendingTransfer)
    returned = ctx._run.log.find(key, ToolReturned)
    if returned is not None:
        if returned.value_changes is not None:
            ctx._apply_changes(returned.value_changes)
        ctx._breaks_loop = ctx._breaks_loop or returned.breaks_loop
        ctx._run.meter.recount(ctx._run.log.visit(key))
    return returned


def _result_of(handed: PendingTransfer, ctx: RunContext[Any], call: ToolCall) -> ToolReturned:
    """What a function that returned an agent gave, for those who are told of results."""
    return ToolReturned(ctx._scope, ctx._origin, time(), call.id, call.name, handed.content)


def _failure(error: Exception, ctx: RunContext[Any], call: ToolCall) -> ToolResult:
    if isinstance(error, ToolError):
        return ToolResult(str(error), is_error=True)
    _logger.warning("tool `%s` of `%s` failed", call.name, ctx.agent, exc_info=error)
    return ToolResult(f"{type(error).__name__}: {error}", is_error=True)


async def _hand_over(ctx: RunContext[Any], outcome: ToolResult, changes: Any) -> PendingTransfer:
    # The function has run and must not run again, though its result can be told only after all calls have ended.
    target = outcome.transfer_to
    if not isinstance(target, str):
        ctx._run.dynamic_agents[target.name] = target
        target = target.name
    handed = PendingTransfer(target, outcome.content)
    name = ctx.tool_call.name if ctx.tool_call else ""
    ctx._run.log.write(
        StepCompleted(f"{ctx._scope}/agent", ctx._origin, time(), name, msgspec.to_builtins(handed), changes)
    )
    await ctx._run.log.settle()
    return handed


class TransferAdmitted(msgspec.Struct, frozen=True):
    """The transfer happens, with this payload."""

    payload: Any = None


class TransferDenied(msgspec.Struct, frozen=True):
    """The transfer does not happen. `fault` is set if the model can and should mend its call."""

    text: str
    fault: BatonError | None = None


async def admit_transfer(
    route: Route, ctx: RunContext[Any], call: ToolCall, *, source: str
) -> TransferAdmitted | TransferDenied:
    """Let the transfer happen, or say why not. `ctx` is the context of the call."""
    handoff, reader = route.handoff, route.handoff._input_parser
    value: Any = None
    if reader is not None:
        try:
            value = reader.read(call.arguments)
        except ValueError as error:
            return _misfit(source, route.target, str(error))
    reason = await ask_target_to_accept(route.accepts, ctx, value) if route.accepts is not None else None
    if reason is not None:
        return TransferDenied(f"Not transferred: [{route.target}] declined: {reason}")
    if handoff.needs_approval is not False:
        approval = await _approval(handoff, ctx, reader, value)
        if not approval.approved:
            return TransferDenied(f"Not transferred to [{route.target}]: {approval.reason or 'it was not approved'}")
        if approval.arguments is not None and reader is not None:
            try:
                value = reader.read(msgspec.json.encode(approval.arguments).decode())
            except ValueError as error:
                return _misfit(source, route.target, str(error))
    if handoff.on_handoff is not None:
        # The response that asked for the transfer may not be stored yet; a callback is an effect like a tool's.
        if ctx._run.log.sink is not None:
            await ctx._run.log.settle()
        await ctx.step("on_handoff", partial(_call_back, handoff, ctx, value))
    return TransferAdmitted(reader.dump(value) if reader is not None else None)


async def ask_target_to_accept(accepts: Any, ctx: RunContext[Any], payload: Any) -> str | None:
    """Why the target does not want the conversation; None if it takes it."""
    if accepts is None:
        return None
    verdict = await ctx.step("accepts", lambda: maybe_await(accepts(ctx, payload)))
    return verdict if isinstance(verdict, str) else (None if verdict else "it does not take this")


async def _approval(handoff: Handoff, ctx: RunContext[Any], reader: HandoffInputParser | None, value: Any) -> Approval:
    wanted = handoff.needs_approval
    if callable(wanted):
        is_needed = await ctx.step("needs_approval", lambda: maybe_await(wanted(ctx, value)))
        if not is_needed:
            return Approval(approved=True)
    payload = reader.dump(value) if reader is not None else None
    return parse_approval(await ctx.interrupt({"kind": "approval", "handoff": handoff.target, "input": payload}))


def _call_back(handoff: Handoff, ctx: RunContext[Any], value: Any) -> Awaitable[None] | None:
    """Call it; what it gives is of no use, and is only waited for if it has to be."""
    callback: Any = handoff.on_handoff
    given = callback(ctx) if handoff.input_type is None else callback(ctx, value)
    return _ended(given) if needs_await(given) else None


async def _ended(work: Awaitable[Any]) -> None:
    await work


def _misfit(source: str, target: str, problems: str) -> TransferDenied:
    return TransferDenied(f"Not transferred to [{target}]: {problems}.", HandoffInputError(source, target, problems))


async def admit_live_transfer(
    ctx: RunContext[Any], target: str, admission: Callable[[], Awaitable[TransferAdmitted | TransferDenied]]
) -> TransferAdmitted | TransferDenied:
    """Let the transfer happen if the floor is free, it is admitted, and the target is ready for it; in this order."""
    recorded = ctx._run.log.find(ctx._scope, ToolReturned)
    if recorded is not None and recorded.is_transfer_refused:
        # Which of several came first is no longer to be seen; what was recorded decides.
        return TransferDenied(text_of(recorded.content))
    live = ctx._run.live
    if live is None:
        return await admission()
    refusal = live.claim(target, ctx._origin)
    if refusal is not None:
        return TransferDenied(refusal)
    is_admitted = False
    try:
        verdict = await admission()
        if isinstance(verdict, TransferDenied):
            return verdict
        refusal = None if recorded is not None else await live.readiness(ctx, target)
        is_admitted = refusal is None
        return verdict if refusal is None else TransferDenied(refusal)
    finally:
        if not is_admitted:
            live.unclaim()
