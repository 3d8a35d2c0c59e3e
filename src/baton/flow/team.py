"""A team: the agents reachable from a root and the edges between them, compiled once, checked, immutable.

What of a team matters to a run under way: who is in it, with which tools and edges. Not what agents are told.
"""

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

from msgspec import Struct

from ..agents import BaseAgent
from ..errors import SetupError, quote_names
from ..handoffs import TRANSFER_TOOL, Handoff, PromptLanguage, default_tool_name
from ..handoffs.routes import Route, Routes, handoff_route, tree_route
from .history import check_history_policy

_logger = logging.getLogger("baton.team")


class TeamMember(Struct, frozen=True):
    """One agent's place in one team: the agent, and the edges out of it."""

    agent: BaseAgent[Any, Any]
    routes: Routes
    edges: tuple[Route, ...]


class Finding(Struct, frozen=True):
    """Something about a team that works but is probably not meant."""

    kind: Literal["undescribed", "unreachable", "no exit"]
    agent: str
    text: str
    inside: str = ""
    """The agent inside which the team is that it is about; "" for the outermost team."""

    def found_inside(self, owner: str) -> "Finding":
        """The same about a team inside an agent; the text says so."""
        return Finding(self.kind, self.agent, f"{self.text} (inside `{owner}`)", owner)


class Team:
    """Seats by name. `Team.compile` is the only maker.

    An agent that runs inside another (a step of a workflow, an agent that is a tool) has a team of its own: whom it can
    reach from there. `inner` are all of these, by the name of their root.
    """

    __slots__ = ("inner", "language", "root", "seats")

    def __init__(
        self, root: str, seats: dict[str, TeamMember], language: PromptLanguage, inner: dict[str, "Team"]
    ) -> None:
        self.root = root
        self.seats = seats
        self.language: PromptLanguage = language
        self.inner = inner

    @staticmethod
    def compile(
        root: BaseAgent[Any, Any], *, extra: Sequence[BaseAgent[Any, Any]] = (), language: PromptLanguage = "en"
    ) -> "Team":
        """The team of everybody reachable from the root (and from `extra`). Raises SetupError if it cannot work."""
        everybody: dict[str, BaseAgent[Any, Any]] = {}
        inner: dict[str, Team] = {}
        outer = _compiled([root, *extra], language, everybody, inner)
        inside = ", and an agent that runs inside another reaches nobody outside"
        # A part may have parts: their teams are found while the list grows.
        waiting = [*outer.seats.values()]
        while waiting:
            for part in waiting.pop().agent.inner_agents():
                if part.name not in inner:
                    inner[part.name] = team = _compiled([part], language, everybody, inner, rule=inside)
                    waiting.extend(team.seats.values())
                else:
                    _enter(part, everybody)
        return outer

    def seat(self, name: str) -> TeamMember | None:
        """The seat of the agent with this name."""
        return self.seats.get(name)

    def nested(self) -> "Iterator[tuple[str, Team]]":
        """The teams inside agents of this one and inside theirs, each once, with the name of the agent it is in."""
        seen: set[str] = set()
        waiting: list[Team] = [self]
        while waiting:
            for name, seat in waiting.pop(0).seats.items():
                for part in seat.agent.inner_agents():
                    if part.name not in seen:
                        seen.add(part.name)
                        waiting.append(self.inner[part.name])
                        yield name, self.inner[part.name]

    def joined_by(self, guest: BaseAgent[Any, Any]) -> "Team":
        """The team with an agent that a function returned, and everybody reachable from it."""
        arrived = Team.compile(guest, language=self.language)
        inner = {**self.inner, **arrived.inner}
        return Team(self.root, {**self.seats, **arrived.seats}, self.language, inner)

    def warn(self, *, entries: Sequence[str] = ()) -> None:
        """Log what is probably not meant."""
        for finding in self.findings(entries=entries):
            _logger.warning("%s", finding.text)

    def findings(self, *, entries: Sequence[str] = ()) -> list[Finding]:
        """What is probably not meant: agents that a model must choose blindly, and agents that nobody can reach.

        `entries` are agents that control goes to without an edge, besides the root. Teams inside agents are looked at
        as well; who stands in several of them is reported once.
        """
        findings = [*self._undescribed(), *self._unreachable({self.root, *entries})]
        for owner, team in self.nested():
            findings += [finding.found_inside(owner) for finding in team._undescribed()]
        first = {(finding.kind, finding.agent): finding for finding in reversed(findings)}
        return [finding for finding in findings if first[finding.kind, finding.agent] is finding]

    def _undescribed(self) -> Iterable[Finding]:
        chosen = {route.target for seat in self.seats.values() for route in seat.edges if route.tool}
        for name in self.seats:
            if name in chosen and not self.seats[name].agent.description:
                yield Finding("undescribed", name, f"`{name}` has no description: a model must choose it by name alone")

    def _unreachable(self, entries: set[str]) -> Iterable[Finding]:
        seen, waiting = set(entries), list(entries)
        while waiting:
            for route in self.seats[waiting.pop()].edges:
                for name in (route.target, route.handoff.return_to):
                    if name in self.seats and name not in seen:
                        seen.add(name)
                        waiting.append(name)
        for name in self.seats:
            if name not in seen:
                yield Finding("unreachable", name, f"`{name}` cannot be reached from `{self.root}`")


