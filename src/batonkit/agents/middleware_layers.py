"""Middleware as layers around model calls and tool calls."""

import sys
from collections.abc import Callable
from time import time
from typing import Any, Generic, cast

import msgspec
from msgspec import Struct
from typing_extensions import TypeVar

from .._wording import error_text
from ..context import RunContext
from ..context.deferred_calls import must_be_awaited
from ..context.values import to_json_value
from ..errors import RunError, SetupError
from ..log import StepCompleted, ValueChanges, keys
from ..messages import ToolCall, Usage
from ..models import ModelResponse
from ..tools import ToolResult
from ..tools.once import tool_effect
from ..tools.tool_guardrails import copy_changes
from .invocations import ModelCall, ToolInvocation
from .seam import Handler, Layer

AnyCall = TypeVar("AnyCall", ModelCall, ToolInvocation)


class SavedResult(Struct, frozen=True, omit_defaults=True):
    """The result of `next`, recorded before the middleware that called it goes on."""

    response: ModelResponse | None = None
    outcome: ToolResult | None = None
    model_calls: int = 0
    usage: Usage | None = None
    model: str = ""
    error: dict[str, Any] | None = None
    """The exception that `next` raised instead of returning a result."""
    is_tool_error: bool = False
    """True if the tool itself raised it, so that it may become a result that the model reads."""


class _UnrecordedResult(Struct):
    """The result or exception of one call of `next`, until it is recorded."""

    number: int
    result: ModelResponse | ToolResult | Exception
    changes: ValueChanges | None
    call: ModelCall | ToolInvocation
    """The call, with the model calls that it has made."""


async def surround(layer: Layer, position: int, next: Handler[AnyCall, Any], call: AnyCall) -> Any:
    """Call one middleware around a model call or tool call."""
    own = MiddlewareContext(
        call.ctx._run,
        call.ctx._origin,
        keys.middleware(call.key, layer.name, call.suffix),
        call.ctx.tool_call,
        call.ctx if isinstance(call, ModelCall) else call.agent_ctx,
        _name=layer.name,
        _position=position,
        _around=call,
        _next=next,
    )
    returned = await layer.method(own, call.given, own.call_next)
    own.check_returned(returned)
    if isinstance(returned, ToolResult) and isinstance(own._result, ToolResult):
        return returned.of_same_call(own._result)
    return returned


class MiddlewareContext(RunContext[Any], Generic[AnyCall], kw_only=True, eq=False):
    """The context of one middleware in one call, and the calls that it makes with `next`.

    Before a step or interrupt of the middleware, the results of `next` are recorded: a resumed run then gets them from
    the log. Middleware without steps and interrupts leaves nothing in the log.
    """

    _name: str
    _position: int
    _around: AnyCall
    _next: Handler[AnyCall, Any]
    _count: int = 0
    """The number of calls of `next`."""
    _result: ModelResponse | ToolResult | None = None
    """The last result of `next`."""
    _unrecorded: list[_UnrecordedResult] = []

    @must_be_awaited
    async def step(self, name: str, function: Callable[[], Any], *, result_type: Any = None) -> Any:
        """Record the results of `next`, then the step."""
        self._record()
        return await super().step(name, function, result_type=result_type)

    @must_be_awaited
    async def interrupt(self, payload: Any = None, **options: Any) -> Any:
        """Record the results of `next`, then the interrupt."""
        self._record()
        return await super().interrupt(payload, **options)

    async def call_next(self, given: Any) -> Any:
        """Make the call that this middleware is around; its `next`."""
        around = self._around
        log = self._run.log
        self._count = number = self._count + 1
        around.check(given, around.given_type, self._name, "passed to next")
        recorded = log.find(keys.next_result(self._scope, number), StepCompleted) if log.has_past else None
        if recorded is not None:
            self._result = self._restore(recorded)
            return self._result
        suffix = keys.repetition(around.suffix, self._position, number)
        call = around.again(given, suffix, self)
        try:
            returned = await self._next(call)
        except Exception as error:
            # A resumed run must not try again what the middleware has seen fail.
            self._keep(number, error, call)
            raise
        finally:
            around.add(call.model_calls, call.usage, call.model)
        self._result = returned
        self._keep(number, returned, call)
        if _is_once(around):
            self._record()
            await log.settle()
        return returned

    def check_returned(self, returned: Any) -> None:
        """Check what the middleware returned, and pass on its value changes."""
        around = self._around
        run = self._run
        around.check(returned, around.result_type, self._name, "returned")
        if run.has_open_calls:
            run.check_ended(f"middleware `{self._name}`", self._scope)
        copy_changes(around.outer or around.ctx, self._all_changes())

    def _keep(self, number: int, result: Any, call: ModelCall | ToolInvocation) -> None:
        self._unrecorded.append(_UnrecordedResult(number, result, self._take_changes(), call))

    def _record(self) -> None:
        """Record the results of `next` that are not recorded yet, the outer middleware's first."""
        outer = self._around.outer
        if isinstance(outer, MiddlewareContext):
            outer._record()
        for each in self._unrecorded:
            saved = _save(self._around, each)
            plain = to_json_value(f"the result of next at `{self._scope}`", saved)
            key = keys.next_result(self._scope, each.number)
            event = StepCompleted(key, self._origin, time(), keys.name(key), plain, each.changes)
            self._run.log.write(event)
        self._unrecorded = []

    def _restore(self, recorded: StepCompleted) -> ModelResponse | ToolResult:
        """Return or raise what `next` returned or raised, and count what it has spent."""
        saved = msgspec.convert(recorded.result, SavedResult)
        around = self._around
        # Changes made before `next` are recorded with it.
        self._take_changes()
        self._apply_changes(recorded.value_changes)
        for _ in range(saved.model_calls):
            self._run.meter.start_model_call(self._origin)
        around.add(saved.model_calls, saved.usage, saved.model)
        if isinstance(around, ToolInvocation):
            _restore_attempt(around, saved)
        if saved.error is not None:
            raise _error_of(around, saved)
        return cast("ModelResponse | ToolResult", saved.response or saved.outcome)


