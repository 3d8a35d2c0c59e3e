"""The events that clients may send, the checks of their fields, and the settings of a session."""

import time
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias

import msgspec
from msgspec import UNSET, UnsetType
from tests.servers.openai.chat_schema import base64, image
from tests.servers.openai.errors import (
    check_choice,
    check_length,
    check_name,
    check_range,
    check_tools,
    empty_array,
    wrong,
    wrong_value,
)
from tests.servers.validation import StrictStruct, converted

from batonkit.realtime.voice_settings import AudioFormat

VOICES = ("alloy", "ash", "ballad", "coral", "echo", "sage", "shimmer", "verse", "marin", "cedar")


class _Event(StrictStruct, tag_field="type", kw_only=True):
    event_id: str | None = None


class SessionUpdate(_Event, tag="session.update", kw_only=True):
    """A change of the settings."""

    session: dict[str, Any]


class AudioAppend(_Event, tag="input_audio_buffer.append", kw_only=True):
    """A chunk of the user's audio."""

    audio: str


class AudioCommit(_Event, tag="input_audio_buffer.commit", kw_only=True):
    """The end of the user's turn."""


class AudioClear(_Event, tag="input_audio_buffer.clear", kw_only=True):
    """A request to discard uncommitted audio."""


class OutputClear(_Event, tag="output_audio_buffer.clear", kw_only=True):
    """Valid only for connections that are not websockets."""


class ItemCreate(_Event, tag="conversation.item.create", kw_only=True):
    """A new item of the conversation."""

    item: dict[str, Any]
    previous_item_id: str | None = None


class ItemRetrieve(_Event, tag="conversation.item.retrieve", kw_only=True):
    """A request for an item with its audio."""

    item_id: str


class ItemTruncate(_Event, tag="conversation.item.truncate", kw_only=True):
    """A request to discard audio that was not played."""

    item_id: str
    content_index: int
    audio_end_ms: int


class ItemDelete(_Event, tag="conversation.item.delete", kw_only=True):
    """A request to remove an item."""

    item_id: str


class ResponseCreate(_Event, tag="response.create", kw_only=True):
    """A request for a response."""

    response: dict[str, Any] | None = None


class ResponseCancel(_Event, tag="response.cancel", kw_only=True):
    """A request to cancel a response."""

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
    """The type and id of an event, which may be invalid otherwise."""

    type: Any = None
    event_id: Any = None


LABELS = msgspec.json.Decoder(Label)


class Pcm(StrictStruct, tag="audio/pcm", tag_field="type"):
    """24 kHz PCM."""

    rate: Literal[24000] | UnsetType = UNSET


class Pcmu(StrictStruct, tag="audio/pcmu", tag_field="type"):
    """G.711 μ-law."""


class Pcma(StrictStruct, tag="audio/pcma", tag_field="type"):
    """G.711 A-law."""


Format: TypeAlias = Pcm | Pcmu | Pcma


class ServerVad(StrictStruct, tag="server_vad", tag_field="type"):
    """Turn detection by silence."""

    threshold: float | int | UnsetType = UNSET
    prefix_padding_ms: int | UnsetType = UNSET
    silence_duration_ms: int | UnsetType = UNSET
    idle_timeout_ms: int | None | UnsetType = UNSET
    create_response: bool | UnsetType = UNSET
    interrupt_response: bool | UnsetType = UNSET


class SemanticVad(StrictStruct, tag="semantic_vad", tag_field="type"):
    """Turn detection by meaning."""

    eagerness: Literal["low", "medium", "high", "auto"] | UnsetType = UNSET
    create_response: bool | UnsetType = UNSET
    interrupt_response: bool | UnsetType = UNSET


class Transcription(StrictStruct):
    """Settings of the transcription."""

    model: str | UnsetType = UNSET
    language: str | UnsetType = UNSET
    languages: list[str] | UnsetType = UNSET
    keywords: list[str] | UnsetType = UNSET
    prompt: str | UnsetType = UNSET
    delay: Literal["minimal", "low", "medium", "high", "xhigh"] | UnsetType = UNSET


class NoiseReduction(StrictStruct):
    """Settings of the noise reduction."""

    type: Literal["near_field", "far_field"] | UnsetType = UNSET
    strength: float | int | UnsetType = UNSET


