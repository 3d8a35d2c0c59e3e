"""Messages, content parts, tool calls and usage, as immutable values."""

from collections.abc import Callable, Iterable, Sequence
from operator import add
from typing import Any, Literal, TypeAlias

import msgspec
from msgspec import Struct, structs

Phase: TypeAlias = Literal["commentary", "final_answer"]
"""The purpose of a text, as the model states it: an update on the way, or the answer."""


class Text(Struct, frozen=True, omit_defaults=True, tag="text", gc=False):
    """A text part."""

    text: str
    """The text."""
    phase: Phase | None = None
    """The purpose of a model's text: commentary or the final answer; None if the model does not say."""


class Media(Struct, frozen=True, omit_defaults=True, gc=False):
    """Content other than text, by URL or by value."""

    url: str | None = None
    """The URL of the content; give it or `data`."""
    data: bytes | None = None
    """The content itself."""


class Image(Media, frozen=True, tag="image", omit_defaults=True, gc=False):
    """An image, by URL or by value."""

    media_type: str = "image/png"
    """Its MIME type."""
    detail: str | None = None
    """The level of detail that the model should use, such as "low" or "high"."""


class Audio(Media, frozen=True, tag="audio", omit_defaults=True, gc=False):
    """An audio clip, by URL or by value."""

    media_type: str = "audio/wav"
    """Its MIME type."""
    transcript: str | None = None
    """The spoken text, if known."""


class File(Media, frozen=True, tag="file", omit_defaults=True, gc=False):
    """Any other file, by URL or by value."""

    media_type: str = "application/octet-stream"
    """Its MIME type."""
    name: str | None = None
    """The file name."""


def to_media(
    media_type: str | None, *, url: str | None = None, data: bytes | None = None, name: str | None = None
) -> Image | Audio | File:
    """Return the part that fits a MIME type: an image, an audio clip or a file.

    Args:
        media_type: The MIME type; without one, the part is a file of unknown type.
        url: The URL of the content; give it or `data`.
        data: The content itself.
        name: The name, if it is a file.
    """
    kind = media_type or "application/octet-stream"
    if kind.startswith("image/"):
        return Image(url, data, kind)
    return Audio(url, data, kind) if kind.startswith("audio/") else File(url, data, kind, name)


class Data(Struct, frozen=True, tag="data", gc=False):
    """A structured value, shown to models as JSON."""

    value: Any
    """The value, as JSON data."""


Part: TypeAlias = Text | Image | Audio | File | Data
"""A part of a message's content."""
Content: TypeAlias = str | tuple[Part, ...]
"""The content of a message: text, or several parts."""


class Reasoning(Struct, frozen=True, omit_defaults=True, gc=False):
    """A model's reasoning before its answer."""

    text: str = ""
    """The text, if the provider shows it."""
    provider: str = ""
    """The provider that it comes from."""
    signature: Any = None
    """Opaque data that the provider expects back unchanged."""


class ToolCall(Struct, frozen=True, gc=False):
    """A tool call by a model."""

    id: str
    """The id that connects the call with its result."""
    name: str
    """The name of the tool."""
    arguments: str = "{}"
    """The arguments as JSON text, as the model wrote it."""


INVALID_JSON = (msgspec.MsgspecError, UnicodeError, RecursionError)
"""The exceptions of msgspec for JSON text that does not fit, is not valid Unicode or is nested too deeply."""


class ToolSpec(Struct, frozen=True):
    """A tool as it is described to a model."""

    name: str
    """The name."""
    description: str = ""
    """The description."""
    parameters: dict[str, Any] = msgspec.field(default_factory=lambda: {"type": "object", "properties": {}})
    """The JSON schema of the arguments, an object."""
    strict: bool = False
    """True if the provider must enforce the schema."""


def object_schema(properties: dict[str, Any]) -> dict[str, Any]:
    """Return the JSON schema of an object that has all of these properties and no others.

    Args:
        properties: The schemas of the properties.
    """
    return {"type": "object", "properties": properties, "required": [*properties], "additionalProperties": False}


class SystemMessage(Struct, frozen=True, tag="system", tag_field="role", gc=False):
    """An instruction from the application."""

    content: Content
    """The text or the parts."""


class UserMessage(Struct, frozen=True, tag="user", tag_field="role", gc=False):
    """A message from the user, or one that models should read as such."""

    content: Content
    """The text or the parts."""


