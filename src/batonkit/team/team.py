"""Teams: the agents reachable from a root and the edges between them, and the fingerprints of teams."""

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from ..agents import BaseAgent
from ..agents.agent_context import HistoryFunction, compile_history
from ..agents.definition import check_context
from ..errors import SetupError, nearest, quote_names
from ..handoffs import TRANSFER_TOOL, Handoff, PromptLanguage
from ..handoffs.routes import Route, Routes, make_route
from ..handoffs.tasks import TASK_TOOLS

_logger = logging.getLogger("baton.team")

AnyAgent: TypeAlias = BaseAgent[Any, Any]
_AgentsByName: TypeAlias = dict[str, AnyAgent]


class TeamMember(Struct, frozen=True):
    """An agent of a team and its edges."""

    agent: AnyAgent
    """The agent."""
    routes: Routes
    """The transfers that it can make, as its model is offered them."""
    edges: tuple[Route, ...]
    """The edges to other members."""
    history: str | HistoryFunction | None = None
    """The agent's history policy, compiled."""


class Finding(Struct, frozen=True):
    """A likely mistake in a team."""

    kind: Literal["undescribed", "unreachable", "no exit"]
    """The kind of mistake."""
    agent: str
    """The agent that it concerns."""
    text: str
    """The explanation."""
    inside: str = ""
    """The agent that the team is nested in; "" for the outermost team."""

    def found_inside(self, owner: str) -> "Finding":
        """Return the finding for a nested team.

        Args:
            owner: The agent that the team is nested in.
        """
        return Finding(self.kind, self.agent, f"{self.text} (inside `{owner}`)", owner)


class Team(Struct, frozen=True, eq=False, dict=True):
    """An immutable team of agents. Create it with `Team.compile`.

    An agent that runs inside another one (a step of a workflow, an agent called as a tool) has a team of its own.

    Attributes:
        root: The name of the agent that a run starts with.
        members: The members by name.
        language: The language of generated prompts.
        inner: The teams of nested agents at every level, by the name of their root.
    """

    root: str
    members: dict[str, TeamMember]
    language: PromptLanguage
    inner: dict[str, "Team"]

    @staticmethod
    def compile(root: AnyAgent, *, extra: Sequence[AnyAgent] = (), language: PromptLanguage = "en") -> "Team":
        """Compile and check the team of all agents that are reachable from a root.

        Args:
            root: The agent that a run starts with.
            extra: Further agents that are part of the team.
            language: The language of generated prompts.

        Raises:
            SetupError: Two agents share a name, or a handoff names an unknown agent.
        """
        by_name: _AgentsByName = {}
        inner: dict[str, Team] = {}
        outer = _compile([root, *extra], language, by_name, inner)
        rule = ", and an agent that runs inside another one cannot reach agents outside"
        waiting = [*outer.members.values()]
        while waiting:
            for part in waiting.pop().agent.inner_agents():
                if part.name not in inner:
                    inner[part.name] = team = _compile([part], language, by_name, inner, rule=rule)
                    waiting.extend(team.members.values())
                else:
                    _register(part, by_name)
        return outer

    def __repr__(self) -> str:
        edges = sum(len(member.edges) for member in self.members.values())
        return f"Team({self.root!r}, agents={[*self.members]}, edges={edges})"

    @property
    def fingerprint(self) -> str:
        """A short hash of the team, the same in every process: `RunRecord.team` of its runs."""
        return fingerprint_hash(team_fingerprint(self))

    @cached_property
    def _required_contexts(self) -> dict[str, dict[str, Any]]:
        """The context types that tools need, by agent and tool."""
        teams = [self, *self.inner.values()]
        agents = {name: member.agent for team in teams for name, member in team.members.items()}
        return {name: needs for name, agent in agents.items() if (needs := agent._required_contexts())}

    def check_context(self, context: object) -> None:
        """Check that a run has the context object that its agents' tools need.

        Args:
            context: The run's context object, or None.

        Raises:
            SetupError: A tool needs one, and there is none.
        """
        if context is None:
            for name, needs in self._required_contexts.items():
                check_context(name, needs, context)

    def nested(self) -> "Iterator[tuple[str, Team]]":
        """Yield each nested team, at every level, with the name of the agent it is nested in."""
        seen: set[str] = set()
        waiting: list[Team] = [self]
        while waiting:
            for name, member in waiting.pop(0).members.items():
                for part in member.agent.inner_agents():
                    if part.name not in seen:
                        seen.add(part.name)
                        waiting.append(self.inner[part.name])
                        yield name, self.inner[part.name]

    def extend(self, agent: AnyAgent) -> "Team":
        """Return the team with a dynamic agent and all agents reachable from it.

        Args:
            agent: The agent, such as one that a tool returned.
        """
        added = Team.compile(agent, language=self.language)
        return Team(self.root, {**self.members, **added.members}, self.language, {**self.inner, **added.inner})

    def warn(self, *, entries: Sequence[str] = ()) -> None:
        """Log the findings as warnings.

        Args:
            entries: Agents besides the root that control can start with.
        """
        for finding in self.findings(entries=entries):
            _logger.warning("%s", finding.text)

    def findings(self, *, entries: Sequence[str] = ()) -> list[Finding]:
        """Return likely mistakes: agents without description, and unreachable agents.

        Nested teams are checked as well; an agent that is in several teams is reported once.

        Args:
            entries: Agents besides the root that control can start with.
        """
        findings = [*self._undescribed(), *self._unreachable({self.root, *entries})]
        for owner, team in self.nested():
            findings += [finding.found_inside(owner) for finding in team._undescribed()]
        first = {(finding.kind, finding.agent): finding for finding in reversed(findings)}
        return [finding for finding in findings if first[finding.kind, finding.agent] is finding]

    def _undescribed(self) -> Iterable[Finding]:
        chosen = {route.target for member in self.members.values() for route in member.edges if route.tool}
        for name in self.members:
            if name in chosen and not self.members[name].agent.description:
                yield Finding("undescribed", name, f"`{name}` has no description: a model must choose it by name alone")

    def _unreachable(self, entries: set[str]) -> Iterable[Finding]:
        seen = set(entries)
        waiting = list(entries)
        while waiting:
            for route in self.members[waiting.pop()].edges:
                for name in (route.target, route.handoff.return_to):
                    if name in self.members and name not in seen:
                        seen.add(name)
                        waiting.append(name)
        for name in self.members:
            if name not in seen:
                yield Finding("unreachable", name, f"`{name}` cannot be reached from `{self.root}`")


