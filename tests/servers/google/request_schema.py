"""The request body of the Gemini API, and the checks that go beyond its fields. Other fields are unknown."""

import re
from collections.abc import Collection, Sequence
from typing import Any, Literal, cast

import msgspec
from msgspec import Struct
from tests.servers.google.responses import wrong

_AFTER_UNDERSCORE = re.compile(r"_([a-z])")
# The contents of these fields are the caller's, so their keys are not renamed.
_CALLER_FIELDS = frozenset(("args", "response", "parametersJsonSchema", "responseJsonSchema", "labels"))


class CamelStruct(Struct, forbid_unknown_fields=True, kw_only=True, rename="camel"):
    """Base of the objects in a body; unknown fields are errors."""


class Blob(CamelStruct):
    mime_type: str
    data: str
    display_name: str | None = None


class FileData(CamelStruct):
    file_uri: str
    mime_type: str | None = None
    display_name: str | None = None


class FunctionCall(CamelStruct):
    name: str
    id: str | None = None
    args: dict[str, Any] | None = None


class FunctionResponse(CamelStruct):
    name: str
    response: dict[str, Any]
    id: str | None = None


class WirePart(CamelStruct):
    text: str | None = None
    inline_data: Blob | None = None
    file_data: FileData | None = None
    function_call: FunctionCall | None = None
    function_response: FunctionResponse | None = None
    thought: bool | None = None
    thought_signature: str | None = None


class WireContent(CamelStruct):
    parts: list[WirePart] = []
    role: str | None = None


class FunctionDeclaration(CamelStruct):
    name: str
    description: str | None = None
    parameters_json_schema: dict[str, Any] | None = None


class WireTool(CamelStruct):
    function_declarations: list[FunctionDeclaration] = []


class FunctionCallingConfig(CamelStruct):
    mode: Literal["AUTO", "ANY", "NONE", "VALIDATED"] = "AUTO"
    allowed_function_names: list[str] | None = None


class ToolConfig(CamelStruct):
    function_calling_config: FunctionCallingConfig | None = None


class ThinkingConfig(CamelStruct):
    include_thoughts: bool | None = None
    thinking_budget: int | None = None
    thinking_level: Literal["MINIMAL", "LOW", "MEDIUM", "HIGH"] | None = None


class GenerationConfig(CamelStruct):
    temperature: float | None = None
    top_p: float | None = None
    top_k: float | None = None
    max_output_tokens: int | None = None
    stop_sequences: list[str] | None = None
    seed: int | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    response_logprobs: bool | None = None
    logprobs: int | None = None
    candidate_count: int | None = None
    response_mime_type: str | None = None
    response_json_schema: dict[str, Any] | None = None
    thinking_config: ThinkingConfig | None = None


class SafetySetting(CamelStruct):
    category: str
    threshold: str


class GenerateRequest(CamelStruct):
    contents: list[WireContent] = []
    system_instruction: WireContent | None = None
    tools: list[WireTool] | None = None
    tool_config: ToolConfig | None = None
    generation_config: GenerationConfig | None = None
    safety_settings: list[SafetySetting] | None = None
    labels: dict[str, str] | None = None
    service_tier: str | None = None


def in_camel_case(raw: bytes) -> bytes:
    """Rename all fields of a body to camel case: the API accepts both `mime_type` and `mimeType`."""
    return msgspec.json.encode(_renamed(msgspec.json.decode(raw)))


def _renamed(value: Any) -> Any:
    if isinstance(value, list):
        return [_renamed(each) for each in cast("list[Any]", value)]
    if not isinstance(value, dict):
        return value
    renamed: dict[str, Any] = {}
    for key, each in cast("dict[str, Any]", value).items():
        name = _AFTER_UNDERSCORE.sub(lambda found: found[1].upper(), key)
        renamed[name] = each if name in _CALLER_FIELDS else _renamed(each)
    return renamed


