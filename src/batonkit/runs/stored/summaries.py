"""Summaries of stored runs, kept beside their logs so that lists of runs read no log."""

from collections.abc import Mapping, Sequence

import msgspec
from msgspec import Struct

from ...errors import StoreError
from ...log import AgentStarted, Event, RunFailed, RunResumed, UserMessageAdded, keys
from ...messages import Usage, UserMessage, text_of
from ...stores import SUMMARY_NOTE, SupportsNotes
from ...team.tasks import agent_given_control
from ..opening import run_started_event
from ..result import total_usage

_MAX_TEXT = 200
_MAX_AGENTS = 50


class RunSummary(Struct, frozen=True, omit_defaults=True):
    """A run in a few words, as of its creation or the last time that it stopped."""

    text: str = ""
    """The first words of its first user message."""
    root_agent: str = ""
    """The agent that it started with."""
    agents: tuple[str, ...] = ()
    """The agents that held control, in the order in which they first did; at most 50."""
    usage: Usage = Usage()
    """The usage of all its model calls."""
    error: str = ""
    """The type and message of the error that failed it; "" if it has not failed."""
    forked_from: str = ""
    """The run and the number of events that it was forked from; "" if it is not a fork."""
    active_agent: str = ""
    """The agent that holds control; "" before the first one is active."""
    inner_agents: tuple[str, ...] = ()
    """The agents that ran inside others, as tools or in workflows; at most 50."""


_decoder = msgspec.json.Decoder(RunSummary)


def summarize(events: Sequence[Event], before: RunSummary | None = None) -> RunSummary:
    """Summarize a run.

    Args:
        events: Its log or, with `before`, the events after it.
        before: The summary of the events before these.
    """
    first: UserMessage | None = None
    if before is None:
        started = run_started_event(events)
        first = next((message for message in started.input if isinstance(message, UserMessage)), None)
        before = RunSummary("", started.root_agent, forked_from=started.forked_from)
    agents = dict.fromkeys(before.agents)
    inner_agents = dict.fromkeys(before.inner_agents)
    active_agent = before.active_agent
    error = before.error
    for event in events:
        active_agent = agent_given_control(event) or active_agent
        if type(event) is AgentStarted:
            reached = inner_agents if keys.is_nested(event.origin.id) else agents
            reached[event.agent] = None
        elif type(event) is UserMessageAdded and first is None and not before.text:
            # A live conversation starts without input.
            first = event.message
        elif type(event) is RunFailed:
            error = f"{event.error_type}: {event.message}"[:_MAX_TEXT]
        elif type(event) is RunResumed:
            error = ""
    return RunSummary(
        before.text if first is None else " ".join(text_of(first.content)[: 2 * _MAX_TEXT].split())[:_MAX_TEXT],
        before.root_agent,
        tuple([*agents][:_MAX_AGENTS]),
        before.usage + total_usage(events),
        error,
        before.forked_from,
        active_agent,
        tuple([*inner_agents][:_MAX_AGENTS]),
    )


def summary_note(events: Sequence[Event], before: RunSummary | None = None) -> dict[str, bytes]:
    """Return the note with the summary of a run, to be stored with its lines."""
    return {SUMMARY_NOTE: msgspec.json.encode(summarize(events, before))}


async def read_summaries(store: SupportsNotes, run_ids: Sequence[str]) -> Mapping[str, RunSummary]:
    """Return summaries by run id without reading logs; runs without one are missing.

    Args:
        store: The store.
        run_ids: The runs.

    Raises:
        StoreError: A summary is damaged.
    """
    summaries: dict[str, RunSummary] = {}
    for run_id, note in (await store.read_notes(run_ids, SUMMARY_NOTE)).items():
        try:
            summaries[run_id] = _decoder.decode(note)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise StoreError(f"the summary of run `{run_id}` is damaged: {error}", store=repr(store)) from error
    return summaries
