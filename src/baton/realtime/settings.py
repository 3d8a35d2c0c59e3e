"""How a live conversation is set up: what the model is told to be, which tools it has, how it listens and speaks."""

from typing import Any, Literal, TypeAlias

from msgspec import Struct

from ..messages import ToolSpec

AudioFormat: TypeAlias = Literal["pcm16", "g711_ulaw", "g711_alaw"]
"""`pcm16` is 24 kHz, mono, little-endian; the others are 8 kHz."""

_BYTES_PER_MILLISECOND: dict[AudioFormat, int] = {"pcm16": 48, "g711_ulaw": 8, "g711_alaw": 8}


def milliseconds_of(size: int, format: AudioFormat) -> float:
    """How long so many bytes of audio last."""
    return size / _BYTES_PER_MILLISECOND[format]


def bytes_for(milliseconds: float, format: AudioFormat) -> int:
    """How many bytes of audio last so long."""
    return int(milliseconds) * _BYTES_PER_MILLISECOND[format]


class TurnDetection(Struct, frozen=True):
    """How the provider finds out that the user has begun or ceased to speak."""

    kind: Literal["server_vad", "semantic_vad"] = "server_vad"
    create_response: bool = True
    """Whether the provider answers by itself when the user has ceased to speak."""
    interrupt_response: bool = True
    """Whether the provider stops a response by itself when the user begins to speak."""
    threshold: float | None = None
    prefix_ms: int | None = None
    silence_ms: int | None = None
    eagerness: Literal["low", "medium", "high", "auto"] | None = None


class RealtimeSettings(Struct, frozen=True):
    """How a conversation is held, whoever has the floor in it."""

    modality: Literal["audio", "text"] = "audio"
    """What the model answers with; with audio come transcripts of it."""
    voice: str | None = None
    """The voice of agents that name none; None is the provider's own choice."""
    speed: float | None = None
    input_format: AudioFormat = "pcm16"
    output_format: AudioFormat = "pcm16"
    turn_detection: TurnDetection | None = TurnDetection()
    """None leaves it to the application: it says `commit=True` when the user has ceased to speak."""
    transcription: str | None = "gpt-4o-mini-transcribe"
    """The model that writes down what the user says; None keeps no record of it."""
    language: str | None = None
    """The language that the user speaks, for the transcription."""
    noise_reduction: Literal["near_field", "far_field"] | None = None
    max_output_tokens: int | None = None
    extra_body: dict[str, Any] = {}
    """More of the provider's own settings, merged into what is sent."""


class SessionConfig(Struct, frozen=True):
    """What the model is told when an agent gets the floor."""

    agent: str
    instructions: str = ""
    tools: tuple[ToolSpec, ...] = ()
    tool_choice: str = "auto"
    voice: str | None = None
    """The voice to speak with; None leaves the one there is."""
    settings: RealtimeSettings = RealtimeSettings()
