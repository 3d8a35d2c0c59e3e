"""Compiled agents: the parts of model requests that are computed once per runner, and those computed each turn."""

import asyncio
import os
import re
from collections.abc import Mapping, Sequence
from inspect import isawaitable
from operator import is_
from typing import Any, NoReturn

from msgspec import Struct
from msgspec.structs import replace

from ..context import RunContext
from ..context.run_context import SuspendRun, most_severe
from ..errors import ReplayMismatchError, RunError, SetupError
from ..handoffs.routes import Routes
from ..handoffs.tasks import TASK_TOOLS
from ..log import AgentResponded, ToolReturned, keys
from ..messages import ToolSpec
from ..messages.valid_text import valid_text
from ..models import MODEL_ENV_VAR, Model, ModelSettings, OutputSchema, resolve_model
from ..tools import Tool
from ..tools.base_tool import unwrap_tool
from ..tools.tool_guardrails import copy_changes
from .agent_context import AgentContext
from .agent_options import apply_options
from .agent_tool import AgentTool
from .compaction import Compaction
from .definition import EXIT_TOOL, AgentDefinition, AgentWithTools, ToolTable
from .hooks import gather_callbacks, maybe_await

_FIELD = r"\{([^{}\s]+)\}"


async def build_instructions(ctx: AgentContext[Any], instructions: Any, *, template: bool, key: str = "") -> str:
    """Return the instructions of this turn, followed by the section about transfers."""
    text = instructions
    if not isinstance(text, str):
        # A resumed run does not call it for recorded turns, so that each turn counts its own steps and interrupts.
        own = replace(ctx, _scope=keys.inside(key, "instructions"), _values=None, _steps=None, _asked=0) if key else ctx
        text = instructions(own)
        if isawaitable(text):
            text = await text
        if own is not ctx:
            copy_changes(ctx, own._all_changes())
    if template:
        text = render_template(text, ctx.values)
    return append_section(valid_text(text), ctx._routes.section)


def append_section(text: str, section: str) -> str:
    """Append the section about transfers, if there is one."""
    if not section:
        return text
    return f"{text}\n\n{section}" if text else section


def render_template(text: str, values: Mapping[str, Any]) -> str:
    """Replace each `{name}` that is among the values; other braces are kept."""

    def fill(match: re.Match[str]) -> str:
        name = match.group(1)
        return str(values[name]) if name in values else match.group(0)

    return re.sub(_FIELD, fill, text)


_DEFAULT_SETTINGS = ModelSettings()


class PreparedTurn(Struct, frozen=True):
    """The parts of one turn that are computed before its request is built."""

    instructions: str
    """The instructions, followed by the section about transfers."""
    disabled: tuple[str, ...] = ()
    """The ids of disabled handoffs."""
    hidden: tuple[str, ...] = ()
    """The names of disabled tools."""
    failed_calls: int = 0
    """The number of model calls of a summary that failed."""


class CompiledAgent(Struct, frozen=True):
    """The compiled requests of one agent in one team of one runner."""

    base: AgentDefinition[Any, Any]
    """The agent of the team."""
    agent: AgentDefinition[Any, Any]
    """The agent with the options of the run, if there are any."""
    routes: Routes
    """Its edges."""
    model: Model
    """The model it calls."""
    settings: ModelSettings
    """Its settings merged with the runner's."""
    tools: ToolTable
    """Its tools."""
    specs: tuple[ToolSpec, ...]
    """Specs of its tools and routes."""
    instructions: str | None
    """Its instructions; None if they are computed each turn."""
    output: OutputSchema | None
    """The schema of its output type."""
    dynamic_tools: tuple[Sequence[Tool], ...] = ()
    """The tools of its toolsets."""
    compaction: Compaction | None = None
    """The compaction of the histories it reads."""
    fixed: PreparedTurn | None = None
    """The preparation that all turns share; None if each turn needs its own."""


def compile_agent(agent: AgentDefinition[Any, Any], ctx: AgentContext[Any]) -> CompiledAgent:
    """Return the compiled agent, cached in the runner's options."""
    known = ctx._options.compiled_agents.get(agent.name)
    # A function may return another agent of the same name, or the same one with other edges.
    if known is not None and known.base is agent and known.routes is ctx._routes:
        return known
    compiled = ctx._options.compiled_agents[agent.name] = _compile(agent, ctx)
    return compiled


