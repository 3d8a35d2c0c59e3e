"""Swarm's agents as agents of the core, made anew whenever their functions have changed."""

import sys
from collections import defaultdict
from inspect import signature
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from .. import agents as core
from ..context import RunContext
from ..messages import ToolSpec
from ..tools import Tool, ToolResult
from .client import SwarmClientModel
from .exchange import SwarmRunState
from .functions import as_tool, awaited, name_of
from .types import Agent, AgentFunction
from .util import debug_print


class _SwarmMember(Struct, frozen=True):
    """A Swarm agent, the functions it had when it was looked at, and what was made of it then."""

    agent: Agent
    functions: tuple[AgentFunction, ...]
    made: core.Agent[SwarmRunState]


class SwarmTeam:
    """All agents that have a part in one run."""

    def __init__(self, exchange: SwarmRunState, *, client: Any) -> None:
        self.exchange = exchange
        self._client = client
        # By identity: many Swarm agents have the same name, and those that can be changed have no hash.
        self._members: dict[int, _SwarmMember] = {}

    def member(self, agent: Agent) -> core.Agent[SwarmRunState]:
        """The agent as the core knows it."""
        if self.has_changed(agent):
            self._members[id(agent)] = _SwarmMember(agent, tuple(agent.functions), self._made(agent))
        return self._members[id(agent)].made

    def has_changed(self, agent: Agent) -> bool:
        """Whether the core does not know the agent as it is now."""
        known = self._members.get(id(agent))
        return known is None or [*map(id, known.functions)] != [*map(id, agent.functions)]

    def _made(self, agent: Agent) -> core.Agent[SwarmRunState]:
        # As in Swarm, of several functions with one name the last one counts.
        functions = {name_of(function): function for function in agent.functions}
        return core.Agent(
            agent.name.strip() or "Agent",
            instructions=lambda ctx: self._instructions(agent),
            model=SwarmClientModel(agent, self.exchange, client=self._client),
            tools=[_SwarmTool(as_tool(function), cast=self) for function in functions.values()],
            concurrent_tools=False,
            # Swarm counts messages, for all agents together: the exchange does that.
            max_turns=sys.maxsize,
        )

    def _instructions(self, agent: Agent) -> str:
        # The first thing the core wants of an agent in each of its turns, so this is where a turn begins.
        self.exchange.begin_turn(agent)
        wanted = agent.instructions
        if not callable(wanted):
            return wanted
        variables = defaultdict(str, self.exchange.variables)
        return awaited(wanted(variables) if _takes_variables(wanted) else wanted())


class _SwarmTool:
    """A tool that tells the exchange what it came to, and names agents as the core knows them."""

    def __init__(self, tool: Tool, *, cast: SwarmTeam) -> None:
        self._tool = tool
        self._cast = cast

    @property
    def spec(self) -> ToolSpec:
        """What the model is told."""
        return self._tool.spec

    async def call(self, ctx: RunContext[SwarmRunState], arguments: str) -> ToolResult:
        """Call the function."""
        exchange = ctx.context
        debug_print(exchange.debug, f"Calling {self.spec.name} with {arguments}")
        outcome = await self._tool.call(ctx, arguments)
        exchange.note(ctx.tool_call.id if ctx.tool_call is not None else "", outcome)
        target: Agent | None = outcome.transfer_to
        following = exchange.next_agent
        if target is None and following is not None and self._cast.has_changed(following):
            # The function has given whoever goes next other functions. Only by a transfer does the core get to know.
            target = following
        return replace(outcome, transfer_to=None if target is None else self._cast.member(target), values=None)


def _takes_variables(instructions: Any) -> bool:
    try:
        signature(instructions).bind({})
    except TypeError:
        return False
    except ValueError:
        return True  # Some callables in C have no signature to look at.
    return True
