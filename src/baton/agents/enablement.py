"""Which handoffs are switched off this turn."""

from typing import Any

from ..context import RunContext
from ..errors import RunError
from ..handoffs import Route
from .base import AgentContext
from .together import gather_callbacks, maybe_await


async def disabled_handoffs(ctx: AgentContext[Any], agent: Any, key: str) -> tuple[str, ...]:
    """The tools of the handoffs that are switched off in the turn with this key; all are asked at once."""
    routes = ctx._routes.conditional
    scopes = [RunContext(ctx._run, ctx._origin, f"{key}/if:{route.tool}") for route in routes]
    answers = await gather_callbacks(
        *(_is_enabled(route, own, agent) for route, own in zip(routes, scopes, strict=True))
    )
    for own in scopes:
        if (changes := own._all_changes()) is not None:
            # What a condition writes is recorded with the turn it was asked for.
            ctx.values.update(changes.written)
            for key in changes.removed:
                ctx.values.delete(key)
    return tuple(route.tool for route, is_enabled in zip(routes, answers, strict=True) if not is_enabled)


async def _is_enabled(route: Route, ctx: RunContext[Any], agent: Any) -> bool:
    condition = route.handoff.is_enabled
    if not callable(condition):
        return bool(condition)
    try:
        return bool(await maybe_await(condition(ctx, agent)))
    except Exception as error:
        what = (
            f"is_enabled of the handoff from `{ctx.agent}` to `{route.target}` raised {type(error).__name__}: {error}"
        )
        raise RunError(what) from error
