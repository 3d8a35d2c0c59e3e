"""The usage of recorded runs by agent, edge, model, tool or day."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Literal, TypeAlias, get_args

from msgspec import Struct

from .._checks import check_choice
from ..log import (
    AgentResponded,
    AgentStarted,
    ControlTransferred,
    Event,
    HistoryCompacted,
    RunFailed,
    ToolReturned,
    keys,
)
from ..messages import Usage
from ..runs.result import usage_of

UsageKey: TypeAlias = Literal["agent", "edge", "model", "tool", "day"]
"""The property that usage is grouped by."""


class UsageRow(Struct, frozen=True):
    """The usage of one agent, edge, model, tool or day."""

    name: str
    """The agent, `source → target`, the model, the tool, or the day as `2026-11-17` in UTC."""
    count: int
    """The number of model calls; of transfers for an edge, and of calls for a tool."""
    failures: int
    """The number of tool results that are errors; for an edge, of refused transfers; 0 for a model or day.

    An agent's failures are its tool results that are errors, and the failures of runs while it had control.
    """
    usage: Usage
    """The tokens and cost; for an edge, those of the activations that it led to."""


class _Sum(Struct):
    count: int = 0
    failures: int = 0
    usage: Usage = Usage()


def usage_by(events: Sequence[Event], by: UsageKey) -> tuple[UsageRow, ...]:
    """Group the usage of one run.

    Args:
        events: The log of the run.
        by: The property to group by.

    Raises:
        SetupError: There is no such property.
    """
    check_choice("usage_by(by=…)", by, get_args(UsageKey))
    sums: dict[str, _Sum] = {}
    arrivals = _arrivals(events) if by == "edge" else {}
    for event in events:
        if by == "tool":
            _add_tool(sums, event)
        elif by == "edge":
            _add_edge(sums, event, arrivals)
        elif isinstance(event, AgentResponded | HistoryCompacted) and event.model:
            names = {"agent": event.agent, "model": event.model, "day": _day(event.timestamp)}
            total = sums.setdefault(names[by], _Sum())
            usage = usage_of(event)
            total.count += usage.model_calls
            total.usage += usage
    if by == "agent":
        _add_agent_failures(sums, events)
    return _rows(sums)


def merge_usage(groups: Iterable[Sequence[UsageRow]]) -> tuple[UsageRow, ...]:
    """Add up the usage of several runs.

    Args:
        groups: The rows of each run.
    """
    sums: dict[str, _Sum] = {}
    for rows in groups:
        for row in rows:
            total = sums.setdefault(row.name, _Sum())
            total.count += row.count
            total.failures += row.failures
            total.usage += row.usage
    return _rows(sums)


def find_arrival(events: Sequence[Event], activation: str) -> ControlTransferred | None:
    """Return the transfer that an activation began with; None if it began in another way."""
    return _arrivals(events).get(activation)


def _arrivals(events: Sequence[Event]) -> dict[str, ControlTransferred]:
    """Return the transfer that each activation began with, by activation."""
    arrivals: dict[str, ControlTransferred] = {}
    last_by_flow: dict[str, ControlTransferred] = {}
    for event in events:
        flow = keys.flow(event.origin.id)
        if isinstance(event, ControlTransferred):
            last_by_flow[flow] = event
        elif isinstance(event, AgentStarted) and flow in last_by_flow and last_by_flow[flow].target == event.agent:
            arrivals[event.origin.id] = last_by_flow.pop(flow)
    return arrivals


def _add_tool(sums: dict[str, _Sum], event: Event) -> None:
    if isinstance(event, ToolReturned) and not event.requested_agent:
        total = sums.setdefault(event.tool_name, _Sum())
        total.count += 1
        total.failures += event.is_error


def _add_agent_failures(sums: dict[str, _Sum], events: Sequence[Event]) -> None:
    active = ""
    for event in events:
        if isinstance(event, AgentStarted) and not keys.is_nested(event.origin.id):
            active = event.agent
        elif isinstance(event, ToolReturned) and event.is_error:
            sums.setdefault(event.agent, _Sum()).failures += 1
        elif isinstance(event, RunFailed) and active:
            sums.setdefault(active, _Sum()).failures += 1


def _add_edge(sums: dict[str, _Sum], event: Event, arrivals: dict[str, ControlTransferred]) -> None:
    if isinstance(event, ControlTransferred):
        sums.setdefault(f"{event.source} → {event.target}", _Sum()).count += 1
    elif isinstance(event, ToolReturned) and event.requested_agent and event.is_transfer_refused:
        sums.setdefault(f"{event.agent} → {event.requested_agent}", _Sum()).failures += 1
    elif isinstance(event, AgentResponded | HistoryCompacted) and event.model:
        arrival = arrivals.get(event.origin.id)
        if arrival is not None:
            sums.setdefault(f"{arrival.source} → {arrival.target}", _Sum()).usage += usage_of(event)


def _day(timestamp: float) -> str:
    return datetime.fromtimestamp(timestamp, UTC).date().isoformat()


def _rows(sums: dict[str, _Sum]) -> tuple[UsageRow, ...]:
    return tuple([UsageRow(name, total.count, total.failures, total.usage) for name, total in sorted(sums.items())])
