"""A request as contents and configuration of Google's generateContent.

A conversation as Google wants it: user and model by turns, each turn of calls answered by as many responses.

The part of JSON schema that Google takes, and how the rest is said in it.
"""

import re
from base64 import b64decode
from binascii import Error
from collections.abc import Sequence
from logging import getLogger
from typing import Any, cast

import msgspec

from ...messages import (
    AssistantMessage,
    Audio,
    Content,
    File,
    Image,
    Message,
    Part,
    Reasoning,
    Text,
    ToolCall,
    ToolMessage,
    ToolSpec,
    text_of,
)
from ..alternating import GO_ON, AlternatingTurns, Block, arguments_of, fitting_name, value_in
from ..base import ModelRequest, ModelSettings

_UNSIGNED = b"skip_thought_signature_validator"
"""What Google's documentation names for calls that another model made, which have no signature of its own."""


def as_contents(messages: Sequence[Message], *, wants_signatures: bool) -> tuple[list[str], list[Block]]:
    """What the application says before all else, and the turns of the conversation."""
    turns = _Turns(wants_signatures)
    return turns.take(messages), turns.finished()


class _Turns(AlternatingTurns):
    """The turns, as far as they have come."""

    def __init__(self, wants_signatures: bool) -> None:
        super().__init__("model", "parts")
        self._wants_signatures = wants_signatures
        self._names: list[str] = []
        """The names of the calls whose responses are still to come."""

    def user(self, content: Content) -> None:
        """The user, or somebody in the user's place, says this."""
        self._add("user", _parts(content))

    def words(self, text: str) -> Block:
        """A part of text."""
        return {"text": text}

    def model(self, message: AssistantMessage) -> None:
        """The model says this."""
        parts = _parts(message.content)
        signed = _signatures(message.reasoning)
        calls = [_call(call) for call in message.tool_calls]
        for position, call in enumerate(message.tool_calls):
            if (position, call.name) in signed:
                calls[position]["thought_signature"] = signed[position, call.name]
        if calls and self._wants_signatures and not any("thought_signature" in call for call in calls):
            calls[0]["thought_signature"] = _UNSIGNED
        of_the_words = signed.get((-1, ""))
        if of_the_words is not None and parts and "text" in parts[-1]:
            parts[-1]["thought_signature"] = of_the_words
        if (parts or calls) and (not self._turns or (calls and self._turns[-1]["role"] == "model")):
            # A turn of calls must follow on words of the user or on responses.
            self._add("user", [{"text": GO_ON}])
        self._add("model", [*parts, *calls])
        # A response has the name of its call, whatever the tool calls itself.
        self._names = [part["function_call"]["name"] for part in calls]

    def result(self, message: ToolMessage) -> None:
        """A tool has this to say."""
        told = text_of(message.content)
        response = {"error" if message.is_error else "result": told}
        name = self._names.pop(0)
        part = {"function_response": {"id": message.tool_call_id, "name": name, "response": response}}
        self._add("user", [part])
        media = [part for part in _parts(message.content) if "text" not in part]
        if media:
            self._shown += [{"text": f"`{message.name}` showed:"}, *media]
        if not self._names:
            self._show()


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
        return _by_url(part.url, part.media_type)
    return {"text": msgspec.json.encode(part.value).decode()}


def _by_url(url: str, media_type: str) -> Block:
    value = value_in(url)
    if value is not None:
        return {"inline_data": {"mime_type": value[0] or media_type, "data": b64decode(value[1])}}
    return {"file_data": {"mime_type": media_type, "file_uri": url}}


def wire_name(name: str) -> str:
    """The name of a tool as Google takes it, which may not begin with a digit or a dash."""
    kept = fitting_name(name)
    return f"_{kept}" if not kept or kept[0] in "-0123456789" else kept


def _call(call: ToolCall) -> Block:
    return {"function_call": {"id": call.id, "name": wire_name(call.name), "args": arguments_of(call)}}


def _signatures(reasoning: tuple[Reasoning, ...]) -> dict[tuple[int, str], bytes]:
    """The signatures of Google's own thoughts, by the call they belong to; (-1, "") is that of the words."""
    found: dict[tuple[int, str], bytes] = {}
    for each in reasoning:
        given: object = each.signature
        if each.provider != "google" or not isinstance(given, dict):
            continue
        opaque = cast("dict[str, Any]", given)
        try:
            signature = b64decode(opaque["signature"], validate=True)
        except (Error, TypeError, KeyError):
            continue
        found[opaque.get("call", -1), opaque.get("name", "")] = signature
    return found


# What the documentation of the API lists; anything else may be refused.
_TAKEN = frozenset(
    (
        *("$ref", "$defs", "$id", "$anchor", "type", "format", "title", "description", "enum", "items", "prefixItems"),
        *("minItems", "maxItems", "minimum", "maximum", "anyOf", "properties", "additionalProperties", "required"),
        "propertyOrdering",
    )
)
_SILENT = frozenset(("$schema", "default", "examples", "discriminator", "const", "oneOf", "allOf", "title"))
_FORMATS = {"string": ("date-time", "date", "time"), "integer": ("int32", "int64"), "number": ("float", "double")}


