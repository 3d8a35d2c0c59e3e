"""What the next agent reads: projections of a history. They never change the history, nor the log.

Reading is incremental: a reader remembers how far it has come, a rewritten message is made once and shared by all,
and agents that have not spoken yet read one list in common. So a transfer costs the same after ten and ten thousand.

Handoffs through a filter: what the filter is given, and what the target reads of what it gives back.
"""

from bisect import bisect_left
from collections.abc import Awaitable, Sequence
from typing import Any, cast

from msgspec import UNSET
from msgspec.structs import replace

from ..agents import AgentContext, HistoryPolicy
from ..context import HistoryEntry, RunContext
from ..context.history import History, HistoryView, MessageWindow
from ..context.run_context import needs_await
from ..errors import SetupError
from ..events import Origin
from ..handoffs import HandoffInputData, HandoffInputFilter
from ..messages import (
    AssistantMessage,
    Message,
    SystemMessage,
    Text,
    ToolMessage,
    UserMessage,
    is_empty,
    media_of,
    pair_calls_with_results,
    text_of,
    to_messages,
)

_POLICIES = ("rewritten", "verbatim", "lineage", "answers", "none")


def check_history_policy(policy: Any) -> HistoryPolicy:
    """The policy, if there is one of that name."""
    if policy in _POLICIES or callable(policy):
        return cast("HistoryPolicy", policy)
    raise SetupError(f"there is no history {policy!r}; use one of {', '.join(_POLICIES)}, or a function of entries")


def view_history(
    history: History, origin: Origin, policy: HistoryPolicy, *, hides_transfers: bool = False
) -> HistoryView:
    """What the activation with this origin reads."""
    if policy == "rewritten" or policy == "verbatim":
        # The string is the key: it is made once and its hash is known, which a tuple's is not.
        readers = history.views.get(policy)
        if readers is None:
            readers = history.views[policy] = _SharedReads(
                history.entries, history.undone_at, rewrites=policy == "rewritten", hides_transfers=hides_transfers
            )
        return _RunningView(readers, origin)
    before = history.entries
    if policy == "none":
        chosen = [entry.message for entry in before if entry.is_user_input]
    elif policy == "lineage":
        chosen = _lineage(before, origin, hides_transfers)
    elif policy == "answers":
        chosen = _answers(before, origin.agent)
    else:
        chosen = pair_calls_with_results(_chosen_by(policy, before, origin.agent))
    return _FixedView(history, chosen)


def _chosen_by(policy: Any, entries: Sequence[HistoryEntry], agent: str) -> tuple[Message, ...]:
    given: Any = policy(tuple([seen for seen in map(_as_found, entries) if seen is not None]))
    if isinstance(given, str) or not isinstance(given, Sequence):
        name = getattr(policy, "__name__", type(policy).__name__)
        raise SetupError(f"the history function `{name}` of `{agent}` must return a list of messages, not {given!r}")
    return to_messages(cast("Sequence[Message]", given))


def _as_found(entry: HistoryEntry) -> HistoryEntry | None:
    """The entry without transfers that did not happen; None if nothing is left of it."""
    if not entry.undone:
        return entry
    message = entry.as_read_later(hides_transfers=False)
    return None if message is None else HistoryEntry(message, entry.origin, entry.is_answer)


def view_of(history: History, chosen: list[Message]) -> HistoryView:
    """A choice that somebody else has made, and then what the activation itself says: the list is the view's now."""
    return _FixedView(history, chosen)


class _FixedView:
    """A choice made once, when the activation begins; then what the activation itself says."""

    __slots__ = ("_history", "_messages", "_position")

    def __init__(self, history: History, chosen: list[Message]) -> None:
        self._history = history
        self._messages = chosen
        self._position = len(history.entries)

    def messages(self) -> Sequence[Message]:
        """The choice, and everything since."""
        entries = self._history.entries
        if self._position < len(entries):
            self._messages.extend([entry.message for entry in entries[self._position :]])
            self._position = len(entries)
        return MessageWindow(self._messages, len(self._messages))


