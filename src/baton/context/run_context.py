"""What code inside a run is given, and how it acts: everything that has an effect is done once and recorded."""

from collections.abc import Awaitable, Callable
from inspect import isawaitable
from time import time
from types import CoroutineType
from typing import Any, Generic, TypeVar, cast, overload

from typing_extensions import TypeVar as TypeVarWithDefault

from ..errors import NotEncodableError
from ..events import (
    CustomDelta,
    Event,
    InterruptAnswered,
    InterruptRaised,
    Origin,
    ProgressDelta,
    StepCompleted,
    ValueChanges,
)
from ..messages import ToolCall
from .run_state import RunState
from .values import Values, to_json_value

C = TypeVarWithDefault("C", default=Any, covariant=True)
E = TypeVar("E", bound=Event)
T = TypeVar("T")

_JSON_TYPES = (str, int, float, bool, type(None), list, dict, tuple)


def needs_await(value: object) -> bool:
    """Whether a callback gave something to wait for. The usual cases are told apart quickly."""
    kind = type(value)
    return kind is CoroutineType or (kind not in _JSON_TYPES and isawaitable(value))


class SuspendRun(BaseException):
    """Unwinds the code that asked a question until somebody answers. Not an error: never catch it."""


class RunContext(Generic[C]):
    """What a tool, an agent or a callback knows of its run, and what it can do in it.

    `scope` is the place in the run that keys are made from: an activation, or one tool call inside it. `caller` is the
    activation that a call is made by.
    """

    __slots__ = ("_asked", "_caller", "_origin", "_run", "_scope", "_steps", "_values", "tool_call")

    def __init__(
        self, run: RunState[C], origin: Origin, scope: str, call: ToolCall | None = None, caller: Any = None
    ) -> None:
        self._run = run
        self._origin = origin
        self._scope = scope
        self.tool_call = call
        self._caller = caller
        self._values: Values | None = None
        self._steps: dict[str, int] | None = None
        self._asked = 0

    @property
    def context(self) -> C:
        """Your own object, as given to the runner. Never sent to a model, never stored."""
        return self._run.context

    @property
    def values(self) -> Values:
        """The run's shared key-value state."""
        if self._values is None:
            self._values = Values(self._run.values)
        return self._values

    @property
    def run_id(self) -> str:
        """The id of the run."""
        return self._run.id

    @property
    def agent(self) -> str:
        """The name of the agent that has the floor here."""
        return self._origin.agent

    @property
    def path(self) -> tuple[str, ...]:
        """The names of the agents that led here, the present one last."""
        return self._origin.path

    @property
    def idempotency_key(self) -> str:
        """The same for every attempt at this very call, and different from every other: for outside systems."""
        return f"{self._run.id}:{self._scope}"

    async def _once(self, key: str, kind: type[E], produce: Callable[[str], Awaitable[E]]) -> E:
        """The recorded event with this key; if there is none, `produce` makes it, and it is recorded."""
        full_key = f"{self._scope}/{key}"
        log = self._run.log
        event = log.find(full_key, kind)
        if event is None:
            log.announce(full_key, kind)
            produced = await produce(full_key)
            # Somebody else may have been faster, if the same key was asked for twice at once.
            event = log.find(full_key, kind)
            if event is None:
                event = produced
                log.write(event)
                await log.settle()
        return event

    @overload
    async def step(self, name: str, function: Callable[[], Awaitable[T]]) -> T: ...
    @overload
    async def step(self, name: str, function: Callable[[], T]) -> T: ...
    @overload
    async def step(self, name: str, function: Callable[[], Any], *, result_type: type[T]) -> T: ...
    async def step(self, name: str, function: Callable[[], Any], *, result_type: Any = None) -> Any:
        """What `produce` gives, done once: a resumed run gets the recorded value and does not call it again.

        Values come back as JSON has them; `as_type` brings them back as a dataclass, a pydantic model or the like.
        """
        ordinal = 1
        if self._steps is None:
            self._steps = {name: 1}
        else:
            ordinal = self._steps[name] = self._steps.get(name, 0) + 1
        key = f"{self._scope}/step:{name}" if ordinal == 1 else f"{self._scope}/step:{name}#{ordinal}"
        log = self._run.log
        event = log.find(key, StepCompleted) if log.has_past else None
        if event is None:
            if log.has_past:
                log.announce(key, StepCompleted)
            asked = self._asked
            value = function()
            if needs_await(value):
                value = await value
            plain = None if value is None else to_json_value(f"the result of step `{name}`", value)
            if plain is not value and result_type is None and not isinstance(value, _JSON_TYPES):
                hint = "say as_type=… so that a resumed run can bring it back"
                raise NotEncodableError(f"the result of step `{name}`", cast(object, value), hint)
            event = StepCompleted(key, self._origin, time(), name, plain, self._take_changes(), self._asked - asked)
            log.write(event)
            if log.sink is not None:
                await log.settle()
        else:
            self._asked += event.interrupt_count
            self._apply_changes(event.value_changes)
        return event.result if result_type is None else _revive(event.result, result_type)

    @overload
    async def interrupt(self, payload: Any = None, *, schema: type[T]) -> T: ...
    @overload
    async def interrupt(self, payload: Any = None, *, schema: dict[str, Any] | None = None) -> Any: ...
    async def interrupt(self, payload: Any = None, *, schema: Any = None) -> Any:
        """The outside's answer to this question. Until there is one, the run is suspended here.

        Code before it runs again when the run is resumed, unless it stands in `step`. `schema` is a type that answers
        must fit and come back as, or a JSON schema; an answer that does not fit is refused when it is given. Values
        that came with the answer are in the run's values from here on.
        """
        self._asked += 1
        key = f"{self._scope}/ask{self._asked}"
        log = self._run.log
        asked = log.find(key, InterruptRaised)
        answered = log.find(f"{key}!", InterruptAnswered)
        if answered is None:
            if asked is None:
                plain = to_json_value("the payload of an interrupt", payload)
                log.write(InterruptRaised(key, self._origin, time(), plain, self.tool_call, _json_schema(schema)))
                await log.settle()
            if self._run.live is None:
                raise SuspendRun(key)
            answer = await self._run.live.answer_to(key)
        else:
            answer = answered.answer
            if answered.values:
                self.values.update(answered.values)
        return answer if schema is None or isinstance(schema, dict) else _revive(answer, schema)

    async def progress(self, text: str = "", *, done: float | None = None, total: float | None = None) -> None:
        """Tell whoever listens how far this has come. Not recorded."""
        log = self._run.log
        if log.sink is not None:
            log.tell(ProgressDelta(self._origin, text, done, total, self.tool_call.id if self.tool_call else ""))
            await log.settle()

    async def emit(self, name: str, data: Any = None) -> None:
        """Tell whoever listens something of your own. Not recorded."""
        log = self._run.log
        if log.sink is not None:
            log.tell(CustomDelta(self._origin, name, data))
            await log.settle()

    def _take_changes(self) -> ValueChanges | None:
        """What was written to the values since the last recorded effect, to be recorded with the next one."""
        return self._values.take_changes() if self._values is not None else None

    def _all_changes(self) -> ValueChanges | None:
        """Everything written to the values in this context, to be recorded with the effect as a whole."""
        return self._values.all_changes() if self._values is not None else None

    def _apply_changes(self, changes: ValueChanges | None) -> None:
        """Do to the values what a recorded effect did."""
        if changes is not None:
            self.values.apply(changes)


def _json_schema(kind: Any) -> dict[str, Any] | None:
    if kind is None or isinstance(kind, dict):
        return cast("dict[str, Any] | None", kind)
    from pydantic import TypeAdapter

    return TypeAdapter(kind).json_schema()


def _revive(value: Any, kind: Any) -> Any:
    from pydantic import TypeAdapter

    return TypeAdapter(kind).validate_python(value)
