"""The history of a flow of control: what its agents have said, folded from the events of the log.

`History.apply` is the only code that turns an event into entries. A running agent calls it with the event that it has
just written, a resumed one with the event that it found, and `batonkit.log.fold` with every event of a log.
"""

from bisect import insort
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from ..messages import AssistantMessage, Message, ToolMessage, UserMessage, is_empty
from . import keys
from .entries import (
    EXIT_TOOL,
    SHOWN_AS_ANSWER,
    WHOLE_MESSAGE,
    HistoryEntry,
    end_entry,
    end_of_turn,
    replace_result,
    settle_call,
    to_entries,
)
from .event import Event, Origin
from .events import (
    AgentFinished,
    AgentResponded,
    AgentStarted,
    ControlTransferred,
    EventRef,
    HistoryCompacted,
    HistorySummary,
    OpenedHistory,
    ResponseTruncated,
    RunStarted,
    StepCompleted,
    SummaryReaders,
    TaskEnded,
    ToolReturned,
    UserMessageAdded,
)
from .withholding import Unchecked, has_passed, is_said_in, rejected_activation, withhold_answers

_WHOLE = (WHOLE_MESSAGE,)
_GOES_ON = (AgentStarted, AgentResponded, ControlTransferred, AgentFinished)


class CompactedPrefix(Struct, frozen=True):
    """The summary that readers of a history read instead of its first entries."""

    readers: SummaryReaders
    """The agents that read it."""
    stop: int
    """The number of entries that it covers."""
    entries: tuple[HistoryEntry, ...]
    """The entries that are read instead."""
    inputs: int
    """The number of first entries that are input of the flow."""
    key: str = ""
    """The key of its event; "" if an earlier run of the thread made it."""


_NO_PREFIX = CompactedPrefix("all", 0, (), 0)


class _OpenTurn(Struct):
    """A response whose calls do not all have results; it is not read yet."""

    response: AgentResponded
    message: AssistantMessage
    origin: Origin
    results: list[ToolReturned | None]


