"""Execution of middleware: chains of model calls and tool calls."""

import sys
from collections.abc import Callable, Coroutine
from functools import partial
from time import time
from typing import Any, ClassVar, Generic, cast

import msgspec
from msgspec import Struct
from msgspec.structs import replace
from typing_extensions import TypeVar

from ..context import RunContext
from ..context.values import to_json_value
from ..errors import RunError, SetupError
from ..events import (
    Delta,
    Event,
    ReasoningDelta,
    ResponseRestarted,
    StepCompleted,
    TextDelta,
    ToolCallDelta,
    ValueChanges,
)
from ..log import DeltaSink
from ..messages import AssistantMessage, ToolCall, Usage, text_of
from ..models import ModelRequest, ModelResponse
from ..tools import Tool, ToolResult
from ..tools.guardrails import copy_changes
from ..tools.wrappers import tool_effect
from ..wording import error_text, show
from .middleware import Layer

Given = TypeVar("Given")
Returned = TypeVar("Returned")


class _SavedResult(Struct, frozen=True, omit_defaults=True):
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


class _KeptResult(Struct):
    """The result of one call of `next`: what it returned or raised, and what it has spent."""

    number: int
    result: Any
    changes: ValueChanges | None
    model_calls: int
    usage: Usage | None
    model: str


