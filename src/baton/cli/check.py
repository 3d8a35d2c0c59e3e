"""The command `baton check`: a team as a tree, likely mistakes, and the cost of its transfers.

Endless cycles are reported only if they are certain. A model agent never ends by itself in two cases: it must call a
tool and has only transfers, or it always hands on (`then_transfer`) and has no exit tool. All other agents may end.
"""

import json
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from math import ceil
from typing import Any

import click
import msgspec
from msgspec import Struct
from msgspec.structs import asdict, replace
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text
from rich.tree import Tree

from ..agents.wrappers import ThenTransfer
from ..errors import SetupError, quote_names
from ..flow import Finding, Team, TeamMember
from ..handoffs import TRANSFER_TOOL, Handoff, PromptLanguage, default_tool_name
from ..handoffs.routes import Routes
from ..wording import one_line, printable
from .display import shorten
from .edges import EdgeKind, called_by, definition_of, edges_from, edges_of, parts_of, teams_in
from .errors import FAILED, TargetError
from .graph import load_team
from .options import debug, json_option, target
from .output import write_json

CHARACTERS_PER_TOKEN = 4


class TransferCost(Struct, frozen=True):
    """Estimated tokens per model call that name an agent's transfer targets.

    Attributes:
        targets: The number of targets.
        now: The tokens with the current style.
        single_tool: The tokens with one tool for all targets.
        tool_per_target: The tokens with a tool for each target.
    """

    targets: int
    now: int
    single_tool: int
    tool_per_target: int


def transfer_costs(team: Team) -> dict[str, TransferCost]:
    """Return the cost for each agent that has transfer targets, also in nested teams."""
    costs = {name: _cost(seat, team.language) for name, seat in _members_in(team).items()}
    return {name: cost for name, cost in costs.items() if cost.targets}


def _cost(seat: TeamMember, language: PromptLanguage) -> TransferCost:
    shown = {route.target: route for route in reversed(seat.edges) if route.tool}
    single = [
        replace(route, handoff=Handoff(agent=route.target), tool=TRANSFER_TOOL, is_tree=True)
        for route in shown.values()
    ]
    several = [
        replace(route, tool=name, id=name, is_tree=False) if route.is_tree else route
        for route, name in ((route, default_tool_name(route.target)) for route in shown.values())
    ]
    return TransferCost(
        len(shown),
        _tokens(seat.routes),
        _tokens(Routes(seat.agent.name, single, language=language)),
        _tokens(Routes(seat.agent.name, several, language=language)),
    )


def _tokens(routes: Routes) -> int:
    characters = len(routes.section) + sum(len(msgspec.json.encode(spec).decode()) for spec in routes.specs)
    return ceil(characters / CHARACTERS_PER_TOKEN)


def find_endless_cycles(team: Team) -> list[Finding]:
    """Return a finding for each group of agents that pass control in a cycle and never end."""
    successors = _successors(team)
    bare = _active_without_caller(team)
    why = {name: _endless_reason(seat) for name, seat in team.members.items()}
    # While a caller waits, ending returns control instead of ending the run.
    ends = {name for name in team.members if (not why[name] and name in bare) or _may_exit(team.members[name])}
    reach = {name: _reachable(name, successors) for name in team.members}
    trapped = [name for name in team.members if not ends & (reach[name] | {name})]
    findings: list[Finding] = []
    reported: set[str] = set()
    for name in trapped:
        group = [other for other in trapped if other in reach[name] and name in reach[other]]
        if group and name not in reported:
            reported.update(group)
            findings.append(Finding("no exit", name, _text(group, why)))
    return findings


def _endless_reason(seat: TeamMember) -> str:
    """Explain why an agent always passes control on; empty if it may end."""
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


def _active_without_caller(team: Team) -> set[str]:
    """Return the agents that may be active while no caller waits for control to return."""
    # The agent of a task may end the run with an answer while its caller waits.
    landings = {
        name: {
            *(route.handoff.return_to or route.target for route in seat.edges),
            *(route.target for route in seat.edges if route.handoff.until == "finished"),
        }
        & team.members.keys()
        for name, seat in team.members.items()
    }
    # It is unknown how agents without an incoming edge get control.
    unreachable = team.members.keys() - _reachable(team.root, _successors(team))
    return {team.root} | _reachable(team.root, landings) | unreachable


