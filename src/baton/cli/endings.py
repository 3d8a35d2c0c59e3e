"""Cycles nobody can leave, as far as that can be known without running anything.

An agent that asks a model has no end of its own in two cases: it must call a tool first and has nothing but
transfers, or it always hands on (`then_transfer`) and has no exit tool. Anything else, and all code of one's own, is
taken to be able to end. So what is reported is certain, unless a function brings in an agent that its code does not
name; what is not reported may still go round.
"""

from collections.abc import Iterable, Mapping

from ..agents.then_transfer import ThenTransfer
from ..errors import quote_names
from ..flow import Finding, Team, TeamMember
from .edges import definition_of, edges_of


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
    if must == "auto" and definition.model_settings is not None:
        must = definition.model_settings.tool_choice or "auto"
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
