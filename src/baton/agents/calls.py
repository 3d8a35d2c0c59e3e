"""Execution of one tool call, and admission of a transfer that a call asks for.

Each step is recorded, so that a resumed run neither asks nor calls back a second time.
"""

import logging
from collections.abc import Awaitable, Callable
from functools import partial
from time import time
from typing import Any

import msgspec

from ..context import RunContext
from ..errors import BatonError, HandoffInputError, ToolError
from ..events import StepCompleted, ToolReturned
from ..handoffs import Handoff
from ..handoffs.input import HandoffInputParser
from ..handoffs.routes import Route
from ..messages import Content, ToolCall, text_of
from ..tools import Approval, Tool, ToolResult
from ..tools.results import FATAL_ERRORS
from ..tools.wrappers import parse_approval
from ..wording import error_text
from .activation import AgentContext
from .hooks import HOOK_STEP, maybe_await
from .middleware_chains import ToolCallChain

_logger = logging.getLogger("baton.agents")


class PendingTransfer(msgspec.Struct, frozen=True):
    """A call of a function that returned an agent, before the transfer is decided."""

    target: str
    """The name of the agent."""
    content: Content
    """The result of the call if the transfer is followed."""


async def execute_call(  # noqa: C901
    ctx: AgentContext[Any], tool: Tool, call: ToolCall, *, key: str
) -> ToolReturned | PendingTransfer:
    """Return the recorded result of a call, or execute the call and record its result.

    Args:
        ctx: The context of the activation.
        tool: The tool to call.
        call: The call.
        key: The key of the result.
    """
    run, origin = ctx._run, ctx._origin
    log = run.log
    inner = RunContext(run, origin, key, call, ctx)
    if log.has_past:
        recorded = recorded_call(ctx, key)
        if recorded is not None:
            if ctx._hooks is not None:
                is_done = isinstance(recorded, ToolReturned)
                returned = recorded if is_done else _provisional_result(recorded, inner, call)
                await ctx._hooks.call(inner, "tool_start", call, is_past=True)
                await ctx._hooks.call(inner, "tool_end", call, returned, is_past=True)
            return recorded
        log.announce_call(key)
    if ctx._hooks is not None:
        await ctx._hooks.call(
            inner, "tool_start", call, is_past=log.has_past and log.has_inside_besides(key, HOOK_STEP)
        )
    chain: ToolCallChain | None = None
    if ctx._middleware is not None and ctx._middleware.tool:
        chain = ToolCallChain.around(ctx._middleware.tool, tool, inner)
    try:
        work = tool.call(inner, call.arguments) if chain is None else chain.call(call)
        trace = ctx._run.trace
        result = await (work if trace is None else trace.tool_call(inner, tool, work))
    except FATAL_ERRORS:
        raise
    except Exception as error:
        if chain is not None and error is not chain.error and not isinstance(error, ToolError):
            raise
        # A tool's failure becomes a result that the model reads.
        result = _to_error_result(error, inner, call)
    if run.suspended_by:
        run.check_suspended(f"tool `{call.name}` of `{ctx.agent}`", key)
    if result.values:
        inner.values.update(result.values)
    changes = None if inner._values is None else inner._all_changes()
    if result.transfer_to is not None:
        pending = await _record_transfer(inner, result, changes)
        if ctx._hooks is not None:
            await ctx._hooks.call(inner, "tool_end", call, _provisional_result(pending, inner, call))
        return pending
    is_error, breaks_loop = result.is_error, result.breaks_loop
    is_final = result.is_final and not is_error
    returned = ToolReturned(
        key, origin, time(), call.id, call.name, result.content, is_error, is_final, changes, breaks_loop
    )
    log.write(returned)
    if breaks_loop:
        ctx._breaks_loop = True
    if ctx._hooks is not None:
        await ctx._hooks.call(inner, "tool_end", call, returned)
    if log.sink is not None:
        await log.settle()
    return returned


def recorded_call(ctx: AgentContext[Any], key: str) -> ToolReturned | PendingTransfer | None:
    """Return the recorded result of a call; None if it has not finished yet."""
    pending = ctx._run.log.find(f"{key}/agent", StepCompleted)
    if pending is not None:
        ctx._apply_changes(pending.value_changes)
        return msgspec.convert(pending.result, PendingTransfer)
    returned = ctx._run.log.find(key, ToolReturned)
    if returned is not None:
        if returned.value_changes is not None:
            ctx._apply_changes(returned.value_changes)
        ctx._breaks_loop = ctx._breaks_loop or returned.breaks_loop
        ctx._run.recount(key)
    return returned


def _provisional_result(pending: PendingTransfer, ctx: RunContext[Any], call: ToolCall) -> ToolReturned:
    """Make the event that hooks receive; it is not recorded."""
    return ToolReturned(ctx._scope, ctx._origin, time(), call.id, call.name, pending.content)