def _compile(
    roots: Sequence[AnyAgent], language: PromptLanguage, by_name: _AgentsByName, inner: dict[str, Team], rule: str = ""
) -> Team:
    """Compile one team. `by_name` has the agents of all teams; `rule` ends error messages."""
    agents = _reachable_from(roots, by_name)
    parents: dict[str, list[str]] = {name: [] for name in agents}
    for agent in agents.values():
        for child in agent._transfer_children():
            parents[child.name].append(agent.name)
    for agent in agents.values():
        _check_names(agent, agents, rule)
    members = {name: _member(agent, agents, parents[name], language) for name, agent in agents.items()}
    return Team(roots[0].name, members, language, inner)


def _reachable_from(roots: Sequence[AnyAgent], by_name: _AgentsByName) -> _AgentsByName:
    reachable: _AgentsByName = {}
    waiting = list(reversed(roots))
    while waiting:
        agent = waiting.pop()
        _register(agent, by_name)
        if agent.name in reachable:
            continue
        reachable[agent.name] = agent
        nearby = [*agent._transfer_children(), *_agents_of(agent._edges()), *agent._referenced_agents()]
        waiting.extend(reversed([other for other in nearby if reachable.get(other.name) is not other]))
    return reachable


def _register(agent: AnyAgent, by_name: _AgentsByName) -> None:
    registered = by_name.setdefault(agent.name, agent)
    if registered is not agent:
        raise SetupError(
            f"two different agents are called `{agent.name}`: {_describe(registered)} and {_describe(agent)}; "
            "give each a name of its own"
        )


def _agents_of(edges: Iterable[Handoff]) -> Iterable[AnyAgent]:
    for edge in edges:
        if isinstance(edge.agent, BaseAgent):
            yield edge.agent  # pyright: ignore[reportUnknownMemberType]


def _describe(agent: AnyAgent) -> str:
    return f"{type(agent).__name__}({agent.name!r}, description={agent.description!r})"


def _member(agent: AnyAgent, agents: _AgentsByName, parents: list[str], language: PromptLanguage) -> TeamMember:
    tree = [child.name for child in agent._transfer_children()]
    if not agent.disallow_transfer_to_parent:
        tree += [parent for parent in parents if parent != agent.name]
    edges = [
        make_route(Handoff(agent=agents[name]), agents[name], tool=TRANSFER_TOOL, is_tree=True)
        for name in dict.fromkeys(tree)
    ]
    edges += [_handoff_route(edge, agents) for edge in agent._edges()]
    for other in dict.fromkeys(agent._referenced_agents()):
        edges.append(make_route(Handoff(agent=other, offered_to_model=False), other, tool=""))
    _check_tool_names(agent, edges)
    _check_tasks(agent, edges, agents)
    history = None if agent.history is None else compile_history(agent.history)
    return TeamMember(agent, Routes(agent.name, edges, language=language), tuple(edges), history)


def history_policies(team: Team) -> Iterator[str | HistoryFunction]:
    """Yield the history policies of all agents of a team, their handoffs and agents as tools."""
    for each in (team, *team.inner.values()):
        for member in each.members.values():
            yield from filter(None, [member.history, *[route.history for route in member.edges]])
            yield from member.agent._inner_policies()


