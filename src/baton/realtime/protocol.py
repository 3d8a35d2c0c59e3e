"""The contract of a realtime model: a connection that is open both ways for as long as a conversation lasts.

What a live conversation tells its model. `id` comes back in the Trouble that a command may cause.

What a model tells during a live conversation, whoever the provider is.
"""

from collections.abc import AsyncIterator
from typing import Literal, Protocol, TypeAlias, runtime_checkable

from msgspec import Struct

from ..messages import AssistantMessage, Message, Usage
from .settings import SessionConfig


class ConfigureSession(Struct, frozen=True):
    """From now on, be this."""

    settings: SessionConfig
    changes_voice: bool = True
    """False once audio has been produced: then the voice stays what it was and must not be sent."""
    id: str = ""


class AppendAudio(Struct, frozen=True):
    """A piece of what the user says."""

    audio: bytes
    id: str = ""


class CommitAudio(Struct, frozen=True):
    """The user has ceased to speak. For conversations without turn detection."""

    id: str = ""


class ClearAudio(Struct, frozen=True):
    """Forget what the user has said since the last commit."""

    id: str = ""


class AddItem(Struct, frozen=True):
    """Something for the model to know: words of the user, its own, or the result of a call.

    A message of the assistant with words and calls is several items to some providers; then `item_id` is for the first.
    """

    message: Message
    item_id: str = ""
    id: str = ""


class CreateResponse(Struct, frozen=True):
    """Answer now. Never sent while a response is under way."""

    id: str = ""


class CancelResponse(Struct, frozen=True):
    """Stop answering."""

    response_id: str = ""
    id: str = ""


class TruncateItem(Struct, frozen=True):
    """Of this item only so much was heard; forget the rest."""

    item_id: str
    content_index: int
    audio_end_ms: int
    id: str = ""


Command: TypeAlias = (
    ConfigureSession | AppendAudio | CommitAudio | ClearAudio | AddItem | CreateResponse | CancelResponse | TruncateItem
)


class SessionReady(Struct, frozen=True):
    """The provider has opened the conversation."""

    session_id: str = ""


class SessionConfigured(Struct, frozen=True):
    """The last Configure is in force: responses that begin after this are under it."""


class ItemAdded(Struct, frozen=True):
    """The provider has an item that was sent; `call_id` is set if it is the result of a call."""

    item_id: str
    role: Literal["user", "assistant", "system", "call", "result"] = "user"
    call_id: str = ""


class ResponseStarted(Struct, frozen=True):
    """The model begins to answer, because it was told to or because the user has ceased to speak."""

    response_id: str


class AudioChunk(Struct, frozen=True):
    """A piece of what the model says, to be played."""

    response_id: str
    item_id: str
    content_index: int
    audio: bytes


class AudioEnded(Struct, frozen=True):
    """All the audio of an item is there."""

    response_id: str
    item_id: str
    content_index: int


class TranscriptChunk(Struct, frozen=True):
    """A piece of the transcript of what the model says, or of the text it writes."""

    response_id: str
    item_id: str
    content_index: int
    text: str
    is_spoken: bool = True


class ResponseEnded(Struct, frozen=True):
    """The model has answered, or has been stopped. `message` has all its words, and those calls that are complete."""

    response_id: str
    status: Literal["completed", "cancelled", "incomplete", "failed"]
    message: AssistantMessage
    item_ids: tuple[str, ...] = ()
    """The items of the message's words, in order."""
    reason: str = ""
    """Why it is not completed: turn_detected, client_cancelled, max_output_tokens, content_filter, or a code."""
    error: str = ""
    """What the provider says, if it failed."""
    usage: Usage | None = None
    model: str = ""


class UserSpeechStarted(Struct, frozen=True):
    """The user begins to speak."""

    item_id: str
    audio_start_ms: int = 0


class UserSpeechEnded(Struct, frozen=True):
    """The user has ceased to speak."""

    item_id: str
    audio_end_ms: int = 0


class AudioCommitted(Struct, frozen=True):
    """What the user said is now an item of the conversation; its transcript may come later."""

    item_id: str


class TranscriptionChunk(Struct, frozen=True):
    """A piece of the transcript of what the user said."""

    item_id: str
    text: str


class TranscriptionCompleted(Struct, frozen=True):
    """What the user said, in words."""

    item_id: str
    text: str


class TranscriptionFailed(Struct, frozen=True):
    """Nobody knows what the user said."""

    item_id: str
    error: str = ""


class ItemTruncated(Struct, frozen=True):
    """The provider has forgotten what was not heard."""

    item_id: str
    audio_end_ms: int


class ProviderErrorReceived(Struct, frozen=True):
    """The provider complains. The connection stays open; if it does not, ModelConnectionError is raised instead."""

    code: str
    message: str
    command_id: str = ""
    """The command that it is about, if it is about one."""


Signal: TypeAlias = (
    SessionReady
    | SessionConfigured
    | ItemAdded
    | ResponseStarted
    | AudioChunk
    | AudioEnded
    | TranscriptChunk
    | ResponseEnded
    | UserSpeechStarted
    | UserSpeechEnded
    | AudioCommitted
    | TranscriptionChunk
    | TranscriptionCompleted
    | TranscriptionFailed
    | ItemTruncated
    | ProviderErrorReceived
)


class RealtimeConnection(Protocol):
    """One open conversation with a model. Commands are sent in order; one sends, another task reads."""

    async def send(self, command: Command) -> None:
        """Send one command. Raises ModelConnectionError if the connection is gone; nothing of it was sent then.

        Raises ModelRequestError for an item that the provider has no form for, such as a picture by its address.
        Returning does not mean that it has arrived: what the provider says to it comes as signals.
        """
        ...

    def __aiter__(self) -> AsyncIterator[Signal]:
        """What the provider says, in order. Ends when it closes in good order; a cut is a ModelConnectionError."""
        ...

    async def close(self) -> None:
        """Close it, and return when that is done. May be called at any time, and more than once."""
        ...


@runtime_checkable
class RealtimeModel(Protocol):
    """Opens conversations. It keeps nothing of them: one model may hold many at once."""

    @property
    def name(self) -> str:
        """The name by which logs, usage and errors know it."""
        ...

    def check(self, settings: SessionConfig) -> None:
        """Raise SetupError, naming what is wrong and what would work, if the provider would not take these settings."""
        ...

    async def connect(self, settings: SessionConfig) -> RealtimeConnection:
        """Open a conversation under these settings, which are in force then. Raises a ModelError if that cannot be.

        The first signal is SessionReady; Configured is only said to a Configure.
        """
        ...
