"""Encodes commands as OpenAI's client events, and validates configurations before they are sent."""

import re
import secrets
from collections.abc import Collection, Iterator, Mapping
from hashlib import blake2b
from typing import Any, assert_never, cast

import msgspec
from msgspec import Struct

from ...errors import SetupError, quote_names
from ...messages import (
    AssistantMessage,
    Audio,
    Content,
    File,
    Image,
    Message,
    Part,
    SystemMessage,
    Text,
    ToolCall,
    ToolMessage,
    UserMessage,
    media_of,
    text_of,
)
from ...models.encoding import as_base64, as_data_url, without_none
from ...models.openai.chat_messages import about, fitting_arguments, fitting_name, responses_part
from ...models.provider_errors import unsupported
from .. import protocol
from ..voice_settings import AudioFormat, SessionConfig, TurnDetection

VOICES = ("alloy", "ash", "ballad", "cedar", "coral", "echo", "marin", "sage", "shimmer", "verse")
CUSTOM_VOICE_PREFIX = "voice_"
"""Prefix of the ids of custom voices."""

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_MAX_TOOLS = 128
_MAX_INSTRUCTIONS = 65_536
_MIN_SPEED = 0.25
_MAX_SPEED = 1.5
_MAX_TOKENS = 4096
_CHOICES = ("auto", "none", "required")


def check_settings(settings: SessionConfig, model: str, voices: Collection[str]) -> None:
    """Validate a configuration.

    Raises:
        SetupError: OpenAI would reject it.
    """
    who = f"`{settings.agent}`"
    size = len(settings.instructions)
    if size > _MAX_INSTRUCTIONS:
        raise SetupError(
            f"the instructions of {who} have {size:,} characters; `{model}` takes at most {_MAX_INSTRUCTIONS:,}"
        )
    _check_voice(settings, model, voices)
    speed = settings.settings.speed
    most = settings.settings.max_output_tokens
    if speed is not None and not _MIN_SPEED <= speed <= _MAX_SPEED:
        raise SetupError(f"the speed for {who} is {speed:g}; `{model}` speaks from {_MIN_SPEED:g} to {_MAX_SPEED:g}")
    if most is not None and not 1 <= most <= _MAX_TOKENS:
        raise SetupError(f"max_output_tokens for {who} is {most}; `{model}` takes from 1 to {_MAX_TOKENS}, or None")
    _check_tools(settings, model)


def _check_voice(settings: SessionConfig, model: str, voices: Collection[str]) -> None:
    for voice, whose in ((settings.voice, f"of `{settings.agent}`"), (settings.settings.voice, "of the conversation")):
        if voice is not None and voice not in voices and not voice.startswith(CUSTOM_VOICE_PREFIX):
            known = quote_names(sorted(voices))
            raise SetupError(
                f"the voice {whose} is {voice!r}; `{model}` can speak with: {known}, or the id of a voice of your own"
            )


def _check_tools(settings: SessionConfig, model: str) -> None:
    tools = settings.tools
    if len(tools) > _MAX_TOOLS:
        raise SetupError(f"`{settings.agent}` has {len(tools)} tools; `{model}` takes at most {_MAX_TOOLS}")
    seen: set[str] = set()
    for tool in tools:
        if not _NAME.fullmatch(tool.name):
            form = "letters, digits, _ and -, from 1 to 64 of them"
            raise SetupError(f"`{settings.agent}` has a tool named {tool.name!r}; `{model}` takes names of {form}")
        kind: Any = tool.parameters.get("type")
        if kind != "object":
            raise SetupError(
                f"the parameters of the tool `{tool.name}` of `{settings.agent}` are a schema of type {kind!r}; "
                f'`{model}` takes only schemas of type "object"'
            )
        if tool.name in seen:
            raise SetupError(f"`{settings.agent}` has two tools named `{tool.name}`; give one another name")
        seen.add(tool.name)
    choice = settings.tool_choice
    if choice not in _CHOICES and choice not in seen:
        possible = quote_names([*_CHOICES, *sorted(seen)])
        raise SetupError(f"the tool_choice of `{settings.agent}` is {choice!r}; it can be: {possible}")


