"""Responses of a scripted provider: the chunks of a script, as items and signals."""

from collections import Counter
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterator
from typing import Any, TypeAlias

import msgspec
from msgspec import Struct

from ...errors import ModelConnectionError, ModelError, SetupError
from ...messages import AssistantMessage, Audio, Text, ToolCall, Usage, is_empty, text_of
from ...models import Chunk, ModelRequest, ModelResponse, PartChunk, ReasoningChunk, TextChunk, ToolCallChunk
from ...realtime import protocol
from ...realtime.protocol import AudioChunk, AudioEnded, ResponseEnded, ResponseStarted, Signal, TranscriptChunk
from ...realtime.voice_settings import AudioFormat, RealtimeSettings, bytes_for, milliseconds_of
from ..scripted import ScriptedModel, operations
from .audio import speech
from .conversation import ConversationItem, ProviderConversation

_INCOMPLETE_REASONS = {"length": "max_output_tokens", "refusal": "content_filter", "content_filter": "content_filter"}
INPUT_MS_PER_TOKEN = 100
OUTPUT_MS_PER_TOKEN = 50


class ItemStarted(Struct, frozen=True):
    """A response has started an item."""

    item: ConversationItem


class CallChunk(Struct, frozen=True):
    """A chunk of the arguments of a call."""

    item: ConversationItem
    arguments: str


class ItemEnded(Struct, frozen=True):
    """An item of a response is complete, or was cut off."""

    item: ConversationItem


ItemEvent: TypeAlias = ItemStarted | CallChunk | ItemEnded
"""Events that have no signal; a transport sends them if its protocol has them."""
ProviderEvent: TypeAlias = Signal | ItemEvent


class RealtimeScript:
    """The script of a provider in memory: responses, transcriptions and ids, without delays.

    Transports with timing or error codes of their own override the rest.
    """

    audio_chunk_ms: int | None = None
    """Maximum duration of a chunk of audio; None does not split audio."""
    late_transcripts = False
    """True if transcriptions follow the next response."""
    counts_audio = False
    """True if audio counts as tokens, in addition to words."""

    def __init__(self, model: ScriptedModel, hears: Iterator[str | BaseException], ms_per_word: int) -> None:
        """Create a script."""
        self.model = model
        self.ms_per_word = ms_per_word
        self._hears = hears
        self._counts: Counter[str] = Counter()

    def new_id(self, kind: str) -> str:
        """Return a new id such as `piece_1`, distinct from the ids that clients create."""
        self._counts[kind] += 1
        return f"{kind}_{self._counts[kind]}"

    def next_heard(self) -> str | BaseException:
        """Return the transcript of the user's next turn, or the reason why there is none."""
        return next(self._hears, ValueError("`hears` has no text left"))

    def respond(self, request: ModelRequest) -> AsyncIterator[Chunk]:
        """Play the next step."""
        return self.model.respond(request)

    def error_code(self, error: Exception) -> str | None:
        """Return the code for an error of a step that fails a response; None cuts the connection."""
        is_raised = isinstance(error, ModelConnectionError) or not isinstance(error, ModelError)
        return None if is_raised else type(error).__name__

    async def pause(self, audio_ms: float) -> None:
        """Return at once: the provider needs no time to speak."""


