"""What is delivered during a live conversation and never logged. What is logged are the events of every run."""

from typing import Literal

from ..events import Delta


class AudioDelta(Delta, frozen=True, gc=False):
    """A piece of what an agent says, to be played."""

    audio: bytes
    item_id: str = ""
    content_index: int = 0


class AudioCompleted(Delta, frozen=True, gc=False):
    """All the audio of an item has been delivered; it may still be playing."""

    item_id: str = ""


class TranscriptDelta(Delta, frozen=True, gc=False):
    """A piece of what is being said, in words."""

    text: str
    item_id: str = ""
    speaker: Literal["agent", "user"] = "agent"


class SpeechStarted(Delta, frozen=True, gc=False):
    """The user begins to speak."""

    item_id: str = ""


class SpeechStopped(Delta, frozen=True, gc=False):
    """The user has ceased to speak."""

    item_id: str = ""


class PlaybackInterrupted(Delta, frozen=True, gc=False):
    """Stop playing: somebody interrupts. Of the item, only so much counts as heard."""

    item_id: str = ""
    played_ms: int = 0


class GuardrailTripped(Delta, frozen=True):
    """A guardrail said no to what an agent was saying, and it was stopped."""

    guardrail: str
    reason: str = ""


class SessionErrorReported(Delta, frozen=True):
    """Something went wrong that does not end the conversation."""

    code: str
    message: str = ""


class SessionReconnecting(Delta, frozen=True):
    """The connection is gone; this is the attempt to have another."""

    attempt: int
    because: str = ""


class SessionReconnected(Delta, frozen=True):
    """There is a connection again, and the model knows what was said."""
