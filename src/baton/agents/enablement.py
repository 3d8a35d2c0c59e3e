"""Which handoffs are switched off this turn."""

from typing import Any

from ..errors import RunError, SetupError
from ..handoffs import Route
from .base import AgentContext
from .together import settled, together


async def disabled_edges(ctx: AgentContext[Any], agent: Any) -> tuple[str, ...]:
    """The tools of the handoffs that are switched off now; all are asked at once."""
    routes = ctx.routes.conditional
    answers = await together(*(_is_enabled(route, ctx, agent) for route in routes))
    return tuple(route.tool for route, is_enabled in zip(routes, answers, strict=True) if not is_enabled)


async def _is_enabled(route: Route, ctx: AgentContext[Any], agent: Any) -> bool:
    condition = route.handoff.is_enabled
    if not callable(condition):
        return bool(condition)
    try:
        return bool(await settled(condition(ctx, agent)))
    except (SetupError, RunError):
        raise
    except Exception as error:
        what = (
            f"is_enabled of the handoff from `{ctx.agent}` to `{route.target}` raised {type(error).__name__}: {error}"
        )
        raise RunError(what) from error
