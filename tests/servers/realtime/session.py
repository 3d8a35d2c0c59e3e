"""One session of the server: client events are validated and executed by a scripted provider."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from logging import getLogger
from typing import Any, TypeAlias, assert_never

import msgspec
from aiohttp import web
from msgspec import Struct
from msgspec.structs import replace
from tests.servers.base import ReceivedRequest, RequestRejectedError
from tests.servers.openai.chat_schema import base64
from tests.servers.openai.errors import rejection_of, wrong
from tests.servers.realtime.connection import FaultPlan, IgnoreCommand, RefuseCommand, ServedConnection, new_id
from tests.servers.realtime.encoding import ServerEventEncoder, decode_item, decode_settings
from tests.servers.realtime.request_schema import (
    CLIENT_EVENTS,
    LABELS,
    AudioAppend,
    AudioClear,
    AudioCommit,
    ClientEvent,
    ItemCreate,
    ItemDelete,
    ItemRetrieve,
    ItemTruncate,
    Label,
    OutputClear,
    ResponseCancel,
    ResponseCreate,
    SessionUpdate,
    check_response_fields,
    check_session_fields,
    decode_client_item,
    initial_settings,
    update_settings,
)
from tests.servers.validation import InvalidBodyError, decoded

from batonkit.errors import ModelConnectionError, ModelError
from batonkit.models import Chunk, ModelRequest
from batonkit.realtime.protocol import (
    AppendAudio,
    CancelResponse,
    ClearAudio,
    CommitAudio,
    ConfigureSession,
    ItemAdded,
    Signal,
    TruncateItem,
)
from batonkit.testing.realtime.conversation import CommandRejectedError, ConversationItem, ProviderConversation
from batonkit.testing.realtime.provider import ScriptedProvider
from batonkit.testing.realtime.responses import ProviderEvent, RealtimeScript
from batonkit.testing.scripted import ScriptedModel

Heard: TypeAlias = str | BaseException
_log = getLogger(__name__)
_ID_PREFIXES = {"piece": "item", "response": "resp"}
_MIN_AUDIO_CHUNK_MS = 100


class ClientViolation(Struct, frozen=True):
    """A command that was rejected; `raw` is the event as it was received."""

    code: str | None
    message: str
    param: str | None
    event_id: str | None
    type: str
    raw: bytes = b""


class ResponsePace(Struct, frozen=True):
    """The speed of responses."""

    ms_per_word: int = 200
    factor: float | None = None
    """1 speaks in real time, 10 ten times as fast; None as fast as the connection allows."""
    delay: float = 0.0
    """Additional seconds between two chunks."""


class ProviderOptions(Struct, frozen=True):
    """Options of all sessions of a server."""

    model: ScriptedModel
    key_of: "Callable[[ServedSession], str]"
    hears: Iterator[Heard]
    pace: ResponsePace
    late_transcripts: bool
    complaints: list[ClientViolation]


class SessionScript(RealtimeScript):
    """The provider's script for one session, with OpenAI's ids and error codes, and at a pace."""

    counts_audio = True

    def __init__(self, session: "ServedSession", options: ProviderOptions) -> None:
        super().__init__(options.model, options.hears, options.pace.ms_per_word)
        self.audio_chunk_ms = max(options.pace.ms_per_word, _MIN_AUDIO_CHUNK_MS)
        self.late_transcripts = options.late_transcripts
        self._session = session
        self._options = options
        self._spoken_ms = 0.0
        self._started_at = 0.0

    def new_id(self, kind: str) -> str:
        """Return a new id in OpenAI's form."""
        return new_id(_ID_PREFIXES[kind])

    def respond(self, request: ModelRequest) -> AsyncIterator[Chunk]:
        """Play the next step for the agent that the server's `by` names."""
        self._spoken_ms = 0.0
        return super().respond(replace(request, agent=self._options.key_of(self._session)))

    def error_code(self, error: Exception) -> str | None:
        """Return OpenAI's code of an error; None if it cuts the connection."""
        if isinstance(error, ModelConnectionError):
            return None
        if not isinstance(error, ModelError):
            # The response fails instead of the connection, because the client would reconnect.
            _log.error("a step failed", exc_info=error)
            error = ModelError(str(error))
        return self._session.encoder.error_code(error)

    async def pause(self, audio_ms: float) -> None:
        """Wait until the client has been sent everything, and as long as the pace says."""
        await self._session.drain()
        pace, now = self._options.pace, asyncio.get_running_loop().time()
        if not audio_ms:
            # Without a delay too, so that commands of the client are read between two chunks.
            await asyncio.sleep(pace.delay)
        elif pace.factor is not None:
            if not self._spoken_ms:
                self._started_at = now
            self._spoken_ms += audio_ms
            due = self._started_at + self._spoken_ms / 1000 / pace.factor
            await asyncio.sleep(max(0.0, due - now))