class MiddlewareContext(RunContext[Any], kw_only=True, eq=False):
    """The context of one middleware in one call, and the calls that it makes with `next`.

    Before a step or interrupt, the results of `next` are recorded.
    """

    # One object for the context and `next`: two would refer to each other, and be freed by the garbage collector only.
    _chain: "CallChain[Any, Any]"
    _position: int = 1
    """The position of the middleware that `next` calls."""
    _suffix: str = ""
    _outer: "MiddlewareContext | None" = None
    _count: int = 0
    """The number of calls of `next`."""
    _first: ModelResponse | Exception | None = None
    """The result of the first `next`, if it called the model directly."""
    _model_calls: int = 0
    _usage: Usage | None = None
    _model: str = ""
    """The name of the model that was called last."""
    _merged_calls: int = 0
    """The model calls of all calls of `next` but the direct one."""
    _unrecorded: list[_KeptResult] | None = None

    @property
    def _scope(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride] - made when it is needed only
        chain = self._chain
        return f"{chain.key}/mw:{chain.layers[self._position - 1].name}{self._suffix}"

    async def step(self, name: str, function: Callable[[], Any], *, result_type: Any = None) -> Any:
        """Record the results of `next`, then the step."""
        self._record()
        return await super().step(name, function, result_type=result_type)

    async def interrupt(self, payload: Any = None, **options: Any) -> Any:
        """Record the results of `next`, then the interrupt."""
        self._record()
        return await super().interrupt(payload, **options)

    def _call_next(self, given: Any) -> Coroutine[Any, Any, Any]:
        """Make the call that this middleware is around; its `next`."""
        self._count = number = self._count + 1
        if number == 1 and self._chain.is_direct and self._values is None and type(given) is ModelRequest:
            # Not through `_call`: one coroutine less for nearly every model call.
            return self._chain.execute(given, self, None)
        return self._call(given, number)

    async def _call(self, given: Any, number: int) -> Any:
        chain, suffix, position = self._chain, self._suffix, self._position
        if type(given) is not chain.given:
            chain.check_given(given, position)
        log = self._run.log
        if log.has_past and (recorded := log.find(f"{self._scope}/next{number}", StepCompleted)) is not None:
            return self._restore(recorded)
        if number > 1:
            suffix = f"{suffix}@{position}.{number}"
        # What this one call of `next` has spent is counted on its own, because several may run at the same time.
        inner = chain.context(position + 1, suffix, self)
        try:
            if position == len(chain.layers):
                returned = await chain.execute(given, inner if chain.counts_calls else self, suffix)
            else:
                returned = await chain.call(given, inner)
        except Exception as error:
            # A resumed run must not try again what the middleware has seen fail.
            self._keep(number, error, inner)
            raise
        finally:
            self._count_calls(inner._model_calls, inner._usage, inner._model)
        self._keep(number, returned, inner)
        if chain.is_once:
            self._record()
            await log.settle()
        return returned

    def _keep(self, number: int, result: Any, inner: "MiddlewareContext") -> None:
        changes = None if self._values is None else self._take_changes()
        if self._unrecorded is None:
            self._unrecorded = []
        self._unrecorded.append(_KeptResult(number, result, changes, inner._model_calls, inner._usage, inner._model))

    def _add_usage(self, usage: Usage) -> None:
        self._usage = usage if self._usage is None else self._usage + usage

    def _count_calls(self, model_calls: int, usage: Usage | None, model: str) -> None:
        """Count the model calls of one call of `next`."""
        self._model_calls += model_calls
        self._merged_calls += model_calls
        self._model = model or self._model
        if usage is not None:
            self._add_usage(usage)

    def _record(self) -> None:
        """Record the results of `next` that are not recorded yet, the outer middleware's first."""
        if self._outer is not None:
            self._outer._record()
        log, chain, kept, first = self._run.log, self._chain, self._unrecorded or [], self._first
        if first is not None:
            usage = first.usage if isinstance(first, ModelResponse) else None
            calls = self._model_calls - self._merged_calls
            self._merged_calls = self._model_calls
            kept.insert(0, _KeptResult(1, first, None, calls, usage, self._model))
        for each in kept:
            result = each.result
            saved = _save_error(chain, result) if isinstance(result, Exception) else chain.save(result)
            saved = replace(saved, model_calls=each.model_calls, usage=each.usage, model=each.model)
            plain = to_json_value(f"the result of next at `{self._scope}`", saved)
            key = f"{self._scope}/next{each.number}"
            log.write(StepCompleted(key, self._origin, time(), f"next{each.number}", plain, each.changes))
        self._unrecorded = self._first = None

    def _restore(self, recorded: StepCompleted) -> Any:
        saved = msgspec.convert(recorded.result, _SavedResult)
        # Changes made before `next` are recorded with it.
        self._take_changes()
        self._apply_changes(recorded.value_changes)
        for _ in range(saved.model_calls):
            self._run.meter.start_model_call(self._origin)
        self._count_calls(saved.model_calls, saved.usage, saved.model)
        if saved.error is None:
            return self._chain.restore(saved)
        error = restore_error(saved.error)
        if saved.is_tool_error:
            self._chain.error = error
        raise error


