"""The three agents that plan_execute works with, ready made. Each may be replaced by any agent."""

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, Literal

import msgspec

from ..agents import Agent
from ..context import RunContext
from ..errors import check_choice
from ..handoffs import HandoffInputParser
from ..messages import ToolSpec
from ..models import Model
from ..tools import Tool, ToolResult, tool
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
        return ToolSpec("plan", self._description, self._reader.schema, strict=True)

    async def call(self, ctx: RunContext[Any], arguments: str) -> ToolResult:
        """Take the plan, if it fits its type."""
        try:
            plan = self._reader.dump(self._reader.read(arguments))
        except ValueError as error:
            return ToolResult(f"This is not a plan: {error}. Correct it and call `plan` again.", is_error=True)
        return ToolResult(msgspec.json.encode(plan).decode(), is_final=True)

    @cached_property
    def _reader(self) -> HandoffInputParser:
        return HandoffInputParser("plan", self._plan_type, what="the plan_type")


@tool(return_directly=True)
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
    method: Literal["output", "tool"] = "output",
) -> Agent[Any, Any]:
    """An agent that makes a plan of what it is asked: by structured output, or by a tool `plan` it must call."""
    check_choice(f"by of make_planner(name={name!r})", method, ("output", "tool"))
    if method == "output":
        return Agent(name, model=model, instructions=instructions, output_type=plan_type)
    plan = PlanTool(plan_type, "Give the plan: the steps that lead to the objective.")
    return Agent(name, model=model, instructions=instructions, tools=[plan], tool_choice="plan")


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
    return Agent(name, model=model, instructions=instructions, tools=[plan, respond], tool_choice="required")
