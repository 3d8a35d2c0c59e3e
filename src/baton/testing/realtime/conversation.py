"""The conversation of a scripted provider, and its responses."""

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
    """An item of a provider's conversation: a message, one call, or the result of one."""

    id: str
    role: Role
    message: Message
    audio_ms: int = 0
    """Duration of its audio in milliseconds."""

    @property
    def call_id(self) -> str:
        """The id of its call, if it is a call or a result; otherwise empty."""
        message = self.message
        if isinstance(message, ToolMessage):
            return message.tool_call_id
        return message.tool_calls[0].id if isinstance(message, AssistantMessage) and message.tool_calls else ""


class CommandRejectedError(Exception):
    """The provider rejects a command."""

    def __init__(self, code: str, message: str, *, is_avoidable: bool = True) -> None:
        super().__init__(message)
        self.code = code
        self.is_avoidable = is_avoidable
        """False if the client could not know, because command and signal crossed on the way."""


class ProviderConversation:
    """The items of one connection, in order."""

    def __init__(self, new_item_id: Callable[[], str]) -> None:
        self.items: list[ConversationItem] = []
        self.new_item_id = new_item_id

    @property
    def messages(self) -> tuple[Message, ...]:
        """The conversation as messages."""
        return tuple([item.message for item in self.items])

    def add(self, message: Message, item_id: str = "", *, audio_ms: int = 0) -> list[ConversationItem]:
        """Add a message as one or more items.

        Args:
            message: The message.
            item_id: Id of the first item; by default a new one.
            audio_ms: Duration of its audio.

        Returns:
            The items.

        Raises:
            CommandRejectedError: The message does not fit the conversation.
        """
        self._check(message, item_id)
        roles_and_messages = list(_split(message))
        ids = [item_id or self.new_item_id(), *[self.new_item_id() for _ in roles_and_messages[1:]]]
        added = [
            ConversationItem(id, role, part, audio_ms) for id, (role, part) in zip(ids, roles_and_messages, strict=True)
        ]
        self.items += added
        return added

    def extend(self, item_id: str, words: str, audio_ms: int) -> None:
        """Add text and audio to an item of the model, which is created if it is missing.

        Args:
            item_id: Id of the item.
            words: The text.
            audio_ms: Duration of the audio.
        """
        index = self._index_of(item_id)
        if index is None:
            self.items.append(ConversationItem(item_id, "assistant", AssistantMessage(words), audio_ms))
            return
        item = self.items[index]
        said = AssistantMessage(text_of(item.message.content) + words)
        self.items[index] = replace(item, message=said, audio_ms=item.audio_ms + audio_ms)

    def add_call(self, call: ToolCall) -> None:
        """Add a call of the model; a script may repeat the id of an earlier one.

        Args:
            call: The call.
        """
        self.items.append(ConversationItem(self.new_item_id(), "call", AssistantMessage(tool_calls=(call,))))

    def truncate(self, item_id: str, audio_end_ms: int, *, ms_per_word: int) -> None:
        """Truncate an item of the model.

        Args:
            item_id: Id of the item.
            audio_end_ms: Milliseconds of audio to keep.
            ms_per_word: Duration of a word.

        Raises:
            CommandRejectedError: There is no such item, or it has less audio.
        """
        index = self._index_of(item_id)
        if index is None:
            raise CommandRejectedError("item_truncate_invalid_item_id", f"there is no item `{item_id}` to truncate")
        item = self.items[index]
        if item.role != "assistant" or not item.audio_ms:
            raise CommandRejectedError("item_truncate_invalid_item", f"`{item_id}` is not audio of the model")
        if not 0 <= audio_end_ms <= item.audio_ms:
            reason = f"`{item_id}` has {item.audio_ms} ms of audio and cannot be truncated at {audio_end_ms} ms"
            raise CommandRejectedError("invalid_audio_end_ms", reason)
        heard = " ".join(text_of(item.message.content).split()[: audio_end_ms // ms_per_word])
        self.items[index] = replace(item, message=AssistantMessage(heard), audio_ms=audio_end_ms)

    def _check(self, message: Message, item_id: str) -> None:
        if item_id and self._index_of(item_id) is not None:
            raise CommandRejectedError("item_create_duplicate_item_id", f"there is an item `{item_id}` already")
        if is_empty(message):
            raise CommandRejectedError("empty_item", f"a {type(message).__name__} has no content")
        known = {(item.role, item.call_id) for item in self.items}
        if isinstance(message, ToolMessage):
            if ("call", message.tool_call_id) not in known:
                raise CommandRejectedError(
                    "invalid_tool_call_id", f"a result for the unknown call `{message.tool_call_id}`"
                )
            if ("result", message.tool_call_id) in known:
                raise CommandRejectedError("duplicate_result", f"a second result for the call `{message.tool_call_id}`")
        if isinstance(message, AssistantMessage):
            for call in message.tool_calls:
                if ("call", call.id) in known:
                    raise CommandRejectedError("duplicate_call", f"the call `{call.id}` is in the conversation already")

    def _index_of(self, item_id: str) -> int | None:
        return next((index for index, item in enumerate(self.items) if item.id == item_id), None)


def _split(message: Message) -> Iterator[tuple[Role, Message]]:
    """Split a message into items."""
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


_INCOMPLETE_REASONS = {"length": "max_output_tokens", "refusal": "content_filter", "content_filter": "content_filter"}

Status: TypeAlias = Literal["completed", "cancelled", "incomplete", "failed"]


class ResponseContext(Struct, frozen=True):
    """The environment of the responses of one connection."""

    conversation: ProviderConversation
    send: Callable[[Signal], None]
    ms_per_word: int
    model_name: str


class ScriptedResponse:
    """A response in progress: it converts the chunks of a script to signals."""

    def __init__(self, response_id: str, context: ResponseContext, settings: RealtimeSettings) -> None:
        self.response_id = response_id
        self._context = context
        self._settings = settings
        self._read = context.conversation.messages
        self._words: list[str] = []
        self._item_id = ""
        self._is_speaking = False
        self._calls: dict[int, ToolCall] = {}
        self._end = ModelResponse()
        context.send(ResponseStarted(response_id))

    @property
    def has_audio(self) -> bool:
        """True if it has audio."""
        return bool(self._item_id) and self._settings.modality == "audio"

    async def play(self, chunks: AsyncIterable[Chunk]) -> None:
        """Send the signals of all chunks. Raises the script's errors.

        Args:
            chunks: The chunks of the script.
        """
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
                    raise SetupError(
                        f"a realtime response cannot contain {part!r}; use text, calls, or Audio with data"
                    )
                case ModelResponse():
                    self._end = chunk
        if self._end.message is not None and not self._words and not self._calls:
            self._say_message(self._end.message)
        status, reason = self._status()
        self.end(status, reason=reason)

    def end(self, status: Status, *, reason: str = "", error: str = "") -> None:
        """End the response.

        Args:
            status: Its status.
            reason: The reason, if it is not completed.
            error: The error message, if it failed.
        """
        self._stop_speaking()
        context = self._context
        # A call that is cut off must not be executed.
        calls = tuple([call for call in self._calls.values() if status == "completed" or _is_complete(call)])
        message = AssistantMessage("".join(self._words), calls)
        for call in calls:
            context.conversation.add_call(call)
        context.send(
            ResponseEnded(
                self.response_id,
                status,
                message,
                (self._item_id,) if self._item_id else (),
                reason,
                error,
                self._end.usage or Usage(_count(*self._read), _count(message) + len(calls)),
                self._end.model or context.model_name,
            )
        )

    def _say(self, words: str, *, audio: bytes = b"") -> None:
        context, format = self._context, self._settings.output_format
        is_spoken = self._settings.modality == "audio"
        self._item_id = self._item_id or context.conversation.new_item_id()
        if is_spoken and not audio:
            audio = speech(words, format=format, ms_per_word=context.ms_per_word)
        self._words.append(words)
        context.conversation.extend(self._item_id, words, int(milliseconds_of(len(audio), format)) if is_spoken else 0)
        if words:
            context.send(TranscriptChunk(self.response_id, self._item_id, 0, words, is_spoken))
        if is_spoken and audio:
            self._is_speaking = True
            context.send(AudioChunk(self.response_id, self._item_id, 0, audio))

    def _say_message(self, message: AssistantMessage) -> None:
        if message.content:
            self._say(text_of(message.content))
        self._calls = dict(enumerate(message.tool_calls))

    def _stop_speaking(self) -> None:
        if self._is_speaking:
            self._is_speaking = False
            self._context.send(AudioEnded(self.response_id, self._item_id, 0))

    def _add_to_call(self, chunk: ToolCallChunk) -> None:
        before = self._calls.get(chunk.index) or ToolCall("", "", "")
        self._calls[chunk.index] = ToolCall(
            before.id or chunk.id, before.name or chunk.name, before.arguments + chunk.arguments
        )

    def _status(self) -> tuple[Status, str]:
        reason = _INCOMPLETE_REASONS.get(self._end.stop_reason, "")
        return ("incomplete", reason) if reason else ("completed", "")


def _is_complete(call: ToolCall) -> bool:
    try:
        msgspec.json.decode(call.arguments)
    except msgspec.DecodeError:
        return False
    return True


def _count(*messages: Message) -> int:
    """Count tokens; by convention, a word is a token."""
    return sum([len(text_of(message.content).split()) for message in messages])
