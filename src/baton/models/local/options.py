"""What a model can choose between: each tool, each value of a tool that only takes one of a few, or a reply."""

import re
from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec import Struct

from ...errors import ModelRequestError, quote_names
from ...messages import AssistantMessage, ToolSpec, UserMessage
from ..base import ModelRequest


class Choice(Struct, frozen=True):
    """One thing to choose. `tool` is None for a reply; `arguments` is None where they are still to be filled in."""

    name: str
    description: str = ""
    tool: ToolSpec | None = None
    arguments: str | None = None


def options_of(request: ModelRequest, *, reply: str) -> tuple[Choice, ...]:
    """All that may be chosen, a reply last; `reply` is how that is described. One option: there is no choice."""
    wish = request.settings.tool_choice or "auto"
    tools = () if wish == "none" else request.tools
    if wish not in ("auto", "required", "none"):
        tools = tuple(spec for spec in tools if spec.name == wish)
        if not tools:
            offered = quote_names([spec.name for spec in request.tools])
            raise ModelRequestError(f"tool_choice asks for `{wish}`, and the tools are: {offered}")
    options = [option for spec in tools for option in _options_from(spec, request.instructions)]
    names = [option.name for option in options]
    # Two tools may take the same values; the longer names cannot meet.
    options = [
        option if names.count(option.name) == 1 or option.tool is None else _with_long_name(option)
        for option in options
    ]
    if wish in ("auto", "none") or not options:
        options.append(Choice(_unused("reply", names), reply))
    return tuple(options)


def calls_so_far(request: ModelRequest) -> dict[str, list[Any]]:
    """The arguments of all calls since somebody else last said something, by the name of the tool."""
    made: dict[str, list[Any]] = {}
    for message in reversed(request.messages):
        if isinstance(message, UserMessage):
            break
        if isinstance(message, AssistantMessage):
            for call in message.tool_calls:
                made.setdefault(call.name, []).append(read_arguments(call.arguments))
    return made


def read_arguments(arguments: str) -> Any:
    """What the arguments say; as they are if they are not JSON."""
    try:
        return msgspec.json.decode(arguments)
    except msgspec.DecodeError:
        return arguments


def _options_from(spec: ToolSpec, instructions: str) -> Iterator[Choice]:
    properties: dict[str, dict[str, Any]] = spec.parameters.get("properties") or {}
    if not properties:
        yield Choice(spec.name, spec.description, spec, "{}")
        return
    if len(properties) == 1:
        ((parameter, schema),) = properties.items()
        values: list[Any] = schema.get("enum") or []
        if values and all(isinstance(value, str) and value for value in values):
            for value in values:
                arguments = msgspec.json.encode({parameter: value}).decode()
                yield Choice(value, _told_about(value, instructions), spec, arguments)
            return
    yield Choice(spec.name, spec.description, spec)


def _told_about(value: str, instructions: str) -> str:
    """What a list in the instructions says about a value: the rest of the line `- value: …`."""
    found = re.search(rf"^[ \t]*[-*][ \t]*`?{re.escape(value)}`?[ \t]*[:：][ \t]*(\S.*)$", instructions, re.MULTILINE)
    return found.group(1).strip() if found else ""


def _with_long_name(option: Choice) -> Choice:
    owner = option.tool.name if option.tool is not None else ""
    return msgspec.structs.replace(option, name=f"{owner}: {option.name}")


def _unused(name: str, taken: list[str]) -> str:
    while name in taken:
        name += "_"
    return name
