"""Snapshots of stored runs: when they are taken, what they hold, and how a run continues from one.

A snapshot is taken between two turns of an outermost `Agent`, or between two outermost activations: other code has
local variables that a snapshot cannot hold. A run that is resumed from it reads the events after it only.
"""

import logging
import sys
from collections.abc import Sequence
from functools import cache, partial
from typing import Any, Protocol

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from ..agents.activation import AgentContext, LoopState
from ..agents.request_records import RequestRef, latest_requests, recent_requests
from ..context import HistoryEntry, Limits
from ..context.history import CompactedPrefix, History
from ..context.run_state import RunState, UsageMeter
from ..events import (
    AgentResponded,
    Event,
    HistoryCompacted,
    Origin,
    RunResumed,
    RunStarted,
    TaskEnded,
    ToolReturned,
    UserMessageAdded,
    encode_event,
)
from ..events.codec import decode_tail
from ..flow.follow import FlowConfig, FlowPosition, TeamFlow, reenter
from ..flow.tasks import TaskStack
from ..flow.view_states import (
    ChosenMessage,
    can_save,
    move_messages,
    move_view,
    restore_messages,
    restore_view,
    save_messages,
    save_view,
)
from ..log import Log
from ..messages import Message, ToolMessage
from ..messages.types import call_ids_in
from ..stores import SNAPSHOT_NOTE, RunRecord
from .arguments import ResumeArgs
from .backends import OpenRun, StoppedRun, open_state
from .options import recorded_options
from .result import RunUsage, usage_from_events
from .snapshot_notes import (
    NO_PLACE,
    VERSION,
    DroppedEntries,
    PastCallIds,
    SavedActivation,
    SavedEntry,
    SavedHistory,
    SavedLoops,
    SavedPosition,
    SavedPrefix,
    SavedUsage,
    Snapshot,
    decode_dropped,
    decode_snapshot,
    encode_dropped,
    encode_snapshot,
    hash_call_id,
    input_place,
    restore_entry,
    restore_origins,
    restore_prefix,
)
from .snapshot_settings import has_code_around
from .summaries import RunSummary, summarize

_logger = logging.getLogger("baton.runner")

SNAPSHOT_INTERVAL = 128
"""The least number of events between two snapshots."""
LEAST_SHARE = 0.25
"""The growth of the log after which a snapshot is taken again, as a share of the last one's size.

So all snapshots of a run together stay in proportion to its log.
"""
_RETRY_INTERVAL = 16
"""The number of events after which a snapshot that could not be taken is tried again."""
_NULL = msgspec.Raw(b"null")
_NO_LIMITS = Limits(model_calls=None, transfers=None)


class NoteKeeper(Protocol):
    """Stores notes together with the next events."""

    bytes_added: int
    """The number of bytes of all events so far."""

    def keep_note(self, name: str, note: bytes) -> None:
        """Store a note together with the next events.

        Args:
            name: The note's name.
            note: Its content.
        """


