"""Let an agent work; if it fails, whoever comes next is told so in a message instead."""

import logging
from time import time
from typing import Any

from ..context import TrackedValues
from ..errors import ends_run
from ..events import Action, StepCompleted, ValueChanges
from ..log import FAILED
from ..messages import UserMessage
from .base import AgentContext, BaseAgent

_logger = logging.getLogger("baton.agents")


async def run_or_report(agent: BaseAgent[Any, Any], ctx: AgentContext[Any], *, to: str) -> Action | None:
    """The agent's action. If it fails, all that is left of it is a message that says so, once, also after a restart."""
    log, key = ctx._run.log, f"{ctx._scope}/{FAILED}"
    mark = len(ctx._history.entries)
    failed = log.find(key, StepCompleted)
    if failed is not None:
        # It failed before a restart: it must not try again, but what it did to the values counts.
        ctx._run.meter.count_again(log.visit(ctx._scope))
        ctx._apply_changes(failed.value_changes)
    else:
        values = TrackedValues(ctx._run.values)
        ctx._run = ctx._run.part(values=values)
        try:
            return await agent.run(ctx)
        except Exception as error:
            if ends_run(error):
                raise
            _logger.warning("`%s` failed; reported to `%s`", agent.name, to, exc_info=True)
            problem = f"[{agent.name}] failed: {type(error).__name__}: {error}"
            failed = StepCompleted(key, ctx._origin, time(), FAILED, problem, _all_changes(ctx, values))
            log.write(failed)
    ctx._history.truncate(mark)
    ctx._history.add(UserMessage(str(failed.result)), ctx._origin)
    return None


def _all_changes(ctx: AgentContext[Any], values: TrackedValues) -> ValueChanges | None:
    """What the agent and everything inside it did to the values. Not what each event has: some of that is undone."""
    ctx._take_changes()
    own, inside = ctx._all_changes(), values.changes()
    if own is None or inside is None:
        return own or inside
    return ValueChanges({**own.written, **inside.written}, tuple(sorted({*own.removed, *inside.removed})))
