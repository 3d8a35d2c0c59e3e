"""What is said: messages, their parts, tool calls and usage, as frozen values. Imports only errors."""

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias, cast

import msgspec
from msgspec import Struct, structs

from .errors import SetupError


class Text(Struct, frozen=True, tag="text", gc=False):
    """Plain text."""

    text: str


class Image(Struct, frozen=True, tag="image", omit_defaults=True, gc=False):
    """A picture, by url or by value."""

    url: str | None = None
    data: bytes | None = None
    media_type: str = "image/png"
    detail: str | None = None


class Audio(Struct, frozen=True, tag="audio", omit_defaults=True, gc=False):
    """Sound, by url or by value, with what is said in it if known."""

    url: str | None = None
    data: bytes | None = None
    media_type: str = "audio/wav"
    transcript: str | None = None


class File(Struct, frozen=True, tag="file", omit_defaults=True, gc=False):
    """Any other document, by url or by value."""

    url: str | None = None
    data: bytes | None = None
    media_type: str = "application/octet-stream"
    name: str | None = None


class Data(Struct, frozen=True, tag="data", gc=False):
    """A structured value, shown to models as JSON."""

    value: Any


Part: TypeAlias = Text | Image | Audio | File | Data
Content: TypeAlias = str | tuple[Part, ...]


class Reasoning(Struct, frozen=True, omit_defaults=True, gc=False):
    """What a model thought before it spoke; `opaque` is what its provider wants back untouched."""

    text: str = ""
    provider: str = ""
    signature: Any = None


class ToolCall(Struct, frozen=True, gc=False):
    """A model's wish to have a tool called; `arguments` is JSON as the model wrote it."""

    id: str
    name: str
    arguments: str = "{}"


class ToolSpec(Struct, frozen=True):
    """A tool as a model sees it; `parameters` is a JSON schema of an object."""

    name: str
    description: str = ""
    parameters: dict[str, Any] = msgspec.field(default_factory=lambda: {"type": "object", "properties": {}})
    strict: bool = False


class SystemMessage(Struct, frozen=True, tag="system", tag_field="role", gc=False):
    """An instruction from the application in the middle of a conversation."""

    content: Content


class UserMessage(Struct, frozen=True, tag="user", tag_field="role", gc=False):
    """What the user says, or what is told to a model as if the user said it."""

    content: Content


class AssistantMessage(Struct, frozen=True, tag="assistant", tag_field="role", omit_defaults=True, gc=False):
    """What a model says: content, calls, or both."""

    content: Content = ""
    tool_calls: tuple[ToolCall, ...] = ()
    reasoning: tuple[Reasoning, ...] = ()
    author: str = ""
    """The agent whose words these are, where the message is taken out of its history; else the history knows."""


class ToolMessage(Struct, frozen=True, tag="tool", tag_field="role", omit_defaults=True, gc=False):
    """The result of one call."""

    tool_call_id: str
    name: str
    content: Content = ""
    is_error: bool = False
    author: str = ""


Message: TypeAlias = SystemMessage | UserMessage | AssistantMessage | ToolMessage
_MESSAGES = frozenset((SystemMessage, UserMessage, AssistantMessage, ToolMessage))


class Usage(Struct, frozen=True, omit_defaults=True, gc=False):
    """What model calls consumed; `cost` in the currency of the provider's price list, if known."""

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    reasoning_tokens: int = 0
    cost: float = 0.0
    model_calls: int = 0

    @property
    def total_tokens(self) -> int:
        return self.input_tokens + self.output_tokens

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.cached_tokens + other.cached_tokens,
            self.reasoning_tokens + other.reasoning_tokens,
            self.cost + other.cost,
            self.model_calls + other.model_calls,
        )


def text_of(content: Content) -> str:
    """The text in a message's content; structured values as JSON, other media left out."""
    if isinstance(content, str):
        return content
    pieces: list[str] = []
    for part in content:
        if isinstance(part, Text):
            pieces.append(part.text)
        elif isinstance(part, Data):
            pieces.append(msgspec.json.encode(part.value).decode())
    return "\n".join(pieces)


def media_of(content: Content) -> tuple[Part, ...]:
    """The images, audio and files in a message's content."""
    if isinstance(content, str):
        return ()
    return tuple(part for part in content if isinstance(part, Image | Audio | File))


def is_empty(message: Message) -> bool:
    """Whether a message says nothing at all: no text, no media, no calls."""
    if type(message) is ToolMessage or (
        type(message) is AssistantMessage and (message.tool_calls or message.reasoning)
    ):
        return False
    return not message.content or (not text_of(message.content) and not media_of(message.content))


RunInput: TypeAlias = str | Message | Mapping[str, Any] | Sequence[Message | Mapping[str, Any]]


def to_messages(given: RunInput) -> tuple[Message, ...]:
    """What a caller may pass as input, as messages: text, a message, a dict of role and content, or several."""
    if isinstance(given, str):
        return (UserMessage(given),)
    if isinstance(given, Sequence):
        return tuple(_as_message(item) for item in given)
    return (_as_message(given),)


def _as_message(given: Any) -> Message:
    if type(given) in _MESSAGES:
        return given
    if isinstance(given, Mapping):
        return _from_dict(cast("Mapping[str, Any]", given))
    raise SetupError(
        f"not a message: {given!r}; give text, UserMessage(…), a dict of role and content, or a list of them"
    )


def _from_dict(given: Mapping[str, Any]) -> Message:
    fields = dict(given)
    if fields.get("content") is None:
        fields["content"] = ""
    calls = fields.pop("tool_calls", None)
    if "tool_call_id" in fields:
        fields.setdefault("name", fields.pop("tool_name", ""))
    try:
        if calls:
            fields["tool_calls"] = [
                {"id": c["id"], "name": c["function"]["name"], "arguments": c["function"]["arguments"]} for c in calls
            ]
        return msgspec.convert(fields, Message)
    except (msgspec.ValidationError, KeyError, TypeError) as error:
        raise SetupError(f"not a message: {dict(given)!r} ({error}); give role and content") from None


def pair_calls_with_results(messages: Sequence[Message]) -> list[Message]:
    """The same conversation with every call directly followed by its one result, as all providers demand.

    Results without a call are dropped, a call without a result gets one that says so, and an id that is missing or
    was used before is changed in the call and in its result.
    """
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


def _pair(
    call: ToolCall, position: int, results: list[tuple[int, ToolMessage]], used: set[str]
) -> tuple[ToolCall, ToolMessage]:
    # Some providers count their call ids anew in every turn: the result is the first one after the call that is left.
    result = ToolMessage(call.id, call.name, "The result of this call is not available.", is_error=True)
    for place, (index, found) in enumerate(results):
        if index > position:
            result = found
            del results[place]
            break
    id = call.id or "call"
    while id in used:
        id += "x"
    used.add(id)
    if id == call.id:
        return call, result
    return structs.replace(call, id=id), structs.replace(result, tool_call_id=id)
