"""The state of one run that all its activations share, its limits and their counters."""

from collections.abc import Awaitable, Callable, Iterable, MutableMapping, Sequence
from datetime import datetime, timedelta
from logging import getLogger
from time import time
from typing import Any, Generic, Literal, Protocol, TypeAlias

from msgspec import Struct, field
from msgspec.structs import replace
from typing_extensions import TypeVar

from .._checks import CheckedStructMeta
from ..errors import (
    LimitError,
    LogError,
    NotEncodableError,
    OpenInterruptError,
    ReplayMismatchError,
    RunNotFoundError,
    SetupError,
    StoreError,
    UnknownPriceError,
)
from ..log import (
    AgentResponded,
    CallInDoubt,
    ControlTransferred,
    Event,
    EventRef,
    HistoryCompacted,
    Origin,
    ToolReturned,
    UserMessageAdded,
    keys,
)
from ..log.log import Log
from ..log.once_calls import ForkedFrom
from ..messages import Usage, UserMessage
from ..messages.messages import call_ids_in
from .deferred_calls import DeferredCall

_logger = getLogger("baton.context")


class Limits(Struct, frozen=True, kw_only=True, metaclass=CheckedStructMeta):
    """Limits of a run, including everything nested in it; None means no limit."""

    model_calls: int | None = 100
    """Maximum number of model calls."""
    transfers: int | None = 32
    """Maximum number of transfers."""
    idle_cycles: int | None = 3
    """Maximum number of times that agents may transfer in the same cycle without progress."""
    open_tasks: int | None = 8
    """Maximum number of task handoffs that are open at the same time, each inside the one before."""
    seconds: float | None = None
    """Maximum duration."""
    tokens: int | None = None
    """Maximum number of input and output tokens."""
    cost: float | None = None
    """Maximum cost in US dollars; a model whose price is unknown ends the run with `UnknownPriceError`."""

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            limit: Any = getattr(self, name)
            if isinstance(limit, int | float) and limit < 0:
                raise SetupError(f"Limits({name}={limit}) is negative; give 0 or more, or None for no limit")


class UsageMeter(Struct):
    """Counters of a run that raise LimitError at its limits. Replayed steps count as well."""

    limits: Limits
    parent: "UsageMeter | None" = None
    model_calls: int = 0
    transfers: int = 0
    tokens: int = 0
    cost: float = 0.0
    unpriced_calls: int = 0
    _added: list[Usage] = []

    @property
    def usage(self) -> Usage:
        """The sum of what was counted so far."""
        # Added up when it is read: most runs never read it.
        self._added = [sum(self._added, Usage())]
        return replace(self._added[0], model_calls=self.model_calls)

    def start_model_call(self, origin: Origin) -> None:
        """Count a model call before it is made."""
        if self.parent is not None:
            self.parent.start_model_call(origin)
        self.model_calls += 1
        allowed = self.limits.model_calls
        if allowed is not None and self.model_calls > allowed:
            raise self._exceeded("model_calls", allowed, origin)

    def start_transfer(self, origin: Origin) -> None:
        """Count a transfer before it is made."""
        if self.parent is not None:
            self.parent.start_transfer(origin)
        self.transfers += 1
        allowed = self.limits.transfers
        if allowed is not None and self.transfers > allowed:
            raise self._exceeded("transfers", allowed, origin)

    def add_usage(self, usage: Usage, origin: Origin) -> None:
        """Count the tokens and cost of a recorded model call."""
        if self.parent is not None:
            self.parent.add_usage(usage, origin)
        self._added.append(usage)
        self.tokens += usage.input_tokens + usage.output_tokens
        self.cost += usage.cost
        self.unpriced_calls += usage.unpriced_calls
        limits = self.limits
        if limits.tokens is not None and self.tokens > limits.tokens:
            raise self._exceeded("tokens", limits.tokens, origin)
        if limits.cost is not None and usage.unpriced_calls:
            raise UnknownPriceError(origin.path)
        if limits.cost is not None and self.cost > limits.cost:
            raise self._exceeded("cost", limits.cost, origin)

    def recount(self, events: Iterable[Event]) -> None:
        """Count recorded events of a part whose code does not run again."""
        for event in events:
            if type(event) is ControlTransferred:
                self.start_transfer(event.origin)
            elif type(event) is AgentResponded and event.model:
                for _ in range(event.model_calls + event.failed_calls):
                    self.start_model_call(event.origin)
                if event.usage is not None:
                    self.add_usage(event.usage, event.origin)
            elif type(event) is HistoryCompacted:
                self.count_compaction(event)

    def count_compaction(self, event: HistoryCompacted) -> None:
        """Count the model calls and the usage of a recorded summary."""
        if event.usage is not None:
            for _ in range(event.usage.model_calls):
                self.start_model_call(event.origin)
            self.add_usage(event.usage, event.origin)

    def _exceeded(self, limit: str, allowed: float, origin: Origin) -> LimitError:
        return LimitError(limit, allowed, origin.path, share=None if self.parent is None else self)


