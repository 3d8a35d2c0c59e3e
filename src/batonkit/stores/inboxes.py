"""Code that all stores share for messages that wait for a thread: checks, and the state of an inbox."""

from collections.abc import Sequence
from typing import Any, LiteralString

from msgspec import ValidationError, convert
from msgspec.structs import replace

from ..errors import InboxFullError, MessageGoneError, StoreError, ThreadBusyError
from .store import CancelRequest, InboxState, RunRecord, WaitingMessage, WaitMode

_STRENGTH: dict[CancelRequest, int] = {"": 0, "after_turn": 1, "after_response": 2, "now": 3}
INBOX_COLUMNS: LiteralString = "run_id, thread, mode, owner, body, number, created_at"
"""The columns of a waiting message in a database."""
_NAMES = INBOX_COLUMNS.split(", ")
WAITING = "waiting"
"""The status that ThreadBusyError shows for a message that has not become a run yet."""


def stronger_request(known: CancelRequest, when: CancelRequest) -> CancelRequest:
    """Return the request that cancels earlier."""
    return when if _STRENGTH[when] > _STRENGTH[known] else known


def weaker_requests(when: CancelRequest) -> list[CancelRequest]:
    """Return the requests that this one replaces."""
    return [request for request, strength in _STRENGTH.items() if strength < _STRENGTH[when]]


def inbox_state(oldest: WaitMode | None) -> InboxState:
    """Return the state of an inbox from the mode of its oldest message; None if it is empty."""
    if oldest is None:
        return ""
    return "steer" if oldest == "steer" else "waiting"


def state_of(messages: Sequence[WaitingMessage]) -> InboxState:
    """Return the state of an inbox that has these messages, oldest first."""
    return inbox_state(messages[0].mode if messages else None)


def check_room(thread: str, count: int, limit: int) -> None:
    """Raise InboxFullError if so many messages wait already."""
    if count >= limit:
        raise InboxFullError(thread, limit)


def check_taken(take: Sequence[str], oldest: Sequence[str]) -> None:
    """Raise MessageGoneError unless the messages to take are the oldest ones."""
    for position, run_id in enumerate(take):
        if position >= len(oldest) or oldest[position] != run_id:
            raise MessageGoneError(run_id)


def check_turn(thread: str, oldest: str, run_id: str, *, from_inbox: bool) -> None:
    """Check that a new run of a thread does not overtake a waiting message.

    Raises:
        MessageGoneError: Its message does not wait.
        ThreadBusyError: Another message is the oldest one.
    """
    if oldest and not (from_inbox and oldest == run_id):
        raise ThreadBusyError(thread, oldest, WAITING)
    if from_inbox and not oldest:
        raise MessageGoneError(run_id)


def after_enqueue(record: RunRecord, state: InboxState, mode: WaitMode) -> RunRecord:
    """Return the record of an unfinished run whose thread got a message."""
    if mode == "preempt" and record.status == "running":
        request = stronger_request(record.cancel_requested, "after_turn")
        return replace(record, inbox=state, cancel_requested=request)
    return record if record.inbox == state else replace(record, inbox=state)


def row_to_message(row: Sequence[Any]) -> WaitingMessage:
    """Convert a row of `INBOX_COLUMNS` to a message. Raises StoreError if it is damaged."""
    try:
        return convert(dict(zip(_NAMES, row, strict=True)), WaitingMessage)
    except ValidationError as problem:
        raise StoreError(f"the waiting message `{row[0]}` is damaged: {problem}") from problem
