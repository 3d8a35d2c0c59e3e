"""Execution of a team: run the active agent, follow its transfer, repeat. The only reader of `Transfer`."""

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from time import time
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from ..agents import AgentContext
from ..agents.admission import AdmittedTransfer, approve_transfer
from ..agents.agent_context import NO_ANSWER, Answer, FlowOutcome, HistoryFunction, RunConfig, RunServices
from ..agents.composition import calls_for
from ..agents.hooks import HookDispatcher
from ..agents.middleware_activations import ActivationChain
from ..agents.tracing import NO_SPAN, ActivationSpan
from ..context import Limits, RunContext
from ..context.cancellation import as_failure
from ..context.run_context import SuspendRun
from ..context.run_state import LiveConversation, RunState
from ..context.values import to_json_value
from ..errors import LimitError, LoopError, ReplayMismatchError, RunError, SetupError, TransferError
from ..handoffs import HandoffInputFilter, HandoffTarget
from ..handoffs.routes import Route
from ..log import (
    Action,
    AgentFinished,
    AgentResponded,
    AgentStarted,
    BreakLoop,
    CancelTask,
    ControlTransferred,
    Exit,
    Finish,
    Origin,
    Transfer,
    keys,
)
from ..log.history import History
from ..log.views import Reading, recorded_reading
from ..messages import AssistantMessage
from ..messages.messages import call_ids_in
from ..stores import RunRecord
from .edges import DIRECT, EdgeView, edge_view, filter_history, find_route
from .history_functions import select_messages
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


class Place(Struct, frozen=True):
    """A place in a flow of control: before the activation of one agent."""

    member: TeamMember
    """The agent that is active next."""
    after: Origin | None = None
    """The activation before it; None at the start of a run."""
    edge: EdgeView = DIRECT
    """Its view on the history."""
    handover: "Handover | None" = None
    """The transfer that led here, if one did."""


class Activation(Struct, eq=False):
    """One agent being active once."""

    member: TeamMember
    ctx: AgentContext[Any]
    reading: Reading
    mark: int
    """The position in the history at which it begins."""
    recorded: AgentStarted | None
    """Its start, if that is recorded already."""
    span: ActivationSpan


class Handover(Struct, frozen=True):
    """The end of an activation that passes control on."""

    source: Activation
    target: TeamMember
    transfer: Transfer
    edge: EdgeView


class TeamFlow(Struct, eq=False):
    """One flow of control through a team."""

    run: RunState[Any]
    history: History
    config: FlowConfig
    team: Team
    stack: TaskStack = field(default_factory=TaskStack)
    prefix: str = ""
    services: RunServices = field(default_factory=RunServices)
    hops: int = 0
    """The number of activations so far."""
    first: Origin | None = None
    """The first of them."""
    answer: Answer = NO_ANSWER
    """The last answer of any of them."""
    breaks_loop: bool = False
    """True if a tool has asked to end the loop around the flow."""
    loops: LoopDetector | None = None
    """Counts transfers; None before the first one."""
    used_fallback: bool = False

    def resolve(self, source: TeamMember, name: str) -> TeamMember:
        """Return the target of a transfer: a member of the team, or a dynamic agent.

        Raises:
            TransferError: There is no such agent.
        """
        member = self.team.members.get(name)
        dynamic_agent = self.run.dynamic_agents.get(name)
        if dynamic_agent is not None and (member is None or member.agent is not dynamic_agent):
            self.team = self.team.extend(dynamic_agent)
            return self.team.members[name]
        if member is None:
            raise TransferError(source.agent.name, name, source.routes.reachable)
        return member

    def fall_back(self, error: Exception) -> Transfer:
        """Return the transfer to the loop fallback."""
        name = self.config.loop_fallback
        if self.used_fallback or name is None or name not in self.team.members:
            raise error
        self.used_fallback = True
        if self.loops is not None:
            self.loops.reset()
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
        """Run an agent that is nested in another one, within its own team."""
        team = self.team.inner.get(agent.name)
        if team is None or team.members[team.root].agent is not agent:
            raise SetupError(f"`{after.agent}` runs {agent!r} inside it, but its inner_agents() do not list it")
        flow = TeamFlow(run, history, self.config, team, prefix=prefix, services=self.services)
        edge = DIRECT if projection is None else EdgeView(history=projection)
        return follow(flow, Place(team.members[team.root], after, edge))