def _compiled(
    roots: Sequence[BaseAgent[Any, Any]],
    language: PromptLanguage,
    everybody: dict[str, BaseAgent[Any, Any]],
    inner: dict[str, Team],
    *,
    rule: str = "",
) -> Team:
    """One team. `everybody` are the agents of all teams of a run: names are unique among them.

    `rule` is what to say when somebody is wanted who is not in the team.
    """
    agents = _reachable_from(roots, everybody)
    parents: dict[str, list[str]] = {name: [] for name in agents}
    for agent in agents.values():
        for child in agent._transfer_children():
            parents[child.name].append(agent.name)
    for agent in agents.values():
        _check_names(agent, agents, rule)
    seats = {name: _seat(agent, agents, parents[name], language) for name, agent in agents.items()}
    return Team(roots[0].name, seats, language, inner)


def _reachable_from(
    roots: Sequence[BaseAgent[Any, Any]], everybody: dict[str, BaseAgent[Any, Any]]
) -> dict[str, BaseAgent[Any, Any]]:
    found: dict[str, BaseAgent[Any, Any]] = {}
    waiting = list(reversed(roots))
    while waiting:
        agent = waiting.pop()
        _enter(agent, everybody)
        if agent.name in found:
            continue
        found[agent.name] = agent
        nearby = [*agent._transfer_children(), *_agents_of(agent._edges()), *agent._referenced_agents()]
        waiting.extend(reversed([other for other in nearby if found.get(other.name) is not other]))
    return found


def _enter(agent: BaseAgent[Any, Any], everybody: dict[str, BaseAgent[Any, Any]]) -> None:
    known = everybody.setdefault(agent.name, agent)
    if known is not agent:
        raise SetupError(
            f"two different agents are called `{agent.name}`: {_described(known)} and {_described(agent)}; "
            "give each a name of its own"
        )


def _agents_of(edges: Iterable[Handoff]) -> Iterable[BaseAgent[Any, Any]]:
    for edge in edges:
        if isinstance(edge.agent, BaseAgent):
            yield edge.agent  # pyright: ignore[reportUnknownMemberType]


def _described(agent: BaseAgent[Any, Any]) -> str:
    return f"{type(agent).__name__}({agent.name!r}, description={agent.description!r})"


def _seat(
    agent: BaseAgent[Any, Any], agents: dict[str, BaseAgent[Any, Any]], parents: list[str], language: PromptLanguage
) -> TeamMember:
    for policy in (agent.history, *(edge.history for edge in agent._edges())):
        if policy is not None:
            check_history_policy(policy)
    tree = [child.name for child in agent._transfer_children()]
    if not agent.disallow_transfer_to_parent:
        tree += [parent for parent in parents if parent != agent.name]
    edges = [tree_route(agents[name]) for name in dict.fromkeys(tree)]
    edges += [_handoff_route(edge, agents) for edge in agent._edges()]
    for other in dict.fromkeys(agent._referenced_agents()):
        edges.append(handoff_route(Handoff(agent=other, offered_to_model=False), other, tool=""))
    _check_tool_names(agent, edges)
    return TeamMember(agent, Routes(agent.name, edges, language=language), tuple(edges))


def _check_names(agent: BaseAgent[Any, Any], agents: dict[str, BaseAgent[Any, Any]], rule: str) -> None:
    for edge in agent._edges():
        for wanted in (edge.target, edge.return_to):
            if wanted not in agents and wanted not in (None, "caller"):
                raise SetupError(
                    f"`{agent.name}` has an edge to `{wanted}`, but nobody in the team has that name{rule}; "
                    f"the team has: {quote_names([*agents])}"
                )


def _handoff_route(edge: Handoff, agents: dict[str, BaseAgent[Any, Any]]) -> Route:
    tool = (edge.tool_name_override or default_tool_name(edge.target)) if edge.offered_to_model else ""
    return handoff_route(edge, agents[edge.target], tool=tool)


def _check_tool_names(agent: BaseAgent[Any, Any], edges: Sequence[Route]) -> None:
    taken: dict[str, str] = {spec.name: f"its tool `{spec.name}`" for spec in agent._tool_specs()}
    tree_tool = f"the transfer tool `{TRANSFER_TOOL}`"
    for route in edges:
        if not route.tool:
            continue
        meaning = tree_tool if route.is_tree else f"the handoff to `{route.target}`"
        if taken.get(route.tool, meaning) != meaning or (route.tool in taken and meaning != tree_tool):
            raise SetupError(
                f"`{agent.name}` offers two things as `{route.tool}`: {taken[route.tool]} and {meaning}; "
                "name one of them otherwise, for instance with handoff(agent, tool_name_override=…)"
            )
        taken[route.tool] = meaning


def team_fingerprint(team: Team) -> dict[str, str]:
    """A line for each agent, in words, so that a difference can be shown."""
    prints = {name: _line(seat) for name, seat in team.seats.items()}
    for inner in team.inner.values():
        for name, seat in inner.seats.items():
            prints.setdefault(name, _line(seat))
    return prints


def diff_fingerprints(recorded: Mapping[str, str], present: Mapping[str, str]) -> list[str]:
    """What has changed, a line for each agent; empty if nothing has."""
    lines: list[str] = []
    for name in [*recorded, *(name for name in present if name not in recorded)]:
        before, now = recorded.get(name), present.get(name)
        if before == now:
            continue
        if now is None:
            lines.append(f"- `{name}` is gone")
        elif before is None:
            lines.append(f"+ `{name}` is new")
        else:
            lines.append(f"~ `{name}` was ({before}), is ({now})")
    return lines


def _line(seat: TeamMember) -> str:
    agent = seat.agent
    facts = [type(agent).__name__]
    tools = [spec.name for spec in agent._tool_specs()]
    if tools:
        facts.append(f"tools {', '.join(tools)}")
    if seat.edges:
        facts.append(f"to {', '.join(route.target for route in seat.edges)}")
    parts = [part.name for part in agent.inner_agents()]
    if parts:
        facts.append(f"parts {', '.join(parts)}")
    return "; ".join(facts)
