"""The items of one conversation, as the server keeps them and as a model is told them."""

import re
import secrets
from base64 import b64decode, b64encode
from typing import Any, Literal

from msgspec import Struct, to_builtins
from tests.servers.openai.chat_schema import image
from tests.servers.openai.errors import wrong
from tests.servers.realtime.request_schema import ClientItem, FunctionCall, FunctionCallOutput, ItemTruncate

from baton.errors import quote_names
from baton.messages import (
    AssistantMessage,
    Audio,
    Image,
    Message,
    Part,
    SystemMessage,
    Text,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from baton.realtime.settings import AudioFormat, bytes_for, milliseconds_of

_WORD = re.compile(r"\S+\s*|\s+")


def new_id(kind: str) -> str:
    """An id that nothing else has."""
    return f"{kind}_{secrets.token_hex(10)}"


class SpokenAudio(Struct):
    """What an item sounds like: its audio, and the words in it with the place where each one ends, in milliseconds."""

    format: AudioFormat
    audio: bytearray
    words: list[tuple[str, float]] = []

    @property
    def milliseconds(self) -> float:
        """How long it is."""
        return milliseconds_of(len(self.audio), self.format)

    @property
    def text(self) -> str:
        """The words that are there to their end; of a word that was only begun, nothing."""
        return "".join(word for word, end in self.words if end <= self.milliseconds + 1).strip()

    def announce(self, text: str, milliseconds: float) -> None:
        """Say which words are in the sound that comes next, and how long it will be."""
        words = _WORD.findall(text)
        for number, word in enumerate(words, start=1):
            self.words.append((word, self.milliseconds + milliseconds * number / len(words)))

    def cut(self, milliseconds: int) -> None:
        """Forget what comes after."""
        del self.audio[bytes_for(milliseconds, self.format) :]


class ServedItem(Struct):
    """One item: `wire` is what clients are shown of it."""

    id: str
    wire: dict[str, Any]
    spoken: SpokenAudio | None = None
    heard: str = ""
    """What the user says in it, if it is audio and the script knows."""
    is_truncated: bool = False

    @property
    def kind(self) -> Literal["user", "assistant", "system", "function_call", "function_call_output"]:
        """Whose it is, or what."""
        return self.wire["role"] if self.wire["type"] == "message" else self.wire["type"]

    @property
    def audio_ms(self) -> float:
        """How much of it can be heard."""
        return self.spoken.milliseconds if self.spoken is not None else 0.0

    def whole(self) -> dict[str, Any]:
        """What a client is shown that asks for it by id: with the audio."""
        if self.spoken is None:
            return self.wire
        audio = b64encode(self.spoken.audio).decode()
        return {**self.wire, "content": [{**part, "audio": audio} for part in self.wire["content"]]}


class ServedConversation:
    """Items in order."""

    def __init__(self) -> None:
        self.id = new_id("conv")
        self.items: list[ServedItem] = []
        self.call_ids: set[str] = set()
        self.answered: set[str] = set()

    def __getitem__(self, item_id: str) -> ServedItem:
        return next(item for item in self.items if item.id == item_id)

    def find(self, item_id: str, doing: str) -> ServedItem:
        """The item of that id; `doing` is what it is wanted for."""
        for item in self.items:
            if item.id == item_id:
                return item
        code = f"item_{doing}_invalid_item_id"
        raise wrong(f"Error: the item with id '{item_id}' does not exist.", param="item_id", code=code)

    def add(self, item: ServedItem, after: str | None = None) -> str | None:
        """Put it in, at the end or behind another; the id of the one before it."""
        place = len(self.items) if after is None else 0 if after == "root" else self._index(after) + 1
        self.items.insert(place, item)
        if item.kind == "function_call":
            self.call_ids.add(item.wire["call_id"])
        elif item.kind == "function_call_output":
            self.answered.add(item.wire["call_id"])
        return self.items[place - 1].id if place else None

    def made_from(self, given: ClientItem) -> ServedItem:
        """The item that a client wants to be in here; a Rejection if it does not fit to what there is."""
        if given.id is not None and any(item.id == given.id for item in self.items):
            message = f"Error creating item: an item with id '{given.id}' already exists."
            raise wrong(message, param="item.id", code="item_create_duplicate_item_id")
        if isinstance(given, FunctionCall) and given.call_id in self.call_ids:
            message = f"A function call with call_id '{given.call_id}' is already in the conversation."
            raise wrong(message, param="item.call_id", code="duplicate_tool_call_id")
        if isinstance(given, FunctionCallOutput):
            self._check_output(given.call_id)
        id = given.id or new_id("item")
        wire = {key: value for key, value in to_builtins(given).items() if value is not None}
        wire.update(id=id, object="realtime.item", status="completed")
        if isinstance(given, FunctionCall):
            wire.setdefault("call_id", new_id("call"))
        elif not isinstance(given, FunctionCallOutput):
            wire["content"] = [{k: v for k, v in part.items() if v is not None} for part in wire["content"]]
        return _without_audio(ServedItem(id, wire))

    def _check_output(self, call_id: str) -> None:
        if call_id not in self.call_ids:
            message = (
                f"Tool call ID '{call_id}' not found in conversation; there are: {quote_names(sorted(self.call_ids))}."
            )
            raise wrong(message, param="item.call_id", code="invalid_tool_call_id")
        if call_id in self.answered:
            message = f"Tool call ID '{call_id}' has an output already."
            raise wrong(message, param="item.call_id", code="duplicate_tool_call_output")

    def truncate(self, event: ItemTruncate) -> None:
        """Forget what was not heard of an item."""
        item = self.find(event.item_id, "truncate")
        if item.kind != "assistant" or item.spoken is None:
            message = "Only model output audio messages can be truncated."
            raise wrong(message, param="item_id", code="invalid_value")
        if event.content_index != 0:
            raise wrong(f"Invalid content_index: {event.content_index}.", param="content_index", code="invalid_value")
        if not 0 <= event.audio_end_ms <= item.audio_ms:
            message = f"Audio content of {item.audio_ms:g}ms is already shorter than {event.audio_end_ms}ms."
            raise wrong(message, param="audio_end_ms", code="invalid_value")
        item.spoken.cut(event.audio_end_ms)
        item.is_truncated = True
        # A transcript of words that nobody heard would mislead the model, so the provider drops all of it.
        item.wire = {**item.wire, "content": [{"type": "output_audio"}]}

    def delete(self, item_id: str) -> None:
        """Forget an item."""
        self.items.remove(self.find(item_id, "delete"))

    def messages(self) -> list[Message]:
        """The same as a ScriptedModel is told it: sound as the words in it, where they are known."""
        return [_message(item) for item in self.items]

    def _index(self, item_id: str) -> int:
        for index, item in enumerate(self.items):
            if item.id == item_id:
                return index
        message = f"Error creating item: the previous item with id '{item_id}' does not exist."
        raise wrong(message, param="previous_item_id", code="item_create_invalid_previous_item_id")


def _without_audio(item: ServedItem) -> ServedItem:
    """The item with its sound beside it, because clients are shown sound only when they ask for it."""
    if item.wire["type"] != "message":
        return item
    for part in item.wire["content"]:
        if "audio" in part:
            item.spoken = SpokenAudio("pcm16", bytearray(b64decode(part.pop("audio"))))
            item.heard = part.get("transcript", "")
    return item


def _message(item: ServedItem) -> Message:
    wire = item.wire
    match item.kind:
        case "function_call":
            return AssistantMessage(tool_calls=(ToolCall(wire["call_id"], wire["name"], wire["arguments"]),))
        case "function_call_output":
            return ToolMessage(wire["call_id"], "", wire["output"])
        case "assistant":
            if item.spoken is not None:
                return AssistantMessage(item.spoken.text)
            return AssistantMessage("".join(part.get("text", "") for part in wire["content"]))
        case "system":
            return SystemMessage("\n".join(part["text"] for part in wire["content"]))
        case "user":
            parts = tuple(_part(item, part) for part in wire["content"])
            texts = [part.text for part in parts if isinstance(part, Text)]
            return UserMessage("\n".join(texts) if len(texts) == len(parts) else parts)


def _part(item: ServedItem, part: dict[str, Any]) -> Part:
    if part["type"] == "input_image":
        given = image(part["image_url"], "image_url", part.get("detail"))
        return Image(data=given.data, media_type=given.media_type, detail=given.detail)
    if part["type"] == "input_text" or item.heard:
        return Text(part.get("text") or item.heard)
    return Audio(data=bytes(item.spoken.audio) if item.spoken is not None else b"", media_type="audio/pcm")
