"""Sequential and loop agents, their base class, and the tool that ends a loop."""

import asyncio
from collections.abc import Sequence
from typing import Any

from typing_extensions import TypeVar

from .._checks import check_arguments
from .._wording import show
from ..agents import AgentContext, AgentHooks, BaseAgent
from ..context import RunContext
from ..errors import SetupError
from ..handoffs import Handoff
from ..log import Action, BreakLoop, Origin
from ..messages import ToolSpec
from ..tools import ToolResult

Out = TypeVar("Out", default=Any, covariant=True)


class Workflow(BaseAgent[Any, Out]):
    """Base class of agents that run their sub-agents in a fixed order.

    Args:
        name: The name of the agent.
        sub_agents: The steps, at least one.
        description: The description for models that may transfer to it.
        handoffs: The agents that it can transfer to.
        hooks: Hooks for its start, end and handoffs.
    """

    @check_arguments
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
        return ()  # A step is not transferred to, and does not transfer back.

    def inner_agents(self) -> tuple[BaseAgent[Any, Any], ...]:
        """Return the steps."""
        return tuple(dict.fromkeys(self.sub_agents))

    async def _run_steps(
        self, ctx: AgentContext[Any], after: Origin, *, round: str = ""
    ) -> tuple[Action | None, Origin]:
        """Run the steps until one ends with an action; return it and the last step's origin."""
        for position, step in enumerate(self.sub_agents):
            outcome = await ctx._run_inner(step, f"{round}{position}", after=after)
            after = outcome.first
            if outcome.output is not None:
                ctx._answer = outcome.answer
            if outcome.action is not None:
                return outcome.action, after
        return None, after


class SequentialAgent(Workflow[Any]):
    """An agent that runs each of its sub-agents once, in order.

    A step reads the messages before it, and its transfers stay inside the step. A step that returns `Exit` ends the
    run; one that returns `BreakLoop` ends the loop around the sequence. The output is the last answer of a step.

    Args:
        name: The name of the agent.
        sub_agents: The steps, at least one.
        description: The description for models that may transfer to it.
        handoffs: The agents that it can transfer to.
        hooks: Hooks for its start, end and handoffs.
    """

    async def run(self, ctx: AgentContext[Any]) -> Action | None:
        """Run the steps.

        Args:
            ctx: The context of the activation.
        """
        action, _ = await self._run_steps(ctx, ctx._origin)
        return action


class LoopAgent(Workflow[Any]):
    """An agent that runs its sub-agents in order, over and over, until one breaks the loop.

    A step ends the loop by returning `BreakLoop`, or by calling `break_loop_tool`; `Exit` ends the run.

    Args:
        name: The name of the agent.
        sub_agents: The steps, at least one.
        description: The description for models that may transfer to it.
        max_iterations: Maximum number of rounds; 0 for no limit.
        handoffs: The agents that it can transfer to.
        hooks: Hooks for its start, end and handoffs.
    """

    @check_arguments
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
            raise SetupError(f"`{name}` has max_iterations={show(max_iterations)}; give an integer, or 0 for no limit")
        self.max_iterations = max_iterations

    async def run(self, ctx: AgentContext[Any]) -> Action | None:
        """Run the steps repeatedly; the output is the last answer of a step.

        Args:
            ctx: The context of the activation.
        """
        after = ctx._origin
        iteration = 0
        while not self.max_iterations or iteration < self.max_iterations:
            action, after = await self._run_steps(ctx, after, round=f"{iteration}.")
            if type(action) is BreakLoop:
                return None
            if action is not None:
                return action
            iteration += 1
            # Let other tasks run: steps that never wait would block them and could not be cancelled.
            await asyncio.sleep(0)
        return None


class BreakLoopTool:
    """A tool that ends the innermost loop around the calling agent, once that agent is done."""

    def __init__(self) -> None:
        self.spec = ToolSpec(
            "break_loop",
            "End the loop you are working in, because what it is for is done. Nothing in it runs again after you.",
            {"type": "object", "properties": {}, "required": [], "additionalProperties": False},
            strict=True,
        )

    async def call(self, ctx: RunContext[Any], arguments: str) -> ToolResult:
        """Request the end of the loop."""
        return ToolResult("The loop ends when you are done.", breaks_loop=True)

    def __repr__(self) -> str:
        return "break_loop_tool"


break_loop_tool = BreakLoopTool()
"""Give it to an agent in a `LoopAgent`: `Agent("Critic", tools=[break_loop_tool])`."""
