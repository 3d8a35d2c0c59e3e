"""The agent that asks a model."""

from collections.abc import Coroutine
from typing import Any

from typing_extensions import TypeVar

from ..events import Action
from .base import AgentContext
from .conversation import ModelLoop
from .definition import AgentDefinition

C = TypeVar("C", default=Any)
Out = TypeVar("Out", default=str, covariant=True)


class Agent(AgentDefinition[C, Out]):
    """An agent that asks a model, runs the tools it calls, and answers or hands the conversation on.

    A frozen value: the same agent may stand in several teams and run many times at once.
    """

    def run(self, ctx: AgentContext[C]) -> Coroutine[Any, Any, Action | None]:
        """Ask the model until it answers, transfers or exits."""
        return ModelLoop(self, ctx).run()
