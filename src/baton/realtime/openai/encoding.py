"""Commands as the events that OpenAI takes.

What OpenAI would refuse of a session's settings, found before they are sent.
"""

import re
import secrets
from base64 import b64encode
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
    Data,
    File,
    Image,
    Message,
    Part,
    SystemMessage,
    Text,
    ToolCall,
    ToolMessage,
    ToolSpec,
    UserMessage,
    media_of,
    text_of,
)
from ...models.encoding import as_json
from ...models.openai.encoding import about, fitting_arguments, fitting_name
from ...models.provider_errors import unsupported
from ..protocol import (
    AddItem,
    AppendAudio,
    CancelResponse,
    ClearAudio,
    Command,
    CommitAudio,
    ConfigureSession,
    CreateResponse,
    TruncateItem,
)
from ..settings import AudioFormat, SessionConfig, TurnDetection

VOICES = ("alloy", "ash", "ballad", "cedar", "coral", "echo", "marin", "sage", "shimmer", "verse")
OWN_VOICE = "voice_"
"""How the ids of voices begin that somebody has made for an account of their own."""

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_MOST_TOOLS = 128
_LONGEST_INSTRUCTIONS = 65_536
_SLOWEST, _FASTEST = 0.25, 1.5
_MOST_TOKENS = 4096
_CHOICES = ("auto", "none", "required")


def check_settings(settings: SessionConfig, model: str, voices: Collection[str]) -> None:
    """Raise SetupError if OpenAI would not take these settings."""
    who = f"`{settings.agent}`"
    size = len(settings.instructions)
    if size > _LONGEST_INSTRUCTIONS:
        raise SetupError(
            f"the instructions of {who} have {size:,} characters; `{model}` takes at most {_LONGEST_INSTRUCTIONS:,}"
        )
    _check_voice(settings, model, voices)
    speed, most = settings.settings.speed, settings.settings.max_output_tokens
    if speed is not None and not _SLOWEST <= speed <= _FASTEST:
        raise SetupError(f"the speed for {who} is {speed:g}; `{model}` speaks from {_SLOWEST:g} to {_FASTEST:g}")
    if most is not None and not 1 <= most <= _MOST_TOKENS:
        raise SetupError(f"max_output_tokens for {who} is {most}; `{model}` takes from 1 to {_MOST_TOKENS}, or None")
    _check_tools(settings, model)


def _check_voice(settings: SessionConfig, model: str, voices: Collection[str]) -> None:
    for voice, whose in ((settings.voice, f"of `{settings.agent}`"), (settings.settings.voice, "of the conversation")):
        if voice is not None and voice not in voices and not voice.startswith(OWN_VOICE):
            known = quote_names(sorted(voices))
            raise SetupError(
                f"the voice {whose} is {voice!r}; `{model}` can speak with: {known}, or the id of a voice of your own"
            )


def _check_tools(settings: SessionConfig, model: str) -> None:
    tools = settings.tools
    if len(tools) > _MOST_TOOLS:
        raise SetupError(f"`{settings.agent}` has {len(tools)} tools; `{model}` takes at most {_MOST_TOOLS}")
    seen: set[str] = set()
    for tool in tools:
        _check_tool(tool, settings.agent, model)
        if tool.name in seen:
            raise SetupError(f"`{settings.agent}` has two tools of the name `{tool.name}`; give one another name")
        seen.add(tool.name)
    choice = settings.tool_choice
    if choice not in _CHOICES and choice not in seen:
        possible = quote_names([*_CHOICES, *sorted(seen)])
        raise SetupError(f"the tool_choice of `{settings.agent}` is {choice!r}; it can be: {possible}")


def _check_tool(tool: ToolSpec, agent: str, model: str) -> None:
    if not _NAME.fullmatch(tool.name):
        form = "letters, digits, _ and -, from 1 to 64 of them"
        raise SetupError(f"`{agent}` has a tool named {tool.name!r}; `{model}` takes names of {form}")
    kind: Any = tool.parameters.get("type")
    if kind != "object":
        raise SetupError(
            f"the parameters of the tool `{tool.name}` of `{agent}` are a schema of type {kind!r}; "
            f'`{model}` takes only schemas of type "object"'
        )