def taken_by_google(schema: Any) -> Any:
    """The same schema in what Google takes. A bound that it cannot check is told in the description."""
    if not isinstance(schema, dict):
        return schema
    given = cast("dict[str, Any]", schema)
    if "$ref" in given and len(given) > 1:
        return _reference_with_more(given)
    written = {key: _converted(key, value) for key, value in given.items() if key in _TAKEN and key != "title"}
    if "const" in given:
        written["enum"] = [given["const"]]
    if "oneOf" in given:
        written["anyOf"] = [*written.get("anyOf", []), *_converted("anyOf", given["oneOf"])]
    for part in given.get("allOf", []):
        written |= taken_by_google(part)
    unsaid = {key: value for key, value in given.items() if key not in _TAKEN and key not in _SILENT}
    shape = written.get("format")
    if shape is not None and shape not in _FORMATS.get(str(written.get("type")), ()):
        unsaid["format"] = written.pop("format")
    if unsaid:
        bounds = ", ".join(f"{key}: {msgspec.json.encode(value).decode()}" for key, value in unsaid.items())
        written["description"] = f"{written.get('description', '')} ({bounds})".strip()
    return written


def _converted(key: str, value: Any) -> Any:
    if key in ("properties", "$defs"):
        # The keys in here are names, not words of the schema.
        return {name: taken_by_google(each) for name, each in value.items()}
    if key in ("anyOf", "prefixItems"):
        return [taken_by_google(each) for each in value]
    if key in ("items", "additionalProperties"):
        return taken_by_google(value)
    return value


def _reference_with_more(given: dict[str, Any]) -> dict[str, Any]:
    """Beside a reference nothing else may stand, so it goes one level down."""
    beside = {key: value for key, value in given.items() if key not in ("$ref", "$defs")}
    around: dict[str, Any] = {"$defs": _converted("$defs", given["$defs"])} if "$defs" in given else {}
    more = taken_by_google(beside)
    return {**around, "$ref": given["$ref"]} if not more else {**around, "anyOf": [{"$ref": given["$ref"]}], **more}


_log = getLogger(__name__)

_VERSION = re.compile(r"gemini-(\d+)(?:\.(\d+))?")
_NEWEST = (99, 0)
_LEVELS = {"none": "MINIMAL", "minimal": "MINIMAL", "low": "LOW", "medium": "MEDIUM"}
_BUDGETS = {"none": 0, "minimal": 512, "low": 2_048, "medium": 8_192, "high": 24_576}


def version_of(model: str) -> tuple[int, int]:
    """The version in a name such as `gemini-2.5-flash`; an unknown name counts as the newest."""
    found = _VERSION.search(model)
    return (int(found[1]), int(found[2] or 0)) if found is not None else _NEWEST


def parameters(request: ModelRequest, model: str, name: str) -> dict[str, Any]:
    """What the SDK is given for this request; `name` is the model as Baton calls it."""
    settings = request.settings
    version = version_of(model)
    told, contents = as_contents(request.messages, wants_signatures=version >= (3, 0))
    system = [request.instructions, *told]
    config = _settings(settings, version)
    config["automatic_function_calling"] = {"disable": True}
    if request.tools:
        config["tools"] = [{"function_declarations": [_declaration(spec) for spec in request.tools]}]
        _add_choice(config, settings)
    if request.output_schema is not None:
        schema = taken_by_google(request.output_schema.schema)
        if request.tools and version < (3, 0):
            # Before Gemini 3, tools and a schema for the answer exclude each other.
            shown = msgspec.json.encode(schema).decode()
            system.append(f"Give your final answer as nothing but JSON that fits this schema: {shown}")
        else:
            config |= {"response_mime_type": "application/json", "response_json_schema": schema}
    instruction = "\n\n".join([text for text in system if text.strip()])
    if instruction:
        config["system_instruction"] = instruction
    if settings.parallel_tool_calls is False and request.tools:
        _log.warning("%s cannot be told to make one call at a time; it may make several", name)
    return {"model": model, "contents": contents, "config": config}


def _settings(settings: ModelSettings, version: tuple[int, int]) -> dict[str, Any]:
    asked = {
        "temperature": settings.temperature,
        "top_p": settings.top_p,
        "max_output_tokens": settings.max_tokens,
        "stop_sequences": list(settings.stop_sequences) if settings.stop_sequences else None,
        "seed": settings.seed,
        "thinking_config": _thinking(settings.reasoning_effort, version),
        "http_options": _http(settings),
    }
    return {key: value for key, value in asked.items() if value is not None}


def _thinking(effort: str | None, version: tuple[int, int]) -> Block | None:
    if effort is None:
        return None
    thinking: Block = {"include_thoughts": True} if effort != "none" else {}
    if version >= (3, 0):
        return {**thinking, "thinking_level": _LEVELS.get(effort, "HIGH")}
    return {**thinking, "thinking_budget": _BUDGETS.get(effort, _BUDGETS["high"])}


def _http(settings: ModelSettings) -> Block | None:
    asked = {
        "headers": dict(settings.extra_headers) if settings.extra_headers else None,
        "extra_body": dict(settings.extra_body) if settings.extra_body else None,
        "timeout": None if settings.timeout is None else max(1, round(settings.timeout * 1000)),
    }
    return {key: value for key, value in asked.items() if value is not None} or None


def _declaration(spec: ToolSpec) -> Block:
    declaration: Block = {"name": wire_name(spec.name), "parameters_json_schema": taken_by_google(spec.parameters)}
    if spec.description:
        declaration["description"] = spec.description
    return declaration


def _add_choice(config: dict[str, Any], settings: ModelSettings) -> None:
    match settings.tool_choice:
        case None:
            return
        case "auto" | "none":
            choice: Block = {"mode": settings.tool_choice.upper()}
        case "required":
            choice = {"mode": "ANY"}
        case name:
            choice = {"mode": "ANY", "allowed_function_names": [wire_name(name)]}
    config["tool_config"] = {"function_calling_config": choice}
