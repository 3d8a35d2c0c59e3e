"""What a client may send, event by event and field by field; what is not here is not known."""

from typing import Any, Literal, TypeAlias

import msgspec
from msgspec import UNSET, UnsetType

from ..reading import StrictStruct

VOICES = ("alloy", "ash", "ballad", "coral", "echo", "sage", "shimmer", "verse", "marin", "cedar")


class _Event(StrictStruct, tag_field="type", kw_only=True):
    event_id: str | None = None


class SessionUpdate(_Event, tag="session.update", kw_only=True):
    session: dict[str, Any]


class AudioAppend(_Event, tag="input_audio_buffer.append", kw_only=True):
    audio: str


class AudioCommit(_Event, tag="input_audio_buffer.commit", kw_only=True):
    pass


class AudioClear(_Event, tag="input_audio_buffer.clear", kw_only=True):
    pass


class OutputClear(_Event, tag="output_audio_buffer.clear", kw_only=True):
    """Known, but only for connections that are not websockets."""


class ItemCreate(_Event, tag="conversation.item.create", kw_only=True):
    item: dict[str, Any]
    previous_item_id: str | None = None


class ItemRetrieve(_Event, tag="conversation.item.retrieve", kw_only=True):
    item_id: str


class ItemTruncate(_Event, tag="conversation.item.truncate", kw_only=True):
    item_id: str
    content_index: int
    audio_end_ms: int


class ItemDelete(_Event, tag="conversation.item.delete", kw_only=True):
    item_id: str


class ResponseCreate(_Event, tag="response.create", kw_only=True):
    response: dict[str, Any] | None = None


class ResponseCancel(_Event, tag="response.cancel", kw_only=True):
    response_id: str | None = None


ClientEvent: TypeAlias = (
    SessionUpdate
    | AudioAppend
    | AudioCommit
    | AudioClear
    | OutputClear
    | ItemCreate
    | ItemRetrieve
    | ItemTruncate
    | ItemDelete
    | ResponseCreate
    | ResponseCancel
)
CLIENT_EVENTS: "msgspec.json.Decoder[ClientEvent]" = msgspec.json.Decoder(ClientEvent)


class Label(msgspec.Struct):
    """What an event says about itself, whatever else is wrong with it."""

    type: Any = None
    event_id: Any = None


LABELS = msgspec.json.Decoder(Label)


class Pcm(StrictStruct, tag="audio/pcm", tag_field="type"):
    rate: Literal[24000] | UnsetType = UNSET


class Pcmu(StrictStruct, tag="audio/pcmu", tag_field="type"):
    pass


class Pcma(StrictStruct, tag="audio/pcma", tag_field="type"):
    pass


Format: TypeAlias = Pcm | Pcmu | Pcma


class ServerVad(StrictStruct, tag="server_vad", tag_field="type"):
    threshold: float | int | UnsetType = UNSET
    prefix_padding_ms: int | UnsetType = UNSET
    silence_duration_ms: int | UnsetType = UNSET
    idle_timeout_ms: int | None | UnsetType = UNSET
    create_response: bool | UnsetType = UNSET
    interrupt_response: bool | UnsetType = UNSET


class SemanticVad(StrictStruct, tag="semantic_vad", tag_field="type"):
    eagerness: Literal["low", "medium", "high", "auto"] | UnsetType = UNSET
    create_response: bool | UnsetType = UNSET
    interrupt_response: bool | UnsetType = UNSET


class Transcription(StrictStruct):
    model: str | UnsetType = UNSET
    language: str | UnsetType = UNSET
    languages: list[str] | UnsetType = UNSET
    keywords: list[str] | UnsetType = UNSET
    prompt: str | UnsetType = UNSET
    delay: Literal["minimal", "low", "medium", "high", "xhigh"] | UnsetType = UNSET


class NoiseReduction(StrictStruct):
    type: Literal["near_field", "far_field"] | UnsetType = UNSET
    strength: float | int | UnsetType = UNSET


