"""Contexts beside that of an activation: for a turn of it, and for whoever is to have the floor after it."""

from typing import Any

from ..agents import AgentContext
from ..context import History
from ..events import Origin
from ..handoffs import Routes


def sibling_context(
    ctx: AgentContext[Any],
    *,
    origin: Origin | None = None,
    history: History | None = None,
    routes: Routes | None = None,
    turn_start: int = 0,
) -> AgentContext[Any]:
    """A context that reads what this one reads, with some things of its own."""
    return AgentContext(
        ctx._run,
        origin or ctx._origin,
        history if history is not None else ctx._history,
        _Seen(ctx),
        routes or ctx._routes,
        ctx._options,
        turn_start,
        ctx._flow,
    )


class _Seen:
    def __init__(self, ctx: AgentContext[Any]) -> None:
        self.messages = ctx.messages
