"""One run as everything inside it shares it."""

from collections.abc import MutableMapping
from typing import Any, Generic, Literal, Protocol

from typing_extensions import TypeVar

from ..events import Origin
from ..log import Log
from .limits import UsageMeter

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
