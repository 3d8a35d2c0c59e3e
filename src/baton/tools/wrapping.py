"""A tool around a tool: it shows the model the same thing, and does something more when it is called."""

from ..messages import ToolSpec
from .base import Tool


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
