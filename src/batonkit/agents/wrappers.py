"""Agents that wrap another agent, and `then_transfer`."""

import logging
from collections.abc import Sequence
from time import time
from typing import Any, Literal

import msgspec

from .._checks import check_arguments, check_choice
from .._wording import error_text
from ..context.run_state import ends_run
from ..context.values import TrackedValues
from ..errors import SetupError
from ..handoffs import TRANSFER_TOOL, Handoff
from ..log import Action, AgentResponded, StepCompleted, Transfer, ValueChanges, keys
from ..messages import AssistantMessage, ToolCall, ToolSpec
from .agent_context import AgentContext, HistoryFunction
from .base_agent import BaseAgent, C, Out
from .turn import record_result


class AgentWrapper(BaseAgent[C, Out]):
    """Base class of agents that wrap another: same name, same edges.

    Args:
        inner: The wrapped agent.
        further_handoffs: Edges that the wrapper adds.
    """

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
            middleware=inner.middleware,
        )
        self.inner = inner
        self._is_remote = inner._is_remote

    def _tool_specs(self) -> tuple[ToolSpec, ...]:
        return self.inner._tool_specs()

    def _required_contexts(self) -> dict[str, Any]:
        return self.inner._required_contexts()

    def _guardrail_names(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        return self.inner._guardrail_names()

    def _inner_policies(self) -> tuple[str | HistoryFunction, ...]:
        return self.inner._inner_policies()

    def _referenced_agents(self) -> tuple[BaseAgent[Any, Any], ...]:
        return self.inner._referenced_agents()

    def _transfer_children(self) -> Sequence[BaseAgent[Any, Any]]:
        return self.inner._transfer_children()

    def inner_agents(self) -> tuple[BaseAgent[Any, Any], ...]:
        """Return the inner agents of the wrapped agent."""
        return self.inner.inner_agents()


_logger = logging.getLogger("baton.agents")


async def run_or_report(agent: BaseAgent[Any, Any], ctx: AgentContext[Any], *, to: str) -> Action | None:
    """Run an agent; if it fails, replace its messages with a report of the error."""
    log = ctx._run.log
    key = keys.failure(ctx._scope)
    failed = log.find(key, StepCompleted)
    if failed is not None:
        # It failed before a restart: it must not run again, but its value changes count.
        ctx._run.recount(ctx._scope)
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
            problem = f"[{agent.name}] failed: {type(error).__name__}: {error_text(error)}"
            ctx._run.forget_open_calls(ctx._scope)
            ctx._take_changes()
            changes = ValueChanges.merge((ctx._all_changes(), values.changes()))
            failed = StepCompleted(key, ctx._origin, time(), keys.FAILED, problem, changes)
            log.write(failed)
    ctx._history.apply(failed, ctx._origin)
    return None


class ThenTransfer(AgentWrapper[C, Out]):
    """Transfers to `to` when the wrapped agent has finished without an action."""

    def __init__(self, inner: BaseAgent[C, Out], to: str, on_error: Literal["raise", "report"]) -> None:
        super().__init__(inner, further_handoffs=[Handoff(agent=to, offered_to_model=False)])
        self.to = to
        self.on_error = on_error

    async def run(self, ctx: AgentContext[C]) -> Action | None:
        """Run the wrapped agent, then transfer."""
        if self.on_error == "report":
            action = await run_or_report(self.inner, ctx, to=self.to)
        else:
            action = await self.inner.run(ctx)
        return action if action is not None else await self._transfer(ctx)

    async def _transfer(self, ctx: AgentContext[Any]) -> Transfer:
        """Record the same events as a transfer that a model asked for."""
        key = keys.inside(ctx._scope, "then")
        arguments = msgspec.json.encode({"agent_name": self.to}).decode()
        call = ToolCall(keys.as_call_id(key), TRANSFER_TOOL, arguments)
        log = ctx._run.log
        origin = ctx._origin
        response = log.find(key, AgentResponded)
        if response is None:
            response = AgentResponded(key, origin, time(), AssistantMessage(tool_calls=(call,)))
            log.write(response)
        text = f"successfully transferred to agent [{self.to}]"
        returned = record_result(ctx, keys.call(key, 0), call, text, requested_agent=self.to)
        await log.settle()
        ctx._history.apply(response, origin)
        ctx._history.apply(returned, origin)
        # Not via an edge: the agent's own handoffs may lead to the same agent with other options.
        return Transfer(self.to, call.id, via="then_transfer")


@check_arguments
def then_transfer(
    agent: BaseAgent[C, Out], *, to: str, on_error: Literal["raise", "report"] = "raise"
) -> BaseAgent[C, Out]:
    """Transfer to another agent whenever an agent finishes normally.

    Args:
        agent: The agent.
        to: The name of the next agent.
        on_error: `"raise"` ends the run; `"report"` reports the error to the next agent in a message.

    Raises:
        SetupError: `to` is the agent itself, or `on_error` is invalid.
    """
    if agent.name == to:
        raise SetupError(f"then_transfer(`{to}`, to=`{to}`) would never end; name another agent")
    check_choice(f"on_error of then_transfer(`{agent.name}`)", on_error, ("raise", "report"))
    return ThenTransfer(agent, to, on_error)
