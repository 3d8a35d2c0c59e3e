"""`baton check`: a team as a tree, what is probably not meant about it, and what its transfers cost.

What it costs an agent to be told whom it can transfer to: an estimate, the same for every model.

Cycles nobody can leave, as far as that can be known without running anything.

An agent that asks a model has no end of its own in two cases: it must call a tool first and has nothing but
transfers, or it always hands on (`then_transfer`) and has no exit tool. Anything else, and all code of one's own, is
taken to be able to end. So what is reported is certain, unless a function brings in an agent that its code does not
name; what is not reported may still go round.
"""

from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import asdict
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text
from rich.tree import Tree

from ..agents.wrappers import ThenTransfer
from ..errors import SetupError, quote_names
from ..flow import Finding, Team, TeamMember
from ..handoffs import TRANSFER_TOOL, Handoff, PromptLanguage, default_tool_name
from ..handoffs.routes import Route, Routes
from .display import printable, shortened
from .edges import EdgeKind, InnerAgent, TeamEdge, called_by, definition_of, edges_from, edges_of, parts_of
from .errors import TargetError
from .graph import team_of

CHARACTERS_PER_TOKEN = 4


class TransferCost(Struct, frozen=True):
    """Estimated tokens in every model call of one agent: as it is now, and with either style for all targets."""

    targets: int
    now: int
    single_tool: int
    tool_per_target: int


def transfer_costs(team: Team) -> dict[str, TransferCost]:
    """The cost for each agent whose model is shown somebody to transfer to."""
    costs = {name: _cost(seat, team.language) for name, seat in team.seats.items()}
    return {name: cost for name, cost in costs.items() if cost.targets}


def _cost(seat: TeamMember, language: PromptLanguage) -> TransferCost:
    name = seat.agent.name
    shown = {route.target: route for route in reversed(seat.edges) if route.tool}
    return TransferCost(
        len(shown),
        _tokens(seat.routes),
        _tokens(Routes(name, [_in_the_tree(route) for route in shown.values()], language=language)),
        _tokens(Routes(name, [_with_own_tool(route) for route in shown.values()], language=language)),
    )


def _in_the_tree(route: Route) -> Route:
    return Route(route.target, Handoff(agent=route.target), route.description, TRANSFER_TOOL, is_tree=True)


def _with_own_tool(route: Route) -> Route:
    if not route.is_tree:
        return route
    return Route(route.target, Handoff(agent=route.target), route.description, default_tool_name(route.target))


