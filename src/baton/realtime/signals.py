"""What a model tells during a live conversation, whoever the provider is."""

from typing import Literal, TypeAlias

from msgspec import Struct

from ..messages import AssistantMessage, Usage


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
