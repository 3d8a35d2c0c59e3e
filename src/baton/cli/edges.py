"""The edges of a team as a person thinks of them: who leads to whom, and by what means."""

from collections.abc import Iterator
from typing import Any, Literal, TypeAlias, cast

from msgspec import Struct

from ..agents import Agent, BaseAgent
from ..agents.then_transfer import ThenTransfer
from ..flow import Seat, Team
from ..handoffs import Route
from ..tools import FunctionTool, unwrapped

EdgeKind: TypeAlias = Literal["sub_agent", "parent", "handoff", "function", "then", "code"]


class Edge(Struct, frozen=True):
    """One way from an agent to another. `via` is the tool a model calls for it, or the function that may return it."""

    source: str
    target: str
    kind: EdgeKind
    via: str = ""
    returns: str = "stay"


def edges_of(team: Team) -> list[Edge]:
    """All edges of the team, each once, in the order of its seats."""
    return list(dict.fromkeys(edge for seat in team.seats.values() for edge in edges_from(seat)))


def edges_from(seat: Seat) -> list[Edge]:
    """The edges out of one agent, each once."""
    return list(dict.fromkeys(_edge(seat, route) for route in seat.edges))


def definition_of(agent: BaseAgent[Any, Any]) -> Agent[Any, Any] | None:
    """The agent that asks a model in or behind this one; None if it is code of somebody's own."""
    while isinstance(inner := getattr(agent, "inner", None), BaseAgent):
        agent = cast("BaseAgent[Any, Any]", inner)
    return agent if isinstance(agent, Agent) else None


def _edge(seat: Seat, route: Route) -> Edge:
    agent, target = seat.agent, route.target
    returns = route.handoff.returns
    if route.is_tree:
        is_child = any(child.name == target for child in agent.sub_agents)
        return Edge(agent.name, target, "sub_agent" if is_child else "parent", route.tool)
    if route.tool:
        return Edge(agent.name, target, "handoff", route.tool, returns)
    if isinstance(agent, ThenTransfer) and agent.to == target:
        return Edge(agent.name, target, "then")
    functions = ", ".join(_functions_that_mention(agent, target))
    if functions:
        return Edge(agent.name, target, "function", functions)
    return Edge(agent.name, target, "code", returns=returns)


def _functions_that_mention(agent: BaseAgent[Any, Any], target: str) -> Iterator[str]:
    definition = definition_of(agent)
    for entry in definition.tools if definition is not None else ():
        tool: Any = unwrapped(entry)  # pyright: ignore[reportArgumentType]
        if isinstance(tool, FunctionTool):
            mentioned: tuple[object, ...] = tool.mentioned()
            if any(isinstance(thing, BaseAgent) and thing.name == target for thing in mentioned):
                yield str(tool.name)