class AudioInput(StrictStruct):
    """Settings of the user's audio."""

    format: Format | UnsetType = UNSET
    noise_reduction: NoiseReduction | None | UnsetType = UNSET
    transcription: Transcription | None | UnsetType = UNSET
    turn_detection: ServerVad | SemanticVad | None | UnsetType = UNSET


class VoiceId(StrictStruct):
    """A custom voice."""

    id: str


class AudioOutput(StrictStruct):
    """Settings of the model's audio."""

    format: Format | UnsetType = UNSET
    speed: float | int | UnsetType = UNSET
    voice: str | VoiceId | UnsetType = UNSET


class SessionAudio(StrictStruct):
    """Settings of the audio in both directions."""

    input: AudioInput | UnsetType = UNSET
    output: AudioOutput | UnsetType = UNSET


class FunctionTool(StrictStruct, tag="function", tag_field="type"):
    """A tool."""

    name: str
    description: str = ""
    parameters: dict[str, Any] | None = None


class NamedTool(StrictStruct, tag="function", tag_field="type"):
    """A tool_choice that names a tool."""

    name: str


Choice: TypeAlias = Literal["none", "auto", "required"] | NamedTool
Modality: TypeAlias = Literal["text", "audio"]


class _Shared(StrictStruct, kw_only=True):
    """Settings of both sessions and single responses."""

    instructions: str | UnsetType = UNSET
    max_output_tokens: int | Literal["inf"] | UnsetType = UNSET
    output_modalities: list[Modality] | UnsetType = UNSET
    parallel_tool_calls: bool | UnsetType = UNSET
    prompt: dict[str, Any] | None | UnsetType = UNSET
    reasoning: dict[str, Any] | UnsetType = UNSET
    tool_choice: Choice | UnsetType = UNSET
    tools: list[FunctionTool] | UnsetType = UNSET


class SessionFields(_Shared, kw_only=True):
    """Settings of a session."""

    type: Literal["realtime"]
    audio: SessionAudio | UnsetType = UNSET
    include: list[Literal["item.input_audio_transcription.logprobs"]] | None | UnsetType = UNSET
    model: str | UnsetType = UNSET
    tracing: Literal["auto"] | dict[str, Any] | None | UnsetType = UNSET
    truncation: Literal["auto", "disabled"] | dict[str, Any] | UnsetType = UNSET


class ResponseOutput(StrictStruct):
    """Settings of the audio of one response."""

    format: Format | UnsetType = UNSET
    voice: str | VoiceId | UnsetType = UNSET


class ResponseAudio(StrictStruct):
    """Audio settings of one response."""

    output: ResponseOutput | UnsetType = UNSET


class ResponseFields(_Shared, kw_only=True):
    """Settings of one response. The server rejects the last two as unsupported."""

    audio: ResponseAudio | UnsetType = UNSET
    metadata: dict[str, str] | None | UnsetType = UNSET
    conversation: str | UnsetType = UNSET
    input: list[Any] | UnsetType = UNSET


class _Item(StrictStruct, kw_only=True):
    id: str | None = None
    object: Literal["realtime.item"] | None = None
    status: Literal["completed", "incomplete", "in_progress"] | None = None


class InputPart(StrictStruct):
    """A content part of a user or system message."""

    type: Literal["input_text", "input_audio", "input_image"]
    text: str | None = None
    audio: str | None = None
    transcript: str | None = None
    image_url: str | None = None
    detail: Literal["auto", "low", "high"] | None = None


class OutputPart(StrictStruct):
    """A content part of an assistant message."""

    type: Literal["output_text", "output_audio"]
    text: str | None = None
    audio: str | None = None
    transcript: str | None = None


class InputMessage(_Item, kw_only=True):
    """A user or system message."""

    type: Literal["message"]
    role: Literal["user", "system"]
    content: list[InputPart]


class OutputMessage(_Item, kw_only=True):
    """An assistant message."""

    type: Literal["message"]
    role: Literal["assistant"]
    content: list[OutputPart]


class FunctionCall(_Item, kw_only=True):
    """A tool call."""

    type: Literal["function_call"]
    name: str
    arguments: str
    call_id: str | None = None


class FunctionCallOutput(_Item, kw_only=True):
    """The result of a tool call."""

    type: Literal["function_call_output"]
    call_id: str
    output: str


ClientItem: TypeAlias = InputMessage | OutputMessage | FunctionCall | FunctionCallOutput

