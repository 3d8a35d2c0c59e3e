"""The state of one run that all its activations share, its limits and their counters."""

from collections.abc import Iterable, MutableMapping
from typing import Any, Generic, Literal, Protocol

from msgspec import Struct
from typing_extensions import TypeVar

from ..errors import LimitError
from ..events import AgentResponded, ControlTransferred, Event, Origin
from ..log import Log
from ..messages import Usage


class Limits(Struct, frozen=True, kw_only=True):
    """Limits of a run, including everything nested in it; None means no limit."""

    model_calls: int | None = 100
    """Maximum number of model calls."""
    transfers: int | None = 32
    """Maximum number of transfers."""
    idle_cycles: int | None = 3
    """Maximum number of round trips between two agents without progress."""
    seconds: float | None = None
    """Maximum duration."""
    tokens: int | None = None
    """Maximum number of input and output tokens."""
    cost: float | None = None
    """Maximum cost, in the currency of the providers' price lists."""


class UsageMeter:
    """Counters of a run that raise LimitError at its limits. Replayed steps count as well.

    Args:
        limits: The limits.
        parent: The meter of the run, if this one is for a part with limits of its own; it counts as well.
    """

    __slots__ = ("cost", "limits", "model_calls", "parent", "tokens", "transfers")

    def __init__(self, limits: Limits, parent: "UsageMeter | None" = None) -> None:
        self.limits = limits
        self.parent = parent
        self.model_calls = 0
        self.transfers = 0
        self.tokens = 0
        self.cost = 0.0

    def start_model_call(self, origin: Origin) -> None:
        """Count a model call before it is made.

        Args:
            origin: The activation that makes it.
        """
        if self.parent is not None:
            self.parent.start_model_call(origin)
        self.model_calls += 1
        allowed = self.limits.model_calls
        if allowed is not None and self.model_calls > allowed:
            raise self._exceeded("model_calls", allowed, origin)

    def start_transfer(self, origin: Origin) -> None:
        """Count a transfer before it is made.

        Args:
            origin: The activation that makes it.
        """
        if self.parent is not None:
            self.parent.start_transfer(origin)
        self.transfers += 1
        allowed = self.limits.transfers
        if allowed is not None and self.transfers > allowed:
            raise self._exceeded("transfers", allowed, origin)

    def add_usage(self, usage: Usage, origin: Origin) -> None:
        """Count the tokens and cost of a recorded model call.

        Args:
            usage: The usage of the call.
            origin: The activation that made it.
        """
        if self.parent is not None:
            self.parent.add_usage(usage, origin)
        self.tokens += usage.input_tokens + usage.output_tokens
        self.cost += usage.cost
        limits = self.limits
        if limits.tokens is not None and self.tokens > limits.tokens:
            raise self._exceeded("tokens", limits.tokens, origin)
        if limits.cost is not None and self.cost > limits.cost:
            raise self._exceeded("cost", limits.cost, origin)

    def recount(self, events: Iterable[Event]) -> None:
        """Count recorded events of a part whose code does not run again.

        Args:
            events: The events of the part.
        """
        for event in events:
            if type(event) is ControlTransferred:
                self.start_transfer(event.origin)
            elif type(event) is AgentResponded and event.model:
                self.start_model_call(event.origin)
                if event.usage is not None:
                    self.add_usage(event.usage, event.origin)

    def _exceeded(self, limit: str, allowed: float, origin: Origin) -> LimitError:
        return LimitError(limit, allowed, origin.path, share=None if self.parent is None else self)


C = TypeVar("C", default=Any)


class StopSignal:
    """A request to stop a run, shared by all its parts."""

    __slots__ = ("stop",)

    def __init__(self) -> None:
        self.stop: Literal["", "now", "after_turn"] = ""
        """Stop at once, or after the current turn of each active agent; "" for no request."""


class _DynamicAgents(dict[str, Any]):
    """The dynamic agents of a part of a run; new ones are added to the parent as well."""

    __slots__ = ("parent",)
    parent: dict[str, Any]

    def __setitem__(self, name: str, agent: Any) -> None:
        super().__setitem__(name, agent)
        self.parent[name] = agent


class AsyncCloseable(Protocol):
    """A resource with an async `close`."""

    async def close(self) -> None:
        """Close the resource."""
        ...


class LiveConversation(Protocol):
    """A realtime session: the run stays in progress while its interrupts are open."""

    async def answer_to(self, key: str) -> Any:
        """Wait for the answer to an interrupt.

        Args:
            key: The id of the interrupt.

        Raises:
            SuspendRun: The session ended before there was an answer.
        """
        ...

    def claim(self, target: str, origin: Origin) -> str | None:
        """Reserve the transfer to an agent; only one can be reserved.

        Args:
            target: The agent.
            origin: The activation that asks for the transfer.

        Returns:
            The reason for a refusal, or None.
        """
        ...

    def unclaim(self) -> None:
        """Undo `claim`: the transfer does not happen."""
        ...

    async def readiness(self, ctx: Any, target: str) -> str | None:
        """Prepare the session for a transfer.

        Args:
            ctx: The context of the tool call that asks for it.
            target: The agent.

        Returns:
            The reason for a refusal, or None.
        """
        ...


class RunState(Generic[C]):
    """The state of one run, or of a part of it, that its activations share.

    Args:
        id: The id of the run.
        log: The log of the run.
        context: The user's own context object.
        values: The run's values.
        meter: The counters of its limits.
        parent: The run that this is a part of, if any.
    """

    __slots__ = ("call_ids", "context", "dynamic_agents", "id", "live", "log", "meter", "opened", "signals", "values")

    def __init__(
        self,
        id: str,
        log: Log,
        context: C,
        values: MutableMapping[str, Any],
        meter: UsageMeter,
        parent: "RunState[C] | None" = None,
    ) -> None:
        self.id = id
        self.log = log
        self.context = context
        self.values = values
        self.meter = meter
        self.dynamic_agents: dict[str, Any] = {}
        """Agents that tools returned, by name: they can be transferred to without a handoff."""
        self.live: LiveConversation | None = None
        """The realtime session, if the run is one."""
        if parent is None:
            self.call_ids: set[str] = set()
            """Every tool call id used so far; ids are unique in a run."""
            self.signals = StopSignal()
            self.opened: dict[Any, AsyncCloseable] = {}
            """Resources that are shared by the run and closed when it stops, by owner."""
        else:
            self.call_ids, self.signals, self.opened = parent.call_ids, parent.signals, parent.opened
            self.live = parent.live
            self.dynamic_agents = dynamic_agents = _DynamicAgents(parent.dynamic_agents)
            dynamic_agents.parent = parent.dynamic_agents

    def part(self, *, values: MutableMapping[str, Any] | None = None, meter: UsageMeter | None = None) -> "RunState[C]":
        """Return the state for a part of the run with its own values or limits.

        All else is shared, except that dynamic agents of one part do not replace those of a parallel part.

        Args:
            values: The values of the part; by default the run's.
            meter: The meter of the part; by default the run's.
        """
        values = values if values is not None else self.values
        return RunState(self.id, self.log, self.context, values, meter or self.meter, self)
