"""Handoffs through a filter: what the filter is given, and what the target reads of what it gives back."""

from collections.abc import Sequence
from typing import Any, cast

from msgspec.structs import replace

from ..agents import AgentContext
from ..context import History, RunContext, is_to_await
from ..errors import SetupError
from ..handoffs import HandoffInputData, InputFilter
from ..messages import AssistantMessage, Message, SystemMessage, ToolMessage, UserMessage, as_messages, paired
from .history import as_read_by_others, rewritten

_MESSAGES = frozenset((SystemMessage, UserMessage, AssistantMessage, ToolMessage))


class Excerpts:
    """A history as filters are given it: each message with its author in it. Made once, and longer with the history."""

    __slots__ = ("_entries", "_hides", "_inputs", "_messages", "_words_of")

    def __init__(self, history: History, *, hides_transfers: bool) -> None:
        self._entries = history.entries
        self._inputs = history.inputs
        self._hides = hides_transfers
        self._messages: list[Message | None] = []
        self._words_of: dict[int, tuple[str, Message | None]] = {}
        """For each message, by identity: its author, and how everybody else reads it."""

    def data(self, ctx: AgentContext[Any]) -> HandoffInputData:
        """Everything said so far, cut where the turn that hands off begins."""
        self._read_on()
        messages, inputs, cut = self._messages, self._inputs, ctx.turn_start
        return HandoffInputData(
            input_history=tuple(filter(None, messages[:inputs])),
            pre_handoff_items=tuple(filter(None, messages[inputs:cut])),
            new_items=tuple(filter(None, messages[max(inputs, cut) :])),
            run_context=RunContext(ctx.run, ctx.origin, f"{ctx.scope}/filter"),
        )

    def as_read(self, data: HandoffInputData, target: str, source: str, *, rewrites: bool) -> list[Message]:
        """The filtered messages in the words in which the target reads them, valid for every provider."""
        read: list[Message] = [*_as_messages(data.input_history)]
        is_whole = True
        for message in read:
            is_whole = is_whole and type(message) is UserMessage
        words_of = self._words_of if rewrites else {}
        for message in _as_messages([*data.pre_handoff_items, *data.new_items]):
            # What the filter left as it was has been rewritten before.
            words = words_of.get(id(message))
            if words is not None and words[0] != target:
                shown = words[1]
            elif type(message) is AssistantMessage or type(message) is ToolMessage:
                author = message.author or source
                shown = replace(message, author="")
                if rewrites and author != target:
                    shown = rewritten(shown, author)
                else:
                    is_whole = False
            else:
                shown = message
                is_whole = is_whole and type(message) is UserMessage
            if shown is not None:
                read.append(shown)
        return read if is_whole else paired(read)

    def _read_on(self) -> None:
        for entry in self._entries[len(self._messages) :]:
            message = entry.as_read_later(hides_transfers=self._hides) if entry.undone or self._hides else entry.message
            if entry.origin is not None and message is not None:
                author = entry.origin.agent
                message = _with_author(message, author)
                self._words_of[id(message)] = (author, as_read_by_others(entry, hides_transfers=self._hides))
            self._messages.append(message)


def _with_author(message: Message, author: str) -> Message:
    if type(message) is AssistantMessage:
        return AssistantMessage(message.content, message.calls, message.reasoning, author)
    if type(message) is ToolMessage:
        return ToolMessage(message.call_id, message.name, message.content, message.is_error, author)
    return message


def excerpts_of(history: History, *, hides_transfers: bool) -> Excerpts:
    """The excerpts of this history; whoever asks first makes them."""
    excerpts = history.views.get(Excerpts)
    if excerpts is None:
        excerpts = history.views[Excerpts] = Excerpts(history, hides_transfers=hides_transfers)
    return excerpts


async def through_filter(
    input_filter: InputFilter, data: HandoffInputData, source: str, target: str
) -> HandoffInputData:
    """What the filter gives. Raises SetupError if that is something else."""
    given: Any = input_filter(data)
    if type(given) is not HandoffInputData and is_to_await(given):
        given = await given
    if not isinstance(given, HandoffInputData):
        name = getattr(input_filter, "__name__", type(input_filter).__name__)
        raise SetupError(
            f"the filter `{name}` of the handoff from `{source}` to `{target}` returned {type(given).__name__}; "
            "it must return HandoffInputData, for instance data.clone(…)"
        )
    for section in (given.input_history, given.pre_handoff_items, given.new_items):
        if type(section) is not tuple and (isinstance(section, str) or not isinstance(cast(Any, section), Sequence)):
            raise SetupError(f"a filter of the handoff from `{source}` to `{target}` gave {section!r}, not messages")
    return given


def _as_messages(items: Sequence[Any]) -> Sequence[Message]:
    for item in items:
        if type(item) not in _MESSAGES:
            return as_messages(cast(Any, items))
    return items
