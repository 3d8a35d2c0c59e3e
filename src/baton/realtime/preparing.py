"""What the model is to be told when an agent gets the floor, worked out and checked before it does."""

import logging
from typing import Any, cast

from msgspec import Struct

from ..agents import AgentContext
from ..agents.enablement import disabled_handoffs
from ..agents.instructions import build_instructions
from ..agents.sources import current_tool_table
from ..agents.toolbox import ToolTable
from ..context import RunContext
from ..errors import SetupError
from ..events import Origin, ValueChanges
from ..flow import TeamFlow
from .base import RealtimeModel
from .contexts import sibling_context
from .definition import RealtimeDefinition
from .settings import RealtimeSettings, SessionConfig

_logger = logging.getLogger("baton.realtime")


class PreparedAgent(Struct, frozen=True):
    """Everything for an agent to get the floor: settings that the model takes, and the tools in them."""

    agent: RealtimeDefinition[Any]
    settings: SessionConfig
    toolbox: ToolTable
    changes: ValueChanges | None = None
    """What its instructions and conditions did to the run's values."""


async def prepared(
    agent: RealtimeDefinition[Any], ctx: AgentContext[Any], *, model: RealtimeModel, manners: RealtimeSettings
) -> PreparedAgent:
    """What the model is to be told. Raises SetupError if it would not take it."""
    toolbox = await current_tool_table(agent, ctx, f"{ctx._scope}/ready")
    instructions = await build_instructions(ctx, agent.instructions, template=agent.template)
    disabled = await disabled_handoffs(ctx, agent, f"{ctx._scope}/ready") if ctx._routes.conditional else ()
    tools = tuple([spec for spec in toolbox.specs + ctx._routes.specs if spec.name not in disabled])
    voice = agent.voice or manners.voice
    settings = SessionConfig(agent.name, instructions, tools, agent.tool_choice, voice, manners)
    model.check(settings)
    return PreparedAgent(agent, settings, toolbox, ctx._take_changes())


async def prepared_for(
    target: str, ctx: RunContext[Any], caller: AgentContext[Any], *, model: RealtimeModel, manners: RealtimeSettings
) -> PreparedAgent | str:
    """The same for an agent that is to have the floor next; or what to tell the model if it cannot be had."""
    try:
        course = cast(TeamFlow, caller._flow)
        seat = course.seat(course.team.seats[caller.agent], target)
        if not isinstance(seat.agent, RealtimeDefinition):
            raise SetupError(f"`{target}` is a {type(seat.agent).__name__}, not a RealtimeAgent; use its as_tool()")
        origin = Origin(f"{ctx._scope}/ready", target, caller._origin)
        next_ctx = sibling_context(caller, origin=origin, routes=seat.routes)
        return await prepared(seat.agent, next_ctx, model=model, manners=manners)
    except Exception as error:
        _logger.warning("`%s` could not be made ready for the floor", target, exc_info=error)
        return f"Not transferred to [{target}]: it could not be set up: {error}"
