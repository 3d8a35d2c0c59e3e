"""One ordinary tool call: run it, unless the log already has what it gave, and record that."""

import logging
from time import time
from typing import Any

import msgspec

from ..context import RunContext
from ..errors import RunError, SetupError, ToolError, ToolFailed, ToolResultError
from ..events import Stepped, ToolReturned
from ..messages import Content, ToolCall
from ..tools import Tool, ToolOutcome
from .base import AgentContext
from .hooks import HOOK_STEP

_logger = logging.getLogger("baton.agents")
_ENDS_THE_RUN = (SetupError, RunError, ToolFailed, ToolResultError)


class Handed(msgspec.Struct, frozen=True):
    """What a function gave that returned an agent. Its result waits until it is known which transfer is followed."""

    target: str
    content: Content


async def perform(ctx: AgentContext[Any], tool: Tool, call: ToolCall, *, key: str) -> ToolReturned | Handed:
    """The recorded result of the call; if there is none, the tool runs now."""
    log = ctx.run.log
    inner = RunContext(ctx.run, ctx.origin, key, call, ctx)
    if log.has_past:
        recorded = recorded_call(ctx, key)
        if recorded is not None:
            if ctx.told is not None:
                result = recorded if isinstance(recorded, ToolReturned) else _result_of(recorded, inner, call)
                await ctx.told.tool_start(inner, call, is_past=True)
                await ctx.told.tool_end(inner, call, result, is_past=True)
            return recorded
        log.announce_call(key)
    if ctx.told is not None:
        await ctx.told.tool_start(inner, call, is_past=log.has_past and log.has_inside_besides(key, HOOK_STEP))
    try:
        outcome = await tool.call(inner, call.arguments)
    except _ENDS_THE_RUN:
        raise
    except Exception as error:  # noqa: BLE001 - a tool's failure becomes a result that the model reads
        outcome = _failure(error, inner, call)
    if outcome.values:
        inner.values.update(outcome.values)
    changes = inner.all_changes()
    if outcome.transfer is not None:
        handed = await _hand_over(inner, outcome, changes)
        if ctx.told is not None:
            await ctx.told.tool_end(inner, call, _result_of(handed, inner, call))
        return handed
    returned = ToolReturned(
        key,
        ctx.origin,
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
        ctx.breaks_loop = True
    if ctx.told is not None:
        await ctx.told.tool_end(inner, call, returned)
    if log.sink is not None:
        await log.settle()
    return returned


def recorded_call(ctx: AgentContext[Any], key: str) -> ToolReturned | Handed | None:
    """What the log has of a call; None if it has not ended yet."""
    handed = ctx.run.log.find(f"{key}/agent", Stepped)
    if handed is not None:
        ctx.apply_changes(handed.changes)
        return msgspec.convert(handed.value, Handed)
    returned = ctx.run.log.find(key, ToolReturned)
    if returned is not None:
        if returned.changes is not None:
            ctx.apply_changes(returned.changes)
        ctx.breaks_loop = ctx.breaks_loop or returned.breaks_loop
        ctx.run.meter.count_again(ctx.run.log.visit(key))
    return returned


def _result_of(handed: Handed, ctx: RunContext[Any], call: ToolCall) -> ToolReturned:
    """What a function that returned an agent gave, for those who are told of results."""
    return ToolReturned(ctx.scope, ctx.origin, time(), call.id, call.name, handed.content)


def _failure(error: Exception, ctx: RunContext[Any], call: ToolCall) -> ToolOutcome:
    if isinstance(error, ToolError):
        return ToolOutcome(str(error), is_error=True)
    _logger.warning("tool `%s` of `%s` failed", call.name, ctx.agent, exc_info=error)
    return ToolOutcome(f"{type(error).__name__}: {error}", is_error=True)


async def _hand_over(ctx: RunContext[Any], outcome: ToolOutcome, changes: Any) -> Handed:
    # The function has run and must not run again, though its result can be told only after all calls have ended.
    target = outcome.transfer
    if not isinstance(target, str):
        ctx.run.guests[target.name] = target
        target = target.name
    handed = Handed(target, outcome.content)
    name = ctx.call.name if ctx.call else ""
    ctx.run.log.write(Stepped(f"{ctx.scope}/agent", ctx.origin, time(), name, msgspec.to_builtins(handed), changes))
    await ctx.run.log.settle()
    return handed
