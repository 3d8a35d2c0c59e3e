"""Events that the active agent of a realtime session processes one at a time."""

import asyncio
from typing import Any, TypeAlias

from msgspec import Struct

from ..errors import GuardrailTrippedError
from ..messages import UserMessage
from .agent_definition import RealtimeDefinition
from .protocol import AudioCommitted, ResponseEnded, ResponseStarted, TranscriptionCompleted, TranscriptionFailed


class TextReceived(Struct, frozen=True):
    """A user message from the application; `done` is set once it is logged and sent."""

    message: UserMessage
    done: "asyncio.Future[None]"
    respond: bool = True


class ResponseInterrupted(Struct, frozen=True):
    """The user interrupted an item; `heard` is the text that was played."""

    item_id: str
    heard: str
    played_ms: int


class TurnEnded(Struct, frozen=True):
    """The tool calls of a response have been executed."""

    task: "asyncio.Task[Any]"


class TransferRequested(Struct, frozen=True):
    """The application requested a transfer. `new_agent` is set if the target is not in the team."""

    target: str
    done: "asyncio.Future[None]"
    new_agent: RealtimeDefinition[Any] | None = None


class GuardrailFired(Struct, frozen=True):
    """A guardrail rejected the current response."""

    trip: GuardrailTrippedError


class SessionEnded(Struct, frozen=True):
    """The session was closed by either side, or its connection was lost for good."""

    is_by_provider: bool = False
    error: BaseException | None = None


class RefreshRequested(Struct, frozen=True):
    """Wakes the agent up. `processed` is set once every earlier event was processed."""

    processed: "asyncio.Future[None] | None" = None


MailboxEvent: TypeAlias = (
    ResponseStarted
    | ResponseEnded
    | AudioCommitted
    | TranscriptionCompleted
    | TranscriptionFailed
    | TextReceived
    | ResponseInterrupted
    | TurnEnded
    | TransferRequested
    | GuardrailFired
    | SessionEnded
    | RefreshRequested
)
