"""The tool protocol, the result of a call, and the base class of tools that wrap another tool."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Generic, Protocol, TypeAlias, cast, runtime_checkable

from msgspec import Struct
from msgspec.structs import replace
from typing_extensions import TypeVar

from .._checks import check_callback
from ..context import RunContext
from ..log import SettledCall
from ..messages import Content, ToolSpec

C = TypeVar("C", default=Any, contravariant=True)
T = TypeVar("T", default=Any, covariant=True)


class ToolResult(Struct, frozen=True):
    """The result of a tool call."""

    content: Content = ""
    """Text or message parts that the model reads."""
    is_error: bool = False
    """True if the call failed."""
    is_final: bool = False
    """True if the content is the agent's answer."""
    transfer_to: Any = None
    """The agent, or the name of an agent, to transfer to."""
    values: Mapping[str, Any] | None = None
    """Values to write to the run's values together with the result."""
    breaks_loop: bool = False
    """True if the innermost `LoopAgent` around the agent ends once the agent has finished."""
    edited_arguments: str = ""
    """The arguments that the call was executed with, if a person changed those of the model."""
    settles: tuple[SettledCall, ...] = ()
    """The outcomes of earlier calls of the tool that a person reported before this one."""

    def of_same_call(self, other: "ToolResult") -> "ToolResult":
        """Return this result with what another result of the same call says about the call.

        Args:
            other: The other result.
        """
        if self is other or not (other.edited_arguments or other.settles):
            return self
        return replace(self, edited_arguments=other.edited_arguments, settles=other.settles)


class Final(Struct, Generic[T], frozen=True):
    """The last item that a streaming tool yields: `yield Final(result)`.

    A streaming tool is an async generator function. The items before it are progress: they are delivered to the
    subscribers of the run and not recorded.
    """

    value: T
    """The result of the call: anything that a tool may return."""


@runtime_checkable
class Tool(Protocol[C]):
    """Something a model can call. Wrap one tool in another to approve, time, retry or cache it.

    An exception raised by `call` becomes an error result that the model reads. `SetupError`, `RunError`, `StoreError`,
    `RemoteError`, `ToolFailedError` and `ToolResultError` end the run instead, because a model cannot correct them.
    """

    @property
    def spec(self) -> ToolSpec:
        """The name, description and JSON schema that the model sees."""
        ...

    async def call(self, ctx: RunContext[C], arguments: str) -> ToolResult:
        """Call the tool.

        Args:
            ctx: The context of this call.
            arguments: The arguments as the model wrote them: a JSON object, not validated yet.
        """
        ...


class ToolFunction(Protocol):
    """A plain function, bound method or callable object that an agent turns into a tool."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the function."""
        ...

    # Every object has it, but FunctionTool hides it from type checkers. Otherwise a FunctionTool would be accepted
    # here as a callable, and its context type would never be compared with the agent's.
    def __sizeof__(self) -> int: ...


@runtime_checkable
class Toolset(Protocol):
    """A dynamic source of tools, such as a server. It is listed among an agent's tools."""

    async def get_tools(self, ctx: RunContext[Any]) -> Sequence[Tool]:
        """Return the current tools; return the same object as long as they have not changed.

        Called before every model call of the agent, and before a tool call that has no recorded result.

        Args:
            ctx: The context of the model call.
        """
        ...


@runtime_checkable
class SupportsToolResult(Protocol):
    """A value that converts itself when a tool returns it, such as an agent."""

    def _as_tool_result(self) -> ToolResult: ...


class ToolWrapper:
    """Base class of tools that wrap another tool.

    Your own wrappers need not inherit from it; an attribute `inner` is enough.
    """

    def __init__(self, inner: Tool) -> None:
        self.inner = inner

    @property
    def spec(self) -> ToolSpec:
        """The spec of the wrapped tool."""
        return self.inner.spec

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.inner!r})"


def unwrap_tool(tool: Tool) -> Tool:
    """Return the innermost tool of a chain of wrappers."""
    # Not isinstance(inner, Tool): before Python 3.12 that reads `spec` and so compiles the schema.
    while callable(getattr(inner := getattr(tool, "inner", None), "call", None)):
        tool = inner  # pyright: ignore[reportAssignmentType]
    return tool


ToolCondition: TypeAlias = bool | Callable[[RunContext[Any], Any], bool | Awaitable[bool]]
"""The condition for offering a tool to a model: a bool, or a function `(ctx, agent) -> bool` called in each turn."""


def check_condition(what: str, condition: Any) -> ToolCondition:
    """Return the condition of a tool. Raises SetupError if it is not valid."""
    if not isinstance(condition, bool):
        check_callback(f"is_enabled of {what}", condition, "ctx", "agent")
    return condition


def tool_condition(tool: Tool) -> ToolCondition:
    """Return `is_enabled` of a tool, or of the first tool inside it that has a condition."""
    layer: Any = tool
    while layer is not None:
        if (condition := getattr(layer, "is_enabled", True)) is not True:
            return condition
        layer = getattr(layer, "inner", None)
    return True


@runtime_checkable
class SupportsArgumentCheck(Protocol):
    """A tool that can validate arguments without being called."""

    def check_arguments(self, arguments: str) -> dict[str, Any] | ToolResult:
        """Return the parsed arguments, or an error result that describes the problems."""
        ...


def argument_checker(tool: Tool) -> Callable[[str], dict[str, Any] | ToolResult]:
    """Return the function that validates arguments; by default any JSON object is valid."""
    innermost = unwrap_tool(tool)
    if isinstance(innermost, SupportsArgumentCheck):
        return innermost.check_arguments
    # `spec` is read only when the function is called, because reading it may compile a schema.
    return lambda arguments: parse_json_object(arguments, tool.spec.name)


def parse_json_object(arguments: str, tool_name: str) -> dict[str, Any] | ToolResult:
    """Parse arguments as a JSON object, or return an error result."""
    import json

    try:
        value = json.loads(arguments.strip() or "{}")
    except ValueError as error:
        return ToolResult(f"The arguments of `{tool_name}` are not JSON ({error}).", is_error=True)
    if not isinstance(value, dict):
        return ToolResult(f"The arguments of `{tool_name}` must be one JSON object.", is_error=True)
    return cast("dict[str, Any]", value)