class CallChain(Struct, Generic[Given, Returned]):
    """One model call or tool call on its way through middleware.

    Args:
        layers: The middleware, outermost first.
        ctx: The context whose effect records the value changes of middleware.
        key: The key of the call.
        agent_ctx: The context of the agent.
        execute: Makes the call that the middleware is around: `(given, caller, suffix)`. Without a suffix it keeps the
            outcome in the caller.
        is_once: Whether a result is recorded at once, because the call must not be repeated.
    """

    layers: tuple[Layer, ...]
    ctx: RunContext[Any]
    key: str
    agent_ctx: Any
    execute: Callable[[Given, MiddlewareContext, str | None], Coroutine[Any, Any, Returned]]
    is_once: bool = False
    error: Exception | None = None
    """The last exception that a tool itself raised."""
    counts_calls: ClassVar[bool] = False
    """True if `execute` counts model calls in the context that it is given."""
    is_direct: bool = False
    """True if `next` can be `execute`: there is one middleware, and nothing to look up in the log."""
    method: ClassVar[str]
    given: ClassVar[type]
    returned: ClassVar[type]

    async def call(self, given: Given, own: MiddlewareContext | None = None) -> Returned:
        """Call a middleware.

        Args:
            given: The request or tool call.
            own: The context of the middleware; by default that of the outermost.
        """
        own = own or self.context()
        returned = await self.layers[own._position - 1].method(own, given, own._call_next)
        self.leave(own, returned)
        return returned

    def context(self, position: int = 1, suffix: str = "", outer: MiddlewareContext | None = None) -> MiddlewareContext:
        """Create the context of a middleware.

        Args:
            position: The position of the middleware; by default that of the outermost.
            suffix: What follows its name in keys, if the call is repeated.
            outer: The context of the middleware around it.
        """
        ctx = self.ctx
        return MiddlewareContext(
            ctx._run,
            ctx._origin,
            "",
            ctx.tool_call,
            self.agent_ctx,
            _chain=self,
            _position=position,
            _suffix=suffix,
            _outer=outer,
        )

    def leave(self, own: MiddlewareContext, returned: Any) -> None:
        """Check what a middleware returned, and keep its value changes.

        Args:
            own: The context of the middleware.
            returned: The value that it returned.
        """
        if type(returned) is not self.returned:
            self._check(own._position, returned, self.returned, "returned")
        run = self.ctx._run
        if run.suspended_by:
            run.check_suspended(f"middleware `{self.layers[own._position - 1].name}`", own._scope)
        if own._values is not None:
            copy_changes(self.ctx if own._outer is None else own._outer, own._all_changes())

    def check_given(self, given: Any, position: int) -> None:
        """Raise SetupError if middleware passed something wrong to `next`."""
        self._check(position, given, self.given, "passed to next")

    def _check(self, position: int, value: Any, wanted: type, what: str) -> None:
        if not isinstance(value, wanted):
            name = self.layers[position - 1].name
            raise SetupError(f"{self.method} of middleware `{name}` {what} {show(value)}; give a {wanted.__name__}")

    def save(self, returned: Returned) -> _SavedResult:
        """Convert a result to what is recorded."""
        raise NotImplementedError

    def restore(self, saved: _SavedResult) -> Returned:
        """Convert what was recorded to a result."""
        raise NotImplementedError


def _save_error(chain: CallChain[Any, Any], error: Exception) -> _SavedResult:
    return _SavedResult(error=describe_error(error), is_tool_error=error is chain.error)


class HeldDeltas(Struct):
    """A sink that keeps deltas until all who hold them back have released them."""

    holders: int = 0
    _sink: DeltaSink | None = None
    _kept: list[Event | Delta] = []

    def attach(self, sink: DeltaSink) -> DeltaSink:
        """Return this object, as the sink in front of another."""
        self._sink = sink
        return self

    def release(self) -> None:
        """Pass on the deltas from now on, and those that were kept, unless others hold them back."""
        self.holders -= 1
        if not self.holders:
            kept, self._kept = self._kept, []
            for each in kept:
                self.put(each)

    @property
    def is_full(self) -> bool:
        """True if the deltas are passed on and the sink is full."""
        return not self.holders and self._sink is not None and self._sink.is_full

    def put(self, event: Event | Delta) -> None:
        """Keep a delta, or pass it on."""
        if self.holders:
            self._kept.append(event)
        elif self._sink is not None:
            self._sink.put(event)

    async def drain(self) -> None:
        """Wait until the sink can accept more."""
        if self._sink is not None:
            await self._sink.drain()


