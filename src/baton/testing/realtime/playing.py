"""A response that is being given: chunks of a script become what a provider tells of it, as it tells it."""

from collections.abc import AsyncIterable, Callable
from typing import Literal, TypeAlias

import msgspec
from msgspec import Struct

from ...errors import SetupError
from ...messages import AssistantMessage, Audio, Message, Text, ToolCall, Usage, text_of
from ...models import Chunk, ModelResponse, PartChunk, ReasoningChunk, TextChunk, ToolCallChunk
from ...realtime.settings import RealtimeSettings, milliseconds_of
from ...realtime.signals import AudioChunk, AudioEnded, ResponseEnded, ResponseStarted, Signal, TranscriptChunk
from ..speech import speech
from .conversation import ProviderConversation

_CUT_SHORT = {"length": "max_output_tokens", "refusal": "content_filter", "content_filter": "content_filter"}

Status: TypeAlias = Literal["completed", "cancelled", "incomplete", "failed"]


class ResponseContext(Struct, frozen=True):
    """What responses of one connection share."""

    conversation: ProviderConversation
    tell: Callable[[Signal], None]
    ms_per_word: int
    model_name: str


class ScriptedResponse:
    """One response, as far as it has come."""

    def __init__(self, response_id: str, stage: ResponseContext, manners: RealtimeSettings) -> None:
        self.response_id = response_id
        self._stage = stage
        self._manners = manners
        self._read = stage.conversation.messages
        self._words: list[str] = []
        self._item_id = ""
        self._is_speaking = False
        self._calls: dict[int, ToolCall] = {}
        self._end = ModelResponse()
        stage.tell(ResponseStarted(response_id))

    @property
    def has_audio(self) -> bool:
        """Whether anything was said aloud."""
        return bool(self._item_id) and self._manners.modality == "audio"

    async def play(self, chunks: AsyncIterable[Chunk]) -> None:
        """Tell every chunk. What the script raises goes through."""
        async for chunk in chunks:
            match chunk:
                case TextChunk(text):
                    self._say(text)
                case ToolCallChunk():
                    self._stop_speaking()
                    self._add_to_call(chunk)
                case PartChunk(Text(text)):
                    self._say(text)
                case PartChunk(Audio(data=data, transcript=words)) if data is not None:
                    self._say(words or "", audio=data)
                case ReasoningChunk():
                    pass
                case PartChunk(part):
                    raise SetupError(f"a live conversation cannot say {part!r}; give text, calls, or Audio with data")
                case ModelResponse():
                    self._end = chunk
        if self._end.message is not None and not self._words and not self._calls:
            self._say_whole(self._end.message)
        status, reason = self._status()
        self.end(status, reason=reason)

    def end(self, status: Status, *, reason: str = "", error: str = "") -> None:
        """Tell that it is over, and how."""
        self._stop_speaking()
        stage = self._stage
        # A call that is cut off in the middle is none: nobody may carry it out.
        calls = tuple([call for call in self._calls.values() if status == "completed" or _is_whole(call)])
        message = AssistantMessage("".join(self._words), calls)
        for call in calls:
            stage.conversation.call(call)
        stage.tell(
            ResponseEnded(
                self.response_id,
                status,
                message,
                (self._item_id,) if self._item_id else (),
                reason,
                error,
                self._end.usage or Usage(_count(*self._read), _count(message) + len(calls)),
                self._end.model or stage.model_name,
            )
        )

    def _say(self, words: str, *, audio: bytes = b"") -> None:
        stage, format = self._stage, self._manners.output_format
        is_spoken = self._manners.modality == "audio"
        self._item_id = self._item_id or stage.conversation.new_item_id()
        if is_spoken and not audio:
            audio = speech(words, format=format, ms_per_word=stage.ms_per_word)
        self._words.append(words)
        stage.conversation.grow(self._item_id, words, int(milliseconds_of(len(audio), format)) if is_spoken else 0)
        if words:
            stage.tell(TranscriptChunk(self.response_id, self._item_id, 0, words, is_spoken))
        if is_spoken and audio:
            self._is_speaking = True
            stage.tell(AudioChunk(self.response_id, self._item_id, 0, audio))

    def _say_whole(self, message: AssistantMessage) -> None:
        if message.content:
            self._say(text_of(message.content))
        self._calls = dict(enumerate(message.tool_calls))

    def _stop_speaking(self) -> None:
        if self._is_speaking:
            self._is_speaking = False
            self._stage.tell(AudioEnded(self.response_id, self._item_id, 0))

    def _add_to_call(self, chunk: ToolCallChunk) -> None:
        before = self._calls.get(chunk.index) or ToolCall("", "", "")
        self._calls[chunk.index] = ToolCall(
            before.id or chunk.id, before.name or chunk.name, before.arguments + chunk.arguments
        )

    def _status(self) -> tuple[Status, str]:
        reason = _CUT_SHORT.get(self._end.stop_reason, "")
        return ("incomplete", reason) if reason else ("completed", "")


def _is_whole(call: ToolCall) -> bool:
    try:
        msgspec.json.decode(call.arguments)
    except msgspec.DecodeError:
        return False
    return True


def _count(*messages: Message) -> int:
    """By rule, a token is a word."""
    return sum([len(text_of(message.content).split()) for message in messages])
