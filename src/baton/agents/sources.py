"""An agent's tools together with those that its sources offer: asked for anew before each model call."""

import asyncio
from collections.abc import Sequence
from typing import Any, NoReturn

from msgspec.structs import replace

from ..context import RunContext, SuspendRun
from ..errors import ReplayMismatchError, SetupError
from ..events import AgentResponded, ToolReturned
from ..handoffs import Routes
from ..messages import ToolSpec
from ..tools import Tool
from .base import AgentContext
from .definition import AgentWithTools
from .manner import CompiledAgent
from .toolbox import EXIT_TOOL, ToolTable


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
