"""A tool with guardrails around it: some judge the arguments before it is called, some what came out of it."""

from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeAlias

import msgspec

from ..context import RunContext, to_json_value
from ..errors import GuardrailTrippedError, SetupError
from ..events import ValueChanges
from .base import Tool, ToolResult
from .checking import checker_of
from .failures import NOT_FOR_THE_MODEL, outcome_of_error
from .function import tool as as_tool
from .verdicts import Guardrail, GuardrailChecks, GuardrailFunction, as_guardrails, refuse_same_names, write_again
from .wrapping import ToolWrapper

TripPolicy: TypeAlias = Literal["return", "raise"]
"""Tell the model what was not allowed and why, or end the run."""


class _Result(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a call came to before it was judged, and what it did to the values."""

    outcome: ToolResult
    changes: ValueChanges | None = None


class GuardedTool(ToolWrapper):
    """Has calls of a tool, and their results, judged. It is asked before any person who must approve the call."""

    def __init__(
        self, inner: Tool, before: tuple[Guardrail, ...], after: tuple[Guardrail, ...], *, on_trip: TripPolicy
    ) -> None:
        super().__init__(inner)
        self.before = before
        self.after = after
        self.on_trip: TripPolicy = on_trip
        self._checked = checker_of(inner)

    async def call(self, ctx: RunContext[Any], arguments: str) -> ToolResult:
        """Do it and give what came of it, or say which guardrail was against it."""
        if self.before:
            given = self._checked(arguments)
            # Arguments that do not fit go back to the model: there is nothing to judge yet.
            if isinstance(given, ToolResult):
                return given
            trip = await GuardrailChecks(self.before, ctx, "tool").trip(given)
            if trip is not None:
                return self._refusal(trip, f"This call of `{self.spec.name}` was not made")
        if not self.after:
            return await self.inner.call(ctx, arguments)
        # Recorded before it is judged: else a resumed run might call the tool again, get something else, and take the
        # verdict on the first result for one on the second.
        result = msgspec.convert(await ctx.step("unjudged", lambda: self._unjudged(ctx, arguments)), _Result)
        write_again(ctx, result.changes)
        outcome = result.outcome
        trip = await GuardrailChecks(self.after, ctx, "tool").trip(outcome)
        return outcome if trip is None else self._refusal(trip, f"The result of `{self.spec.name}` is withheld")

    async def _unjudged(self, ctx: RunContext[Any], arguments: str) -> Any:
        try:
            outcome = await self.inner.call(ctx, arguments)
        except NOT_FOR_THE_MODEL:
            raise
        except Exception as error:  # noqa: BLE001 - the model would read it, so it is judged like any other result
            outcome = outcome_of_error(error, self.spec.name, policy="return")
        target = outcome.transfer_to
        if target is not None and not isinstance(target, str):
            # A log holds names only; the run knows who is meant.
            ctx._run.guests[target.name] = target
            outcome = msgspec.structs.replace(outcome, transfer_to=target.name)
        return to_json_value(f"the result of `{self.spec.name}`", _Result(outcome, ctx._take_changes()))

    def _refusal(self, trip: GuardrailTrippedError, what: str) -> ToolResult:
        if self.on_trip == "raise":
            raise trip
        because = f": {trip.reason}" if trip.reason else ""
        return ToolResult(f"{what}, because guardrail `{trip.guardrail}` is against it{because}", is_error=True)


def with_tool_guardrails(
    tool: Tool | Callable[..., Any],
    *,
    input_guardrails: Sequence[GuardrailFunction] = (),
    output_guardrails: Sequence[GuardrailFunction] = (),
    on_trip: TripPolicy = "return",
) -> GuardedTool:
    """The tool, with guardrails `before` (ctx, arguments) and `after` (ctx, outcome) each call.

    A no is told to the model, which may try something else; with `on_trip="raise"` it ends the run.
    """
    given: Any = tool
    inner: Tool = given if callable(getattr(given, "call", None)) else _made_of(given)
    owner = f"guarded_tool({inner!r})"
    if on_trip not in ("return", "raise"):
        raise SetupError(f'{owner} has on_trip={on_trip!r}; use "return" or "raise"')
    first, then = as_guardrails(owner, input_guardrails=input_guardrails, output_guardrails=output_guardrails)
    refuse_same_names(owner, [*first, *then, *_guardrails_inside(inner)])
    return GuardedTool(inner, first, then, on_trip=on_trip)


def _made_of(given: Any) -> Tool:
    if not callable(given):
        raise SetupError(f"guarded_tool({given!r}) has nothing to guard; give a tool or a function")
    return as_tool(given)


def _guardrails_inside(tool: Any) -> list[Guardrail]:
    found: list[Guardrail] = []
    while tool is not None:
        if isinstance(tool, GuardedTool):
            found += [*tool.before, *tool.after]
        tool = getattr(tool, "inner", None)
    return found
