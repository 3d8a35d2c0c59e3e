"""The edges of a team and its inner agents."""

from collections.abc import Iterator
from typing import Any, Literal, TypeAlias, cast

from msgspec import Struct

from ..agents import Agent, BaseAgent
from ..agents.agent_tool import AgentTool
from ..agents.wrappers import ThenTransfer
from ..handoffs import Until
from ..handoffs.routes import Route
from ..team import Team, TeamMember
from ..tools import FunctionTool, Tool, ToolEffect
from ..tools.base_tool import unwrap_tool
from ..tools.function import referenced_objects
from ..workflows import ParallelAgent
from ..workflows.deep_agents import TaskTool
from ..workflows.sequential import Workflow

EdgeKind: TypeAlias = Literal["sub_agent", "parent", "handoff", "function", "then", "code"]
PartKind: TypeAlias = Literal["step", "branch", "tool", "inside"]


class TeamEdge(Struct, frozen=True):
    """An edge between two agents.

    Attributes:
        source: The agent that control leaves.
        target: The agent that control goes to.
        kind: The kind of its declaration.
        via: The tool that a model calls for it, or the function that may return the target.
        returns: Where control goes afterwards, if it returns.
        until: When it returns: at the target's first answer, or when its task is finished.
    """

    source: str
    target: str
    kind: EdgeKind
    via: str = ""
    returns: str | None = None
    until: Until = "answered"

    def describe_return(self, separator: str) -> str:
        """Return a separator and "and back" or "then NAME"; "" if control does not return."""
        if self.returns is None:
            return ""
        back = "and back" if self.returns == "caller" else f"then {self.returns}"
        return f"{separator}{back} when finished" if self.until == "finished" else f"{separator}{back}"


class InnerAgent(Struct, frozen=True):
    """An agent that runs inside another.

    Attributes:
        owner: The outer agent.
        agent: The inner agent.
        kind: Its role.
        label: Its place, such as "step 1", or the tool that calls it.
    """

    owner: str
    agent: str
    kind: PartKind
    label: str


class AgentToolEdge(Struct, frozen=True):
    """An agent that a model calls as a tool.

    Attributes:
        tool: The tool's name.
        agent: The agent.
        description: The tool's description.
    """

    tool: str
    agent: BaseAgent[Any, Any]
    description: str


def teams_in(team: Team) -> list[Team]:
    """Return a team and its nested teams."""
    return [team, *(inner for _, inner in team.nested())]


def edges_of(team: Team) -> list[TeamEdge]:
    """Return all edges of a team, each once."""
    return list(dict.fromkeys(edge for member in team.members.values() for edge in edges_from(member)))


def edges_from(member: TeamMember) -> list[TeamEdge]:
    """Return the edges out of one agent, each once."""
    return list(dict.fromkeys(_edge(member, route) for route in member.edges))


def parts_of(agent: BaseAgent[Any, Any]) -> list[InnerAgent]:
    """Return the inner agents of an agent, once for each place."""
    bottom = _unwrapped(agent)
    if isinstance(bottom, ParallelAgent):
        return [InnerAgent(agent.name, branch.name, "branch", "branch") for branch in bottom.sub_agents]
    if isinstance(bottom, Workflow):
        steps = enumerate(bottom.sub_agents, start=1)
        return [InnerAgent(agent.name, step.name, "step", f"step {number}") for number, step in steps]
    tools = {called.agent.name: called.tool for called in called_by(agent)}
    return [
        InnerAgent(agent.name, part.name, "tool" if part.name in tools else "inside", tools.get(part.name, "inside"))
        for part in agent.inner_agents()
    ]


def called_by(agent: BaseAgent[Any, Any]) -> Iterator[AgentToolEdge]:
    """Yield the agents that an agent's model calls as tools."""
    for tool in _tools_of(agent):
        if isinstance(tool, AgentTool):
            yield AgentToolEdge(tool.spec.name, tool.agent, tool.spec.description)
        elif isinstance(tool, TaskTool):
            for name, tasked in tool.agents.items():
                yield AgentToolEdge(f"{tool.spec.name}({name})", tasked, tasked.description)


def effects_of(agent: BaseAgent[Any, Any]) -> dict[str, ToolEffect]:
    """Return the effects that the tools of an agent's model declare, by name."""
    return {tool.name: tool.effect for tool in _tools_of(agent) if isinstance(tool, FunctionTool)}


def _tools_of(agent: BaseAgent[Any, Any]) -> Iterator[Any]:
    definition = definition_of(agent)
    for entry in definition.tools if definition is not None else ():
        yield unwrap_tool(cast("Tool", entry))


def definition_of(agent: BaseAgent[Any, Any]) -> Agent[Any, Any] | None:
    """Return the model agent in or behind this one; None if it is custom code."""
    bottom = _unwrapped(agent)
    return bottom if isinstance(bottom, Agent) else None


def _unwrapped(agent: BaseAgent[Any, Any]) -> BaseAgent[Any, Any]:
    while isinstance(inner := getattr(agent, "inner", None), BaseAgent):
        agent = cast("BaseAgent[Any, Any]", inner)
    return agent


def _edge(member: TeamMember, route: Route) -> TeamEdge:
    agent = member.agent
    target = route.target
    returns = route.handoff.return_to
    if route.is_tree:
        is_child = any(child.name == target for child in agent.sub_agents)
        return TeamEdge(agent.name, target, "sub_agent" if is_child else "parent", route.tool)
    if route.tool:
        return TeamEdge(agent.name, target, "handoff", route.tool, returns, route.handoff.until)
    if isinstance(agent, ThenTransfer) and agent.to == target:
        return TeamEdge(agent.name, target, "then")
    functions = ", ".join(_functions_that_mention(agent, target))
    if functions:
        return TeamEdge(agent.name, target, "function", functions)
    return TeamEdge(agent.name, target, "code", returns=returns, until=route.handoff.until)


def _functions_that_mention(agent: BaseAgent[Any, Any], target: str) -> Iterator[str]:
    for tool in _tools_of(agent):
        if isinstance(tool, FunctionTool):
            mentioned: tuple[object, ...] = referenced_objects(tool.function)
            if any(isinstance(each, BaseAgent) and each.name == target for each in mentioned):
                yield str(tool.name)
