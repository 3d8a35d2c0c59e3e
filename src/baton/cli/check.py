"""`baton check`: a team as a tree, what is probably not meant about it, and what its transfers cost."""

from collections import deque
from typing import Any

from msgspec.structs import asdict
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text
from rich.tree import Tree

from ..errors import SetupError
from ..flow import Finding, Team, TeamMember
from .costs import TransferCost, transfer_costs
from .edges import EdgeKind, InnerAgent, TeamEdge, called_by, definition_of, edges_from, parts_of
from .endings import find_endless_cycles
from .failures import TargetError
from .graph import team_of
from .wording import printable, shortened

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
