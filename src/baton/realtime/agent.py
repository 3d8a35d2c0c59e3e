"""The agent of live conversations: a definition like any other, with a voice."""

from collections.abc import Coroutine
from typing import Any

from typing_extensions import TypeVar

from ..agents import AgentContext
from ..events import Action
from .definition import RealtimeDefinition
from .floor import LiveActivation

C = TypeVar("C", default=Any)


class RealtimeAgent(RealtimeDefinition[C]):
    """An agent that has the floor in a live conversation until it hands over or the conversation ends.

    A frozen value, with the same tools, handoffs, instructions and hooks as an `Agent`. A text agent can stand behind
    it as a tool: `tools=[expert.as_tool()]`.
    """

    def run(self, ctx: AgentContext[C]) -> Coroutine[Any, Any, Action | None]:
        """Have the floor of the live conversation that the run is."""
        return LiveActivation(self, ctx).run()
