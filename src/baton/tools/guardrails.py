"""What a guardrail is and what it says: a function of what it guards that gives a verdict, asked once and recorded.

Guardrails of one place are asked at once and all of them are heard, so that which one stops a run does not depend on
who is faster. A verdict that is recorded is final: a resumed run neither asks again nor hears another.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from inspect import isawaitable, signature
from time import time
from typing import Any, Literal, TypeAlias, cast, overload

import msgspec
from msgspec import Struct

from ..context import RunContext
from ..context.run_context import SuspendRun
from ..context.values import to_json_value
from ..errors import GuardrailFailedError, GuardrailTrippedError, RunError, SetupError
from ..events import StepCompleted, ValueChanges

Stage: TypeAlias = Literal["input", "output", "tool"]
PREFIX = "guardrail:"
"""What the names of recorded verdicts begin with; the stage and the guardrail's name follow."""

_WORKS = "return Verdict(…), True to let it pass, False to stop it, or None to let it pass"


class GuardrailVerdict(Struct, frozen=True, omit_defaults=True):
    """What a guardrail says. `info` is for whoever reads the result: anything that JSON can hold."""

    passed: bool
    reason: str = ""
    info: Any = None


GuardrailReturn: TypeAlias = GuardrailVerdict | bool | None
GuardrailFunction: TypeAlias = Callable[[RunContext[Any], Any], GuardrailReturn | Awaitable[GuardrailReturn]]
"""A guardrail as one writes it: what the context is, what it guards, and what it says to that."""


class Guardrail(Struct, frozen=True):
    """A check with a name, under which its verdict is recorded. It is called like the check it is made of."""

    name: str
    check: GuardrailFunction

    def __call__(self, ctx: RunContext[Any], given: Any) -> GuardrailReturn | Awaitable[GuardrailReturn]:
        return self.check(ctx, given)


@overload
def guardrail(check: GuardrailFunction, /, *, name: str = "") -> Guardrail: ...
@overload
def guardrail(*, name: str = "") -> Callable[[GuardrailFunction], Guardrail]: ...
def guardrail(
    check: GuardrailFunction | None = None, /, *, name: str = ""
) -> Guardrail | Callable[[GuardrailFunction], Guardrail]:
    """A guardrail with a name, the function's own by default: `@guardrail(name="no secrets")`."""
    if check is None:
        return lambda check: _named(check, name)
    return _named(check, name)


def as_guardrails(owner: str, **lists: Sequence[GuardrailFunction]) -> tuple[tuple[Guardrail, ...], ...]:
    """What stands in these lists as guardrails. Raises SetupError if something else does, or two have one name."""
    found: list[tuple[Guardrail, ...]] = []
    for word, given in lists.items():
        if not isinstance(given, list | tuple):
            raise SetupError(f"{owner} has {word}={given!r}; give a list of guardrails, also for a single one")
        found.append(tuple(_named(entry, "") for entry in given))
    return tuple(found)


def refuse_same_names(owner: str, guardrails: Sequence[Guardrail]) -> None:
    """Raise SetupError if two guardrails would record their verdicts under the same name."""
    seen: set[str] = set()
    for each in guardrails:
        if each.name in seen:
            raise SetupError(
                f"{owner} has two guardrails called `{each.name}`, wrappers inside it included; "
                "give one of them another name with guardrail(…, name=…)"
            )
        seen.add(each.name)


