"""Conversion of lists of dicts to messages: Chat Completions, Responses items, Anthropic turns and Baton's own."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import msgspec
from msgspec.structs import replace

from .._wording import misspelled, nearest, quote_names, show, type_of
from ..errors import SetupError
from .input_parts import (
    PARTS,
    Fields,
    InvalidInputError,
    decode_content,
    decode_part,
    plain_text,
    read_fields,
    read_list,
    read_text,
)
from .messages import (
    MESSAGE_TYPES,
    AssistantMessage,
    Content,
    Message,
    Part,
    Reasoning,
    SystemMessage,
    Text,
    ToolCall,
    ToolMessage,
    UserMessage,
)

_WORKS = "give role and content, as in {'role': 'user', 'content': 'hello'}"


def decode_items(items: Sequence[Any], what: str, *, is_single: bool = False) -> tuple[Message, ...]:
    """Convert messages and dicts to messages.

    Raises:
        SetupError: An item is not a message in any of the formats.
    """
    decoder = _ItemDecoder()
    for index, item in enumerate(items):
        where = f"the {what}" if is_single else f"{what}[{index}]"
        if type(item) in MESSAGE_TYPES:
            decoder.add_message(item)
        elif isinstance(item, Mapping):
            fields = cast("Fields", item)
            try:
                decoder.add(fields)
            except InvalidInputError as error:
                problem = f"{error.key} {error.problem}"
                raise SetupError(f"{where} is not a message: {show(dict(fields))} ({problem}); {_WORKS}") from None
        else:
            raise SetupError(f"{where} {_describe_problem(item, is_single=is_single)}")
    return tuple(decoder.messages)


def _describe_problem(item: object, *, is_single: bool) -> str:
    """Say what an object that is neither a message nor a dict must be instead."""
    if isinstance(item, str):
        works = "give the text itself instead of a list, or UserMessage(…) in the list"
        return f"is not a message: {show(item)}; {works}"
    if not isinstance(item, type) and callable(getattr(item, "model_dump", None)):
        return f"is not a message: {show(item)}; give a dict: pass {type(item).__name__}.model_dump()"
    works = "text, a message or a list of them" if is_single else "a message, or a dict with role and content"
    return f"must be {works}, not {type_of(item) if isinstance(item, type) else show(item)}"


class _ItemDecoder:
    """Collects messages; the Responses items of one response become one message."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self._names: dict[str, str] = {}
        """The names of the tools by call id: the results of most formats do not repeat them."""
        self._reasoning: list[Fields] = []
        """Reasoning items that precede the output they led to."""
        self._is_open = False
        """True if the last message is a response that more items may belong to."""

    def add_message(self, message: Message) -> None:
        """Add a message of Baton."""
        self._add(message)

    def add(self, item: Fields) -> None:
        """Add a dict. Raises InvalidInputError."""
        kind = item.get("type")
        role = item.get("role")
        if role is None and kind is not None:
            add = self._items.get(kind) if isinstance(kind, str) else None
            if add is None:
                known = f"use one of {quote_names([*self._items])}, or a dict with a role{nearest(kind, self._items)}"
                raise InvalidInputError("type", f"is {show(kind)}; {known}")
            add(self, item)
            return
        add = self._roles.get(role) if isinstance(role, str) else None
        if add is None:
            if role is None:
                raise InvalidInputError("role", f"is missing{misspelled('role', item)}")
            known = f"use one of {quote_names([*self._roles])}{nearest(role, self._roles)}"
            raise InvalidInputError("role", f"is {show(role)}; {known}")
        add(self, item)

    def _add(self, message: Message, *, is_open: bool = False) -> None:
        self._is_open = is_open
        self._reasoning = []
        if isinstance(message, AssistantMessage):
            self._names.update([(call.id, call.name) for call in message.tool_calls])
        self.messages.append(message)

    def _add_system(self, item: Fields) -> None:
        _require_content(item)
        self._add(SystemMessage(decode_content(item["content"])))

    def _add_user(self, item: Fields) -> None:
        _require_content(item)
        content = item["content"]
        if not any(_is_block(part, "tool_result") for part in _parts(content)):
            self._add(UserMessage(decode_content(content)))
            return
        parts: list[Part] = []
        for position, part in enumerate(read_list(content, "content")):
            key = f"content[{position}]"
            if part.get("type") != "tool_result":
                parts.append(decode_part(part, key))
                continue
            self._add_parts(parts)
            try:
                self._add_result(part, "tool_use_id", plain_text(decode_content(part.get("content"))))
            except InvalidInputError as error:
                raise error.inside(key) from None
        self._add_parts(parts)

    def _add_parts(self, parts: list[Part]) -> None:
        if parts:
            self._add(UserMessage(plain_text(tuple(parts))))
            parts.clear()

    def _add_tool(self, item: Fields) -> None:
        self._add_result(item, "tool_call_id", decode_content(item.get("content")))

    def _add_output(self, item: Fields) -> None:
        self._add_result(item, "call_id", plain_text(decode_content(item.get("output"), "output")))

    def _add_result(self, item: Fields, id_key: str, content: Content) -> None:
        id = read_text(item, id_key)
        name = read_text(item, "name", "") or read_text(item, "tool_name", "") or self._names.get(id, "")
        is_error = item.get("is_error") or False
        if not isinstance(is_error, bool):
            raise InvalidInputError("is_error", f"is {show(is_error)}; use True or False")
        self._add(ToolMessage(id, name, content, is_error, read_text(item, "author", "")))

    def _add_assistant(self, item: Fields) -> None:
        content = item.get("content")
        blocks = _Blocks()
        has_blocks = any(_is_block(part, *_BLOCKS) for part in _parts(content))
        text = blocks.decode(read_list(content, "content")) if has_blocks else decode_content(content)
        if not text:
            text = read_text(item, "refusal", "") or _transcript(item) or text
        elif any(_is_block(part, "output_text") for part in _parts(content)):
            # Responses writes all text of models as parts.
            text = plain_text(text)
        phase = item.get("phase")
        if isinstance(text, str) and phase in ("commentary", "final_answer"):
            text = (Text(text, phase),)
        calls = [*blocks.calls, *_read_calls(item)]
        pending = [_to_reasoning(each, 0) for each in self._reasoning]
        reasoning = (*pending, *blocks.reasoning, *_own_reasoning(item))
        message = AssistantMessage(text, tuple(calls), reasoning, read_text(item, "author", ""))
        self._add(message, is_open=True)

    def _add_call(self, item: Fields) -> None:
        arguments = _read_arguments(item.get("arguments"))
        call = ToolCall(read_text(item, "call_id"), read_text(item, "name"), arguments)
        last = self.messages[-1] if self._is_open else None
        if not isinstance(last, AssistantMessage):
            reasoning = tuple(_to_reasoning(each, 0) for each in self._reasoning)
            self._add(AssistantMessage(tool_calls=(call,), reasoning=reasoning), is_open=True)
            return
        more = [_to_reasoning(each, len(last.tool_calls)) for each in self._reasoning]
        self.messages.pop()
        joined = replace(last, tool_calls=(*last.tool_calls, call), reasoning=(*last.reasoning, *more))
        self._add(joined, is_open=True)

    def _add_reasoning(self, item: Fields) -> None:
        last = self.messages[-1] if self._is_open else None
        # Between two calls it belongs to the same response, otherwise it begins the next one.
        self._is_open = isinstance(last, AssistantMessage) and bool(last.tool_calls)
        _to_reasoning(item, 0)
        self._reasoning.append(item)

    _roles: dict[str, Callable[["_ItemDecoder", Fields], None]] = {
        "user": _add_user,
        "assistant": _add_assistant,
        "system": _add_system,
        "developer": _add_system,
        "tool": _add_tool,
    }
    _items: dict[str, Callable[["_ItemDecoder", Fields], None]] = {
        "function_call": _add_call,
        "function_call_output": _add_output,
        "reasoning": _add_reasoning,
    }


