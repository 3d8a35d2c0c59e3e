"""What an agent's requests have in common, worked out once for each runner instead of once for each activation."""

import os
from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from ..errors import SetupError
from ..handoffs import Routes
from ..messages import ToolSpec
from ..models import MODEL_ENV_VAR, Model, ModelSettings, OutputSchema, resolve_model
from ..tools import Tool
from .base import AgentContext
from .definition import AgentDefinition
from .instructions import with_section
from .toolbox import ToolTable

_DEFAULT_SETTINGS = ModelSettings()


class CompiledAgent(Struct, frozen=True):
    """How one agent asks, in one team of one runner. `instructions` is None if they must be made anew each turn."""

    agent: AgentDefinition[Any, Any]
    routes: Routes
    model: Model
    settings: ModelSettings
    toolbox: ToolTable
    specs: tuple[ToolSpec, ...]
    instructions: str | None
    output: OutputSchema | None
    offered: tuple[Sequence[Tool], ...] = ()
    """What the agent's sources offered when this was worked out."""


def compile_agent(agent: AgentDefinition[Any, Any], ctx: AgentContext[Any]) -> CompiledAgent:
    """How this agent asks here."""
    known = ctx._options.compiled_agents.get(agent.name)
    # A function may return a different agent of the same name, or the same one with other edges.
    if known is not None and known.agent is agent and known.routes is ctx._routes:
        return known
    manner = ctx._options.compiled_agents[agent.name] = _compiled(agent, ctx)
    return manner


def _compiled(agent: AgentDefinition[Any, Any], ctx: AgentContext[Any]) -> CompiledAgent:
    model = agent._model or ctx._options.model
    if model is None:
        if not os.environ.get(MODEL_ENV_VAR):
            raise SetupError(
                f"`{agent.name}` has no model: give it Agent(model=…), or all agents one with Runner(model=…) "
                f"or {MODEL_ENV_VAR} in the environment"
            )
        model = resolve_model(None, wanted_by=agent.name)
    settings = ctx._options.model_settings or _DEFAULT_SETTINGS
    text = agent.instructions
    fixed = text if isinstance(text, str) and not agent.template else None
    return CompiledAgent(
        agent=agent,
        routes=ctx._routes,
        model=model,
        settings=settings if agent.model_settings is None else settings.merge(agent.model_settings),
        toolbox=agent._tool_table,
        specs=agent._tool_table.specs + ctx._routes.specs,
        instructions=None if fixed is None else with_section(fixed, ctx._routes.section),
        output=agent._output_parser.schema if agent._output_parser is not None else None,
    )
