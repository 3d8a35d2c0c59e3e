"""A short summary of a run for lists: its first words, the agents on its path, its usage and its error."""

from collections.abc import Sequence

from msgspec import Struct

from ..events import Event, RunFailed, RunStarted
from ..messages import Usage, UserMessage, text_of
from ..runner import usage_from_events
from .comparison import agents_of

_MAX_WORDS = 160
_MAX_PATH = 24


class RunSummary(Struct, frozen=True):
    """A short summary of a run."""

    words: str = ""
    """The first words of the user."""
    path: tuple[str, ...] = ()
    """The agents that held control, in order: the first ones and the last one of a long path."""
    transfers: int = 0
    """The number of changes of control on the whole path."""
    usage: Usage = Usage()
    """Its tokens and cost."""
    error: str = ""
    """The class of the exception of a failed run."""
    forked_from: str = ""
    """The run that it was forked from; "" if it is not a fork."""


def summarize_run(events: Sequence[Event]) -> RunSummary:
    """Summarize a run.

    Args:
        events: The log of the run.
    """
    if not events or not isinstance(events[0], RunStarted):
        return RunSummary()
    started, last = events[0], events[-1]
    said = [text_of(message.content) for message in started.input if isinstance(message, UserMessage)]
    path = agents_of(events)
    return RunSummary(
        " ".join(said[-1].split())[:_MAX_WORDS] if said else "",
        path if len(path) <= _MAX_PATH else (*path[: _MAX_PATH - 1], path[-1]),
        max(0, len(path) - 1),
        usage_from_events(events).total,
        last.error_type if isinstance(last, RunFailed) else "",
        started.forked_from.rpartition("@")[0],
    )
