"""What an agent's requests have in common, worked out once for each runner instead of once for each activation.

An agent's instructions as its model will read them this turn.

An agent's tools together with those that its sources offer: asked for anew before each model call.

Which handoffs are switched off this turn.
"""

import asyncio
import os
import re
from collections.abc import Mapping, Sequence
from inspect import isawaitable
from typing import Any, NoReturn

from msgspec import Struct
from msgspec.structs import replace

from ..context import RunContext
from ..context.run_context import SuspendRun
from ..errors import ReplayMismatchError, RunError, SetupError
from ..events import AgentResponded, ToolReturned
from ..handoffs.routes import Route, Routes
from ..messages import ToolSpec
from ..models import MODEL_ENV_VAR, Model, ModelSettings, OutputSchema, resolve_model
from ..tools import Tool
from .base import AgentContext
from .definition import EXIT_TOOL, AgentDefinition, AgentWithTools, ToolTable
from .hooks import gather_callbacks, maybe_await

_FIELD = re.compile(r"\{([^{}\s]+)\}")


async def build_instructions(ctx: AgentContext[Any], instructions: Any, *, template: bool) -> str:
    """The agent's own words, then who it may transfer to."""
    text = instructions
    if not isinstance(text, str):
        text = instructions(ctx)
        if isawaitable(text):
            text = await text
    if template:
        text = render_template(text, ctx.values)
    return with_section(text, ctx._routes.section)


def with_section(text: str, section: str) -> str:
    """The agent's own words, then the section about its team, if there is one."""
    if not section:
        return text
    return f"{text}\n\n{section}" if text else section


def render_template(text: str, values: Mapping[str, Any]) -> str:
    """The text with each `{name}` replaced that is among the values; all other braces stay as they are."""

    def fill(match: re.Match[str]) -> str:
        name = match.group(1)
        return str(values[name]) if name in values else match.group(0)

    return _FIELD.sub(fill, text)


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


async def with_toolsets(manner: CompiledAgent, ctx: AgentContext[Any], key: str) -> CompiledAgent:
    """The manner with what the agent's sources offer now; the same one if that has not changed.

    `key` is that of the model call they are wanted for: what a source asks the outside is asked inside of that, and
    with its answer on record it need not be asked again.
    """
    offered = await list_toolset_tools(manner.agent, ctx, key)
    if len(manner.offered) == len(offered) and all(map(_is_same, manner.offered, offered)):
        return manner
    return _with(manner, build_tool_table(manner.agent, manner.routes, _all_of(offered)), offered)


async def with_recorded_tools(manner: CompiledAgent, ctx: AgentContext[Any], said: AgentResponded) -> CompiledAgent:
    """The manner for a turn that the log has: sources are asked only if a call in it has no result yet."""
    toolbox = recorded_tool_table(manner.agent, ctx, said)
    return await with_toolsets(manner, ctx, said.key) if toolbox is None else _with(manner, toolbox)


async def list_toolset_tools(
    agent: AgentWithTools[Any, Any], ctx: AgentContext[Any], key: str
) -> tuple[Sequence[Tool], ...]:
    """What all sources offer. Each is heard before any of them stops the run: several may have something to ask."""
    sources = agent._toolsets
    contexts = [RunContext(ctx._run, ctx._origin, f"{key}/source{place}", caller=ctx) for place in range(len(sources))]
    asked = [source.get_tools(inside) for source, inside in zip(sources, contexts, strict=True)]
    offered = await asyncio.gather(*asked, return_exceptions=True)
    endings = [ending for ending in offered if isinstance(ending, BaseException)]
    for ending in sorted(endings, key=lambda ending: isinstance(ending, SuspendRun)):
        raise ending
    return tuple([tools for tools in offered if not isinstance(tools, BaseException)])


async def current_tool_table(agent: AgentWithTools[Any, Any], ctx: AgentContext[Any], key: str) -> ToolTable:
    """The agent's tools together with what its sources offer now; `key` as in `equipped`."""
    if not agent._toolsets:
        return agent._tool_table
    return build_tool_table(agent, ctx._routes, _all_of(await list_toolset_tools(agent, ctx, key)))


def recorded_tool_table(
    agent: AgentWithTools[Any, Any], ctx: AgentContext[Any], said: AgentResponded
) -> ToolTable | None:
    """The tools for a turn that the log has, without asking the sources; None if a call in it has no result yet."""
    toolbox, log = agent._tool_table, ctx._run.log
    names: list[str] = []
    for position, call in enumerate(said.message.tool_calls):
        is_exit = toolbox.has_exit and call.name == EXIT_TOOL
        if call.name in toolbox.by_name or is_exit or ctx._routes.wanted_by(call) is not None:
            continue
        key = f"{said.key}.{position}"
        returned = log.find(key, ToolReturned)
        if returned is None and not log.has(f"{key}/agent") and not log.waits_inside(key):
            return None
        if returned is None or not returned.is_unknown_tool:
            names.append(call.name)
    return build_tool_table(agent, ctx._routes, [_RecordedTool(name) for name in dict.fromkeys(names)])


def build_tool_table(agent: AgentWithTools[Any, Any], routes: Routes, tools: Sequence[Tool]) -> ToolTable:
    """The agent's own tools together with these. Raises SetupError if two have the same name."""
    taken = {*agent._tool_table.names, *[spec.name for spec in routes.specs]}
    for tool in tools:
        name = tool.spec.name
        if name in taken:
            raise SetupError(f"`{agent.name}` is offered two tools called `{name}`; give the source of one a prefix")
        taken.add(name)
    return ToolTable(agent.name, [*agent._tool_table.by_name.values(), *tools], has_exit=agent.exit_tool)


def _with(manner: CompiledAgent, toolbox: ToolTable, offered: tuple[Sequence[Tool], ...] = ()) -> CompiledAgent:
    return replace(manner, toolbox=toolbox, specs=toolbox.specs + manner.routes.specs, offered=offered)


def _all_of(offered: Sequence[Sequence[Tool]]) -> list[Tool]:
    return [tool for tools in offered for tool in tools]


def _is_same(before: Sequence[Tool], now: Sequence[Tool]) -> bool:
    return before is now


class _RecordedTool:
    """Stands for a tool whose calls have their results, or wait for answers: nobody need be asked for the tool."""

    def __init__(self, name: str) -> None:
        self.spec = ToolSpec(name)

    async def call(self, ctx: RunContext[Any], arguments: str) -> NoReturn:
        """Wait on. Anything else would not be what the log says."""
        if ctx._run.log.waits_inside(ctx._scope):
            raise SuspendRun(ctx._scope)
        raise ReplayMismatchError(ctx._scope, "a result", f"a call of `{self.spec.name}`")


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
