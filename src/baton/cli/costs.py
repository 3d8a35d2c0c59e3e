"""What it costs an agent to be told whom it can transfer to: an estimate, the same for every model."""

from collections.abc import Iterable

import msgspec
from msgspec import Struct

from ..flow import Team, TeamMember
from ..handoffs import TRANSFER_TOOL, Handoff, PromptLanguage, Route, Routes, default_tool_name

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