_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_.:-]{0,127}")
_VERSION = re.compile(r"gemini-(\d+)")
_UNSIGNED = "c2tpcF90aG91Z2h0X3NpZ25hdHVyZV92YWxpZGF0b3I="
"""The encoded signature that Google's documentation defines for calls of other models."""
_SCHEMA_KEYWORDS = frozenset(
    (
        *("$ref", "$defs", "$id", "$anchor", "type", "format", "title", "description", "enum", "items", "prefixItems"),
        *("minItems", "maxItems", "minimum", "maximum", "anyOf", "oneOf", "properties", "additionalProperties"),
        *("required", "propertyOrdering"),
    )
)
_AT = "* GenerateContentRequest."


def generation_of(model: str) -> int:
    """Return the generation of a Gemini model; an unknown name counts as the newest."""
    found = _VERSION.search(model)
    return int(found[1]) if found is not None else 99


def check_options(wire: GenerateRequest, model: str) -> None:
    """Check options that exclude each other or that the model does not support."""
    config = wire.generation_config or GenerationConfig()
    if config.temperature is not None and not 0 <= config.temperature <= 2:
        raise wrong(f"{_AT}generation_config.temperature: temperature must be in the range [0.0, 2.0].")
    if config.max_output_tokens is not None and config.max_output_tokens < 1:
        raise wrong(f"{_AT}generation_config.max_output_tokens: max_output_tokens must be positive.")
    if config.stop_sequences and len(config.stop_sequences) > 5:
        raise wrong(f"{_AT}generation_config.stop_sequences: at most 5 stop sequences are allowed.")
    is_json = config.response_mime_type == "application/json"
    if config.response_json_schema is not None:
        if not is_json:
            raise wrong("response_json_schema requires response_mime_type to be 'application/json'")
        _check_schema(config.response_json_schema, "generation_config.response_json_schema")
    if is_json and wire.tools and generation_of(model) < 3:
        raise wrong("Function calling with a response mime type: 'application/json' is unsupported")
    thinking = config.thinking_config
    if thinking is not None and thinking.thinking_level is not None:
        if thinking.thinking_budget is not None:
            raise wrong("You can only set only one of thinking budget and thinking level.")
        if generation_of(model) < 3:
            raise wrong("Thinking level is not supported for this model.")


def check_tools(wire: GenerateRequest) -> None:
    """Check the functions and the tool choice."""
    functions = [each for tool in wire.tools or () for each in tool.function_declarations]
    for index, function in enumerate(functions):
        place = f"{_AT}tools[0].function_declarations[{index}]"
        if _NAME.fullmatch(function.name) is None:
            rule = "Must start with a letter or an underscore. Must be alphanumeric, underscores, dots, colons, dashes"
            raise wrong(f"{place}.name: Invalid function name. {rule}, with a maximum length of 128.")
        schema = function.parameters_json_schema
        if schema is not None:
            if schema.get("type") != "object":
                raise wrong(f"{place}.parameters_json_schema: schema should be of type object")
            _check_schema(schema, f"{place}.parameters_json_schema")
    names = [function.name for function in functions]
    for name in names:
        if names.count(name) > 1:
            raise wrong(f"Duplicate function declaration found: {name}")
    choice = wire.tool_config.function_calling_config if wire.tool_config is not None else None
    if choice is None:
        return
    if choice.mode in ("ANY", "VALIDATED") and not names:
        raise wrong("Function calling config is set without function_declarations.")
    for name in choice.allowed_function_names or ():
        if choice.mode not in ("ANY", "VALIDATED"):
            raise wrong("Allowed function names should only be set when the mode is ANY or VALIDATED.")
        if name not in names:
            raise wrong(f"allowed_function_names: `{name}` is not among the function declarations.")


