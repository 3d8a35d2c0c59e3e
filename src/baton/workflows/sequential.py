"""What workflows share: agents whose sub-agents are steps that run inside them.

One agent after the other.

The same agents again and again.

The tool by which a model ends the loop it works in.
"""

import asyncio
from collections.abc import Sequence
from typing import Any

from typing_extensions import TypeVar

from ..agents import AgentContext, AgentHooks, BaseAgent
from ..context import RunContext
from ..errors import SetupError
from ..events import Action, BreakLoop, Origin
from ..handoffs import Handoff
from ..messages import ToolSpec
from ..tools import ToolResult

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
            outcome = await ctx.run_agent(step, f"{round}{position}", _after=after)
            ctx.output, after = outcome.output, outcome.first
            if outcome.action is not None:
                return outcome.action, after
        return None, after


class SequentialAgent(Workflow[Any]):
    """Runs each of its sub-agents once, in order. Each reads what was said before it.

    A step's transfers stay inside the step. Its `Exit` ends the whole; its `BreakLoop` ends the loop around it.
    """

    async def run(self, ctx: AgentContext[Any]) -> Action | None:
        """Run the steps; the last one's output is the output."""
        action, _ = await self.run_in_turn(ctx, ctx._origin)
        return action


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
