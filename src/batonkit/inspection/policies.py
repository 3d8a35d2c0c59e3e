"""Estimates of what a run's agents would have read with other history policies."""

from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from ..context.history import History, HistoryEntry
from ..events import AgentResponded, AgentStarted, Event, ToolReturned, UnknownEvent
from ..flow.history import view_history
from ..flow.log_history import history_from_log
from ..messages import estimate_tokens
from ..runner.backends import run_started_event

POLICIES = ("rewritten", "verbatim", "lineage", "answers", "none")
MAX_EVENTS = 3000
"""Longer logs are not estimated: each activation reads the log up to its start."""


class PolicyEstimate(Struct, frozen=True):
    """The tokens of all messages that the agents of a run would have read with a history policy."""

    policy: str
    """The policy."""
    tokens: int
    """The estimated tokens, added up over all model calls."""


def estimate_policies(events: Sequence[Event]) -> tuple[PolicyEstimate, ...]:
    """Estimate the messages that all agents of a run would have read with each history policy.

    The log decides what happened: the estimate assumes that agents would have done the same. It leaves out nested
    agents and earlier runs of the thread.

    Args:
        events: The log of the run.

    Returns:
        An estimate for each policy; empty if the log is too long or has unknown events.
    """
    if len(events) > MAX_EVENTS or any(isinstance(event, UnknownEvent) for event in events):
        return ()
    totals: dict[str, int] = dict.fromkeys(POLICIES, 0)
    read_first: dict[str, dict[str, int]] = {}
    own: dict[str, int] = {}
    for position, event in enumerate(events):
        id = event.origin.id
        if not id or "/" in id:
            continue
        if isinstance(event, AgentStarted):
            history = History(_entries(events[:position]))
            views = {policy: view_history(history, event.origin, policy) for policy in POLICIES}
            read_first[id] = {name: estimate_tokens(view.messages()) for name, view in views.items()}
        elif isinstance(event, AgentResponded | ToolReturned):
            if isinstance(event, AgentResponded) and event.model:
                for policy, tokens in read_first.get(id, {}).items():
                    totals[policy] += tokens + own.get(id, 0)
            own[id] = own.get(id, 0) + estimate_tokens([event.message])
    return tuple([PolicyEstimate(policy, tokens) for policy, tokens in totals.items()])


def _entries(events: Sequence[Event]) -> list[HistoryEntry]:
    """Return the history of a log with the origins of its events.

    `history_from_log` gives them as later runs of the thread read them.
    """
    run_id = run_started_event(events).run_id
    origins = {f"{run_id}:{event.origin.id}": event.origin for event in events}
    return [
        entry if entry.origin is None else replace(entry, origin=origins.get(entry.origin.id, entry.origin))
        for entry in history_from_log(events)
    ]