def _compile(base: AgentDefinition[Any, Any], ctx: AgentContext[Any]) -> CompiledAgent:
    options = ctx._options.run_options
    agent = base if options is None else apply_options(base, options)
    model = agent._model if agent._model is not None else ctx._options.model
    if model is None:
        if not os.environ.get(MODEL_ENV_VAR):
            raise SetupError(
                f"`{agent.name}` has no model: set Agent(model=…), Runner(model=…) for all agents, "
                f"or {MODEL_ENV_VAR} in the environment"
            )
        model = resolve_model(None, wanted_by=agent.name)
    settings = ctx._options.model_settings or _DEFAULT_SETTINGS
    text = agent.instructions
    instructions: str | None = None
    if isinstance(text, str) and not agent.template:
        instructions = append_section(text, ctx._routes.section)
    tools = agent._tool_table
    compaction = agent.compaction if agent.compaction is not None else ctx._options.compaction
    is_fixed = not (agent._toolsets or ctx._routes.conditional or tools.conditional or compaction)
    return CompiledAgent(
        base=base,
        agent=agent,
        routes=ctx._routes,
        model=model,
        settings=settings if agent.model_settings is None else settings.merge(agent.model_settings),
        tools=tools,
        specs=tools.specs + ctx._routes.specs,
        instructions=instructions,
        output=agent._output_parser.schema if agent._output_parser is not None else None,
        compaction=compaction,
        fixed=PreparedTurn(instructions) if is_fixed and instructions is not None else None,
    )


async def with_toolsets(compiled: CompiledAgent, ctx: AgentContext[Any], key: str) -> CompiledAgent:
    """Add the current tools of the agent's toolsets, if they have changed."""
    dynamic = await list_toolset_tools(compiled.agent, ctx, key)
    if len(compiled.dynamic_tools) == len(dynamic) and all(map(is_, compiled.dynamic_tools, dynamic)):
        return compiled
    return _with_tools(compiled, build_tool_table(compiled.agent, compiled.routes, _flatten(dynamic)), dynamic)


async def with_recorded_tools(
    compiled: CompiledAgent, ctx: AgentContext[Any], response: AgentResponded
) -> CompiledAgent:
    """Add the tools of a recorded turn; query toolsets only if a call has no result."""
    tools = recorded_tool_table(compiled.agent, ctx, response)
    return await with_toolsets(compiled, ctx, response.key) if tools is None else _with_tools(compiled, tools)


async def list_toolset_tools(
    agent: AgentWithTools[Any, Any], ctx: AgentContext[Any], key: str
) -> tuple[Sequence[Tool], ...]:
    """Query all toolsets. All finish before an interrupt of one suspends the run."""
    pending = [
        toolset.get_tools(RunContext(ctx._run, ctx._origin, keys.inside(key, f"source{index}"), None, ctx))
        for index, toolset in enumerate(agent._toolsets)
    ]
    results = await asyncio.gather(*pending, return_exceptions=True)
    errors = [result for result in results if isinstance(result, BaseException)]
    if errors:
        raise most_severe(errors)
    return tuple([tools for tools in results if not isinstance(tools, BaseException)])


async def current_tool_table(agent: AgentWithTools[Any, Any], ctx: AgentContext[Any], key: str) -> ToolTable:
    """Return the agent's tools together with the current tools of its toolsets."""
    if not agent._toolsets:
        return agent._tool_table
    return build_tool_table(agent, ctx._routes, _flatten(await list_toolset_tools(agent, ctx, key)))


def recorded_tool_table(
    agent: AgentWithTools[Any, Any], ctx: AgentContext[Any], response: AgentResponded
) -> ToolTable | None:
    """Return the tools of a recorded turn; None if a call has no result yet."""
    tools = agent._tool_table
    log = ctx._run.log
    names: list[str] = []
    for position, call in enumerate(response.message.tool_calls):
        ends_run = tools.has_exit and call.name == EXIT_TOOL
        ends_task = ctx._task is not None and call.name in TASK_TOOLS
        if call.name in tools.by_name or ends_run or ends_task or ctx._routes.match(call) is not None:
            continue
        key = keys.call(response.key, position)
        returned = log.find(key, ToolReturned)
        if returned is None and not log.has(keys.requested_agent(key)) and not log.waits_inside(key):
            return None
        if returned is None or not returned.is_unknown_tool:
            names.append(call.name)
    return build_tool_table(agent, ctx._routes, [_RecordedTool(name) for name in dict.fromkeys(names)])


