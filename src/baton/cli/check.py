"""`baton check`: a team as a tree, what is probably not meant about it, and what its transfers cost."""

from collections import deque
from typing import Any

from msgspec.structs import asdict
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text
from rich.tree import Tree

from ..errors import SetupError
from ..flow import Finding, Seat, Team
from .costs import TransferCost, transfer_costs
from .edges import Edge, EdgeKind, definition_of, edges_from
from .endings import endless_cycles
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


class Report:
    """What there is to say about a team; a team that cannot be compiled has only the reason why."""

    def __init__(self, team: Team | None, setup_error: SetupError | None = None) -> None:
        self.team = team
        self.setup_error = setup_error
        self.findings: list[Finding] = [*team.findings(), *endless_cycles(team)] if team is not None else []
        self.costs: dict[str, TransferCost] = transfer_costs(team) if team is not None else {}

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
            "agents": [self._agent_as_json(seat) for seat in team.seats.values()] if team is not None else [],
            "findings": findings,
        }

    def _agent_as_json(self, seat: Seat) -> dict[str, Any]:
        name = seat.agent.name
        cost = self.costs.get(name)
        return {
            "name": name,
            "description": seat.agent.description,
            "type": type(seat.agent).__name__,
            "tools": [spec.name for spec in seat.agent.tool_specs()],
            "edges": [asdict(edge) for edge in edges_from(seat)],
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


def check(reference: str) -> Report:
    """Load what the command line names and look at its team."""
    try:
        return Report(team_of(reference))
    except TargetError:
        raise
    except SetupError as error:
        return Report(None, error)


def print_report(report: Report) -> None:
    """Write the report for people to stdout."""
    Console(highlight=False).print(report.as_text())


def _tree(team: Team) -> Tree:
    """Breadth first, so that everybody is described where they stand closest to the root."""
    root = team.seats[team.root]
    tree = Tree(_title(root))
    seen, waiting = {team.root}, deque([(tree, root)])
    outside = [team.seats[finding.agent] for finding in team.findings() if finding.kind == "unreachable"]
    while waiting or outside:
        if not waiting:
            seat = outside.pop(0)
            if seat.agent.name in seen:
                continue
            seen.add(seat.agent.name)
            waiting.append((tree.add(Text.assemble(("unreachable ", "yellow"), _title(seat))), seat))
        branch, seat = waiting.popleft()
        tools = [spec.name for spec in seat.agent.tool_specs()]
        if tools:
            branch.add(Text(f"tools: {', '.join(tools)}", style="dim"))
        for edge in edges_from(seat):
            target = team.seats[edge.target]
            is_new = edge.target not in seen
            below = branch.add(_branch(edge, target, is_new=is_new))
            if is_new:
                seen.add(edge.target)
                waiting.append((below, target))
    return tree


def _title(seat: Seat) -> Text:
    definition = definition_of(seat.agent)
    kind = "" if definition is seat.agent else f" ({type(seat.agent).__name__})"
    description = f" — {shortened(seat.agent.description)}" if seat.agent.description else ""
    return Text.assemble((printable(seat.agent.name), "bold cyan"), (kind, "dim"), description)


def _branch(edge: Edge, target: Seat, *, is_new: bool) -> Text:
    label = (f"{_LABELS[edge.kind]} ", "magenta")
    name = _title(target) if is_new else Text(printable(edge.target), style="cyan")
    via = f"  [{edge.via}]" if edge.via and edge.kind in ("handoff", "function") else ""
    returns = {"stay": "", "caller": "  and back"}.get(edge.returns, f"  then {edge.returns}")
    return Text.assemble(label, name, (via, "dim"), (returns, "magenta"))


def _cost_table(costs: dict[str, TransferCost]) -> Table:
    table = Table("agent")
    for column in ("targets", "now", "one transfer_to_agent", "a tool per target"):
        table.add_column(column, justify="right")
    for name, cost in costs.items():
        tokens = [f"≈ {number}" for number in (cost.now, cost.single_tool, cost.tool_per_target)]
        table.add_row(Text(printable(name)), str(cost.targets), *tokens)
    return table
