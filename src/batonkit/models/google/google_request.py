"""Conversion of a request to the contents and the configuration of Google's generateContent."""

import re
from base64 import b64decode
from binascii import Error
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, cast

from ...messages import (
    AssistantMessage,
    Audio,
    Content,
    File,
    Image,
    Message,
    Part,
    Text,
    ToolCall,
    ToolMessage,
    ToolSpec,
    text_of,
)
from ...messages.input_parts import parse_data_url
from .. import encoding
from ..alternating import CONTINUE, AlternatingTurns, convert_history
from ..encoding import Block
from ..model import ModelRequest
from ..settings import ModelSettings, require_supported

_VERSION = re.compile(r"gemini-(\d+)(?:\.(\d+))?")
_MODES = {"auto": "AUTO", "required": "ANY", "none": "NONE"}
_LEVELS = {"none": "MINIMAL", "minimal": "MINIMAL", "low": "LOW", "medium": "MEDIUM"}
_BUDGETS = {"none": 0, "minimal": 512, "low": 2_048, "medium": 8_192, "high": 24_576}
_TIERS = {"auto": "unspecified", "default": "standard"}
_NO_SIGNATURE = b"skip_thought_signature_validator"
"""The documented signature for calls that another model made."""


def as_contents(messages: Sequence[Message], *, needs_signatures: bool) -> tuple[list[str], list[Block]]:
    """Return the leading system texts and the turns of the conversation."""
    turns = convert_history(messages, ("google", needs_signatures), lambda: _Turns(needs_signatures))
    return turns.system, turns.turns()


class _Turns(AlternatingTurns):
    def __init__(self, needs_signatures: bool) -> None:
        super().__init__("model", "parts", lambda text: {"text": text})
        self._needs_signatures = needs_signatures
        self._names: list[str] = []
        """The names of the calls that have no result yet."""

    def add_user(self, content: Content) -> None:
        self._add("user", _parts(content))

    def add_response(self, message: AssistantMessage) -> None:
        parts = _parts(message.content)
        calls = [_call(call) for call in message.tool_calls]
        self._sign(message, parts, calls)
        if (parts or calls) and (not self._turns or (calls and self._turns[-1]["role"] == "model")):
            # A turn with calls must follow a user turn or results.
            self._add("user", [{"text": CONTINUE}])
        self._add("model", [*parts, *calls])
        # A result must have the name of its call.
        self._names = [part["function_call"]["name"] for part in calls]

    def _sign(self, message: AssistantMessage, parts: list[Block], calls: list[Block]) -> None:
        """Send the signatures of a response back with the parts that they belong to."""
        signatures = _signatures(message)
        for position, call in enumerate(message.tool_calls):
            if (position, call.name) in signatures:
                calls[position]["thought_signature"] = signatures[position, call.name]
        if calls and self._needs_signatures and not any("thought_signature" in call for call in calls):
            calls[0]["thought_signature"] = _NO_SIGNATURE
        text_signature = signatures.get((-1, ""))
        if text_signature is not None and parts and "text" in parts[-1]:
            parts[-1]["thought_signature"] = text_signature

    def add_result(self, message: ToolMessage) -> None:
        response = {"error" if message.is_error else "result": text_of(message.content)}
        name = self._names.pop(0)
        part = {"function_response": {"id": message.tool_call_id, "name": name, "response": response}}
        self._add("user", [part])
        media = [part for part in _parts(message.content) if "text" not in part]
        if media:
            self._pending_media += [{"text": f"`{message.name}` showed:"}, *media]
        if not self._names:
            self._add_pending_media()


def _parts(content: Content) -> list[Block]:
    if isinstance(content, str):
        return [{"text": content}] if content else []
    return [part for part in map(_part, content) if part.get("text") != ""]


