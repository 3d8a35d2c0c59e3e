"""Decodes OpenAI's server events to signals, and maps failures of the websocket to model errors."""

from collections import deque
from collections.abc import Callable
from functools import partial
from logging import getLogger
from typing import TYPE_CHECKING, get_args

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from ...errors import ModelConnectionError, ModelError
from ...messages import AssistantMessage, ToolCall
from ...models.openai.dialect import TokenUsage
from ...models.openai.errors import classify, failed_inside
from ...models.provider_errors import cut_short, error_from_response, malformed, timed_out, unreachable
from .. import protocol
from .client_events import OpenAICommandEncoder, to_command_id

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


def open_error(model: str, error: protocol.ProviderErrorReceived) -> ModelError:
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
        return error_from_response(model, response.status_code, headers, bytes(response.body or b""), classify)
    if isinstance(error, TimeoutError):
        return timed_out(model, seconds)
    if isinstance(error, InvalidHandshake):
        what = f"`{model}` does not speak websockets at this address: {error}; check base_url"
        return ModelConnectionError(what, model=model)
    return unreachable(model, error)


_log = getLogger("baton.realtime")
_MAX_REMEMBERED = 4096
_NOTHING = Raw(b"null")
_ROLES: dict[str, protocol.ItemRole] = {
    "assistant": "assistant",
    "system": "system",
    "function_call": "call",
    "function_call_output": "result",
}
_STATUSES: dict[str, protocol.ResponseStatus] = {status: status for status in get_args(protocol.ResponseStatus)}


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


class _Response(Struct):
    id: str | None = None
    status: str | None = None
    status_details: _Details | None = None
    output: list[_Item] | None = None
    usage: TokenUsage | None = None


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
        self._readers: dict[str, Callable[[_Event], protocol.Signal | None]] = {
            "response.output_audio.delta": _audio_delta,
            "response.output_audio.done": lambda e: protocol.AudioEnded(e.response_id, e.item_id, e.content_index or 0),
            "response.output_audio_transcript.delta": partial(self._transcript_chunk, is_spoken=True),
            "response.output_text.delta": partial(self._transcript_chunk, is_spoken=False),
            "response.created": lambda e: protocol.ResponseStarted(_named.decode(e.response).id or ""),
            "response.done": self._response_done,
            "session.created": lambda e: protocol.SessionReady(_named.decode(e.session).id or ""),
            "session.updated": lambda e: protocol.SessionConfigured(),
            "conversation.item.added": self._item_added,
            "conversation.item.created": self._item_added,
            "conversation.item.truncated": lambda e: protocol.ItemTruncated(e.item_id, e.audio_end_ms),
            "conversation.item.input_audio_transcription.delta": _transcription_delta,
            "conversation.item.input_audio_transcription.completed": lambda e: protocol.TranscriptionCompleted(
                e.item_id, e.transcript or ""
            ),
            "conversation.item.input_audio_transcription.failed": _transcription_failed,
            "input_audio_buffer.speech_started": lambda e: protocol.UserSpeechStarted(e.item_id, e.audio_start_ms),
            "input_audio_buffer.speech_stopped": lambda e: protocol.UserSpeechEnded(e.item_id, e.audio_end_ms),
            "input_audio_buffer.committed": lambda e: protocol.AudioCommitted(e.item_id),
            "error": _error,
        }

    def decode(self, raw: bytes) -> protocol.Signal | None:
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
            return protocol.ProviderErrorReceived(MALFORMED, what)

    def _is_new(self, event_id: str) -> bool:
        if event_id in self._seen:
            return False
        self._seen.add(event_id)
        self._seen_in_order.append(event_id)
        if len(self._seen_in_order) > _MAX_REMEMBERED:
            self._seen.discard(self._seen_in_order.popleft())
        return True

    def _transcript_chunk(self, event: _Event, *, is_spoken: bool) -> protocol.Signal:
        text = _text.decode(event.delta) or ""
        self._texts.setdefault(event.item_id, []).append(text)
        return protocol.TranscriptChunk(event.response_id, event.item_id, event.content_index or 0, text, is_spoken)

    def _item_added(self, event: _Event) -> protocol.Signal | None:
        item = _items.decode(event.item)
        sent = self._encoder.items.pop(item.id or "", None)
        if sent is None:
            # An item of a response or of the user's audio, which other events report.
            return None
        return protocol.ItemAdded(sent.item_id, _ROLES.get(item.role or item.type, "user"), sent.call_id)

    def _response_done(self, event: _Event) -> protocol.Signal | None:
        response = _responses.decode(event.response)
        id = response.id or ""
        if id in self._ended:
            return None
        self._ended.add(id)
        details = response.status_details or _Details()
        failure = details.error or _Error()
        return protocol.ResponseEnded(
            id,
            # The response is done, even if its status is unknown.
            _STATUSES.get(response.status or "", "completed"),
            self._to_message(response),
            tuple([item.id or "" for item in response.output or () if item.type == "message"]),
            details.reason or failure.code or failure.type or "",
            failure.message or "",
            replace(response.usage.to_usage(), model_calls=1) if response.usage is not None else None,
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


def _audio_delta(event: _Event) -> protocol.Signal:
    return protocol.AudioChunk(event.response_id, event.item_id, event.content_index or 0, _audio.decode(event.delta))


def _transcription_delta(event: _Event) -> protocol.Signal | None:
    text = _text.decode(event.delta)
    return protocol.TranscriptionChunk(event.item_id, text) if text else None


def _transcription_failed(event: _Event) -> protocol.Signal:
    error = _errors.decode(event.error)
    return protocol.TranscriptionFailed(event.item_id, error.message or error.code or "")


def _error(event: _Event) -> protocol.Signal:
    error = _errors.decode(event.error)
    return protocol.ProviderErrorReceived(
        error.code or error.type or "", error.message or "", to_command_id(error.event_id or "")
    )


def _is_complete(item: _Item, response: _Response) -> bool:
    return item.status == "completed" or (item.status is None and response.status == "completed")