class _Blocks:
    """The blocks of a response of Anthropic: text, thinking and calls in their order."""

    def __init__(self) -> None:
        self.calls: list[ToolCall] = []
        self.reasoning: list[Reasoning] = []

    def decode(self, blocks: Sequence[Fields]) -> Content:
        """Decode the blocks; return the text and media."""
        text = ""
        parts = list[Part]()
        for position, block in enumerate(blocks):
            key = f"content[{position}]"
            try:
                match block.get("type"):
                    case "tool_use":
                        arguments = _encode_arguments(read_fields(block, "input"), "input")
                        self.calls.append(ToolCall(read_text(block, "id"), read_text(block, "name"), arguments))
                    case "thinking":
                        signature = {"signature": opaque} if (opaque := read_text(block, "signature", "")) else None
                        self._add_reasoning(read_text(block, "thinking", ""), signature, text)
                    case "redacted_thinking":
                        self._add_reasoning("", {"data": read_text(block, "data")}, text)
                    case "text":
                        # Pieces of one answer, as a stream sends them.
                        text += read_text(block, "text")
                    case kind if kind in PARTS:
                        parts.append(decode_part(block, ""))
                    case kind:
                        known = quote_names([*PARTS, *_BLOCKS])
                        raise InvalidInputError("type", f"is {show(kind)}; use one of {known}")
            except InvalidInputError as error:
                raise error.inside(key) from None
        return (Text(text), *parts) if parts and text else tuple(parts) or text

    def _add_reasoning(self, text: str, signature: dict[str, Any] | None, written: str) -> None:
        if signature is not None and (written or self.calls):
            # Its place in the response; it must be sent back at the same place.
            signature["after"] = [len(written), len(self.calls)]
        self.reasoning.append(Reasoning(text, "anthropic", signature))


