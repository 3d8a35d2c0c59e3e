"""Guardrails: checks that return a verdict, run once and recorded.

All guardrails of one stage run concurrently and all of them finish, so that the one that stops a run does not depend
on timing. A recorded verdict is final: a resumed run does not call the guardrail again.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from inspect import isawaitable, signature
from time import time
from typing import Any, Literal, TypeAlias, cast, overload

import msgspec
from msgspec import Struct

from .._checks import check_arguments
from .._wording import show
from ..context import RunContext
from ..context.cancellation import as_failure
from ..context.run_context import most_severe
from ..context.values import to_json_value
from ..errors import GuardrailFailedError, GuardrailTrippedError, RemoteError, RunError, SetupError, StoreError
from ..log import StepCompleted, ValueChanges, keys
from ..messages.valid_text import with_valid_text

Stage: TypeAlias = Literal["input", "output", "tool"]

_VALID_RESULTS = "return GuardrailVerdict(…), True or None to pass, or False to stop"


class GuardrailVerdict(Struct, frozen=True, omit_defaults=True):
    """The verdict of a guardrail."""

    passed: bool
    """True if the check passed."""
    reason: str = ""
    """Why it did not pass."""
    info: Any = None
    """Details for readers of the run's result; any JSON value."""


GuardrailReturn: TypeAlias = GuardrailVerdict | bool | None
GuardrailFunction: TypeAlias = Callable[[RunContext[Any], Any], GuardrailReturn | Awaitable[GuardrailReturn]]
"""A check `(ctx, value) -> verdict`, sync or async; the verdict may be a bool or None."""


class Guardrail(Struct, frozen=True):
    """A check with a name; calling it calls the check."""

    name: str
    """The name under which its verdict is recorded."""
    check: GuardrailFunction
    """The function that returns the verdict."""
    parallel: bool = False
    """True if it runs during the agent's first model call, as an input guardrail."""

    def __call__(self, ctx: RunContext[Any], value: Any) -> GuardrailReturn | Awaitable[GuardrailReturn]:
        return self.check(ctx, value)


Guardrails: TypeAlias = tuple[Guardrail, ...]


@overload
def guardrail(check: GuardrailFunction, /, *, name: str = "", parallel: bool = False) -> Guardrail: ...
@overload
def guardrail(*, name: str = "", parallel: bool = False) -> Callable[[GuardrailFunction], Guardrail]: ...
@check_arguments
def guardrail(
    check: GuardrailFunction | None = None, /, *, name: str = "", parallel: bool = False
) -> Guardrail | Callable[[GuardrailFunction], Guardrail]:
    """Give a check a name or options: `@guardrail(name="no secrets")`.

    Args:
        check: A function `(ctx, value)` that returns a `GuardrailVerdict`, a bool or None.
        name: The name under which verdicts are recorded; by default the function's name.
        parallel: Whether it runs during the agent's first model call instead of before it, as an input guardrail. The
            response is held back until it has passed.
    """
    if check is None:
        return lambda check: _to_guardrail(check, name, parallel=parallel)
    return _to_guardrail(check, name, parallel=parallel)


def to_guardrails(owner: str, **lists: Sequence[GuardrailFunction]) -> tuple[Guardrails, ...]:
    """Convert lists of checks, given by parameter name, to guardrails."""
    guardrails: list[Guardrails] = []
    for parameter, checks in lists.items():
        if not isinstance(checks, list | tuple):
            raise SetupError(
                f"{owner} has {parameter}={show(checks)}; give a list of guardrails, also for a single one"
            )
        guardrails.append(tuple(_to_guardrail(check, "") for check in checks))
    return tuple(guardrails)


def reject_duplicate_names(owner: str, guardrails: Sequence[Guardrail]) -> None:
    """Raise SetupError if two guardrails would record their verdicts under the same name."""
    seen: set[str] = set()
    for each in guardrails:
        if each.name in seen:
            raise SetupError(
                f"{owner} has two guardrails called `{each.name}` (those inside a wrapper count too); "
                "give one of them another name with guardrail(…, name=…)"
            )
        seen.add(each.name)