def build_tool_table(agent: AgentWithTools[Any, Any], routes: Routes, tools: Sequence[Tool]) -> ToolTable:
    """Add tools to the agent's own. Raises SetupError if two have the same name."""
    taken = {*agent._tool_table.names, *[spec.name for spec in routes.specs]}
    for tool in tools:
        name = tool.spec.name
        innermost = unwrap_tool(tool)
        if isinstance(innermost, AgentTool) and innermost.agent not in agent.inner_agents():
            inner = innermost.agent.name
            raise SetupError(
                f"a toolset of `{agent.name}` has the agent `{inner}` as a tool, but a team must know its agents "
                f"before it runs; put {inner}.as_tool() into Agent(tools=[…]), with is_enabled=… to offer it at times"
            )
        if name in taken:
            raise SetupError(f"`{agent.name}` has two tools called `{name}`; give one of the toolsets a prefix")
        taken.add(name)
    return ToolTable(agent.name, [*agent._tool_table.by_name.values(), *tools], has_exit=agent.exit_tool)


def with_task(
    ctx: AgentContext[Any], tools: ToolTable, specs: tuple[ToolSpec, ...], instructions: str
) -> tuple[tuple[ToolSpec, ...], str]:
    """Add the tools that end the agent's task, and the section about them, to a request."""
    task = ctx._task
    if task is None:
        return specs, instructions
    for name in TASK_TOOLS:
        if name in tools.by_name:
            raise SetupError(f"`{ctx.agent}` works on a task and has a tool called `{name}`; give it another name")
    return specs + task.specs, append_section(instructions, task.section)


def _with_tools(compiled: CompiledAgent, tools: ToolTable, dynamic: tuple[Sequence[Tool], ...] = ()) -> CompiledAgent:
    return replace(compiled, tools=tools, specs=tools.specs + compiled.routes.specs, dynamic_tools=dynamic)


def _flatten(dynamic: Sequence[Sequence[Tool]]) -> list[Tool]:
    return [tool for tools in dynamic for tool in tools]


class _RecordedTool:
    """Stands for a dynamic tool whose calls have results or wait for answers."""

    def __init__(self, name: str) -> None:
        self.spec = ToolSpec(name)

    async def call(self, ctx: RunContext[Any], arguments: str) -> NoReturn:
        """Suspend the run again; anything else would contradict the log."""
        if ctx._run.log.waits_inside(ctx._scope):
            raise SuspendRun(ctx._scope)
        raise ReplayMismatchError(ctx._scope, "a result", f"a call of `{self.spec.name}`")


class _Condition(Struct, frozen=True):
    """The `is_enabled` of a handoff or tool."""

    id: str
    scope: str
    what: str
    is_enabled: Any


async def disabled_handoffs(ctx: AgentContext[Any], agent: Any, key: str) -> tuple[str, ...]:
    """Return the ids of the handoffs that are disabled in the turn with this key."""
    return await _find_disabled(
        ctx,
        agent,
        [
            _Condition(
                route.id,
                keys.inside(key, f"if:{route.id}"),
                f"the handoff from `{ctx.agent}` to `{route.target}`",
                route.handoff.is_enabled,
            )
            for route in ctx._routes.conditional
        ],
    )


async def disabled_tools(ctx: AgentContext[Any], agent: Any, key: str, tools: ToolTable) -> tuple[str, ...]:
    """Return the names of the tools that are disabled in the turn with this key."""
    return await _find_disabled(
        ctx,
        agent,
        [
            _Condition(name, keys.inside(key, f"if-tool:{name}"), f"tool `{name}` of `{ctx.agent}`", is_enabled)
            for name, is_enabled in tools.conditional.items()
        ],
    )


async def _find_disabled(ctx: AgentContext[Any], agent: Any, conditions: Sequence[_Condition]) -> tuple[str, ...]:
    scopes = [RunContext(ctx._run, ctx._origin, each.scope) for each in conditions]
    answers = await gather_callbacks(
        *(_is_enabled(each, own, agent) for each, own in zip(conditions, scopes, strict=True))
    )
    for own in scopes:
        # Value changes of a condition are recorded with the turn.
        copy_changes(ctx, own._all_changes())
    return tuple(each.id for each, is_enabled in zip(conditions, answers, strict=True) if not is_enabled)


async def _is_enabled(condition: _Condition, ctx: RunContext[Any], agent: Any) -> bool:
    decide = condition.is_enabled
    if not callable(decide):
        return bool(decide)
    try:
        return bool(await maybe_await(decide(ctx, agent)))
    except Exception as error:
        raise RunError(f"is_enabled of {condition.what} raised {type(error).__name__}: {error}") from error