class GuardrailChecks:
    """The guardrails of one stage, at one place in a run."""

    __slots__ = ("_ctx", "_guardrails", "_stage")

    def __init__(self, guardrails: Sequence[Guardrail], ctx: RunContext[Any], stage: Stage) -> None:
        self._guardrails = guardrails
        self._ctx = ctx
        self._stage: Stage = stage

    @property
    def are_recorded(self) -> bool:
        """Whether there is nobody left to ask."""
        log = self._ctx._run.log
        return not self._guardrails or (log.has_past and all(log.has(self._key(each)) for each in self._guardrails))

    async def enforce(self, given: Any, *, on_trip: Callable[[], object] | None = None) -> None:
        """Return if all let it pass. Raises GuardrailTrippedError if one does not."""
        trip = await self.trip(given, on_trip=on_trip)
        if trip is not None:
            raise trip

    async def trip(self, given: Any, *, on_trip: Callable[[], object] | None = None) -> GuardrailTrippedError | None:
        """The first guardrail's no, in the order they are listed. `on_trip` is called as soon as there is any no."""
        missing: list[Guardrail] = []
        for each in self._guardrails:
            verdict = self._recorded(each)
            if verdict is None:
                missing.append(each)
            elif not verdict.passed:
                return self._tripped(each, verdict)
        asked = [self._asked(each, given, on_trip) for each in missing]
        ended: list[GuardrailVerdict | BaseException] = await asyncio.gather(*asked, return_exceptions=True)
        for each, verdict in zip(missing, ended, strict=True):
            if isinstance(verdict, GuardrailVerdict) and not verdict.passed:
                return self._tripped(each, verdict)
        raised = [error for error in ended if isinstance(error, BaseException)]
        if raised:
            raise next((error for error in raised if not isinstance(error, SuspendRun)), raised[0])
        return None

    def _key(self, guardrail: Guardrail) -> str:
        return f"{self._ctx._scope}/{PREFIX}{self._stage}:{guardrail.name}"

    def _place_of(self, guardrail: Guardrail) -> RunContext[Any]:
        # A place of its own: its questions and steps are counted apart from those of whoever is asked beside it.
        return RunContext(self._ctx._run, self._ctx._origin, self._key(guardrail), self._ctx.tool_call)

    def _recorded(self, guardrail: Guardrail) -> GuardrailVerdict | None:
        log = self._ctx._run.log
        event = log.find(self._key(guardrail), StepCompleted) if log.has_past else None
        if event is None:
            return None
        self._place_of(guardrail)._apply_changes(event.value_changes)
        self._keep(event.value_changes)
        return msgspec.convert(event.result, GuardrailVerdict)

    def _keep(self, changes: ValueChanges | None) -> None:
        # What happens inside a tool call is not looked for any more once the call is recorded as a whole.
        if self._ctx.tool_call is not None:
            write_again(self._ctx, changes)

    async def _asked(self, guardrail: Guardrail, given: Any, on_trip: Callable[[], object] | None) -> GuardrailVerdict:
        ctx, own, log = self._ctx, self._place_of(guardrail), self._ctx._run.log
        log.announce(own._scope, StepCompleted)
        try:
            ruling = guardrail.check(own, given)
            verdict = _verdict(await ruling if isawaitable(ruling) else ruling, guardrail.name)
        except (SetupError, RunError):
            raise
        except Exception as error:
            because = f"{type(error).__name__}: {error}".removesuffix(": ")
            raise GuardrailFailedError(guardrail.name, ctx.agent, stage=self._stage, reason=because) from error
        name, changes = f"{PREFIX}{self._stage}:{guardrail.name}", own._take_changes()
        log.write(StepCompleted(own._scope, ctx._origin, time(), name, msgspec.to_builtins(verdict), changes))
        self._keep(changes)
        if on_trip is not None and not verdict.passed:
            on_trip()
        await log.settle()
        return verdict

    def _tripped(self, guardrail: Guardrail, verdict: GuardrailVerdict) -> GuardrailTrippedError:
        return GuardrailTrippedError(
            guardrail.name,
            self._ctx.agent,
            stage=self._stage,
            reason=verdict.reason,
            verdict=verdict,
            tool=self._ctx.tool_call.name if self._ctx.tool_call is not None else "",
        )


def write_again(ctx: RunContext[Any], changes: ValueChanges | None) -> None:
    """Let what a part of an effect did to the values be recorded with the whole of it, too."""
    if changes is not None:
        ctx.values.update(changes.written)
        for name in changes.removed:
            ctx.values.delete(name)


def verdict_in(event: StepCompleted) -> tuple[Stage, str, GuardrailVerdict] | None:
    """The stage, the guardrail and the verdict that the event records; None if it records something else."""
    # A step of the application may have such a name too, but its key says that it is a step.
    if not event.name.startswith(PREFIX) or not event.key.endswith(f"/{event.name}"):
        return None
    stage, _, guardrail = event.name.removeprefix(PREFIX).partition(":")
    return cast(Stage, stage), guardrail, msgspec.convert(event.result, GuardrailVerdict)


def _named(check: Any, name: str) -> Guardrail:
    if isinstance(check, Guardrail) and not name:
        return check
    if not callable(check) or isinstance(check, type):
        raise SetupError(f"{check!r} is no guardrail; give a function (ctx, what it guards) that gives a verdict")
    called: Any = name or getattr(check, "name", "") or getattr(check, "__name__", type(check).__name__)
    if not isinstance(called, str) or called == "<lambda>":
        raise SetupError(f"the guardrail {check!r} has no name to record its verdict under; use guardrail(…, name=…)")
    try:
        signature(check).bind(None, None)
    except TypeError:
        raise SetupError(f"the guardrail `{called}` must take two arguments: the context, and what it guards") from None
    except ValueError:
        pass  # Some callables have no signature to look at; they show at the first call whether they fit.
    return Guardrail(called, cast(GuardrailFunction, check))


def _verdict(ruling: Any, name: str) -> GuardrailVerdict:
    """The verdict as it will be read back from the log."""
    match ruling:
        case None:
            return GuardrailVerdict(True)
        case bool():
            return GuardrailVerdict(ruling)
        case GuardrailVerdict(passed=bool(), reason=str()):
            info = to_json_value(f"the info in the verdict of guardrail `{name}`", ruling.info)
            return msgspec.structs.replace(ruling, info=info)
        case _:
            raise SetupError(f"guardrail `{name}` returned {ruling!r}; {_WORKS}")
