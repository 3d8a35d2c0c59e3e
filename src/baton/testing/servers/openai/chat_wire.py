"""The body of a request to Chat Completions, field by field; what is not here is not known."""

from typing import Any, Literal, TypeAlias

from ..reading import Strict

ReasoningField: TypeAlias = Literal["", "reasoning", "reasoning_content"]
"""The field of a message in which thoughts are told; "" for none, as with OpenAI itself."""
Effort: TypeAlias = Literal["none", "minimal", "low", "medium", "high", "xhigh"]


class TextPart(Strict, tag="text", tag_field="type"):
    text: str


class ImageUrl(Strict):
    url: str
    detail: Literal["auto", "low", "high", "original"] | None = None


class ImagePart(Strict, tag="image_url", tag_field="type"):
    image_url: ImageUrl


class Sound(Strict):
    data: str
    format: Literal["wav", "mp3"]


class AudioPart(Strict, tag="input_audio", tag_field="type"):
    input_audio: Sound


class Document(Strict):
    file_data: str | None = None
    file_id: str | None = None
    filename: str | None = None


class FilePart(Strict, tag="file", tag_field="type"):
    file: Document


class RefusalPart(Strict, tag="refusal", tag_field="type"):
    refusal: str


UserPart: TypeAlias = TextPart | ImagePart | AudioPart | FilePart


class System(Strict, tag="system", tag_field="role"):
    content: str | list[TextPart]
    name: str | None = None


class Developer(Strict, tag="developer", tag_field="role"):
    content: str | list[TextPart]
    name: str | None = None


class User(Strict, tag="user", tag_field="role"):
    content: str | list[UserPart]
    name: str | None = None


class CalledFunction(Strict):
    name: str
    arguments: str


class CallPart(Strict, tag="function", tag_field="type"):
    id: str
    function: CalledFunction


class Assistant(Strict, tag="assistant", tag_field="role"):
    content: str | list[TextPart | RefusalPart] | None = None
    tool_calls: list[CallPart] | None = None
    refusal: str | None = None
    name: str | None = None
    annotations: list[Any] | None = None
    audio: dict[str, Any] | None = None
    reasoning: str | None = None
    reasoning_content: str | None = None


class Tool(Strict, tag="tool", tag_field="role"):
    content: str | list[TextPart]
    tool_call_id: str


ChatMessage: TypeAlias = System | Developer | User | Assistant | Tool


class Function(Strict):
    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class FunctionTool(Strict, tag="function", tag_field="type"):
    function: Function


class NamedFunction(Strict):
    name: str


class NamedTool(Strict, tag="function", tag_field="type"):
    function: NamedFunction


class TextFormat(Strict, tag="text", tag_field="type"):
    pass


class JsonFormat(Strict, tag="json_object", tag_field="type"):
    pass


class Schema(Strict):
    name: str
    schema: dict[str, Any] | None = None
    description: str | None = None
    strict: bool | None = None


class SchemaFormat(Strict, tag="json_schema", tag_field="type"):
    json_schema: Schema


class StreamOptions(Strict):
    include_usage: bool | None = None
    include_obfuscation: bool | None = None


class ChatRequest(Strict):
    """Everything a request may have. The last group is known, but this server cannot do it."""

    model: str
    messages: list[ChatMessage]
    tools: list[FunctionTool] | None = None
    tool_choice: Literal["none", "auto", "required"] | NamedTool | None = None
    parallel_tool_calls: bool | None = None
    response_format: TextFormat | JsonFormat | SchemaFormat | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    temperature: float | int | None = None
    top_p: float | int | None = None
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    stop: str | list[str] | None = None
    seed: int | None = None
    frequency_penalty: float | int | None = None
    presence_penalty: float | int | None = None
    logit_bias: dict[str, int] | None = None
    reasoning_effort: Effort | None = None
    verbosity: Literal["low", "medium", "high"] | None = None
    metadata: dict[str, str] | None = None
    store: bool | None = None
    user: str | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None
    prompt_cache_retention: Literal["in-memory", "24h"] | None = None
    service_tier: Literal["auto", "default", "flex", "scale", "priority"] | None = None
    modalities: list[Literal["text", "audio"]] | None = None
    n: int | None = None

    audio: Any = None
    function_call: Any = None
    functions: Any = None
    logprobs: bool | None = None
    prediction: Any = None
    top_logprobs: int | None = None
    web_search_options: Any = None


UNSUPPORTED = ("audio", "function_call", "functions", "logprobs", "prediction", "top_logprobs", "web_search_options")