class GuardrailChecks(Struct):
    """The guardrails of one stage in one scope of a run."""

    _guardrails: Sequence[Guardrail]
    _ctx: RunContext[Any]
    _stage: Stage
    _scope: str = ""
    """Where the verdicts are recorded; by default in the scope of the context."""

    @property
    def are_decided(self) -> bool:
        """True if nothing is left to check: every verdict is recorded, or a negative one is."""
        recorded = self.verdicts() if self._ctx._run.log.has_past else []
        return len(recorded) == len(self._guardrails) or not all(event.result["passed"] for event in recorded)

    async def enforce(self, value: Any, *, on_trip: Callable[[], object] | None = None) -> None:
        """Raise GuardrailTrippedError unless all guardrails pass."""
        error = await self.run(value, on_trip=on_trip)
        if error is not None:
            raise error

    async def run(self, value: Any, *, on_trip: Callable[[], object] | None = None) -> GuardrailTrippedError | None:
        """Return the error of the first guardrail that does not pass; None if all pass."""
        missing: list[Guardrail] = []
        for each in self._guardrails:
            verdict = self._recorded(each)
            if verdict is None:
                missing.append(each)
            elif not verdict.passed:
                return self._to_error(each, verdict)
        pending = [self._check(each, value, on_trip) for each in missing]
        results: list[GuardrailVerdict | BaseException] = await asyncio.gather(*pending, return_exceptions=True)
        for each, verdict in zip(missing, results, strict=True):
            if isinstance(verdict, GuardrailVerdict) and not verdict.passed:
                for other in missing:
                    # The value is rejected whatever the answer to another guardrail's question.
                    self._ctx._run.forget_open_calls(self._key(other))
                return self._to_error(each, verdict)
        raised = [error for error in results if isinstance(error, BaseException)]
        if raised:
            raise most_severe(raised)
        return None

    def recall(self) -> None:
        """Repeat what recorded checks have changed, without calling any guardrail."""
        for each in self._guardrails:
            self._recorded(each)

    def verdicts(self) -> list[StepCompleted]:
        """Return the recorded verdicts."""
        events = [self._ctx._run.log.peek(self._key(each)) for each in self._guardrails]
        return [event for event in events if isinstance(event, StepCompleted)]

    def _step_name(self, guardrail: Guardrail) -> str:
        return f"{keys.GUARDRAIL}{self._stage}:{guardrail.name}"

    def _key(self, guardrail: Guardrail) -> str:
        return keys.inside(self._scope or self._ctx._scope, self._step_name(guardrail))

    def _context_for(self, guardrail: Guardrail) -> RunContext[Any]:
        # Its own scope: its interrupts and steps are counted apart from those of concurrent guardrails.
        return RunContext(self._ctx._run, self._ctx._origin, self._key(guardrail), self._ctx.tool_call)

    def _recorded(self, guardrail: Guardrail) -> GuardrailVerdict | None:
        log = self._ctx._run.log
        event = log.find(self._key(guardrail), StepCompleted) if log.has_past else None
        if event is None:
            return None
        self._context_for(guardrail)._apply_changes(event.value_changes)
        self._record_changes(event.value_changes)
        return msgspec.convert(event.result, GuardrailVerdict)

    def _record_changes(self, changes: ValueChanges | None) -> None:
        # Once a tool call is recorded as a whole, events inside it are not read again.
        if self._ctx.tool_call is not None:
            copy_changes(self._ctx, changes)

    async def _check(self, guardrail: Guardrail, value: Any, on_trip: Callable[[], object] | None) -> GuardrailVerdict:
        ctx = self._context_for(guardrail)
        log = ctx._run.log
        log.announce(ctx._scope, StepCompleted)
        try:
            returned = guardrail.check(ctx, value)
            verdict = _to_verdict(await returned if isawaitable(returned) else returned, guardrail.name)
        except (SetupError, RunError, StoreError, RemoteError):
            raise
        except asyncio.CancelledError as error:
            raise self._failure(guardrail, as_failure(ctx._run, error)) from error
        except Exception as error:
            raise self._failure(guardrail, error) from error
        if ctx._run.has_open_calls:
            ctx._run.check_ended(f"guardrail `{guardrail.name}`", ctx._scope)
        name = self._step_name(guardrail)
        changes = ctx._take_changes()
        log.write(
            StepCompleted(ctx._scope, ctx._origin, time(), name, with_valid_text(msgspec.to_builtins(verdict)), changes)
        )
        self._record_changes(changes)
        if on_trip is not None and not verdict.passed:
            on_trip()
        await log.settle()
        return verdict

    def _failure(self, guardrail: Guardrail, error: Exception) -> GuardrailFailedError:
        reason = f"{type(error).__name__}: {error}".removesuffix(": ")
        return GuardrailFailedError(guardrail.name, self._ctx.agent, stage=self._stage, reason=reason)

    def _to_error(self, guardrail: Guardrail, verdict: GuardrailVerdict) -> GuardrailTrippedError:
        return GuardrailTrippedError(
            guardrail.name,
            self._ctx.agent,
            stage=self._stage,
            reason=verdict.reason,
            verdict=verdict,
            tool=self._ctx.tool_call.name if self._ctx.tool_call is not None else "",
        )


