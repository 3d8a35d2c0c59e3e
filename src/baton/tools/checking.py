"""Arguments looked at without calling the tool: for wrappers that must know what a call is about."""

import json
from collections.abc import Callable
from typing import Any, Protocol, cast, runtime_checkable

from .base import Tool, ToolResult
from .wrapping import unwrap_tool


@runtime_checkable
class SupportsArgumentCheck(Protocol):
    """A tool that can tell without being called whether arguments fit, and what they mean."""

    def checked(self, arguments: str) -> dict[str, Any] | ToolResult:
        """The arguments, or an outcome that tells the model what to mend."""
        ...


def checker_of(tool: Tool) -> Callable[[str], dict[str, Any] | ToolResult]:
    """What looks at arguments for this tool: the tool at the bottom, if it can; or else any JSON object will do."""
    bottom = unwrap_tool(tool)
    # The name is asked for with each call: asking now would compile a schema that nobody may ever need.
    return (
        bottom.checked
        if isinstance(bottom, SupportsArgumentCheck)
        else lambda arguments: parse_json_object(arguments, tool.spec.name)
    )


def parse_json_object(arguments: str, tool_name: str) -> dict[str, Any] | ToolResult:
    """The arguments as a JSON object; or an outcome that says why they are none."""
    try:
        given = json.loads(arguments.strip() or "{}")
    except ValueError as error:
        return ToolResult(f"The arguments of `{tool_name}` are not JSON ({error}).", is_error=True)
    if not isinstance(given, dict):
        return ToolResult(f"The arguments of `{tool_name}` must be one JSON object.", is_error=True)
    return cast("dict[str, Any]", given)
