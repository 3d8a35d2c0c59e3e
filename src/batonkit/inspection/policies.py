"""Estimates of what a run's agents would have read with other history policies."""

from collections.abc import Sequence

from msgspec import Struct

from ..log import AgentResponded, AgentStarted, Event, ToolReturned, UnknownEvent, keys
from ..log.fold import RunFold
from ..log.views import view_history
from ..messages import estimate_tokens

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
    written: dict[str, int] = {}
    fold = RunFold()
    for event in events:
        id = event.origin.id
        fold.apply(event)
        if not id or keys.is_nested(id):
            continue
        if isinstance(event, AgentStarted):
            read_first[id] = _tokens_by_policy(fold, event)
        elif isinstance(event, AgentResponded | ToolReturned):
            if isinstance(event, AgentResponded) and event.model:
                for policy, tokens in read_first.get(id, {}).items():
                    totals[policy] += tokens + written.get(id, 0)
            written[id] = written.get(id, 0) + estimate_tokens([event.message])
    return tuple([PolicyEstimate(policy, tokens) for policy, tokens in totals.items()])


def _tokens_by_policy(fold: RunFold, started: AgentStarted) -> dict[str, int]:
    """Return the tokens of what an agent would have read at its start."""
    history = fold.main
    origin = fold.origin_of(started.origin)
    views = {policy: view_history(history, origin, policy) for policy in POLICIES}
    return {policy: estimate_tokens(view.messages()) for policy, view in views.items()}
