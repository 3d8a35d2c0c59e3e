"""An agent around an agent: it bears the same name and has the same edges, and does something more.

Let an agent work; if it fails, whoever comes next is told so in a message instead.

An agent around another that always hands on: after a normal end, control goes to one named agent.
"""

import logging
from collections.abc import Sequence
from time import time
from typing import Any, Literal

import msgspec
from typing_extensions import TypeVar

from ..context import HistoryEntry
from ..context.history import WHOLE_MESSAGE
from ..context.values import TrackedValues
from ..errors import SetupError, check_choice, ends_run
from ..events import Action, AgentResponded, StepCompleted, ToolReturned, Transfer, ValueChanges
from ..handoffs import TRANSFER_TOOL, Handoff
from ..log import FAILED
from ..messages import AssistantMessage, ToolCall, ToolSpec, UserMessage
from .base import AgentContext, BaseAgent

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


_logger = logging.getLogger("baton.agents")


async def run_or_report(agent: BaseAgent[Any, Any], ctx: AgentContext[Any], *, to: str) -> Action | None:
    """The agent's action. If it fails, all that is left of it is a message that says so, once, also after a restart."""
    log, key = ctx._run.log, f"{ctx._scope}/{FAILED}"
    mark = len(ctx._history.entries)
    failed = log.find(key, StepCompleted)
    if failed is not None:
        # It failed before a restart: it must not try again, but what it did to the values counts.
        ctx._run.meter.recount(log.visit(ctx._scope))
        ctx._apply_changes(failed.value_changes)
    else:
        values = TrackedValues(ctx._run.values)
        ctx._run = ctx._run.part(values=values)
        try:
            return await agent.run(ctx)
        except Exception as error:
            if ends_run(error):
                raise
            _logger.warning("`%s` failed; reported to `%s`", agent.name, to, exc_info=True)
            problem = f"[{agent.name}] failed: {type(error).__name__}: {error}"
            failed = StepCompleted(key, ctx._origin, time(), FAILED, problem, _all_changes(ctx, values))
            log.write(failed)
    ctx._history.truncate(mark)
    ctx._history.add(UserMessage(str(failed.result)), ctx._origin)
    return None


def _all_changes(ctx: AgentContext[Any], values: TrackedValues) -> ValueChanges | None:
    """What the agent and everything inside it did to the values. Not what each event has: some of that is undone."""
    ctx._take_changes()
    own, inside = ctx._all_changes(), values.changes()
    if own is None or inside is None:
        return own or inside
    return ValueChanges({**own.written, **inside.written}, tuple(sorted({*own.removed, *inside.removed})))


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