C = TypeVar("C", default=Any)


class SentMessage(Struct, frozen=True):
    """A message that the user sent while the run was in progress."""

    message: UserMessage
    """The message."""
    id: str
    """The id of the waiting message, or the key of the event that it comes from."""


RecordMessage: TypeAlias = Callable[[Sequence[SentMessage]], Awaitable[Sequence[UserMessageAdded]]]
"""Checks the parts of a message, and returns the events that record them."""


class LeaseGuard(Protocol):
    """The right of this process to drive a stored run."""

    previous_worker: str
    """The worker that drove the run before; "" if there was none."""
    last_heartbeat: float
    """The time at which that worker last renewed its lease, by the store's clock."""

    @property
    def is_steered(self) -> bool:
        """True if a message to steer the run waits, as of the last write."""
        ...

    def check(self) -> None:
        """Raise RunConflictError unless the lease is certain to be valid."""
        ...

    async def now(self) -> float:
        """Return the time of the store's clock."""
        ...

    async def take_message(self, record: RecordMessage) -> Sequence[UserMessageAdded]:
        """Take the next message that steers the run, and store its events in the same transaction.

        Returns:
            The events; they are stored and delivered, but not part of the log yet. None are left if there are none.
        """
        ...


class StopSignal(Struct):
    """A request to stop a run and the lease on it, shared by all its parts."""

    stop: Literal["", "now", "after_response", "after_turn"] = ""
    """Stop at once, after the next response or the current turn of each active agent; "" for no request."""
    lease: LeaseGuard | None = None
    """The lease, if the run is in a store."""
    messages: list[SentMessage] = []
    """Messages that came when the run was resumed, and that no agent has read yet."""

    async def now(self) -> float:
        """Return the time of the store's clock; without a store, that of this process."""
        return time() if self.lease is None else await self.lease.now()

    @property
    def has_messages(self) -> bool:
        """True if the user has sent messages that the next model call should read."""
        return bool(self.messages) or (self.lease is not None and self.lease.is_steered)


class _DynamicAgents(dict[str, Any]):
    """The dynamic agents of a part of a run; new ones are added to the parent as well."""

    __slots__ = ("parent",)
    parent: dict[str, Any]

    def __setitem__(self, name: str, agent: Any) -> None:
        super().__setitem__(name, agent)
        self.parent[name] = agent


async def resolve_time(what: str, moment: datetime | timedelta | None, now: Callable[[], Awaitable[float]]) -> float:
    """Return a point in time in seconds since the epoch; 0 for None.

    Raises:
        SetupError: The time has no time zone.
    """
    if moment is None:
        return 0.0
    if isinstance(moment, timedelta):
        return await now() + moment.total_seconds()
    if moment.tzinfo is None:
        raise SetupError(f"{what} has no time zone; pass an aware datetime, such as datetime.now(UTC), or a timedelta")
    return moment.timestamp()


class AsyncCloseable(Protocol):
    """A resource with an async `close`."""

    async def close(self) -> None:
        """Close the resource."""


class LiveConversation(Protocol):
    """A realtime session: the run stays in progress while its interrupts are open."""

    async def answer_to(self, key: str) -> Any:
        """Wait for the answer to an interrupt.

        Raises:
            SuspendRun: The session ended before there was an answer.
        """
        ...

    def claim(self, target: str, origin: Origin) -> str | None:
        """Reserve the transfer to an agent; only one can be reserved.

        Returns:
            The reason for a refusal, or None.
        """
        ...

    def unclaim(self) -> None:
        """Undo `claim`: the transfer does not happen."""

    async def readiness(self, ctx: Any, target: str) -> str | None:
        """Prepare the session for a transfer.

        Returns:
            The reason for a refusal, or None.
        """
        ...