def _check_tasks(agent: AnyAgent, edges: Sequence[Route], agents: _AgentsByName) -> None:
    """Check that the targets of task handoffs can end their tasks."""
    for route in edges:
        if route.handoff.until != "finished":
            continue
        edge = f'`{agent.name}` has a handoff to `{route.target}` with until="finished"'
        target = agents[route.target]
        if target._is_remote:
            raise SetupError(f"{edge}, but an agent of another service cannot finish a task; leave out until")
        names = [spec.name for spec in target._tool_specs() if spec.name in TASK_TOOLS]
        names += [edge.tool_name_override for edge in target._edges() if edge.tool_name_override in TASK_TOOLS]
        if names:
            raise SetupError(f"{edge}, but `{route.target}` has a tool called `{names[0]}`; give it another name")
        # Compile the schema of the result now rather than in the middle of a run.
        _ = route.handoff._result_parser


def _check_names(agent: AnyAgent, agents: _AgentsByName, rule: str) -> None:
    """Check that the team has the agents that handoffs lead and return to."""

    def unknown(what: str, wanted: str, choices: Iterable[str]) -> SetupError:
        return SetupError(
            f"`{agent.name}` has {what}, but the team has no agent of that name{rule}; "
            f"the team has: {quote_names([*agents])}{nearest(wanted, [*choices])}"
        )

    for edge in agent._edges():
        if edge.target not in agents:
            raise unknown(f"a handoff to `{edge.target}`", edge.target, agents)
        back = edge.return_to
        if back is not None and back != "caller" and back not in agents:
            raise unknown(f"a handoff with return_to={back!r}", back, [*agents, "caller"])


def _handoff_route(edge: Handoff, agents: _AgentsByName) -> Route:
    route = make_route(edge, agents[edge.target], tool=edge.tool_name if edge.offered_to_model else "")
    return route if edge.history is None else replace(route, history=compile_history(edge.history))


def _check_tool_names(agent: AnyAgent, edges: Sequence[Route]) -> None:
    taken: dict[str, str] = {spec.name: f"its tool `{spec.name}`" for spec in agent._tool_specs()}
    always_enabled: dict[str, str] = {}
    tree_tool = f"the transfer tool `{TRANSFER_TOOL}`"
    for route in edges:
        if not route.tool:
            continue
        meaning = tree_tool if route.is_tree else f"the handoff to `{route.target}`"
        holder = taken.get(route.tool)
        # Edges with a condition may exclude each other; they are compared in each turn in which they are enabled.
        if holder is None and not route.is_tree and route.handoff.is_enabled is True:
            holder = always_enabled.get(route.tool)
            always_enabled[route.tool] = meaning
        if holder is not None and not (route.is_tree and holder == tree_tool):
            raise SetupError(
                f"`{agent.name}` has two tools called `{route.tool}`: {holder} and {meaning}; "
                "rename one of them, for instance with handoff(agent, tool_name_override=…)"
            )
        if route.is_tree:
            taken[route.tool] = meaning


def team_fingerprint(team: Team) -> dict[str, str]:
    """Return a readable line for each agent: its type, tools, edges and parts."""
    prints = {name: _describe_member(member) for name, member in team.members.items()}
    for inner in team.inner.values():
        for name, member in inner.members.items():
            prints.setdefault(name, _describe_member(member))
    return prints


def fingerprint_hash(fingerprint: Mapping[str, str]) -> str:
    """Return a short hash of a fingerprint, the same in every process; "" for an empty one."""
    if not fingerprint:
        return ""
    from hashlib import sha256

    return sha256("\n".join([f"{name} {line}" for name, line in sorted(fingerprint.items())]).encode()).hexdigest()[:16]


def diff_fingerprints(recorded: Mapping[str, str], present: Mapping[str, str]) -> list[str]:
    """Return a line for each agent that differs."""
    lines: list[str] = []
    for name in [*recorded, *(name for name in present if name not in recorded)]:
        before = recorded.get(name)
        now = present.get(name)
        if before == now:
            continue
        if now is None:
            lines.append(f"- `{name}` is gone")
        elif before is None:
            lines.append(f"+ `{name}` is new")
        else:
            lines.append(f"~ `{name}` was ({before}), is ({now})")
    return lines


def _describe_edge(route: Route) -> str:
    return route.target if route.handoff.until == "answered" else f"{route.target} until finished"


def _describe_member(member: TeamMember) -> str:
    agent = member.agent
    facts = [type(agent).__name__]
    tools = [spec.name for spec in agent._tool_specs()]
    if tools:
        facts.append(f"tools {', '.join(tools)}")
    if member.edges:
        facts.append(f"to {', '.join(map(_describe_edge, member.edges))}")
    parts = [part.name for part in agent.inner_agents()]
    if parts:
        facts.append(f"parts {', '.join(parts)}")
    return "; ".join(facts)
