"""What of a team matters to a run under way: who is in it, with which tools and edges. Not what agents are told."""

from collections.abc import Mapping

from .team import Team, TeamMember


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
