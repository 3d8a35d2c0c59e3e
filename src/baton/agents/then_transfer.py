"""An agent around another that always hands on: after a normal end, control goes to one named agent."""

from time import time
from typing import Any, Literal

import msgspec

from ..context import WHOLE_MESSAGE, HistoryEntry
from ..errors import SetupError, check_choice
from ..events import Action, AgentResponded, ToolReturned, Transfer
from ..handoffs import TRANSFER_TOOL, Handoff
from ..messages import AssistantMessage, ToolCall
from .base import AgentContext, BaseAgent
from .reporting import run_or_report
from .wrapping import AgentWrapper


class ThenTransfer(AgentWrapper[Any, Any]):
    """Runs another agent under its own name, then transfers to `to`. Exit, transfer and interrupt pass through."""

    def __init__(self, inner: BaseAgent[Any, Any], to: str, on_error: Literal["raise", "report"]) -> None:
        super().__init__(inner, further_handoffs=[Handoff(agent=to, offered_to_model=False)])
        self.to = to
        self.on_error = on_error

    async def run(self, ctx: AgentContext[Any]) -> Action | None:
        """Let the inner agent work, then hand on."""
        if self.on_error == "report":
            action = await run_or_report(self.inner, ctx, to=self.to)
        else:
            action = await self.inner.run(ctx)
        return action if action is not None else await self._hand_on(ctx)

    async def _hand_on(self, ctx: AgentContext[Any]) -> Transfer:
        """Leave the same trace as a transfer that a model asked for."""
        call = ToolCall(
            f"call_{ctx._scope.replace('/', '_').replace('.', '_')}_then",
            TRANSFER_TOOL,
            msgspec.json.encode({"agent_name": self.to}).decode(),
        )
        log, origin = ctx._run.log, ctx._origin
        said = log.find(f"{ctx._scope}/then", AgentResponded)
        if said is None:
            said = AgentResponded(f"{ctx._scope}/then", origin, time(), AssistantMessage(tool_calls=(call,)))
            log.write(said)
        returned = log.find(f"{said.key}.0", ToolReturned)
        if returned is None:
            told = f"successfully transferred to agent [{self.to}]"
            returned = ToolReturned(f"{said.key}.0", origin, time(), call.id, call.name, told, requested_agent=self.to)
            log.write(returned)
        await log.settle()
        ctx._history.entries.append(HistoryEntry(said.message, origin, followed=(0,)))
        ctx._history.entries.append(HistoryEntry(returned.message, origin, followed=(WHOLE_MESSAGE,)))
        # By no edge's rules: the agent's own handoffs may lead to the same agent on other terms.
        return Transfer(self.to, call.id, via="then_transfer")


def then_transfer(
    agent: BaseAgent[Any, Any], *, to: str, on_error: Literal["raise", "report"] = "raise"
) -> BaseAgent[Any, Any]:
    """The agent, with control going to the agent named `to` whenever it ends normally.

    An error ends the run, unless `on_error="report"`: then it is told to the next agent as a message.
    """
    if agent.name == to:
        raise SetupError(f"then_transfer(`{to}`, to=`{to}`) would never end; name another agent")
    check_choice(f"on_error of then_transfer(`{agent.name}`)", on_error, ("raise", "report"))
    return ThenTransfer(agent, to, on_error)
