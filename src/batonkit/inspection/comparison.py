"""The comparison of two recorded runs: their common beginning, the first difference, and their ends."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import msgspec
from msgspec import Struct

from ..log import Event, RunResumed, encode_event, keys
from ..messages import Usage
from ..runs import output_from_events, usage_from_events

_OF_THE_RUN = frozenset(
    ("timestamp", "run_id", "forked_from", "original_calls", "thread", "owner", "previous_run_id", "request", "speech")
)
"""Fields in which two runs that did the same may differ."""


class ComparedRun(Struct, frozen=True):
    """One of two runs that are compared."""

    id: str
    """The run."""
    events: int
    """The number of its events."""
    output: Any
    """Its output as JSON data; None if it has none."""
    path: tuple[str, ...]
    """The agents that were active, in order."""
    seconds: float
    """The time from its first to its last event, without the time in which it was stopped."""
    usage: Usage
    """Its tokens and cost."""


class Comparison(Struct, frozen=True):
    """Two runs and the place at which they differ."""

    first: ComparedRun
    """The one run."""
    second: ComparedRun
    """The other run."""
    shared: int
    """The number of first events that are the same in both."""
    differs_in: tuple[str, ...]
    """The fields of the first different events that differ; `type` or `key` for different events, empty if one ends."""


def compare_runs(first: tuple[str, Sequence[Event]], second: tuple[str, Sequence[Event]]) -> Comparison:
    """Compare two runs.

    Args:
        first: The id and the log of a run.
        second: The id and the log of another.
    """
    ours, theirs = map(_plain_events, (first[1], second[1]))
    shared = 0
    while shared < min(len(ours), len(theirs)) and ours[shared] == theirs[shared]:
        shared += 1
    differs: tuple[str, ...] = ()
    if shared < min(len(ours), len(theirs)):
        a = ours[shared]
        b = theirs[shared]
        differs = tuple(sorted(name for name in {*a, *b} if a.get(name) != b.get(name)))
    return Comparison(_side(*first), _side(*second), shared, differs)


def agents_of(events: Sequence[Event]) -> tuple[str, ...]:
    """Return the agents that held control at the outermost level, in order."""
    names: list[str] = []
    for event in events:
        if event.agent and not keys.is_nested(event.origin.id) and (not names or names[-1] != event.agent):
            names.append(event.agent)
    return tuple(names)


def _plain_events(events: Sequence[Event]) -> list[dict[str, Any]]:
    plain: list[dict[str, Any]] = [msgspec.json.decode(encode_event(event)) for event in events]
    return [{name: value for name, value in event.items() if name not in _OF_THE_RUN} for event in plain]


def _side(id: str, events: Sequence[Event]) -> ComparedRun:
    seconds = events[-1].timestamp - events[0].timestamp if events else 0.0
    # Not the time in which it was stopped, or for a fork, until it was started.
    seconds -= sum(
        [event.timestamp - before.timestamp for before, event in pairwise(events) if type(event) is RunResumed]
    )
    return ComparedRun(
        id, len(events), output_from_events(events), agents_of(events), seconds, usage_from_events(events).total
    )
