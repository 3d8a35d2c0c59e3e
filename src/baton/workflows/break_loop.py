"""The tool by which a model ends the loop it works in."""

from typing import Any

from ..context import RunContext
from ..messages import ToolSpec
from ..tools import ToolResult


class BreakLoopTool:
    """Ends the innermost loop around the agent that calls it, once that agent is done."""

    def __init__(self) -> None:
        self.spec = ToolSpec(
            "break_loop",
            "End the loop you are working in, because what it is for is done. Nothing in it runs again after you.",
            {"type": "object", "properties": {}, "required": [], "additionalProperties": False},
            strict=True,
        )

    async def call(self, ctx: RunContext[Any], arguments: str) -> ToolResult:
        """Take note that the loop is to end; arguments are ignored."""
        return ToolResult("The loop ends when you are done.", breaks_loop=True)

    def __repr__(self) -> str:
        return "break_loop_tool"


break_loop_tool = BreakLoopTool()
"""Give it to an agent in a `LoopAgent`: `Agent("Critic", tools=[break_loop_tool])`."""
