"""Decodes OpenAI's server events to signals, and maps failures of the websocket to model errors."""

from collections import deque
from collections.abc import Callable
from logging import getLogger
from typing import TYPE_CHECKING, Literal

import msgspec
from msgspec import Raw, Struct

from ...errors import ModelConnectionError, ModelError
from ...messages import AssistantMessage, ToolCall, Usage
from ...models.openai.errors import failed_inside, turned_down
from ...models.provider_errors import cut_short, malformed, timed_out, unreachable
from ..protocol import (
    AudioChunk,
    AudioCommitted,
    AudioEnded,
    ItemAdded,
    ItemTruncated,
    ProviderErrorReceived,
    ResponseEnded,
    ResponseStarted,
    SessionConfigured,
    SessionReady,
    Signal,
    TranscriptChunk,
    TranscriptionChunk,
    TranscriptionCompleted,
    TranscriptionFailed,
    UserSpeechEnded,
    UserSpeechStarted,
)
from .encoding import OpenAICommandEncoder, to_command_id

if TYPE_CHECKING:
    from websockets.exceptions import ConnectionClosed

MALFORMED = "malformed_event"
"""Error code for an event of the provider that cannot be decoded."""
_NORMAL_CLOSURE = 1000
_REFUSED = (3000, 4000)
"""Close codes of a rejected session; the reason is `type.code` of OpenAI's errors."""


def close_error(model: str, error: "ConnectionClosed") -> ModelError | None:
    """Map the closing of a websocket by OpenAI to an error; None if it was a normal closure."""
    close = error.rcvd
    if close is None:
        return cut_short(model, has_begun=True, because="there was no close frame")
    if close.code == _NORMAL_CLOSURE:
        return None
    if close.code in _REFUSED and "." in close.reason:
        kind, _, code = close.reason.partition(".")
        return failed_inside(model, {"type": kind, "code": code, "message": close.reason})
    return cut_short(model, has_begun=True, because=f"it was closed with {close.code} {close.reason}".rstrip())


def open_error(model: str, error: ProviderErrorReceived) -> ModelError:
    """Map an error event that came before the session was open."""
    if error.code == MALFORMED:
        return malformed(model, error.message)
    kind = "server_error" if "server" in error.code else "invalid_request_error"
    return failed_inside(model, {"type": kind, "code": error.code, "message": error.message})


def connect_error(model: str, error: Exception, seconds: float) -> ModelError:
    """Map a failed handshake to an error."""
    from websockets.exceptions import InvalidHandshake, InvalidStatus

    if isinstance(error, InvalidStatus):
        response = error.response
        headers = {name.lower(): value for name, value in response.headers.raw_items()}
        return turned_down(model, response.status_code, headers, bytes(response.body or b""))
    if isinstance(error, TimeoutError):
        return timed_out(model, seconds)
    if isinstance(error, InvalidHandshake):
        what = f"`{model}` does not speak websockets at this address: {error}; check base_url"
        return ModelConnectionError(what, model=model)
    return unreachable(model, error)


_log = getLogger(__name__)
_MAX_REMEMBERED = 4096
_NOTHING = Raw(b"null")


class _Event(Struct):
    """The fields of all events that are read; unknown fields are ignored."""

    type: str
    event_id: str | None = None
    response_id: str = ""
    item_id: str = ""
    content_index: int | None = 0
    delta: Raw = _NOTHING
    transcript: str | None = ""
    audio_start_ms: int = 0
    audio_end_ms: int = 0
    session: Raw = _NOTHING
    response: Raw = _NOTHING
    item: Raw = _NOTHING
    error: Raw = _NOTHING


class _Named(Struct):
    id: str | None = None


class _Part(Struct):
    text: str | None = None
    transcript: str | None = None


class _Item(Struct):
    id: str | None = None
    type: str = ""
    role: str | None = None
    status: str | None = None
    content: list[_Part] | None = None
    name: str | None = None
    call_id: str | None = None
    arguments: str | None = None


