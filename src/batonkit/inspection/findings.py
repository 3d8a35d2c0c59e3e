"""Likely mistakes in a team and the cost of its transfers.

Endless cycles are reported only if they are certain. A model agent never ends by itself in two cases: it must call a
tool and has only transfers, or it always hands on (`then_transfer`) and has no exit tool. All other agents may end.
"""

from collections.abc import Iterable, Mapping

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from ..agents.wrappers import ThenTransfer
from ..errors import quote_names
from ..handoffs import TRANSFER_TOOL, Handoff, PromptLanguage, default_tool_name
from ..handoffs.routes import Routes
from ..messages import estimate_text_tokens
from ..team import Finding, Team, TeamMember
from .edges import called_by, definition_of, edges_of, teams_in


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
    costs = {name: _cost(seat, team.language) for name, seat in members_in(team).items()}
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
    specs = [msgspec.json.encode(spec).decode() for spec in routes.specs]
    return estimate_text_tokens("".join([routes.section, *specs]))


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
    agent = seat.agent
    definition = definition_of(agent)
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


def findings_in(team: Team) -> list[Finding]:
    """Return the findings in a team and its nested teams, each once."""
    findings = [*team.findings(), *find_endless_cycles(team)]
    for owner, inner in team.nested():
        findings += [finding.found_inside(owner) for finding in find_endless_cycles(inner)]
    for seat in members_in(team).values():
        for called in called_by(seat.agent):
            known = [finding.agent for finding in findings if finding.kind == "undescribed"]
            if not called.description and called.agent.name not in known:
                name = called.agent.name
                tool = f"the tool `{called.tool}` of `{seat.agent.name}`"
                text = f"`{name}` has no description: models choose {tool} by its name alone"
                findings.append(Finding("undescribed", name, text))
    return findings + _undescribed_tools(team)


def _undescribed_tools(team: Team) -> list[Finding]:
    """Return a finding for each tool, other than an agent, without a description."""
    users: dict[str, list[str]] = {}
    for name, seat in members_in(team).items():
        agents = {called.tool for called in called_by(seat.agent)}
        for spec in seat.agent._tool_specs():
            if not spec.description.strip() and spec.name not in agents:
                users.setdefault(spec.name, []).append(name)
    return [Finding("undescribed", names[0], _undescribed_text(tool, names)) for tool, names in users.items()]


def _undescribed_text(tool: str, agents: list[str]) -> str:
    owners = " and ".join([f"`{name}`" for name in agents])
    why = "models choose it by its name alone; give its function a docstring"
    return f"the tool `{tool}` of {owners} has no description: {why}"


def members_in(team: Team) -> dict[str, TeamMember]:
    """Return the members of a team and its nested teams, by name; the outermost first."""
    seats: dict[str, TeamMember] = {}
    for each in teams_in(team):
        seats |= {name: seat for name, seat in each.members.items() if name not in seats}
    return seats


def toolsets_of(seat: TeamMember) -> list[str]:
    """Return the toolsets, whose tools are known only at run time."""
    definition = definition_of(seat.agent)
    return [repr(source) for source in definition._toolsets] if definition is not None else []