class _ReadPosition:
    """A list of messages read so far, and how far that is."""

    __slots__ = ("is_common", "is_private", "messages", "position")

    def __init__(
        self, messages: list[Message], position: int, *, is_common: bool = False, is_private: bool = False
    ) -> None:
        self.messages = messages
        self.position = position
        self.is_common = is_common
        """Whether those read it who have not spoken yet; to them everybody is somebody else."""
        self.is_private = is_private
        """Whether only one activation reads it."""


class _SharedReads:
    """Those who read all of one history in one way: in common until they speak, then each for itself."""

    __slots__ = ("_authors", "_common", "_own", "entries", "hides", "rewrites", "undone_at")

    def __init__(
        self, entries: list[HistoryEntry], undone_at: list[int], *, rewrites: bool, hides_transfers: bool
    ) -> None:
        # The lists and not the history that has them: it has its readers, and a ring would wait for the collector.
        self.entries = entries
        self.undone_at = undone_at
        self.rewrites = rewrites
        self.hides = hides_transfers
        self._common = _ReadPosition([], 0, is_common=True)
        self._own: dict[str, _ReadPosition] = {}
        self._authors: set[str] = set()

    def reader_for(self, origin: Origin, start: int) -> _ReadPosition:
        """A list for an activation that began at `start`, read up to there."""
        reader = self._own.get(origin.agent)
        if reader is not None:
            self.read_on(reader, origin, start)
            return reader
        self.read_on(self._common, origin, start)
        if not self.rewrites or origin.agent not in self._authors:
            return self._common
        reader = self._own[origin.agent] = _ReadPosition([], 0)
        self.read_on(reader, origin, start)
        return reader

    def reader_for_own_words(self, reader: _ReadPosition, origin: Origin) -> _ReadPosition:
        """A list for an activation that has spoken and goes on reading."""
        if reader.is_private:
            return reader
        if self.undone_at and self.undone_at[-1] >= reader.position:
            # This activation reads of transfers that did not happen; later ones will not.
            return _ReadPosition(list(reader.messages), reader.position, is_private=True)
        if reader.is_common and self.rewrites:
            reader = self._own[origin.agent] = _ReadPosition(list(reader.messages), reader.position)
        return reader

    def read_on(self, reader: _ReadPosition, origin: Origin, stop: int) -> None:
        """Read what has been said up to `stop`, in the words in which this activation reads it."""
        messages, hides, rewrites = reader.messages, self.hides, self.rewrites
        start = reader.position
        if start < stop:
            reader.position = stop
        me = None if reader.is_common else origin.agent
        last_author: Origin | None = None
        for entry in self.entries[start:stop]:
            author = entry.origin
            if author is origin:
                messages.append(entry.message)
                continue
            if me is None and author is not last_author and author is not None:
                self._authors.add(author.agent)
                last_author = author
            if rewrites and (author is None or author.agent != me):
                message = entry.rewritten
                if hides or entry.undone:
                    message = rewrite_entry(entry, hides_transfers=hides)
                elif message is UNSET:
                    message = entry.rewritten = rewritten(entry.message, author.agent if author is not None else None)
            elif entry.undone or (hides and entry.followed):
                message = entry.as_read_later(hides_transfers=hides)
            else:
                message = entry.message
            if message is not None:
                messages.append(message)


class _RunningView:
    """Everything, incrementally: the agent's own messages as they are, the others' rewritten or as they are."""

    __slots__ = ("_origin", "_reader", "_readers", "_start")

    def __init__(self, readers: _SharedReads, origin: Origin) -> None:
        self._readers = readers
        self._origin = origin
        self._start = len(readers.entries)
        self._reader: _ReadPosition | None = None

    def messages(self) -> Sequence[Message]:
        """All there is to read by now."""
        reader, readers = self._reader, self._readers
        if reader is None:
            # A resumed activation may have spoken before it reads for the first time; that is no common reading.
            reader = self._reader = readers.reader_for(self._origin, self._start)
        stop = len(readers.entries)
        if reader.position < stop:
            reader = self._reader = readers.reader_for_own_words(reader, self._origin)
            readers.read_on(reader, self._origin, stop)
        return MessageWindow(reader.messages, len(reader.messages))


