"""The three agents that plan_execute works with, ready made. Each may be replaced by any agent."""

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, Literal

import msgspec

from ..agents import Agent
from ..context import RunContext
from ..errors import checked_choice
from ..handoffs import InputReader
from ..messages import ToolSpec
from ..models import Model
from ..tools import Tool, ToolOutcome, tool
from .briefs import EXECUTOR, PLANNER, REPLANNER
from .plans import Plan


class PlanTool:
    """The tool `plan`: its arguments are the plan, and the plan is the answer of the agent that calls it."""

    def __init__(self, plan_type: Any, description: str) -> None:
        self._plan_type = plan_type
        self._description = description

    @property
    def spec(self) -> ToolSpec:
        """What the model is told."""
        return ToolSpec("plan", self._description, self._reader.schema, is_strict=True)

    async def call(self, ctx: RunContext[Any], arguments: str) -> ToolOutcome:
        """Take the plan, if it fits its type."""
        try:
            plan = self._reader.dump(self._reader.read(arguments))
        except ValueError as error:
            return ToolOutcome(f"This is not a plan: {error}. Correct it and call `plan` again.", is_error=True)
        return ToolOutcome(msgspec.json.encode(plan).decode(), is_final=True)

    @cached_property
    def _reader(self) -> InputReader:
        return InputReader("plan", self._plan_type, what="the plan_type")


@tool(returns_directly=True)
async def respond(response: str) -> dict[str, str]:
    """Give the user the final answer. Nothing is done after it.

    Args:
        response: The answer, complete, as the user will read it.
    """
    return {"response": response}


def make_planner(
    model: Model | str | None = None,
    *,
    name: str = "Planner",
    instructions: str = PLANNER,
    plan_type: Any = Plan,
    by: Literal["output", "tool"] = "output",
) -> Agent[Any, Any]:
    """An agent that makes a plan of what it is asked: by structured output, or by a tool `plan` it must call."""
    checked_choice(f"by of make_planner(name={name!r})", by, ("output", "tool"))
    if by == "output":
        return Agent(name, model=model, instructions=instructions, output_type=plan_type)
    plan = PlanTool(plan_type, "Give the plan: the steps that lead to the objective.")
    return Agent(name, model=model, instructions=instructions, tools=[plan], tool_use="plan")


def make_executor(
    model: Model | str | None = None,
    tools: Sequence[Tool | Callable[..., Any]] = (),
    *,
    name: str = "Executor",
    instructions: str = EXECUTOR,
    max_turns: int = 20,
) -> Agent[Any, str]:
    """An agent that carries out one step of a plan with these tools."""
    return Agent(name, model=model, instructions=instructions, tools=tools, max_turns=max_turns)


def make_replanner(
    model: Model | str | None = None,
    *,
    name: str = "Replanner",
    instructions: str = REPLANNER,
    plan_type: Any = Plan,
) -> Agent[Any, str]:
    """An agent that calls `plan` with the steps that are left, or `respond` with the answer."""
    plan = PlanTool(plan_type, "Go on, with these steps: those that are still to be done, and no others.")
    return Agent(name, model=model, instructions=instructions, tools=[plan, respond], tool_use="required")