_FORMATS: dict[AudioFormat, dict[str, Any]] = {
    "pcm16": {"type": "audio/pcm", "rate": 24000},
    "g711_ulaw": {"type": "audio/pcmu"},
    "g711_alaw": {"type": "audio/pcma"},
}
_PCM = ("audio/pcm", "audio/pcm16", "audio/l16")
_LONGEST_ID = 32
_PART_OF = "#"
_encode = msgspec.json.Encoder().encode


class SentItem(Struct, frozen=True):
    """An item on its way, under the ids that whoever sends it knows it by."""

    item_id: str
    call_id: str = ""


class OpenAICommandEncoder:
    """Writes the events of one connection, and remembers which items it has sent."""

    def __init__(self, model: str) -> None:
        self._model = model
        self.items: dict[str, SentItem] = {}
        """The items that were sent and have not been acknowledged, by their ids on the wire."""

    def frames(self, command: Command) -> Iterator[str]:
        """The events of one command, as text. One is as good as always enough."""
        if isinstance(command, AppendAudio):
            # The most frequent by far; the encoder writes bytes as base64 by itself.
            yield _encode({**_event("input_audio_buffer.append", command.id), "audio": command.audio}).decode()
            return
        for number, event in enumerate(self._events(command)):
            if command.id:
                event["event_id"] = f"{command.id}{_PART_OF}{number}" if number else command.id
            yield _encode(event).decode()

    def _events(self, command: Command) -> Iterator[dict[str, Any]]:
        match command:
            case ConfigureSession():
                yield {
                    "type": "session.update",
                    "session": session_of(command.settings, with_voice=command.changes_voice),
                }
            case CommitAudio():
                yield {"type": "input_audio_buffer.commit"}
            case ClearAudio():
                yield {"type": "input_audio_buffer.clear"}
            case AddItem():
                yield from self._items(command)
            case CreateResponse():
                yield {"type": "response.create"}
            case CancelResponse():
                which = {"response_id": command.response_id} if command.response_id else {}
                yield {"type": "response.cancel", **which}
            case TruncateItem():
                where = {"item_id": _fitting(command.item_id, "item"), "content_index": command.content_index}
                yield {"type": "conversation.item.truncate", **where, "audio_end_ms": command.audio_end_ms}
            case AppendAudio():
                yield {"type": "input_audio_buffer.append", "audio": command.audio}
            case _:
                assert_never(command)

    def _items(self, command: AddItem) -> Iterator[dict[str, Any]]:
        for number, (item, call_id) in enumerate(_items_of(command.message, self._model)):
            given = command.item_id if number == 0 and command.item_id else f"item_{secrets.token_hex(10)}"
            id = _fitting(given, "item")
            self.items[id] = SentItem(given, call_id)
            yield {"type": "conversation.item.create", "item": {"id": id, **item}}


def command_id_of(event_id: str) -> str:
    """The id of the command that an event belongs to."""
    return event_id.partition(_PART_OF)[0]


def session_of(settings: SessionConfig, *, with_voice: bool) -> dict[str, Any]:
    """The settings as a `session`."""
    manners = settings.settings
    transcription = {"model": manners.transcription, **({"language": manners.language} if manners.language else {})}
    listening: dict[str, Any] = {
        "format": _FORMATS[manners.input_format],
        "turn_detection": _detection(manners.turn_detection),
        "transcription": transcription if manners.transcription else None,
        "noise_reduction": {"type": manners.noise_reduction} if manners.noise_reduction else None,
    }
    speaking: dict[str, Any] = {"format": _FORMATS[manners.output_format]}
    if manners.speed is not None:
        speaking["speed"] = manners.speed
    voice = settings.voice or manners.voice
    if with_voice and voice is not None:
        speaking["voice"] = {"id": voice} if voice.startswith(OWN_VOICE) else voice
    choice = settings.tool_choice
    session: dict[str, Any] = {
        "type": "realtime",
        "output_modalities": [manners.modality],
        "instructions": settings.instructions,
        "tools": [
            {"type": "function", "name": tool.name, "description": tool.description, "parameters": tool.parameters}
            for tool in settings.tools
        ],
        "tool_choice": choice if choice in _CHOICES else {"type": "function", "name": choice},
        "max_output_tokens": "inf" if manners.max_output_tokens is None else manners.max_output_tokens,
        "audio": {"input": listening, "output": speaking},
    }
    return _merged(session, manners.extra_body)