class History:
    """A list of entries, shared by the agents of a flow.

    A turn is added once all its calls have results: no reader finds a call without one. A summary of the first entries
    changes only what is read: no entry is removed, and positions stay valid.
    """

    __slots__ = (
        "compacted",
        "edits",
        "entries",
        "first_messages",
        "hidden_at",
        "inputs",
        "is_main",
        "is_whole",
        "offset",
        "opening",
        "retry_at",
        "run_id",
        "skipped",
        "turns",
        "unchecked",
        "views",
    )

    def __init__(self, entries: Sequence[HistoryEntry] = (), *, is_whole: bool = True) -> None:
        self.entries: list[HistoryEntry] = list(entries)
        self.inputs = len(self.entries)
        """The number of first entries that are input of the flow, or of earlier runs."""
        self.is_whole = is_whole
        """False if the entries that the thread's summary for all readers covers were left out."""
        self.offset = len(self.entries)
        """The number of first entries that come from earlier runs of the thread."""
        self.run_id = ""
        """The run whose events it holds."""
        self.is_main = False
        """True for the history of the run itself, which later runs of the thread continue."""
        self.opening: OpenedHistory | None = None
        """The beginning of the history of a nested flow, until an event has recorded it."""
        self.turns: dict[str, _OpenTurn] = {}
        """The responses that wait for results of their calls, by key."""
        self.unchecked = Unchecked()
        """Content that guardrails have not let pass."""
        self.hidden_at: list[int] = []
        """The positions of entries with hidden parts, in ascending order."""
        self.compacted: list[CompactedPrefix] = []
        """The summaries of its first entries, oldest first."""
        self.skipped = _NO_PREFIX
        """The summary of entries that are not here, because no agent reads them; empty if there are none."""
        self.retry_at = 0
        """After a summary that failed: the number of tokens from which on it is tried again."""
        self.first_messages: Sequence[Message] = ()
        """The messages of the first entries, if every reader reads them as they are."""
        self.views: dict[Any, Any] = {}
        """Caches of readers, which remember how far they have read."""
        self.edits = 0
        """The number of times that readers had to start from the beginning."""

    def begin(self, *messages: Message) -> "History":
        """Return the history of a nested flow that reads nothing but these messages."""
        begun = History([HistoryEntry(message) for message in messages])
        begun.run_id = self.run_id
        begun.offset = 0
        begun.opening = OpenedHistory("new", messages)
        return begun

    def fork(self, *messages: Message) -> "History":
        """Return an independent history that continues this one, with further input."""
        forked = History(self.entries)
        forked.run_id = self.run_id
        forked.offset = self.offset
        forked.opening = OpenedHistory("branch", messages)
        forked.first_messages = self.first_messages
        forked.inputs = self.inputs
        if messages:
            forked.entries.extend([HistoryEntry(message) for message in messages])
            forked.inputs = len(forked.entries)
        forked.hidden_at.extend(self.hidden_at)
        forked.compacted.extend(self.compacted)
        forked.skipped = self.skipped
        return forked

    def join(self, branch: "History", mark: int) -> None:
        """Append the entries that a branch added."""
        if branch.hidden_at:
            shift = len(self.entries) - mark
            self.hidden_at.extend([place + shift for place in branch.hidden_at if place >= mark])
        self.entries.extend(branch.entries[mark:])
        self.unchecked.add(branch.unchecked)

    def apply(self, event: Event, origin: Origin | None = None) -> None:
        """Add what an event changes in what agents read.

        `origin` is the activation, if the event was decoded: a view recognizes its own messages by that object.
        """
        if self.unchecked.answers or self.unchecked.input:
            self.leave_before(event)
        fold = _FOLDS.get(type(event))
        if fold is not None:
            fold(self, event, origin or event.origin)

    def close_turns(self, missing: Callable[[keys.Key], str]) -> None:
        """Add the responses that wait for results; `missing` returns those of calls without one."""
        turns = list(self.turns.values())
        self.turns.clear()
        for turn in turns:
            _add_turn(self, turn, missing)

    def prefix_for(self, readers: SummaryReaders) -> CompactedPrefix:
        """Return the summary that some readers read; it is empty if there is none."""
        for prefix in reversed(self.compacted):
            if prefix.readers == readers:
                return prefix
        return self.skipped

    def prefix_of(self, event: HistoryCompacted, origin: Origin) -> CompactedPrefix:
        """Return a recorded summary."""
        stop = self.find_end(event.upto)
        origins: dict[str, Origin] = {}
        if any(each.agent for each in event.summary):
            # The flow's own objects, because an activation recognizes its messages by the identity of its origin.
            before = self.prefix_for(event.readers)
            covered = [*before.entries, *self.entries[before.stop : stop]]
            origins = {entry.origin.id: entry.origin for entry in covered if entry.origin is not None}
            origins[origin.id] = origin
        entries = tuple(to_entries(event.summary, origins.values()))
        return CompactedPrefix(event.readers, stop, entries, event.inputs, event.key)

    def find_end(self, upto: EventRef) -> int:
        """Return the position after a response and its results; 0 if it is not here."""
        is_own = upto.run_id == self.run_id
        for position in range(len(self.entries) - 1, -1, -1):
            entry = self.entries[position]
            if entry.key == upto.key if is_own else entry.event == upto:
                return end_of_turn(self.entries, position)
        return 0

    def entries_for(self, readers: SummaryReaders) -> list[HistoryEntry]:
        """Return the entries that some readers read: their summary, and the entries after it."""
        if not self.compacted:
            return self.entries
        prefix = self.prefix_for(readers)
        return [*prefix.entries, *self.entries[prefix.stop :]]

    def forget(self, scope: str) -> None:
        """Remove what the agents of a scope have added; what the user said stays."""
        self.compacted[:] = [prefix for prefix in self.compacted if not keys.is_effect_of(scope, prefix.key)]
        self.turns = {key: turn for key, turn in self.turns.items() if not keys.is_effect_of(scope, key)}
        self.unchecked.forget(scope)
        self._replace([e for e in self.entries if e.origin is None or not keys.is_effect_of(scope, e.key)])

    def over_before(self, event: Event) -> list[str]:
        """Return the activations with unchecked content that are over before this event."""
        return self.unchecked.left_by(event.origin.id) if isinstance(event, _GOES_ON) else []

    def leave_before(self, event: Event) -> None:
        """Remove the unchecked answers of activations that are over, as this event shows."""
        for over in self.over_before(event):
            self.abandon(over)
            self.unchecked.finish(over)

    def abandon(self, activation: str) -> None:
        """Remove the answers of an activation that failed, if they would have been checked."""
        if activation in self.unchecked.answers:
            self._withhold(activation)

    def passed_entries(self) -> Sequence[HistoryEntry]:
        """Return the entries that are read if the run stops here: all that guardrails let pass."""
        left: list[HistoryEntry] = self.entries
        for activation in self.unchecked.answers:
            left = [entry for entry in withhold_answers(left, activation) if entry is not None]
        return [entry for entry in left if has_passed(entry, self.unchecked)]

    def _withhold(self, activation: str) -> None:
        """Remove the answers of an activation and of agents inside it."""
        self.compacted[:] = [prefix for prefix in self.compacted if not is_said_in(activation, prefix.key)]
        left = withhold_answers(self.entries, activation)
        self.compacted[:] = [
            replace(prefix, stop=sum(each is not None for each in left[: prefix.stop])) for prefix in self.compacted
        ]
        self._replace([entry for entry in left if entry is not None])

    def note_edit(self) -> None:
        """Let readers start from the beginning: entries that they have read have changed."""
        self.views.clear()
        self.edits += 1

    def _replace(self, entries: Sequence[HistoryEntry]) -> None:
        self.entries[:] = entries
        self.hidden_at[:] = [position for position, entry in enumerate(self.entries) if entry.hidden]
        self.first_messages = ()
        self.note_edit()


