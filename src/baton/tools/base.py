"""The contract of a tool: what a model sees of it, and one way to call it."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

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