def _part(part: Part) -> Block:
    if isinstance(part, Text):
        return {"text": part.text}
    if isinstance(part, Image | Audio | File):
        if part.url is None:
            return {"inline_data": {"mime_type": part.media_type, "data": part.data or b""}}
        data = parse_data_url(part.url)
        if data is not None:
            return {"inline_data": {"mime_type": data[0] or part.media_type, "data": b64decode(data[1])}}
        return {"file_data": {"mime_type": part.media_type, "file_uri": part.url}}
    return {"text": encoding.as_json(part.value)}


def function_name(name: str) -> str:
    """Return a tool's name as Google accepts it: it may not begin with a digit or a dash."""
    safe = encoding.safe_name(name)
    return f"_{safe}" if not safe or safe[0] in "-0123456789" else safe


def _call(call: ToolCall) -> Block:
    return {"function_call": {"id": call.id, "name": function_name(call.name), "args": encoding.decode_arguments(call)}}


def _signatures(message: AssistantMessage) -> dict[tuple[int, str], bytes]:
    """Return Google's signatures by position and name of the call; (-1, "") is the text's."""
    found: dict[tuple[int, str], bytes] = {}
    for _, fields in encoding.signed_reasoning(message, "google"):
        with suppress(Error, TypeError, KeyError):
            found[fields.get("call", -1), fields.get("name", "")] = b64decode(fields["signature"], validate=True)
    return found


# The documented keywords; the API may reject any other.
_SUPPORTED = frozenset(
    (
        *("$ref", "$defs", "$id", "$anchor", "type", "format", "title", "description", "enum", "items", "prefixItems"),
        *("minItems", "maxItems", "minimum", "maximum", "anyOf", "properties", "additionalProperties", "required"),
        "propertyOrdering",
    )
)
_IGNORED = frozenset(("$schema", "default", "examples", "discriminator", "const", "oneOf", "allOf", "title"))
_FORMATS = {"string": ("date-time", "date", "time"), "integer": ("int32", "int64"), "number": ("float", "double")}


def to_google_schema(schema: Any) -> Any:
    """Convert a JSON schema for Google; unsupported constraints go into the description."""
    if not isinstance(schema, dict):
        return schema
    fields = cast("dict[str, Any]", schema)
    if "$ref" in fields and len(fields) > 1:
        return _convert_reference(fields)
    converted = {
        key: _convert_value(key, value) for key, value in fields.items() if key in _SUPPORTED and key != "title"
    }
    if "const" in fields:
        converted["enum"] = [fields["const"]]
    if "oneOf" in fields:
        converted["anyOf"] = [*converted.get("anyOf", []), *_convert_value("anyOf", fields["oneOf"])]
    for part in fields.get("allOf", []):
        converted |= to_google_schema(part)
    unsupported = {key: value for key, value in fields.items() if key not in _SUPPORTED and key not in _IGNORED}
    shape = converted.get("format")
    if shape is not None and shape not in _FORMATS.get(str(converted.get("type")), ()):
        unsupported["format"] = converted.pop("format")
    if unsupported:
        constraints = ", ".join(f"{key}: {encoding.as_json(value)}" for key, value in unsupported.items())
        converted["description"] = f"{converted.get('description', '')} ({constraints})".strip()
    return converted


def _convert_value(key: str, value: Any) -> Any:
    if key in ("properties", "$defs"):
        # These keys are names, not keywords.
        return {name: to_google_schema(each) for name, each in value.items()}
    if key in ("anyOf", "prefixItems"):
        return [to_google_schema(each) for each in value]
    if key in ("items", "additionalProperties"):
        return to_google_schema(value)
    return value


def _convert_reference(fields: dict[str, Any]) -> dict[str, Any]:
    """Move a reference one level down, because no other keyword may stand beside it."""
    beside = {key: value for key, value in fields.items() if key not in ("$ref", "$defs")}
    around: dict[str, Any] = {"$defs": _convert_value("$defs", fields["$defs"])} if "$defs" in fields else {}
    more = to_google_schema(beside)
    reference = {"$ref": fields["$ref"]}
    return {**around, "anyOf": [reference], **more} if more else {**around, **reference}


