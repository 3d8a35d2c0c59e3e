"""OpenAI's forms of a conversation: server events for the provider's events, and items in both directions."""

from base64 import b64decode, b64encode
from collections.abc import Iterator
from typing import Any, assert_never

from msgspec import to_builtins
from tests.servers.openai.chat_schema import image
from tests.servers.openai.errors import kind_and_code
from tests.servers.realtime.connection import new_id
from tests.servers.realtime.request_schema import (
    FORMATS,
    ClientItem,
    FunctionCall,
    FunctionCallOutput,
    InputPart,
    OutputMessage,
)

from batonkit.errors import ModelError
from batonkit.messages import (
    AssistantMessage,
    Audio,
    Image,
    Message,
    Part,
    SystemMessage,
    Text,
    ToolCall,
    ToolMessage,
    ToolSpec,
    Usage,
    UserMessage,
)
from batonkit.realtime import protocol
from batonkit.realtime.voice_settings import RealtimeSettings, SessionConfig, TurnDetection
from batonkit.testing.realtime.conversation import ConversationItem, ProviderConversation
from batonkit.testing.realtime.responses import (
    INPUT_MS_PER_TOKEN,
    OUTPUT_MS_PER_TOKEN,
    CallChunk,
    ItemEnded,
    ItemStarted,
    ProviderEvent,
)

WireEvent = tuple[str, dict[str, Any]]
"""Type and fields of an event."""
_TRANSCRIPTION = "conversation.item.input_audio_transcription"
_RATE_LIMITS = [
    {"name": "requests", "limit": 1000, "remaining": 999, "reset_seconds": 60.0},
    {"name": "tokens", "limit": 50_000, "remaining": 45_000, "reset_seconds": 4.0},
]


def decode_settings(wire: dict[str, Any]) -> SessionConfig:
    """Convert the settings of a session to a configuration of the provider."""
    listening, speaking = wire["audio"]["input"], wire["audio"]["output"]
    transcription, voice = listening["transcription"], speaking["voice"]
    settings = RealtimeSettings(
        modality=wire["output_modalities"][0],
        input_format=FORMATS[listening["format"]["type"]],
        output_format=FORMATS[speaking["format"]["type"]],
        turn_detection=_decode_detection(listening["turn_detection"]),
        transcription=None if transcription is None else transcription.get("model", ""),
    )
    tools = [ToolSpec(t["name"], t.get("description", ""), t.get("parameters") or {}) for t in wire["tools"]]
    voice = voice if isinstance(voice, str) else voice["id"]
    return SessionConfig("", wire["instructions"], tuple(tools), voice=voice, settings=settings)


def _decode_detection(wire: dict[str, Any] | None) -> TurnDetection | None:
    if wire is None:
        return None
    return TurnDetection(
        wire["type"],
        wire["create_response"],
        wire["interrupt_response"],
        threshold=wire.get("threshold"),
        prefix_ms=wire.get("prefix_padding_ms"),
        silence_ms=wire.get("silence_duration_ms"),
        eagerness=wire.get("eagerness"),
    )


def decode_item(item: ClientItem) -> tuple[Message, bytes]:
    """Convert an item of the client to a message and its audio."""
    if isinstance(item, FunctionCall):
        call = ToolCall(item.call_id or new_id("call"), item.name, item.arguments)
        return AssistantMessage(tool_calls=(call,)), b""
    if isinstance(item, FunctionCallOutput):
        return ToolMessage(item.call_id, "", item.output), b""
    if isinstance(item, OutputMessage):
        return AssistantMessage("".join([part.text or "" for part in item.content])), b""
    if item.role == "system":
        return SystemMessage("\n".join([part.text or "" for part in item.content])), b""
    parts = tuple([_decode_part(part) for part in item.content])
    texts = [part.text for part in parts if isinstance(part, Text)]
    audio = b"".join([b64decode(part.audio) for part in item.content if part.audio])
    return UserMessage("\n".join(texts) if len(texts) == len(parts) else parts), audio


