"""Edges: what the target of a transfer reads."""

from typing import Any

from msgspec import Struct

from ..agents import AgentContext
from ..agents.agent_context import HistoryFunction
from ..errors import TransferError
from ..handoffs import HandoffInputData, HandoffInputFilter
from ..handoffs.declaration import check_filter_result
from ..handoffs.routes import Route
from ..log import Transfer
from ..messages import Message
from ..messages.valid_text import with_valid_text
from .filter_input import FilterInput
from .team import Team, TeamMember


class EdgeView(Struct, frozen=True):
    """The target's view on the history: its policy or filter, and the payload as a message."""

    history: str | HistoryFunction | None = None
    input_filter: HandoffInputFilter | None = None
    shows_payload: bool = False


DIRECT = EdgeView()
"""The target reads the history by its own policy."""


def find_route(member: TeamMember, transfer: Transfer, ctx: AgentContext[Any], team: Team) -> Route | None:
    """Return the edge that a transfer follows; None if a tool has returned the target.

    Raises:
        TransferError: The agent cannot transfer to the target.
    """
    to = transfer.to
    routes = member.routes
    route = routes.edge(to, transfer.via)
    # The tool does not run again after a resume, but then the team knows the agent.
    is_dynamic = to in ctx._run.dynamic_agents or (transfer.via and to in team.members)
    if route is None and to not in routes.reachable and not is_dynamic:
        raise _unknown_target(member, transfer, is_resumed=ctx._run.log.has_past)
    return route


def _unknown_target(member: TeamMember, transfer: Transfer, *, is_resumed: bool) -> TransferError:
    source = member.agent.name
    to = transfer.to
    reason = ""
    if transfer.via and is_resumed:
        reason = (
            f"`{source}` transferred to `{to}` with `{transfer.via}` before the run was resumed, but `{to}` is not "
            "part of this team; if a function made it, list it in Runner(extra_agents=[…])"
        )
    return TransferError(source, to, member.routes.reachable, reason=reason)


def edge_view(route: Route | None, transfer: Transfer, common_filter: HandoffInputFilter | None) -> EdgeView:
    """Return the target's view for a transfer."""
    if route is None:
        return DIRECT if common_filter is None else EdgeView(input_filter=common_filter)
    handoff = route.handoff
    input_filter = handoff.input_filter if handoff.input_filter is not None else common_filter
    shows_payload = transfer.payload is not None and handoff.on_handoff is None
    if handoff.history is None and input_filter is None and not shows_payload:
        return DIRECT
    return EdgeView(route.history, input_filter, shows_payload)


async def filter_history(
    input_filter: HandoffInputFilter,
    source: AgentContext[Any],
    target: TeamMember,
    policy: str | HistoryFunction,
    *,
    hides: bool,
) -> list[Message]:
    """Return the messages that the input filter of a handoff chooses for the target."""
    history = source._history
    to = target.agent.name
    turn_start = source._turn_start
    if target.agent._is_remote and policy not in ("rewritten", "verbatim"):
        filter_input, turn_start = FilterInput.of_answers(history, policy, to, turn_start)
    else:
        filter_input = FilterInput.of(history, hide_transfers=hides)
    filtered = input_filter(filter_input.data(source, turn_start))
    if type(filtered) is not HandoffInputData:
        filtered = await check_filter_result(input_filter, filtered, f"of the handoff from `{source.agent}` to `{to}`")
    return with_valid_text(filter_input.to_messages(filtered, to, source.agent, rewrites=policy != "verbatim"))