def _start_run(history: History, event: RunStarted, origin: Origin) -> None:
    history.run_id = event.run_id
    # Known before the agent starts, because the run may be cancelled before that.
    history.unchecked.start(keys.activation("", 1), event.input_guardrails, ())
    _restore_summaries(history, event.summaries)
    history.entries.extend([HistoryEntry(message, key=event.key) for message in event.input])
    history.inputs = len(history.entries)


def _restore_summaries(history: History, summaries: Iterable[HistorySummary]) -> None:
    """Read the summaries of a thread instead of its first entries."""
    history.compacted.clear()
    for each in summaries:
        entries = tuple(to_entries(each.messages))
        prefix = CompactedPrefix(each.readers, history.find_end(each.upto), entries, len(entries))
        history.compacted.append(prefix)
    if not history.is_whole:
        history.skipped = history.prefix_for("all")


def _start_agent(history: History, event: AgentStarted, origin: Origin) -> None:
    history.opening = None
    history.unchecked.start(event.origin.id, event.input_guardrails, event.output_guardrails)
    if event.opens is not None:
        for entry in history.entries[len(history.entries) - len(event.opens.input) :]:
            entry.key = event.key


def _add_response(history: History, event: AgentResponded, origin: Origin) -> None:
    message = event.message
    if message.tool_calls:
        history.turns[event.key] = _OpenTurn(event, message, origin, [None] * len(message.tool_calls))
    elif event.correction:
        # Only this activation reads the invalid answer; later ones read the valid one.
        history.hidden_at.append(len(history.entries))
        for each in (message, UserMessage(event.correction)):
            history.entries.append(HistoryEntry(each, origin, hidden=_WHOLE, key=event.key))
    elif event.model or not is_empty(message):
        history.entries.append(HistoryEntry(message, origin, is_answer=True, key=event.key))


def _add_result(history: History, event: ToolReturned, origin: Origin) -> None:
    for settled in event.settles:
        if settle_call(history.entries, settled, history.run_id):
            history.note_edit()
    response, position = keys.call_of(event.key)
    turn = history.turns.get(response)
    if turn is None:
        return
    turn.results[position] = event
    if None not in turn.results:
        del history.turns[response]
        _add_turn(history, turn)


def _add_turn(history: History, turn: _OpenTurn, missing: Callable[[keys.Key], str] = str) -> None:
    """Add a response and its results in the order of the calls."""
    refused: tuple[int, ...] = ()
    followed: tuple[int, ...] = ()
    has_final = False
    response = HistoryEntry(turn.message, turn.origin, key=turn.response.key)
    entries = [response]
    for position, result in enumerate(turn.results):
        if result is None:
            call = turn.message.tool_calls[position]
            key = keys.call(turn.response.key, position)
            placeholder = ToolMessage(call.id, call.name, missing(key), is_error=True)
            entries.append(HistoryEntry(placeholder, turn.origin, key=key))
            continue
        entry = HistoryEntry(result.message, turn.origin, key=result.key)
        entries.append(entry)
        if result.is_transfer_refused or result.is_task_call or _is_exit(result):
            refused += (position,)
            entry.hidden = _WHOLE
        elif result.requested_agent:
            followed += (position,)
            entry.followed = _WHOLE
        has_final = has_final or result.is_final
    if has_final and keys.is_response(turn.response.key) and (answer := _find_answer(turn.results)) is not None:
        entry = entries[answer + 1]
        entry.message = replace(entry.message, content=SHOWN_AS_ANSWER)
        entry.gives_answer = True
    response.hidden = refused
    response.followed = followed
    if refused:
        history.hidden_at.append(len(history.entries))
    history.entries.extend(entries)


