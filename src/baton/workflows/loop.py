"""The same agents again and again."""

import asyncio
from collections.abc import Sequence
from typing import Any

from ..agents import AgentContext, AgentHooks, BaseAgent
from ..errors import SetupError
from ..events import Action, BreakLoop
from ..handoffs import Handoff
from .base import Workflow


class LoopAgent(Workflow[Any]):
    """Runs its sub-agents in order, over and over, until one of them ends with `BreakLoop` or `Exit`.

    Without `max_iterations` only those, or the run's limits, end it. What is broken is the innermost loop.
    """

    def __init__(
        self,
        name: str,
        *,
        sub_agents: Sequence[BaseAgent[Any, Any]],
        description: str = "",
        max_iterations: int = 0,
        handoffs: Sequence[BaseAgent[Any, Any] | Handoff | str] = (),
        hooks: AgentHooks | None = None,
    ) -> None:
        super().__init__(name, sub_agents=sub_agents, description=description, handoffs=handoffs, hooks=hooks)
        if not isinstance(max_iterations, int) or max_iterations < 0:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise SetupError(f"`{name}` has max_iterations={max_iterations!r}; give a number, or 0 for no limit")
        self.max_iterations = max_iterations

    async def run(self, ctx: AgentContext[Any]) -> Action | None:
        """Go round; the output is that of the step that ran last."""
        after, iteration = ctx._origin, 0
        while not self.max_iterations or iteration < self.max_iterations:
            action, after = await self.run_in_turn(ctx, after, round=f"{iteration}.")
            if type(action) is BreakLoop:
                return None
            if action is not None:
                return action
            iteration += 1
            # Steps that wait for nothing would else keep everybody else waiting, and could not be cancelled.
            await asyncio.sleep(0)
        return None
