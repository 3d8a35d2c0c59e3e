"""The state of `plan_execute`: the plan as a typed value, the completed steps, and the answer."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from ..agents import AgentContext
from ..agents.definition import OutputParser
from ..errors import OutputError, SetupError
from ..log import Origin
from ..messages import text_of
from ..tools.results import to_tool_result

PLAN_EXECUTE_KEY = "plan_execute"
"""Prefix of the key of the `PlanProgress` in the run's values; `:` and the name of the agent follow."""


@dataclass
class Plan:
    """A plan: the remaining steps, in order."""

    steps: list[str]
    """The steps."""


@dataclass
class ParallelPlan:
    """A plan with steps that can run in parallel."""

    steps: list[str | list[str]]
    """The steps in order; steps that do not depend on one another are in one list."""


class CompletedStep(Struct, frozen=True):
    """A completed step of a plan."""

    step: str
    """The step."""
    result: str
    """Its result."""


class PlanProgress(Struct, frozen=True):
    """The progress of a plan."""

    objective: str
    """The task, as the conversation states it."""
    plan: Any = None
    """The current plan, as JSON data."""
    done: tuple[CompletedStep, ...] = ()
    """The completed steps."""
    rounds: int = 0
    """The number of replanning rounds."""
    answer: str | None = None
    """The answer, if there is one."""
    is_complete: bool = False
    """False if the answer only summarises the progress at the iteration limit."""


class PlanState:
    """Access to the progress of one plan_execute agent in the run's values.

    During the work the key includes the activation, because the same agent may be active twice.
    """

    def __init__(self, owner: str, plan_type: Any, max_iterations: int) -> None:
        self.owner = owner
        self.max_iterations = max_iterations
        self._parser = OutputParser(owner, plan_type)

    def key(self, ctx: AgentContext[Any]) -> str:
        """Return the key for the innermost activation of the owner."""
        origin: Origin | None = ctx._origin
        while origin is not None and origin.agent != self.owner:
            origin = origin.parent
        if origin is None:
            raise SetupError(f"`{ctx.agent}` is a part of `{self.owner}` and runs only inside it")
        return f"{PLAN_EXECUTE_KEY}:{self.owner}@{origin.id}"

    def read(self, ctx: AgentContext[Any]) -> tuple[PlanProgress, list[list[str]]]:
        """Return the progress and the remaining steps, in groups of independent steps."""
        key = self.key(ctx)
        progress = msgspec.convert(ctx.values[key], PlanProgress)
        done = [msgspec.convert(ctx.values[each], CompletedStep) for each in _step_keys(key, ctx.values)]
        return replace(progress, done=tuple(done)), self._remaining_steps(progress.plan)

    def write(self, ctx: AgentContext[Any], progress: PlanProgress) -> None:
        """Store the progress, except the completed steps."""
        ctx.values.set(self.key(ctx), replace(progress, done=()))

    def add_step(self, ctx: AgentContext[Any], number: int, done: CompletedStep) -> None:
        """Store a completed step under a key of its own, so that parallel steps do not conflict."""
        ctx.values.set(f"{self.key(ctx)}/{number}", done)

    def conclude(self, ctx: AgentContext[Any], progress: PlanProgress) -> None:
        """Store the final progress and delete the intermediate state."""
        key = self.key(ctx)
        for each in [key, *_step_keys(key, ctx.values)]:
            ctx.values.delete(each)
        ctx.values.set(f"{PLAN_EXECUTE_KEY}:{self.owner}", progress)

    def parse_plan(self, output: Any, author: str) -> Any:
        """Return the plan in an agent's output, as JSON data.

        Raises:
            OutputError: The output is not a plan.
        """
        try:
            return self._parser.dump(self._parser.parse(as_text(output)))
        except ValueError as error:
            raise OutputError(author, f"a `{self._parser.type_name}`", str(error)) from None

    def parse_answer_or_plan(self, output: Any, author: str) -> tuple[str | None, Any]:
        """Return the answer or the plan in a replanner's output.

        Plain text and `{"response": …}` are an answer, any other JSON object is a plan.
        """
        text = as_text(output)
        try:
            given = msgspec.json.decode(text)
        except msgspec.DecodeError:
            return text, None
        if not isinstance(given, dict):
            return text, None
        response = cast("dict[str, Any]", given).get("response")
        return (response, None) if isinstance(response, str) else (None, self.parse_plan(text, author))

    def _remaining_steps(self, plan: Any) -> list[list[str]]:
        parsed: Any = self._parser.parse(msgspec.json.encode(plan).decode())
        fields = (
            cast("dict[str, Any]", parsed) if isinstance(parsed, dict) else {"steps": getattr(parsed, "steps", None)}
        )
        steps: Any = fields.get("steps")
        if not isinstance(steps, list | tuple):
            kind = self._parser.type_name
            raise SetupError(f"`{self.owner}` has plan_type={kind}, which has no list `steps`; add a field or property")
        groups = [_as_list(group) for group in cast("Sequence[Any]", steps)]
        return [[as_text(step) for step in group] for group in groups if group]


def _step_keys(plan: str, values: Mapping[str, Any]) -> list[str]:
    found: list[str] = []
    while (each := f"{plan}/{len(found)}") in values:
        found.append(each)
    return found


def _as_list(group: Any) -> list[Any]:
    return list(cast("Sequence[Any]", group)) if isinstance(group, list | tuple) else [group]


def as_text(output: Any) -> str:
    """Convert an agent's output to text: JSON unless it is text, "" for None."""
    return "" if output is None else text_of(to_tool_result(output, "output").content)
