"""Execution of a team: run the active agent, follow its transfer, repeat. The only reader of `Transfer`."""

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from time import time
from typing import Any, cast

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from ..agents import AgentContext, BaseAgent
from ..agents.activation import FlowOutcome, HistoryFunction, RunConfig
from ..agents.hooks import HookDispatcher
from ..agents.middleware import stack_for
from ..agents.middleware_activations import ActivationChain
from ..context import Limits, RunContext
from ..context.history import History
from ..context.run_context import SuspendRun
from ..context.run_state import LiveConversation, RunState
from ..context.values import to_json_value
from ..errors import LimitError, LoopError, ReplayMismatchError, SetupError, TransferError
from ..events import (
    Action,
    AgentFinished,
    AgentStarted,
    BreakLoop,
    CancelTask,
    ControlTransferred,
    Exit,
    Finish,
    Origin,
    Transfer,
)
from ..handoffs import HandoffInputData, HandoffInputFilter, HandoffTarget
from ..handoffs.base import check_filter_result
from ..messages import Message, UserMessage
from ..messages.types import call_ids_in
from ..stores import RunRecord
from ..tools.guardrails import copy_changes
from .filter_input import FilterInput
from .history import FixedView, select_messages, view_history
from .loops import LoopDetector
from .tasks import TaskStack, ask_user, needs_reply
from .team import Team, TeamMember


class FlowConfig(Struct, frozen=True):
    """Settings of every run of one team under one runner."""

    team: Team
    """The team."""
    options: RunConfig
    """Options that agents read."""
    limits: Limits
    """Limits of runs that have none of their own."""
    history: str | HistoryFunction = "rewritten"
    """The history policy of agents and handoffs that have none of their own."""
    hide_transfers: bool = False
    """True to leave followed transfers out of the history that later agents read."""
    loop_fallback: str | None = None
    """The agent that takes over when agents transfer back and forth without progress."""
    input_filter: HandoffInputFilter | None = None
    """The input filter of handoffs that have none of their own."""
    live: LiveConversation | None = None
    """The realtime session, if the runner is bound to one."""
    context_factory: Callable[[RunRecord], Any] | None = None
    """Creates the context of runs for which none is given."""


class TeamFlow(Struct, eq=False):
    """One flow of control through a team.

    Args:
        run: The run, or the part of a run, that it belongs to.
        history: Its history.
        config: The settings of the runner.
        team: The team, including dynamic agents.
        stack: The tasks and agents that control returns to.
    """

    run: RunState[Any]
    history: History
    config: FlowConfig
    team: Team
    stack: TaskStack = field(default_factory=TaskStack)
    used_fallback: bool = False
    span: Any = None
    """The `ActivationSpan` of the active agent, if the run is traced."""

    def resolve(self, source: TeamMember, name: str) -> TeamMember:
        """Return the target of a transfer: a member of the team, or a dynamic agent.

        Args:
            source: The member that transfers.
            name: The name of the target.

        Raises:
            TransferError: There is no such agent.
        """
        known = self.team.members.get(name)
        if known is not None and not self.run.dynamic_agents:
            return known
        agent = self.run.dynamic_agents.get(name)
        if agent is None or (known is not None and known.agent is agent):
            if known is None:
                raise TransferError(source.agent.name, name, source.routes.reachable)
            return known
        self.team = self.team.extend(agent)
        return self.team.members[name]

    def fall_back(self, error: Exception) -> Transfer:
        """Return the transfer to the loop fallback.

        Args:
            error: The error to raise if there is no fallback, or if it was used before.
        """
        name = self.config.loop_fallback
        if self.used_fallback or name is None or name not in self.team.members:
            raise error
        self.used_fallback = True
        return Transfer(name)

    def run_agent(
        self,
        agent: HandoffTarget,
        *,
        run: RunState[Any],
        history: History,
        prefix: str,
        after: Origin,
        projection: str | HistoryFunction | None = None,
    ) -> Coroutine[Any, Any, FlowOutcome]:
        """Run an agent that is nested in another one, within its own team.

        Args:
            agent: The nested agent, one of the `inner_agents` of its owner.
            run: The state of the run, or of the part that the agent runs in.
            history: The history it reads and extends.
            prefix: The prefix of its keys.
            after: The activation that its path continues.
            projection: The history policy of the first activation.
        """
        team = self.team.inner.get(agent.name)
        if team is None or team.members[team.root].agent is not agent:
            raise SetupError(f"`{after.agent}` runs {agent!r} inside it, but its inner_agents() do not list it")
        edge = _DIRECT if projection is None else _EdgeView(history=projection)
        flow = TeamFlow(run, history, self.config, team)
        return follow(flow, team.members[team.root], prefix=prefix, after=after, edge=edge)


