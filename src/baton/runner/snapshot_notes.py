"""The format of snapshots: the state of a stored run between two turns, as one note beside its log.

The log stays the truth: a snapshot that is missing, damaged, or of another version or team is ignored.
"""

from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from typing import Any

import msgspec
from msgspec import Struct

from ..agents.activation import LoopState
from ..agents.request_records import RequestRef, SentRequest
from ..context import HistoryEntry, Limits
from ..context.history import CompactedPrefix
from ..events import AgentResponded, Event, EventRef, OpenTask, Origin, ToolReturned, UserMessageAdded
from ..events.codec import READER_VERSION
from ..events.types import RunStarted, SummaryReaders
from ..flow.loops import LoopDetector
from ..flow.view_states import ChosenMessage, ViewState
from ..messages import Message, Usage
from ..version import __version__
from .result import RunUsage
from .summaries import RunSummary
from .thread_parts import add_checksum, checked_content

_FORMAT = 1
VERSION = (_FORMAT, READER_VERSION, __version__)
"""The version of snapshots that this version of Baton writes and reads."""
_ID_BYTES = 6

NO_PLACE = -1
"""The place of an entry whose message is not in the log."""
_INPUT_PLACE = -2
"""The place of the first message of the input; that of the next one is smaller by one."""


class SavedEntry(Struct, array_like=True, gc=False):
    """An entry of the history."""

    message: Message
    origin: int
    """The position of its activation in `Snapshot.origins`; -1 for user input."""
    place: int = NO_PLACE
    """The position of its message in the log."""
    key: str = ""
    """The key of the response that it is; "" for other messages."""
    is_answer: bool = False
    hidden: tuple[int, ...] = ()
    followed: tuple[int, ...] = ()


class DroppedEntries(Struct, array_like=True):
    """The entries of the run that no agent reads any more, because a summary covers them."""

    places: list[int] = []
    """The positions of their messages in the log."""
    origins: list[list[int]] = []
    """The positions of their activations in `Snapshot.origins`, each with the number of successive entries."""
    special: dict[int, SavedEntry] = {}
    """The entries with hidden parts, answers, and messages that are not in the log, by position."""

    def add(self, entry: SavedEntry) -> None:
        """Add an entry."""
        if entry.place == NO_PLACE or entry.is_answer or entry.hidden or entry.followed:
            self.special[len(self.places)] = entry
        self.places.append(entry.place)
        if self.origins and self.origins[-1][0] == entry.origin:
            self.origins[-1][1] += 1
        else:
            self.origins.append([entry.origin, 1])

    def restore(self, events: Sequence[Event], origins: Sequence[Origin]) -> list[HistoryEntry]:
        """Return the entries.

        Args:
            events: The log of the run.
            origins: The activations of the snapshot.
        """
        authors = [place for place, count in self.origins for _ in range(count)]
        entries: list[HistoryEntry] = []
        for position, (place, author) in enumerate(zip(self.places, authors, strict=True)):
            saved = self.special.get(position)
            if saved is None:
                saved = SavedEntry(_message_at(events, place), author)
            entries.append(restore_entry(saved, origins))
        return entries


class SavedPrefix(Struct, array_like=True):
    """A summary that is read instead of the first entries."""

    readers: SummaryReaders
    stop: int
    entries: list[SavedEntry]
    made_at: int
    inputs: int


class SavedLoops(Struct, array_like=True):
    """The state of the loop detector."""

    agents: list[str]
    marks: list[int]
    read: int
    visited: list[str]
    seen: list[tuple[str | None, str]]

    @classmethod
    def of(cls, loops: LoopDetector, base: int) -> "SavedLoops":
        """Return the state of a detector.

        Args:
            loops: The detector.
            base: The number of first entries that are not part of the history any more.
        """
        marks = [mark + base for mark in loops._marks]
        return cls([*loops._agents], marks, loops._read, [*loops._visited], [*loops._seen])

    def restore(self, allowed: int | None, base: int) -> LoopDetector:
        """Return the detector.

        Args:
            allowed: Maximum number of repetitions.
            base: The number of first entries that are not part of the history any more.
        """
        marks = [mark - base for mark in self.marks]
        return LoopDetector(allowed, self.agents, marks, self.read, dict.fromkeys(self.visited), {*self.seen})


class SavedActivation(Struct, array_like=True):
    """The state inside an activation, between two turns."""

    view: ViewState
    loop: LoopState
    steps: dict[str, int] | None
    asked: int
    said: int
    output: str | None
    breaks_loop: bool
    turn_start: int
    request: SentRequest | None
    """The last request of the activation."""
    last_turn: list[msgspec.Raw]
    """The response of the last turn, and the results of its transfers that were not followed."""


class SavedPosition(Struct, array_like=True):
    """The place that the flow of control has reached."""

    hop: int
    origin: int
    """The position of the last activation in `Snapshot.origins`; -1 for none."""
    first: int
    mark: int
    loops: SavedLoops | None
    answer: str | None
    breaks_loop: bool
    agent: str
    messages: list[ChosenMessage] | None
    used_fallback: bool
    tasks: list[OpenTask]
    returns: list[str]
    inside: SavedActivation | None


class SavedHistory(Struct, array_like=True):
    """The history of the run. All positions are those in the whole history."""

    offset: int
    """The number of entries of earlier runs of the thread."""
    base: int
    """The number of first entries that are not among `entries`; those of earlier runs, unless `dropped` is set."""
    inputs: int
    entries: list[SavedEntry]
    hidden_at: list[int]
    compacted: list[SavedPrefix]
    skipped: SavedPrefix | None
    dropped: msgspec.Raw
    """The `DroppedEntries` if agents read a summary instead of the first entries, else `null`."""