def _tokens(routes: Routes) -> int:
    return -(-_characters([routes.section, *map(_as_json, routes.specs)]) // CHARACTERS_PER_TOKEN)


def _as_json(spec: object) -> str:
    return msgspec.json.encode(spec).decode()


def _characters(texts: Iterable[str]) -> int:
    return sum(map(len, texts))


def find_endless_cycles(team: Team) -> list[Finding]:
    """A finding for each group of agents that pass control round and can never end."""
    leads_to = _leads_to(team)
    bare = _with_nobody_waiting(team)
    why = {name: _why_never_ends(seat) for name, seat in team.seats.items()}
    # Where a caller waits, an end is not the end of the run: control goes back.
    ends = {name for name in team.seats if (not why[name] and name in bare) or _may_exit(team.seats[name])}
    reach = {name: _reachable(name, leads_to) for name in team.seats}
    trapped = [name for name in team.seats if not ends & (reach[name] | {name})]
    findings: list[Finding] = []
    told: set[str] = set()
    for name in trapped:
        group = [other for other in trapped if other in reach[name] and name in reach[other]]
        if group and name not in told:
            told.update(group)
            findings.append(Finding("no exit", name, _text(group, why)))
    return findings


def _why_never_ends(seat: TeamMember) -> str:
    """Why the agent always passes control on; "" if it may end."""
    agent, definition = seat.agent, definition_of(seat.agent)
    if definition is None or definition.exit_tool:
        return ""
    if isinstance(agent, ThenTransfer):
        return f"`{agent.name}` always hands on to `{agent.to}`"
    must = definition.tool_choice
    transfers = [spec.name for spec in seat.routes.specs]
    if must in transfers:
        return f"`{agent.name}` must call `{must}`"
    if must == "required" and transfers and not agent._tool_specs():
        return f"`{agent.name}` must call a tool and has only transfers"
    return ""


def _may_exit(seat: TeamMember) -> bool:
    definition = definition_of(seat.agent)
    return definition is None or definition.exit_tool


def _with_nobody_waiting(team: Team) -> set[str]:
    """The agents that may have the floor while no caller waits for control to come back."""
    bare, waiting = {team.root}, [team.root]
    while waiting:
        for route in team.seats[waiting.pop()].edges:
            returns = route.handoff.return_to
            lands = route.target if returns is None else returns
            if lands in team.seats and lands not in bare:
                bare.add(lands)
                waiting.append(lands)
    # Nothing is known of how control comes to those whom no edge leads to.
    return bare | (set(team.seats) - _reachable(team.root, _leads_to(team)) - {team.root})


def _leads_to(team: Team) -> dict[str, set[str]]:
    """Who can have the floor directly after whom, the ways back to callers included."""
    leads_to: dict[str, set[str]] = {name: set() for name in team.seats}
    edges = edges_of(team)
    for edge in edges:
        leads_to[edge.source].add(edge.target)
    for edge in edges:
        if edge.returns is not None:
            back_to = edge.source if edge.returns == "caller" else edge.returns
            # Whoever the target passes control to may end as well: all of them lead back.
            for name in (edge.target, *_reachable(edge.target, leads_to)):
                leads_to[name].add(back_to)
    return leads_to


def _reachable(name: str, leads_to: Mapping[str, Iterable[str]]) -> set[str]:
    seen: set[str] = set()
    waiting = [name]
    while waiting:
        for other in leads_to[waiting.pop()]:
            if other not in seen:
                seen.add(other)
                waiting.append(other)
    return seen


def _text(group: list[str], why: Mapping[str, str]) -> str:
    reasons = "; ".join(why[name] or f"`{name}` ends, but a caller waits for control to come back" for name in group)
    pass_on = "passes control to itself" if len(group) == 1 else "pass control round"
    return f"{quote_names(group)} {pass_on} and can never end, so that only a limit stops the run: {reasons}"


_LABELS: dict[EdgeKind, str] = {
    "sub_agent": "sub_agent",
    "parent": "back to",
    "handoff": "handoff",
    "function": "function",
    "then": "always then",
    "code": "by code",
}


class TeamReport:
    """What there is to say about a team; a team that cannot be compiled has only the reason why."""

    def __init__(self, team: Team | None, setup_error: SetupError | None = None) -> None:
        self.team = team
        self.setup_error = setup_error
        self.findings: list[Finding] = findings_in(team) if team is not None else []
        self.costs: dict[str, TransferCost] = {}
        for each in _teams_in(team):
            for name, cost in transfer_costs(each).items():
                self.costs.setdefault(name, cost)

    def is_bad(self, *, strict: bool) -> bool:
        """Whether the program should end as failed."""
        return self.setup_error is not None or (strict and bool(self.findings))

    def as_json(self) -> dict[str, Any]:
        """The report for programs."""
        findings = [{"level": "warning", **asdict(finding)} for finding in self.findings]
        if self.setup_error is not None:
            findings.append({"level": "error", "kind": "setup", "agent": "", "text": str(self.setup_error)})
        team = self.team
        return {
            "root": team.root if team is not None else None,
            "agents": [self._agent_as_json(seat) for seat in _seats_in(team).values()],
            "findings": findings,
        }

    def _agent_as_json(self, seat: TeamMember) -> dict[str, Any]:
        name = seat.agent.name
        cost = self.costs.get(name)
        return {
            "name": name,
            "description": seat.agent.description,
            "type": type(seat.agent).__name__,
            "tools": [spec.name for spec in seat.agent._tool_specs()],
            "sources": _sources(seat),
            "edges": [asdict(edge) for edge in edges_from(seat)],
            "parts": [asdict(part) for part in parts_of(seat.agent)],
            "estimated_tokens_per_call": asdict(cost) if cost is not None else None,
        }

    def as_text(self) -> RenderableType:
        """The report for people."""
        blocks: list[RenderableType] = []
        if self.team is not None:
            blocks += [_tree(self.team), Text()]
        if self.costs:
            blocks += [Text("estimated tokens per model call to name the transfer targets (characters / 4):")]
            blocks += [_cost_table(self.costs), Text()]
        blocks += self._verdict()
        return Group(*blocks)

    def _verdict(self) -> list[Text]:
        if self.setup_error is not None:
            return [Text.assemble(("error ", "bold red"), printable(str(self.setup_error)))]
        if not self.findings:
            return [Text("no findings", style="green")]
        return [
            Text.assemble(("warning ", "bold yellow"), (f"{finding.kind}: ", "bold"), printable(finding.text))
            for finding in self.findings
        ]


def findings_in(team: Team) -> list[Finding]:
    """All there is to find in a team and in the teams inside its agents, each once."""
    findings = [*team.findings(), *find_endless_cycles(team)]
    for owner, inner in team.nested():
        findings += [finding.found_inside(owner) for finding in find_endless_cycles(inner)]
    for seat in _seats_in(team).values():
        for called in called_by(seat.agent):
            known = [finding.agent for finding in findings if finding.kind == "undescribed"]
            if not called.description and called.agent.name not in known:
                name, whose = called.agent.name, f"the tool `{called.tool}` of `{seat.agent.name}`"
                text = f"`{name}` has no description: as {whose}, a model must choose it by name alone"
                findings.append(Finding("undescribed", name, text))
    return findings


def _teams_in(team: Team | None) -> list[Team]:
    return [team, *(inner for _, inner in team.nested())] if team is not None else []


def _seats_in(team: Team | None) -> dict[str, TeamMember]:
    """The seats of the team and of the teams inside its agents; of an agent with several, the outermost."""
    seats: dict[str, TeamMember] = {}
    for each in _teams_in(team):
        for name, seat in each.seats.items():
            seats.setdefault(name, seat)
    return seats


def check(reference: str) -> TeamReport:
    """Load what the command line names and look at its team."""
    try:
        return TeamReport(team_of(reference))
    except TargetError:
        raise
    except SetupError as error:
        return TeamReport(None, error)


def print_report(report: TeamReport) -> None:
    """Write the report for people to stdout."""
    Console(highlight=False).print(report.as_text())


def _tree(team: Team) -> Tree:
    """Breadth first, so that everybody is described where they stand closest to the root."""
    root = team.seats[team.root]
    tree = Tree(_title(root))
    seen, waiting = {team.root}, deque([(tree, root, team)])
    outside = [team.seats[finding.agent] for finding in team.findings() if finding.kind == "unreachable"]
    while waiting or outside:
        if not waiting:
            seat = outside.pop(0)
            if seat.agent.name in seen:
                continue
            seen.add(seat.agent.name)
            waiting.append((tree.add(Text.assemble(("unreachable ", "yellow"), _title(seat))), seat, team))
        branch, seat, its_team = waiting.popleft()
        tools = [spec.name for spec in seat.agent._tool_specs()] + _sources(seat)
        if tools:
            branch.add(Text(f"tools: {', '.join(tools)}", style="dim"))
        for edge in edges_from(seat):
            target = its_team.seats[edge.target]
            is_new = edge.target not in seen
            below = branch.add(_branch(edge, target, is_new=is_new))
            if is_new:
                seen.add(edge.target)
                waiting.append((below, target, its_team))
        for part in parts_of(seat.agent):
            inner = team.inner[part.agent]
            is_new = part.agent not in seen
            below = branch.add(_part(part, inner.seats[part.agent], is_new=is_new))
            if is_new:
                seen.add(part.agent)
                waiting.append((below, inner.seats[part.agent], inner))
    return tree


def _sources(seat: TeamMember) -> list[str]:
    """Where more tools come from, which nobody knows before it runs."""
    definition = definition_of(seat.agent)
    return [repr(source) for source in definition._toolsets] if definition is not None else []


def _title(seat: TeamMember) -> Text:
    definition = definition_of(seat.agent)
    kind = "" if definition is seat.agent else f" ({type(seat.agent).__name__})"
    description = f" — {shortened(seat.agent.description)}" if seat.agent.description else ""
    return Text.assemble((printable(seat.agent.name), "bold cyan"), (kind, "dim"), description)


def _branch(edge: TeamEdge, target: TeamMember, *, is_new: bool) -> Text:
    label = (f"{_LABELS[edge.kind]} ", "magenta")
    name = _title(target) if is_new else Text(printable(edge.target), style="cyan")
    via = f"  [{edge.via}]" if edge.via and edge.kind in ("handoff", "function") else ""
    returns = {None: "", "caller": "  and back"}.get(edge.returns, f"  then {edge.returns}")
    return Text.assemble(label, name, (via, "dim"), (returns, "magenta"))


def _part(part: InnerAgent, seat: TeamMember, *, is_new: bool) -> Text:
    name = _title(seat) if is_new else Text(printable(part.agent), style="cyan")
    how = {"tool": "agent as tool", "inside": "inside"}.get(part.kind, part.label)
    via = f"  [{part.label}]" if part.kind == "tool" else ""
    return Text.assemble((f"{how} ", "magenta"), name, (via, "dim"))


def _cost_table(costs: dict[str, TransferCost]) -> Table:
    table = Table("agent")
    for column in ("targets", "now", "one transfer_to_agent", "a tool per target"):
        table.add_column(column, justify="right")
    for name, cost in costs.items():
        tokens = [f"≈ {number}" for number in (cost.now, cost.single_tool, cost.tool_per_target)]
        table.add_row(Text(printable(name)), str(cost.targets), *tokens)
    return table
