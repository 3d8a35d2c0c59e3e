"""Let an agent work; if it fails, whoever comes next is told so in a message instead."""

import logging
from collections.abc import Mapping
from time import time
from typing import Any

from ..errors import ends_the_run
from ..events import Action, Changes, Stepped
from ..messages import UserMessage
from .base import AgentContext, BaseAgent

_logger = logging.getLogger("baton.agents")


async def run_or_report(agent: BaseAgent[Any, Any], ctx: AgentContext[Any], *, to: str) -> Action | None:
    """The agent's action. If it fails, all that is left of it is a message that says so, once, also after a restart."""
    log, key = ctx.run.log, f"{ctx.scope}/failed"
    mark = len(ctx.history.entries)
    failed = log.find(key, Stepped)
    if failed is not None:
        # It failed before a restart: it must not try again, but what it did to the values counts.
        log.visit(f"{ctx.scope}/")
        ctx.apply_changes(failed.changes)
    else:
        before = dict(ctx.run.values)
        try:
            return await agent.run(ctx)
        except Exception as error:
            if ends_the_run(error):
                raise
            _logger.warning("`%s` failed; reported to `%s`", agent.name, to, exc_info=True)
            problem = f"[{agent.name}] failed: {type(error).__name__}: {error}"
            ctx.take_changes()
            failed = Stepped(key, ctx.origin, time(), "failed", problem, _changes_since(before, ctx.run.values))
            log.write(failed)
    ctx.history.truncate(mark)
    ctx.history.add(UserMessage(str(failed.value)), ctx.origin)
    return None


def _changes_since(before: Mapping[str, Any], now: Mapping[str, Any]) -> Changes | None:
    """All that is different. Not what was recorded on the way: some of it is undone, as in branches that failed."""
    written = {key: value for key, value in now.items() if key not in before or before[key] is not value}
    removed = tuple(sorted(key for key in before if key not in now))
    return Changes(written, removed) if written or removed else None