def _decode_part(part: InputPart) -> Part:
    if part.type == "input_image":
        given = image(part.image_url or "", "image_url", part.detail)
        return Image(data=given.data, media_type=given.media_type, detail=given.detail)
    text = part.text or part.transcript
    if part.type == "input_text" or text:
        return Text(text or "")
    return Audio(data=b64decode(part.audio or ""), media_type="audio/pcm")


class ServerEventEncoder:
    """Encodes the events of one session."""

    def __init__(self, conversation: ProviderConversation, settings: dict[str, Any]) -> None:
        self.settings = settings
        self.overrides: tuple[dict[str, Any], Any] | None = None
        """Settings and metadata of the response that starts next, if they are not those of the session."""
        self._conversation = conversation
        self._conversation_id = new_id("conv")
        self._given: dict[str, dict[str, Any]] = {}
        """Fields of items that the client has created."""
        self._transcripts: dict[str, str] = {}
        self._response: dict[str, Any] = {}
        self._items: list[ConversationItem] = []
        self._error_kind = "server_error"

    def keep(self, item: ConversationItem, given: ClientItem) -> None:
        """Keep the fields of an item that the client has created, to show them as they were given."""
        wire = {name: value for name, value in to_builtins(given).items() if value is not None}
        wire.update(id=item.id, status="completed")
        if item.call_id:
            wire["call_id"] = item.call_id
        if "content" in wire:
            # Clients are shown audio only when they retrieve an item.
            wire["content"] = [
                {name: value for name, value in part.items() if value is not None and name != "audio"}
                for part in wire["content"]
            ]
        self._given[item.id] = wire

    def error_code(self, error: ModelError) -> str:
        """Return the code of an error that fails the response."""
        self._error_kind, code = kind_and_code(error)
        return code or self._error_kind

    def encode_item(self, item: ConversationItem, *, with_audio: bool = False) -> dict[str, Any]:
        """Encode an item, optionally with its audio."""
        own = self._given.get(item.id) or self._item_fields(item)
        wire: dict[str, Any] = {"id": item.id, "object": "realtime.item", "status": item.status, **own}
        if with_audio and item.audio:
            audio = b64encode(item.audio).decode()
            wire["content"] = [{**part, "audio": audio} for part in wire["content"]]
        return wire

    def encode(self, event: ProviderEvent) -> Iterator[WireEvent]:
        """Encode an event; some have no form of their own, others several."""
        match event:
            case (
                protocol.ResponseStarted()
                | protocol.ResponseEnded()
                | protocol.TranscriptChunk()
                | protocol.AudioChunk()
                | ItemStarted()
                | CallChunk()
                | ItemEnded()
            ):
                yield from self._encode_response(event)
            case protocol.ItemAdded(item_id):
                yield from self._encode_added(item_id)
            case protocol.ItemTruncated(item_id, audio_end_ms):
                where = {"item_id": item_id, "content_index": 0}
                yield "conversation.item.truncated", {**where, "audio_end_ms": audio_end_ms}
            case protocol.UserSpeechStarted(item_id, at_ms):
                yield "input_audio_buffer.speech_started", {"item_id": item_id, "audio_start_ms": at_ms}
            case protocol.UserSpeechEnded(item_id, at_ms):
                yield "input_audio_buffer.speech_stopped", {"item_id": item_id, "audio_end_ms": at_ms}
            case protocol.AudioCommitted(item_id):
                before = self._previous(item_id)
                yield "input_audio_buffer.committed", {"item_id": item_id, "previous_item_id": before}
                yield from self._encode_added(item_id)
            case protocol.TranscriptionCompleted(item_id, text):
                yield from self._encode_transcription(item_id, text)
            case protocol.TranscriptionFailed(item_id, message):
                error = {"type": "transcription_error", "code": "audio_unintelligible", "message": message}
                where = {"item_id": item_id, "content_index": 0}
                yield f"{_TRANSCRIPTION}.failed", {**where, "error": {**error, "param": None}}
            case (
                protocol.SessionReady()
                | protocol.SessionConfigured()
                | protocol.AudioEnded()
                | protocol.TranscriptionChunk()
                | protocol.ProviderErrorReceived()
            ):
                pass
            case _:
                assert_never(event)

    def _encode_response(
        self,
        event: protocol.ResponseStarted
        | protocol.ResponseEnded
        | protocol.TranscriptChunk
        | protocol.AudioChunk
        | ItemStarted
        | CallChunk
        | ItemEnded,
    ) -> Iterator[WireEvent]:
        match event:
            case protocol.ResponseStarted(response_id):
                self._start_response(response_id)
                yield "response.created", {"response": self._response}
                yield "rate_limits.updated", {"rate_limits": _RATE_LIMITS}
            case protocol.ResponseEnded():
                yield "response.done", {"response": self._ended_response(event)}
            case protocol.TranscriptChunk(_, item_id, _, text, is_spoken):
                kind = "output_audio_transcript" if is_spoken else "output_text"
                yield f"response.{kind}.delta", {**self._part_place(item_id), "delta": text}
            case protocol.AudioChunk(_, item_id, _, audio):
                delta = b64encode(audio).decode()
                yield "response.output_audio.delta", {**self._part_place(item_id), "delta": delta}
            case ItemStarted(item):
                self._items.append(item)
                wire = self.encode_item(item)
                yield "response.output_item.added", {**self._output_place(item.id), "item": wire}
                yield "conversation.item.added", {"previous_item_id": self._previous(item.id), "item": wire}
                if item.role == "assistant":
                    yield "response.content_part.added", {**self._part_place(item.id), "part": _part(item, "")}
            case CallChunk(item, arguments):
                place = {**self._item_place(item.id), "call_id": item.call_id}
                yield "response.function_call_arguments.delta", {**place, "delta": arguments}
            case ItemEnded(item):
                wire = self.encode_item(item)
                yield from self._encode_content_end(item, wire)
                yield "response.output_item.done", {**self._output_place(item.id), "item": wire}
                yield "conversation.item.done", {"item": wire}
            case _:
                assert_never(event)

    def _encode_content_end(self, item: ConversationItem, wire: dict[str, Any]) -> Iterator[WireEvent]:
        if item.role == "call":
            # Also for a call that was cut off: only the status of its item says that it is incomplete.
            fields = {name: wire[name] for name in ("call_id", "name", "arguments")}
            yield "response.function_call_arguments.done", {**self._item_place(item.id), **fields}
            return
        place = self._part_place(item.id)
        if item.format is not None:
            yield "response.output_audio.done", place
            yield "response.output_audio_transcript.done", {**place, "transcript": item.transcript}
        else:
            yield "response.output_text.done", {**place, "text": item.transcript}
        yield "response.content_part.done", {**place, "part": _part(item, item.transcript)}

    def _encode_added(self, item_id: str) -> Iterator[WireEvent]:
        item = self._conversation.find(item_id, "create")
        fields = {"previous_item_id": self._previous(item_id), "item": self.encode_item(item)}
        yield "conversation.item.added", fields
        yield "conversation.item.done", fields

    def _encode_transcription(self, item_id: str, text: str) -> Iterator[WireEvent]:
        self._transcripts[item_id] = text
        place = {"item_id": item_id, "content_index": 0}
        words = text.split(" ") if text else []
        for number, word in enumerate(words):
            yield f"{_TRANSCRIPTION}.delta", {**place, "delta": f" {word}" if number else word}
        heard = self._conversation.find(item_id, "transcribe").audio_ms // INPUT_MS_PER_TOKEN
        usage: dict[str, Any] = {"type": "tokens", "input_tokens": heard, "output_tokens": len(words)}
        usage["total_tokens"] = heard + len(words)
        usage["input_token_details"] = {"text_tokens": 0, "audio_tokens": heard}
        yield f"{_TRANSCRIPTION}.completed", {**place, "transcript": text, "usage": usage}

    def _start_response(self, response_id: str) -> None:
        self._items = []
        settings, metadata = self.overrides or (self.settings, None)
        output = settings["audio"]["output"]
        self._response = {
            "object": "realtime.response",
            "id": response_id,
            "status": "in_progress",
            "status_details": None,
            "output": [],
            "conversation_id": self._conversation_id,
            "output_modalities": settings["output_modalities"],
            "max_output_tokens": settings["max_output_tokens"],
            "audio": {"output": {"format": output["format"], "voice": output["voice"]}},
            "usage": None,
            "metadata": metadata,
        }

    def _ended_response(self, ended: protocol.ResponseEnded) -> dict[str, Any]:
        details: dict[str, Any] | None = None
        if ended.status == "failed":
            error = {"type": self._error_kind, "code": ended.reason, "message": ended.error}
            details = {"type": ended.status, "error": error}
        elif ended.status != "completed":
            details = {"type": ended.status, "reason": ended.reason}
        assert ended.usage is not None
        return {
            **self._response,
            "status": ended.status,
            "status_details": details,
            "output": [self.encode_item(item) for item in self._items],
            "usage": self._encode_usage(ended.usage),
        }

    def _encode_usage(self, usage: Usage) -> dict[str, Any]:
        own = {item.id for item in self._items}
        read = sum(item.audio_ms for item in self._conversation.items if item.id not in own) // INPUT_MS_PER_TOKEN
        spoken = sum(item.audio_ms for item in self._items) // OUTPUT_MS_PER_TOKEN
        read, spoken, cached = min(read, usage.input_tokens), min(spoken, usage.output_tokens), usage.cached_tokens
        return {
            "total_tokens": usage.input_tokens + usage.output_tokens,
            "input_tokens": usage.input_tokens,
            "output_tokens": usage.output_tokens,
            "input_token_details": {
                "text_tokens": usage.input_tokens - read,
                "audio_tokens": read,
                "image_tokens": 0,
                "cached_tokens": cached,
                "cached_tokens_details": {"text_tokens": cached, "audio_tokens": 0, "image_tokens": 0},
            },
            "output_token_details": {"text_tokens": usage.output_tokens - spoken, "audio_tokens": spoken},
        }

    def _item_fields(self, item: ConversationItem) -> dict[str, Any]:
        if isinstance(item.message, AssistantMessage) and item.message.tool_calls:
            (call,) = item.message.tool_calls
            return {"type": "function_call", "name": call.name, "call_id": call.id, "arguments": call.arguments}
        content: list[dict[str, Any]] = []
        if item.role == "user":
            content = [{"type": "input_audio", "transcript": self._transcripts.get(item.id)}]
        elif item.is_truncated:
            # The provider drops the transcript, because words that were not heard would mislead the model.
            content = [{"type": "output_audio"}]
        elif item.status != "in_progress":
            part = _part(item, item.transcript)
            content = [{**part, "type": f"output_{part['type']}"}]
        return {"type": "message", "role": item.role, "content": content}

    def _previous(self, item_id: str) -> str | None:
        ids = [item.id for item in self._conversation.items]
        place = ids.index(item_id)
        return ids[place - 1] if place else None

    def _output_place(self, item_id: str) -> dict[str, Any]:
        index = next(index for index, item in enumerate(self._items) if item.id == item_id)
        return {"response_id": self._response["id"], "output_index": index}

    def _item_place(self, item_id: str) -> dict[str, Any]:
        return {**self._output_place(item_id), "item_id": item_id}

    def _part_place(self, item_id: str) -> dict[str, Any]:
        return {**self._item_place(item_id), "content_index": 0}


def _part(item: ConversationItem, text: str) -> dict[str, Any]:
    return {"type": "audio", "transcript": text} if item.format is not None else {"type": "text", "text": text}