def _check_schema(schema: Any, place: str) -> None:
    if not isinstance(schema, dict):
        return
    keywords = cast("dict[str, Any]", schema)
    for keyword in keywords:
        if keyword not in _SCHEMA_KEYWORDS:
            raise wrong(f"Invalid JSON payload received. Unknown name \"{keyword}\" at '{place}': Cannot find field.")
    if "$ref" in keywords and any(not keyword.startswith("$") for keyword in keywords):
        raise wrong(f"{place}: no other fields may be set beside $ref")
    for key in ("properties", "$defs"):
        for name, each in keywords.get(key, {}).items():
            _check_schema(each, f"{place}.{name}")
    for key in ("anyOf", "oneOf", "prefixItems"):
        for each in keywords.get(key, ()):
            _check_schema(each, f"{place}.{key}")
    for key in ("items", "additionalProperties"):
        _check_schema(keywords.get(key), f"{place}.{key}")


def check_contents(wire: GenerateRequest, model: str, signatures: Collection[str]) -> None:
    """Check the order of turns, pairs of calls and responses, empty content, and signatures."""
    if not wire.contents:
        raise wrong(f"{_AT}contents: contents is not specified\n")
    waiting: list[FunctionCall] = []
    previous = ""
    for index, content in enumerate(wire.contents):
        role = content.role or "user"
        if role not in ("user", "model"):
            raise wrong("Please use a valid role: user, model.")
        if role == previous:
            # The API accepts this, but then a client could lose the boundary between turns.
            raise wrong(f"Please ensure that multiturn requests alternate between user and model (at {index}).")
        if not content.parts:
            raise wrong(f"{_AT}contents[{index}].parts: contents.parts must not be empty.\n")
        for position, part in enumerate(content.parts):
            _check_part(part, role, f"contents[{index}].parts[{position}]", signatures)
        _check_responses(content, waiting)
        waiting = [part.function_call for part in content.parts if part.function_call is not None]
        if waiting and not previous:
            raise wrong(
                "Please ensure that function call turn comes immediately after a user turn or after a function "
                "response turn."
            )
        if waiting and generation_of(model) >= 3:
            _check_signed(content, index)
        previous = role
    if previous == "model":
        raise wrong("Please ensure that multiturn requests end with a user role or a function response.")


def _check_part(part: WirePart, role: str, place: str, signatures: Collection[str]) -> None:
    data = (part.text, part.inline_data, part.file_data, part.function_call, part.function_response)
    if sum(each is not None for each in data) != 1:
        raise wrong(f"{_AT}{place}.data: required oneof field 'data' must have one initialized field\n")
    if part.function_call is not None and role != "model":
        raise wrong("Please ensure that function call parts are in turns of the role model.")
    for named in (part.function_call, part.function_response):
        if named is not None and _NAME.fullmatch(named.name) is None:
            raise wrong(f"{_AT}{place}: Invalid function name: {named.name}")
    if part.function_response is not None and role != "user":
        raise wrong("Please ensure that function response parts are in turns of the role user.")
    if part.text == "" and part.thought_signature is None:
        raise wrong("Unable to submit request because it must have a text parameter.")
    signature = part.thought_signature
    if signature is not None and signature != _UNSIGNED and signature not in signatures:
        raise wrong("Thought signature is not valid.")


def _check_responses(content: WireContent, waiting: Sequence[FunctionCall]) -> None:
    responses = [part.function_response for part in content.parts if part.function_response is not None]
    if responses and not waiting:
        raise wrong("Please ensure that function response turn comes immediately after a function call turn.")
    if len(responses) != len(waiting):
        raise wrong(
            "Please ensure that the number of function response parts is equal to the number of function call parts "
            "of the function call turn."
        )
    for call, response in zip(waiting, responses, strict=True):
        if (call.name, call.id) != (response.name, response.id):
            raise wrong(f"Function response `{response.name}` does not match the function call `{call.name}`.")


def _check_signed(content: WireContent, index: int) -> None:
    first = next(part for part in content.parts if part.function_call is not None)
    if first.thought_signature is None and first.function_call is not None:
        name = first.function_call.name
        raise wrong(f"Function call `{name}` in the {index + 1}. content block is missing a `thought_signature`.")
