"""An agent around an agent: it bears the same name and has the same edges, and does something more."""

from collections.abc import Sequence
from typing import Any

from typing_extensions import TypeVar

from ..handoffs import Handoff
from ..messages import ToolSpec
from .base import BaseAgent

C = TypeVar("C", default=Any)
Out = TypeVar("Out", default=str, covariant=True)


class AgentWrapper(BaseAgent[C, Out]):
    """What wrappers share; `further_handoffs` are edges that the wrapper adds."""

    def __init__(self, inner: BaseAgent[C, Out], *, further_handoffs: Sequence[Handoff] = ()) -> None:
        super().__init__(
            inner.name,
            description=inner.description,
            examples=inner.examples,
            sub_agents=inner.sub_agents,
            handoffs=[*inner._edges(), *further_handoffs],
            disallow_transfer_to_parent=inner.disallow_transfer_to_parent,
            history=inner.history,
            accepts=inner.accepts,
            hooks=inner.hooks,
        )
        self.inner = inner

    def _tool_specs(self) -> tuple[ToolSpec, ...]:
        """The inner agent's tools."""
        return self.inner._tool_specs()

    def _referenced_agents(self) -> tuple[BaseAgent[Any, Any], ...]:
        """The agents the inner agent's functions may return."""
        return self.inner._referenced_agents()

    def _transfer_children(self) -> Sequence[BaseAgent[Any, Any]]:
        """The inner agent's children."""
        return self.inner._transfer_children()

    def inner_agents(self) -> tuple[BaseAgent[Any, Any], ...]:
        """The agents inside the inner agent."""
        return self.inner.inner_agents()
