"""Arguments looked at without calling the tool: for wrappers that must know what a call is about."""

import json
from collections.abc import Callable
from typing import Any, Protocol, cast, runtime_checkable

from .base import Tool, ToolOutcome
from .wrapping import unwrapped


@runtime_checkable
class Checking(Protocol):
    """A tool that can tell without being called whether arguments fit, and what they mean."""

    def checked(self, arguments: str) -> dict[str, Any] | ToolOutcome:
        """The arguments, or an outcome that tells the model what to mend."""
        ...


def checker_of(tool: Tool) -> Callable[[str], dict[str, Any] | ToolOutcome]:
    """What looks at arguments for this tool: the tool at the bottom, if it can; or else any JSON object will do."""
    bottom = unwrapped(tool)
    # The name is asked for with each call: asking now would compile a schema that nobody may ever need.
    return bottom.checked if isinstance(bottom, Checking) else lambda arguments: as_object(arguments, tool.spec.name)


def as_object(arguments: str, tool_name: str) -> dict[str, Any] | ToolOutcome:
    """The arguments as a JSON object; or an outcome that says why they are none."""
    try:
        given = json.loads(arguments.strip() or "{}")
    except ValueError as error:
        return ToolOutcome(f"The arguments of `{tool_name}` are not JSON ({error}).", is_error=True)
    if not isinstance(given, dict):
        return ToolOutcome(f"The arguments of `{tool_name}` must be one JSON object.", is_error=True)
    return cast("dict[str, Any]", given)
