"""Deltas that a realtime session delivers and never logs; it logs the same events as every run."""

from typing import Literal

from ..log import Delta


class AudioDelta(Delta, frozen=True, gc=False):
    """A chunk of an agent's speech, to be played.

    Attributes:
        audio: Audio in the session's output format.
        item_id: The provider's id of the item being spoken.
        content_index: Index of the content part within the item.
    """

    audio: bytes
    item_id: str = ""
    content_index: int = 0


class AudioCompleted(Delta, frozen=True, gc=False):
    """All audio of an item has been delivered; it may still be playing.

    Attributes:
        item_id: The provider's id of the item.
    """

    item_id: str = ""


class TranscriptDelta(Delta, frozen=True, gc=False):
    """A chunk of the transcript of current speech.

    Attributes:
        text: The transcribed text.
        item_id: The provider's id of the item being spoken.
        speaker: The side that is speaking.
    """

    text: str
    item_id: str = ""
    speaker: Literal["agent", "user"] = "agent"


class SpeechStarted(Delta, frozen=True, gc=False):
    """The user started to speak.

    Attributes:
        item_id: The provider's id of the user's item.
    """

    item_id: str = ""


class SpeechStopped(Delta, frozen=True, gc=False):
    """The user stopped speaking.

    Attributes:
        item_id: The provider's id of the user's item.
    """

    item_id: str = ""


class PlaybackInterrupted(Delta, frozen=True, gc=False):
    """The agent was interrupted: stop playing this item and discard its queued audio.

    Attributes:
        item_id: The provider's id of the interrupted item.
        played_ms: Milliseconds of it that count as heard.
    """

    item_id: str = ""
    played_ms: int = 0


class GuardrailTripped(Delta, frozen=True):
    """An output guardrail rejected a response, and the response was stopped.

    Attributes:
        guardrail: Name of the guardrail.
        reason: The reason it gave.
    """

    guardrail: str
    reason: str = ""


class SessionErrorReported(Delta, frozen=True):
    """An error that does not end the session.

    Attributes:
        code: The provider's error code, or one of Baton's.
        message: The error message.
    """

    code: str
    message: str = ""


class SessionReconnecting(Delta, frozen=True):
    """The connection was lost and a new one is being opened.

    Attributes:
        attempt: Number of the attempt, starting at 1.
        because: The error that ended the connection.
    """

    attempt: int
    because: str = ""


class SessionReconnected(Delta, frozen=True):
    """A new connection is open, and the conversation so far was sent to the model."""
