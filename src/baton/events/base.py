"""Base classes of events and deltas, their origin, and the actions an agent can return."""

from typing import Any, TypeAlias

from msgspec import Struct


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


class Event(Struct, frozen=True, tag=True, tag_field="type", omit_defaults=True, gc=False):
    """Something that happened in a run; immutable and logged."""

    key: str
    """The key of the event, unique in the run and the same on every replay."""
    origin: Origin
    """The activation it comes from; `RUN_ORIGIN` for the run as a whole."""
    timestamp: float
    """Seconds since the epoch."""

    @property
    def agent(self) -> str:
        """The name of the agent it comes from; "" for the run as a whole."""
        return self.origin.agent

    @property
    def path(self) -> tuple[str, ...]:
        """The run path of the activation it comes from."""
        return self.origin.path


class Delta(Struct, frozen=True, tag=True, tag_field="type", omit_defaults=True, gc=False):
    """A partial result or progress message; delivered to subscribers, never logged."""

    origin: Origin
    """The activation it comes from."""

    @property
    def agent(self) -> str:
        """The name of the agent it comes from."""
        return self.origin.agent

    @property
    def path(self) -> tuple[str, ...]:
        """The run path of the activation it comes from."""
        return self.origin.path


class Transfer(Struct, frozen=True, tag=True, omit_defaults=True, gc=False):
    """Action: hand control to another agent of the team."""

    to: str
    """The name of the target."""
    call_id: str | None = None
    """The tool call that asked for the transfer, if one did."""
    payload: Any = None
    """The input of the handoff, as JSON data."""
    via: str = ""
    """The handoff tool that was called; it distinguishes several handoffs to the same agent."""


class Exit(Struct, frozen=True, tag=True, omit_defaults=True):
    """Action: end the whole run, including the workflows around this agent."""

    result: str | None = None
    """The output of the run; by default the agent's last answer."""


class BreakLoop(Struct, frozen=True, tag=True):
    """Action: end the innermost loop around this agent."""


Action: TypeAlias = Transfer | Exit | BreakLoop
"""An action that an agent can return from `run`. The agent decides, `flow` executes."""
