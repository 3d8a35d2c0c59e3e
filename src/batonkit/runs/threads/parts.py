"""The part of a thread that one run adds, and the note that keeps it beside the run's log.

The log stays the truth: a note that is missing, damaged, of another version or older than the log is ignored. It holds
nothing of other runs, and is deleted with its run.
"""

from collections.abc import Mapping, Sequence
from typing import Any
from zlib import crc32

import msgspec
from msgspec import Struct

from ...context.values import THREAD_PREFIX
from ...errors import LogError
from ...log import (
    CallInDoubt,
    Event,
    EventRef,
    HistorySummary,
    OpenTask,
    Origin,
    SettledCall,
    TaskEnded,
    ValueChanges,
    decode_event,
)
from ...log.codec import READER_VERSION, encode_event
from ...log.entries import HistoryEntry
from ...log.fold import RunEntries, read_finished
from ...messages import Message
from ...stores import THREAD_NOTE
from ...team.tasks import last_active_agent, open_tasks
from ..opening import run_started_event

_FORMAT = 1
_CHECKSUM_BYTES = 4


class ThreadPart(Struct, frozen=True, gc=False):
    """The part of a thread that one run adds: all that later runs need of it."""

    run_id: str
    """The run."""
    previous: str
    """The run before it; "" if it is the first."""
    entries: RunEntries
    """The entries that it adds to the history."""
    active_agent: str = ""
    """The agent that the next run starts with; "" if no agent was active."""
    values: Mapping[str, Any] = {}
    """The values for the next run: those whose keys begin with `thread:`."""
    summaries: tuple[HistorySummary, ...] = ()
    """The summaries that the next run reads instead of the first entries."""
    tasks: tuple[OpenTask, ...] = ()
    """The open tasks, the innermost last."""
    calls_in_doubt: tuple[CallInDoubt, ...] = ()
    """The calls whose outcome is unknown."""


def part_from_log(events: Sequence[Event]) -> ThreadPart:
    """Return the part of a thread that a run adds.

    Raises:
        LogError: The log holds an event that this version does not know.
    """
    started = run_started_event(events)
    finished = read_finished(events)
    return ThreadPart(
        started.run_id,
        started.previous_run_id,
        finished.added,
        last_active_agent(events),
        _thread_values(events),
        finished.summaries,
        open_tasks(events),
        finished.calls_in_doubt,
    )


def _thread_values(events: Sequence[Event]) -> dict[str, Any]:
    """Return the values for the next run: those that this run started with, and its changes."""
    values = {k: v for k, v in run_started_event(events).values.items() if k.startswith(THREAD_PREFIX)}
    for event in events:
        changes: ValueChanges | None = getattr(event, "value_changes", None)
        if changes is not None:
            values.update({key: value for key, value in changes.written.items() if key.startswith(THREAD_PREFIX)})
            for key in changes.removed:
                values.pop(key, None)
    return values


class _Entry(Struct, array_like=True, gc=False):
    message: Message
    origin: int
    """The position of its activation in the note; -1 for user input."""
    is_answer: bool
    hidden: tuple[int, ...]
    followed: tuple[int, ...]
    key: str
    """The key of its event."""


class _Note(Struct, array_like=True, gc=False):
    version: tuple[int, int]
    seq: int
    """The number of lines of the log that it was made of."""
    previous: str
    origins: list[tuple[str, str]]
    """The ids and agents of the activations."""
    entries: list[_Entry]
    ended_tasks: list[tuple[int, msgspec.Raw, list[EventRef]]]
    active_agent: str
    values: dict[str, Any]
    summaries: tuple[HistorySummary, ...]
    tasks: tuple[OpenTask, ...]
    settled: tuple[SettledCall, ...]
    calls_in_doubt: tuple[CallInDoubt, ...]


_VERSION = (_FORMAT, READER_VERSION)
_decoder = msgspec.json.Decoder(_Note)


def add_checksum(content: bytes) -> bytes:
    """Return a note that holds this content."""
    return crc32(content).to_bytes(_CHECKSUM_BYTES) + content


def checked_content(note: bytes) -> bytes | None:
    """Return the content of a note that `add_checksum` made; None if it is damaged."""
    content = note[_CHECKSUM_BYTES:]
    return content if crc32(content).to_bytes(_CHECKSUM_BYTES) == note[:_CHECKSUM_BYTES] else None


def thread_note(part: ThreadPart, seq: int) -> dict[str, bytes]:
    """Return the note that keeps a part, to be stored with the last lines of its run."""
    places: dict[str, int] = {}
    origins: list[tuple[str, str]] = []
    entries: list[_Entry] = []
    for entry in part.entries.entries:
        place = -1
        origin = entry.origin
        if origin is not None:
            place = places.setdefault(origin.id, len(origins))
            if place == len(origins):
                origins.append((origin.id, origin.agent))
        key = "" if entry.event is None else entry.event.key
        entries.append(_Entry(entry.message, place, entry.is_answer, entry.hidden, entry.followed, key))
    ended = [
        (position, msgspec.Raw(encode_event(event)), list(upto))
        for position, (event, upto) in part.entries.ended_tasks.items()
    ]
    encoded = msgspec.json.encode(
        _Note(
            _VERSION,
            seq,
            part.previous,
            origins,
            entries,
            ended,
            part.active_agent,
            dict(part.values),
            part.summaries,
            part.tasks,
            tuple(part.entries.settled),
            part.calls_in_doubt,
        )
    )
    return {THREAD_NOTE: add_checksum(encoded)}


def part_from_note(note: bytes, run_id: str, seq: int) -> ThreadPart | None:
    """Return the part that a note keeps; None if it does not fit the log or this version."""
    encoded = checked_content(note)
    if encoded is None:
        return None
    try:
        content = _decoder.decode(encoded)
        if content.version != _VERSION or content.seq != seq:
            return None
        return _to_part(content, run_id)
    except (msgspec.MsgspecError, UnicodeDecodeError, LogError):
        # Another version has written it.
        return None


def _to_part(note: _Note, run_id: str) -> ThreadPart:
    origins = [Origin(id, agent) for id, agent in note.origins]
    entries = [
        HistoryEntry(
            each.message,
            None if each.origin < 0 else origins[each.origin],
            each.is_answer,
            each.hidden,
            each.followed,
            event=EventRef(run_id, each.key),
        )
        for each in note.entries
    ]
    ended: dict[int, tuple[TaskEnded, list[EventRef]]] = {}
    for position, line, upto in note.ended_tasks:
        event = decode_event(bytes(line))
        if not isinstance(event, TaskEnded):
            raise LogError(position, f"{type(event).__name__} is not the end of a task")
        ended[position] = event, upto
    return ThreadPart(
        run_id,
        note.previous,
        RunEntries(entries, ended, note.settled),
        note.active_agent,
        note.values,
        note.summaries,
        note.tasks,
        note.calls_in_doubt,
    )