def _is_exit(result: ToolReturned) -> bool:
    return result.is_final and result.tool_name == EXIT_TOOL


def _find_answer(results: Sequence[ToolReturned | None]) -> int | None:
    """Return the position of the last final result, unless the turn has another outcome."""
    answer = None
    for position, result in enumerate(results):
        if result is None:
            continue
        if result.is_final:
            answer = position
        asks_for_transfer = result.requested_agent and not result.is_disabled
        ends = not result.is_error and (result.is_task_call or _is_exit(result))
        if asks_for_transfer or ends:
            return None
    return answer


def _add_user_message(history: History, event: UserMessageAdded, origin: Origin) -> None:
    if not event.withheld:
        history.entries.append(HistoryEntry(event.message, key=event.key))


def _add_payload(history: History, event: ControlTransferred, origin: Origin) -> None:
    if event.shows_payload:
        if event.call_id is not None:
            _hide_transfer(history, event.call_id)
        payload = msgspec.json.encode(event.payload).decode()
        # It is how the source ends, and addressed to the target, which may read answers only.
        message = UserMessage(f"For context: [{event.source}] handed over with: {payload}.")
        history.entries.append(HistoryEntry(message, origin, is_answer=True, key=event.key))


def _hide_transfer(history: History, call_id: str) -> None:
    """Hide the call that was followed, and its result, because a message tells its input."""
    for position in range(len(history.entries) - 1, history.offset - 1, -1):
        entry = history.entries[position]
        message = entry.message
        if type(message) is ToolMessage and message.tool_call_id == call_id:
            entry.hide_followed()
        elif type(message) is AssistantMessage and any(call.id == call_id for call in message.tool_calls):
            entry.hide_followed()
            if position not in history.hidden_at:
                insort(history.hidden_at, position)
            return


def _end_task(history: History, event: TaskEnded, origin: Origin) -> None:
    entry = end_entry(event, origin)
    if entry is None:
        return
    summarized = max([prefix.stop for prefix in history.compacted], default=0)
    if replace_result(history.entries, event, summarized):
        history.note_edit()
    else:
        history.entries.append(entry)


def _compact(history: History, event: HistoryCompacted, origin: Origin) -> None:
    # A summary for one activation belongs to its view.
    if event.readers != "activation":
        history.compacted.append(history.prefix_of(event, origin))


def _complete_step(history: History, event: StepCompleted, origin: Origin) -> None:
    """Remove what a failed agent added, or the answer that a guardrail rejected."""
    if keys.name(event.key) == keys.FAILED:
        _report_failure(history, event, origin)
    elif activation := rejected_activation(event):
        history._withhold(activation)
    else:
        history.unchecked.note_verdict(event)


def _finish_agent(history: History, event: AgentFinished, origin: Origin) -> None:
    history.unchecked.finish(event.origin.id)


def _report_failure(history: History, event: StepCompleted, origin: Origin) -> None:
    """Replace what a failed agent added with the report of its failure, if there is one."""
    history.forget(keys.parent(event.key))
    if isinstance(event.result, str):
        history.entries.append(HistoryEntry(UserMessage(event.result), origin, key=event.key))


def _truncate_response(history: History, event: ResponseTruncated, origin: Origin) -> None:
    turn = history.turns.get(event.response_key)
    if turn is not None:
        turn.message = event.truncate(turn.message)
        return
    for entry in reversed(history.entries):
        if entry.key == event.response_key and isinstance(entry.message, AssistantMessage):
            entry.message = event.truncate(entry.message)
            history.note_edit()
            return


_FOLDS: dict[type[Event], Callable[[History, Any, Origin], None]] = {
    RunStarted: _start_run,
    AgentStarted: _start_agent,
    AgentResponded: _add_response,
    ToolReturned: _add_result,
    UserMessageAdded: _add_user_message,
    ControlTransferred: _add_payload,
    TaskEnded: _end_task,
    HistoryCompacted: _compact,
    StepCompleted: _complete_step,
    AgentFinished: _finish_agent,
    ResponseTruncated: _truncate_response,
}