_FORMATS: dict[AudioFormat, dict[str, Any]] = {
    "pcm16": {"type": "audio/pcm", "rate": 24000},
    "g711_ulaw": {"type": "audio/pcmu"},
    "g711_alaw": {"type": "audio/pcma"},
}
_DETECTION_FIELDS = {
    "semantic_vad": {"eagerness": "eagerness"},
    "server_vad": {"threshold": "threshold", "prefix_padding_ms": "prefix_ms", "silence_duration_ms": "silence_ms"},
}
_PCM = ("audio/pcm", "audio/pcm16", "audio/l16")
_MAX_ID_LENGTH = 32
_PART_SEPARATOR = "#"
_encode = msgspec.json.Encoder().encode


class SentItem(Struct, frozen=True):
    """The client's own ids of an item that was sent."""

    item_id: str
    call_id: str = ""


class OpenAICommandEncoder:
    """Encodes the commands of one connection, and tracks the items it has sent."""

    def __init__(self, model: str) -> None:
        self._model = model
        self.items: dict[str, SentItem] = {}
        """Items that were sent and not acknowledged, by their ids on the wire."""

    def frames(self, command: protocol.Command) -> Iterator[str]:
        """Encode a command as JSON texts, in most cases one."""
        for number, event in enumerate(self._events(command)):
            if command.id:
                event["event_id"] = f"{command.id}{_PART_SEPARATOR}{number}" if number else command.id
            yield _encode(event).decode()

    def _events(self, command: protocol.Command) -> Iterator[dict[str, Any]]:
        match command:
            case protocol.AppendAudio():
                # By far the most frequent command; the encoder writes bytes as base64.
                yield {"type": "input_audio_buffer.append", "audio": command.audio}
            case protocol.ConfigureSession():
                session = encode_session(command.settings, with_voice=command.changes_voice)
                yield {"type": "session.update", "session": session}
            case protocol.CommitAudio():
                yield {"type": "input_audio_buffer.commit"}
            case protocol.ClearAudio():
                yield {"type": "input_audio_buffer.clear"}
            case protocol.AddItem():
                yield from self._items(command)
            case protocol.CreateResponse():
                yield {"type": "response.create"}
            case protocol.CancelResponse():
                which = {"response_id": command.response_id} if command.response_id else {}
                yield {"type": "response.cancel", **which}
            case protocol.TruncateItem():
                where = {"item_id": _fit_id(command.item_id, "item"), "content_index": command.content_index}
                yield {"type": "conversation.item.truncate", **where, "audio_end_ms": command.audio_end_ms}
            case _:
                assert_never(command)

    def _items(self, command: protocol.AddItem) -> Iterator[dict[str, Any]]:
        for number, (item, call_id) in enumerate(_encode_message(command.message, self._model)):
            given = command.item_id if number == 0 and command.item_id else f"item_{secrets.token_hex(10)}"
            id = _fit_id(given, "item")
            self.items[id] = SentItem(given, call_id)
            yield {"type": "conversation.item.create", "item": {"id": id, **item}}


def to_command_id(event_id: str) -> str:
    """Return the id of the command that a client event belongs to."""
    return event_id.partition(_PART_SEPARATOR)[0]


def encode_session(settings: SessionConfig, *, with_voice: bool) -> dict[str, Any]:
    """Encode a configuration as a `session` object."""
    common = settings.settings
    transcription = without_none({"model": common.transcription, "language": common.language or None})
    audio_input: dict[str, Any] = {
        "format": _FORMATS[common.input_format],
        "turn_detection": _detection(common.turn_detection),
        "transcription": transcription if common.transcription else None,
        "noise_reduction": {"type": common.noise_reduction} if common.noise_reduction else None,
    }
    voice: Any = settings.voice or common.voice if with_voice else None
    if voice is not None and voice.startswith(CUSTOM_VOICE_PREFIX):
        voice = {"id": voice}
    audio_output = without_none({"format": _FORMATS[common.output_format], "speed": common.speed, "voice": voice})
    choice = settings.tool_choice
    session: dict[str, Any] = {
        "type": "realtime",
        "output_modalities": [common.modality],
        "instructions": settings.instructions,
        "tools": [
            {"type": "function", "name": tool.name, "description": tool.description, "parameters": tool.parameters}
            for tool in settings.tools
        ],
        "tool_choice": choice if choice in _CHOICES else {"type": "function", "name": choice},
        "max_output_tokens": "inf" if common.max_output_tokens is None else common.max_output_tokens,
        "audio": {"input": audio_input, "output": audio_output},
    }
    return _merge(session, common.extra_body)