def follow(
    flow: TeamFlow, start: TeamMember, *, prefix: str = "", after: Origin | None = None, edge: "_EdgeView | None" = None
) -> Coroutine[Any, Any, FlowOutcome]:
    """Run an agent and each agent that it transfers to, until one ends without a transfer.

    Args:
        flow: The flow of control.
        start: The first agent.
        prefix: The prefix of keys.
        after: The activation that the path continues.
        edge: The view of the first agent on the history.
    """
    work = _follow(flow, start, prefix, after, edge or _DIRECT)
    return work if flow.run.trace is None else _follow_traced(flow, work)


async def _follow_traced(flow: TeamFlow, work: Coroutine[Any, Any, FlowOutcome]) -> FlowOutcome:
    """Follow a flow of control; if it stops in an activation, leave the span of that activation."""
    try:
        return await work
    except BaseException as error:
        if flow.span is not None:
            flow.span.leave(error)
        raise


async def _follow(  # noqa: C901
    flow: TeamFlow, start: TeamMember, prefix: str, after: Origin | None, edge: "_EdgeView"
) -> FlowOutcome:
    run, log, history, stack, member, origin = flow.run, flow.run.log, flow.history, flow.stack, start, after
    breaks_loop, hop, first, answer, loops = False, 0, None, cast("Any", None), None
    while True:
        if origin is not None and log.sink is not None and run.live is None:
            # A reader can cancel the run when it reads of a handoff, before the next agent starts.
            # A live session must not pause between two agents: the user may speak meanwhile.
            await log.sink.catch_up()
        if stop := run.signals.stop:
            # An agent may have swallowed the cancellation; no other agent starts.
            raise asyncio.CancelledError if stop == "now" else SuspendRun
        hop += 1
        origin = Origin(f"{prefix}{hop}", member.agent.name, origin)
        first, mark = first or origin, len(history.entries)
        ctx = _activate(flow, member, origin, edge) or await _activate_with_function(flow, member, origin, edge)
        key = f"{ctx._scope}/start"
        is_past = log.has_past and log.find(key, AgentStarted) is not None
        if run.trace is not None:
            flow.span = run.trace.start_activation(ctx, member.agent)
        if ctx._hooks is not None:
            await ctx._hooks.call(ctx, "start", is_past=is_past)
        if not is_past:
            log.write(AgentStarted(key, ctx._origin, time()))
        action = await (member.agent.run(ctx) if ctx._middleware is None else _run_inside(flow, member, ctx, edge))
        # The agents of a live session end while their tool calls go on; each of these is checked when it ends.
        if run.suspended_by and (run.live is None or "/" in ctx._scope):
            run.check_suspended(f"`{ctx.agent}`", ctx._scope)
        breaks_loop = breaks_loop or ctx._breaks_loop
        if ctx.output is not None:
            answer = ctx.output
        if type(action) is Transfer:
            transfer, reason, edge = action, "", _edge_view(flow, member, action, ctx)
        elif (back := stack.leave(action, ctx, member.agent)) is not None:
            transfer, reason, edge = Transfer(back), "returned", _DIRECT
            if stack.result and loops is not None:
                loops.add_result(ctx.agent, stack.result)
        else:
            outcome = _outcome(ctx, BreakLoop() if breaks_loop and action is None else action, first or ctx._origin)
            if await _end_flow(flow, ctx, outcome):
                # If the last agent said nothing, hooks are told so, but the flow still has an answer.
                return outcome if outcome.output is not None or answer is None else replace(outcome, output=answer)
            edge = _DIRECT
            continue
        loops = loops or LoopDetector(run.meter.limits.idle_cycles)
        source, (transfer, member, edge) = (
            member,
            _begin_transfer(flow, ctx, transfer, reason, loops, mark, member, edge),
        )
        if stack.pending is not None:
            stack.open_pending(ctx)
        if ctx._hooks is not None or member.agent.hooks is not None:
            await _call_handoff_hooks(flow, ctx, source.agent, member.agent)
        _record_end(flow, ctx)
        if log.sink is not None:
            await log.settle()
        if edge is not _DIRECT:
            edge = await _apply_edge(flow, edge, transfer, ctx, source)


