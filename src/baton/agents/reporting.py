"""Let an agent work; if it fails, whoever comes next is told so in a message instead."""

import logging
from time import time
from typing import Any

from ..context import WatchedValues
from ..errors import ends_the_run
from ..events import Action, Changes, Stepped
from ..log import FAILED
from ..messages import UserMessage
from .base import AgentContext, BaseAgent

_logger = logging.getLogger("baton.agents")


async def run_or_report(agent: BaseAgent[Any, Any], ctx: AgentContext[Any], *, to: str) -> Action | None:
    """The agent's action. If it fails, all that is left of it is a message that says so, once, also after a restart."""
    log, key = ctx.run.log, f"{ctx.scope}/{FAILED}"
    mark = len(ctx.history.entries)
    failed = log.find(key, Stepped)
    if failed is not None:
        # It failed before a restart: it must not try again, but what it did to the values counts.
        ctx.run.meter.count_again(log.visit(ctx.scope))
        ctx.apply_changes(failed.changes)
    else:
        values = WatchedValues(ctx.run.values)
        ctx.run = ctx.run.part(values=values)
        try:
            return await agent.run(ctx)
        except Exception as error:
            if ends_the_run(error):
                raise
            _logger.warning("`%s` failed; reported to `%s`", agent.name, to, exc_info=True)
            problem = f"[{agent.name}] failed: {type(error).__name__}: {error}"
            failed = Stepped(key, ctx.origin, time(), FAILED, problem, _all_changes(ctx, values))
            log.write(failed)
    ctx.history.truncate(mark)
    ctx.history.add(UserMessage(str(failed.value)), ctx.origin)
    return None


def _all_changes(ctx: AgentContext[Any], values: WatchedValues) -> Changes | None:
    """What the agent and everything inside it did to the values. Not what each event has: some of that is undone."""
    ctx.take_changes()
    own, inside = ctx.all_changes(), values.changes()
    if own is None or inside is None:
        return own or inside
    return Changes({**own.written, **inside.written}, tuple(sorted({*own.removed, *inside.removed})))
