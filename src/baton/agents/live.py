"""Whether a transfer may happen in a live conversation, where several responses can be carried out at the same time."""

from collections.abc import Awaitable, Callable
from typing import Any

from ..context import RunContext
from ..events import ToolReturned
from ..messages import text_of
from .admission import TransferAdmitted, TransferDenied


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