def _detection(detection: TurnDetection | None) -> dict[str, Any] | None:
    if detection is None:
        return None
    wire: dict[str, Any] = {
        "type": detection.kind,
        "create_response": detection.create_response,
        "interrupt_response": detection.interrupt_response,
    }
    if detection.kind == "semantic_vad":
        told: dict[str, Any] = {"eagerness": detection.eagerness}
    else:
        told = {
            "threshold": detection.threshold,
            "prefix_padding_ms": detection.prefix_ms,
            "silence_duration_ms": detection.silence_ms,
        }
    return {**wire, **{name: value for name, value in told.items() if value is not None}}


def _items_of(message: Message, model: str) -> Iterator[tuple[dict[str, Any], str]]:
    """The items of a message, each with the id of the call it belongs to, if any."""
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
            wire = {"type": "function_call_output", "call_id": _fitting(message.tool_call_id, "call")}
            yield {**wire, "output": text_of(message.content)}, message.tool_call_id
            media = [part for part in media_of(message.content) if isinstance(part, Image) and part.data is not None]
            if media:
                # The output of a call is text, so what it shows follows as if the user showed it.
                yield _said("user", [_part(part, model) for part in about(message.name, media)]), ""


def _said(role: str, content: list[dict[str, Any]]) -> dict[str, Any]:
    return {"type": "message", "role": role, "content": content}


def _called(call: ToolCall) -> dict[str, Any]:
    wire = {"type": "function_call", "call_id": _fitting(call.id, "call"), "name": fitting_name(call.name)}
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
        case Text(text):
            return {"type": "input_text", "text": text}
        case Data(value):
            return {"type": "input_text", "text": as_json(value)}
        case Image():
            url = part.url or ""
            if part.data is not None:
                url = f"data:{part.media_type};base64,{b64encode(part.data).decode()}"
            if not url.startswith("data:"):
                raise unsupported(model, "an image by its address", "give its data")
            detail = {"detail": part.detail} if part.detail in ("auto", "low", "high") else {}
            return {"type": "input_image", "image_url": url, **detail}
        case Audio():
            if part.data is not None and part.media_type.partition(";")[0] in _PCM:
                transcript = {"transcript": part.transcript} if part.transcript else {}
                return {"type": "input_audio", "audio": b64encode(part.data).decode(), **transcript}
            if part.transcript:
                return {"type": "input_text", "text": part.transcript}
            raise unsupported(model, f"sound ({part.media_type})", "give audio/pcm by value, or a transcript")
        case File():
            kind = part.media_type.partition(";")[0]
            if part.data is not None and (kind.startswith("text/") or kind == "application/json"):
                text = part.data.decode(errors="replace")
                return {"type": "input_text", "text": f"{part.name}:\n{text}" if part.name else text}
            raise unsupported(model, f"a file ({part.media_type})", "give text, or say in words what is in it")


def _event(kind: str, id: str) -> dict[str, Any]:
    return {"type": kind, "event_id": id} if id else {"type": kind}


def _fitting(id: str, kind: str) -> str:
    """The id, or a digest of it if it is longer than OpenAI takes."""
    return id if len(id) <= _LONGEST_ID else f"{kind}_{blake2b(id.encode(), digest_size=12).hexdigest()}"


def _merged(settings: dict[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    """The settings with more of them, also inside of one another."""
    merged = dict(settings)
    for name, value in more.items():
        before = merged.get(name)
        if isinstance(before, dict) and isinstance(value, Mapping):
            value = _merged(cast("dict[str, Any]", before), cast("Mapping[str, Any]", value))
        merged[name] = value
    return merged
