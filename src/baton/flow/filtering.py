"""Handoffs through a filter: what the filter is given, and what the target reads of what it gives back."""

from collections.abc import Sequence
from typing import Any, cast

from msgspec.structs import replace

from ..agents import AgentContext, settled
from ..context import Entry, History, RunContext
from ..errors import SetupError
from ..handoffs import HandoffInputData, InputFilter
from ..messages import AssistantMessage, Message, ToolMessage, as_messages, paired
from .history import rewritten


def handoff_data(history: History, ctx: AgentContext[Any], *, hides_transfers: bool) -> HandoffInputData:
    """Everything said so far, cut where the turn that hands off begins; each message says whose words it is."""
    entries = history.entries
    before = [entry for entry in entries[: ctx.turn_start] if not entry.is_user_input]
    return HandoffInputData(
        input_history=tuple(entry.message for entry in entries if entry.is_user_input),
        pre_handoff_items=_authored(before, hides_transfers),
        new_items=_authored(entries[ctx.turn_start :], hides_transfers),
        run_context=RunContext(ctx.run, ctx.origin, f"{ctx.scope}/filter"),
    )


def _authored(entries: Sequence[Entry], hides_transfers: bool) -> tuple[Message, ...]:
    messages: list[Message] = []
    for entry in entries:
        message = entry.as_read_later(hides_transfers=hides_transfers)
        if isinstance(message, AssistantMessage | ToolMessage):
            message = replace(message, author=entry.author or "")
        if message is not None:
            messages.append(message)
    return tuple(messages)


async def through_filter(input_filter: InputFilter, data: HandoffInputData, edge: str) -> HandoffInputData:
    """What the filter gives. Raises SetupError if that is something else."""
    given: Any = await settled(input_filter(data))
    if not isinstance(given, HandoffInputData):
        name = getattr(input_filter, "__name__", type(input_filter).__name__)
        raise SetupError(
            f"the filter `{name}` of the handoff {edge} returned {type(given).__name__}; "
            "it must return HandoffInputData, for instance data.clone(…)"
        )
    return given


def as_target_reads(data: HandoffInputData, target: str, source: str, *, rewrites: bool) -> list[Message]:
    """The filtered messages in the words in which the target reads them, valid for every provider."""
    items = [*data.input_history, *data.pre_handoff_items, *data.new_items]
    read: list[Message] = []
    inputs = len(data.input_history)
    for position, message in enumerate(as_messages(cast(Any, items))):
        if isinstance(message, AssistantMessage | ToolMessage):
            author = message.author or (None if position < inputs else source)
            message = replace(message, author="")
            if rewrites and author != target:
                shown = rewritten(message, author)
                read.extend([shown] if shown is not None else [])
                continue
        read.append(message)
    return paired(read)
