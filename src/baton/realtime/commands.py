"""What a live conversation tells its model. `id` comes back in the Trouble that a command may cause."""

from typing import TypeAlias

from msgspec import Struct

from ..messages import Message
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
