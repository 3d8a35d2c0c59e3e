"""The history of a run, read from its log alone: for the next run of a thread, and to show old runs.

It needs no agents, so that a thread can continue after the team has changed. It equals the history of the run itself,
except for messages that handoffs added.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TypeAlias, assert_never, cast

from msgspec import Struct
from msgspec.structs import replace

from ..agents.definition import EXIT_TOOL
from ..context import HistoryEntry
from ..context.history import end_of_turn, turn_entries
from ..events import (
    AgentResponded,
    AnyEvent,
    ControlTransferred,
    Event,
    EventRef,
    HistorySummary,
    Origin,
    StepCompleted,
    ToolReturned,
    keys,
    types,
)
from ..events.codec import require_known_events
from ..messages import ToolMessage, UserMessage
from .tasks import end_entry, replace_result
from .tasks import last_active_agent as last_active_agent

NO_RESULT = "This call did not finish."
"""The result of a tool call that never got one."""

_Place: TypeAlias = tuple[int, ...]


def history_from_log(events: Sequence[Event], earlier: Sequence[HistoryEntry] = ()) -> list[HistoryEntry]:
    """Return the history of a run: its input, the messages of its agents, and tool results.

    Raises:
        LogError: The log holds an event that this version does not know.
    """
    entries = list(earlier)
    extend_history(entries, entries_from_log(events))
    return entries


class RunEntries(Struct, frozen=True, gc=False):
    """The entries that a run adds to the history of its thread."""

    entries: Sequence[HistoryEntry]
    """The entries in reading order."""
    ended_tasks: Mapping[int, tuple[types.TaskEnded, Collection[EventRef]]] = {}
    """The tasks that ended, by position of the entry that stands for each, with the ends of the summaries by then."""


def entries_from_log(events: Sequence[Event]) -> RunEntries:
    """Return the entries that a run adds to the history of its thread.

    Raises:
        LogError: The log holds an event that this version does not know.
    """
    reader = _LogReader(require_known_events(events))
    entries, ended = list(reader.entries()), reader.ended_tasks
    if not ended:
        return RunEntries(entries)
    return RunEntries(entries, {at: ended[id(entry)] for at, entry in enumerate(entries) if id(entry) in ended})


def extend_history(entries: list[HistoryEntry], run: RunEntries) -> None:
    """Append the entries of a run to the history of its thread."""
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


def summaries_from_log(events: Sequence[Event]) -> tuple[HistorySummary, ...]:
    """Return the summaries that the next run of the thread reads instead of the first messages."""
    if not any(isinstance(event, types.HistoryCompacted) for event in events):
        return next((event.summaries for event in events if isinstance(event, types.RunStarted)), ())
    return tuple(_LogReader(require_known_events(events)).summaries.values())


class _Activation:
    """One activation: its messages and the activations nested in it, in order of their start."""

    __slots__ = ("items", "origin", "place", "realtime_items")

    def __init__(self, origin: Origin, place: _Place) -> None:
        self.origin = origin
        self.place = place
        self.items: list[HistoryEntry | _Activation] = []
        self.realtime_items: dict[int, list[HistoryEntry | _Activation]] = {}
        """The messages of a realtime session by position, which may differ from the order of recording."""

    def items_for(self, key: str) -> "list[HistoryEntry | _Activation]":
        """Return the list that a message with this key belongs to."""
        position = keys.item_number(key)
        return self.items if position is None else self.realtime_items.setdefault(position, [])


class _LogReader:
    def __init__(self, events: Sequence[AnyEvent]) -> None:
        self._run_id = ""
        self._top = _Activation(Origin("", ""), ())
        self._activations: dict[str, _Activation] = {"": self._top}
        self._results = {event.key: event for event in events if isinstance(event, ToolReturned)}
        self._followed = {event.origin.id: event.call_id for event in events if isinstance(event, ControlTransferred)}
        self._last_response = {
            e.origin.id: e.key for e in events if isinstance(e, AgentResponded) and keys.is_response(e.key)
        }
        self.summaries: dict[str, HistorySummary] = {}
        """The latest summary for each kind of readers."""
        self._compactions: list[types.HistoryCompacted] = []
        self.ended_tasks: dict[int, tuple[types.TaskEnded, Collection[EventRef]]] = {}
        """The ends of tasks by identity of the entries that stand for them, with the ends of the summaries by then."""
        self._truncated = {event.response_key: event for event in events if isinstance(event, types.ResponseTruncated)}
        for event in events:
            if not keys.is_in_call(event.origin.id):
                self._read(event)
        self.summaries.update({event.readers: self._to_summary(event) for event in self._compactions})
        for activation in self._activations.values():
            for position in sorted(activation.realtime_items):
                activation.items.extend(activation.realtime_items[position])

    def _read(self, event: AnyEvent) -> None:  # noqa: C901
        match event:
            case types.RunStarted():
                self._run_id = event.run_id
                self.summaries = {summary.readers: summary for summary in event.summaries}
                self._top.items.extend(HistoryEntry(message) for message in event.input)
            case types.AgentStarted():
                self._activation(event.origin)
            case types.AgentResponded():
                self._add_response(event)
            case types.UserMessageAdded():
                self._activation(event.origin).items_for(event.key).append(HistoryEntry(event.message))
            case types.HistoryCompacted():
                if not event.is_local and event.readers != "activation":
                    self._compactions.append(event)
            case types.StepCompleted():
                if event.name == keys.FAILED and keys.name(event.key) == keys.FAILED:
                    self._add_failure(event)
            case types.TaskEnded():
                self._add_ended_task(event)
            case types.ToolReturned() | types.ControlTransferred() | types.ResponseTruncated() | types.TaskOpened():
                pass  # Read together with the response they belong to.
            case types.InterruptRaised() | types.InterruptAnswered() | types.AgentFinished() | types.UnknownEvent():
                pass
            case (
                types.RunResumed()
                | types.RunCompleted()
                | types.RunSuspended()
                | types.RunFailed()
                | types.RunCancelled()
            ):
                pass
            case _:
                assert_never(event)

    def entries(self, activation: _Activation | None = None) -> Iterator[HistoryEntry]:
        """Yield the entries in reading order: parallel branches in the order of declaration."""
        nested: list[_Activation] = []
        for item in (activation or self._top).items:
            if isinstance(item, _Activation):
                nested.append(item)
                continue
            yield from self._in_order(nested)
            nested.clear()
            yield item
        yield from self._in_order(nested)

    def _in_order(self, activations: Sequence[_Activation]) -> Iterator[HistoryEntry]:
        for activation in sorted(activations, key=lambda each: each.place):
            yield from self.entries(activation)

    def _activation(self, origin: Origin) -> _Activation:
        known = self._activations.get(origin.id)
        if known is None:
            author = Origin(f"{self._run_id}:{origin.id}", origin.agent)
            known = _Activation(author, keys.order(origin.id))
            self._activations[origin.id] = known
            self._activations.get(keys.owner(origin.id), self._top).items.append(known)
        return known

    def _add_response(self, response: AgentResponded) -> None:
        activation, calls = self._activation(response.origin), response.tool_calls
        items, truncated = activation.items_for(response.key), self._truncated.get(response.key)
        message = response.message if truncated is None else truncated.truncate(response.message)
        if not calls:
            # A model's answer that was not its last response did not fit the output type, and was corrected.
            is_last = self._last_response.get(response.origin.id, response.key) == response.key
            if is_last or not keys.is_response(response.key):
                ref = EventRef(self._run_id, response.key)
                items.append(HistoryEntry(message, activation.origin, is_answer=True, event=ref))
            return
        results = [self._results.get(keys.call(response.key, position)) for position in range(len(calls))]
        hidden = tuple(
            position
            for position, result in enumerate(results)
            if result is not None and (result.is_transfer_refused or result.is_task_call)
        )
        call_id = self._followed.get(response.origin.id)
        followed = tuple(position for position, call in enumerate(calls) if call_id is not None and call.id == call_id)
        answer = None if followed else self._answer_position(response, results)
        told = [
            ToolMessage(call.id, call.name, NO_RESULT, is_error=True) if result is None else result.message
            for call, result in zip(calls, results, strict=True)
        ]
        origin = activation.origin
        start = len(items)
        items.extend(turn_entries(message, told, origin, hidden=hidden, followed=followed, answer=answer))
        cast("HistoryEntry", items[start]).event = EventRef(self._run_id, response.key)

    def _to_summary(self, event: types.HistoryCompacted) -> HistorySummary:
        known = self._activations
        messages = [
            replace(each, activation=known[each.activation].origin.id) if each.activation in known else each
            for each in event.summary
        ]
        return HistorySummary(event.upto, tuple(messages), event.readers)

    def _answer_position(self, response: AgentResponded, results: Sequence[ToolReturned | None]) -> int | None:
        """Return the position of the agent's answer: the last final result of its last turn."""
        if self._last_response.get(response.origin.id) != response.key:
            return None
        if any(result is not None and result.tool_name == EXIT_TOOL and not result.is_error for result in results):
            return None
        final = [position for position, result in enumerate(results) if result is not None and result.is_final]
        return final[-1] if final else None

    def _add_ended_task(self, ended: types.TaskEnded) -> None:
        activation = self._activation(ended.origin)
        entry = end_entry(ended, activation.origin)
        if entry is not None:
            activation.items.append(entry)
            summaries = [*self.summaries.values(), *self._compactions]
            self.ended_tasks[id(entry)] = ended, {each.upto for each in summaries}

    def _add_failure(self, failed: StepCompleted) -> None:
        """Replace the entries of an agent whose failure was tolerated by the report of the failure."""
        activation = self._activation(failed.origin)
        undone = keys.parent(failed.key)
        self._compactions = [event for event in self._compactions if not keys.contains(undone, event.key)]
        report = HistoryEntry(UserMessage(str(failed.result)), activation.origin)
        if undone == failed.origin.id:
            activation.items[:] = [report]
            return
        place = keys.place_order(keys.name(undone))
        activation.items[:] = [
            item for item in activation.items if not (isinstance(item, _Activation) and item.place[:-1] == place)
        ]
        branch = _Activation(activation.origin, (*place, 0))
        branch.items.append(report)
        activation.items.append(branch)