def _begin_transfer(
    flow: TeamFlow,
    ctx: AgentContext[Any],
    transfer: Transfer,
    reason: str,
    loops: LoopDetector,
    mark: int,
    source: TeamMember,
    edge: "_EdgeView",
) -> tuple[Transfer, TeamMember, "_EdgeView"]:
    """Count and record a transfer, or that to the loop fallback; return it with its target."""
    run, stack, origin = flow.run, flow.stack, ctx._origin
    try:
        run.meter.start_transfer(origin)
        if stack.pending is not None:
            stack.check_depth(run.meter.limits, origin)
        loops.count(origin, transfer.to, flow.history, mark)
    except (LimitError, LoopError) as error:
        transfer, reason, edge = flow.fall_back(error), "loop", _DIRECT
        loops.reset()
        stack.clear(ctx)
    to, log, key = transfer.to, run.log, f"{ctx._scope}/to"
    target = flow.resolve(source, to) if run.dynamic_agents else flow.team.members[to]
    recorded = log.find(key, ControlTransferred) if log.has_past else None
    if recorded is None:
        payload = transfer.payload
        # The payload of a tool call was parsed from JSON and needs no conversion.
        if payload is not None and not transfer.via:
            payload = to_json_value(f"the payload of the transfer to `{to}`", payload)
        log.write(ControlTransferred(key, origin, time(), origin.agent, to, transfer.call_id, payload, reason))
    elif recorded.target != to:
        raise ReplayMismatchError(key, f"a transfer to {recorded.target}", f"a transfer to {to}")
    return transfer, target, edge


class _EdgeView(Struct, frozen=True):
    """The target's view on the history: a policy, a filter, or the filtered messages."""

    history: str | HistoryFunction | None = None
    input_filter: HandoffInputFilter | None = None
    shows_payload: bool = False
    messages: list[Message] | None = None
    source: str = "filter"
    """The origin of the messages: a filter, a function or a policy."""


_DIRECT = _EdgeView()


def _policy(flow: TeamFlow, member: TeamMember, edge: _EdgeView) -> str | HistoryFunction:
    if edge.history is not None:
        return edge.history
    return member.history if member.history is not None else flow.config.history


def _activate(flow: TeamFlow, member: TeamMember, origin: Origin, edge: _EdgeView) -> AgentContext[Any] | None:
    """Create the context of an activation; None if a history function must be called first."""
    config, history = flow.config, flow.history
    if edge.messages is not None:
        # A copy, because the view extends it: a further attempt begins with the same messages.
        view = FixedView(history.entries, list(edge.messages), len(history.entries), edge.source)
        # User code made these messages; the agent's own calls must not reuse their call ids.
        flow.run.call_ids.update(call_ids_in(edge.messages))
    else:
        policy = edge.history
        if policy is None:
            policy = member.history if member.history is not None else config.history
        if type(policy) is not str:
            return None
        view = view_history(history, origin, policy, hide_transfers=config.hide_transfers)
    ctx: AgentContext[Any] = AgentContext(
        flow.run,
        origin,
        origin.id,
        _history=history,
        _view=view,
        _routes=member.routes,
        _options=config.options,
        _turn_start=len(history.entries),
        _flow=flow,
    )
    if config.options.hooks is not None or member.agent.hooks is not None:
        ctx._hooks = HookDispatcher(member.agent, config.options.hooks)
    if config.options.middleware or member.agent.middleware:
        ctx._middleware = stack_for(member.agent, ctx)
    if flow.stack.tasks:
        ctx._task = flow.stack.tools_for(member.agent.name, flow.team)
    return ctx


async def _activate_with_function(
    flow: TeamFlow, member: TeamMember, origin: Origin, edge: _EdgeView
) -> AgentContext[Any]:
    """Call the history function of an activation, and create its context."""
    own: RunContext[Any] = RunContext(flow.run, origin, f"{origin.id}/history")
    messages = await select_messages(cast("HistoryFunction", _policy(flow, member, edge)), flow.history, own)
    ctx = cast("AgentContext[Any]", _activate(flow, member, origin, _EdgeView(messages=messages, source="function")))
    copy_changes(ctx, own._all_changes())
    return ctx


def _run_inside(
    flow: TeamFlow, member: TeamMember, ctx: AgentContext[Any], edge: _EdgeView
) -> Coroutine[Any, Any, Action | None]:
    """Run an agent inside the middleware around its activation."""
    layers = ctx._middleware.activation
    if not layers:
        return member.agent.run(ctx)
    if isinstance(ctx._view, FixedView) and ctx._view.selection is None:
        # A further attempt reads the same messages; a filter or history function is not called again.
        edge = _EdgeView(messages=list(ctx._view.chosen), source=ctx._view.policy)
    restart = cast("Callable[[Origin], AgentContext[Any]]", partial(_activate, flow, member, edge=edge))
    return ActivationChain(layers, ctx, member.agent.run, restart).call()


