"""A handoff: an edge from one agent to another, as its author writes it down."""

from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol, TypeAlias, runtime_checkable

from ..errors import SetupError

Returns: TypeAlias = Literal["stay", "caller"] | str
"""Where control goes when the target is done: it stays, goes back to the caller, or on to a named agent."""


@runtime_checkable
class Addressee(Protocol):
    """What an edge needs to know of the agent at its other end."""

    @property
    def name(self) -> str: ...
    @property
    def description(self) -> str: ...


@dataclass(frozen=True, kw_only=True)
class Handoff:
    """An edge to an agent, or to the name of one elsewhere in the team."""

    agent: Addressee | str
    tool_name_override: str | None = None
    tool_description_override: str | None = None
    returns: Returns = "stay"
    history: Any = None
    """How the target reads what happened before; None leaves it to the target and the runner."""
    is_shown: bool = True
    """Whether the model is offered this edge; code may follow it either way."""

    def __post_init__(self) -> None:
        given: Any = self.agent
        if not isinstance(given, str | Addressee):
            raise SetupError(f"a handoff goes to an agent or the name of one, not to {given!r}")

    @property
    def target(self) -> str:
        """The name of the agent at the other end."""
        return self.agent if isinstance(self.agent, str) else self.agent.name

    def clone(self, **changes: Any) -> "Handoff":
        """The same edge with some things changed."""
        return replace(self, **changes)


def handoff(
    agent: Addressee | str,
    *,
    tool_name_override: str | None = None,
    tool_description_override: str | None = None,
    returns: Returns = "stay",
    history: Any = None,
) -> Handoff:
    """An edge to put into `Agent(handoffs=[…])` when the plain agent does not say enough."""
    return Handoff(
        agent=agent,
        tool_name_override=tool_name_override,
        tool_description_override=tool_description_override,
        returns=returns,
        history=history,
    )