class AssistantMessage(Struct, frozen=True, tag="assistant", tag_field="role", omit_defaults=True, gc=False):
    """A model's response: content, tool calls, or both."""

    content: Content = ""
    """The text or the parts."""
    tool_calls: tuple[ToolCall, ...] = ()
    """The tools that the model calls."""
    reasoning: tuple[Reasoning, ...] = ()
    """The reasoning before the response."""
    author: str = ""
    """The agent that wrote it, set only in the messages given to handoff input filters."""


class ToolMessage(Struct, frozen=True, tag="tool", tag_field="role", omit_defaults=True, gc=False):
    """The result of one tool call."""

    tool_call_id: str
    """The id of the call."""
    name: str
    """The name of the tool."""
    content: Content = ""
    """The result."""
    is_error: bool = False
    """True if the result is an error message."""
    author: str = ""
    """The agent that made the call, set only in the messages given to handoff input filters."""


Message: TypeAlias = SystemMessage | UserMessage | AssistantMessage | ToolMessage
"""Any message."""
MESSAGE_TYPES = frozenset((SystemMessage, UserMessage, AssistantMessage, ToolMessage))
"""The message classes."""


class Usage(Struct, frozen=True, omit_defaults=True, gc=False):
    """Tokens and cost of model calls; usages can be added."""

    input_tokens: int = 0
    """The tokens of the requests."""
    output_tokens: int = 0
    """The tokens of the responses."""
    cached_tokens: int = 0
    """The input tokens that were read from the provider's cache."""
    reasoning_tokens: int = 0
    """The output tokens that were spent on reasoning."""
    cost: float = 0.0
    """The cost in US dollars, or what the model itself reports; see `unpriced_calls`."""
    model_calls: int = 0
    """The number of model calls."""
    unpriced_calls: int = 0
    """The number of model calls whose price is unknown; `cost` does not include them."""
    cache_write_tokens: int = 0
    """The input tokens that were written to the provider's cache."""

    @property
    def total_tokens(self) -> int:
        """The input and output tokens."""
        return self.input_tokens + self.output_tokens

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(*map(add, structs.astuple(self), structs.astuple(other)))


class TokenLogprob(Struct, frozen=True, omit_defaults=True, gc=False):
    """A token of a response and its log probability."""

    token: str
    """The token's text."""
    logprob: float
    """The natural logarithm of its probability."""
    top_logprobs: "tuple[TokenLogprob, ...]" = ()
    """The most likely tokens at its position, if they were requested."""


def text_of(content: Content) -> str:
    """Return the text of a message's content; structured values as JSON, without media.

    Args:
        content: The content.
    """
    if isinstance(content, str):
        return content
    pieces: list[str] = []
    for part in content:
        if isinstance(part, Text):
            pieces.append(part.text)
        elif isinstance(part, Data):
            pieces.append(msgspec.json.encode(part.value).decode())
    return "\n".join(pieces)


def answer_of(content: Content) -> str:
    """Return the text of an answer: without commentary, unless there is nothing else.

    Args:
        content: The content.
    """
    if isinstance(content, str):
        return content
    without_commentary = [part for part in content if not (isinstance(part, Text) and part.phase == "commentary")]
    return text_of(tuple(without_commentary)) or text_of(content)


def media_of(content: Content) -> tuple[Part, ...]:
    """Return the images, audio clips and files of a message's content.

    Args:
        content: The content.
    """
    if isinstance(content, str):
        return ()
    return tuple(part for part in content if isinstance(part, Media))


def is_empty(message: Message) -> bool:
    """Return whether a message has no text, no media and no tool calls.

    Args:
        message: The message.
    """
    if type(message) is ToolMessage or (
        type(message) is AssistantMessage and (message.tool_calls or message.reasoning)
    ):
        return False
    return not message.content or (not text_of(message.content) and not media_of(message.content))


_MEDIA_TOKENS = 1000


def estimate_text_tokens(text: str) -> int:
    """Estimate the number of tokens of a text: a quarter of its bytes.

    Args:
        text: The text.
    """
    # Bytes, not characters: a Chinese character is nearly a token of its own.
    return (len(text) if text.isascii() else len(text.encode(errors="replace"))) + 3 >> 2


