"""One agent after the other."""

from typing import Any

from ..agents import AgentContext
from ..events import Action
from .base import Workflow


class SequentialAgent(Workflow[Any]):
    """Runs each of its sub-agents once, in order. Each reads what was said before it.

    A step's transfers stay inside the step. Its `Exit` ends the whole; its `BreakLoop` ends the loop around it.
    """

    async def run(self, ctx: AgentContext[Any]) -> Action | None:
        """Run the steps; the last one's output is the output."""
        action, _ = await self.run_in_turn(ctx, ctx._origin)
        return action
