"""One conversation with one client: what it sends is checked, carried out and answered."""

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from logging import getLogger
from typing import Any, TypeAlias, assert_never

import msgspec
from aiohttp import web
from msgspec import Struct

from ....messages import ToolSpec
from ....models import Chunk, ModelRequest
from ....realtime.settings import AudioFormat, milliseconds_of
from ...scripted import ScriptedModel
from ..openai.errors import told, wrong
from ..openai.media import base64
from ..reading import InvalidBodyError, decoded
from ..received import ReceivedRequest, RequestRejectedError
from .answering import ResponseQueue
from .checks import item_from, response_fields, session_fields
from .conversation import ServedConversation, ServedItem, SpokenAudio, new_id
from .faults import FaultPlan, IgnoreCommand, RefuseCommand
from .line import ServedConnection
from .listening import SpeechBegan, SpeechEnded, TurnDetector
from .settings import FORMATS, at_first, updated
from .speaking import ResponsePace
from .wire import (
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
)

_log = getLogger(__name__)
_LEAST_MS = 100
Heard: TypeAlias = str | BaseException


class ClientViolation(Struct, frozen=True):
    """Something a client did that the provider does not take; `raw` is what it sent."""

    code: str | None
    message: str
    param: str | None
    event_id: str | None
    type: str
    raw: bytes = b""


class ProviderOptions(Struct, frozen=True):
    """What stands behind all sessions of a server."""

    script: ScriptedModel
    key_of: "Callable[[ServedSession], str]"
    hears: Iterator[Heard]
    pace: ResponsePace
    late_transcripts: bool
    complaints: list[ClientViolation]