class _Error(Struct):
    message: str | None = None
    type: str | None = None
    code: str | None = None
    event_id: str | None = None


class _Details(Struct):
    reason: str | None = None
    error: _Error | None = None


class _InputDetails(Struct):
    cached_tokens: int | None = None


class _Usage(Struct):
    input_tokens: int | None = None
    output_tokens: int | None = None
    input_token_details: _InputDetails | None = None


class _Response(Struct):
    id: str | None = None
    status: str | None = None
    status_details: _Details | None = None
    output: list[_Item] | None = None
    usage: _Usage | None = None


_events = msgspec.json.Decoder(_Event)
_named = msgspec.json.Decoder(_Named)
_items = msgspec.json.Decoder(_Item)
_errors = msgspec.json.Decoder(_Error)
_responses = msgspec.json.Decoder(_Response)
_text = msgspec.json.Decoder(str | None)
_audio = msgspec.json.Decoder(bytes)


class OpenAIEventDecoder:
    """Decodes the events of one connection; events that arrive twice are ignored."""

    def __init__(self, model: str, encoder: OpenAICommandEncoder) -> None:
        self._model = model
        self._encoder = encoder
        self._seen: set[str] = set()
        self._seen_in_order: deque[str] = deque()
        self._ended: set[str] = set()
        self._texts: dict[str, list[str]] = {}
        self._readers: dict[str, Callable[[_Event], Signal | None]] = {
            "response.output_audio.delta": _audio_delta,
            "response.output_audio.done": lambda e: AudioEnded(e.response_id, e.item_id, e.content_index or 0),
            "response.output_audio_transcript.delta": self._audio_transcript,
            "response.output_text.delta": self._text_delta,
            "response.created": lambda e: ResponseStarted(_named.decode(e.response).id or ""),
            "response.done": self._response_done,
            "session.created": lambda e: SessionReady(_named.decode(e.session).id or ""),
            "session.updated": lambda e: SessionConfigured(),
            "conversation.item.added": self._item_added,
            "conversation.item.created": self._item_added,
            "conversation.item.truncated": lambda e: ItemTruncated(e.item_id, e.audio_end_ms),
            "conversation.item.input_audio_transcription.delta": _transcription_delta,
            "conversation.item.input_audio_transcription.completed": lambda e: TranscriptionCompleted(
                e.item_id, e.transcript or ""
            ),
            "conversation.item.input_audio_transcription.failed": _transcription_failed,
            "input_audio_buffer.speech_started": lambda e: UserSpeechStarted(e.item_id, e.audio_start_ms),
            "input_audio_buffer.speech_stopped": lambda e: UserSpeechEnded(e.item_id, e.audio_end_ms),
            "input_audio_buffer.committed": lambda e: AudioCommitted(e.item_id),
            "error": _error,
        }

    def decode(self, raw: bytes) -> Signal | None:
        """Decode one event; None if it has no signal, or is a repetition."""
        try:
            event = _events.decode(raw)
            if event.event_id is not None and not self._is_new(event.event_id):
                _log.debug("`%s` sent the event %s twice", self._model, event.event_id)
                return None
            read = self._readers.get(event.type)
            if read is None:
                _log.debug("`%s` sent an event of type %s, which is ignored", self._model, event.type)
                return None
            return read(event)
        except msgspec.DecodeError as error:
            # The bytes are not quoted, because they may be part of the conversation.
            what = f"`{self._model}` sent {len(raw)} bytes that are not a valid event ({error})"
            return ProviderErrorReceived(MALFORMED, what)

    def _is_new(self, event_id: str) -> bool:
        if event_id in self._seen:
            return False
        self._seen.add(event_id)
        self._seen_in_order.append(event_id)
        if len(self._seen_in_order) > _MAX_REMEMBERED:
            self._seen.discard(self._seen_in_order.popleft())
        return True

    def _audio_transcript(self, event: _Event) -> Signal:
        return self._transcript_chunk(event, is_spoken=True)

    def _text_delta(self, event: _Event) -> Signal:
        return self._transcript_chunk(event, is_spoken=False)

    def _transcript_chunk(self, event: _Event, *, is_spoken: bool) -> Signal:
        text = _text.decode(event.delta) or ""
        self._texts.setdefault(event.item_id, []).append(text)
        return TranscriptChunk(event.response_id, event.item_id, event.content_index or 0, text, is_spoken)

    def _item_added(self, event: _Event) -> Signal | None:
        item = _items.decode(event.item)
        sent = self._encoder.items.pop(item.id or "", None)
        if sent is None:
            # An item of a response or of the user's audio, which other events report.
            return None
        return ItemAdded(sent.item_id, _role(item), sent.call_id)

    def _response_done(self, event: _Event) -> Signal | None:
        response = _responses.decode(event.response)
        id = response.id or ""
        if id in self._ended:
            return None
        self._ended.add(id)
        details = response.status_details or _Details()
        failure = details.error or _Error()
        ended = self._to_message(response)
        return ResponseEnded(
            id,
            _status(response.status),
            ended,
            tuple([item.id or "" for item in response.output or () if item.type == "message"]),
            details.reason or failure.code or failure.type or "",
            failure.message or "",
            _usage(response.usage),
            self._model,
        )

    def _to_message(self, response: _Response) -> AssistantMessage:
        """Collect the text of a response, and its complete calls."""
        words: list[str] = []
        calls: list[ToolCall] = []
        for item in response.output or ():
            pieces = self._texts.pop(item.id or "", [])
            if item.type == "message":
                said = "".join([part.transcript or part.text or "" for part in item.content or ()])
                # The final event lacks the transcript of some cancelled items.
                words.append(said or "".join(pieces))
            elif item.type == "function_call" and _is_complete(item, response):
                calls.append(ToolCall(item.call_id or item.id or "", item.name or "", item.arguments or "{}"))
        return AssistantMessage("\n".join([text for text in words if text]), tuple(calls))


