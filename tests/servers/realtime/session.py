"""One conversation with one client: what it sends is checked, carried out and answered.

Who answers in a session: one response at a time, begun and stopped as the client or its speech wants it.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import suppress
from logging import getLogger
from typing import Any, TypeAlias, assert_never

import msgspec
from aiohttp import web
from msgspec import Struct
from tests.servers.base import ReceivedRequest, RequestRejectedError
from tests.servers.openai.chat_schema import base64
from tests.servers.openai.errors import told, wrong
from tests.servers.realtime.connection import FaultPlan, IgnoreCommand, RefuseCommand, ServedConnection
from tests.servers.realtime.conversation import ServedConversation, ServedItem, SpokenAudio, new_id
from tests.servers.realtime.request_schema import (
    CLIENT_EVENTS,
    FORMATS,
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
    at_first,
    item_from,
    response_fields,
    session_fields,
    updated,
)
from tests.servers.realtime.responses import ResponsePace, ResponseWriter
from tests.servers.validation import InvalidBodyError, decoded

from baton.messages import ToolSpec
from baton.models import Chunk, ModelRequest
from baton.realtime.settings import AudioFormat, TurnDetection, milliseconds_of
from baton.testing.realtime.turn_detection import DetectedEnd, DetectedStart, TurnDetector
from baton.testing.scripted import ScriptedModel

Ask: TypeAlias = Callable[[dict[str, Any]], AsyncIterator[Chunk]]
"""Asks the script for an answer, under these settings."""


class ResponseQueue:
    """The responses of one session. `afterwards` is awaited whenever one has ended."""

    def __init__(
        self,
        line: ServedConnection,
        conversation: ServedConversation,
        *,
        pace: ResponsePace,
        ask: Ask,
        afterwards: Callable[[], Awaitable[None]],
    ) -> None:
        self._line = line
        self._conversation = conversation
        self._pace = pace
        self._ask = ask
        self._afterwards = afterwards
        self._speaking: ResponseWriter | None = None
        self._playing: asyncio.Task[None] | None = None
        self._next: dict[str, Any] | None = None
        self._had_audio = False

    @property
    def is_under_way(self) -> bool:
        """Whether a response is under way."""
        return self._playing is not None and not self._playing.done()

    @property
    def has_audio(self) -> bool:
        """Whether anything was ever spoken."""
        return self._had_audio or (self._speaking is not None and self._speaking.has_spoken)

    async def create(self, settings: dict[str, Any], metadata: Any) -> None:
        """Begin a response that the client wants; a Rejection if there is one already."""
        speaking, playing = self._speaking, self._playing
        if speaking is not None and playing is not None and speaking.is_ending:
            # The client may know already that it has ended: it is only its task that has not.
            await asyncio.wait([playing])
        if self.is_under_way and self._speaking is not None:
            message = (
                f"Conversation already has an active response in progress: {self._speaking.id}. "
                "Wait until the response is finished before creating a new one."
            )
            raise wrong(message, code="conversation_already_has_active_response")
        await self._begin(settings, metadata)

    async def follow(self, settings: dict[str, Any]) -> None:
        """Begin a response as soon as none is under way."""
        if self.is_under_way:
            self._next = settings
        else:
            await self._begin(settings, None)

    async def cancel_by_hand(self, response_id: str | None) -> None:
        """Stop the response that the client wants to be stopped; a Rejection if that is none."""
        running = self._speaking.id if self._speaking is not None and self.is_under_way else None
        if running is None or response_id not in (None, running) or not await self.cancel("client_cancelled"):
            raise wrong("Cancellation failed: no active response found", code="response_cancel_not_active")

    async def cancel(self, reason: str) -> bool:
        """Stop the response under way; False if there is none, or if it has just said everything."""
        speaking, playing = self._speaking, self._playing
        if speaking is None or playing is None or playing.done():
            return False
        if speaking.is_ending:
            await asyncio.wait([playing])
            return False
        speaking.stop(playing)
        await asyncio.wait([playing])
        if speaking.is_ending:
            return False
        await speaking.end("cancelled", reason)
        await self._after_one(speaking)
        return True

    async def close(self) -> None:
        """Stop, because the line is gone."""
        if self._playing is not None:
            self._playing.cancel()
            await asyncio.wait([self._playing])

    async def _begin(self, settings: dict[str, Any], metadata: Any) -> None:
        speaking = ResponseWriter(self._line, self._conversation, settings=settings, metadata=metadata, pace=self._pace)
        self._speaking = speaking
        # Begun here and not in the task, which may be stopped before it has done anything.
        await speaking.begin()
        self._playing = asyncio.create_task(self._play(speaking, settings))

    async def _play(self, speaking: ResponseWriter, settings: dict[str, Any]) -> None:
        # A line that is gone needs no answer: whoever reads from it finds out by itself.
        with suppress(ConnectionError):
            await speaking.play(lambda: self._ask(settings))
            await self._after_one(speaking)

    async def _after_one(self, speaking: ResponseWriter) -> None:
        self._had_audio = self._had_audio or speaking.has_spoken
        await self._afterwards()
        if self._next is not None:
            settings, self._next = self._next, None
            await self._begin(settings, None)


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
        self._input = TurnDetector()
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
                self._input.clear()
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
        for turn in self._input.append(audio, format, _turn_detection(detection)):
            if isinstance(turn, DetectedStart):
                await self._speech_started(turn, interrupts=detection["interrupt_response"])
            else:
                await self._speech_ended(turn, answers=detection["create_response"])

    async def _speech_started(self, turn: DetectedStart, *, interrupts: bool) -> None:
        self._speech_item = new_id("item")
        where = {"audio_start_ms": turn.at_ms, "item_id": self._speech_item}
        await self.tell("input_audio_buffer.speech_started", **where)
        if interrupts:
            await self._answering.cancel("turn_detected")

    async def _speech_ended(self, turn: DetectedEnd, *, answers: bool) -> None:
        where = {"audio_end_ms": turn.at_ms, "item_id": self._speech_item}
        await self.tell("input_audio_buffer.speech_stopped", **where)
        await self._commit(turn.audio, self._speech_item)
        if answers:
            await self._answering.follow(self.settings)

    async def _commit_by_hand(self) -> None:
        milliseconds = milliseconds_of(len(self._input.buffer), self._input_format)
        if milliseconds < _LEAST_MS:
            message = (
                "Error committing input audio buffer: buffer too small. Expected at least 100ms of audio, "
                f"but buffer only has {milliseconds:.2f}ms of audio."
            )
            raise wrong(message, code="input_audio_buffer_commit_empty")
        item_id = self._speech_item if self._input.is_speech else new_id("item")
        await self._commit(self._input.take(), item_id)

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


def _turn_detection(wire: dict[str, Any] | None) -> TurnDetection | None:
    if wire is None:
        return None
    return TurnDetection(
        wire["type"],
        threshold=wire.get("threshold"),
        prefix_ms=wire.get("prefix_padding_ms"),
        silence_ms=wire.get("silence_duration_ms"),
        eagerness=wire.get("eagerness"),
    )


def _label(raw: bytes) -> Label:
    with suppress(msgspec.DecodeError):
        return LABELS.decode(raw)
    return Label()
