"""Hooks as layers outside the record of model calls and tool calls."""

from time import time

from ..log import AgentResponded, ToolReturned, keys
from .hooks import HookDispatcher
from .invocations import ModelCall, ToolInvocation
from .seam import CallOutcome, Handler


async def tell_of_model_call(
    hooks: HookDispatcher, next: Handler[ModelCall, AgentResponded], call: ModelCall
) -> AgentResponded:
    """Tell hooks of a model call that is made now; the loop tells them of recorded ones."""
    await hooks.call(call.ctx, "model_start", call.request, turn=call.turn)
    recorded = await next(call)
    await hooks.call(call.ctx, "model_end", call.response, turn=call.turn)
    return recorded


async def tell_of_tool_call(
    hooks: HookDispatcher, next: Handler[ToolInvocation, CallOutcome], invocation: ToolInvocation
) -> CallOutcome:
    """Tell hooks of a tool call, also of one that is recorded."""
    ctx = invocation.ctx
    call = invocation.call
    log = ctx._run.log
    key = invocation.key
    is_past = log.has_past and (log.has(key) or log.has(keys.requested_agent(key)))
    has_begun = is_past or (log.has_past and log.has_inside_besides(key, keys.HOOK))
    await hooks.call(ctx, "tool_start", call, is_past=has_begun)
    outcome = await next(invocation)
    if isinstance(outcome, ToolReturned):
        result = outcome
    else:
        # The result is recorded once the transfer is decided.
        result = ToolReturned(key, ctx._origin, time(), call.id, call.name, outcome.content)
    await hooks.call(ctx, "tool_end", call, result, is_past=is_past)
    return outcome
