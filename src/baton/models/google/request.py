"""A request as contents and configuration of Google's generateContent."""

import re
from logging import getLogger
from typing import Any

import msgspec

from ...messages import ToolSpec
from ..base import ModelRequest, ModelSettings
from ..turns import Block
from .history import as_contents, wire_name
from .schemas import taken_by_google

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