async def follow(flow: TeamFlow, place: Place) -> FlowOutcome:
    """Run an agent and each agent that it transfers to, until one ends without a transfer."""
    while True:
        await _pause(flow, place)
        activation = await _activate(flow, place)
        with activation.span:
            try:
                action = await _run(flow, activation)
                step = await _leave(flow, activation, action)
            except asyncio.CancelledError as error:
                failure = as_failure(flow.run, error)
                raise RunError(f"`{place.member.agent.name}` ended with CancelledError: {failure}") from error
        if isinstance(step, Handover):
            place = await _hand_over(flow, step)
            continue
        if not await _needs_reply(flow, activation, step):
            return step if step.output is not None else replace(step, answer=flow.answer)
        place = Place(activation.member, activation.ctx._origin)


async def _pause(flow: TeamFlow, place: Place) -> None:
    """Wait for the reader of the run's events, and stop if that was requested."""
    if place.after is not None:
        # A reader can cancel the run when it reads of a handoff, before the next agent starts.
        await flow.run.catch_up()
    if stop := flow.run.signals.stop:
        # An agent may have swallowed the cancellation; no other agent starts.
        raise asyncio.CancelledError if stop == "now" else SuspendRun


async def _activate(flow: TeamFlow, place: Place) -> Activation:
    """Begin the activation of an agent: its context, with its view on the history."""
    flow.hops += 1
    origin = Origin(keys.activation(flow.prefix, flow.hops), place.member.agent.name, place.after)
    flow.first = flow.first or origin
    mark = len(flow.history.entries)
    log = flow.run.log
    trace = flow.services.trace
    recorded = log.find(keys.start(origin.id), AgentStarted) if log.has_past else None
    reading = await _choose(flow, place, origin) if recorded is None else _recall(flow, place, recorded)
    ctx = _make_context(flow, place.member, reading, origin)
    span = None if trace is None else trace.start_activation(ctx, place.member.agent)
    return Activation(place.member, ctx, reading, mark, recorded, span or NO_SPAN)


async def _choose(flow: TeamFlow, place: Place, origin: Origin) -> Reading:
    """Decide what an activation reads; functions and filters of users choose the messages."""
    policy = _policy(flow, place.member, place.edge)
    hides = flow.config.hide_transfers
    if place.edge.input_filter is not None and place.handover is not None:
        step = place.handover
        messages = await filter_history(place.edge.input_filter, step.source.ctx, place.member, policy, hides=hides)
        return Reading("filter", hides, messages)
    if isinstance(policy, HistoryFunction):
        ctx: RunContext[Any] = RunContext(flow.run, origin, keys.inside(origin.id, "history"))
        messages = await select_messages(policy, flow.history, ctx)
        return Reading("function", hides, messages, ctx._all_changes())
    return Reading(policy, hides)


def _recall(flow: TeamFlow, place: Place, started: AgentStarted) -> Reading:
    """Return what an activation reads that began before a restart; nothing is chosen again."""
    if started.policy == "function":
        flow.run.recount(keys.inside(started.origin.id, "history"))
    elif started.policy == "filter" and place.after is not None:
        flow.run.recount(keys.inside(place.after.id, "filter"))
    return recorded_reading(started, flow.history)


def _policy(flow: TeamFlow, member: TeamMember, edge: EdgeView) -> str | HistoryFunction:
    if edge.history is not None:
        return edge.history
    return member.history if member.history is not None else flow.config.history


def _make_context(flow: TeamFlow, member: TeamMember, reading: Reading, origin: Origin) -> AgentContext[Any]:
    """Create the context of an activation, or of a further attempt at one."""
    config = flow.config
    history = flow.history
    if reading.messages is not None:
        # User code made these messages; the agent's own calls must not reuse their call ids.
        flow.run.call_ids.update(call_ids_in(reading.messages))
    return AgentContext(
        flow.run,
        origin,
        origin.id,
        _history=history,
        _view=reading.view(history, origin),
        _routes=member.routes,
        _options=config.options,
        _turn_start=len(history.entries),
        _flow=flow,
        _calls=calls_for(member.agent, config.options),
        _task=flow.stack.tools_for(member.agent.name, flow.team) if flow.stack.tasks else None,
    )