class AudioInput(StrictStruct):
    format: Format | UnsetType = UNSET
    noise_reduction: NoiseReduction | None | UnsetType = UNSET
    transcription: Transcription | None | UnsetType = UNSET
    turn_detection: ServerVad | SemanticVad | None | UnsetType = UNSET


class VoiceId(StrictStruct):
    id: str


class AudioOutput(StrictStruct):
    format: Format | UnsetType = UNSET
    speed: float | int | UnsetType = UNSET
    voice: str | VoiceId | UnsetType = UNSET


class SessionAudio(StrictStruct):
    input: AudioInput | UnsetType = UNSET
    output: AudioOutput | UnsetType = UNSET


class FunctionTool(StrictStruct, tag="function", tag_field="type"):
    name: str
    description: str = ""
    parameters: dict[str, Any] | None = None


class NamedTool(StrictStruct, tag="function", tag_field="type"):
    name: str


Choice: TypeAlias = Literal["none", "auto", "required"] | NamedTool
Modality: TypeAlias = Literal["text", "audio"]


class _Shared(StrictStruct, kw_only=True):
    """What both a session and one response of it can be told."""

    instructions: str | UnsetType = UNSET
    max_output_tokens: int | Literal["inf"] | UnsetType = UNSET
    output_modalities: list[Modality] | UnsetType = UNSET
    parallel_tool_calls: bool | UnsetType = UNSET
    prompt: dict[str, Any] | None | UnsetType = UNSET
    reasoning: dict[str, Any] | UnsetType = UNSET
    tool_choice: Choice | UnsetType = UNSET
    tools: list[FunctionTool] | UnsetType = UNSET


class SessionFields(_Shared, kw_only=True):
    type: Literal["realtime"]
    audio: SessionAudio | UnsetType = UNSET
    include: list[Literal["item.input_audio_transcription.logprobs"]] | None | UnsetType = UNSET
    model: str | UnsetType = UNSET
    tracing: Literal["auto"] | dict[str, Any] | None | UnsetType = UNSET
    truncation: Literal["auto", "disabled"] | dict[str, Any] | UnsetType = UNSET


class ResponseOutput(StrictStruct):
    format: Format | UnsetType = UNSET
    voice: str | VoiceId | UnsetType = UNSET


class ResponseAudio(StrictStruct):
    output: ResponseOutput | UnsetType = UNSET


class ResponseFields(_Shared, kw_only=True):
    """What one response can be told. The last two are known, but this server cannot do them."""

    audio: ResponseAudio | UnsetType = UNSET
    metadata: dict[str, str] | None | UnsetType = UNSET
    conversation: str | UnsetType = UNSET
    input: list[Any] | UnsetType = UNSET


class _Item(StrictStruct, kw_only=True):
    id: str | None = None
    object: Literal["realtime.item"] | None = None
    status: Literal["completed", "incomplete", "in_progress"] | None = None


class InputPart(StrictStruct):
    """A part of what the user or the system says."""

    type: Literal["input_text", "input_audio", "input_image"]
    text: str | None = None
    audio: str | None = None
    transcript: str | None = None
    image_url: str | None = None
    detail: Literal["auto", "low", "high"] | None = None


class OutputPart(StrictStruct):
    """A part of what the assistant has said."""

    type: Literal["output_text", "output_audio"]
    text: str | None = None
    audio: str | None = None
    transcript: str | None = None


class InputMessage(_Item, kw_only=True):
    type: Literal["message"]
    role: Literal["user", "system"]
    content: list[InputPart]


class OutputMessage(_Item, kw_only=True):
    type: Literal["message"]
    role: Literal["assistant"]
    content: list[OutputPart]


class FunctionCall(_Item, kw_only=True):
    type: Literal["function_call"]
    name: str
    arguments: str
    call_id: str | None = None


class FunctionCallOutput(_Item, kw_only=True):
    type: Literal["function_call_output"]
    call_id: str
    output: str


ClientItem: TypeAlias = InputMessage | OutputMessage | FunctionCall | FunctionCallOutput