def version_of(model: str) -> tuple[int, int]:
    """Return the version in a name such as `gemini-2.5-flash`."""
    return encoding.parse_version(_VERSION, model)


LACKS = {
    "parallel_tool_calls": "Gemini may always make several calls; leave it out",
    "verbosity": "ask for short or long answers in the instructions",
    "truncation": "shorten the history with Agent(history=…)",
    "extra_query": "Google's SDK adds no query parameters; use extra_headers or extra_body",
}
"""The model settings that Google's API lacks, and for each of them what would work."""
_LACKS_WITHOUT_TOOLS = {name: advice for name, advice in LACKS.items() if name != "parallel_tool_calls"}


def build_parameters(request: ModelRequest, model: str, name: str) -> dict[str, Any]:
    """Return the arguments of the SDK call. Raises ModelRequestError."""
    tools = request.tools
    choice = request.tool_choice
    settings = require_supported(request.settings, name, LACKS if tools else _LACKS_WITHOUT_TOOLS)
    version = version_of(model)
    texts, contents = as_contents(request.messages, needs_signatures=version >= (3, 0))
    system = [request.instructions, *texts]
    schema = to_google_schema(request.output_schema.schema) if request.output_schema is not None else None
    if schema is not None and tools and version < (3, 0):
        # Before Gemini 3, tools and a response schema exclude each other.
        system.append(encoding.schema_prompt(schema))
        schema = None
    config = {
        "system_instruction": "\n\n".join([text for text in system if text.strip()]) or None,
        "temperature": settings.temperature,
        "top_p": settings.top_p,
        "top_k": settings.top_k,
        "max_output_tokens": settings.max_tokens,
        "presence_penalty": settings.presence_penalty,
        "frequency_penalty": settings.frequency_penalty,
        "stop_sequences": list(settings.stop_sequences) if settings.stop_sequences else None,
        "seed": settings.seed,
        "response_logprobs": settings.wants_logprobs or None,
        "logprobs": settings.top_logprobs,
        "labels": dict(settings.metadata) if settings.metadata else None,
        "service_tier": _TIERS.get(settings.service_tier or "", settings.service_tier),
        "thinking_config": _thinking(settings.reasoning_effort, version),
        "http_options": _http_options(settings),
        "automatic_function_calling": {"disable": True},
        "tools": [{"function_declarations": [_declaration(spec) for spec in tools]}] if tools else None,
        "tool_config": {"function_calling_config": _function_calling(choice)} if tools and choice else None,
        "response_mime_type": "application/json" if schema is not None else None,
        "response_json_schema": schema,
    }
    return {"model": model, "contents": contents, "config": encoding.without_none(config)}


def _thinking(effort: str | None, version: tuple[int, int]) -> Block | None:
    if effort is None:
        return None
    thinking: Block = {"include_thoughts": True} if effort != "none" else {}
    if version >= (3, 0):
        return {**thinking, "thinking_level": _LEVELS.get(effort, "HIGH")}
    return {**thinking, "thinking_budget": _BUDGETS.get(effort, _BUDGETS["high"])}


def _http_options(settings: ModelSettings) -> Block | None:
    options = {
        "headers": dict(settings.extra_headers) if settings.extra_headers else None,
        "extra_body": dict(settings.extra_body) if settings.extra_body else None,
        "timeout": None if settings.timeout is None else max(1, round(settings.timeout * 1000)),
    }
    return encoding.without_none(options) or None


def _declaration(spec: ToolSpec) -> Block:
    schema = to_google_schema(spec.parameters)
    declaration = {"name": function_name(spec.name), "description": spec.description or None}
    return encoding.without_none({**declaration, "parameters_json_schema": schema})


def _function_calling(tool_choice: str) -> Block:
    if tool_choice in _MODES:
        return {"mode": _MODES[tool_choice]}
    return {"mode": "ANY", "allowed_function_names": [function_name(tool_choice)]}
