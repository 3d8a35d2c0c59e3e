"""What every event has: a key that is unique in its run, and where it comes from.

What an agent may ask for when it is done. An agent decides; `flow` acts.
"""

from typing import Any, TypeAlias

from msgspec import Struct


class Origin:
    """The activation an event comes from: its id, its agent, and the activation whose path it goes on from.

    All events of an activation share one origin, and a path is a chain of them: ten thousand transfers do not
    store or copy ten thousand growing tuples.
    """

    __slots__ = ("_path", "agent", "id", "parent")

    def __init__(self, id: str, agent: str, parent: "Origin | None" = None) -> None:
        self.id = id
        self.agent = agent
        self.parent = parent
        self._path: tuple[str, ...] | None = None

    @property
    def path(self) -> tuple[str, ...]:
        """The names of the agents that led here, this one last."""
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
"""The origin of what happens to the run as a whole."""
RUN_ORIGIN._path = ()


class ValueChanges(Struct, frozen=True, omit_defaults=True, gc=False):
    """What an effect did to the run's values; recorded in one piece with the effect."""

    written: dict[str, Any] = {}
    removed: tuple[str, ...] = ()


class Event(Struct, frozen=True, tag=True, tag_field="type", omit_defaults=True, gc=False):
    """Something that happened. `at` is seconds since the epoch."""

    key: str
    origin: Origin
    timestamp: float

    @property
    def agent(self) -> str:
        """The agent it happened to; "" for the run as a whole."""
        return self.origin.agent

    @property
    def path(self) -> tuple[str, ...]:
        """The run path of the activation it comes from."""
        return self.origin.path


class Delta(Struct, frozen=True, tag=True, tag_field="type", omit_defaults=True, gc=False):
    """Something on its way: delivered to whoever listens, never logged."""

    origin: Origin

    @property
    def agent(self) -> str:
        """The agent it comes from."""
        return self.origin.agent

    @property
    def path(self) -> tuple[str, ...]:
        """The run path of the activation it comes from."""
        return self.origin.path


class Transfer(Struct, frozen=True, tag=True, omit_defaults=True, gc=False):
    """Give the floor to another agent of the team."""

    to: str
    call_id: str | None = None
    payload: Any = None
    via: str = ""
    """The tool that asked for it: it tells apart several edges to the same agent."""


class Exit(Struct, frozen=True, tag=True, omit_defaults=True):
    """End the run here, through everything around this agent. Without a result, the last answer is the output."""

    result: str | None = None


class BreakLoop(Struct, frozen=True, tag=True):
    """End the innermost loop around this agent."""


Action: TypeAlias = Transfer | Exit | BreakLoop