class RunState(Struct, Generic[C], eq=False):
    """The state of one run, or of a part of it, that its activations share."""

    id: str
    log: Log
    context: C
    values: MutableMapping[str, Any]
    meter: UsageMeter
    dynamic_agents: dict[str, Any] = {}
    """Agents that tools returned, by name: they can be transferred to without a handoff."""
    live: LiveConversation | None = None
    """The realtime session, if the run is one."""
    call_ids: set[str] = set()
    """Every tool call id used so far; ids are unique in a run."""
    signals: StopSignal = field(default_factory=StopSignal)
    """A request to stop it."""
    opened: dict[Any, AsyncCloseable] = {}
    """Resources that are shared by the run and closed when it stops, by owner."""
    fork: ForkedFrom | None = None
    """The run that it was copied from, if it is a fork."""
    calls_in_doubt: list[CallInDoubt] = []
    """The calls of tools whose effect must happen once that have no result; those that are settled since stay."""
    settled_calls: set[EventRef] = set()
    """The calls in doubt whose outcome a person has reported."""
    suspended_by: dict[str, tuple[object, ...]] = {}
    """The open interrupts that have raised `SuspendRun`, each with the blocks that it was raised in."""
    unawaited: dict[DeferredCall[Any], str] = {}
    """The calls of contexts that have not been awaited yet, each with the scope of its context.

    Copied to be read: a tool in a thread may add one meanwhile.
    """

    @property
    def has_open_calls(self) -> bool:
        """True if `check_ended` and `check_enclosed` have anything to check."""
        return bool(self.suspended_by or self.unawaited)

    async def catch_up(self) -> None:
        """Wait until the reader of the events, if any, has handled them: it may cancel the run.

        A live session does not wait: the user may speak meanwhile.
        """
        if self.log.sink is not None and self.live is None:
            await self.log.sink.catch_up()

    def recount(self, scope: str, *, besides: str = "") -> None:
        """Count what is recorded of a part whose code does not run again.

        The ids of its tool calls are used up as well.
        """
        events = self.log.visit(scope)
        if besides:
            left_out = keys.inside(scope, besides)
            events = [event for event in events if not event.key.startswith(left_out)]
        self.meter.recount(events)
        for event in events:
            if type(event) is AgentResponded:
                self.call_ids.update(call_ids_in([event.message]))
            elif type(event) is HistoryCompacted:
                self.call_ids.update(call_ids_in([each.message for each in event.summary]))
            elif type(event) is ToolReturned:
                self.note_result(event)

    def note_result(self, event: ToolReturned) -> None:
        """Note the outcomes of earlier calls that a result reports, once its turn has ended."""
        if event.settles:
            self.settled_calls.update([settled.event for settled in event.settles])

    def check_ended(self, what: str, scope: str) -> None:
        """Check that code that ended has awaited its calls and swallowed no `SuspendRun`.

        Call it before recording the end, and only if `has_open_calls`.

        Raises:
            OpenInterruptError: It continued without an answer.
            ToolFailedError: It did not await a call of its context.
        """
        for key in self.suspended_by:
            if keys.contains(scope, key):
                raise self.open_interrupt_error(what, key)
        for call, place in list(self.unawaited.items()):
            if place == scope or keys.contains(scope, place):
                raise call.missing_await(f"{what} has ended and left")

    def check_enclosed(self, what: str, block: object) -> None:
        """Check the same of a block inside a tool call or an activation.

        What a task that the block started has asked or left counts, what stands beside the block does not. An interrupt
        that is raised for the block in a task that ran before it, or in a task with an empty `contextvars.Context`, is
        found by `check_ended` at the end of the tool call or activation.

        Raises:
            OpenInterruptError: It continued without an answer.
            ToolFailedError: It did not await a call of its context.
        """
        for key, enclosing in self.suspended_by.items():
            if block in enclosing:
                raise self.open_interrupt_error(what, key)
        for call in list(self.unawaited):
            if block in call.enclosing:
                raise call.missing_await(f"{what} has ended and left")

    def open_interrupt_error(self, what: str, key: str) -> OpenInterruptError:
        """Make the error for code that continued without the answer."""
        error = OpenInterruptError(
            f"{what} continued while its question `{key}` is open; the exception that suspends the run must not be "
            "caught: use `except Exception` instead of `except BaseException` around ctx.interrupt, no "
            "return_exceptions=True, or raise it again"
        )
        if self.live is not None:
            # The session is closing and suspends the run, so that the error may reach no caller.
            _logger.error("run `%s`: %s", self.id, error)
        return error

    def forget_open_calls(self, scope: str) -> None:
        """Close the interrupts and calls of a part of the run that failed as a whole."""
        for key in [key for key in self.suspended_by if keys.contains(scope, key)]:
            del self.suspended_by[key]
        for call, place in list(self.unawaited.items()):
            if place == scope or keys.contains(scope, place):
                call.close()

    def part(self, *, values: MutableMapping[str, Any] | None = None, meter: UsageMeter | None = None) -> "RunState[C]":
        """Return the state for a part of the run with its own values or limits.

        All else is shared, except that dynamic agents of one part do not replace those of a parallel part.
        """
        agents = _DynamicAgents(self.dynamic_agents)
        agents.parent = self.dynamic_agents
        part_values = self.values if values is None else values
        return replace(self, values=part_values, meter=meter or self.meter, dynamic_agents=agents)


def ends_run(error: Exception) -> bool:
    """Return whether an error ends the whole run: no caller and no parallel branch may continue."""
    return isinstance(error, _RUN_ENDING)


_LOG_ERRORS = (ReplayMismatchError, LogError, RunNotFoundError, NotEncodableError)
_RUN_ENDING = (SetupError, StoreError, LimitError, UnknownPriceError, OpenInterruptError, *_LOG_ERRORS)