async def _run(flow: TeamFlow, activation: Activation) -> Action | None:
    """Record the start of an activation, and run the agent inside its middleware."""
    ctx = activation.ctx
    agent = activation.member.agent
    run = flow.run
    hooks = ctx._calls.hooks
    layers = ctx._calls.activation
    if hooks is not None:
        await hooks.call(ctx, "start", is_past=activation.recorded is not None)
    _record_start(flow, activation)
    try:
        if layers:
            restart = partial(_make_context, flow, activation.member, activation.reading)
            action = await ActivationChain(layers, ctx, agent.run, restart).call()
        else:
            action = await agent.run(ctx)
    except BaseException:
        flow.history.abandon(ctx._scope)
        raise
    # The agents of a live session end while their tool calls go on; each of these is checked when it ends.
    if run.has_open_calls and (run.live is None or keys.is_nested(ctx._scope)):
        run.check_ended(f"`{ctx.agent}`", ctx._scope)
    return action


def _record_start(flow: TeamFlow, activation: Activation) -> None:
    ctx = activation.ctx
    reading = activation.reading
    started = activation.recorded
    if started is None:
        started = AgentStarted(
            keys.start(ctx._scope),
            ctx._origin,
            time(),
            flow.history.opening,
            reading.policy,
            reading.hides_transfers,
            reading.excerpt(flow.history),
            reading.changes,
            *activation.member.agent._guardrail_names(),
        )
        flow.run.log.write(started)
    flow.history.apply(started, ctx._origin)
    if started.value_changes is not None:
        ctx._apply_changes(started.value_changes)


async def _leave(flow: TeamFlow, activation: Activation, action: Action | None) -> Handover | FlowOutcome:
    """Decide where control goes, and record the end of the activation."""
    ctx = activation.ctx
    stack = flow.stack
    flow.breaks_loop = flow.breaks_loop or ctx._breaks_loop
    answer = _say_answer(activation, action)
    if answer.output is not None:
        flow.answer = answer
    if isinstance(action, Transfer):
        route = find_route(activation.member, action, ctx, flow.team)
        if route is not None and route.handoff.needs_approval is not False and not isinstance(action, AdmittedTransfer):
            action = await approve_transfer(action, route, RunContext(flow.run, ctx._origin, keys.transfer(ctx._scope)))
        return await _transfer(flow, activation, action, _follow_edge(flow, activation, action, route))
    back = stack.leave(action, ctx, activation.member.agent)
    if back is None:
        return await _end(flow, activation, action, answer)
    if stack.result and flow.loops is not None:
        flow.loops.add_result(ctx.agent, stack.result)
    return await _transfer(flow, activation, Transfer(back), DIRECT, reason="returned")


def _follow_edge(flow: TeamFlow, activation: Activation, transfer: Transfer, route: Route | None) -> EdgeView:
    """Return the target's view for a transfer, and update the stack of tasks and returns."""
    ctx = activation.ctx
    stack = flow.stack
    if stack.returns or stack.tasks or (route is not None and not route.is_straight):
        stack.follow(transfer, None if route is None else route.handoff, ctx)
    return edge_view(route, transfer, flow.config.input_filter)


def _say_answer(activation: Activation, action: Action | None) -> Answer:
    """Return the answer of an activation that ends; the agent says it now, unless it has."""
    ctx = activation.ctx
    answer = ctx._answer_with(action)
    if answer.said or not answer.text:
        return answer
    log = ctx._run.log
    key = keys.final_answer(ctx._scope)
    said = log.find(key, AgentResponded) if log.has_past else None
    if said is None:
        if log.has_past and log.find(keys.end(ctx._scope), AgentFinished) is not None:
            # A log from before answers were recorded: it is not amended.
            return answer
        said = AgentResponded(key, ctx._origin, time(), AssistantMessage(answer.text))
        log.write(said)
    ctx._history.apply(said, ctx._origin)
    return replace(answer, said=(key,))


async def _end(flow: TeamFlow, activation: Activation, action: Action | None, answer: Answer) -> FlowOutcome:
    """Record the end of the last activation, and the tasks that end with the flow."""
    ctx = activation.ctx
    stack = flow.stack
    outcome = _outcome(flow, ctx, action, answer)
    if stack.tasks and (type(outcome.action) is Exit or (keys.is_nested(ctx._scope) and outcome.action is not None)):
        stack.clear(ctx)
    if ctx._calls.hooks is not None:
        await ctx._calls.hooks.call(ctx, "end", outcome.output, is_past=_has_ended(ctx))
    _record_end(ctx)
    return outcome


