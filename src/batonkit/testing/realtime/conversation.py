"""The conversation of a scripted provider: its items, and the rules for adding, truncating and removing them."""

from collections.abc import Callable, Iterator
from typing import Literal

from msgspec import Struct, field
from msgspec.structs import replace

from ...errors import quote_names
from ...messages import AssistantMessage, Message, SystemMessage, ToolMessage, UserMessage
from ...realtime.protocol import ItemRole
from ...realtime.voice_settings import AudioFormat, bytes_for, milliseconds_of
from ..scripted import WORD


class CommandRejectedError(Exception):
    """The provider rejects a command; code, message and param are those of OpenAI's errors."""

    def __init__(self, code: str, message: str, *, param: str | None = None, is_avoidable: bool = True) -> None:
        super().__init__(message)
        self.code = code
        self.param = param
        self.is_avoidable = is_avoidable
        """False if the client could not know, because command and signal crossed on the way."""


class ConversationItem(Struct):
    """An item of a provider's conversation: a message, one call, or the result of one."""

    id: str
    role: ItemRole
    message: Message
    format: AudioFormat | None = None
    """Format of its audio; None if it is not spoken."""
    audio: bytearray = field(default_factory=bytearray)
    status: Literal["in_progress", "completed", "incomplete"] = "completed"
    is_truncated: bool = False
    words: list[tuple[str, float]] = []
    """Words of a response, each with the position in the audio, in milliseconds, at which it ends."""

    @property
    def call_id(self) -> str:
        """The id of its call, if it is a call or a result; otherwise empty."""
        message = self.message
        if isinstance(message, ToolMessage):
            return message.tool_call_id
        return message.tool_calls[0].id if isinstance(message, AssistantMessage) and message.tool_calls else ""

    @property
    def audio_ms(self) -> int:
        """Duration of its audio in milliseconds."""
        return int(milliseconds_of(len(self.audio), self.format)) if self.format is not None else 0

    @property
    def transcript(self) -> str:
        """All words of a response, including those whose audio was cut off."""
        return "".join([word for word, _ in self.words])

    def say(self, text: str, milliseconds: float) -> None:
        """Add text to a response, and announce how long its audio will be."""
        words = WORD.findall(text)
        for number, word in enumerate(words, start=1):
            self.words.append((word, self.audio_ms + milliseconds * number / len(words)))
        self.message = AssistantMessage(self.transcript)

    def cut(self) -> None:
        """Reduce the message to the words whose audio is complete."""
        # Positions are fractions of the audio, so the last one may differ from its end by rounding.
        heard = [word for word, end in self.words if end < self.audio_ms + 1]
        if len(heard) < len(self.words):
            self.message = AssistantMessage("".join(heard).rstrip())


class ProviderConversation:
    """The items of one connection, in order."""

    def __init__(self, new_item_id: Callable[[], str]) -> None:
        self.items: list[ConversationItem] = []
        self.new_item_id = new_item_id

    def messages(self) -> list[Message]:
        """Return the conversation as messages."""
        return [item.message for item in self.items]

    def add(
        self,
        message: Message,
        item_id: str = "",
        *,
        after: str | None = None,
        format: AudioFormat | None = None,
        audio: bytes = b"",
    ) -> list[ConversationItem]:
        """Add a message as one or more items.

        Returns:
            The items.

        Raises:
            CommandRejectedError: The message does not fit the conversation.
        """
        self._check(message, item_id)
        place = len(self.items)
        if after is not None:
            place = 0 if after == "root" else self.items.index(self.find(after, "create", "previous_item")) + 1
        added = [
            ConversationItem(
                item_id if item_id and not number else self.new_item_id(), role, part, format, bytearray(audio)
            )
            for number, (role, part) in enumerate(_split(message))
        ]
        self.items[place:place] = added
        return added

    def find(self, item_id: str, action: str, kind: str = "item") -> ConversationItem:
        """Return an item.

        Raises:
            CommandRejectedError: There is no such item.
        """
        for item in self.items:
            if item.id == item_id:
                return item
        code = f"item_{action}_invalid_{kind}_id"
        raise CommandRejectedError(code, f"there is no item `{item_id}` to {action}", param=f"{kind}_id")

    def truncate(self, item_id: str, content_index: int, audio_end_ms: int) -> None:
        """Truncate an item of the model.

        Raises:
            CommandRejectedError: There is no such item, or it has less audio.
        """
        item = self.find(item_id, "truncate")
        if item.role != "assistant" or item.format is None:
            reason = f"`{item_id}` is not audio of the model and cannot be truncated"
            raise CommandRejectedError("invalid_value", reason, param="item_id")
        if content_index != 0:
            reason = f"`{item_id}` has no content at index {content_index}"
            raise CommandRejectedError("invalid_value", reason, param="content_index")
        if not 0 <= audio_end_ms <= item.audio_ms:
            reason = f"Audio content of {item.audio_ms}ms is already shorter than {audio_end_ms}ms."
            raise CommandRejectedError("invalid_value", reason, param="audio_end_ms")
        del item.audio[bytes_for(audio_end_ms, item.format) :]
        item.is_truncated = True
        item.cut()

    def _check(self, message: Message, item_id: str) -> None:
        if item_id and any(item.id == item_id for item in self.items):
            reason = f"there is an item `{item_id}` already"
            raise CommandRejectedError("item_create_duplicate_item_id", reason, param="item.id")
        calls = [item.call_id for item in self.items if item.role == "call"]
        if isinstance(message, ToolMessage):
            id = message.tool_call_id
            if id not in calls:
                reason = f"a result for the unknown call `{id}`; the calls are: {quote_names(calls)}"
                raise CommandRejectedError("invalid_tool_call_id", reason, param="item.call_id")
            if any(item.role == "result" and item.call_id == id for item in self.items):
                reason = f"a second result for the call `{id}`"
                raise CommandRejectedError("duplicate_tool_call_output", reason, param="item.call_id")
        if isinstance(message, AssistantMessage):
            for call in message.tool_calls:
                if call.id in calls:
                    reason = f"the call `{call.id}` is in the conversation already"
                    raise CommandRejectedError("duplicate_tool_call_id", reason, param="item.call_id")


def _split(message: Message) -> Iterator[tuple[ItemRole, Message]]:
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