def copy_changes(ctx: RunContext[Any], changes: ValueChanges | None) -> None:
    """Copy value changes into a context, so that its own effect records them too."""
    if changes is not None:
        ctx.values.update(changes.written)
        for name in changes.removed:
            ctx.values.delete(name)


def parse_verdict(event: StepCompleted) -> tuple[Stage, str, GuardrailVerdict] | None:
    """Return the stage, guardrail name and verdict of an event; None for other events."""
    # A step of the application may have such a name too, but its key differs.
    if not event.name.startswith(keys.GUARDRAIL) or not keys.ends_with(event.key, event.name):
        return None
    stage, _, guardrail = event.name.removeprefix(keys.GUARDRAIL).partition(":")
    return cast(Stage, stage), guardrail, msgspec.convert(event.result, GuardrailVerdict)


def _to_guardrail(check: Any, name: str, *, parallel: bool = False) -> Guardrail:
    if isinstance(check, Guardrail) and not name:
        return msgspec.structs.replace(check, parallel=check.parallel or parallel)
    if not callable(check) or isinstance(check, type):
        raise SetupError(f"{show(check)} is not a guardrail; give a function (ctx, value) that returns a verdict")
    recorded_name: Any = name or getattr(check, "name", "") or getattr(check, "__name__", type(check).__name__)
    if not isinstance(recorded_name, str) or recorded_name == "<lambda>":
        raise SetupError(f"guardrail {show(check)} has no name to record its verdict under; use guardrail(…, name=…)")
    try:
        signature(check).bind(None, None)
    except TypeError:
        message = f"guardrail `{recorded_name}` must take two arguments: the context and the value to check"
        raise SetupError(message) from None
    except ValueError:
        pass  # Some callables have no signature; the first call shows whether they fit.
    is_parallel = parallel or (isinstance(check, Guardrail) and check.parallel)
    return Guardrail(recorded_name, cast(GuardrailFunction, check), is_parallel)


def _to_verdict(returned: Any, name: str) -> GuardrailVerdict:
    match returned:
        case None:
            return GuardrailVerdict(True)
        case bool():
            return GuardrailVerdict(returned)
        case GuardrailVerdict(passed=bool(), reason=str()):
            info = to_json_value(f"the info in the verdict of guardrail `{name}`", returned.info)
            return msgspec.structs.replace(returned, info=info)
        case _:
            raise SetupError(f"guardrail `{name}` returned {show(returned)}; {_VALID_RESULTS}")
