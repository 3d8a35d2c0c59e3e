"""A request in the words of Chat Completions."""

from typing import Any, Literal

from msgspec import Struct

from ...messages import (
    AssistantMessage,
    Content,
    Message,
    Part,
    SystemMessage,
    ToolCall,
    ToolMessage,
    ToolSpec,
    UserMessage,
)
from ..base import ModelRequest
from .endpoint import StructuredOutputMode
from .parts import about, chat_part, fitting_arguments, fitting_id, fitting_name, split
from .structured import add_tools, instructions_with_schema, schema_format

_LONGEST_ID = 40
_SEE_BELOW = "The result is in the message below."


class ChatDialect(Struct, frozen=True):
    """In what one endpoint differs from another."""

    model: str
    name: str
    provider: str = "openai"
    structured: StructuredOutputMode = "native"
    limit_name: Literal["max_completion_tokens", "max_tokens"] = "max_completion_tokens"
    system_role: str = "system"
    includes_usage: bool = True
    returns_reasoning: bool = False


def chat_body(request: ModelRequest, manner: ChatDialect) -> dict[str, Any]:
    """The body of the request, as the official client would send it."""
    settings = request.settings
    body: dict[str, Any] = {"model": manner.model, "messages": _messages(request, manner)}
    add_tools(body, request, manner.structured, form=_tool, named=_named)
    if settings.temperature is not None:
        body["temperature"] = settings.temperature
    if settings.top_p is not None:
        body["top_p"] = settings.top_p
    if settings.max_tokens is not None:
        body[manner.limit_name] = settings.max_tokens
    if settings.reasoning_effort is not None:
        body["reasoning_effort"] = settings.reasoning_effort
    if settings.stop_sequences is not None:
        body["stop"] = list(settings.stop_sequences)
    if settings.seed is not None:
        body["seed"] = settings.seed
    if request.output_schema is not None and manner.structured == "native":
        body["response_format"] = {"type": "json_schema", "json_schema": schema_format(request.output_schema)}
    elif request.output_schema is not None and manner.structured == "json_object":
        body["response_format"] = {"type": "json_object"}
    if request.stream:
        body["stream"] = True
        if manner.includes_usage:
            body["stream_options"] = {"include_usage": True}
    return body


def _named(tool: str) -> dict[str, Any]:
    return {"type": "function", "function": {"name": tool}}


def _tool(spec: ToolSpec) -> dict[str, Any]:
    function: dict[str, Any] = {"name": spec.name, "parameters": spec.parameters}
    if spec.description:
        function["description"] = spec.description
    if spec.strict:
        function["strict"] = True
    return {"type": "function", "function": function}


def _messages(request: ModelRequest, manner: ChatDialect) -> list[dict[str, Any]]:
    written: list[dict[str, Any]] = []
    instructions = instructions_with_schema(request, manner.structured)
    if instructions:
        written.append({"role": manner.system_role, "content": instructions})
    # Results take only text, and nothing may come between a call and its results: media waits until after them.
    waiting: list[Part] = []
    for message in request.messages:
        if waiting and not isinstance(message, ToolMessage):
            written.append(_from_user(tuple(waiting), manner))
            waiting.clear()
        written.append(_message(message, manner, waiting))
    if waiting:
        written.append(_from_user(tuple(waiting), manner))
    return written


def _message(message: Message, manner: ChatDialect, waiting: list[Part]) -> dict[str, Any]:
    # Results and calls first: a long conversation consists of them.
    if isinstance(message, ToolMessage):
        text, media = split(message.content)
        if media:
            waiting.extend(about(message.name, media))
        id = fitting_id(message.tool_call_id, _LONGEST_ID)
        return {"role": "tool", "tool_call_id": id, "content": text or (_SEE_BELOW if media else "")}
    if isinstance(message, AssistantMessage):
        return _from_assistant(message, manner, waiting)
    if isinstance(message, UserMessage):
        return _from_user(message.content, manner)
    return _from_system(message, manner, waiting)


def _from_assistant(message: AssistantMessage, manner: ChatDialect, waiting: list[Part]) -> dict[str, Any]:
    text, media = split(message.content)
    if media:
        waiting.extend(about("", media))
    written: dict[str, Any] = {"role": "assistant", "content": text or None}
    if message.tool_calls:
        written["tool_calls"] = [_call(call) for call in message.tool_calls]
        if manner.returns_reasoning and message.reasoning:
            own = [block.text for block in message.reasoning if block.provider == manner.provider]
            if own:
                written["reasoning_content"] = "\n\n".join(own)
    elif not text:
        written["content"] = ""
    return written


def _call(call: ToolCall) -> dict[str, Any]:
    function = {"name": fitting_name(call.name), "arguments": fitting_arguments(call.arguments)}
    return {"id": fitting_id(call.id, _LONGEST_ID), "type": "function", "function": function}


def _from_system(message: SystemMessage, manner: ChatDialect, waiting: list[Part]) -> dict[str, Any]:
    text, media = split(message.content)
    waiting.extend(media)
    return {"role": manner.system_role, "content": text}


def _from_user(content: Content, manner: ChatDialect) -> dict[str, Any]:
    if isinstance(content, str):
        return {"role": "user", "content": content}
    return {"role": "user", "content": [chat_part(part, manner.name) for part in content]}