class SnapshotWriter:
    """Takes the snapshots of one run while this process drives it.

    Args:
        keeper: Stores the snapshots.
        started: The run's first event.
        team: The hash of the team and of how it reads the history.
        reads_all: Whether an agent may read entries that a summary for all readers replaces.
        interval: The least number of events between two snapshots.
        prior: The entries of earlier runs of the thread, with which the history begins.
        requests: The last model requests of those runs.
        snapshot: The snapshot that the run was resumed from, if any.
        entries: The entries of the history that come from that snapshot.
    """

    def __init__(
        self,
        keeper: NoteKeeper,
        started: RunStarted,
        *,
        team: str,
        reads_all: bool,
        interval: int = SNAPSHOT_INTERVAL,
        prior: Sequence[HistoryEntry] = (),
        requests: Sequence[RequestRef] = (),
        snapshot: Snapshot | None = None,
        entries: Sequence[HistoryEntry] = (),
    ) -> None:
        self._keeper = keeper
        self._started = started
        self._team = team
        self._reads_all = reads_all
        self._interval = interval
        self._prior = prior
        self.count = 0
        """The number of events that were read for snapshots; no interrupt was open after them."""
        self.summary: RunSummary | None = None
        """The summary of these events; None before the first snapshot."""
        self.usage: RunUsage | None = None
        """The model usage of these events."""
        self._size = 0
        self._size_at = keeper.bytes_added
        self._taken_at = 0
        self._offset = len(prior)
        self._live: list[HistoryEntry] = [*entries]
        """The entries of the run that are part of the history, as of the last snapshot."""
        self._saved: list[SavedEntry] = []
        self._dropped: DroppedEntries | None = None
        self._encoded_dropped = _NULL
        """The dropped entries of the snapshot that the run was resumed from, until the next one is taken."""
        self._origins: list[tuple[str, str, int]] = []
        self._places: dict[str, int] = {}
        """The positions of activations in `_origins`, by id."""
        self._call_ids = bytearray()
        self._meter = UsageMeter(_NO_LIMITS)
        """Counts as a replay does: model calls that failed are in no event."""
        self._requests = requests
        self._contents: set[str] = set()
        """The names of contents of requests that the log holds."""
        if snapshot is not None:
            self._continue(snapshot)
        self.next_at = self.count + interval
        """The number of events from which on the next snapshot is due."""

    def _continue(self, snapshot: Snapshot) -> None:
        history = snapshot.history
        self.count = self._taken_at = snapshot.count
        self.summary, self._offset = snapshot.summary, history.offset
        self.usage = snapshot.run_usage.restore()
        self._saved, self._encoded_dropped = history.entries, history.dropped
        self._origins = snapshot.origins
        self._places = {id: place for place, (id, _, _) in enumerate(self._origins)}
        self._call_ids += snapshot.call_ids
        self._meter = UsageMeter.restore(_NO_LIMITS, snapshot.usage, transfers=snapshot.transfers)
        self._requests = snapshot.requests
        self._contents.update(snapshot.contents)

    def add_call_ids(self, ids: Sequence[str]) -> None:
        """Remember ids of tool calls, also those that no event has.

        Args:
            ids: The ids.
        """
        self._call_ids += b"".join(map(hash_call_id, ids))

    def take_inside(self, ctx: AgentContext[Any], loop: LoopState) -> None:
        """Take a snapshot between two turns of an agent, if that is possible.

        Args:
            ctx: The context of the activation.
            loop: The state of its turns.
        """
        flow, position = ctx._flow, None
        if "/" not in ctx._scope and isinstance(flow, TeamFlow):
            position = flow.position
        if position is None or not isinstance(flow, TeamFlow) or not self._is_possible(ctx._run):
            return
        if has_code_around(flow.team.members[ctx.agent].agent, ctx._options):
            return
        if can_save(ctx._view) and _is_text(ctx.output) and not _has_changes(ctx):
            self._take(flow, position, ctx, loop)

    def take(self, flow: TeamFlow, position: FlowPosition) -> None:
        """Take a snapshot between two activations, if that is possible.

        Args:
            flow: The outermost flow of the run.
            position: The place that it has reached.
        """
        if self._is_possible(flow.run):
            self._take(flow, position)

    def _take(
        self,
        flow: TeamFlow,
        position: FlowPosition,
        ctx: AgentContext[Any] | None = None,
        loop: LoopState | None = None,
    ) -> None:
        run, log = flow.run, flow.run.log
        if not _is_text(position.answer) or log.open_interrupts(since=self.count):
            return
        self._update(run, flow.history)
        if self.next_at == sys.maxsize:
            return
        inside = None if ctx is None or loop is None else self._save_activation(ctx, loop)
        try:
            note = encode_snapshot(self._snapshot(flow, position, inside))
        except (msgspec.MsgspecError, TypeError, ValueError, RecursionError):
            _logger.warning("run `%s` has a state that no snapshot can hold", run.id, exc_info=True)
            self.next_at = sys.maxsize
            return
        self._keeper.keep_note(SNAPSHOT_NOTE, note)
        self._size, self._size_at, self._taken_at = len(note), self._keeper.bytes_added, log.count
        self.next_at = log.count + self._interval

    def _is_possible(self, run: RunState[Any]) -> bool:
        """Return whether a snapshot is worthwhile, and only the outermost flow holds state.

        If not, or if it turns out that the agent prevents it, the next attempt comes some events later.
        """
        log, added = run.log, self._keeper.bytes_added - self._size_at
        missing, per_event = LEAST_SHARE * self._size - added, added // max(1, log.count - self._taken_at) + 1
        self.next_at = log.count + max(min(_RETRY_INTERVAL, self._interval), int(missing / per_event))
        is_steady = not (run.dynamic_agents or run.signals.messages or run.suspended_by) and run.live is None
        return is_steady and missing <= 0 and log.is_replayed

    def _update(self, run: RunState[Any], history: History) -> None:
        """Read the events and entries since the last snapshot."""
        log = run.log
        new = log.since(self.count)
        self._started = _with_latest(self._started, new)
        self._requests = latest_requests([*self._requests, *recent_requests(run.id, new)])
        self.summary, self.usage = summarize(new, self.summary), usage_from_events(new, self.usage)
        self._meter.recount(new)
        if self.count == 0:
            self.add_call_ids(call_ids_in([*self._started.input, *[entry.message for entry in self._prior]]))
        places = _find_places(new, self.count)
        self.count = log.count
        for event in new:
            if type(event) is AgentResponded:
                self.add_call_ids([call.id for call in event.message.tool_calls])
                if event.request is not None:
                    self._contents.update(event.request.contents)
            elif type(event) is HistoryCompacted:
                self.add_call_ids(call_ids_in([each.message for each in event.summary]))
        if self._encoded_dropped is not _NULL:
            self._dropped, self._encoded_dropped = decode_dropped(self._encoded_dropped), _NULL
        first, live = max(0, self._offset - history.dropped), self._live
        if any(type(event) is TaskEnded for event in new):
            # The end of a task replaces entries, also those of earlier runs.
            if any(old is not now for old, now in zip(self._prior, history.entries[:first], strict=False)):
                self._prior = ()
                self.next_at = sys.maxsize
            self._replace_entries(history.entries[first : first + len(live)])
        for entry in history.entries[first + len(live) :]:
            live.append(entry)
            self._saved.append(self._save(entry, *_place_in(places, entry.message)))
        self._drop(history)

    def _replace_entries(self, entries: Sequence[HistoryEntry]) -> None:
        live, skipped = self._live, len(self._live) - len(self._saved)
        for position, entry in enumerate(entries):
            if entry is not live[position]:
                live[position] = entry
                if position >= skipped:
                    key = self._saved[position - skipped].key
                    self._saved[position - skipped] = self._save(entry, NO_PLACE, key)

    def _drop(self, history: History) -> None:
        """Leave out the entries that no agent reads any more."""
        if self._reads_all or not history.compacted:
            return
        stop = history.prefix_for("all").stop + history.dropped
        first = max(self._offset, history.dropped) + len(self._live) - len(self._saved)
        if stop <= first:
            return
        self._dropped = self._dropped or DroppedEntries()
        for entry in self._saved[: stop - first]:
            self._dropped.add(entry)
        del self._saved[: stop - first]

    def _snapshot(self, flow: TeamFlow, position: FlowPosition, inside: SavedActivation | None) -> Snapshot:
        run, meter = flow.run, self._meter
        # The activations are collected while the other parts are made.
        history = self._save_history(flow.history)
        place = self._save_position(flow, position, inside)
        stripped = replace(self._started, input=(), values={}, summaries=(), tasks=())
        return Snapshot(
            VERSION,
            self._team,
            self.count,
            msgspec.Raw(encode_event(stripped)),
            dict(run.values),
            run.meter.limits,
            meter.usage,
            meter.transfers,
            bytes(self._call_ids),
            self._origins,
            place,
            history,
            tuple(self._requests),
            sorted(self._contents),
            self.summary or RunSummary(),
            SavedUsage.of(self.usage or usage_from_events(())),
        )

    def _save_position(self, flow: TeamFlow, at: FlowPosition, inside: SavedActivation | None) -> SavedPosition:
        stack, shift = flow.stack, flow.history.dropped
        loops = None if at.loops is None else SavedLoops.of(at.loops, shift)
        messages: list[ChosenMessage] | None = None
        if at.messages is not None:
            entries = flow.history.entries
            messages = move_messages(save_messages(at.messages, entries, self._first_kept(flow.history)), shift)
        return SavedPosition(
            at.hop,
            self._place_of(at.origin),
            self._place_of(at.first),
            at.mark + shift,
            loops,
            at.answer,
            at.breaks_loop,
            at.agent,
            messages,
            flow.used_fallback,
            stack.tasks,
            stack.returns,
            inside,
        )

    def _save_activation(self, ctx: AgentContext[Any], loop: LoopState) -> SavedActivation:
        history = ctx._history
        return SavedActivation(
            move_view(save_view(ctx._view, self._first_kept(history)), history.dropped),
            loop,
            ctx._steps,
            ctx._asked,
            ctx._said,
            ctx.output,
            ctx._breaks_loop,
            ctx._turn_start + history.dropped,
            ctx._run.requests.last_request(ctx),
            [msgspec.Raw(encode_event(event)) for event in _last_turn(ctx._run.log, f"{ctx._scope}/m{loop.turn}")],
        )

    def _first_kept(self, history: History) -> int:
        """Return the position of the first entry that readers of the snapshot have."""
        return 0 if self._dropped is None else self._offset + len(self._dropped.places) - history.dropped

    def _save_history(self, history: History) -> SavedHistory:
        shift, dropped = history.dropped, self._dropped
        base = self._offset if dropped is None else self._first_kept(history) + shift
        prefixes = history.compacted if dropped is None else [history.prefix_for("all")]
        return SavedHistory(
            self._offset,
            base,
            history.inputs + shift,
            self._saved,
            [place + shift for place in history.hidden_at],
            [self._save_prefix(prefix, shift) for prefix in prefixes],
            self._save_prefix(history.skipped, shift) if history.skipped.entries else None,
            _NULL if dropped is None else encode_dropped(dropped),
        )

    def _save_prefix(self, prefix: CompactedPrefix, shift: int) -> SavedPrefix:
        entries = [self._save(entry, NO_PLACE, "") for entry in prefix.entries]
        return SavedPrefix(prefix.readers, prefix.stop + shift, entries, prefix.made_at + shift, prefix.inputs)

    def _save(self, entry: HistoryEntry, place: int, key: str) -> SavedEntry:
        author = self._place_of(entry.origin)
        return SavedEntry(entry.message, author, place, key, entry.is_answer, entry.hidden, entry.followed)

    def _place_of(self, origin: Origin | None) -> int:
        """Return the position of an activation in `_origins`; add it after those before it."""
        new: list[Origin] = []
        while origin is not None and origin.id not in self._places:
            new.append(origin)
            origin = origin.parent
        place = -1 if origin is None else self._places[origin.id]
        for each in reversed(new):
            self._origins.append((each.id, each.agent, place))
            place = self._places[each.id] = len(self._origins) - 1
        return place


