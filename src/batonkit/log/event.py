"""Base classes of events and deltas, their origin, and the actions an agent can return."""

from collections.abc import Iterable
from typing import Any, TypeAlias

from msgspec import Struct

from . import keys


class Origin:
    """The activation that an event comes from.

    All events of an activation share one origin, and a path is a linked list of origins, so that ten thousand
    transfers do not store ten thousand growing tuples.

    Args:
        id: The id of the activation, unique in the run.
        agent: The name of its agent.
        parent: The activation that its path continues.
    """

    __slots__ = ("_path", "agent", "id", "parent")

    def __init__(self, id: str, agent: str, parent: "Origin | None" = None) -> None:
        self.id = id
        self.agent = agent
        self.parent = parent
        self._path: tuple[str, ...] | None = None

    @property
    def path(self) -> tuple[str, ...]:
        """The run path: the names of the agents that led here, this one last."""
        if self._path is None:
            names: list[str] = []
            origin: Origin | None = self
            while origin is not None and origin._path is None:
                names.append(origin.agent)
                origin = origin.parent
            before = origin._path if origin is not None and origin._path is not None else ()
            self._path = (*before, *reversed(names))
        return self._path

    @property
    def place(self) -> tuple[str, ...]:
        """The names of the agents that this one is nested in, outermost first, and its own."""
        names = [self.agent]
        origin = self.parent
        around = keys.parent(self.id)
        while origin is not None and around:
            # The path of a workflow's step also has the steps before it; only the agent around it has a shorter id.
            if keys.contains(origin.id, around):
                names.append(origin.agent)
                around = keys.parent(origin.id)
            origin = origin.parent
        return tuple(reversed(names))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Origin) and (self.id, self.agent) == (other.id, other.agent)

    def __hash__(self) -> int:
        return hash((self.id, self.agent))

    def __repr__(self) -> str:
        return f"Origin({self.id!r}, {self.agent!r})"


RUN_ORIGIN = Origin("", "")
"""The origin of events that concern the run as a whole."""
RUN_ORIGIN._path = ()


class ValueChanges(Struct, frozen=True, omit_defaults=True, gc=False):
    """Changes to the run's values, recorded in the event of the step that made them."""

    written: dict[str, Any] = {}
    """The values that were set, by key."""
    removed: tuple[str, ...] = ()
    """The keys that were deleted."""

    @staticmethod
    def merge(changes: "Iterable[ValueChanges | None]") -> "ValueChanges | None":
        """Combine changes into one; None if there are none.

        Args:
            changes: The changes; of two values for a key, the later one counts.
        """
        found = [each for each in changes if each is not None]
        if len(found) < 2:
            return found[0] if found else None
        written = {key: value for each in found for key, value in each.written.items()}
        removed = {key for each in found for key in each.removed} - written.keys()
        return ValueChanges(written, tuple(sorted(removed)))


class FromActivation:
    """Mixin of what comes from an activation."""

    __slots__ = ()
    origin: Origin

    @property
    def agent(self) -> str:
        """The name of the agent it comes from; "" for the run as a whole."""
        return self.origin.agent

    @property
    def path(self) -> tuple[str, ...]:
        """The run path of the activation it comes from."""
        return self.origin.path


class Event(FromActivation, Struct, frozen=True, tag=True, tag_field="type", omit_defaults=True, gc=False):
    """Something that happened in a run; immutable and logged."""

    key: str
    """The key of the event, unique in the run and the same on every replay."""
    origin: Origin
    """The activation it comes from; `RUN_ORIGIN` for the run as a whole."""
    timestamp: float
    """Seconds since the epoch."""


class Delta(FromActivation, Struct, frozen=True, tag=True, tag_field="type", omit_defaults=True, gc=False):
    """A partial result or progress message; delivered to subscribers, never logged."""

    origin: Origin
    """The activation it comes from."""


class Transfer(Struct, frozen=True, tag=True, omit_defaults=True, gc=False):
    """Action: hand control to another agent of the team."""

    to: str
    """The name of the target."""
    call_id: str | None = None
    """The tool call that asked for the transfer, if one did."""
    payload: Any = None
    """The input of the handoff, as JSON data."""
    via: str = ""
    """The handoff tool that was called; it distinguishes several handoffs to the same agent.

    `name#2` is the second handoff with that name.
    """


class Exit(Struct, frozen=True, tag=True, omit_defaults=True):
    """Action: end the whole run, including the workflows around this agent."""

    result: str | None = None
    """The output of the run; by default the last answer given."""


class BreakLoop(Struct, frozen=True, tag=True):
    """Action: end the innermost loop around this agent."""


class Finish(Struct, frozen=True, tag=True, omit_defaults=True):
    """Action: finish the task that was handed to this agent, and return control with its result."""

    result: Any = None
    """The result: a value of the handoff's `result_type` or, if it has none, JSON data."""
    call_id: str | None = None
    """The tool call that finished the task, if one did."""


class CancelTask(Struct, frozen=True, tag=True, omit_defaults=True):
    """Action: give up the task of this agent, and return control without a result."""

    reason: str = ""
    """The reason, which the agent that control returns to reads."""
    call_id: str | None = None
    """The tool call that cancelled the task, if one did."""


Action: TypeAlias = Transfer | Exit | BreakLoop | Finish | CancelTask
"""An action that an agent can return from `run`. The agent decides, `follow` executes."""
