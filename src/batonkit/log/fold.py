"""The histories of a run, folded from its log: `History.apply`, as in a running agent, event by event.

It needs no agents and runs no code of users, so that a thread can continue after the team has changed, and Studio can
show what each agent of another program has read.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence

from msgspec import Struct, field
from msgspec.structs import replace

from ..messages import ToolMessage
from . import keys
from .codec import require_known_events
from .entries import WHOLE_MESSAGE, HistoryEntry, end_of_turn, replace_result, settle_call
from .event import Event, Origin
from .events import (
    AgentFinished,
    AgentResponded,
    AgentStarted,
    CallInDoubt,
    ControlTransferred,
    EventRef,
    HistoryCompacted,
    HistorySummary,
    RunStarted,
    SettledCall,
    StepCompleted,
    TaskEnded,
    ToolReturned,
)
from .history import History
from .once_calls import OUTCOME_UNKNOWN, CallsInDoubt
from .withholding import is_said_in, rejected_activation

NO_RESULT = "This call did not finish."
"""The result of a tool call that never got one."""
_LAST = 1 << 62
_ENDS_BRANCHES = (AgentResponded, ControlTransferred, AgentFinished)


class _Branch(Struct):
    """A history that was opened at a place of an activation, and joins the history around it."""

    place: str
    history: History
    start: int
    failed: StepCompleted | None = None


class RunFold(Struct, eq=False):
    """Folds the events of a run into its histories.

    Each event goes to the history of its flow. A flow that opens a history of its own joins the one around it when its
    owner goes on, in the order of the places; a flow in a tool call never does.
    """

    main: History = field(default_factory=History)
    """The history of the outermost flow."""
    origins: dict[str, Origin] = {}
    """The activations so far, by id."""
    ended_tasks: list[tuple[TaskEnded, HistoryEntry, Collection[EventRef]]] = []
    """The ends of tasks that were added as entries, with the ends of the summaries by then."""
    doubts: CallsInDoubt = field(default_factory=CallsInDoubt)
    """The calls that were begun and have no result."""
    settled: list[SettledCall] = []
    """The outcomes of earlier calls that a person reported."""
    _summaries: list[tuple[str, HistorySummary]] = []
    """The summaries that the next run of the thread may read, oldest first, with the keys of their events."""
    _ranks: dict[str, int] = {}
    """The order in which the activations began."""
    _histories: dict[str, History] = {}
    """The histories by flow."""
    _branches: dict[str, list[_Branch]] = {}
    """The branches that an activation has opened, by its id."""

    def __post_init__(self) -> None:
        self._histories[""] = self.main

    @property
    def summaries(self) -> Collection[HistorySummary]:
        """The latest summary for each kind of readers, which the next run of the thread reads."""
        return {summary.readers: summary for _, summary in self._summaries}.values()

    def apply(self, event: Event) -> None:
        """Add an event."""
        self.doubts.apply(event)
        if isinstance(event, RunStarted):
            self._start(event)
            return
        id = event.origin.id
        if not id:
            return
        self._leave_unchecked(event)
        if type(event) is AgentStarted:
            self._enter(event)
        elif id in self._branches and _ends_branches(event):
            self._join(id)
        history = self.history_of(id)
        origin = self.origin_of(event.origin)
        if type(event) is StepCompleted and keys.ends_with(event.key, keys.FAILED):
            self._fail(event, history, origin)
        elif type(event) is TaskEnded:
            self._end_task(event, history, origin)
        else:
            before = len(history.entries)
            history.apply(event, origin)
            if len(history.entries) > before and _item_of(history.entries[-1].key) is not None:
                self._place_item(history, before)
            if type(event) is HistoryCompacted:
                self._note_summary(event)
            elif type(event) is ToolReturned:
                self.settled += event.settles

    def _leave_unchecked(self, event: Event) -> None:
        """Join the branches of activations that are over, and whose answers are withheld now."""
        history = self.history_of(event.origin.id)
        if not history.unchecked:
            return
        for over in history.over_before(event):
            for owner in sorted(self._branches, key=len, reverse=True):
                if owner == over or keys.contains(over, owner):
                    self._join(owner)
            if over in history.unchecked.answers:
                self._drop_summaries(over)
        history.leave_before(event)

    def _drop_summaries(self, activation: str) -> None:
        """Drop the summaries that may hold what an activation has answered."""
        self._summaries = [each for each in self._summaries if not is_said_in(activation, each[0])]

    def join_branches(self) -> None:
        """Join the branches of activations that have not gone on, as the run does when it stops."""
        for owner in sorted(self._branches, key=len, reverse=True):
            self._join(owner)

    def finish(self) -> None:
        """End the run: calls without results get one, and all branches are joined."""
        for history in {id(each): each for each in self._histories.values()}.values():
            before = len(history.entries)
            history.close_turns(self._missing_result)
            if len(history.entries) > before and _item_of(history.entries[-1].key) is not None:
                self._place_items(history, before)
        self.join_branches()
        for activation in self.main.unchecked.answers:
            self._drop_summaries(activation)
        if self.main.unchecked.input:
            self._summaries = [each for each in self._summaries if each[1].upto.run_id != self.main.run_id]

    def _missing_result(self, call: str) -> str:
        return OUTCOME_UNKNOWN if self.doubts.has(call) else NO_RESULT

    def history_of(self, activation: str) -> History:
        """Return the history that an activation reads and extends."""
        flow = keys.flow(activation)
        history = self._histories.get(flow)
        if history is None:
            history = self._histories[flow] = self.history_of(keys.owner(activation))
        return history

    def origin_of(self, origin: Origin) -> Origin:
        """Return the one object for an activation: views recognize their own messages by it."""
        known = self.origins.get(origin.id)
        if known is None:
            parent = None if origin.parent is None else self.origin_of(origin.parent)
            known = self.origins[origin.id] = Origin(origin.id, origin.agent, parent)
            self._ranks[origin.id] = len(self._ranks)
        return known

    def _start(self, event: RunStarted) -> None:
        self.main.is_main = True
        self.main.apply(event)
        self._summaries = [(event.key, summary) for summary in event.summaries]

    def _enter(self, event: AgentStarted) -> None:
        if event.opens is None:
            return
        id = event.origin.id
        owner = keys.owner(id)
        around = self.history_of(owner)
        open_history = around.fork if event.opens.kind == "branch" else around.begin
        history = open_history(*event.opens.input)
        flow = keys.flow(id)
        self._histories[flow] = history
        if not keys.is_called(id):
            branch = _Branch(keys.parent(id), history, len(history.entries))
            self._branches.setdefault(owner, []).append(branch)

    def _join(self, owner: str) -> None:
        around = self.history_of(owner)
        for branch in sorted(self._branches.pop(owner), key=_place_order):
            if branch.failed is None:
                around.join(branch.history, branch.start)
            else:
                around.apply(branch.failed, self.origin_of(branch.failed.origin))

    def _fail(self, event: StepCompleted, history: History, origin: Origin) -> None:
        failed = keys.parent(event.key)
        self._summaries = [each for each in self._summaries if not keys.is_effect_of(failed, each[0])]
        for owner in [each for each in self._branches if each == failed or keys.is_effect_of(failed, each)]:
            del self._branches[owner]
        branch = next((each for each in self._branches.get(event.origin.id, ()) if each.place == failed), None)
        if branch is not None:
            branch.failed = event
        elif failed == event.origin.id:
            history.apply(event, origin)
        else:
            # The branch failed before it began.
            self._branches.setdefault(event.origin.id, []).append(_Branch(failed, History(), 0, event))

    def _end_task(self, event: TaskEnded, history: History, origin: Origin) -> None:
        before = len(history.entries)
        history.apply(event, origin)
        if history is self.main and len(history.entries) > before:
            upto = {summary.upto for summary in self.summaries}
            self.ended_tasks.append((event, history.entries[-1], upto))

    def _note_summary(self, event: HistoryCompacted) -> None:
        if event.readers == "activation" or event.is_local:
            return
        run_id = self.main.run_id
        messages = [
            replace(each, activation=f"{run_id}:{each.activation}") if each.activation in self.origins else each
            for each in event.summary
        ]
        self._summaries.append((event.key, HistorySummary(event.upto, tuple(messages), event.readers)))

    def _place_items(self, history: History, first: int) -> None:
        """Move several turns of a live conversation that were closed together to their places."""
        added = history.entries[first:]
        del history.entries[first:]
        while added:
            count = 1
            while count < len(added) and _item_of(added[count].key) == _item_of(added[0].key):
                count += 1
            before = len(history.entries)
            history.entries.extend(added[:count])
            del added[:count]
            self._place_item(history, before)

    def _place_item(self, history: History, first: int) -> None:
        """Move new entries of a live conversation to their place among those known already."""
        entries = history.entries
        rank = self._rank(entries[first])
        place = first
        while place > history.offset and self._rank(entries[place - 1]) > rank:
            place -= 1
        entries[place:] = [*entries[first:], *entries[place:first]]
        history.hidden_at[:] = [position for position, entry in enumerate(entries) if entry.hidden]

    def _rank(self, entry: HistoryEntry) -> tuple[int, int]:
        """Return the place of an entry in a live conversation: its activation, and its item there."""
        if not keys.parent(entry.key):
            return -1, 0  # The input of the run.
        item = _item_of(entry.key)
        if item is None:
            scope = entry.origin.id if entry.origin is not None else keys.parent(entry.key)
            return self._ranks.get(scope, _LAST), _LAST
        scope, number = item
        return self._ranks[scope], number


def _item_of(key: str) -> tuple[str, int] | None:
    """Return the activation and number of the spoken item that a key is part of, if any."""
    number = keys.item_number(key)
    if number is None and "." in keys.name(key):
        key = keys.call_of(key)[0]
        number = keys.item_number(key)
    return None if number is None else (keys.parent(key), number)


def _ends_branches(event: Event) -> bool:
    """Return whether an activation goes on after its branches."""
    return isinstance(event, _ENDS_BRANCHES) or (type(event) is StepCompleted and bool(rejected_activation(event)))


def _place_order(branch: _Branch) -> tuple[int, ...]:
    return keys.place_order(keys.name(branch.place))


def fold(events: Iterable[Event], earlier: History | None = None) -> RunFold:
    """Fold the log of a run on top of the history of its thread."""
    state = RunFold(History() if earlier is None else earlier)
    for event in events:
        state.apply(event)
    return state


class RunEntries(Struct, frozen=True, gc=False):
    """The entries that a run adds to the history of its thread."""

    entries: Sequence[HistoryEntry]
    """The entries in reading order."""
    ended_tasks: Mapping[int, tuple[TaskEnded, Collection[EventRef]]] = {}
    """The tasks that ended, by position of the entry that stands for each, with the ends of the summaries by then."""
    settled: Sequence[SettledCall] = ()
    """The outcomes of calls of earlier runs that a person reported."""


class FoldedRun(Struct, frozen=True):
    """The part of a run that later runs of its thread read."""

    added: RunEntries
    summaries: tuple[HistorySummary, ...]
    """The summaries that they read instead of the first messages."""
    calls_in_doubt: tuple[CallInDoubt, ...] = ()
    """The calls, also of runs before it, that were begun and have no result."""


def read_finished(events: Sequence[Event]) -> FoldedRun:
    """Return what later runs of a thread read of a run that has stopped.

    Raises:
        LogError: The log holds an event that this version does not know.
    """
    state = fold(require_known_events(events))
    state.finish()
    run_id = state.main.run_id
    kept = _without_corrections(state.main.passed_entries())
    positions = {id(entry): position for position, entry in enumerate(kept)}
    origins: dict[str, Origin] = {}
    entries = [_as_earlier(entry, run_id, origins) for entry in kept]
    ended = {positions[id(entry)]: (event, upto) for event, entry, upto in state.ended_tasks if id(entry) in positions}
    added = RunEntries(entries, ended, state.settled)
    return FoldedRun(added, tuple(state.summaries), state.doubts.all)


def _without_corrections(entries: Iterable[HistoryEntry]) -> list[HistoryEntry]:
    """Leave out invalid answers and their corrections, which were for one activation only."""
    return [e for e in entries if e.hidden != (WHOLE_MESSAGE,) or type(e.message) is ToolMessage]


def _as_earlier(entry: HistoryEntry, run_id: str, origins: dict[str, Origin]) -> HistoryEntry:
    """Return an entry for later runs: its activation and event are named with its run."""
    origin = entry.origin
    if origin is not None:
        # Later runs need no paths of earlier ones.
        origin = origins.setdefault(origin.id, Origin(f"{run_id}:{origin.id}", origin.agent))
    event = EventRef(run_id, entry.key)
    return HistoryEntry(entry.message, origin, entry.is_answer, entry.hidden, entry.followed, event=event)


def extend_history(entries: list[HistoryEntry], run: RunEntries) -> None:
    """Append the entries of a run to the history of its thread."""
    for outcome in run.settled:
        settle_call(entries, outcome)
    if not run.ended_tasks:
        entries.extend(run.entries)
        return
    for position, entry in enumerate(run.entries):
        ended, upto = run.ended_tasks.get(position, (None, ()))
        # As in the run itself: the end of a task is read in the place of the call that opened it, if that is there.
        if ended is None or not replace_result(entries, ended, _count_summarized(entries, upto)):
            entries.append(entry)


def _count_summarized(entries: Sequence[HistoryEntry], upto: Collection[EventRef]) -> int:
    """Return the number of first entries that summaries up to these responses replace."""
    if not upto:
        return 0
    last = next((place for place in range(len(entries) - 1, -1, -1) if entries[place].event in upto), -1)
    return end_of_turn(entries, last)


def history_from_log(events: Sequence[Event], earlier: Sequence[HistoryEntry] = ()) -> list[HistoryEntry]:
    """Return the history of a run that has stopped, as the next run of its thread reads it.

    Raises:
        LogError: The log holds an event that this version does not know.
    """
    entries = list(earlier)
    extend_history(entries, read_finished(events).added)
    return entries
