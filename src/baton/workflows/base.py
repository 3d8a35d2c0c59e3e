"""What workflows share: agents whose sub-agents are steps that run inside them."""

import asyncio
from collections.abc import Sequence
from typing import Any

from typing_extensions import TypeVar

from ..agents import AgentContext, AgentHooks, BaseAgent
from ..errors import SetupError
from ..events import Action, Origin
from ..handoffs import Handoff

Out = TypeVar("Out", default=Any, covariant=True)


class Workflow(BaseAgent[Any, Out]):
    """An agent that gives the floor to its sub-agents by a fixed plan."""

    def __init__(
        self,
        name: str,
        *,
        sub_agents: Sequence[BaseAgent[Any, Any]],
        description: str = "",
        handoffs: Sequence[BaseAgent[Any, Any] | Handoff | str] = (),
        hooks: AgentHooks | None = None,
    ) -> None:
        super().__init__(name, description=description, sub_agents=sub_agents, handoffs=handoffs, hooks=hooks)
        if not self.sub_agents:
            raise SetupError(f"`{self.name}` has no steps; give at least one agent in sub_agents=[…]")

    def _transfer_children(self) -> Sequence[BaseAgent[Any, Any]]:
        """None: a step is not transferred to, and does not transfer back."""
        return ()

    def inner_agents(self) -> tuple[BaseAgent[Any, Any], ...]:
        """The steps."""
        return tuple(dict.fromkeys(self.sub_agents))

    async def run_in_turn(
        self, ctx: AgentContext[Any], after: Origin, *, round: str = ""
    ) -> tuple[Action | None, Origin]:
        """Run the steps one after the other until one of them ends with an action; that action, and the last step."""
        for position, step in enumerate(self.sub_agents):
            if ctx._run.signals.stop == "now":
                # A step may have swallowed the cancellation; the run is over all the same.
                raise asyncio.CancelledError
            outcome = await ctx.inside(step, f"{round}{position}", after=after)
            ctx.output, after = outcome.output, outcome.first
            if outcome.action is not None:
                return outcome.action, after
        return None, after
