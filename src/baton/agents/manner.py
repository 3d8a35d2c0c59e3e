"""What an agent's requests have in common, worked out once for each runner instead of once for each activation."""

import os
from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from ..errors import SetupError
from ..handoffs import Routes
from ..messages import ToolSpec
from ..models import DEFAULT_VARIABLE, Model, ModelSettings, OutputSchema, resolve
from ..tools import Tool
from .base import AgentContext
from .definition import AgentDefinition
from .instructions import with_section
from .toolbox import Toolbox

_DEFAULT_SETTINGS = ModelSettings()


class Manner(Struct, frozen=True):
    """How one agent asks, in one team of one runner. `instructions` is None if they must be made anew each turn."""

    agent: AgentDefinition[Any, Any]
    routes: Routes
    model: Model
    settings: ModelSettings
    toolbox: Toolbox
    specs: tuple[ToolSpec, ...]
    instructions: str | None
    output: OutputSchema | None
    offered: tuple[Sequence[Tool], ...] = ()
    """What the agent's sources offered when this was worked out."""


def manner_of(agent: AgentDefinition[Any, Any], ctx: AgentContext[Any]) -> Manner:
    """How this agent asks here."""
    known = ctx.options.manners.get(agent.name)
    # A function may return a different agent of the same name, or the same one with other edges.
    if known is not None and known.agent is agent and known.routes is ctx.routes:
        return known
    manner = ctx.options.manners[agent.name] = _compiled(agent, ctx)
    return manner


def _compiled(agent: AgentDefinition[Any, Any], ctx: AgentContext[Any]) -> Manner:
    model = agent.own_model or ctx.options.model
    if model is None:
        if not os.environ.get(DEFAULT_VARIABLE):
            raise SetupError(
                f"`{agent.name}` has no model: give it Agent(model=…), or all agents one with Runner(model=…) "
                f"or {DEFAULT_VARIABLE} in the environment"
            )
        model = resolve(None, wanted_by=agent.name)
    settings = ctx.options.settings or _DEFAULT_SETTINGS
    text = agent.instructions
    fixed = text if isinstance(text, str) and not agent.template else None
    return Manner(
        agent=agent,
        routes=ctx.routes,
        model=model,
        settings=settings if agent.settings is None else settings.overridden_by(agent.settings),
        toolbox=agent.toolbox,
        specs=agent.toolbox.specs + ctx.routes.specs,
        instructions=None if fixed is None else with_section(fixed, ctx.routes.section),
        output=agent.reader.schema if agent.reader is not None else None,
    )
