"""The command `baton check`: a team as a tree, likely mistakes, and the cost of its transfers."""

import json
from collections import deque
from collections.abc import Iterable, Iterator

import click
from msgspec import to_builtins
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text
from rich.tree import Tree

from .._wording import one_line, printable
from ..errors import SetupError
from ..inspection.edges import EdgeKind, definition_of, edges_from, parts_of
from ..inspection.findings import TransferCost, findings_in, toolsets_of, transfer_costs
from ..inspection.teams import describe_team
from ..team import Finding, Team, TeamMember
from .cli_errors import FAILED, TargetError
from .cli_options import debug, json_option, target
from .display import shorten
from .graph import load_team
from .output import write_json

_LABELS: dict[EdgeKind, str] = {
    "sub_agent": "sub_agent",
    "parent": "back to",
    "handoff": "handoff",
    "function": "function",
    "then": "always then",
    "code": "by code",
}


def report_as_text(team: Team, findings: Iterable[Finding]) -> RenderableType:
    """Return the agents, findings and costs of a team as text."""
    blocks: list[RenderableType] = [_tree(team), Text()]
    if costs := transfer_costs(team):
        blocks += [Text("estimated tokens per model call that name the transfer targets (characters / 4):")]
        blocks += [_cost_table(costs), Text()]
    verdict = [
        Text.assemble(("warning ", "bold yellow"), (f"{finding.kind}: ", "bold"), printable(finding.text))
        for finding in findings
    ]
    return Group(*blocks, *(verdict or [Text("no findings", style="green")]))


def _tree(team: Team) -> Tree:
    """Build the tree breadth first, so that each agent is described closest to the root."""
    root = team.members[team.root]
    tree = Tree(_title(root))
    seen = {team.root}
    waiting = deque([(tree, root, team)])
    outside = [team.members[finding.agent] for finding in team.findings() if finding.kind == "unreachable"]
    while waiting or outside:
        if not waiting:
            seat = outside.pop(0)
            if seat.agent.name in seen:
                continue
            seen.add(seat.agent.name)
            waiting.append((tree.add(Text.assemble(("unreachable ", "yellow"), _title(seat))), seat, team))
        branch, seat, its_team = waiting.popleft()
        tools = [spec.name for spec in seat.agent._tool_specs()] + toolsets_of(seat)
        if tools:
            branch.add(Text(one_line(f"tools: {', '.join(tools)}"), style="dim"))
        for name, inside, how, via, after in _links(seat, its_team):
            is_new = name not in seen
            title = _title(inside.members[name]) if is_new else Text(one_line(name), style="cyan")
            below = branch.add(
                Text.assemble(
                    (f"{one_line(how)} ", "magenta"), title, (one_line(via), "dim"), (one_line(after), "magenta")
                )
            )
            if is_new:
                seen.add(name)
                waiting.append((below, inside.members[name], inside))
    return tree


def _links(seat: TeamMember, team: Team) -> Iterator[tuple[str, Team, str, str, str]]:
    """Yield the agents below one in the tree: name, team, label, tool and return."""
    for edge in edges_from(seat):
        via = f"  [{edge.via}]" if edge.via and edge.kind in ("handoff", "function") else ""
        yield edge.target, team, _LABELS[edge.kind], via, edge.describe_return("  ")
    for part in parts_of(seat.agent):
        how = {"tool": "agent as tool", "inside": "inside"}.get(part.kind, part.label)
        via = f"  [{part.label}]" if part.kind == "tool" else ""
        yield part.agent, team.inner[part.agent], how, via, ""


def _title(seat: TeamMember) -> Text:
    definition = definition_of(seat.agent)
    kind = "" if definition is seat.agent else f" ({type(seat.agent).__name__})"
    description = f" — {shorten(seat.agent.description)}" if seat.agent.description else ""
    return Text.assemble((one_line(seat.agent.name), "bold cyan"), (kind, "dim"), description)


def _cost_table(costs: dict[str, TransferCost]) -> Table:
    table = Table("agent")
    for column in ("targets", "now", "one transfer_to_agent", "a tool per target"):
        table.add_column(column, justify="right")
    for name, cost in costs.items():
        tokens = [f"≈ {number}" for number in (cost.now, cost.single_tool, cost.tool_per_target)]
        table.add_row(Text(one_line(name)), str(cost.targets), *tokens)
    return table


@click.command("check")
@target
@json_option("Print the report as one JSON object.")
@click.option("--strict", is_flag=True, help="Exit with 1 if there is any finding.")
@debug
def check_command(*, target: str, as_json: bool, strict: bool) -> int:
    """Show a team as a tree, with likely mistakes and costs.

    Exits with 1 if the team cannot work as it is written. Nothing is run, and no model is called.

    \b
    Examples:
      baton check desk:router
      baton check desk:router --strict --json
    """
    try:
        team = load_team(target)
    except TargetError:
        raise
    except SetupError as error:
        problem = {"level": "error", "kind": "setup", "agent": "", "text": str(error)}
        report = {"root": None, "agents": [], "findings": [problem]}
        text = Text.assemble(("error ", "bold red"), printable(str(error)))
        code = FAILED
    else:
        findings = findings_in(team)
        report = to_builtins(describe_team(team))
        text = report_as_text(team, findings)
        code = FAILED if strict and findings else 0
    if as_json:
        write_json(json.dumps(report, ensure_ascii=False, indent=2))
    else:
        Console(highlight=False).print(text)
    return code