def _save(call: ModelCall | ToolInvocation, kept: _UnrecordedResult) -> SavedResult:
    """Convert a result to what is recorded: the name of an agent instead of the agent."""
    result = kept.result
    made = kept.call
    response = outcome = error = None
    is_tool_error = False
    if isinstance(result, Exception):
        error = describe_error(result)
        is_tool_error = isinstance(call, ToolInvocation) and result is call.attempts.error
    elif isinstance(result, ModelResponse):
        response = result
    else:
        outcome = _with_target_name(call.ctx, result)
    return SavedResult(response, outcome, made.model_calls, made.usage, made.model, error, is_tool_error)


def _with_target_name(ctx: RunContext[Any], result: ToolResult) -> ToolResult:
    target = result.transfer_to
    if target is None or isinstance(target, str):
        return result
    ctx._run.dynamic_agents[target.name] = target
    return msgspec.structs.replace(result, transfer_to=target.name)


def _restore_attempt(invocation: ToolInvocation, saved: SavedResult) -> None:
    """Count a recorded attempt, and the model calls of an agent as tool."""
    if saved.error is None:
        if not invocation.attempts.executed:
            invocation.ctx._run.recount(invocation.key)
        invocation.attempts.executed += 1


def _error_of(call: ModelCall | ToolInvocation, saved: SavedResult) -> Exception:
    error = restore_error(saved.error)
    if saved.is_tool_error and isinstance(call, ToolInvocation):
        call.attempts.error = error
    return error


def _is_once(call: ModelCall | ToolInvocation) -> bool:
    return isinstance(call, ToolInvocation) and tool_effect(call.tool) == "once"


async def call_in_own_scope(next: Handler[ToolInvocation, ToolResult], invocation: ToolInvocation) -> ToolResult:
    """Give each attempt of middleware a context of its own, inside the innermost middleware.

    A repeated call has a scope of its own, because the steps of the first one are recorded.
    """
    outer = cast("MiddlewareContext[ToolInvocation]", invocation.outer)
    given = invocation.call
    attempts = invocation.attempts
    call = cast("ToolCall", outer.tool_call)
    if given.name != call.name or given.id != call.id:
        raise SetupError(
            f"middleware changed the call `{call.name}` ({call.id}) to `{given.name}` ({given.id}); "
            "only its arguments can be replaced"
        )
    if attempts.executed and _is_once(invocation):
        raise SetupError(f'middleware called `{call.name}` twice, but it has effect="once"; call next only once')
    suffix = invocation.suffix
    scope = keys.inside(invocation.key, f"again{suffix}") if suffix else invocation.key
    inner = RunContext(outer._run, outer._origin, scope, given, invocation.agent_ctx)
    try:
        return await next(msgspec.structs.replace(invocation, ctx=inner))
    finally:
        copy_changes(outer, inner._all_changes())


def describe_error(error: Exception) -> dict[str, Any]:
    """Return what a log keeps of an exception."""
    kind = type(error)
    plain = {name: value for name, value in vars(error).items() if isinstance(value, str | int | float | bool | None)}
    return {"module": kind.__module__, "type": kind.__qualname__, "text": error_text(error), "fields": plain}


def restore_error(recorded: Any) -> Exception:
    """Make the exception that a log describes.

    Only classes that are loaded are used, and no constructor is called.
    """
    kind: Any = sys.modules.get(recorded["module"])
    for name in recorded["type"].split("."):
        kind = getattr(kind, name, None)
    if not isinstance(kind, type) or not issubclass(kind, Exception):
        return RunError(f"{recorded['type']}: {recorded['text']}")
    error = kind.__new__(kind)
    error.args = (recorded["text"],)
    vars(error).update(recorded["fields"])
    return error
