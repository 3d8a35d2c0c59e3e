"""What plan_execute keeps while it works: the plan as a typed value, what was done, and the answer."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from ..agents import AgentContext
from ..agents.definition import OutputParser
from ..errors import OutputError, SetupError
from ..events import Origin
from ..messages import text_of
from ..tools.results import to_tool_result

PLAN_EXECUTE_KEY = "plan_execute"
"""With `:` and the name of the agent: the value under which `plan_execute` leaves its `PlanProgress`."""


@dataclass
class Plan:
    """The steps that are left to do, in order."""

    steps: list[str]


@dataclass
class ParallelPlan:
    """The steps that are left to do, in order. Steps that do not depend on one another stand together in a list."""

    steps: list[str | list[str]]


class CompletedStep(Struct, frozen=True):
    """A step of a plan that was done, and what came of it."""

    step: str
    result: str


class PlanProgress(Struct, frozen=True):
    """How far a plan has come. `is_complete` is False for an answer that is only the best there was at the limit."""

    objective: str
    plan: Any = None
    done: tuple[CompletedStep, ...] = ()
    rounds: int = 0
    answer: str | None = None
    is_complete: bool = False


class PlanState:
    """Where the phases of one plan_execute find and leave its progress: in the run's values.

    While it works, the key names the activation as well: the same agent may be at work twice at once, or inside itself.
    """

    def __init__(self, owner: str, plan_type: Any) -> None:
        self.owner = owner
        self._plan_type = plan_type

    def key(self, ctx: AgentContext[Any]) -> str:
        """The key for the innermost activation of the owner around this one."""
        origin: Origin | None = ctx._origin
        while origin is not None and origin.agent != self.owner:
            origin = origin.parent
        if origin is None:
            raise SetupError(f"`{ctx.agent}` is a part of `{self.owner}` and works only inside it")
        return f"{PLAN_EXECUTE_KEY}:{self.owner}@{origin.id}"

    def read(self, ctx: AgentContext[Any]) -> PlanProgress:
        """How far the plan has come."""
        key = self.key(ctx)
        progress = msgspec.convert(ctx.values[key], PlanProgress)
        done = [msgspec.convert(ctx.values[each], CompletedStep) for each in _keys_of_done(key, ctx.values)]
        return replace(progress, done=tuple(done))

    def write(self, ctx: AgentContext[Any], progress: PlanProgress) -> None:
        """Leave the progress for whoever comes next, all but the steps done."""
        ctx.values.set(self.key(ctx), replace(progress, done=()))

    def note(self, ctx: AgentContext[Any], number: int, done: CompletedStep) -> None:
        """Leave what came of a step. Each has a value of its own: written once, and steps side by side do not meet."""
        ctx.values.set(f"{self.key(ctx)}/{number}", done)

    def conclude(self, ctx: AgentContext[Any], progress: PlanProgress) -> None:
        """Leave the progress for the time after."""
        key = self.key(ctx)
        for each in [key, *_keys_of_done(key, ctx.values)]:
            ctx.values.delete(each)
        ctx.values.set(f"{PLAN_EXECUTE_KEY}:{self.owner}", progress)

    def plan_in(self, output: Any, author: str) -> Any:
        """The plan that an agent came to, a value of the plan's type or JSON of one, as plain data."""
        try:
            return self._reader.dump(self._reader.parse(as_text(output)))
        except ValueError as error:
            raise OutputError(author, f"a `{self._reader.type_name}`", str(error)) from None

    def answer_or_plan_in(self, output: Any, author: str) -> tuple[str | None, Any]:
        """What a replanner came to: `{"response": …}` and plain text are an answer, any other JSON object a plan."""
        text = as_text(output)
        try:
            given = msgspec.json.decode(text)
        except msgspec.DecodeError:
            return text, None
        if not isinstance(given, dict):
            return text, None
        response = cast("dict[str, Any]", given).get("response")
        return (response, None) if isinstance(response, str) else (None, self.plan_in(text, author))

    def steps_of(self, progress: PlanProgress) -> list[list[str]]:
        """The steps that are left: in each place one, or several that do not depend on one another."""
        plan: Any = self._reader.parse(msgspec.json.encode(progress.plan).decode())
        steps: Any = (
            cast("dict[str, Any]", plan).get("steps") if isinstance(plan, dict) else getattr(plan, "steps", None)
        )
        if not isinstance(steps, list | tuple):
            kind = self._reader.type_name
            raise SetupError(f"`{self.owner}` has plan_type={kind}, which has no list `steps`; add a field or property")
        places = [_as_list(place) for place in cast("Sequence[Any]", steps)]
        return [[as_text(step) for step in place] for place in places if place]

    @cached_property
    def _reader(self) -> OutputParser:
        return OutputParser(self.owner, self._plan_type)


def _keys_of_done(key: str, values: Mapping[str, Any]) -> list[str]:
    keys: list[str] = []
    while (each := f"{key}/{len(keys)}") in values:
        keys.append(each)
    return keys


def _as_list(place: Any) -> list[Any]:
    return list(cast("Sequence[Any]", place)) if isinstance(place, list | tuple) else [place]


def as_text(output: Any) -> str:
    """What an agent came to, as text: JSON if it is not text already, nothing if it is nothing."""
    return "" if output is None else text_of(to_tool_result(output, "output").content)
