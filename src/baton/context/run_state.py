"""One run as everything inside it shares it.

How much a run and everything nested in it may use, and the counting of it.
"""

from collections.abc import Iterable, MutableMapping
from typing import Any, Generic, Literal, Protocol

from msgspec import Struct
from typing_extensions import TypeVar

from ..errors import LimitError
from ..events import AgentResponded, ControlTransferred, Event, Origin
from ..log import Log
from ..messages import Usage


class Limits(Struct, frozen=True, kw_only=True):
    """Limits of a whole run tree; None means no limit.

    `round_trips` is how often two agents may pass control back and forth without anything new happening.
    """

    model_calls: int | None = 100
    transfers: int | None = 32
    idle_cycles: int | None = 3
    seconds: float | None = None
    tokens: int | None = None
    cost: float | None = None


class UsageMeter:
    """Counts what a run uses, on the first run and on every replay alike, and stops it at its limits.

    A part of a run may have a smaller share: what it uses is counted in the whole as well.
    """

    __slots__ = ("cost", "limits", "model_calls", "tokens", "transfers", "whole")

    def __init__(self, limits: Limits, whole: "UsageMeter | None" = None) -> None:
        self.limits = limits
        self.whole = whole
        self.model_calls = 0
        self.transfers = 0
        self.tokens = 0
        self.cost = 0.0

    def start_model_call(self, origin: Origin) -> None:
        """Count a model call before it is made."""
        if self.whole is not None:
            self.whole.start_model_call(origin)
        self.model_calls += 1
        allowed = self.limits.model_calls
        if allowed is not None and self.model_calls > allowed:
            raise self._exceeded("model_calls", allowed, origin)

    def start_transfer(self, origin: Origin) -> None:
        """Count a transfer before it is made."""
        if self.whole is not None:
            self.whole.start_transfer(origin)
        self.transfers += 1
        allowed = self.limits.transfers
        if allowed is not None and self.transfers > allowed:
            raise self._exceeded("transfers", allowed, origin)

    def add_usage(self, usage: Usage, origin: Origin) -> None:
        """Count what a model call consumed. What is over the limit has been recorded; the run stops after it."""
        if self.whole is not None:
            self.whole.add_usage(usage, origin)
        self.tokens += usage.input_tokens + usage.output_tokens
        self.cost += usage.cost
        limits = self.limits
        if limits.tokens is not None and self.tokens > limits.tokens:
            raise self._exceeded("tokens", limits.tokens, origin)
        if limits.cost is not None and self.cost > limits.cost:
            raise self._exceeded("cost", limits.cost, origin)

    def count_again(self, events: Iterable[Event]) -> None:
        """Count what these events used: they are of a part that is over, and on a replay nobody goes inside."""
        for event in events:
            if type(event) is ControlTransferred:
                self.start_transfer(event.origin)
            elif type(event) is AgentResponded and event.model:
                self.start_model_call(event.origin)
                if event.usage is not None:
                    self.add_usage(event.usage, event.origin)

    def _exceeded(self, limit: str, allowed: float, origin: Origin) -> LimitError:
        return LimitError(limit, allowed, origin.path, share=None if self.whole is None else self)


C = TypeVar("C", default=Any)


class StopSignal:
    """What somebody outside has asked of a run. All its parts look at the same one."""

    __slots__ = ("stop",)

    def __init__(self) -> None:
        self.stop: Literal["", "now", "after_turn"] = ""
        """Whether the run is to stop: at once, or when the present turn of each agent in it is done."""


class _DynamicAgents(dict[str, Any]):
    """The guests of a part: those there were when it began, and its own. Whoever comes is known around it as well."""

    __slots__ = ("around",)
    around: dict[str, Any]

    def __setitem__(self, name: str, guest: Any) -> None:
        super().__setitem__(name, guest)
        self.around[name] = guest


class AsyncCloseable(Protocol):
    """Something that was opened."""

    async def close(self) -> None:
        """Close it, and return when that is done."""
        ...


class LiveConversation(Protocol):
    """A conversation that stays open while a run lasts. What is asked in it is waited for, not suspended."""

    async def answer_to(self, key: str) -> Any:
        """The answer to the question with this key; raises Suspend if the conversation ends before there is one."""
        ...

    def claim(self, target: str, origin: Origin) -> str | None:
        """Promise the floor to an agent; why that cannot be, if it is promised to another or no longer this one's."""
        ...

    def unclaim(self) -> None:
        """Take the promise back: the transfer does not happen."""
        ...

    async def readiness(self, ctx: Any, target: str) -> str | None:
        """Make everything ready for an agent to get the floor; why that cannot be done, if it cannot."""
        ...


class RunState(Generic[C]):
    """The id, the log, the user's context object, the values and the meter of one run, or of a part of it."""

    __slots__ = ("call_ids", "context", "guests", "id", "live", "log", "meter", "opened", "signals", "values")

    def __init__(
        self,
        id: str,
        log: Log,
        context: C,
        values: MutableMapping[str, Any],
        meter: UsageMeter,
        around: "RunState[C] | None" = None,
    ) -> None:
        """`around` is the run that this is a part of."""
        self.id = id
        self.log = log
        self.context = context
        self.values = values
        self.meter = meter
        self.guests: dict[str, Any] = {}
        """Agents that functions returned, by name: reachable in this run though no edge names them."""
        self.live: LiveConversation | None = None
        """The conversation that the run is, if it is a live one."""
        if around is None:
            self.call_ids: set[str] = set()
            """Every call id used so far: ids are unique in a run."""
            self.signals = StopSignal()
            self.opened: dict[Any, AsyncCloseable] = {}
            """What code in the run has opened for all of it, by what it was opened for; closed when the run stops."""
        else:
            self.call_ids, self.signals, self.opened = around.call_ids, around.signals, around.opened
            self.live = around.live
            self.guests = guests = _DynamicAgents(around.guests)
            guests.around = around.guests

    def part(self, *, values: MutableMapping[str, Any] | None = None, meter: UsageMeter | None = None) -> "RunState[C]":
        """The same run for a part of it that has values or limits of its own.

        All else is shared, but a guest that comes to a part beside this one does not take the place of one here.
        """
        values = values if values is not None else self.values
        return RunState(self.id, self.log, self.context, values, meter or self.meter, self)
