"""The command `baton check`: a team as a tree, likely mistakes, and the cost of its transfers.

Endless cycles are reported only if they are certain. A model agent never ends by itself in two cases: it must call a
tool and has only transfers, or it always hands on (`then_transfer`) and has no exit tool. All other agents may end.
"""

import json
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any

import click
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
from .display import printable, shorten
from .edges import EdgeKind, InnerAgent, TeamEdge, called_by, definition_of, edges_from, edges_of, parts_of
from .errors import FAILED, TargetError, warnings_on_stderr
from .graph import load_team
from .options import debug, is_debugging, target

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
    """Return the cost for each agent that has transfer targets."""
    costs = {name: _cost(seat, team.language) for name, seat in team.members.items()}
    return {name: cost for name, cost in costs.items() if cost.targets}


def _cost(seat: TeamMember, language: PromptLanguage) -> TransferCost:
    name = seat.agent.name
    shown = {route.target: route for route in reversed(seat.edges) if route.tool}
    return TransferCost(
        len(shown),
        _tokens(seat.routes),
        _tokens(Routes(name, [_as_tree_route(route) for route in shown.values()], language=language)),
        _tokens(Routes(name, [_as_own_tool_route(route) for route in shown.values()], language=language)),
    )


def _as_tree_route(route: Route) -> Route:
    return Route(route.target, Handoff(agent=route.target), route.description, TRANSFER_TOOL, is_tree=True)


def _as_own_tool_route(route: Route) -> Route:
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
    bare, waiting = {team.root}, [team.root]
    while waiting:
        for route in team.members[waiting.pop()].edges:
            returns = route.handoff.return_to
            landing = route.target if returns is None else returns
            if landing in team.members and landing not in bare:
                bare.add(landing)
                waiting.append(landing)
    # It is unknown how agents without an incoming edge get control.
    return bare | (set(team.members) - _reachable(team.root, _successors(team)) - {team.root})


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


class TeamReport:
    """The findings and costs of a team, or the error that prevents it from compiling.

    Args:
        team: The team, if it compiles.
        setup_error: The error, if it does not.
    """

    def __init__(self, team: Team | None, setup_error: SetupError | None = None) -> None:
        self.team = team
        self.setup_error = setup_error
        self.findings: list[Finding] = findings_in(team) if team is not None else []
        self.costs: dict[str, TransferCost] = {}
        for each in _teams_in(team):
            for name, cost in transfer_costs(each).items():
                self.costs.setdefault(name, cost)

    def is_failure(self, *, strict: bool) -> bool:
        """Return whether the command fails."""
        return self.setup_error is not None or (strict and bool(self.findings))

    def as_json(self) -> dict[str, Any]:
        """Return the report as JSON."""
        findings = [{"level": "warning", **asdict(finding)} for finding in self.findings]
        if self.setup_error is not None:
            findings.append({"level": "error", "kind": "setup", "agent": "", "text": str(self.setup_error)})
        team = self.team
        return {
            "root": team.root if team is not None else None,
            "agents": [self._agent_as_json(seat) for seat in _members_in(team).values()],
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
        """Return the report as text."""
        blocks: list[RenderableType] = []
        if self.team is not None:
            blocks += [_tree(self.team), Text()]
        if self.costs:
            blocks += [Text("estimated tokens per model call that name the transfer targets (characters / 4):")]
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


def _teams_in(team: Team | None) -> list[Team]:
    return [team, *(inner for _, inner in team.nested())] if team is not None else []


def _members_in(team: Team | None) -> dict[str, TeamMember]:
    """Return the members of a team and its nested teams, by name; the outermost first."""
    seats: dict[str, TeamMember] = {}
    for each in _teams_in(team):
        for name, seat in each.members.items():
            seats.setdefault(name, seat)
    return seats


def check(reference: str) -> TeamReport:
    """Load the target and check its team."""
    try:
        return TeamReport(load_team(reference))
    except TargetError:
        raise
    except SetupError as error:
        return TeamReport(None, error)


def print_report(report: TeamReport) -> None:
    """Print the report to stdout."""
    Console(highlight=False).print(report.as_text())


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
            branch.add(Text(f"tools: {', '.join(tools)}", style="dim"))
        for edge in edges_from(seat):
            target = its_team.members[edge.target]
            is_new = edge.target not in seen
            below = branch.add(_branch(edge, target, is_new=is_new))
            if is_new:
                seen.add(edge.target)
                waiting.append((below, target, its_team))
        for part in parts_of(seat.agent):
            inner = team.inner[part.agent]
            is_new = part.agent not in seen
            below = branch.add(_part(part, inner.members[part.agent], is_new=is_new))
            if is_new:
                seen.add(part.agent)
                waiting.append((below, inner.members[part.agent], inner))
    return tree


def _sources(seat: TeamMember) -> list[str]:
    """Return the toolsets, whose tools are known only at run time."""
    definition = definition_of(seat.agent)
    return [repr(source) for source in definition._toolsets] if definition is not None else []


def _title(seat: TeamMember) -> Text:
    definition = definition_of(seat.agent)
    kind = "" if definition is seat.agent else f" ({type(seat.agent).__name__})"
    description = f" — {shorten(seat.agent.description)}" if seat.agent.description else ""
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


@click.command("check")
@target
@click.option("--json", "as_json", is_flag=True, help="Print the report as one JSON object.")
@click.option("--strict", is_flag=True, help="Exit with 1 if there is any finding.")
@debug
@click.pass_context
def check_command(ctx: click.Context, /, *, target: str, as_json: bool, strict: bool) -> None:
    """Show a team as a tree, with likely mistakes and costs.

    Exits with 1 if the team cannot work as it is written. Nothing is run, and no model is called.

    \b
    Examples:
      baton check desk:router
      baton check desk:router --strict --json
    """
    with warnings_on_stderr(debug=is_debugging(ctx), quiet=True):
        report = check(target)
    if as_json:
        click.echo(json.dumps(report.as_json(), ensure_ascii=False, indent=2))
    else:
        print_report(report)
    ctx.exit(FAILED if report.is_failure(strict=strict) else 0)
