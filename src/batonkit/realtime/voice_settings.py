"""Settings of realtime sessions: modality, audio formats, turn detection, and what an agent configures."""

from typing import Any, Literal, TypeAlias

from msgspec import Struct

from .._checks import CheckedStructMeta
from ..messages import ToolSpec
from ..models.settings import refuse_replacing_fields

AudioFormat: TypeAlias = Literal["pcm16", "g711_ulaw", "g711_alaw"]
"""`pcm16` is 24 kHz, mono, little-endian; the others are 8 kHz."""

_BYTES_PER_MILLISECOND: dict[AudioFormat, int] = {"pcm16": 48, "g711_ulaw": 8, "g711_alaw": 8}


def milliseconds_of(size: int, format: AudioFormat) -> float:
    """Return the duration of audio in milliseconds."""
    return size / _BYTES_PER_MILLISECOND[format]


def bytes_for(milliseconds: float, format: AudioFormat) -> int:
    """Return the size in bytes of audio of a given duration."""
    return int(milliseconds) * _BYTES_PER_MILLISECOND[format]


class TurnDetection(Struct, frozen=True, metaclass=CheckedStructMeta):
    """Voice activity detection by the provider.

    Attributes:
        kind: `server_vad` goes by silence, `semantic_vad` by the meaning of the words.
        create_response: Whether the provider responds by itself when the user stops speaking.
        interrupt_response: Whether the provider cancels a response by itself when the user starts to speak.
        threshold: Loudness from 0 to 1 that counts as speech (`server_vad`).
        prefix_ms: Audio kept from before the detected start of speech (`server_vad`).
        silence_ms: Silence that ends a turn (`server_vad`).
        eagerness: How soon a turn counts as finished (`semantic_vad`).
    """

    kind: Literal["server_vad", "semantic_vad"] = "server_vad"
    create_response: bool = True
    interrupt_response: bool = True
    threshold: float | None = None
    prefix_ms: int | None = None
    silence_ms: int | None = None
    eagerness: Literal["low", "medium", "high", "auto"] | None = None


class RealtimeSettings(Struct, frozen=True, metaclass=CheckedStructMeta):
    """Settings of a realtime session that apply to every agent in it.

    Attributes:
        modality: The form of the model's output; audio comes with transcripts.
        voice: Voice of agents that name none; None is the provider's default.
        speed: Speaking speed; 1.0 is normal.
        input_format: Format of the audio you send.
        output_format: Format of the audio you receive.
        turn_detection: The provider's turn detection; with None, send `commit=True` when the user stops speaking.
        transcription: Model that transcribes the user's speech; None records no transcript of it.
        language: Language of the user's speech, for the transcription.
        noise_reduction: The provider's noise reduction of the input.
        max_output_tokens: Maximum tokens of one response.
        extra_body: Provider-specific settings, merged into the request; the instructions and the tools are refused.
    """

    modality: Literal["audio", "text"] = "audio"
    voice: str | None = None
    speed: float | None = None
    input_format: AudioFormat = "pcm16"
    output_format: AudioFormat = "pcm16"
    turn_detection: TurnDetection | None = TurnDetection()
    transcription: str | None = "gpt-4o-mini-transcribe"
    language: str | None = None
    noise_reduction: Literal["near_field", "far_field"] | None = None
    max_output_tokens: int | None = None
    extra_body: dict[str, Any] = {}

    def __post_init__(self) -> None:
        refuse_replacing_fields("RealtimeSettings(extra_body=…)", self.extra_body)


class SessionOptions(Struct, frozen=True):
    """The options of `RealtimeRunner` that every session needs; see there."""

    max_reconnects: int
    reconnect_delay: float
    async_tool_calls: bool
    guardrail_interval: int


class SessionConfig(Struct, frozen=True):
    """The model's configuration while one agent is active.

    Attributes:
        agent: Name of the agent.
        instructions: Its instructions.
        tools: Its tools and handoffs.
        tool_choice: "auto", "none", "required" or the name of one tool.
        voice: Voice to speak with; None keeps the current one.
        settings: Settings of the whole session.
    """

    agent: str
    instructions: str = ""
    tools: tuple[ToolSpec, ...] = ()
    tool_choice: str = "auto"
    voice: str | None = None
    settings: RealtimeSettings = RealtimeSettings()
