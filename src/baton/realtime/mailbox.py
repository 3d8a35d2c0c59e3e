"""What the agent that has the floor must take note of, one after the other."""

import asyncio
from typing import Any, TypeAlias

from msgspec import Struct

from ..errors import GuardrailTrippedError
from ..messages import UserMessage
from .definition import RealtimeDefinition
from .protocol import AudioCommitted, ResponseEnded, ResponseStarted, TranscriptionCompleted, TranscriptionFailed


class TextReceived(Struct, frozen=True):
    """The user wrote something. `done` is told when it is on record and the model knows it."""

    message: UserMessage
    done: "asyncio.Future[None]"
    wants_answer: bool = True


class ResponseInterrupted(Struct, frozen=True):
    """Of what was said as this item, the user heard only so much."""

    item_id: str
    heard: str
    played_ms: int


class TurnEnded(Struct, frozen=True):
    """The calls of a response have been carried out."""

    task: "asyncio.Task[Any]"


class TransferRequested(Struct, frozen=True):
    """The application wants somebody to have the floor; `guest` is new to the team."""

    target: str
    done: "asyncio.Future[None]"
    guest: RealtimeDefinition[Any] | None = None


class GuardrailFired(Struct, frozen=True):
    """A guardrail said no to what is being said."""

    trip: GuardrailTrippedError


class SessionEnded(Struct, frozen=True):
    """The conversation is over: by the application, which wants all to stop, or by the provider; or it is lost."""

    is_by_provider: bool = False
    error: BaseException | None = None


class RefreshRequested(Struct, frozen=True):
    """There may be something to go on with. `noted` is told that all before it has been taken note of."""

    noted: "asyncio.Future[None] | None" = None


Happening: TypeAlias = (
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
