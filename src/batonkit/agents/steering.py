"""Messages that the user sends while a run is in progress: how they are checked, read by agents and recorded."""

from collections.abc import Iterator, Sequence
from time import time
from typing import Any

from msgspec import Struct

from ..context.run_state import SentMessage
from ..log import UserMessageAdded, keys
from .agent_context import AgentContext


def add_recorded_messages(ctx: AgentContext[Any], key: str) -> int:
    """Add the messages that were recorded before a model call to the history.

    Returns:
        The number of messages.
    """
    recorded = list(_recorded_messages(ctx, key))
    parts: dict[str, int] = {}
    for added in recorded:
        part = parts[added.message_id] = parts.get(added.message_id, -1) + 1
        for guards in ctx._input_checks:
            guards.recall_message(ctx, keys.sent_message(key, added.message_id, part))
        ctx._history.apply(added, ctx._origin)
    return len(recorded)


def _recorded_messages(ctx: AgentContext[Any], key: str) -> Iterator[UserMessageAdded]:
    log = ctx._run.log
    number = 1
    while (added := log.find(keys.inside(key, f"user{number}"), UserMessageAdded)) is not None:
        yield added
        number += 1


async def add_sent_messages(ctx: AgentContext[Any], key: str) -> None:
    """Add what the user has sent since the last model call to the history, and record it.

    Only the agents of the outermost flow read it: a nested agent has a task of its own.

    Raises:
        GuardrailTrippedError: An input guardrail of the agent rejected a message.
    """
    if keys.is_nested(ctx._origin.id):
        return
    log = ctx._run.log
    signals = ctx._run.signals
    entrance = _Entrance(ctx, key, add_recorded_messages(ctx, key) if log.has_past else 0)
    while signals.messages:
        events = await entrance.check(signals.messages[:1])
        del signals.messages[:1]
        for event in events:
            log.write(event)
        await log.settle()
        entrance.let_in(events)
    while signals.lease is not None and signals.lease.is_steered:
        events = await signals.lease.take_message(entrance.check)
        for event in events:
            log.add_stored(event)
        entrance.let_in(events)


class _Entrance(Struct):
    """Where messages enter the conversation: before a model call."""

    _ctx: AgentContext[Any]
    _key: str
    """The key of the response to the model call."""
    _count: int
    """The number of messages that are recorded there."""
    _rejection: Exception | None = None

    async def check(self, sent: Sequence[SentMessage]) -> list[UserMessageAdded]:
        """Check the parts of a message, and return the events that record them."""
        self._rejection = await self._find_rejection(sent)
        withheld = self._rejection is not None
        origin = self._ctx._origin
        return [
            UserMessageAdded(
                keys.inside(self._key, f"user{number}"),
                origin,
                time(),
                one.message,
                message_id=one.id,
                withheld=withheld,
            )
            for number, one in enumerate(sent, self._count + 1)
        ]

    def let_in(self, events: Sequence[UserMessageAdded]) -> None:
        """Let agents read the recorded parts of a message, unless it was rejected."""
        self._count += len(events)
        for event in events:
            self._ctx._history.apply(event, self._ctx._origin)
        if events and self._rejection is not None:
            raise self._rejection

    async def _find_rejection(self, sent: Sequence[SentMessage]) -> Exception | None:
        """Return the error of the first guardrail that rejects a part; None if all pass."""
        if not self._ctx._input_checks:
            return None
        messages = [*self._ctx.messages()]
        for part, one in enumerate(sent):
            messages.append(one.message)
            scope = keys.sent_message(self._key, one.id, part)
            for guards in self._ctx._input_checks:
                rejection = await guards.check_message(self._ctx, scope, messages)
                if rejection is not None:
                    return rejection
        return None