def _with_latest(started: RunStarted, events: Sequence[Event]) -> RunStarted:
    """Return the first event of a run with the options and the trace that were recorded last."""
    traces = [event.traceparent for event in events if isinstance(event, RunStarted | RunResumed)]
    traceparent = next(filter(None, reversed(traces)), started.traceparent)
    return replace(started, options=recorded_options(events) or started.options, traceparent=traceparent)


def _last_turn(log: Log, key: str) -> Sequence[Event]:
    """Return a response, and the results of its transfers that were not followed."""
    response = log.peek(key)
    if type(response) is not AgentResponded:
        return ()
    results = [log.peek(f"{key}.{position}") for position in range(len(response.message.tool_calls))]
    return [response, *[event for event in results if type(event) is ToolReturned and event.requested_agent]]


def _is_text(value: Any) -> bool:
    return value is None or type(value) is str


def _has_changes(ctx: AgentContext[Any]) -> bool:
    """Return whether changes to the values wait for the event that records them."""
    values = ctx._values
    return values is not None and bool(values._written or values._removed)


_Places = dict[int | str, tuple[int, Event]]
"""Events and their positions, by the identity of their message or by the id of the tool call that returned."""


def _find_places(events: Sequence[Event], start: int) -> _Places:
    places: _Places = {}
    for number, event in enumerate(events, start):
        if type(event) is AgentResponded or type(event) is UserMessageAdded:
            places[id(event.message)] = number, event
        elif type(event) is ToolReturned:
            places[event.call_id] = number, event
        elif type(event) is RunStarted:
            for position, message in enumerate(event.input):
                places[id(message)] = input_place(position), event
    return places