def _to_error_result(error: Exception, ctx: RunContext[Any], call: ToolCall) -> ToolResult:
    if isinstance(error, ToolError):
        return ToolResult(str(error), is_error=True)
    _logger.warning("tool `%s` of `%s` failed", call.name, ctx.agent, exc_info=error)
    return ToolResult(f"{type(error).__name__}: {error_text(error)}", is_error=True)


async def _record_transfer(ctx: RunContext[Any], result: ToolResult, changes: Any) -> PendingTransfer:
    # The function must not run again, though its result is known only after all calls have finished.
    target = result.transfer_to
    if not isinstance(target, str):
        ctx._run.dynamic_agents[target.name] = target
        target = target.name
    pending = PendingTransfer(target, result.content)
    name = ctx.tool_call.name if ctx.tool_call else ""
    ctx._run.log.write(
        StepCompleted(f"{ctx._scope}/agent", ctx._origin, time(), name, msgspec.to_builtins(pending), changes)
    )
    await ctx._run.log.settle()
    return pending


class TransferAdmitted(msgspec.Struct, frozen=True):
    """An admitted transfer."""

    payload: Any = None
    """The input for the target, as JSON data."""


class TransferDenied(msgspec.Struct, frozen=True):
    """A refused transfer."""

    text: str
    """The error text for the model."""
    fault: BatonError | None = None
    """The model's mistake, if it can correct its call."""


async def admit_transfer(
    route: Route, ctx: RunContext[Any], call: ToolCall, *, source: str
) -> TransferAdmitted | TransferDenied:
    """Check the input of a transfer, ask the target and a person, and call `on_handoff`.

    Args:
        route: The edge.
        ctx: The context of the call.
        call: The call that asks for the transfer.
        source: The name of the agent that transfers.
    """
    handoff, parser = route.handoff, route.handoff._input_parser
    value: Any = None
    if parser is not None:
        try:
            value = parser.parse(call.arguments)
        except ValueError as error:
            return _invalid_input(source, route.target, str(error))
    declined = await _ask_edge_to_accept(route, ctx, value)
    if declined is not None:
        return declined
    if handoff.needs_approval is not False:
        approval = await _request_approval(handoff, ctx, parser, value)
        if not approval.approved:
            return TransferDenied(f"Not transferred to [{route.target}]: {approval.reason or 'it was not approved'}")
        if approval.arguments is not None and parser is not None:
            try:
                value = parser.parse(msgspec.json.encode(approval.arguments).decode())
            except ValueError as error:
                return _invalid_input(source, route.target, str(error))
            declined = await _ask_edge_to_accept(route, ctx, value)
            if declined is not None:
                return declined
    if handoff.on_handoff is not None:
        # Write-ahead: the response must be stored before the callback, which is an effect like a tool's.
        if ctx._run.log.sink is not None:
            await ctx._run.log.settle()
        await ctx.step("on_handoff", partial(_call_on_handoff, handoff, ctx, value))
    return TransferAdmitted(parser.dump(value) if parser is not None else None)


async def _ask_edge_to_accept(route: Route, ctx: RunContext[Any], value: Any) -> TransferDenied | None:
    reason = await ask_target_to_accept(route.accepts, ctx, value)
    return None if reason is None else TransferDenied(f"Not transferred: [{route.target}] declined: {reason}")


async def ask_target_to_accept(accepts: Any, ctx: RunContext[Any], payload: Any) -> str | None:
    """Return the reason why the target does not accept the conversation; None if it does."""
    if accepts is None:
        return None
    verdict = await ctx.step("accepts", lambda: maybe_await(accepts(ctx, payload)))
    return verdict if isinstance(verdict, str) else (None if verdict else "it does not accept this")


async def _request_approval(
    handoff: Handoff, ctx: RunContext[Any], parser: HandoffInputParser | None, value: Any
) -> Approval:
    condition = handoff.needs_approval
    if callable(condition):
        is_needed = await ctx.step("needs_approval", lambda: maybe_await(condition(ctx, value)))
        if not is_needed:
            return Approval(approved=True)
    payload = parser.dump(value) if parser is not None else None
    return parse_approval(await ctx.interrupt({"kind": "approval", "handoff": handoff.target, "input": payload}))


async def _call_on_handoff(handoff: Handoff, ctx: RunContext[Any], value: Any) -> None:
    callback: Any = handoff.on_handoff
    await maybe_await(callback(ctx) if handoff.input_type is None else callback(ctx, value))


def _invalid_input(source: str, target: str, problems: str) -> TransferDenied:
    return TransferDenied(f"Not transferred to [{target}]: {problems}.", HandoffInputError(source, target, problems))


async def admit_live_transfer(
    ctx: RunContext[Any], target: str, admission: Callable[[], Awaitable[TransferAdmitted | TransferDenied]]
) -> TransferAdmitted | TransferDenied:
    """Admit a transfer in a realtime session, where responses may run concurrently.

    Args:
        ctx: The context of the call.
        target: The name of the target.
        admission: Runs the checks of the edge.
    """
    recorded = ctx._run.log.find(ctx._scope, ToolReturned)
    if recorded is not None and recorded.is_transfer_refused:
        # The order of concurrent calls is lost on replay; the recorded result decides.
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