class ScriptedResponse:
    """A response in progress."""

    def __init__(
        self,
        script: RealtimeScript,
        conversation: ProviderConversation,
        settings: RealtimeSettings,
        send: Callable[[ProviderEvent], None],
    ) -> None:
        self.id = script.new_id("response")
        self.items: list[ConversationItem] = []
        self._script = script
        self._conversation = conversation
        self._format: AudioFormat | None = settings.output_format if settings.modality == "audio" else None
        self._send = send
        self._calls: dict[int, ConversationItem] = {}
        self._final = ModelResponse()
        send(ResponseStarted(self.id))

    @property
    def has_audio(self) -> bool:
        """True if it has audio."""
        return any(item.audio for item in self.items)

    async def play(self, chunks: AsyncIterable[Chunk]) -> None:
        """Send the events of all chunks. Raises the script's errors."""
        async for chunk in chunks:
            await self._play_chunk(chunk)
        reason = _INCOMPLETE_REASONS.get(self._final.stop_reason, "")
        self.end("incomplete" if reason else "completed", reason=reason)

    def end(self, status: protocol.ResponseStatus, *, reason: str = "", error: str = "") -> None:
        """End the response."""
        self._close_items(is_cut=status != "completed")
        spoken = [item for item in self.items if item.role == "assistant"]
        # A call that is cut off must not be executed.
        calls = [item for item in self.items if item.role == "call" and item.status == "completed"]
        message = AssistantMessage(
            "\n".join([item.transcript for item in spoken if item.words]),
            tuple([call for item in calls for call in _calls_of(item)]),
        )
        item_ids = tuple([item.id for item in spoken])
        usage = self._final.usage or self._count_tokens()
        model = self._final.model or self._script.model.name
        self._send(ResponseEnded(self.id, status, message, item_ids, reason, error, usage, model))

    async def _play_chunk(self, chunk: Any) -> None:
        match chunk:
            case TextChunk(text) | PartChunk(Text(text)):
                await self._say(text)
            case ToolCallChunk():
                await self._add_to_call(chunk)
            case PartChunk(Audio(data=data, transcript=words)) if data is not None:
                await self._say(words or "", data)
            case ReasoningChunk():
                pass
            case PartChunk(part):
                raise SetupError(f"a realtime response cannot contain {part!r}; use text, calls, or Audio with data")
            case ModelResponse(message):
                self._final = chunk
                if message is not None and not self.items and not is_empty(message):
                    for piece in operations(chunk, "", in_words=True):
                        await self._play_chunk(piece)
            case _:
                raise SetupError(f"a realtime response cannot contain {chunk!r}")

    async def _say(self, text: str, audio: bytes | None = None) -> None:
        script = self._script
        format = self._format
        item = self.items[-1] if self.items else None
        if item is None or item.role != "assistant":
            item = self._open("assistant", AssistantMessage())
        if format is None:
            audio = b""
        elif audio is None:
            audio = speech(text, format=format, ms_per_word=script.ms_per_word)
        item.say(text, milliseconds_of(len(audio), format or "pcm16"))
        if text:
            self._send(TranscriptChunk(self.id, item.id, 0, text, format is not None))
        if format is not None and audio:
            size = bytes_for(script.audio_chunk_ms, format) if script.audio_chunk_ms else len(audio)
            for start in range(0, len(audio), size):
                piece = audio[start : start + size]
                item.audio += piece
                self._send(AudioChunk(self.id, item.id, 0, piece))
                await script.pause(milliseconds_of(len(piece), format))
        await script.pause(0)

    async def _add_to_call(self, chunk: ToolCallChunk) -> None:
        item = self._calls.get(chunk.index)
        if item is None:
            call = ToolCall(chunk.id, chunk.name, "")
            item = self._calls[chunk.index] = self._open("call", AssistantMessage(tool_calls=(call,)))
        if chunk.arguments:
            (before,) = _calls_of(item)
            call = ToolCall(before.id, before.name, before.arguments + chunk.arguments)
            item.message = AssistantMessage(tool_calls=(call,))
            self._send(CallChunk(item, chunk.arguments))
        await self._script.pause(0)

    def _open(self, role: protocol.ItemRole, message: AssistantMessage) -> ConversationItem:
        self._close_items()
        format = self._format if role == "assistant" else None
        item = ConversationItem(self._conversation.new_item_id(), role, message, format, status="in_progress")
        self._conversation.items.append(item)
        self.items.append(item)
        self._send(ItemStarted(item))
        return item

    def _close_items(self, *, is_cut: bool = False) -> None:
        for item in self.items:
            if item.status != "in_progress":
                continue
            item.status = "incomplete" if is_cut and not _is_complete_call(item) else "completed"
            if item.audio:
                self._send(AudioEnded(self.id, item.id, 0))
                item.cut()
            self._send(ItemEnded(item))

    def _count_tokens(self) -> Usage:
        own = {item.id for item in self.items}
        read = [item for item in self._conversation.items if item.id not in own]
        calls = len([item for item in self.items if item.role == "call"])
        usage = Usage(sum(map(_count_words, read)), sum(map(_count_words, self.items)) + calls)
        if not self._script.counts_audio:
            return usage
        heard, spoken = (sum([item.audio_ms for item in items]) for items in (read, self.items))
        return usage + Usage(heard // INPUT_MS_PER_TOKEN, spoken // OUTPUT_MS_PER_TOKEN)


def _calls_of(item: ConversationItem) -> tuple[ToolCall, ...]:
    return item.message.tool_calls if isinstance(item.message, AssistantMessage) else ()


def _is_complete_call(item: ConversationItem) -> bool:
    try:
        return bool([msgspec.json.decode(call.arguments) for call in _calls_of(item)])
    except msgspec.DecodeError:
        return False


def _count_words(item: ConversationItem) -> int:
    """Count tokens; by convention, a word is a token, and so is a new call."""
    return len(text_of(item.message.content).split())