def rewrite_entry(entry: HistoryEntry, *, hides_transfers: bool = False) -> Message | None:
    """The entry in the words in which everybody but its author reads it; None if nothing is left of it."""
    if hides_transfers and entry.followed:
        if entry.rewritten_bare is UNSET:
            entry.rewritten_bare = rewritten(entry.as_read_later(hides_transfers=True), entry.author)
        return entry.rewritten_bare
    if entry.rewritten is UNSET:
        message = entry.as_read_later(hides_transfers=False) if entry.undone else entry.message
        entry.rewritten = rewritten(message, entry.author)
    return entry.rewritten


def rewritten(message: Message | None, author: str | None) -> Message | None:
    """The message in the words in which everybody but its author reads it; input, which has no author, as it is."""
    if message is None:
        return None
    content = message.content
    text = content if isinstance(content, str) else text_of(content)
    # `type(…) is`, here and on other paths that every transfer takes: isinstance on a struct costs several times more.
    if author is not None and type(message) is AssistantMessage:
        if not text and text is content and len(message.tool_calls) == 1:
            # What nearly every transfer and tool call looks like.
            call = message.tool_calls[0]
            return UserMessage(f"For context: [{author}] called tool: `{call.name}` with arguments: {call.arguments}.")
        told = f" [{author}] said: {text}." if text else ""
        for call in message.tool_calls:
            told += f" [{author}] called tool: `{call.name}` with arguments: {call.arguments}."
    elif author is not None and type(message) is ToolMessage:
        told = f" [{author}] `{message.name}` tool returned result: {text}." if text else ""
    else:
        return None if is_empty(message) else message
    if text is not content and (media := media_of(content)):
        return UserMessage((Text("For context:" + told), *media) if told else media)
    return UserMessage("For context:" + told) if told else None


def _lineage(entries: Sequence[HistoryEntry], mine: Origin, hides_transfers: bool) -> list[Message]:
    ancestors: set[Origin] = set()
    origin: Origin | None = mine
    while origin is not None:
        ancestors.add(origin)
        origin = origin.parent
    kept = [entry for entry in entries if entry.origin is None or entry.origin in ancestors]
    return _as_read_by(kept, mine.agent, hides_transfers)


def _answers(entries: Sequence[HistoryEntry], me: str) -> list[Message]:
    kept = [entry for entry in entries if entry.is_user_input or entry.is_answer]
    return _as_read_by([_as_spoken(entry) if entry.author == me else entry for entry in kept], me, True)


def _as_spoken(entry: HistoryEntry) -> HistoryEntry:
    """The entry; a result that is the answer as if its author had said it, for its call is not among the answers."""
    message = entry.message
    return HistoryEntry(AssistantMessage(message.content), entry.origin) if isinstance(message, ToolMessage) else entry


def _as_read_by(entries: Sequence[HistoryEntry], me: str, hides_transfers: bool) -> list[Message]:
    read = [
        entry.as_read_later(hides_transfers=hides_transfers)
        if entry.author == me
        else rewrite_entry(entry, hides_transfers=hides_transfers)
        for entry in entries
    ]
    return pair_calls_with_results([message for message in read if message is not None])


_MESSAGES = frozenset((SystemMessage, UserMessage, AssistantMessage, ToolMessage))