def _successors(team: Team) -> dict[str, set[str]]:
    """Map each agent to those that can be active directly after it, including returns."""
    successors: dict[str, set[str]] = {name: set() for name in team.members}
    edges = edges_of(team)
    for edge in edges:
        successors[edge.source].add(edge.target)
    for edge in edges:
        if edge.returns is not None:
            back_to = edge.source if edge.returns == "caller" else edge.returns
            # Every agent reachable from the target may end there and return.
            for name in (edge.target, *_reachable(edge.target, successors)):
                successors[name].add(back_to)
    return successors


def _reachable(name: str, successors: Mapping[str, Iterable[str]]) -> set[str]:
    seen: set[str] = set()
    waiting = [name]
    while waiting:
        for other in successors[waiting.pop()]:
            if other not in seen:
                seen.add(other)
                waiting.append(other)
    return seen


def _text(group: list[str], why: Mapping[str, str]) -> str:
    reasons = "; ".join(why[name] or f"`{name}` ends, but a caller waits for control to return" for name in group)
    pass_on = "passes control to itself" if len(group) == 1 else "pass control in a cycle"
    return f"{quote_names(group)} {pass_on} and never end; only a limit stops the run: {reasons}"


_LABELS: dict[EdgeKind, str] = {
    "sub_agent": "sub_agent",
    "parent": "back to",
    "handoff": "handoff",
    "function": "function",
    "then": "always then",
    "code": "by code",
}


def report_as_json(team: Team, findings: Iterable[Finding]) -> dict[str, Any]:
    """Return the agents, findings and costs of a team as JSON."""
    costs = transfer_costs(team)
    agents = [
        {
            "name": name,
            "description": seat.agent.description,
            "type": type(seat.agent).__name__,
            "tools": [spec.name for spec in seat.agent._tool_specs()],
            "sources": _sources(seat),
            "edges": [asdict(edge) for edge in edges_from(seat)],
            "parts": [asdict(part) for part in parts_of(seat.agent)],
            "estimated_tokens_per_call": asdict(costs[name]) if name in costs else None,
        }
        for name, seat in _members_in(team).items()
    ]
    warnings = [{"level": "warning", **asdict(finding)} for finding in findings]
    return {"root": team.root, "agents": agents, "findings": warnings}


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


def findings_in(team: Team) -> list[Finding]:
    """Return the findings in a team and its nested teams, each once."""
    findings = [*team.findings(), *find_endless_cycles(team)]
    for owner, inner in team.nested():
        findings += [finding.found_inside(owner) for finding in find_endless_cycles(inner)]
    for seat in _members_in(team).values():
        for called in called_by(seat.agent):
            known = [finding.agent for finding in findings if finding.kind == "undescribed"]
            if not called.description and called.agent.name not in known:
                name, tool = called.agent.name, f"the tool `{called.tool}` of `{seat.agent.name}`"
                text = f"`{name}` has no description: models choose {tool} by its name alone"
                findings.append(Finding("undescribed", name, text))
    return findings


def _members_in(team: Team) -> dict[str, TeamMember]:
    """Return the members of a team and its nested teams, by name; the outermost first."""
    seats: dict[str, TeamMember] = {}
    for each in teams_in(team):
        seats |= {name: seat for name, seat in each.members.items() if name not in seats}
    return seats


def _tree(team: Team) -> Tree:
    """Build the tree breadth first, so that each agent is described closest to the root."""
    root = team.members[team.root]
    tree = Tree(_title(root))
    seen, waiting = {team.root}, deque([(tree, root, team)])
    outside = [team.members[finding.agent] for finding in team.findings() if finding.kind == "unreachable"]
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


def _sources(seat: TeamMember) -> list[str]:
    """Return the toolsets, whose tools are known only at run time."""
    definition = definition_of(seat.agent)
    return [repr(source) for source in definition._toolsets] if definition is not None else []


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
        report, text = report_as_json(team, findings), report_as_text(team, findings)
        code = FAILED if strict and findings else 0
    if as_json:
        write_json(json.dumps(report, ensure_ascii=False, indent=2))
    else:
        Console(highlight=False).print(text)
    return code