_MAX_INSTRUCTIONS = 65_536
"""About 16,384 tokens."""
_MAX_ID_LENGTH = 32
_MAX_TOKENS = 4096
_KINDS: dict[str, type[Any]] = {"function_call": FunctionCall, "function_call_output": FunctionCallOutput}
_ROLES = ("user", "assistant", "system")
_UNSUPPORTED = ("prompt", "reasoning", "conversation", "input")


def check_session_fields(given: Mapping[str, Any], settings: Mapping[str, Any], *, model: str) -> None:
    """Validate a `session.update`; `settings` are those in force."""
    fields = converted(given, SessionFields, "session")
    _check_shared(fields, "session", tools_in_force=[tool["name"] for tool in settings["tools"]])
    if fields.model is not UNSET and fields.model != model:
        raise wrong("Cannot update a conversation's model.", param="session.model", code="cannot_update_model")
    if fields.audio is UNSET:
        return
    if fields.audio.input is not UNSET:
        _check_turn_detection(fields.audio.input.turn_detection)
    if fields.audio.output is not UNSET:
        output = fields.audio.output
        if output.speed is not UNSET:
            check_range("session.audio.output.speed", output.speed, 0.25, 1.5)
        if output.voice is not UNSET:
            _check_voice(output.voice, "session.audio.output.voice")


def check_response_fields(given: Mapping[str, Any], settings: Mapping[str, Any]) -> None:
    """Validate the settings of a `response.create`."""
    fields = converted(given, ResponseFields, "response")
    for name in _UNSUPPORTED:
        value = getattr(fields, name)
        if value is not UNSET and value is not None and (name, value) != ("conversation", "auto"):
            param = f"response.{name}"
            raise wrong(f"This test server does not support '{param}'.", param=param, code="unsupported_parameter")
    _check_shared(fields, "response", tools_in_force=[tool["name"] for tool in settings["tools"]])
    if fields.audio is not UNSET and fields.audio.output is not UNSET and fields.audio.output.voice is not UNSET:
        _check_voice(fields.audio.output.voice, "response.audio.output.voice")


def _check_voice(voice: object, param: str) -> None:
    # A custom voice is an object with an id.
    if isinstance(voice, str) and voice not in VOICES:
        raise wrong_value(param, voice, VOICES)


def _check_shared(fields: SessionFields | ResponseFields, within: str, *, tools_in_force: Sequence[str]) -> None:
    if fields.instructions is not UNSET:
        check_length(fields.instructions, f"{within}.instructions", _MAX_INSTRUCTIONS)
    modalities = fields.output_modalities
    if modalities is not UNSET and len(modalities) != 1:
        message = f"Invalid modalities: {modalities}. Supported combinations are: ['text'] and ['audio']."
        raise wrong(message, param=f"{within}.output_modalities", code="invalid_value")
    if fields.max_output_tokens is not UNSET and fields.max_output_tokens != "inf":
        check_range(f"{within}.max_output_tokens", fields.max_output_tokens, 1, _MAX_TOKENS)
    if fields.tools is not UNSET and fields.tools:
        offered = [(tool.name, tool.parameters, False) for tool in fields.tools]
        check_tools(offered, within + ".tools[{}].name", within + ".tools[{}].parameters")
    if isinstance(fields.tool_choice, NamedTool):
        known = [tool.name for tool in fields.tools] if fields.tools is not UNSET else tools_in_force
        check_choice(None, fields.tool_choice.name, tools=known)


def _check_turn_detection(detection: object) -> None:
    place = "session.audio.input.turn_detection"
    if isinstance(detection, ServerVad):
        numbers = (
            (detection.threshold, "threshold", 0, 1),
            (detection.prefix_padding_ms, "prefix_padding_ms", 0, None),
        )
        for value, name, lowest, highest in numbers:
            if value is not UNSET:
                check_range(f"{place}.{name}", value, lowest, highest)
        if detection.silence_duration_ms is not UNSET:
            check_range(f"{place}.silence_duration_ms", detection.silence_duration_ms, 0)
    else:
        assert detection is UNSET or detection is None or isinstance(detection, SemanticVad)


