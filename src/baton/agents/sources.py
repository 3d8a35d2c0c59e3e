"""An agent's tools together with those that its sources offer: asked for anew before each model call."""

import asyncio
from collections.abc import Sequence
from typing import Any, NoReturn

from msgspec.structs import replace

from ..context import RunContext, Suspend
from ..errors import ReplayMismatch, SetupError
from ..events import Said, ToolReturned
from ..handoffs import Routes
from ..messages import ToolSpec
from ..tools import Tool
from .base import AgentContext
from .definition import ToolUser
from .manner import Manner
from .toolbox import EXIT_TOOL, Toolbox


async def equipped(manner: Manner, ctx: AgentContext[Any], key: str) -> Manner:
    """The manner with what the agent's sources offer now; the same one if that has not changed.

    `key` is that of the model call they are wanted for: what a source asks the outside is asked inside of that, and
    with its answer on record it need not be asked again.
    """
    offered = await offered_to(manner.agent, ctx, key)
    if len(manner.offered) == len(offered) and all(map(_is_same, manner.offered, offered)):
        return manner
    return _with(manner, toolbox_with(manner.agent, manner.routes, _all_of(offered)), offered)


async def as_recorded(manner: Manner, ctx: AgentContext[Any], said: Said) -> Manner:
    """The manner for a turn that the log has: sources are asked only if a call in it has no result yet."""
    toolbox = recorded_toolbox(manner.agent, ctx, said)
    return await equipped(manner, ctx, said.key) if toolbox is None else _with(manner, toolbox)


async def offered_to(agent: ToolUser[Any, Any], ctx: AgentContext[Any], key: str) -> tuple[Sequence[Tool], ...]:
    """What all sources offer. Each is heard before any of them stops the run: several may have something to ask."""
    sources = agent.sources
    contexts = [RunContext(ctx.run, ctx.origin, f"{key}/source{place}", caller=ctx) for place in range(len(sources))]
    asked = [source.tools_for(inside) for source, inside in zip(sources, contexts, strict=True)]
    offered = await asyncio.gather(*asked, return_exceptions=True)
    endings = [ending for ending in offered if isinstance(ending, BaseException)]
    for ending in sorted(endings, key=lambda ending: isinstance(ending, Suspend)):
        raise ending
    return tuple([tools for tools in offered if not isinstance(tools, BaseException)])


async def present_toolbox(agent: ToolUser[Any, Any], ctx: AgentContext[Any], key: str) -> Toolbox:
    """The agent's tools together with what its sources offer now; `key` as in `equipped`."""
    if not agent.sources:
        return agent.toolbox
    return toolbox_with(agent, ctx.routes, _all_of(await offered_to(agent, ctx, key)))


def recorded_toolbox(agent: ToolUser[Any, Any], ctx: AgentContext[Any], said: Said) -> Toolbox | None:
    """The tools for a turn that the log has, without asking the sources; None if a call in it has no result yet."""
    toolbox, log = agent.toolbox, ctx.run.log
    names: list[str] = []
    for position, call in enumerate(said.message.calls):
        is_exit = toolbox.has_exit and call.name == EXIT_TOOL
        if call.name in toolbox.by_name or is_exit or ctx.routes.wanted_by(call) is not None:
            continue
        key = f"{said.key}.{position}"
        returned = log.find(key, ToolReturned)
        if returned is None and not log.has(f"{key}/agent") and not log.waits_inside(key):
            return None
        if returned is None or not returned.is_unknown:
            names.append(call.name)
    return toolbox_with(agent, ctx.routes, [_OnRecord(name) for name in dict.fromkeys(names)])


def toolbox_with(agent: ToolUser[Any, Any], routes: Routes, tools: Sequence[Tool]) -> Toolbox:
    """The agent's own tools together with these. Raises SetupError if two have the same name."""
    taken = {*agent.toolbox.names, *[spec.name for spec in routes.specs]}
    for tool in tools:
        name = tool.spec.name
        if name in taken:
            raise SetupError(f"`{agent.name}` is offered two tools called `{name}`; give the source of one a prefix")
        taken.add(name)
    return Toolbox(agent.name, [*agent.toolbox.by_name.values(), *tools], has_exit=agent.exit_tool)


def _with(manner: Manner, toolbox: Toolbox, offered: tuple[Sequence[Tool], ...] = ()) -> Manner:
    return replace(manner, toolbox=toolbox, specs=toolbox.specs + manner.routes.specs, offered=offered)


def _all_of(offered: Sequence[Sequence[Tool]]) -> list[Tool]:
    return [tool for tools in offered for tool in tools]


def _is_same(before: Sequence[Tool], now: Sequence[Tool]) -> bool:
    return before is now


class _OnRecord:
    """Stands for a tool whose calls have their results, or wait for answers: nobody need be asked for the tool."""

    def __init__(self, name: str) -> None:
        self.spec = ToolSpec(name)

    async def call(self, ctx: RunContext[Any], arguments: str) -> NoReturn:
        """Wait on. Anything else would not be what the log says."""
        if ctx.run.log.waits_inside(ctx.scope):
            raise Suspend(ctx.scope)
        raise ReplayMismatch(ctx.scope, "a result", f"a call of `{self.spec.name}`")
