"""The content of messages that wait for a run, and messages that came with a resumption."""

from collections.abc import Sequence
from typing import Literal

import msgspec

from ...context.run_state import SentMessage
from ...errors import SetupError
from ...log import Event, RunResumed, RunStarted, UserMessageAdded, decode_event, encode_event
from ...messages import UserMessage
from ...stores import WaitingMessage, WaitMode
from ..run_args import StartAt


class Schedule(msgspec.Struct, frozen=True):
    """When workers drive a submitted run."""

    wake_at: float = 0.0
    """The time before which it is not driven, by the store's clock."""
    priority: int = 0
    """Runs with a higher priority are driven first."""


ANY_TIME = Schedule()
"""The schedule of a run that is driven as soon as a worker is free."""


class _Body(msgspec.Struct, omit_defaults=True):
    """The first event of the run that a message becomes, and where and when that run starts."""

    started: msgspec.Raw
    start_at: Literal["active", "root"] = "active"
    schedule: Schedule = ANY_TIME


def to_message(started: RunStarted, mode: WaitMode, start_at: StartAt, schedule: Schedule = ANY_TIME) -> WaitingMessage:
    """Return the waiting message that becomes a run.

    Raises:
        SetupError: The message cannot steer a run.
    """
    if mode == "steer" and not all(isinstance(message, UserMessage) for message in started.input):
        raise SetupError(
            'when_busy="steer" takes a text or user messages; other messages can only start a run: when_busy="queue"'
        )
    body = msgspec.json.encode(_Body(msgspec.Raw(encode_event(started)), start_at, schedule))
    return WaitingMessage(run_id=started.run_id, thread=started.thread, mode=mode, owner=started.owner, body=body)


def from_message(message: WaitingMessage) -> tuple[RunStarted, StartAt, Schedule]:
    """Return the first event of a message's run, the agent it starts with, and its schedule."""
    body = msgspec.json.decode(message.body, type=_Body)
    started = decode_event(bytes(body.started))
    assert isinstance(started, RunStarted), "a waiting message holds the first event of its run"
    return started, body.start_at, body.schedule


def user_messages_of(message: WaitingMessage) -> list[UserMessage]:
    """Return what the user says in a message that steers a run."""
    return [one for one in from_message(message)[0].input if isinstance(one, UserMessage)]


def unread_messages(events: Sequence[Event]) -> list[SentMessage]:
    """Return the messages that came with resumptions and that no agent has read."""
    unread: dict[str, SentMessage] = {}
    for event in events:
        if type(event) is RunResumed and event.message is not None:
            unread[event.key] = SentMessage(event.message, event.key)
        elif type(event) is UserMessageAdded and event.message_id:
            unread.pop(event.message_id, None)
    return [*unread.values()]