_BLOCKS = ("tool_use", "thinking", "redacted_thinking")


def _parts(content: object) -> Sequence[object]:
    is_list = isinstance(content, Sequence) and not isinstance(content, str)
    return cast("Sequence[object]", content) if is_list else ()


def _is_block(part: object, *kinds: str) -> bool:
    return isinstance(part, Mapping) and cast("Fields", part).get("type") in kinds


def _require_content(item: Fields) -> None:
    if item.get("content") is None:
        others = [key for key in item if key not in ("role", "type")]
        raise InvalidInputError("content", f"is missing{misspelled('content', others)}")


def _read_calls(item: Fields) -> list[ToolCall]:
    """Read the calls in the format of Chat Completions, or of Baton itself."""
    calls: list[ToolCall] = []
    for position, call in enumerate(read_list(item.get("tool_calls") or (), "tool_calls")):
        try:
            calls.append(_read_call(call))
        except InvalidInputError as error:
            raise error.inside(f"tool_calls[{position}]") from None
    return calls


def _read_call(call: Fields) -> ToolCall:
    if "function" not in call:
        name = read_text(call, "name")
        return ToolCall(read_text(call, "id"), name, _read_arguments(call.get("arguments", "{}")))
    function = read_fields(call, "function")
    try:
        name = read_text(function, "name")
        arguments = _read_arguments(function.get("arguments"))
    except InvalidInputError as error:
        raise error.inside("function") from None
    return ToolCall(read_text(call, "id"), name, arguments)


def _read_arguments(arguments: object) -> str:
    if isinstance(arguments, str):
        return arguments
    if isinstance(arguments, Mapping):
        return _encode_arguments(cast("Fields", arguments), "arguments")
    problem = "is missing" if arguments is None else f"is {show(arguments)}; give JSON text"
    raise InvalidInputError("arguments", problem)


def _encode_arguments(arguments: Fields, key: str) -> str:
    try:
        return msgspec.json.encode(dict(arguments)).decode()
    except (TypeError, UnicodeError, RecursionError) as error:
        raise InvalidInputError(key, f"is not JSON data ({error})") from None


def _own_reasoning(item: Fields) -> tuple[Reasoning, ...]:
    given = item.get("reasoning")
    if not isinstance(given, list | tuple):
        # Text that some servers add to their responses; none accepts it back.
        return ()
    try:
        return msgspec.convert(given, tuple[Reasoning, ...])
    except msgspec.ValidationError as error:
        raise InvalidInputError("reasoning", f"does not fit: {error}") from None


def _transcript(item: Fields) -> str:
    """Return the words of spoken output, which Chat Completions stores at the provider."""
    audio = item.get("audio")
    if audio is None or item.get("tool_calls"):
        return ""
    fields = read_fields(item, "audio")
    if fields.get("transcript") is None:
        raise InvalidInputError("audio", "refers to speech that a provider stores; give its words as content")
    return read_text(fields, "transcript")


def _to_reasoning(item: Fields, calls_before: int) -> Reasoning:
    """Convert a reasoning item; only one with encrypted content can be sent back."""
    summary = [read_text(part, "text") for part in read_list(item.get("summary") or (), "summary")]
    content = [read_text(part, "text") for part in read_list(item.get("content") or (), "content")]
    text = "\n\n".join([each for each in (*summary, *content) if each])
    encrypted = read_text(item, "encrypted_content", "")
    if not encrypted:
        return Reasoning(text, "openai")
    parts = [{"type": "summary_text", "text": each} for each in summary]
    id = read_text(item, "id", "")
    opaque = {"id": id, "summary": parts, "encrypted_content": encrypted, "calls_before": calls_before}
    return Reasoning(text, "openai", opaque)