class ServedSession(ServedConnection):
    """One client's session as the server sees it."""

    def __init__(
        self, received: ReceivedRequest, *, model: str, provider: ProviderOptions, plan: FaultPlan, record: bool
    ) -> None:
        super().__init__(plan, record=record)
        self.id = new_id("sess")
        self.handshake = received
        """The request that opened it: query and headers."""
        self.model = model
        self.settings: dict[str, Any] = at_first(self.id, model)
        """The settings in force."""
        self.updates: list[dict[str, Any]] = []
        """The settings after each update, in order."""
        self.conversation = ServedConversation()
        self.complaints: list[ClientViolation] = []
        """What this client was told to have done wrong."""
        self.audio = bytearray()
        """All the sound that was received, byte by byte."""
        self.audio_frames = 0
        """In how many events it came."""
        self._provider = provider
        self._plan = plan
        self._ear = TurnDetector()
        self._speech_item = ""
        self._transcripts: list[ServedItem] = []
        self._answering = ResponseQueue(
            self, self.conversation, pace=provider.pace, ask=self._ask, afterwards=self._transcribe_late
        )

    async def serve(self, http: web.BaseRequest) -> web.StreamResponse:
        """Hold the conversation until one of the two goes."""
        websocket = await self.accept(http)
        try:
            await self.tell("session.created", session=self.settings)
            while (raw := await self.next_frame()) is not None:
                await self._take(raw)
        except ConnectionError:
            _log.debug("the connection of %s is gone", self.id)
        finally:
            await self._answering.close()
        return websocket

    @property
    def items(self) -> list[ServedItem]:
        """The items of the conversation, in order."""
        return self.conversation.items

    @property
    def is_speaking(self) -> bool:
        """Whether a response is under way."""
        return self._answering.is_under_way

    async def _take(self, raw: bytes) -> None:
        label = _label(raw)
        self.note(str(label.type), raw)
        fault = self._plan.for_command(str(label.type))
        if isinstance(fault, IgnoreCommand):
            return
        if isinstance(fault, RefuseCommand):
            error = {"type": fault.kind, "code": fault.code, "message": fault.message, "param": None}
            await self.tell("error", error={**error, "event_id": label.event_id})
            return
        try:
            await self._carry_out(decoded(CLIENT_EVENTS, raw))
        except InvalidBodyError as invalid:
            await self._complain(told(invalid), label, raw)
        except RequestRejectedError as rejection:
            await self._complain(rejection, label, raw)

    async def _complain(self, rejection: RequestRejectedError, label: Label, raw: bytes) -> None:
        error = msgspec.json.decode(rejection.body)["error"]
        event_id = label.event_id if isinstance(label.event_id, str) else None
        complaint = ClientViolation(error["code"], error["message"], error["param"], event_id, str(label.type), raw)
        self.complaints.append(complaint)
        self._provider.complaints.append(complaint)
        await self.tell("error", error={**error, "event_id": event_id})

    async def _carry_out(self, event: ClientEvent) -> None:
        match event:
            case AudioAppend():
                await self._append(event.audio)
            case AudioCommit():
                await self._commit_by_hand()
            case AudioClear():
                self._ear.clear()
                await self.tell("input_audio_buffer.cleared")
            case SessionUpdate():
                await self._update(event.session)
            case ItemCreate():
                item = self.conversation.made_from(item_from(event.item))
                await self._tell_item(item, self.conversation.add(item, event.previous_item_id))
            case ItemTruncate():
                self.conversation.truncate(event)
                where = {"item_id": event.item_id, "content_index": event.content_index}
                await self.tell("conversation.item.truncated", **where, audio_end_ms=event.audio_end_ms)
            case ItemDelete():
                self.conversation.delete(event.item_id)
                await self.tell("conversation.item.deleted", item_id=event.item_id)
            case ItemRetrieve():
                item = self.conversation.find(event.item_id, "retrieve")
                await self.tell("conversation.item.retrieved", item=item.whole())
            case ResponseCreate():
                await self._create_response(event.response or {})
            case ResponseCancel():
                await self._answering.cancel_by_hand(event.response_id)
            case OutputClear():
                message = "'output_audio_buffer.clear' is only for WebRTC and SIP connections."
                raise wrong(message, param="type", code="invalid_value")
            case _:
                assert_never(event)

    async def _update(self, given: dict[str, Any]) -> None:
        session_fields(given, self.settings, model=self.model, has_spoken=self._answering.has_audio)
        self.settings = updated(self.settings, given)
        self.updates.append(self.settings)
        await self.tell("session.updated", session=self.settings)

    async def _append(self, encoded: str) -> None:
        audio = base64(encoded, "audio")
        format = self._input_format
        if format == "pcm16" and len(audio) % 2:
            message = f"Invalid 'audio'. Expected samples of 16 bits, but got {len(audio)} bytes."
            raise wrong(message, param="audio", code="invalid_value")
        self.audio += audio
        self.audio_frames += 1
        detection = self.settings["audio"]["input"]["turn_detection"]
        for turn in self._ear.hear(audio, format, detection):
            if isinstance(turn, SpeechBegan):
                await self._speech_began(turn, interrupts=detection["interrupt_response"])
            else:
                await self._speech_ended(turn, answers=detection["create_response"])

    async def _speech_began(self, turn: SpeechBegan, *, interrupts: bool) -> None:
        self._speech_item = new_id("item")
        where = {"audio_start_ms": turn.at_ms, "item_id": self._speech_item}
        await self.tell("input_audio_buffer.speech_started", **where)
        if interrupts:
            await self._answering.cancel("turn_detected")

    async def _speech_ended(self, turn: SpeechEnded, *, answers: bool) -> None:
        where = {"audio_end_ms": turn.at_ms, "item_id": self._speech_item}
        await self.tell("input_audio_buffer.speech_stopped", **where)
        await self._commit(turn.audio, self._speech_item)
        if answers:
            await self._answering.follow(self.settings)

    async def _commit_by_hand(self) -> None:
        milliseconds = milliseconds_of(len(self._ear.buffer), self._input_format)
        if milliseconds < _LEAST_MS:
            message = (
                "Error committing input audio buffer: buffer too small. Expected at least 100ms of audio, "
                f"but buffer only has {milliseconds:.2f}ms of audio."
            )
            raise wrong(message, code="input_audio_buffer_commit_empty")
        item_id = self._speech_item if self._ear.is_speech else new_id("item")
        await self._commit(self._ear.take(), item_id)

    async def _commit(self, audio: bytes, item_id: str) -> None:
        content = [{"type": "input_audio", "transcript": None}]
        item = ServedItem(item_id, {"id": item_id, "object": "realtime.item", "type": "message", "role": "user"})
        item.wire.update(status="completed", content=content)
        item.spoken = SpokenAudio(self._input_format, bytearray(audio))
        before = self.conversation.add(item)
        heard = next(self._provider.hears, "")
        item.heard = heard if isinstance(heard, str) else ""
        await self.tell("input_audio_buffer.committed", previous_item_id=before, item_id=item_id)
        await self._tell_item(item, before)
        if self.settings["audio"]["input"]["transcription"] is None:
            return
        if isinstance(heard, BaseException):
            error = {"type": "transcription_error", "code": "audio_unintelligible", "message": str(heard)}
            kind = "conversation.item.input_audio_transcription.failed"
            await self.tell(kind, item_id=item_id, content_index=0, error={**error, "param": None})
        elif self._provider.late_transcripts:
            self._transcripts.append(item)
        else:
            await self._transcribe(item)

    async def _transcribe(self, item: ServedItem) -> None:
        kind = "conversation.item.input_audio_transcription"
        where = {"item_id": item.id, "content_index": 0}
        words = item.heard.split(" ") if item.heard else []
        for number, word in enumerate(words):
            await self.tell(f"{kind}.delta", **where, delta=f" {word}" if number else word)
        item.wire["content"] = [{"type": "input_audio", "transcript": item.heard}]
        heard = int(item.audio_ms) // 100
        usage: dict[str, Any] = {"type": "tokens", "input_tokens": heard, "output_tokens": len(words)}
        usage["total_tokens"] = heard + len(words)
        usage["input_token_details"] = {"text_tokens": 0, "audio_tokens": heard}
        await self.tell(f"{kind}.completed", **where, transcript=item.heard, usage=usage)

    async def _tell_item(self, item: ServedItem, before: str | None) -> None:
        await self.tell("conversation.item.added", previous_item_id=before, item=item.wire)
        await self.tell("conversation.item.done", previous_item_id=before, item=item.wire)

    async def _create_response(self, given: dict[str, Any]) -> None:
        response_fields(given, self.settings)
        own = {key: value for key, value in given.items() if key not in ("metadata", "conversation")}
        await self._answering.create(updated(self.settings, own), given.get("metadata"))

    def _ask(self, settings: dict[str, Any]) -> AsyncIterator[Chunk]:
        tools = [ToolSpec(t["name"], t.get("description", ""), t.get("parameters") or {}) for t in settings["tools"]]
        told = self.conversation.messages()
        request = ModelRequest(told, settings["instructions"], tuple(tools), agent=self._provider.key_of(self))
        return self._provider.script.respond(request)

    async def _transcribe_late(self) -> None:
        while self._transcripts:
            await self._transcribe(self._transcripts.pop(0))

    @property
    def _input_format(self) -> AudioFormat:
        return FORMATS[self.settings["audio"]["input"]["format"]["type"]]


def _label(raw: bytes) -> Label:
    with suppress(msgspec.DecodeError):
        return LABELS.decode(raw)
    return Label()
