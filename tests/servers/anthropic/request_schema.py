"""The request body of the Messages API, and the checks that go beyond its fields. Other fields are unknown."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias

from msgspec import UNSET, UnsetType
from tests.servers.anthropic.responses import wrong
from tests.servers.validation import StrictStruct


class CacheControl(StrictStruct):
    type: Literal["ephemeral"]
    ttl: Literal["5m", "1h"] | None = None


class TextBlock(StrictStruct, tag="text", tag_field="type"):
    text: str
    cache_control: CacheControl | None = None
    citations: list[Any] | None = None


class Base64Source(StrictStruct, tag="base64", tag_field="type"):
    media_type: str
    data: str


class UrlSource(StrictStruct, tag="url", tag_field="type"):
    url: str


class TextSource(StrictStruct, tag="text", tag_field="type"):
    media_type: Literal["text/plain"]
    data: str


class ImageBlock(StrictStruct, tag="image", tag_field="type"):
    source: Base64Source | UrlSource
    cache_control: CacheControl | None = None


class DocumentBlock(StrictStruct, tag="document", tag_field="type"):
    source: Base64Source | UrlSource | TextSource
    title: str | None = None
    context: str | None = None
    cache_control: CacheControl | None = None


class ThinkingBlock(StrictStruct, tag="thinking", tag_field="type"):
    thinking: str
    signature: str


class RedactedThinkingBlock(StrictStruct, tag="redacted_thinking", tag_field="type"):
    data: str


class ToolUseBlock(StrictStruct, tag="tool_use", tag_field="type"):
    id: str
    name: str
    input: dict[str, Any]
    cache_control: CacheControl | None = None


class ToolResultBlock(StrictStruct, tag="tool_result", tag_field="type"):
    tool_use_id: str
    content: str | list[TextBlock | ImageBlock | DocumentBlock] | UnsetType = UNSET
    is_error: bool = False
    cache_control: CacheControl | None = None


Block: TypeAlias = (
    TextBlock | ImageBlock | DocumentBlock | ThinkingBlock | RedactedThinkingBlock | ToolUseBlock | ToolResultBlock
)


class Turn(StrictStruct):
    role: Literal["user", "assistant"]
    content: str | list[Block]


class Tool(StrictStruct):
    name: str
    input_schema: dict[str, Any]
    description: str | None = None
    strict: bool | None = None
    type: Literal["custom"] | None = None
    cache_control: CacheControl | None = None


class AutoChoice(StrictStruct, tag="auto", tag_field="type"):
    disable_parallel_tool_use: bool | None = None


class AnyChoice(StrictStruct, tag="any", tag_field="type"):
    disable_parallel_tool_use: bool | None = None


class ToolChoice(StrictStruct, tag="tool", tag_field="type"):
    name: str
    disable_parallel_tool_use: bool | None = None


class NoChoice(StrictStruct, tag="none", tag_field="type"):
    pass


class EnabledThinking(StrictStruct, tag="enabled", tag_field="type"):
    budget_tokens: int
    display: Literal["summarized", "omitted"] | None = None


class AdaptiveThinking(StrictStruct, tag="adaptive", tag_field="type"):
    display: Literal["summarized", "omitted"] | None = None


class DisabledThinking(StrictStruct, tag="disabled", tag_field="type"):
    pass


class JsonFormat(StrictStruct):
    type: Literal["json_schema"]
    schema: dict[str, Any]


class OutputConfig(StrictStruct):
    effort: Literal["low", "medium", "high", "xhigh", "max"] | None = None
    format: JsonFormat | None = None


class Metadata(StrictStruct):
    user_id: str | None = None


class MessagesRequest(StrictStruct):
    model: str
    max_tokens: int
    messages: list[Turn]
    system: str | list[TextBlock] | None = None
    stream: bool = False
    stop_sequences: list[str] | None = None
    tools: list[Tool] | None = None
    tool_choice: AutoChoice | AnyChoice | ToolChoice | NoChoice | None = None
    thinking: EnabledThinking | AdaptiveThinking | DisabledThinking | None = None
    output_config: OutputConfig | None = None
    metadata: Metadata | None = None
    service_tier: Literal["auto", "standard_only"] | None = None
    cache_control: CacheControl | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None


_NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}")
_ID = re.compile(r"[a-zA-Z0-9_-]+")
_IMAGE_TYPES = ("image/jpeg", "image/png", "image/gif", "image/webp")
_MIN_BUDGET = 1024
OLD_VERSION = "2023-06-01"
_UNSUPPORTED_KEYWORDS = (
    "minimum",
    "maximum",
    "minLength",
    "maxLength",
    "multipleOf",
    "exclusiveMinimum",
    "exclusiveMaximum",
)


def check_options(wire: MessagesRequest, version: str) -> None:
    """Check the ranges of numbers, and options that exclude each other."""
    if wire.max_tokens < 1:
        raise wrong("max_tokens: Input should be greater than or equal to 1")
    for name in ("temperature", "top_p", "top_k"):
        if version != OLD_VERSION and getattr(wire, name) is not None:
            raise wrong(f"{name}: Extra inputs are not permitted")
    if any(not each.strip() for each in wire.stop_sequences or ()):
        raise wrong("stop_sequences: each stop sequence must contain non-whitespace")
    thinking = wire.thinking
    if isinstance(thinking, EnabledThinking):
        if thinking.budget_tokens < _MIN_BUDGET:
            raise wrong("thinking.enabled.budget_tokens: Input should be greater than or equal to 1024")
        if thinking.budget_tokens >= wire.max_tokens:
            raise wrong("`max_tokens` must be greater than `thinking.budget_tokens`.")
    is_thinking = thinking is not None and not isinstance(thinking, DisabledThinking)
    if is_thinking and isinstance(wire.tool_choice, AnyChoice | ToolChoice):
        raise wrong("Thinking may not be enabled when tool_choice forces tool use.")
    system = wire.system
    if isinstance(system, list) and any(not block.text.strip() for block in system):
        raise wrong("system: text content blocks must contain non-whitespace text")


def check_offer(wire: MessagesRequest) -> None:
    """Check the tools, the tool choice and the output format."""
    names = [tool.name for tool in wire.tools or ()]
    for index, tool in enumerate(wire.tools or ()):
        if _NAME.fullmatch(tool.name) is None:
            raise wrong(f"tools.{index}.custom.name: String should match pattern '^[a-zA-Z0-9_-]{{1,128}}$'")
        if tool.input_schema.get("type") != "object":
            raise wrong(f"tools.{index}.custom.input_schema.type: Field required")
        for keyword in ("oneOf", "allOf", "anyOf"):
            if keyword in tool.input_schema:
                message = "input_schema does not support oneOf, allOf, or anyOf at the top level"
                raise wrong(f"tools.{index}.custom.input_schema: {message}")
        if tool.strict:
            _check_strict(tool.input_schema, f"tools.{index}.custom")
    if len(set(names)) != len(names):
        raise wrong("tools: Tool names must be unique.")
    if wire.tool_choice is not None and not names:
        raise wrong("tool_choice may only be specified while providing tools.")
    if isinstance(wire.tool_choice, ToolChoice) and wire.tool_choice.name not in names:
        raise wrong(f"Tool '{wire.tool_choice.name}' not found in provided tools")
    if wire.output_config is not None and wire.output_config.format is not None:
        _check_strict(wire.output_config.format.schema, "output_config.format.schema")


def _check_strict(schema: Any, place: str) -> None:
    """Check a strict schema: objects without additional properties, and no bounds."""
    if isinstance(schema, list):
        for each in schema:  # pyright: ignore[reportUnknownVariableType]
            _check_strict(each, place)
    if not isinstance(schema, Mapping):
        return
    keywords: Mapping[str, Any] = schema  # pyright: ignore[reportUnknownVariableType]
    if keywords.get("type") == "object" and keywords.get("additionalProperties") is not False:
        raise wrong(f"{place}: For 'object' type, 'additionalProperties' must be explicitly set to false")
    for keyword in _UNSUPPORTED_KEYWORDS:
        if keyword in keywords and "type" in keywords:
            raise wrong(f"{place}: For '{keywords['type']}' type, property '{keyword}' is not supported")
    for key in ("properties", "$defs"):
        for each in keywords.get(key, {}).values():
            _check_strict(each, place)
    for key in ("items", "anyOf", "allOf"):
        _check_strict(keywords.get(key), place)


def check_turns(wire: MessagesRequest, signed: Mapping[str, str]) -> None:
    """Check the order of turns, pairs of calls and results, empty content, and the signatures of reasoning."""
    if not wire.messages:
        raise wrong("messages: at least one message is required")
    if wire.messages[0].role != "user":
        raise wrong('messages: first message must use the "user" role')
    if wire.messages[-1].role == "assistant":
        message = (
            "This model does not support assistant message prefill. The conversation must end with a user message."
        )
        raise wrong(message)
    waiting: Sequence[str] = ()
    seen: set[str] = set()
    for index, turn in enumerate(wire.messages):
        if index and turn.role == wire.messages[index - 1].role:
            # The API would join the two turns, but then a client could lose the boundary between them.
            raise wrong(f'messages: roles must alternate between "user" and "assistant", but found two at {index}')
        blocks = [TextBlock(text=turn.content)] if isinstance(turn.content, str) else turn.content
        if not blocks:
            raise wrong(f"messages.{index}: all messages must have non-empty content")
        for position, block in enumerate(blocks):
            _check_block(block, turn, f"messages.{index}.content.{position}", signed)
        waiting = _check_pairs(blocks, waiting, f"messages.{index}", seen)
    if waiting:
        raise _unanswered(f"messages.{len(wire.messages) - 1}", waiting)
    if not wire.tools and seen:
        raise wrong("Requests which include `tool_use` or `tool_result` blocks must define tools.")


def _check_pairs(blocks: Sequence[Block], waiting: Sequence[str], place: str, seen: set[str]) -> list[str]:
    results = [block.tool_use_id for block in blocks if isinstance(block, ToolResultBlock)]
    for position, id in enumerate(results):
        if id not in waiting:
            rule = "Each `tool_result` block must have a corresponding `tool_use` block in the previous message."
            message = f"unexpected `tool_use_id` found in `tool_result` blocks: {id}. {rule}"
            raise wrong(f"{place}.content.{position}: {message}")
    if len(set(results)) != len(results):
        raise wrong(f"{place}: each tool_use must have a single result.")
    missing = [id for id in waiting if id not in results]
    if missing:
        raise _unanswered(place, missing)
    first = [isinstance(block, ToolResultBlock) for block in blocks[: len(results)]]
    if not all(first):
        raise wrong(f"{place}: `tool_result` blocks must come first in the content of a user message.")
    calls = [block.id for block in blocks if isinstance(block, ToolUseBlock)]
    if len(set(calls)) != len(calls) or seen & set(calls):
        raise wrong(f"{place}: `tool_use` ids must be unique")
    seen |= set(calls)
    return calls


def _unanswered(place: str, ids: Sequence[str]) -> Exception:
    found = f"`tool_use` ids were found without `tool_result` blocks immediately after: {', '.join(ids)}."
    rule = "Each `tool_use` block must have a corresponding `tool_result` block in the next message."
    return wrong(f"{place}: {found} {rule}")


def _check_block(block: Block, turn: Turn, place: str, signed: Mapping[str, str]) -> None:  # noqa: C901
    match block:
        case TextBlock():
            if not block.text.strip():
                raise wrong(f"{place}: text content blocks must contain non-whitespace text")
            if turn.role == "user" and block.citations:
                raise wrong(f"{place}.text.citations: Extra inputs are not permitted")
        case ToolUseBlock():
            _check_role(turn, "assistant", "tool_use", place)
            if _ID.fullmatch(block.id) is None:
                raise wrong(f"{place}.tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'")
            if _NAME.fullmatch(block.name) is None:
                raise wrong(f"{place}.tool_use.name: String should match pattern '^[a-zA-Z0-9_-]{{1,128}}$'")
        case ToolResultBlock():
            _check_role(turn, "user", "tool_result", place)
            if isinstance(block.content, list):
                if block.is_error and any(not isinstance(each, TextBlock) for each in block.content):
                    raise wrong(f'{place}: all content must be type "text" if "is_error" is true')
                for each in block.content:
                    _check_block(each, turn, f"{place}.tool_result.content", signed)
        case ThinkingBlock():
            _check_role(turn, "assistant", "thinking", place)
            if signed.get(block.signature) != block.thinking:
                raise wrong(f"{place}: Invalid `signature` in `thinking` block")
        case RedactedThinkingBlock():
            _check_role(turn, "assistant", "redacted_thinking", place)
            if block.data not in signed:
                raise wrong(f"{place}: Invalid `data` in `redacted_thinking` block")
        case ImageBlock() | DocumentBlock():
            _check_role(turn, "user", "image" if isinstance(block, ImageBlock) else "document", place)
            source = block.source
            allowed = _IMAGE_TYPES if isinstance(block, ImageBlock) else ("application/pdf",)
            if isinstance(source, Base64Source) and source.media_type not in allowed:
                raise wrong(f"{place}.source.base64.media_type: Input should be {' or '.join(allowed)}")


def _check_role(turn: Turn, role: str, kind: str, place: str) -> None:
    if turn.role != role:
        raise wrong(f"{place}: `{kind}` blocks can only be in `{role}` messages")