def estimate_tokens(messages: Iterable[Message], count: Callable[[str], int] = estimate_text_tokens) -> int:
    """Estimate the number of tokens of messages, for prompts that no provider has counted yet.

    Args:
        messages: The messages.
        count: Counts the tokens of a text; by default a quarter of its bytes. An image, sound or file counts as 1,000.
    """
    tokens = 0
    for message in messages:
        content = message.content
        if isinstance(content, str):
            tokens += count(content) if content else 0
        else:
            text = text_of(content)
            tokens += (count(text) if text else 0) + _MEDIA_TOKENS * len(media_of(content))
        if type(message) is AssistantMessage:
            for call in message.tool_calls:
                tokens += count(f"{call.name} {call.arguments}")
    return tokens


def pair_calls_with_results(messages: Sequence[Message]) -> list[Message]:
    """Place every tool call's result directly after the call, as all providers require.

    Results without a call are dropped, a call without a result gets a placeholder, and an id that is missing or was
    used before is replaced in the call and its result.

    Args:
        messages: The conversation.
    """
    if _is_paired(messages):
        return list(messages)
    results: dict[str, list[tuple[int, ToolMessage]]] = {}
    for position, message in enumerate(messages):
        if isinstance(message, ToolMessage):
            results.setdefault(message.tool_call_id, []).append((position, message))
    used: set[str] = set()
    whole: list[Message] = []
    for position, message in enumerate(messages):
        if isinstance(message, ToolMessage) or is_empty(message):
            continue
        if isinstance(message, AssistantMessage) and message.tool_calls:
            pairs = [_pair(call, position, results.get(call.id, []), used) for call in message.tool_calls]
            calls = tuple([call for call, _ in pairs])
            whole.append(message if calls == message.tool_calls else structs.replace(message, tool_calls=calls))
            whole.extend([result for _, result in pairs])
        else:
            whole.append(message)
    return whole


def call_ids_in(messages: Iterable[Message]) -> list[str]:
    """Return the ids of all tool calls in messages."""
    return [
        call.id for each in messages if type(each) is AssistantMessage and each.tool_calls for call in each.tool_calls
    ]


def _is_paired(messages: Sequence[Message]) -> bool:
    """Return whether pairing would change nothing, as for nearly every conversation."""
    check = PairingCheck()
    return check.accept(messages) and not check.open_calls


class PairingCheck:
    """Checks piece by piece whether `pair_calls_with_results` would change a conversation."""

    __slots__ = ("_used", "open_calls")

    def __init__(self) -> None:
        self._used: set[str] = {""}
        self.open_calls: list[str] = []
        """The ids of the last calls that have no result yet, the next one last."""

    def accept(self, messages: Sequence[Message]) -> bool:
        """Return whether pairing would change nothing in the next messages, apart from open calls."""
        open_calls = self.open_calls
        used = len(self._used)
        ids: list[str] = []
        rest = iter(messages)
        while open_calls and (result := next(rest, None)) is not None:
            if type(result) is not ToolMessage or result.tool_call_id != open_calls.pop():
                return False
        # Histories are long: `type` is several times faster than isinstance on a struct, and reading `content` where
        # all messages have one type is faster than where they have two.
        for message in rest:
            if type(message) is AssistantMessage:
                if calls := message.tool_calls:
                    for call in calls:
                        ids.append(call.id)
                        result = next(rest, None)
                        if result is None:
                            open_calls.insert(0, call.id)
                        elif type(result) is not ToolMessage or result.tool_call_id != call.id:
                            return False
                    continue
                content = message.content
            elif type(message) is ToolMessage:
                return False
            else:
                content = message.content
            if (not content or type(content) is not str) and is_empty(message):
                return False
        self._used.update(ids)
        return len(self._used) == used + len(ids)


def _pair(
    call: ToolCall, position: int, results: list[tuple[int, ToolMessage]], used: set[str]
) -> tuple[ToolCall, ToolMessage]:
    # Some providers reuse call ids in every turn: take the first remaining result after the call.
    result = ToolMessage(call.id, call.name, "The result of this call is not available.", is_error=True)
    for index, (result_position, candidate) in enumerate(results):
        if result_position > position:
            result = candidate
            del results[index]
            break
    id = call.id or "call"
    while id in used:
        id += "x"
    used.add(id)
    if id == call.id:
        return call, result
    return structs.replace(call, id=id), structs.replace(result, tool_call_id=id)
