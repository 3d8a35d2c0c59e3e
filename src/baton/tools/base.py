"""The contract of a tool: what a model sees of it, and one way to call it.

A tool around a tool: it shows the model the same thing, and does something more when it is called.

Arguments looked at without calling the tool: for wrappers that must know what a call is about.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, cast, runtime_checkable

from msgspec import Struct

from ..context import RunContext
from ..messages import Content, ToolSpec


class ToolResult(Struct, frozen=True):
    """What a call came to. `transfer` is the agent (or the name of one) that gets the floor because of it.

    `values` are written to the run's values together with the result. `breaks_loop` ends the innermost loop around the
    agent once it is done.
    """

    content: Content = ""
    is_error: bool = False
    is_final: bool = False
    transfer_to: Any = None
    values: Mapping[str, Any] | None = None
    breaks_loop: bool = False


@runtime_checkable
class Tool(Protocol):
    """Something a model can call. Wrap one in another to approve, time, retry or cache it.

    What `call` raises becomes an error result that the model reads, except what the program's author must mend
    (SetupError, RunError, ToolFailedError, ToolResultError): that ends the run.
    """

    @property
    def spec(self) -> ToolSpec:
        """What the model is told."""
        ...

    async def call(self, ctx: RunContext[Any], arguments: str) -> ToolResult:
        """Do it, with arguments as the model wrote them."""
        ...


@runtime_checkable
class Toolset(Protocol):
    """Tools that are known only while a run lasts, such as a server's. Stands among an agent's tools."""

    async def get_tools(self, ctx: RunContext[Any]) -> Sequence[Tool]:
        """The tools there are now, and the very same object as long as they have not changed.

        Asked before every model call of an agent that has the source, and before a call that is not on record. What it
        opens for that it leaves in `ctx.run.opened`, to be closed when the run stops.
        """
        ...


@runtime_checkable
class SupportsToolResult(Protocol):
    """A value that says itself what it means as the result of a tool; an agent does, for one."""

    def _as_tool_result(self) -> ToolResult:
        """What it means."""
        ...


class ToolWrapper:
    """What wrappers share. Your own need not inherit from it: an attribute `inner` is enough."""

    def __init__(self, inner: Tool) -> None:
        self.inner = inner

    @property
    def spec(self) -> ToolSpec:
        """What the model is told: the same as without the wrapper."""
        return self.inner.spec

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.inner!r})"


def unwrap_tool(tool: Tool) -> Tool:
    """The tool at the bottom of all wrappers; the tool itself if it has none."""
    # Not isinstance(inner, Tool): before Python 3.12 that would read `spec`, and so compile a schema nobody asked for.
    while callable(getattr(inner := getattr(tool, "inner", None), "call", None)):
        tool = inner  # pyright: ignore[reportAssignmentType]
    return tool


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
