"""The entries of a history: messages with their authors, and what other activations do not read of them."""

from collections.abc import Iterable, Iterator, Sequence

import msgspec
from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace

from ..messages import AssistantMessage, Message, ToolMessage, UserMessage, is_empty
from .event import Origin
from .events import EventRef, SettledCall, SummaryMessage, TaskEnded

EXIT_TOOL = "exit"
"""The name of the tool of `Agent(exit_tool=True)`, which ends the run."""
FINISH_TOOL = "finish_task"
"""The name of the tool that ends a task with its result."""
SHOWN_AS_ANSWER = "The user reads the result of this call as the answer below"
"""The result of a call that gave the answer, as agents read it."""
WHOLE_MESSAGE = -1
"""Used instead of a call's position: the whole message is hidden."""


class HistoryEntry(Struct, gc=False):
    """A message in a history, with its author and the parts that other activations do not read."""

    message: Message
    """The message, as its author wrote it."""
    origin: Origin | None = None
    """The activation that it comes from; None for user input."""
    is_answer: bool = False
    """True if it is the answer of its activation."""
    hidden: tuple[int, ...] = ()
    """The positions of calls that other activations do not read.

    Their transfer was refused, or it was followed and a message of its own tells its input.
    """
    followed: tuple[int, ...] = ()
    """The position of the call whose transfer was followed."""
    rewritten: Message | None | UnsetType = UNSET
    """Cache of the message as other agents read it."""
    rewritten_bare: Message | None | UnsetType = UNSET
    """Cache of the message as other agents read it without the transfer."""
    event: EventRef | None = None
    """The response that it is, if it comes from an earlier run of the thread."""
    key: str = ""
    """The key of the event that it comes from, if that is of the run itself."""
    gives_answer: bool = False
    """True if it is the result of a call, and a message after it says it as the answer."""

    def for_others(self, *, hide_transfers: bool) -> Message | None:
        """Return the message as other activations find it; None if nothing is left of it.

        Args:
            hide_transfers: Whether to leave out the followed transfer as well.
        """
        return self._without(self.hidden + self.followed if hide_transfers else self.hidden)

    def for_filters(self, *, hide_transfers: bool) -> Message | None:
        """Return the message as filters of handoffs find it, with the transfer that was followed.

        Args:
            hide_transfers: Whether to leave out the followed transfer nevertheless.
        """
        return self._without(self.hidden + self.followed if hide_transfers else self.refused)

    @property
    def refused(self) -> tuple[int, ...]:
        """The positions of calls whose transfer was refused."""
        return tuple([position for position in self.hidden if position not in self.followed])

    def hide_followed(self) -> None:
        """Let other activations not read the transfer that was followed."""
        self.hidden = (*self.refused, *self.followed)
        self.rewritten = UNSET

    def _without(self, hidden: tuple[int, ...]) -> Message | None:
        if not hidden:
            return self.message
        if hidden[0] == WHOLE_MESSAGE or not isinstance(self.message, AssistantMessage):
            return None
        calls = tuple(call for position, call in enumerate(self.message.tool_calls) if position not in hidden)
        if not calls and is_empty(AssistantMessage(self.message.content)):
            return None
        return replace(self.message, tool_calls=calls)

    @property
    def author(self) -> str | None:
        """The name of the agent that wrote it; None for user input."""
        return self.origin.agent if self.origin is not None else None

    @property
    def path(self) -> tuple[str, ...]:
        """The run path of its activation; empty for user input."""
        return self.origin.path if self.origin is not None else ()

    @property
    def is_user_input(self) -> bool:
        """True for input of the run, or of earlier runs in its thread."""
        return self.origin is None

    @property
    def is_of_turn(self) -> bool:
        """True for an agent's response or a result of its calls; not for an invalid answer."""
        if self.origin is None:
            return False
        kind = type(self.message)
        return kind is ToolMessage or (kind is AssistantMessage and self.hidden != (WHOLE_MESSAGE,))