def _place_in(places: _Places, message: Message) -> tuple[int, str]:
    """Return the position of the event that has a message, and its key if it is a response."""
    is_result = type(message) is ToolMessage
    number, event = places.get(message.tool_call_id if is_result else id(message), (NO_PLACE, None))
    if type(event) is ToolReturned and event.message != message:
        return NO_PLACE, ""
    return number, event.key if type(event) is AgentResponded else ""


class LoadedSnapshot(Struct, frozen=True):
    """A snapshot with the parts that are needed to read the events after it."""

    state: Snapshot
    started: RunStarted
    """The first event of the run, without what the rest of the snapshot holds."""
    origins: Sequence[Origin]
    """The activations of the snapshot."""
    last_turn: Sequence[Event]
    """The last response of the agent that the snapshot interrupts, if any, and what belongs to it."""

    @property
    def needs_thread(self) -> bool:
        """True if agents read messages of earlier runs of the thread."""
        return self.state.history.offset > 0 and bytes(self.state.history.dropped) == b"null"


def load_snapshot(note: bytes, *, team: str, seq: int) -> LoadedSnapshot | None:
    """Read a snapshot; return None if the run must be read from its beginning.

    Args:
        note: The note.
        team: The hash of the team that is to continue the run.
        seq: The number of lines that the log of the run has.
    """
    state = decode_snapshot(note, team=team, seq=seq)
    if state is None:
        return None
    origins, inside = restore_origins(state.origins), state.position.inside
    lines = [state.started, *([] if inside is None else inside.last_turn)]
    started, *last_turn = decode_tail([bytes(line) for line in lines], origins)
    return LoadedSnapshot(state, started, origins, last_turn) if isinstance(started, RunStarted) else None


