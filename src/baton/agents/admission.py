"""Whether a transfer that a call asks for may happen: its input, whether the target accepts, whether a person approves.

Each step is recorded, so that a resumed run neither asks nor calls back a second time.
"""

from collections.abc import Awaitable
from functools import partial
from typing import Any

import msgspec

from ..context import RunContext, needs_await
from ..errors import BatonError, HandoffInputError
from ..handoffs import Handoff, HandoffInputParser, Route
from ..messages import ToolCall
from ..tools import Approval, parse_approval
from .together import maybe_await


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
