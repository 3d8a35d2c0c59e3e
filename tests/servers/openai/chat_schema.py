"""The request body of Chat Completions (other fields are unknown), and images and files as URLs or data URLs."""

import re
from base64 import b64decode
from binascii import Error
from typing import Any, Literal, TypeAlias

from tests.servers.openai.errors import wrong
from tests.servers.validation import StrictStruct

from batonkit.messages import File, Image

ReasoningField: TypeAlias = Literal["", "reasoning", "reasoning_content"]
"""The field of a message with the reasoning; "" for none, as with OpenAI."""
Effort: TypeAlias = Literal["none", "minimal", "low", "medium", "high", "xhigh"]


class TextPart(StrictStruct, tag="text", tag_field="type"):
    text: str


class ImageUrl(StrictStruct):
    url: str
    detail: Literal["auto", "low", "high", "original"] | None = None


class ImagePart(StrictStruct, tag="image_url", tag_field="type"):
    image_url: ImageUrl


class AudioData(StrictStruct):
    data: str
    format: Literal["wav", "mp3"]


class AudioPart(StrictStruct, tag="input_audio", tag_field="type"):
    input_audio: AudioData


class Document(StrictStruct):
    file_data: str | None = None
    file_id: str | None = None
    filename: str | None = None


class FilePart(StrictStruct, tag="file", tag_field="type"):
    file: Document


class RefusalPart(StrictStruct, tag="refusal", tag_field="type"):
    refusal: str


UserPart: TypeAlias = TextPart | ImagePart | AudioPart | FilePart


class System(StrictStruct, tag="system", tag_field="role"):
    content: str | list[TextPart]
    name: str | None = None


class Developer(StrictStruct, tag="developer", tag_field="role"):
    content: str | list[TextPart]
    name: str | None = None


class User(StrictStruct, tag="user", tag_field="role"):
    content: str | list[UserPart]
    name: str | None = None


class CalledFunction(StrictStruct):
    name: str
    arguments: str


class CallPart(StrictStruct, tag="function", tag_field="type"):
    id: str
    function: CalledFunction


class Assistant(StrictStruct, tag="assistant", tag_field="role"):
    content: str | list[TextPart | RefusalPart] | None = None
    tool_calls: list[CallPart] | None = None
    refusal: str | None = None
    name: str | None = None
    annotations: list[Any] | None = None
    audio: dict[str, Any] | None = None
    reasoning: str | None = None
    reasoning_content: str | None = None


class Tool(StrictStruct, tag="tool", tag_field="role"):
    content: str | list[TextPart]
    tool_call_id: str


ChatMessage: TypeAlias = System | Developer | User | Assistant | Tool


class Function(StrictStruct):
    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class FunctionTool(StrictStruct, tag="function", tag_field="type"):
    function: Function


class NamedFunction(StrictStruct):
    name: str


class NamedTool(StrictStruct, tag="function", tag_field="type"):
    function: NamedFunction


class TextFormat(StrictStruct, tag="text", tag_field="type"):
    pass


class JsonFormat(StrictStruct, tag="json_object", tag_field="type"):
    pass


class Schema(StrictStruct):
    name: str
    schema: dict[str, Any] | None = None
    description: str | None = None
    strict: bool | None = None


class SchemaFormat(StrictStruct, tag="json_schema", tag_field="type"):
    json_schema: Schema


class StreamOptions(StrictStruct):
    include_usage: bool | None = None
    include_obfuscation: bool | None = None


class ChatRequest(StrictStruct):
    """All fields of a request. The last group is known, but not supported by this server."""

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
    logprobs: bool | None = None
    top_logprobs: int | None = None

    audio: Any = None
    function_call: Any = None
    functions: Any = None
    prediction: Any = None
    web_search_options: Any = None


UNSUPPORTED = ("audio", "function_call", "functions", "prediction", "web_search_options")

_DATA_URL = re.compile(r"data:(?P<type>[\w.+-]+/[\w.+-]+);base64,(?P<data>.*)", re.DOTALL)
_IMAGE_TYPES = ("image/png", "image/jpeg", "image/gif", "image/webp")


def image(url: str, param: str, detail: str | None = None) -> Image:
    """Parse the URL of an image part."""
    if url.startswith(("https://", "http://")):
        return Image(url=url, detail=detail)
    media_type, data = inline(url, param)
    if media_type not in _IMAGE_TYPES:
        message = (
            f"You uploaded an unsupported image. Please make sure your image has one of: {', '.join(_IMAGE_TYPES)}."
        )
        raise wrong(message, param=param, code="invalid_image_format")
    return Image(data=data, media_type=media_type, detail=detail)


def file(data: str | None, param: str, *, name: str | None, url: str | None = None) -> File:
    """Parse the data or the URL of a file part."""
    if url is not None:
        return File(url=url, name=name)
    if data is None:
        raise wrong(f"Missing required parameter: '{param}'.", param=param, code="missing_required_parameter")
    media_type, content = inline(data, param)
    return File(data=content, media_type=media_type, name=name)


def inline(url: str, param: str) -> tuple[str, bytes]:
    """Return the type and the bytes of a data URL."""
    found = _DATA_URL.fullmatch(url)
    if found is None:
        message = (
            f"Invalid '{param}'. Expected a base64-encoded data URL or a valid URL, but got a value without a scheme."
        )
        raise wrong(message, param=param, code="invalid_value")
    return found["type"], base64(found["data"], param)


def base64(text: str, param: str) -> bytes:
    """Decode base64."""
    try:
        return b64decode(text, validate=True)
    except Error:
        raise wrong(
            f"Invalid '{param}'. Expected a base64-encoded value.", param=param, code="invalid_base64"
        ) from None
