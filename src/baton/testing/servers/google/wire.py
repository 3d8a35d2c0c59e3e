"""The body of a request to the Gemini API, field by field; what is not here is not known."""

import re
from typing import Any, Literal, cast

import msgspec
from msgspec import Struct

_AFTER_UNDERSCORE = re.compile(r"_([a-z])")
# What stands under these belongs to the caller, and its keys are names.
_FREE = frozenset(("args", "response", "parametersJsonSchema", "responseJsonSchema", "labels"))


class Camel(Struct, forbid_unknown_fields=True, kw_only=True, rename="camel"):
    """The parent of what stands in a body: a field that is not known is an error."""


class Blob(Camel):
    mime_type: str
    data: str
    display_name: str | None = None


class FileData(Camel):
    file_uri: str
    mime_type: str | None = None
    display_name: str | None = None


class FunctionCall(Camel):
    name: str
    id: str | None = None
    args: dict[str, Any] | None = None


class FunctionResponse(Camel):
    name: str
    response: dict[str, Any]
    id: str | None = None


class WirePart(Camel):
    text: str | None = None
    inline_data: Blob | None = None
    file_data: FileData | None = None
    function_call: FunctionCall | None = None
    function_response: FunctionResponse | None = None
    thought: bool | None = None
    thought_signature: str | None = None


class WireContent(Camel):
    parts: list[WirePart] = []
    role: str | None = None


class FunctionDeclaration(Camel):
    name: str
    description: str | None = None
    parameters_json_schema: dict[str, Any] | None = None


class WireTool(Camel):
    function_declarations: list[FunctionDeclaration] = []


class FunctionCallingConfig(Camel):
    mode: Literal["AUTO", "ANY", "NONE", "VALIDATED"] = "AUTO"
    allowed_function_names: list[str] | None = None


class ToolConfig(Camel):
    function_calling_config: FunctionCallingConfig | None = None


class ThinkingConfig(Camel):
    include_thoughts: bool | None = None
    thinking_budget: int | None = None
    thinking_level: Literal["MINIMAL", "LOW", "MEDIUM", "HIGH"] | None = None


class GenerationConfig(Camel):
    temperature: float | None = None
    top_p: float | None = None
    top_k: float | None = None
    max_output_tokens: int | None = None
    stop_sequences: list[str] | None = None
    seed: int | None = None
    candidate_count: int | None = None
    response_mime_type: str | None = None
    response_json_schema: dict[str, Any] | None = None
    thinking_config: ThinkingConfig | None = None


class SafetySetting(Camel):
    category: str
    threshold: str


class GenerateRequest(Camel):
    contents: list[WireContent] = []
    system_instruction: WireContent | None = None
    tools: list[WireTool] | None = None
    tool_config: ToolConfig | None = None
    generation_config: GenerationConfig | None = None
    safety_settings: list[SafetySetting] | None = None
    labels: dict[str, str] | None = None


def in_camel_case(raw: bytes) -> bytes:
    """The same body with all names of fields in one style: the API takes `mime_type` and `mimeType` alike."""
    return msgspec.json.encode(_renamed(msgspec.json.decode(raw)))


def _renamed(value: Any) -> Any:
    if isinstance(value, list):
        return [_renamed(each) for each in cast("list[Any]", value)]
    if not isinstance(value, dict):
        return value
    renamed: dict[str, Any] = {}
    for key, each in cast("dict[str, Any]", value).items():
        name = _AFTER_UNDERSCORE.sub(lambda found: found[1].upper(), key)
        renamed[name] = each if name in _FREE else _renamed(each)
    return renamed
