"""The body of a request to the Messages API, field by field; what is not here is not known."""

from typing import Any, Literal, TypeAlias

from msgspec import UNSET, UnsetType

from ..reading import StrictStruct


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