def _audio_delta(event: _Event) -> Signal:
    return AudioChunk(event.response_id, event.item_id, event.content_index or 0, _audio.decode(event.delta))


def _transcription_delta(event: _Event) -> Signal | None:
    text = _text.decode(event.delta)
    return TranscriptionChunk(event.item_id, text) if text else None


def _transcription_failed(event: _Event) -> Signal:
    error = _errors.decode(event.error)
    return TranscriptionFailed(event.item_id, error.message or error.code or "")


def _error(event: _Event) -> Signal:
    error = _errors.decode(event.error)
    return ProviderErrorReceived(
        error.code or error.type or "", error.message or "", to_command_id(error.event_id or "")
    )


def _role(item: _Item) -> Literal["user", "assistant", "system", "call", "result"]:
    match item.type, item.role:
        case "function_call", _:
            return "call"
        case "function_call_output", _:
            return "result"
        case _, "assistant":
            return "assistant"
        case _, "system":
            return "system"
        case _:
            return "user"


def _status(status: str | None) -> Literal["completed", "cancelled", "incomplete", "failed"]:
    match status:
        case "completed" | "cancelled" | "incomplete" | "failed":
            return status
        case _:
            # The response is done, even if its status is unknown.
            return "completed"


def _is_complete(item: _Item, response: _Response) -> bool:
    return item.status == "completed" or (item.status is None and response.status == "completed")


def _usage(usage: _Usage | None) -> Usage | None:
    if usage is None:
        return None
    details = usage.input_token_details
    cached = (details.cached_tokens or 0) if details is not None else 0
    return Usage(usage.input_tokens or 0, usage.output_tokens or 0, cached_tokens=cached, model_calls=1)
