"""A request as the parameters of Anthropic's Messages API."""

import re
from collections.abc import Sequence
from logging import getLogger
from typing import Any, cast

import msgspec

from ...messages import ToolSpec
from ..base import ModelRequest, ModelSettings
from ..turns import Block
from .history import as_turns

_log = getLogger(__name__)

_VERSION = re.compile(r"claude-(?:[a-z]+-)?(\d{1,2})(?:[-.](\d{1,2}))?(?!\d)")
_NEWEST = (99, 0)
_OLD_API = {"anthropic-version": "2023-06-01"}
"""The version of the API in which a temperature may be sent; the newer one refuses it for every model."""

# The longest answers that are documented, oldest models first, and what is asked for if nobody says how much.
_LONGEST_ANSWERS = (((3, 5), 4_096), ((3, 7), 8_192), ((4, 5), 32_000), ((4, 6), 64_000))
_LONGEST_ANSWER = 128_000
_USUAL_ANSWER = 32_000
_LONG_ANSWER = 64_000

_EFFORTS = {"minimal": "low", "low": "low", "medium": "medium", "high": "high", "xhigh": "xhigh", "max": "max"}
_BUDGETS = {"minimal": 1_024, "low": 2_048, "medium": 8_192, "high": 16_384, "xhigh": 32_768, "max": 49_152}
_LEAST_BUDGET = 1_024


def version_of(model: str) -> tuple[int, int]:
    """The version in a name such as `claude-opus-4-5-20251101`; an unknown name counts as the newest."""
    found = _VERSION.search(model)
    return (int(found[1]), int(found[2] or 0)) if found is not None else _NEWEST


def parameters(request: ModelRequest, model: str, name: str) -> dict[str, Any]:
    """What the SDK is given for this request; `name` is the model as Baton calls it."""
    settings = request.settings
    version = version_of(model)
    told, messages = as_turns(request.messages, name)
    effort = settings.reasoning_effort
    max_tokens = settings.max_tokens or usual_answer(version, effort)
    given: dict[str, Any] = {"model": model, "max_tokens": max_tokens, "messages": messages, "stream": True}
    told.insert(0, request.instructions)
    if settings.stop_sequences:
        given["stop_sequences"] = list(settings.stop_sequences)
    _add_tools(given, request)
    _add_thinking(given, effort, version)
    if request.output_schema is not None:
        _add_output(given, request.output_schema.schema, told)
    system = "\n\n".join([text for text in told if text.strip()])
    if system:
        given["system"] = system
    _add_extras(given, settings, version, name)
    return given


def usual_answer(version: tuple[int, int], effort: str | None) -> int:
    """How long an answer may be if nobody says so: within what is documented for this version."""
    longest = next((most for before, most in _LONGEST_ANSWERS if version < before), _LONGEST_ANSWER)
    return min(longest, _LONG_ANSWER if effort in ("xhigh", "max") else _USUAL_ANSWER)


def _add_tools(given: dict[str, Any], request: ModelRequest) -> None:
    settings = request.settings
    if not request.tools:
        used = _called_in(given["messages"])
        if used:
            # A history with calls wants their tools to be there, also where none may be called any more.
            given["tools"] = [{"name": name, "input_schema": {"type": "object"}} for name in used]
            given["tool_choice"] = {"type": "none"}
        return
    given["tools"] = [_tool(spec) for spec in request.tools]
    match settings.tool_choice:
        case None | "auto":
            choice: Block | None = {"type": "auto"} if settings.tool_choice else None
        case "required":
            choice = {"type": "any"}
        case "none":
            choice = {"type": "none"}
        case name:
            choice = {"type": "tool", "name": name}
    if settings.parallel_tool_calls is not None and settings.tool_choice != "none":
        choice = {**(choice or {"type": "auto"}), "disable_parallel_tool_use": not settings.parallel_tool_calls}
    if choice is not None:
        given["tool_choice"] = choice


def _tool(spec: ToolSpec) -> Block:
    tool: Block = {"name": spec.name, "input_schema": spec.parameters}
    if spec.description:
        tool["description"] = spec.description
    if spec.strict and not _is_open(spec.parameters):
        from anthropic import transform_schema

        # A strict tool may only use the part of JSON schema that Anthropic can enforce.
        tool |= {"strict": True, "input_schema": transform_schema(spec.parameters)}
    return tool


def _add_output(given: dict[str, Any], schema: dict[str, Any], told: list[str]) -> None:
    if _is_open(schema):
        shown = msgspec.json.encode(schema).decode()
        told.append(f"Give your final answer as nothing but JSON that fits this schema: {shown}")
        return
    from anthropic import transform_schema

    form = {"type": "json_schema", "schema": transform_schema(schema)}
    given.setdefault("output_config", {})["format"] = form


def _is_open(schema: Any) -> bool:
    """Whether there is an object in it whose keys are not known, which Anthropic cannot hold a model to."""
    if isinstance(schema, list):
        return any(_is_open(each) for each in cast("list[Any]", schema))
    if not isinstance(schema, dict):
        return False
    words = cast("dict[str, Any]", schema)
    return bool(words.get("additionalProperties", False)) or any(_is_open(each) for each in words.values())


def _called_in(turns: Sequence[Block]) -> list[str]:
    blocks = [block for turn in turns for block in turn["content"]]
    return list(dict.fromkeys([block["name"] for block in blocks if block["type"] == "tool_use"]))


def _add_thinking(given: dict[str, Any], effort: str | None, version: tuple[int, int]) -> None:
    if effort is None:
        return
    if effort == "none":
        given["thinking"] = {"type": "disabled"}
        return
    # Who must call a tool cannot think first: Anthropic refuses the two together.
    is_forced = given.get("tool_choice", {}).get("type") in ("any", "tool")
    if version >= (4, 6):
        given["output_config"] = {"effort": _EFFORTS.get(effort, effort)}
        if not is_forced:
            given["thinking"] = {"type": "adaptive"}
        return
    budget = min(_BUDGETS.get(effort, _BUDGETS["medium"]), given["max_tokens"] - 1)
    if budget >= _LEAST_BUDGET and not is_forced and version >= (3, 7):
        given["thinking"] = {"type": "enabled", "budget_tokens": budget}


def _add_extras(given: dict[str, Any], settings: ModelSettings, version: tuple[int, int], name: str) -> None:
    headers = dict(settings.extra_headers or {})
    body = dict(settings.extra_body or {})
    asked = {"temperature": settings.temperature, "top_p": settings.top_p}
    sampling = {key: value for key, value in asked.items() if value is not None}
    if sampling and version <= (4, 6):
        headers = {**_OLD_API, **headers}
        body = {**sampling, **body}
        sampling = {}
    unheard = [*sampling, *(["seed"] if settings.seed is not None else [])]
    if unheard:
        _log.warning("%s takes no %s; it answers without", name, " and no ".join(unheard))
    if headers:
        given["extra_headers"] = headers
    if body:
        given["extra_body"] = body
    if settings.timeout is not None:
        given["timeout"] = settings.timeout
