"""Messages that the user sends while a run is in progress: where agents read them, and how that is recorded."""

from collections.abc import Sequence
from time import time
from typing import Any

from ..context.run_state import SentMessage
from ..log import UserMessageAdded, keys
from .agent_context import AgentContext


def add_recorded_messages(ctx: AgentContext[Any], key: str) -> int:
    """Add the messages that were recorded before a model call to the history.

    Returns:
        The number of messages.
    """
    count = 0
    log = ctx._run.log
    while (added := log.find(keys.inside(key, f"user{count + 1}"), UserMessageAdded)) is not None:
        ctx._history.apply(added, ctx._origin)
        count += 1
    return count


async def add_sent_messages(ctx: AgentContext[Any], key: str) -> None:
    """Add what the user has sent since the last model call to the history, and record it.

    Only the agents of the outermost flow read it: a nested agent has a task of its own.
    """
    if keys.is_nested(ctx._origin.id):
        return
    log = ctx._run.log
    signals = ctx._run.signals
    count = add_recorded_messages(ctx, key) if log.has_past else 0

    def record(sent: Sequence[SentMessage]) -> list[UserMessageAdded]:
        return [
            UserMessageAdded(keys.inside(key, f"user{number}"), ctx._origin, time(), one.message, message_id=one.id)
            for number, one in enumerate(sent, count + 1)
        ]

    if signals.messages:
        sent = signals.messages
        signals.messages = []
        for event in record(sent):
            log.write(event)
            ctx._history.apply(event, ctx._origin)
        count += len(sent)
        await log.settle()
    if signals.lease is not None and signals.lease.is_steered:
        for event in await signals.lease.take_messages(record):
            log.add_stored(event)
            ctx._history.apply(event, ctx._origin)
