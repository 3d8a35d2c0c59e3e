"""A team as data: its agents with their tools, edges and parts, and likely mistakes."""

from typing import Literal

from msgspec import Struct
from msgspec.structs import asdict

from ..team import Team
from ..tools import ToolEffect
from .edges import InnerAgent, TeamEdge, edges_from, effects_of, parts_of
from .findings import TransferCost, findings_in, members_in, toolsets_of, transfer_costs


class AgentDescription(Struct, frozen=True):
    """An agent of a team."""

    name: str
    """Its name."""
    description: str
    """The description that models read."""
    type: str
    """The name of its class."""
    tools: tuple[str, ...]
    """The names of its tools."""
    effects: dict[str, ToolEffect]
    """The effects outside that its tools declare, by name."""
    sources: tuple[str, ...]
    """Its toolsets, whose tools are known only at run time."""
    edges: tuple[TeamEdge, ...]
    """The agents that it can transfer control to."""
    parts: tuple[InnerAgent, ...]
    """The agents that run inside it."""
    estimated_tokens_per_call: TransferCost | None
    """The tokens of each model call that name its transfer targets; None without targets."""


class TeamFinding(Struct, frozen=True):
    """A likely mistake in a team."""

    level: Literal["warning", "error"]
    """Its severity."""
    kind: str
    """The kind of mistake."""
    agent: str
    """The agent that it concerns."""
    text: str
    """The explanation."""
    inside: str = ""
    """The agent that the team is nested in; "" for the outermost team."""


class TeamDescription(Struct, frozen=True):
    """A team: all of its agents, also nested ones, and what `baton check` found."""

    root: str
    """The agent that runs start with."""
    agents: tuple[AgentDescription, ...]
    """The agents, the outermost first."""
    findings: tuple[TeamFinding, ...]
    """The likely mistakes."""


def describe_team(team: Team) -> TeamDescription:
    """Describe a team as data.

    Args:
        team: The team.
    """
    costs = transfer_costs(team)
    agents = tuple(
        AgentDescription(
            name,
            member.agent.description,
            type(member.agent).__name__,
            tuple([spec.name for spec in member.agent._tool_specs()]),
            effects_of(member.agent),
            tuple(toolsets_of(member)),
            tuple(edges_from(member)),
            tuple(parts_of(member.agent)),
            costs.get(name),
        )
        for name, member in members_in(team).items()
    )
    findings = tuple([TeamFinding("warning", **asdict(finding)) for finding in findings_in(team)])
    return TeamDescription(team.root, agents, findings)
