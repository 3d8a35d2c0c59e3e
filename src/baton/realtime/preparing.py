"""What the model is to be told when an agent gets the floor, worked out and checked before it does."""

import logging
from typing import Any, cast

from msgspec import Struct

from ..agents import AgentContext
from ..agents.enablement import disabled_edges
from ..agents.instructions import instructions_for
from ..agents.sources import present_toolbox
from ..agents.toolbox import Toolbox
from ..context import RunContext
from ..errors import SetupError
from ..events import Changes, Origin
from ..flow import Course
from .base import RealtimeModel
from .contexts import beside
from .definition import RealtimeDefinition
from .settings import Manners, SessionSettings

_logger = logging.getLogger("baton.realtime")


class Prepared(Struct, frozen=True):
    """Everything for an agent to get the floor: settings that the model takes, and the tools in them."""

    agent: RealtimeDefinition[Any]
    settings: SessionSettings
    toolbox: Toolbox
    changes: Changes | None = None
    """What its instructions and conditions did to the run's values."""


async def prepared(
    agent: RealtimeDefinition[Any], ctx: AgentContext[Any], *, model: RealtimeModel, manners: Manners
) -> Prepared:
    """What the model is to be told. Raises SetupError if it would not take it."""
    toolbox = await present_toolbox(agent, ctx, f"{ctx.scope}/ready")
    instructions = await instructions_for(ctx, agent.instructions, template=agent.template)
    disabled = await disabled_edges(ctx, agent, f"{ctx.scope}/ready") if ctx.routes.conditional else ()
    tools = tuple([spec for spec in toolbox.specs + ctx.routes.specs if spec.name not in disabled])
    voice = agent.voice or manners.voice
    settings = SessionSettings(agent.name, instructions, tools, agent.tool_choice, voice, manners)
    model.check(settings)
    return Prepared(agent, settings, toolbox, ctx.take_changes())


async def prepared_for(
    target: str, ctx: RunContext[Any], caller: AgentContext[Any], *, model: RealtimeModel, manners: Manners
) -> Prepared | str:
    """The same for an agent that is to have the floor next; or what to tell the model if it cannot be had."""
    try:
        course = cast("Course", caller.flow)
        seat = course.seat(course.team.seats[caller.agent], target)
        if not isinstance(seat.agent, RealtimeDefinition):
            raise SetupError(f"`{target}` is a {type(seat.agent).__name__}, not a RealtimeAgent; use its as_tool()")
        origin = Origin(f"{ctx.scope}/ready", target, caller.origin)
        next_ctx = beside(caller, origin=origin, routes=seat.routes)
        return await prepared(seat.agent, next_ctx, model=model, manners=manners)
    except Exception as error:
        _logger.warning("`%s` could not be made ready for the floor", target, exc_info=error)
        return f"Not transferred to [{target}]: it could not be set up: {error}"
