"""One ordinary tool call: run it, unless the log already has what it gave, and record that."""

import logging
from time import time
from typing import Any

import msgspec

from ..context import RunContext
from ..errors import RunError, SetupError, ToolError, ToolFailedError, ToolResultError
from ..events import StepCompleted, ToolReturned
from ..messages import Content, ToolCall
from ..tools import Tool, ToolResult
from .base import AgentContext
from .hooks import HOOK_STEP

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
        ctx._run.meter.count_again(ctx._run.log.visit(key))
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
        ctx._run.guests[target.name] = target
        target = target.name
    handed = PendingTransfer(target, outcome.content)
    name = ctx.tool_call.name if ctx.tool_call else ""
    ctx._run.log.write(
        StepCompleted(f"{ctx._scope}/agent", ctx._origin, time(), name, msgspec.to_builtins(handed), changes)
    )
    await ctx._run.log.settle()
    return handed
