"""The context given to tools, agents and callbacks: effects made through it are executed once and recorded."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from datetime import datetime, timedelta
from inspect import isawaitable
from time import time
from types import CoroutineType
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeAlias, TypeVar, cast, overload

from msgspec import Struct
from typing_extensions import TypeVar as TypeVarWithDefault

from .._wording import show
from ..errors import InterruptExpiredError, NotEncodableError, SetupError
from ..log import (
    CustomDelta,
    Default,
    InterruptAnswered,
    InterruptRaised,
    Origin,
    ProgressDelta,
    StepCompleted,
    ValueChanges,
    keys,
)
from ..log.log import SuspendRun as SuspendRun
from ..log.once_calls import idempotency_key
from ..messages import ToolCall, Usage
from ..messages.valid_text import valid_text, with_valid_text
from .deferred_calls import ENCLOSING, must_be_awaited
from .json_schemas import JSONSchema, SchemaError
from .run_state import LiveConversation, RunState, resolve_time
from .values import Values, to_json_value

if TYPE_CHECKING:
    from pydantic import TypeAdapter

C = TypeVarWithDefault("C", default=Any, covariant=True)
T = TypeVar("T")

Deadline: TypeAlias = datetime | timedelta | None
"""A time, a duration from now, or None for no limit."""
OnExpiry: TypeAlias = Literal["fail"] | Default
"""The outcome of an interrupt after its deadline: an error, or an answer."""
SLEEP = "sleep"
"""The `kind` in the payload of the interrupt that `sleep` raises."""

_SCHEMA = "interrupt(schema=…)"
_JSON_TYPES = (str, int, float, bool, type(None), list, dict, tuple)


def needs_await(value: object) -> bool:
    """Return whether the result of a callback must be awaited. Fast for the usual types."""
    kind = type(value)
    return kind is CoroutineType or (kind not in _JSON_TYPES and isawaitable(value))


def most_severe(errors: Iterable[BaseException]) -> BaseException:
    """Return the error to raise of those that concurrent code has raised.

    An interrupt gives way to a failure, because the failed code runs again when the run is resumed, and a failure to an
    exception that must not be handled.
    """

    def severity(error: BaseException) -> int:
        return 2 if isinstance(error, SuspendRun) else 1 if isinstance(error, Exception) else 0

    return min(errors, key=severity)


class InterruptCheck:
    """A check that a block does not end normally while a call inside it is open."""

    __slots__ = ("_ctx", "_enclosing", "_what")

    def __init__(self, ctx: "RunContext[Any]", what: str) -> None:
        self._ctx = ctx
        self._what = what
        self._enclosing: tuple[object, ...] = ()

    def __enter__(self) -> None:
        self._enclosing = ENCLOSING.get()
        ENCLOSING.set((*self._enclosing, self))

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: object) -> None:
        ENCLOSING.set(self._enclosing)
        run = self._ctx._run
        if kind is None and run.has_open_calls:
            run.check_enclosed(f"{self._what} of `{self._ctx.agent}`", self)


class RunContext(Struct, Generic[C], eq=False):
    """The context of a tool call, an activation or a callback.

    Baton creates it; declare a parameter of this type to receive it. `C` is the type of your own context object.

    Attributes:
        tool_call: The tool call that this is the context of; None in agents and most callbacks.
    """

    # A struct, because it is created for every tool call and activation.
    _run: RunState[C]
    """The state of the run."""
    _origin: Origin
    """The activation."""
    _scope: str
    """The prefix of recorded keys: an activation, or a tool call inside it."""
    tool_call: ToolCall | None = None
    _caller: "RunContext[Any] | None" = None
    """The context of the agent that made the tool call."""
    _values: Values | None = None
    _steps: dict[str, int] | None = None
    _asked: int = 0
    _edit_checks: tuple[Callable[[Any, str], Awaitable[Any]], ...] = ()
    """The guardrails around an approval: `(ctx, arguments)` returns a refusal of edited arguments, or None."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.agent!r}, {self._scope!r})"

    @property
    def context(self) -> C:
        """Your own object, as given to the runner. It is never sent to a model and never stored."""
        return self._run.context

    @property
    def values(self) -> Values:
        """The run's shared key-value state; read it as a mapping, change it with `set` and `update`."""
        if self._values is None:
            self._values = Values(self._run.values)
        return self._values

    @property
    def usage(self) -> Usage:
        """The tokens and cost of the run's recorded model calls, and the number of calls so far.

        In a resumed run it grows again as it did before, so that decisions that depend on it are the same.
        """
        meter = self._run.meter
        while meter.parent is not None:
            meter = meter.parent
        return meter.usage

    @property
    def run_id(self) -> str:
        """The id of the run."""
        return self._run.id

    @property
    def agent(self) -> str:
        """The name of the active agent."""
        return self._origin.agent

    @property
    def path(self) -> tuple[str, ...]:
        """The run path: the names of the agents that led here, the active one last."""
        return self._origin.path

    @property
    def idempotency_key(self) -> str:
        """A key for external systems: the same for every attempt of this call, and unique to it.

        In a fork, a call with the same place and arguments as in the original run has its key.
        """
        call = self.tool_call
        if self._run.fork is None or call is None:
            return f"{self._run.id}:{self._scope}"
        return idempotency_key(self._run.id, self._run.fork, self._scope, call.name, call.arguments)

    @overload
    async def step(self, name: str, function: Callable[[], Awaitable[T]]) -> T: ...
    @overload
    async def step(self, name: str, function: Callable[[], T]) -> T: ...
    @overload
    async def step(self, name: str, function: Callable[[], Any], *, result_type: type[T]) -> T: ...
    @overload
    async def step(self, name: str, function: Callable[[], Any], *, result_type: Any) -> Any: ...
    @must_be_awaited
    async def step(self, name: str, function: Callable[[], Any], *, result_type: Any = None) -> Any:
        """Call a function once and record its result; a resumed run gets the recorded result.

        Args:
            name: The name of the step, shown in the log. A name may be used several times.
            function: The function to call; it may be async.
            result_type: The type to convert the recorded result to, such as a dataclass or a pydantic model. Without
                it, the result must be JSON data.

        Returns:
            The result, as it is read back from the log.

        Raises:
            NotEncodableError: The result cannot be recorded, or needs a `result_type`.
            SetupError: pydantic cannot validate `result_type`.
        """
        name = valid_text(name)
        adapter = None if result_type is None else _make_adapter("step(result_type=…)", result_type)
        key = keys.step(self._scope, name, self._next_ordinal(name))
        log = self._run.log
        event = log.find(key, StepCompleted) if log.has_past else None
        if event is None:
            event = await self._execute_step(key, name, function, is_typed=adapter is not None)
        else:
            self._asked += event.interrupt_count
            self._apply_changes(event.value_changes)
        return event.result if adapter is None else adapter.validate_python(event.result)

    def _next_ordinal(self, step: str) -> int:
        if self._steps is None:
            self._steps = {}
        ordinal = self._steps[step] = self._steps.get(step, 0) + 1
        return ordinal

    async def _execute_step(self, key: str, name: str, function: Callable[[], Any], *, is_typed: bool) -> StepCompleted:
        """Call the function of a step and record its result."""
        log = self._run.log
        if log.has_past:
            log.announce(key, StepCompleted)
        asked_before = self._asked
        with InterruptCheck(self, f"step `{name}`"):
            value = function()
            if needs_await(value):
                value = await value
        what = f"the result of step `{name}`"
        plain = None if value is None else to_json_value(what, value)
        if plain is not value and not is_typed and not isinstance(value, _JSON_TYPES):
            hint = "give result_type=… so that a resumed run can restore it"
            raise NotEncodableError(what, cast(object, value), hint)
        interrupts = self._asked - asked_before
        event = StepCompleted(key, self._origin, time(), name, plain, self._take_changes(), interrupts)
        log.write(event)
        await log.settle()
        return event

    @overload
    async def interrupt(
        self, payload: Any = None, *, schema: type[T], deadline: Deadline = None, on_expiry: OnExpiry = "fail"
    ) -> T: ...
    @overload
    async def interrupt(
        self, payload: Any = None, *, schema: Any = None, deadline: Deadline = None, on_expiry: OnExpiry = "fail"
    ) -> Any: ...
    @must_be_awaited
    async def interrupt(
        self, payload: Any = None, *, schema: Any = None, deadline: Deadline = None, on_expiry: OnExpiry = "fail"
    ) -> Any:
        """Ask the outside a question, and suspend the run until it is answered.

        When the run is resumed, the code before this call runs again, except code inside `step`. Values given with
        the answer are merged into the run's values.

        Args:
            payload: The question, as JSON data, for the application that answers it.
            schema: The type that an answer must fit and is converted to, or a JSON schema. An answer that does not
                fit is rejected when it is given.
            deadline: The time, or the duration from now, after which it cannot be answered any more. It is fixed when
                the interrupt is raised, by the store's clock; a worker then resumes the run.
            on_expiry: After the deadline, `"fail"` raises InterruptExpiredError here, which ends the run unless your
                code handles it, and `Default(answer)` returns that answer.

        Returns:
            The answer.

        Raises:
            InterruptExpiredError: The deadline has passed, and `on_expiry` is `"fail"`.
            SetupError: pydantic cannot validate `schema`, it is no JSON schema that can be used safely, or the default
                answer does not fit.
        """
        self._asked += 1
        key = keys.interrupt(self._scope, self._asked)
        log = self._run.log
        interrupt = log.find(key, InterruptRaised)
        answered = log.find(keys.answer(key), InterruptAnswered)
        if answered is None:
            if interrupt is None:
                interrupt = InterruptRaised(
                    key,
                    self._origin,
                    time(),
                    to_json_value("the payload of an interrupt", payload),
                    self.tool_call,
                    _json_schema(schema),
                    await resolve_time("interrupt(deadline=…)", deadline, self._run.signals.now),
                    _check_default(on_expiry, schema),
                )
                log.write(interrupt)
                await log.settle()
            answer = await self._wait_for_answer(interrupt)
        else:
            answer = answered.answer
            if answered.expired and interrupt is not None and interrupt.default is None:
                raise InterruptExpiredError(key, interrupt.deadline)
            if answered.values:
                self.values.update(answered.values)
        if schema is None or isinstance(schema, dict):
            return answer
        return _make_adapter(_SCHEMA, schema).validate_python(answer)

    @must_be_awaited
    async def sleep(self, until: datetime | timedelta) -> None:
        """Suspend the run until a time; a worker then resumes it.

        It is an interrupt that no one needs to answer; an answer ends it early.

        Args:
            until: The time, or the duration from now, by the store's clock.
        """
        await self.interrupt({"kind": SLEEP}, deadline=until, on_expiry=Default())

    async def progress(self, text: str = "", *, done: float | None = None, total: float | None = None) -> None:
        """Send a progress message to the subscribers of the run. It is not recorded.

        Args:
            text: A message for the user.
            done: The amount of work done.
            total: The amount of work in all, if known.
        """
        log = self._run.log
        if log.sink is not None:
            log.deliver(
                ProgressDelta(self._origin, valid_text(text), done, total, self.tool_call.id if self.tool_call else "")
            )
            await log.settle()

    async def emit(self, name: str, data: Any = None) -> None:
        """Send a notification of your own to the subscribers of the run. It is not recorded.

        Args:
            name: The name of the notification.
            data: Its data.
        """
        log = self._run.log
        if log.sink is not None:
            log.deliver(
                CustomDelta(
                    self._origin, valid_text(name), with_valid_text(data), self.tool_call.id if self.tool_call else ""
                )
            )
            await log.settle()

    async def _wait_for_answer(self, interrupt: InterruptRaised) -> Any:
        try:
            if self._run.live is None:
                raise SuspendRun(interrupt.key)
            return await self._wait_live(self._run.live, interrupt)
        except SuspendRun:
            self._run.suspended_by[interrupt.key] = ENCLOSING.get()
            raise

    async def _wait_live(self, live: LiveConversation, interrupt: InterruptRaised) -> Any:
        """Wait for the answer while the run stays in progress, until the deadline."""
        run = self._run
        key = interrupt.key
        seconds_left = interrupt.deadline - await run.signals.now() if interrupt.deadline else None
        timeout = asyncio.timeout(seconds_left)
        try:
            async with timeout:
                return await live.answer_to(key)
        except TimeoutError:
            if not timeout.expired():
                raise
        answer = None if interrupt.default is None else interrupt.default.answer
        run.log.write(InterruptAnswered(keys.answer(key), self._origin, time(), key, answer, expired=True))
        await run.log.settle()
        if interrupt.default is None:
            raise InterruptExpiredError(key, interrupt.deadline)
        return answer

    def _take_changes(self) -> ValueChanges | None:
        """Return and reset the changes to the values since the previous recorded step."""
        return self._values._take_changes() if self._values is not None else None

    def _all_changes(self) -> ValueChanges | None:
        """Return all changes made to the values in this context."""
        return self._values._all_changes() if self._values is not None else None

    def _apply_changes(self, changes: ValueChanges | None) -> None:
        if changes is not None:
            self.values._apply(changes)