def _outcome(flow: TeamFlow, ctx: AgentContext[Any], action: Action | None, answer: Answer) -> FlowOutcome:
    if action is None and flow.breaks_loop:
        action = BreakLoop()
    if action is not None and type(action) not in (Exit, BreakLoop, Finish, CancelTask):
        valid = "Transfer(…), Exit(…), BreakLoop(), Finish(…), CancelTask(…) or None"
        raise SetupError(f"`{ctx.agent}` returned {action!r} from run; return {valid}")
    return FlowOutcome(action, ctx._origin, answer, flow.first or ctx._origin)


async def _transfer(
    flow: TeamFlow, activation: Activation, transfer: Transfer, edge: EdgeView, reason: str = ""
) -> Handover:
    """Count and record a transfer, and the end of the activation that it leaves."""
    ctx = activation.ctx
    try:
        _count_transfer(flow, activation, transfer.to)
    except (LimitError, LoopError) as error:
        transfer = flow.fall_back(error)
        edge = DIRECT
        reason = "loop"
        flow.stack.clear(ctx)
    step = Handover(activation, flow.resolve(activation.member, transfer.to), transfer, edge)
    _record_transfer(ctx, step, reason)
    if flow.stack.pending is not None:
        flow.stack.open_pending(ctx)
    if ctx._calls.hooks is not None or step.target.agent.hooks is not None:
        await _tell_hooks(step)
    _record_end(ctx)
    return step


def _count_transfer(flow: TeamFlow, source: Activation, target: str) -> None:
    """Raise LimitError or LoopError if there are too many transfers."""
    meter = flow.run.meter
    origin = source.ctx._origin
    if flow.loops is None:
        flow.loops = LoopDetector(meter.limits.idle_cycles)
    meter.start_transfer(origin)
    if flow.stack.pending is not None:
        flow.stack.check_depth(meter.limits, origin)
    flow.loops.count(origin, target, flow.history, source.mark)


def _record_transfer(ctx: AgentContext[Any], step: Handover, reason: str) -> None:
    log = ctx._run.log
    key = keys.transfer(ctx._scope)
    transfer = step.transfer
    to = transfer.to
    recorded = log.find(key, ControlTransferred) if log.has_past else None
    if recorded is None:
        payload = transfer.payload
        # The payload of a tool call was parsed from JSON and needs no conversion.
        if payload is not None and not transfer.via:
            payload = to_json_value(f"the payload of the transfer to `{to}`", payload)
        recorded = ControlTransferred(
            key,
            ctx._origin,
            time(),
            ctx.agent,
            to,
            transfer.call_id,
            payload,
            reason,
            shows_payload=step.edge.shows_payload,
        )
        log.write(recorded)
    elif recorded.target != to:
        raise ReplayMismatchError(key, f"a transfer to {recorded.target}", f"a transfer to {to}")
    ctx._history.apply(recorded, ctx._origin)


async def _tell_hooks(step: Handover) -> None:
    """Call the hooks of a transfer and of the end of the activation that it leaves."""
    ctx = step.source.ctx
    source = step.source.member.agent
    target = step.target.agent
    hooks = ctx._calls.hooks
    is_past = _has_ended(ctx)
    await (hooks or HookDispatcher(source, None)).handoff(ctx, target, is_past=is_past)
    if hooks is not None:
        await hooks.call(ctx, "end", None, is_past=is_past)


def _has_ended(ctx: AgentContext[Any]) -> bool:
    log = ctx._run.log
    return log.has_past and log.has(keys.end(ctx._scope))


def _record_end(ctx: AgentContext[Any]) -> None:
    log = ctx._run.log
    key = keys.end(ctx._scope)
    finished = log.find(key, AgentFinished) if log.has_past else None
    if finished is None:
        finished = AgentFinished(key, ctx._origin, time(), ctx._take_changes())
        log.write(finished)
    else:
        ctx._apply_changes(finished.value_changes)
    ctx._history.apply(finished, ctx._origin)


async def _hand_over(flow: TeamFlow, step: Handover) -> Place:
    """Store the transfer; the next place is that of its target."""
    if flow.run.log.sink is not None:
        await flow.run.log.settle()
    return Place(step.target, step.source.ctx._origin, step.edge, step)


async def _needs_reply(flow: TeamFlow, activation: Activation, outcome: FlowOutcome) -> bool:
    """Store the end of a flow; if it is a question in the middle of a nested task, ask the user."""
    ctx = activation.ctx
    if flow.run.log.sink is not None:
        # The outermost flow ends the run, whose end is stored at once.
        await flow.run.log.settle(can_defer=not keys.is_nested(ctx._scope))
    if not needs_reply(flow.stack, outcome.action, ctx):
        return False
    await ask_user(ctx, outcome.output)
    return True