def _edge_view(flow: TeamFlow, member: TeamMember, transfer: Transfer, ctx: AgentContext[Any]) -> _EdgeView:
    """Return the target's view for a transfer, and update the stack."""
    to, routes, common_filter, stack = transfer.to, member.routes, flow.config.input_filter, flow.stack
    route = routes.edge(to, transfer.via)
    is_straight = route is not None and route.is_straight
    if is_straight and common_filter is None and transfer.payload is None and not stack.tasks and not stack.returns:
        return _DIRECT
    if route is None:
        # A tool may have returned the agent; it does not run again after a resume, but the team knows the agent.
        is_dynamic = to in flow.run.dynamic_agents or (transfer.via and to in flow.team.members)
        if to not in routes.reachable and not is_dynamic:
            raise TransferError(member.agent.name, to, routes.reachable)
    if stack.returns or stack.tasks or (route is not None and not is_straight):
        stack.follow(transfer, None if route is None else route.handoff, ctx)
    if route is None:
        return _DIRECT if common_filter is None else _EdgeView(input_filter=common_filter)
    handoff = route.handoff
    input_filter = handoff.input_filter if handoff.input_filter is not None else common_filter
    shows_payload = transfer.payload is not None and handoff.on_handoff is None
    if handoff.history is None and input_filter is None and not shows_payload:
        return _DIRECT
    return _EdgeView(route.history, input_filter, shows_payload)


async def _apply_edge(
    flow: TeamFlow, edge: _EdgeView, transfer: Transfer, ctx: AgentContext[Any], source: TeamMember
) -> _EdgeView:
    """Add the payload to the history as a message, and call the input filter."""
    history, config, name, to = flow.history, flow.config, source.agent.name, transfer.to
    if edge.shows_payload:
        payload = msgspec.json.encode(transfer.payload).decode()
        # It is how the source ends, and addressed to the target, which may read answers only.
        history.add(UserMessage(f"For context: [{name}] handed over with: {payload}."), ctx._origin, is_answer=True)
    if edge.input_filter is None:
        return edge
    target, turn_start = flow.team.members[to].agent, ctx._turn_start
    policy = _policy(flow, flow.team.members[to], edge)
    if target._is_remote and policy != "rewritten" and policy != "verbatim":
        filter_input, turn_start = FilterInput.of_answers(history, policy, to, turn_start)
    else:
        filter_input = FilterInput.of(history, hide_transfers=config.hide_transfers)
    filtered = edge.input_filter(filter_input.data(ctx, turn_start))
    if type(filtered) is not HandoffInputData:
        where = f"of the handoff from `{name}` to `{to}`"
        filtered = await check_filter_result(edge.input_filter, filtered, where)
    return _EdgeView(messages=filter_input.to_messages(filtered, to, name, rewrites=policy != "verbatim"))


def _outcome(ctx: AgentContext[Any], action: Action | None, first: Origin) -> FlowOutcome:
    if action is not None and type(action) not in (Exit, BreakLoop, Finish, CancelTask):
        valid = "Transfer(…), Exit(…), BreakLoop(), Finish(…), CancelTask(…) or None"
        raise SetupError(f"`{ctx.agent}` returned {action!r} from run; return {valid}")
    output = action.result if type(action) is Exit and action.result is not None else ctx.output
    return FlowOutcome(action, ctx._origin, output, first)


async def _end_flow(flow: TeamFlow, ctx: AgentContext[Any], outcome: FlowOutcome) -> bool:
    """Record the end of the last activation, and the tasks that end with the flow.

    Returns:
        False if the answer is a question in the middle of a nested task; the user has replied to it.
    """
    if flow.stack.tasks and (type(outcome.action) is Exit or ("/" in ctx._scope and outcome.action is not None)):
        flow.stack.clear(ctx)
    if ctx._hooks is not None:
        await ctx._hooks.call(ctx, "end", outcome.output, is_past=_is_recorded(ctx, "end"))
    _record_end(flow, ctx)
    if ctx._run.log.sink is not None:
        # The outermost flow ends the run, whose end is stored at once.
        await ctx._run.log.settle(can_defer="/" not in ctx._scope)
    if needs_reply(flow.stack, outcome.action, ctx):
        await ask_user(ctx, outcome.output)
        return False
    return True


def _is_recorded(ctx: AgentContext[Any], what: str) -> bool:
    log = ctx._run.log
    return log.has_past and log.has(f"{ctx._scope}/{what}")


async def _call_handoff_hooks(
    flow: TeamFlow, ctx: AgentContext[Any], source: BaseAgent[Any, Any], target: BaseAgent[Any, Any]
) -> None:
    hooks, is_past = HookDispatcher(source, flow.config.options.hooks), _is_recorded(ctx, "end")
    await hooks.handoff(ctx, target, is_past=is_past)
    if ctx._hooks is not None:
        await ctx._hooks.call(ctx, "end", None, is_past=is_past)


def _record_end(flow: TeamFlow, ctx: AgentContext[Any]) -> None:
    log, key = ctx._run.log, f"{ctx._scope}/end"
    finished = log.find(key, AgentFinished) if log.has_past else None
    if finished is None:
        changes = None if ctx._values is None else ctx._take_changes()
        log.write(AgentFinished(key, ctx._origin, time(), changes))
    else:
        ctx._apply_changes(finished.value_changes)
    if flow.span is not None:
        flow.span = flow.span.leave()