def end_of_turn(entries: Sequence[HistoryEntry], response: int) -> int:
    """Return the position after a response and the results of its calls; 0 for the position -1."""
    stop = response + 1
    while 0 < stop < len(entries) and entries[stop].is_of_turn and type(entries[stop].message) is ToolMessage:
        stop += 1
    return stop


def to_entries(summary: Iterable[SummaryMessage], origins: Iterable[Origin] = ()) -> Iterator[HistoryEntry]:
    """Convert a recorded summary to entries."""
    known = {origin.id: origin for origin in origins}
    for each in summary:
        origin = None
        if each.agent:
            origin = known.get(each.activation) or known.setdefault(
                each.activation, Origin(each.activation, each.agent)
            )
        yield HistoryEntry(each.message, origin, each.is_answer, each.hidden, each.followed)


# The end of a task is read in the place of the call that opened it.


def format_result(result: object) -> str:
    """Return the result of a task as models read it: text as it is, anything else as JSON."""
    return result if isinstance(result, str) else msgspec.json.encode(result).decode()


def _describe_end(ended: TaskEnded) -> str:
    """Return what agents read of the end of a task; "" if they read nothing."""
    if ended.outcome == "finished":
        return format_result(ended.result)
    if ended.outcome == "cancelled":
        return f"The task was cancelled: {ended.reason}" if ended.reason else "The task was cancelled."
    if ended.outcome == "declined":
        return f"[{ended.task.agent}] handed the conversation back without a result."
    return ""


def end_entry(ended: TaskEnded, origin: Origin) -> HistoryEntry | None:
    """Return the entry for the end of a task whose call is not in the history, if any."""
    text = _describe_end(ended)
    told = f"For context: the task that [{ended.task.caller}] gave to [{ended.task.agent}] ended with: {text}"
    return HistoryEntry(UserMessage(told), origin, is_answer=True, key=ended.key) if text else None


def settle_call(entries: list[HistoryEntry], settled: SettledCall, run_id: str = "") -> bool:
    """Replace the result of a call in doubt with its outcome; return whether it was found.

    Args:
        entries: The entries.
        settled: The outcome.
        run_id: The run that added the last of the entries, which name their events by key only.
    """
    is_own = settled.event.run_id == run_id
    for position in range(len(entries) - 1, -1, -1):
        entry = entries[position]
        message = entry.message
        is_named = entry.key == settled.event.key if is_own else entry.event == settled.event
        if is_named and type(message) is ToolMessage:
            told = replace(message, content=settled.content, is_error=settled.is_error)
            entries[position] = replace(entry, message=told, rewritten=UNSET, rewritten_bare=UNSET)
            return True
    return False


def replace_result(entries: list[HistoryEntry], ended: TaskEnded, summarized: int) -> bool:
    """Replace the result of the call that opened a task with the end of the task.

    Entries are replaced, not changed: other runs of the thread may share them. A call that a summary covers keeps its
    result: readers of the summary would not find the end of the task there.

    Returns:
        True if the call is among the entries that all readers read.
    """
    call_id = ended.task.call_id
    text = _describe_end(ended)
    if call_id is None or not text:
        return False
    # The id of a handoff is the name of its tool, and a number if several share the name.
    told = ToolMessage(call_id, ended.task.handoff.partition("#")[0], text)
    is_replaced = False
    for position in range(len(entries) - 1, summarized - 1, -1):
        entry = entries[position]
        message = entry.message
        if not is_replaced and type(message) is ToolMessage and message.tool_call_id == call_id:
            # An ended task reads like any tool call, also where transfers are hidden.
            entries[position] = HistoryEntry(told, entry.origin, is_answer=True, key=entry.key)
            is_replaced = True
        elif is_replaced and type(message) is AssistantMessage and any(c.id == call_id for c in message.tool_calls):
            entries[position] = HistoryEntry(
                message, entry.origin, entry.is_answer, entry.refused, event=entry.event, key=entry.key
            )
            return True
    return is_replaced