class SavedUsage(Struct, array_like=True):
    """The usage of a run in its parts."""

    total: Usage
    by_agent: Mapping[str, Usage]
    by_model: Mapping[str, Usage]
    by_edge: list[tuple[str, str, Usage]]

    @staticmethod
    def of(usage: RunUsage) -> "SavedUsage":
        """Return the saved form of usage.

        Args:
            usage: The usage.
        """
        by_edge = [(source, agent, part) for (source, agent), part in usage.by_edge.items()]
        return SavedUsage(usage.total, usage.by_agent, usage.by_model, by_edge)

    def restore(self) -> RunUsage:
        """Return the usage."""
        by_edge = {(source, agent): part for source, agent, part in self.by_edge}
        return RunUsage(self.total, self.by_agent, self.by_model, by_edge)


class Snapshot(Struct, array_like=True):
    """The state of a run after its first events."""

    version: tuple[int, int, str]
    team: str
    """The hash of the team and of how it reads the history."""
    count: int
    """The number of events."""
    started: msgspec.Raw
    """The first event, without what the rest of the snapshot holds."""
    values: dict[str, Any]
    limits: Limits
    """The limits that the run had."""
    usage: Usage
    transfers: int
    call_ids: bytes
    """Short hashes of all ids of tool calls."""
    origins: list[tuple[str, str, int]]
    """Activations: id, agent, and the position of the one that its path continues; -1 for none."""
    position: SavedPosition
    history: SavedHistory
    requests: tuple[RequestRef, ...]
    contents: list[str]
    """The names of contents of requests that the log holds."""
    summary: RunSummary
    run_usage: SavedUsage


class _Head(Struct, array_like=True):
    """The first fields of a snapshot, which are read before the others."""

    version: tuple[int, int, str]
    team: str


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Snapshot)
_head_decoder = msgspec.json.Decoder(_Head)
_dropped_decoder = msgspec.json.Decoder(DroppedEntries)


def encode_snapshot(snapshot: Snapshot) -> bytes:
    """Encode a snapshot. Raises TypeError, ValueError or MsgspecError if it is not JSON."""
    return add_checksum(_encoder.encode(snapshot))


def decode_snapshot(note: bytes, *, team: str, seq: int) -> Snapshot | None:
    """Return the snapshot of a note; None if this version cannot use it.

    Args:
        note: The note.
        team: The hash of the team that is to continue the run.
        seq: The number of lines that the log of the run has.
    """
    encoded = checked_content(note)
    if encoded is None:
        return None
    try:
        head = _head_decoder.decode(encoded)
        if head.version != VERSION or head.team != team:
            return None
        snapshot = _decoder.decode(encoded)
    except msgspec.MsgspecError:
        # Another version has written it.
        return None
    return snapshot if snapshot.count < seq else None


def encode_dropped(dropped: DroppedEntries) -> msgspec.Raw:
    """Encode dropped entries, which are decoded only if they are needed."""
    return msgspec.Raw(_encoder.encode(dropped))


def decode_dropped(encoded: msgspec.Raw) -> DroppedEntries | None:
    """Decode dropped entries; None if there are none."""
    return None if bytes(encoded) == b"null" else _dropped_decoder.decode(encoded)


def restore_origins(saved: Iterable[tuple[str, str, int]]) -> list[Origin]:
    """Return the activations of a snapshot.

    Args:
        saved: The saved activations.
    """
    origins: list[Origin] = []
    for id, agent, parent in saved:
        origins.append(Origin(id, agent, None if parent < 0 else origins[parent]))
    return origins


def restore_entry(saved: SavedEntry, origins: Sequence[Origin], run_id: str = "") -> HistoryEntry:
    """Return an entry of the history.

    Args:
        saved: The saved entry.
        origins: The activations of the snapshot.
        run_id: The run, if the entry is to know its response.
    """
    return HistoryEntry(
        saved.message,
        None if saved.origin < 0 else origins[saved.origin],
        saved.is_answer,
        saved.hidden,
        saved.followed,
        event=EventRef(run_id, saved.key) if saved.key and run_id else None,
    )


def restore_prefix(saved: SavedPrefix, origins: Sequence[Origin], base: int) -> CompactedPrefix:
    """Return a summary.

    Args:
        saved: The saved summary.
        origins: The activations of the snapshot.
        base: The number of first entries that are not part of the history any more.
    """
    entries = tuple([restore_entry(each, origins) for each in saved.entries])
    return CompactedPrefix(saved.readers, saved.stop - base, entries, saved.made_at - base, saved.inputs)


def input_place(position: int) -> int:
    """Return the place of a message of the run's input."""
    return _INPUT_PLACE - position


def _message_at(events: Sequence[Event], place: int) -> Message:
    if place <= _INPUT_PLACE:
        started = events[0]
        assert isinstance(started, RunStarted)
        return started.input[_INPUT_PLACE - place]
    event = events[place]
    assert isinstance(event, AgentResponded | ToolReturned | UserMessageAdded)
    return event.message


def hash_call_id(id: str) -> bytes:
    """Return the short hash of the id of a tool call."""
    return blake2b(id.encode(errors="surrogatepass"), digest_size=_ID_BYTES).digest()


class PastCallIds(set[str]):
    """The ids of tool calls of a run, of which the first ones are known by their hashes only.

    Args:
        hashes: The hashes of the first ids, one after another.
    """

    def __init__(self, hashes: bytes) -> None:
        super().__init__()
        self._hashes = hashes

    def __contains__(self, id: object) -> bool:
        if super().__contains__(id):
            return True
        wanted, hashes = hash_call_id(str(id)), self._hashes
        place = hashes.find(wanted)
        while place >= 0 and place % _ID_BYTES:
            place = hashes.find(wanted, place + 1)
        return place >= 0