def _detection(detection: TurnDetection | None) -> dict[str, Any] | None:
    if detection is None:
        return None
    given = {name: getattr(detection, field) for name, field in _DETECTION_FIELDS[detection.kind].items()}
    automatic = {"create_response": detection.create_response, "interrupt_response": detection.interrupt_response}
    return without_none({"type": detection.kind, **automatic, **given})


def _encode_message(message: Message, model: str) -> Iterator[tuple[dict[str, Any], str]]:
    """Encode a message as items, each with the id of the call it belongs to, if any."""
    match message:
        case UserMessage(content):
            yield _said("user", [_part(part, model) for part in _parts(content)]), ""
        case SystemMessage(content):
            yield _said("system", [{"type": "input_text", "text": text_of(content)}]), ""
        case AssistantMessage():
            words = _words(message.content)
            if words or not message.tool_calls:
                yield _said("assistant", [{"type": "output_text", "text": words}]), ""
            for call in message.tool_calls:
                yield _called(call), call.id
        case ToolMessage():
            wire = {"type": "function_call_output", "call_id": _fit_id(message.tool_call_id, "call")}
            yield {**wire, "output": text_of(message.content)}, message.tool_call_id
            media = [part for part in media_of(message.content) if isinstance(part, Image) and part.data is not None]
            if media:
                # The output of a call is text only, so images follow as a user message.
                yield _said("user", [_part(part, model) for part in about(message.name, media)]), ""


def _said(role: str, content: list[dict[str, Any]]) -> dict[str, Any]:
    return {"type": "message", "role": role, "content": content}


def _called(call: ToolCall) -> dict[str, Any]:
    wire = {"type": "function_call", "call_id": _fit_id(call.id, "call"), "name": fitting_name(call.name)}
    return {**wire, "arguments": fitting_arguments(call.arguments)}


def _parts(content: Content) -> tuple[Part, ...]:
    return (Text(content),) if isinstance(content, str) else content or (Text(""),)


def _words(content: Content) -> str:
    if isinstance(content, str):
        return content
    heard = [part.transcript for part in content if isinstance(part, Audio) and part.transcript]
    return "\n".join([text for text in (text_of(content), *heard) if text])


def _part(part: Part, model: str) -> dict[str, Any]:
    match part:
        case Image():
            url = as_data_url(part.data, part.media_type) if part.data is not None else part.url or ""
            if not url.startswith("data:"):
                raise unsupported(model, "an image by its address", "give its data")
            detail = {"detail": part.detail} if part.detail in ("auto", "low", "high") else {}
            return {"type": "input_image", "image_url": url, **detail}
        case Audio() if part.data is not None and part.media_type.partition(";")[0] in _PCM:
            transcript = {"transcript": part.transcript} if part.transcript else {}
            return {"type": "input_audio", "audio": as_base64(part.data), **transcript}
        case Audio() if not part.transcript:
            raise unsupported(model, f"sound ({part.media_type})", "give audio/pcm by value, or a transcript")
        case _:
            encoded = responses_part(part, model)
            if encoded["type"] == "input_file":
                what = f"a file ({part.media_type})" if isinstance(part, File) else "a file"
                raise unsupported(model, what, "give text, or say in words what is in it")
            return encoded


def _fit_id(id: str, kind: str) -> str:
    """Return the id, or a digest of it if it is too long for OpenAI."""
    return id if len(id) <= _MAX_ID_LENGTH else f"{kind}_{blake2b(id.encode(), digest_size=12).hexdigest()}"


def _merge(settings: dict[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    """Merge settings recursively."""
    merged = dict(settings)
    for name, value in more.items():
        before = merged.get(name)
        if isinstance(before, dict) and isinstance(value, Mapping):
            value = _merge(cast("dict[str, Any]", before), cast("Mapping[str, Any]", value))
        merged[name] = value
    return merged
