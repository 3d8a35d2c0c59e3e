"""The protocol of realtime models: commands to the provider, signals from it, model and connection.

The `id` of a command comes back in the `ProviderErrorReceived` that it may cause.
"""

from collections.abc import AsyncIterator
from typing import Literal, Protocol, TypeAlias, runtime_checkable

from msgspec import Struct

from ..messages import AssistantMessage, Message, Usage
from .voice_settings import SessionConfig


class ConfigureSession(Struct, frozen=True):
    """Set the configuration of the session."""

    settings: SessionConfig
    changes_voice: bool = True
    """False once audio has been produced: the voice cannot change any more and must not be sent."""
    id: str = ""


class AppendAudio(Struct, frozen=True):
    """Append a chunk of the user's audio."""

    audio: bytes
    id: str = ""


class CommitAudio(Struct, frozen=True):
    """End the user's turn; for sessions without turn detection."""

    id: str = ""


class ClearAudio(Struct, frozen=True):
    """Discard the user's audio since the last commit."""

    id: str = ""


class AddItem(Struct, frozen=True):
    """Add a message to the conversation.

    Some providers split an assistant message with text and calls into several items; `item_id` is that of the first.
    """

    message: Message
    item_id: str = ""
    id: str = ""


class CreateResponse(Struct, frozen=True):
    """Request a response; never sent while one is in progress."""

    id: str = ""


class CancelResponse(Struct, frozen=True):
    """Cancel a response."""

    response_id: str = ""
    id: str = ""


class TruncateItem(Struct, frozen=True):
    """Truncate an item to the part that was played."""

    item_id: str
    content_index: int
    audio_end_ms: int
    id: str = ""


Command: TypeAlias = (
    ConfigureSession | AppendAudio | CommitAudio | ClearAudio | AddItem | CreateResponse | CancelResponse | TruncateItem
)

ItemRole: TypeAlias = Literal["user", "assistant", "system", "call", "result"]
"""The kind of an item; a call and its result are items of their own."""
ResponseStatus: TypeAlias = Literal["completed", "cancelled", "incomplete", "failed"]


class SessionReady(Struct, frozen=True):
    """The provider has opened the session."""

    session_id: str = ""


class SessionConfigured(Struct, frozen=True):
    """The last configuration is in force for responses that start after this."""


class ItemAdded(Struct, frozen=True):
    """The provider has stored an item; `call_id` is set if it is a tool result."""

    item_id: str
    role: ItemRole = "user"
    call_id: str = ""


class ResponseStarted(Struct, frozen=True):
    """A response has started, requested or after the user's turn."""

    response_id: str


class AudioChunk(Struct, frozen=True):
    """A chunk of the model's audio."""

    response_id: str
    item_id: str
    content_index: int
    audio: bytes


class AudioEnded(Struct, frozen=True):
    """All audio of an item has arrived."""

    response_id: str
    item_id: str
    content_index: int


class TranscriptChunk(Struct, frozen=True):
    """A chunk of the transcript of the model's audio, or of its text."""

    response_id: str
    item_id: str
    content_index: int
    text: str
    is_spoken: bool = True


class ResponseEnded(Struct, frozen=True):
    """A response has ended; `message` holds its text and the calls that are complete."""

    response_id: str
    status: ResponseStatus
    message: AssistantMessage
    item_ids: tuple[str, ...] = ()
    """Ids of the items that contain the text, in order."""
    reason: str = ""
    """Set if not completed: turn_detected, client_cancelled, max_output_tokens, content_filter or a code."""
    error: str = ""
    """The provider's error message, if it failed."""
    usage: Usage | None = None
    model: str = ""


class UserSpeechStarted(Struct, frozen=True):
    """The user started to speak."""

    item_id: str
    audio_start_ms: int = 0


class UserSpeechEnded(Struct, frozen=True):
    """The user stopped speaking."""

    item_id: str
    audio_end_ms: int = 0


class AudioCommitted(Struct, frozen=True):
    """The user's audio is now an item; its transcript may come later."""

    item_id: str


class TranscriptionChunk(Struct, frozen=True):
    """A chunk of the transcript of the user's audio."""

    item_id: str
    text: str


class TranscriptionCompleted(Struct, frozen=True):
    """The transcript of the user's audio."""

    item_id: str
    text: str


class TranscriptionFailed(Struct, frozen=True):
    """The user's audio could not be transcribed."""

    item_id: str
    error: str = ""


class ItemTruncated(Struct, frozen=True):
    """The provider has truncated an item."""

    item_id: str
    audio_end_ms: int


class ProviderErrorReceived(Struct, frozen=True):
    """An error that leaves the connection open; otherwise ModelConnectionError is raised."""

    code: str
    message: str
    command_id: str = ""
    """Id of the command that caused it, if any."""


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
    """One open session with a model; one task sends, another reads."""

    async def send(self, command: Command) -> None:
        """Send one command; commands arrive in order.

        Returning does not mean that the command has arrived: the provider's reaction comes as signals.

        Args:
            command: The command.

        Raises:
            ModelConnectionError: The connection is lost, and nothing of the command was sent.
            ModelRequestError: The provider has no form for an item, such as an image by its URL.
        """

    def __aiter__(self) -> AsyncIterator[Signal]:
        """Iterate over the signals, until the provider closes the connection.

        Raises:
            ModelConnectionError: The connection was lost.
        """
        ...

    async def close(self) -> None:
        """Close the connection. May be called at any time, and more than once."""


@runtime_checkable
class RealtimeModel(Protocol):
    """A stateless factory of sessions with one model; many may be open at once."""

    @property
    def name(self) -> str:
        """The model's name in logs, usage and errors."""
        ...

    def check(self, settings: SessionConfig) -> None:
        """Validate a configuration.

        Args:
            settings: The configuration.

        Raises:
            SetupError: The provider would reject it; the message says what would work.
        """

    async def connect(self, settings: SessionConfig) -> RealtimeConnection:
        """Open a session. Its first signal is `SessionReady`.

        `SessionConfigured` is sent for `ConfigureSession` commands only, not for these settings.

        Args:
            settings: The initial configuration.

        Raises:
            ModelError: The session could not be opened.
        """
        ...