class FilterInput:
    """A history as filters are given it: each message with its author in it. Made once, and longer with the history."""

    __slots__ = ("_entries", "_gone", "_hides", "_input_history", "_messages", "_position", "_sources")

    def __init__(self, history: History, *, hides_transfers: bool) -> None:
        self._entries = history.entries
        self._hides = hides_transfers
        self._position = history.inputs
        """How far the history has been read."""
        self._input_history = tuple([entry.message for entry in history.entries[: history.inputs]])
        self._messages: list[Message] = []
        """What was said since."""
        self._gone: list[int] = []
        """Where entries stand of which filters read nothing."""
        self._sources: dict[int, HistoryEntry] = {}
        """For each message, by identity: the entry it was taken from, which knows how everybody else reads it."""

    def data(self, ctx: AgentContext[Any]) -> HandoffInputData:
        """Everything said so far, cut where the turn that hands off begins."""
        self._read_on()
        messages, inputs = self._messages, self._input_history
        cut = max(ctx._turn_start - len(inputs), 0)
        if self._gone:
            cut -= bisect_left(self._gone, ctx._turn_start)
        return HandoffInputData(
            input_history=inputs,
            pre_handoff_items=tuple(messages[:cut]),
            new_items=tuple(messages[cut:]),
            run_context=RunContext(ctx._run, ctx._origin, f"{ctx._scope}/filter"),
        )

    def as_read(self, data: HandoffInputData, target: str, source: str, *, rewrites: bool) -> list[Message]:
        """The filtered messages in the words in which the target reads them, valid for every provider."""
        for section in (data.input_history, data.pre_handoff_items, data.new_items):
            if type(section) is not tuple:
                _check_section(section, source, target)
        read = list(data.input_history)
        if data.input_history is not self._input_history:
            read = [_as_message(message) for message in read]
        is_whole = True
        for message in read:
            is_whole = is_whole and type(message) is UserMessage
        sources, hides = self._sources if rewrites else {}, self._hides
        for section in (data.pre_handoff_items, data.new_items):
            for message in section:
                # What the filter left as it was has been rewritten before, or is for whoever reads it next.
                entry = sources.get(id(message))
                if entry is not None and entry.origin is not None and entry.origin.agent != target:
                    shown = rewrite_entry(entry, hides_transfers=hides)
                else:
                    shown = _as_read(_as_message(message), target, source, rewrites=rewrites)
                    is_whole = is_whole and type(shown) is UserMessage
                if shown is not None:
                    read.append(shown)
        return read if is_whole else pair_calls_with_results(read)

    def _read_on(self) -> None:
        entries, hides = self._entries, self._hides
        for position in range(self._position, len(entries)):
            entry = entries[position]
            message = entry.as_read_later(hides_transfers=hides) if entry.undone or hides else entry.message
            if message is None:
                self._gone.append(position)
                continue
            origin = entry.origin
            if origin is not None:
                if type(message) is AssistantMessage:
                    message = AssistantMessage(message.content, message.tool_calls, message.reasoning, origin.agent)
                elif type(message) is ToolMessage:
                    message = ToolMessage(
                        message.tool_call_id, message.name, message.content, message.is_error, origin.agent
                    )
                self._sources[id(message)] = entry
            self._messages.append(message)
        self._position = len(entries)


def excerpts_of(history: History, *, hides_transfers: bool) -> FilterInput:
    """The excerpts of this history; whoever asks first makes them."""
    excerpts = history.views.get(FilterInput)
    if excerpts is None:
        excerpts = history.views[FilterInput] = FilterInput(history, hides_transfers=hides_transfers)
    return excerpts


async def given_by(
    input_filter: HandoffInputFilter, given: HandoffInputData | Awaitable[HandoffInputData], source: str, target: str
) -> HandoffInputData:
    """What the filter gives, waited for if need be. Raises SetupError if that is something else."""
    data: Any = given
    if needs_await(data):
        data = await data
    if not isinstance(data, HandoffInputData):
        name = getattr(input_filter, "__name__", type(input_filter).__name__)
        raise SetupError(
            f"the filter `{name}` of the handoff from `{source}` to `{target}` returned {type(data).__name__}; "
            "it must return HandoffInputData, for instance data.clone(…)"
        )
    return data


def _check_section(section: Any, source: str, target: str) -> None:
    if isinstance(section, str) or not isinstance(section, Sequence):
        raise SetupError(f"a filter of the handoff from `{source}` to `{target}` gave {section!r}, not messages")


def _as_message(item: Any) -> Message:
    return item if type(item) in _MESSAGES else to_messages([item])[0]


def _as_read(message: Message, target: str, source: str, *, rewrites: bool) -> Message | None:
    """How the target reads a message that it wrote itself, or that a filter has changed or made."""
    if type(message) is not AssistantMessage and type(message) is not ToolMessage:
        return message
    author, shown = message.author or source, replace(message, author="")
    return rewritten(shown, author) if rewrites and author != target else shown