def restore_run(
    snapshot: LoadedSnapshot,
    log: Log,
    config: FlowConfig,
    args: ResumeArgs[Any],
    *,
    first_events: Sequence[Event],
    prior_entries: Sequence[HistoryEntry],
    stopped: StoppedRun,
    record: RunRecord,
) -> OpenRun:
    """Set up a run that continues from a snapshot.

    Args:
        snapshot: The snapshot.
        log: The run's log, with the events after the snapshot.
        config: The team and its options.
        args: The arguments of the caller.
        first_events: Events to write before any agent runs.
        prior_entries: History of the thread's earlier runs, if the snapshot needs it.
        stopped: The state in which the run stopped.
        record: The run's record.
    """
    state, origins, at = snapshot.state, snapshot.origins, snapshot.state.position
    run, config, first_events = open_state(snapshot.started, log, config, args, first_events, stopped, record)
    run.values = state.values
    run.meter = UsageMeter.restore(run.meter.limits, state.usage, transfers=state.transfers)
    run.call_ids = PastCallIds(state.call_ids)
    history = _restore_history(snapshot, log, prior_entries)
    flow = TeamFlow(run, history, config, config.team, TaskStack(at.tasks, at.returns), at.used_fallback)
    base = history.dropped
    position = flow.position = FlowPosition(
        at.hop,
        None if at.origin < 0 else origins[at.origin],
        None if at.first < 0 else origins[at.first],
        None if at.loops is None else at.loops.restore(run.meter.limits.idle_cycles, base),
        at.answer,
        at.breaks_loop,
        at.mark - base,
        at.agent,
        None if at.messages is None else restore_messages(move_messages(at.messages, -base), history.entries),
    )
    if (inside := at.inside) is not None and position.origin is not None:
        view_state = move_view(inside.view, -base)
        view = restore_view(history, position.origin, view_state, hide_transfers=config.hide_transfers)
        position.ctx = ctx = reenter(flow, position.origin, view)
        ctx._steps, ctx._asked, ctx._said = inside.steps, inside.asked, inside.said
        ctx.output, ctx._breaks_loop, ctx._loop = inside.output, inside.breaks_loop, inside.loop
        ctx._turn_start = inside.turn_start - base
        position.agent = position.origin.agent
    return OpenRun(flow, position.agent, first_events, 0 if base else len(prior_entries))


def _restore_history(snapshot: LoadedSnapshot, log: Log, prior: Sequence[HistoryEntry]) -> History:
    saved, origins = snapshot.state.history, snapshot.origins
    response = snapshot.last_turn[0] if snapshot.last_turn else None
    entries = [restore_entry(each, origins, snapshot.started.run_id) for each in saved.entries]
    if isinstance(response, AgentResponded):
        for entry in reversed(entries):
            if entry.event is not None and entry.event.key == response.key:
                # Compaction recognizes the last response by the identity of its message.
                entry.message = response.message
                break
    history = History([*prior, *entries])
    is_dropped = bytes(saved.dropped) != b"null"
    base = history.dropped = saved.base if is_dropped else 0
    history.is_main, history.inputs = True, max(0, saved.inputs - base)
    history.hidden_at = [place - base for place in saved.hidden_at if place >= base]
    history.compacted = [restore_prefix(each, origins, base) for each in saved.compacted]
    if is_dropped:
        history.skipped = history.compacted[-1]
        history.read_dropped = cache(partial(_read_dropped, saved.dropped, log, origins))
    elif saved.skipped is not None:
        history.skipped = restore_prefix(saved.skipped, origins, base)
    return history


def _read_dropped(encoded: msgspec.Raw, log: Log, origins: Sequence[Origin]) -> Sequence[HistoryEntry]:
    dropped = decode_dropped(encoded)
    return () if dropped is None else dropped.restore(log.events, origins)