def _check_default(on_expiry: object, schema: Any) -> Default | None:
    """Return the default answer of an interrupt. Raises SetupError if it does not fit."""
    if not isinstance(on_expiry, Default):
        if on_expiry != "fail":
            raise SetupError(f'interrupt(on_expiry=…) is {show(on_expiry)}; give "fail" or Default(answer)')
        return None
    plain = Default(to_json_value("the default answer of an interrupt", on_expiry.answer, is_strict=True))
    if schema is not None and not isinstance(schema, dict):
        try:
            _make_adapter(_SCHEMA, schema).validate_python(plain.answer)
        except ValueError as error:
            raise SetupError(f"interrupt(on_expiry=Default(…)) does not fit the schema: {error}") from None
    return plain


def _json_schema(kind: Any) -> dict[str, Any] | None:
    """Return the schema of an answer. Raises SetupError if answers cannot be checked against it."""
    if kind is None:
        return None
    is_json = isinstance(kind, dict)
    schema = cast("dict[str, Any]", kind) if is_json else _make_adapter(_SCHEMA, kind).json_schema()
    try:
        JSONSchema(schema)
    except SchemaError as error:
        raise SetupError(f"{_SCHEMA} cannot be used: {error}") from None
    return schema


def _make_adapter(argument: str, kind: Any) -> "TypeAdapter[Any]":
    """Return a validator of a type. Raises SetupError if there is none."""
    from pydantic import PydanticUndefinedAnnotation, PydanticUserError, TypeAdapter

    try:
        return TypeAdapter(kind)
    except (PydanticUserError, PydanticUndefinedAnnotation) as error:
        reason = str(error).partition("\n")[0].partition(". ")[0]
        raise SetupError(f"{argument} takes a type that pydantic can validate, not {show(kind)}: {reason}") from None