class ServedSession(ServedConnection):
    """The server's side of a session, and the transport of its scripted provider."""

    def __init__(
        self, received: ReceivedRequest, *, model: str, options: ProviderOptions, plan: FaultPlan, record: bool
    ) -> None:
        super().__init__(plan, record=record)
        self.id = new_id("sess")
        self.handshake = received
        """The request that opened it, with query and headers."""
        self.model = model
        self.settings: dict[str, Any] = initial_settings(self.id, model)
        """The settings in force."""
        self.updates: list[dict[str, Any]] = []
        """The settings after each update, in order."""
        self.complaints: list[ClientViolation] = []
        """The commands of this client that were rejected."""
        self.audio = bytearray()
        """All audio received."""
        self.audio_frames = 0
        """Number of events with audio."""
        self._options = options
        self._provider = ScriptedProvider(SessionScript(self, options), decode_settings(self.settings), self)
        self.encoder = ServerEventEncoder(self.conversation, self.settings)

    async def serve(self, http: web.BaseRequest) -> web.StreamResponse:
        """Execute the client's events until either side ends the connection."""
        websocket = await self.accept(http)
        try:
            self.send_event("session.created", {"session": self.settings})
            while (raw := await self.next_frame()) is not None:
                self._receive(raw)
        except ConnectionError:
            _log.debug("the connection of %s was lost", self.id)
        finally:
            await asyncio.gather(*self._provider.stop(), return_exceptions=True)
        return websocket

    @property
    def conversation(self) -> ProviderConversation:
        """The provider's conversation."""
        return self._provider.conversation

    @property
    def items(self) -> list[ConversationItem]:
        """The items of the conversation, in order."""
        return self.conversation.items

    @property
    def is_speaking(self) -> bool:
        """True if a response is in progress."""
        return self._provider.response is not None

    # Called by the provider (see `ProviderTransport`).

    def emit(self, event: ProviderEvent) -> None:
        """Send an event of the provider to the client."""
        for kind, fields in self.encoder.encode(event):
            self.send_event(kind, fields)

    def cut(self, error: BaseException) -> None:
        """Cut the connection, after the events sent so far."""
        self.cut_after_events()

    def has_unread(self, kind: type[Signal]) -> bool:
        """Return False: the server does not know what the client has read."""
        return False

    def _receive(self, raw: bytes) -> None:
        label = _decode_label(raw)
        self.record(str(label.type), raw)
        fault = self._plan.for_command(str(label.type))
        if isinstance(fault, IgnoreCommand):
            return
        if isinstance(fault, RefuseCommand):
            error = {"type": fault.kind, "code": fault.code, "message": fault.message, "param": None}
            self.send_event("error", {"error": {**error, "event_id": label.event_id}})
            return
        try:
            self._execute(decoded(CLIENT_EVENTS, raw))
        except InvalidBodyError as invalid:
            self._reject(rejection_of(invalid), label, raw)
        except CommandRejectedError as rejected:
            self._reject(wrong(str(rejected), param=rejected.param, code=rejected.code), label, raw)
        except RequestRejectedError as rejection:
            self._reject(rejection, label, raw)

    def _reject(self, rejection: RequestRejectedError, label: Label, raw: bytes) -> None:
        error = msgspec.json.decode(rejection.body)["error"]
        event_id = label.event_id if isinstance(label.event_id, str) else None
        violation = ClientViolation(error["code"], error["message"], error["param"], event_id, str(label.type), raw)
        self.complaints.append(violation)
        self._options.complaints.append(violation)
        self.send_event("error", {"error": {**error, "event_id": event_id}})

    def _execute(self, event: ClientEvent) -> None:
        match event:
            case AudioAppend():
                self._append(event.audio)
            case AudioCommit():
                self._provider.execute(CommitAudio())
            case AudioClear():
                self._provider.execute(ClearAudio())
                self.send_event("input_audio_buffer.cleared", {})
            case SessionUpdate():
                self._update(event.session)
            case ItemCreate():
                self._create_item(event)
            case ItemTruncate():
                self._provider.execute(TruncateItem(event.item_id, event.content_index, event.audio_end_ms))
            case ItemDelete():
                self.items.remove(self.conversation.find(event.item_id, "delete"))
                self.send_event("conversation.item.deleted", {"item_id": event.item_id})
            case ItemRetrieve():
                item = self.conversation.find(event.item_id, "retrieve")
                self.send_event(
                    "conversation.item.retrieved", {"item": self.encoder.encode_item(item, with_audio=True)}
                )
            case ResponseCreate():
                self._create_response(event.response or {})
            case ResponseCancel():
                self._provider.execute(CancelResponse(event.response_id or ""))
            case OutputClear():
                message = "'output_audio_buffer.clear' is only for WebRTC and SIP connections."
                raise wrong(message, param="type", code="invalid_value")
            case _:
                assert_never(event)

    def _update(self, given: dict[str, Any]) -> None:
        check_session_fields(given, self.settings, model=self.model)
        settings = update_settings(self.settings, given)
        self._provider.execute(ConfigureSession(decode_settings(settings)))
        self.settings = self.encoder.settings = settings
        self.updates.append(settings)
        self.send_event("session.updated", {"session": settings})

    def _append(self, encoded: str) -> None:
        audio = base64(encoded, "audio")
        if self._provider.settings.settings.input_format == "pcm16" and len(audio) % 2:
            message = f"Invalid 'audio'. Expected samples of 16 bits, but got {len(audio)} bytes."
            raise wrong(message, param="audio", code="invalid_value")
        self.audio += audio
        self.audio_frames += 1
        self._provider.execute(AppendAudio(audio))

    def _create_item(self, event: ItemCreate) -> None:
        given = decode_client_item(event.item)
        message, audio = decode_item(given)
        format = "pcm16" if audio else None
        (item,) = self.conversation.add(
            message, given.id or "", after=event.previous_item_id, format=format, audio=audio
        )
        self.encoder.keep(item, given)
        self.emit(ItemAdded(item.id, item.role, item.call_id))

    def _create_response(self, given: dict[str, Any]) -> None:
        check_response_fields(given, self.settings)
        own = {key: value for key, value in given.items() if key not in ("metadata", "conversation")}
        settings = update_settings(self.settings, own)
        self.encoder.overrides = (settings, given.get("metadata"))
        try:
            self._provider.create_response(decode_settings(settings))
        finally:
            self.encoder.overrides = None


def _decode_label(raw: bytes) -> Label:
    with suppress(msgspec.DecodeError):
        return LABELS.decode(raw)
    return Label()
