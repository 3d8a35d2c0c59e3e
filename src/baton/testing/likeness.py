"""What two runs have in common, as lines that can be laid side by side."""

import difflib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import msgspec

from ..events import (
    AgentFinished,
    AgentResponded,
    AgentStarted,
    ControlTransferred,
    Event,
    InterruptAnswered,
    InterruptRaised,
    RunCancelled,
    RunCompleted,
    RunFailed,
    RunResumed,
    RunStarted,
    RunSuspended,
    StepCompleted,
)
from ..flow import history_from_log
from ..messages import AssistantMessage, Message, text_of
from .transcript import spoken, transcript

Alike: TypeAlias = Callable[[str], str]

_ABOUT_THE_RUN = (RunStarted, RunResumed, RunSuspended, RunCompleted, RunFailed, RunCancelled)
_IN_TURN = (AgentStarted, AgentResponded, ControlTransferred, AgentFinished)
"""What one activation does one after the other, never at once."""
_OUTCOME_IS_UNKNOWN = re.compile(r"/unknown\d+/ask\d+!?$")
_BOOKKEEPING_OF_ONCE = re.compile(r"/(intent|paused)\d+$")


class FinishedRun(msgspec.Struct, frozen=True):
    """A run that has come to its end: how it stands, what came of it, and its log."""

    status: str
    output: Any
    values: Mapping[str, Any]
    events: Sequence[Event]
    error: str = ""
    outside: Any = None


def events_of(events: Iterable[Event]) -> list[Event]:
    """The events that must be the same however often a run was taken up."""
    return [event for event in events if not isinstance(event, _ABOUT_THE_RUN) and not _is_bookkeeping(event)]


def differences_of(wanted: FinishedRun, got: FinishedRun, *, alike: Alike | None) -> list[str]:
    """The lines in which a run differs from the one that was not disturbed; none if they are alike."""
    order = {event.key: place for place, event in enumerate(wanted.events)}
    expected, found = _lines(wanted, order), _lines(got, order)
    if alike is not None:
        expected, found = [*map(alike, expected)], [*map(alike, found)]
    if expected == found:
        expected, found = _sequences(wanted), _sequences(got)
    lines = difflib.ndiff(expected, found, linejunk=None, charjunk=None)
    return [line for line in lines if line[0] in "+-"]


def line_of(event: Event) -> str:
    """One event in a few words: its key, and its line of a transcript."""
    told = transcript([event])
    return f"{event.key}: {told[0] if told else 'hooks were called'}"


def _lines(course: FinishedRun, order: Mapping[str, int]) -> list[str]:
    lines = [f"status: {course.status}{f' ({course.error})' if course.error else ''}"]
    if course.status == "completed":
        lines.append(f"output: {course.output!r}")
        lines += [f"value {name}: {_json(value)}" for name, value in sorted(course.values.items())]
    lines += [f"said: {_said(entry.message)}" for entry in history_from_log(course.events)]
    # What happens at once may end in any order, so that it is compared by key.
    events = sorted(events_of(course.events), key=lambda event: order.get(event.key, len(order)))
    lines += [f"event {line_of(event)}" for event in events]
    if course.outside is not None:
        lines.append(f"outside: {course.outside!r}")
    return lines


def _sequences(course: FinishedRun) -> list[str]:
    """The order of what happened one after the other, for each activation."""
    keys: dict[str, list[str]] = {}
    for event in events_of(course.events):
        if isinstance(event, _IN_TURN):
            keys.setdefault(event.origin.id, []).append(event.key)
    return sorted(f"order: {', '.join(own)}" for own in keys.values())


def _is_bookkeeping(event: Event) -> bool:
    if isinstance(event, StepCompleted):
        return event.name in ("intent", "paused") and _BOOKKEEPING_OF_ONCE.search(event.key) is not None
    return isinstance(event, InterruptRaised | InterruptAnswered) and _OUTCOME_IS_UNKNOWN.search(event.key) is not None


def _said(message: Message) -> str:
    if isinstance(message, AssistantMessage):
        return spoken(message)
    return f"{type(message).__name__} {text_of(message.content)!r}"


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()
