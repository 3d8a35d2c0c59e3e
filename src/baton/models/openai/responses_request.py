"""A request in the words of Responses."""

import re
from collections.abc import Sequence
from typing import Any, cast

from msgspec import Struct

from ...messages import AssistantMessage, Content, Message, Part, Reasoning, ToolMessage, ToolSpec, UserMessage
from ..base import ModelRequest
from .endpoint import StructuredOutputMode
from .parts import about, fitting_arguments, fitting_id, fitting_name, responses_part, split
from .structured import add_tools, instructions_with_schema, schema_format

_LONGEST_ID = 64
_THINKS = re.compile(r"^(?:o\d|gpt-[5-9]|gpt-\d\d|codex|computer-use)")
_DOES_NOT_THINK = re.compile(r"-chat(?:-|$)")


class ResponsesDialect(Struct, frozen=True):
    """In what one endpoint differs from another."""

    model: str
    name: str
    provider: str = "openai"
    structured: StructuredOutputMode = "native"
    store: bool | None = False
    thinks: bool = False
    """Whether to ask for the model's reasoning in a form that can be sent back; others refuse that."""


def thinks(model: str) -> bool:
    """Whether a model of this name is known to reason."""
    return bool(_THINKS.match(model)) and not _DOES_NOT_THINK.search(model)


def responses_body(request: ModelRequest, manner: ResponsesDialect) -> dict[str, Any]:
    """The body of the request, as the official client would send it."""
    settings = request.settings
    body: dict[str, Any] = {"model": manner.model, "input": _items(request.messages, manner)}
    instructions = instructions_with_schema(request, manner.structured)
    if not body["input"]:
        # Something must be said, and where nobody has said anything that is the instructions.
        body["input"] = [{"role": "system", "content": instructions}]
    elif instructions:
        body["instructions"] = instructions
    add_tools(body, request, manner.structured, form=_tool, named=_named)
    if settings.temperature is not None:
        body["temperature"] = settings.temperature
    if settings.top_p is not None:
        body["top_p"] = settings.top_p
    if settings.max_tokens is not None:
        body["max_output_tokens"] = settings.max_tokens
    if settings.reasoning_effort is not None:
        body["reasoning"] = {"effort": settings.reasoning_effort}
    if request.output_schema is not None and manner.structured == "native":
        body["text"] = {"format": {"type": "json_schema", **schema_format(request.output_schema)}}
    elif request.output_schema is not None and manner.structured == "json_object":
        body["text"] = {"format": {"type": "json_object"}}
    if manner.store is not None:
        body["store"] = manner.store
    if manner.thinks:
        body["include"] = ["reasoning.encrypted_content"]
    if request.stream:
        body["stream"] = True
    return body


def _named(tool: str) -> dict[str, Any]:
    return {"type": "function", "name": tool}


def _tool(spec: ToolSpec) -> dict[str, Any]:
    # Strictness is said always: here a tool that does not say so is taken as strict.
    tool: dict[str, Any] = {
        "type": "function",
        "name": spec.name,
        "parameters": spec.parameters,
        "strict": spec.strict,
    }
    return {**tool, "description": spec.description} if spec.description else tool


def _items(messages: Sequence[Message], manner: ResponsesDialect) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = []
    # Media that an assistant made can only be shown by the user, and not before the results of its calls.
    waiting: list[Part] = []
    for message in messages:
        if waiting and not isinstance(message, ToolMessage):
            items.append(_from_user(tuple(waiting), manner))
            waiting.clear()
        if isinstance(message, ToolMessage):
            items.append(_result(message, manner))
        elif isinstance(message, AssistantMessage):
            items.extend(_from_assistant(message, manner, waiting))
        elif isinstance(message, UserMessage):
            items.append(_from_user(message.content, manner))
        else:
            text, media = split(message.content)
            waiting.extend(media)
            items.append({"role": "system", "content": text})
    if waiting:
        items.append(_from_user(tuple(waiting), manner))
    return items


def _result(message: ToolMessage, manner: ResponsesDialect) -> dict[str, Any]:
    content = message.content
    output: Any = content
    if not isinstance(content, str):
        text, media = split(content)
        output = [responses_part(part, manner.name) for part in content] if media else text
    return {"type": "function_call_output", "call_id": fitting_id(message.tool_call_id, _LONGEST_ID), "output": output}


def _from_assistant(message: AssistantMessage, manner: ResponsesDialect, waiting: list[Part]) -> list[dict[str, Any]]:
    text, media = split(message.content)
    if media:
        waiting.extend(about("", media))
    own = [
        block for block in message.reasoning if block.provider == manner.provider and isinstance(block.signature, dict)
    ]
    items = [_thought(block) for block in own if _calls_before(block) == 0]
    if text:
        items.append({"role": "assistant", "content": text})
    for position, call in enumerate(message.tool_calls):
        if position:
            items += [_thought(block) for block in own if _calls_before(block) == position]
        name, arguments = fitting_name(call.name), fitting_arguments(call.arguments)
        id = fitting_id(call.id, _LONGEST_ID)
        items.append({"type": "function_call", "call_id": id, "name": name, "arguments": arguments})
    # A thought that led to nothing may not stand at the end: the API wants what it led to.
    return items if text or message.tool_calls else []


def _thought(block: Reasoning) -> dict[str, Any]:
    kept = cast("dict[str, Any]", block.signature)
    return {"type": "reasoning", **{key: kept[key] for key in ("id", "summary", "encrypted_content") if key in kept}}


def _calls_before(block: Reasoning) -> int:
    return cast("dict[str, Any]", block.signature).get("calls_before", 0)


def _from_user(content: Content, manner: ResponsesDialect) -> dict[str, Any]:
    if isinstance(content, str):
        return {"role": "user", "content": content}
    return {"role": "user", "content": [responses_part(part, manner.name) for part in content]}
