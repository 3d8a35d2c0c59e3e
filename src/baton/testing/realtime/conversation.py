"""What a scripted provider knows of a conversation, and what it will not take.

A response that is being given: chunks of a script become what a provider tells of it, as it tells it.
"""

from collections.abc import AsyncIterable, Callable, Iterator
from typing import Literal, TypeAlias

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from ...errors import SetupError
from ...messages import (
    AssistantMessage,
    Audio,
    Message,
    SystemMessage,
    Text,
    ToolCall,
    ToolMessage,
    Usage,
    UserMessage,
    is_empty,
    text_of,
)
from ...models import Chunk, ModelResponse, PartChunk, ReasoningChunk, TextChunk, ToolCallChunk
from ...realtime.protocol import AudioChunk, AudioEnded, ResponseEnded, ResponseStarted, Signal, TranscriptChunk
from ...realtime.settings import RealtimeSettings, milliseconds_of
from ..audio import speech

Role: TypeAlias = Literal["user", "assistant", "system", "call", "result"]


class ConversationItem(Struct, frozen=True):
    """One thing in a conversation, as a provider keeps it: words, one call, or the result of one."""

    id: str
    role: Role
    message: Message
    audio_ms: int = 0
    """How much of it is sound."""

    @property
    def call_id(self) -> str:
        """The call that it is, or is the result of; else ""."""
        message = self.message
        if isinstance(message, ToolMessage):
            return message.tool_call_id
        return message.tool_calls[0].id if isinstance(message, AssistantMessage) and message.tool_calls else ""


class CommandRejectedError(Exception):
    """What a provider says to a command that it will not take."""

    def __init__(self, code: str, message: str, *, is_foreseeable: bool = True) -> None:
        super().__init__(message)
        self.code = code
        self.is_foreseeable = is_foreseeable
        """False if the client could not know: the two have crossed on the way."""


class ProviderConversation:
    """The items of one connection, in order."""

    def __init__(self, new_item_id: Callable[[], str]) -> None:
        self.items: list[ConversationItem] = []
        self.new_item_id = new_item_id

    @property
    def messages(self) -> tuple[Message, ...]:
        """What a model reads of it."""
        return tuple([item.message for item in self.items])

    def add(self, message: Message, item_id: str = "", *, audio_ms: int = 0) -> list[ConversationItem]:
        """The items that a message becomes. Raises Objection if a provider would not take it."""
        self._check(message, item_id)
        roles_and_messages = list(_split(message))
        ids = [item_id or self.new_item_id(), *[self.new_item_id() for _ in roles_and_messages[1:]]]
        added = [
            ConversationItem(id, role, part, audio_ms) for id, (role, part) in zip(ids, roles_and_messages, strict=True)
        ]
        self.items += added
        return added

    def grow(self, item_id: str, words: str, audio_ms: int) -> None:
        """Add to what the model says in an item, which is made if it is not there yet."""
        place = self._place_of(item_id)
        if place is None:
            self.items.append(ConversationItem(item_id, "assistant", AssistantMessage(words), audio_ms))
            return
        item = self.items[place]
        said = AssistantMessage(text_of(item.message.content) + words)
        self.items[place] = replace(item, message=said, audio_ms=item.audio_ms + audio_ms)

    def call(self, call: ToolCall) -> None:
        """Keep a call that the model has made; one of the same id may be there, as a script can want to repeat it."""
        self.items.append(ConversationItem(self.new_item_id(), "call", AssistantMessage(tool_calls=(call,))))

    def truncate(self, item_id: str, audio_end_ms: int, *, ms_per_word: int) -> None:
        """Forget what comes after so much of an item. Raises Objection if there is not so much of it."""
        place = self._place_of(item_id)
        if place is None:
            raise CommandRejectedError("item_truncate_invalid_item_id", f"there is no item `{item_id}` to truncate")
        item = self.items[place]
        if item.role != "assistant" or not item.audio_ms:
            raise CommandRejectedError(
                "item_truncate_invalid_item", f"`{item_id}` is not something the model said aloud"
            )
        if not 0 <= audio_end_ms <= item.audio_ms:
            told = f"`{item_id}` has {item.audio_ms} ms of audio and cannot be truncated at {audio_end_ms} ms"
            raise CommandRejectedError("invalid_audio_end_ms", told)
        heard = " ".join(text_of(item.message.content).split()[: audio_end_ms // ms_per_word])
        self.items[place] = replace(item, message=AssistantMessage(heard), audio_ms=audio_end_ms)

    def _check(self, message: Message, item_id: str) -> None:
        if item_id and self._place_of(item_id) is not None:
            raise CommandRejectedError("item_create_duplicate_item_id", f"there is an item `{item_id}` already")
        if is_empty(message):
            raise CommandRejectedError("empty_item", f"a {type(message).__name__} without content says nothing")
        known = {(item.role, item.call_id) for item in self.items}
        if isinstance(message, ToolMessage):
            if ("call", message.tool_call_id) not in known:
                raise CommandRejectedError(
                    "invalid_tool_call_id", f"a result for `{message.tool_call_id}`, a call nobody made"
                )
            if ("result", message.tool_call_id) in known:
                raise CommandRejectedError("duplicate_result", f"a second result for the call `{message.tool_call_id}`")
        if isinstance(message, AssistantMessage):
            for call in message.tool_calls:
                if ("call", call.id) in known:
                    raise CommandRejectedError("duplicate_call", f"the call `{call.id}` is in the conversation already")

    def _place_of(self, item_id: str) -> int | None:
        return next((place for place, item in enumerate(self.items) if item.id == item_id), None)


def _split(message: Message) -> Iterator[tuple[Role, Message]]:
    """A message as the items that a provider keeps of it."""
    match message:
        case UserMessage():
            yield "user", message
        case SystemMessage():
            yield "system", message
        case ToolMessage():
            yield "result", message
        case AssistantMessage():
            if message.content:
                yield "assistant", replace(message, tool_calls=())
            for call in message.tool_calls:
                yield "call", AssistantMessage(tool_calls=(call,))


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
