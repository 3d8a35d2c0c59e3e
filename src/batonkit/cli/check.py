"""The command `baton check`: a team as a tree, likely mistakes, and the cost of its transfers."""

import json
from collections import deque
from collections.abc import Iterable, Iterator

import click
from msgspec import Struct, to_builtins
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
    """Build the tree; each agent is described closest to the root."""
    root = team.members[team.root]
    tree = Tree(_title(root))
    described = {team.root}
    _add_branches(tree, root, team, described)
    for finding in team.findings():
        if finding.kind == "unreachable" and finding.agent not in described:
            described.add(finding.agent)
            member = team.members[finding.agent]
            branch = tree.add(Text.assemble(("unreachable ", "yellow"), _title(member)))
            _add_branches(branch, member, team, described)
    return tree


def _add_branches(tree: Tree, member: TeamMember, team: Team, described: set[str]) -> None:
    """Add the tools of an agent and, breadth first, the agents that it leads to."""
    waiting = deque([(tree, member, team)])
    while waiting:
        branch, member, team = waiting.popleft()
        tools = [spec.name for spec in member.agent._tool_specs()] + toolsets_of(member)
        if tools:
            branch.add(Text(one_line(f"tools: {', '.join(tools)}"), style="dim"))
        for link in _links(member, team):
            if link.name in described:
                branch.add(link.describe(Text(one_line(link.name), style="cyan")))
                continue
            described.add(link.name)
            target = link.team.members[link.name]
            waiting.append((branch.add(link.describe(_title(target))), target, link.team))


class _Link(Struct, frozen=True):
    """A line of the tree: an agent below another one."""

    name: str
    team: Team
    """The team that the agent is a member of."""
    label: str
    tool: str = ""
    """The tool that leads to the agent."""
    returns: str = ""
    """Where control goes afterwards."""

    def describe(self, title: Text) -> Text:
        """Return the line, with a title for the agent."""
        tool = f"  [{self.tool}]" if self.tool else ""
        return Text.assemble(
            (f"{one_line(self.label)} ", "magenta"), title, (one_line(tool), "dim"), (one_line(self.returns), "magenta")
        )


def _links(member: TeamMember, team: Team) -> Iterator[_Link]:
    """Yield the agents below one in the tree."""
    for edge in edges_from(member):
        tool = edge.via if edge.kind in ("handoff", "function") else ""
        yield _Link(edge.target, team, _LABELS[edge.kind], tool, edge.describe_return("  "))
    for part in parts_of(member.agent):
        inner = team.inner[part.agent]
        if part.kind == "tool":
            yield _Link(part.agent, inner, "agent as tool", part.label)
        else:
            yield _Link(part.agent, inner, part.label)


def _title(member: TeamMember) -> Text:
    agent = member.agent
    kind = "" if definition_of(agent) is agent else f" ({type(agent).__name__})"
    description = f" — {shorten(agent.description)}" if agent.description else ""
    return Text.assemble((one_line(agent.name), "bold cyan"), (kind, "dim"), description)


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