class ModelCallChain(CallChain[ModelRequest, ModelResponse]):
    """The model calls of an activation on their way through middleware, one after the other.

    Args:
        is_held: Whether deltas are withheld until the middleware has returned.
    """

    is_held: bool = False
    held: HeldDeltas | None = None
    """Keeps deltas while they are held back; None if they never were."""
    streamed: AssistantMessage | None = None
    """The last response that was collected from the model."""
    _is_dirty: bool = False
    """True if deltas were delivered."""
    counts_calls = True
    method = "model_call"
    given = ModelRequest
    returned = ModelResponse

    def save(self, returned: ModelResponse) -> _SavedResult:
        """Convert a response to what is recorded."""
        return _SavedResult(response=returned)

    def restore(self, saved: _SavedResult) -> ModelResponse:
        """Return the recorded response."""
        return cast("ModelResponse", saved.response)

    def start_deltas(self, sink: DeltaSink | None) -> DeltaSink | None:
        """Return the sink for the deltas of a response that begins, or None to withhold them."""
        if sink is None or self.is_held:
            return None
        if self.held is not None and self.held.holders:
            sink = self.held.attach(sink)
        if self._is_dirty:
            sink.put(ResponseRestarted(self.ctx._origin))
        self._is_dirty = True
        return sink

    def finish_deltas(self, message: AssistantMessage) -> None:
        """Deliver the response that the middleware returned, unless subscribers have received it."""
        origin = self.ctx._origin
        sink = self.ctx._run.log.listener(origin)
        was_dirty, self._is_dirty = self._is_dirty, False
        if sink is None or (was_dirty and message == self.streamed):
            return
        if was_dirty:
            sink.put(ResponseRestarted(origin))
        for reasoning in message.reasoning:
            if reasoning.text:
                sink.put(ReasoningDelta(origin, reasoning.text))
        if text := text_of(message.content):
            sink.put(TextDelta(origin, text))
        for index, call in enumerate(message.tool_calls):
            sink.put(ToolCallDelta(origin, index, call.id, call.name, call.arguments))


class ToolCallChain(CallChain[ToolCall, ToolResult]):
    """A tool call on its way through middleware.

    A repeated call of a tool has a scope of its own.
    """

    executed: int = 0
    """The number of times that the tool was called."""
    method = "tool_call"
    given = ToolCall
    returned = ToolResult

    @staticmethod
    def around(layers: tuple[Layer, ...], tool: Tool, ctx: RunContext[Any]) -> "ToolCallChain":
        """Return the chain for a call of a tool.

        Args:
            layers: The middleware.
            tool: The tool.
            ctx: The context of the call.
        """
        execute = partial(_call_tool, tool)
        return ToolCallChain(layers, ctx, ctx._scope, ctx._caller, execute, tool_effect(tool) == "once")

    def save(self, returned: ToolResult) -> _SavedResult:
        """Convert a result to what is recorded: the name of an agent instead of the agent."""
        target = returned.transfer_to
        if target is not None and not isinstance(target, str):
            self.ctx._run.dynamic_agents[target.name] = target
            returned = replace(returned, transfer_to=target.name)
        return _SavedResult(outcome=returned)

    def restore(self, saved: _SavedResult) -> ToolResult:
        """Return the recorded result."""
        run = self.ctx._run
        if not self.executed:
            # The model calls of an agent as tool.
            run.recount(self.key)
        self.executed += 1
        return cast("ToolResult", saved.outcome)


async def _call_tool(tool: Tool, given: ToolCall, around: MiddlewareContext, suffix: str | None) -> ToolResult:
    """Call the tool.

    A repeated call has a scope of its own, because the steps of the first one are recorded.
    """
    chain = cast("ToolCallChain", around._chain)
    call = cast("ToolCall", around.tool_call)
    if given.name != call.name or given.id != call.id:
        raise SetupError(
            f"middleware changed the call `{call.name}` ({call.id}) to `{given.name}` ({given.id}); "
            "only its arguments can be replaced"
        )
    if chain.executed and chain.is_once:
        raise SetupError(f'middleware called `{call.name}` twice, but it has effect="once"; call next only once')
    chain.executed += 1
    scope = chain.key if not suffix else f"{chain.key}/again{suffix}"
    inner = RunContext(around._run, around._origin, scope, given, around._caller)
    try:
        return await tool.call(inner, given.arguments)
    except Exception as error:
        chain.error = error
        raise
    finally:
        if inner._values is not None:
            copy_changes(around, inner._all_changes())


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