def decode_client_item(given: Mapping[str, Any]) -> ClientItem:
    """Decode and validate the item of a `conversation.item.create`."""
    kind = given.get("type")
    if kind in _KINDS:
        item: ClientItem = converted(given, _KINDS[kind], "item")
    elif kind == "message":
        role = given.get("role")
        if role not in _ROLES:
            raise wrong_value("item.role", role, _ROLES)
        item = converted(given, OutputMessage if role == "assistant" else InputMessage, "item")
    else:
        raise wrong_value("item.type", kind, ["message", *_KINDS])
    if item.id is not None:
        check_length(item.id, "item.id", _MAX_ID_LENGTH)
    if isinstance(item, FunctionCall | FunctionCallOutput):
        check_length(item.call_id or "", "item.call_id", _MAX_ID_LENGTH)
        if isinstance(item, FunctionCall):
            check_name(item.name, "item.name")
    else:
        if not item.content:
            raise empty_array("item.content")
        for index, part in enumerate(item.content):
            _check_part(part, item.role, f"item.content[{index}]")
    return item


def _check_part(part: InputPart | OutputPart, role: str, place: str) -> None:
    if isinstance(part, OutputPart):
        if part.type == "output_audio":
            message = "Audio of the assistant cannot be put into a conversation; give its transcript as 'output_text'."
            raise wrong(message, param=f"{place}.type", code="invalid_value")
    elif role == "system" and part.type != "input_text":
        raise wrong_value(f"{place}.type", part.type, ["input_text"])
    field = {"input_audio": "audio", "input_image": "image_url"}.get(part.type, "text")
    value = getattr(part, field)
    if value is None:
        name = f"{place}.{field}"
        raise wrong(f"Missing required parameter: '{name}'.", param=name, code="missing_required_parameter")
    others = {"text", "audio", "image_url", "transcript"} - {field}
    if part.type == "input_audio":
        others.discard("transcript")
    for other in sorted(others):
        if getattr(part, other, None) is not None:
            raise wrong(f"Unknown parameter: '{place}.{other}'.", param=f"{place}.{other}", code="unknown_parameter")
    if part.type == "input_audio":
        base64(value, f"{place}.audio")
    elif part.type == "input_image":
        if not value.startswith("data:"):
            message = f"Invalid '{place}.image_url'. Expected a base64-encoded data URL."
            raise wrong(message, param=f"{place}.image_url", code="invalid_value")
        image(value, f"{place}.image_url")


FORMATS: dict[str, AudioFormat] = {"audio/pcm": "pcm16", "audio/pcmu": "g711_ulaw", "audio/pcma": "g711_alaw"}
"""The audio formats by their names on the wire."""

_LIFETIME = 3600
_PCM = {"type": "audio/pcm", "rate": 24000}
_VAD = {
    "threshold": 0.5,
    "prefix_padding_ms": 300,
    "silence_duration_ms": 500,
    "idle_timeout_ms": None,
    "create_response": True,
    "interrupt_response": True,
}
_SEMANTIC_VAD = {"eagerness": "auto", "create_response": True, "interrupt_response": True}
_INSTRUCTIONS = "You are a helpful, witty, and friendly AI."


def initial_settings(session_id: str, model: str) -> dict[str, Any]:
    """Return the settings of a new session."""
    return {
        "type": "realtime",
        "object": "realtime.session",
        "id": session_id,
        "model": model,
        "expires_at": int(time.time()) + _LIFETIME,
        "output_modalities": ["audio"],
        "instructions": _INSTRUCTIONS,
        "tools": [],
        "tool_choice": "auto",
        "max_output_tokens": "inf",
        "tracing": None,
        "truncation": "auto",
        "include": None,
        "audio": {
            "input": {
                "format": _PCM,
                "transcription": None,
                "noise_reduction": None,
                "turn_detection": {"type": "server_vad", **_VAD},
            },
            "output": {"format": _PCM, "voice": "alloy", "speed": 1.0},
        },
    }


def update_settings(settings: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings after an update; settings that it does not name stay."""
    changed = {**settings, **given}
    audio = given.get("audio", {})
    changed["audio"] = {side: {**settings["audio"][side], **audio.get(side, {})} for side in ("input", "output")}
    listening = changed["audio"]["input"]
    detection = audio.get("input", {}).get("turn_detection")
    if detection is not None:
        # Another kind of turn detection starts with its own defaults, not with the values of the last one.
        defaults = _VAD if detection["type"] == "server_vad" else _SEMANTIC_VAD
        listening["turn_detection"] = {**defaults, **detection}
    for side in ("input", "output"):
        if changed["audio"][side]["format"]["type"] == "audio/pcm":
            changed["audio"][side]["format"] = _PCM
    return changed
