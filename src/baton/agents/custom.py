"""Agents made of a function."""

from collections.abc import Awaitable, Callable, Sequence
from inspect import getdoc, iscoroutinefunction
from typing import Any, TypeAlias

from ..errors import SetupError
from ..events import Action
from ..handoffs import Handoff
from .base import AgentContext, BaseAgent, HistoryPolicy

Body: TypeAlias = Callable[[AgentContext[Any]], Awaitable[Action | None]]


class FunctionAgent(BaseAgent[Any, Any]):
    """An agent whose `run` is a function."""

    def __init__(self, body: Body, name: str, **facts: Any) -> None:
        super().__init__(name, **facts)
        self._body = body

    async def run(self, ctx: AgentContext[Any]) -> Action | None:
        """Call the function."""
        return await self._body(ctx)


def agent(
    name: str = "",
    *,
    description: str = "",
    sub_agents: Sequence[BaseAgent[Any, Any]] = (),
    handoffs: Sequence[BaseAgent[Any, Any] | Handoff | str] = (),
    disallow_transfer_to_parent: bool = False,
    history: HistoryPolicy | None = None,
) -> Callable[[Body], FunctionAgent]:
    """Make an agent of an async function that takes the context: `@agent("Greeter", description="…")`.

    Without a name the function's is taken, without a description its docstring.
    """

    def make(body: Body) -> FunctionAgent:
        if not iscoroutinefunction(body):
            raise SetupError(f"@agent wants `async def …(ctx)`, not {body!r}")
        return FunctionAgent(
            body,
            name or body.__name__,
            description=description or (getdoc(body) or "").partition("\n")[0],
            sub_agents=sub_agents,
            handoffs=handoffs,
            disallow_transfer_to_parent=disallow_transfer_to_parent,
            history=history,
        )

    return make
