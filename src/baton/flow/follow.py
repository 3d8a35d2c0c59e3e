"""Execution of a team: run the active agent, follow its transfer, repeat. The only reader of `Transfer`."""

import asyncio
from collections.abc import Coroutine, Sequence
from time import time
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from ..agents import AgentContext, BaseAgent, HistoryPolicy
from ..agents.activation import FlowOutcome, RunConfig
from ..agents.hooks import HookDispatcher
from ..context import HistoryEntry, Limits
from ..context.history import History
from ..context.run_context import SuspendRun
from ..context.run_state import LiveConversation, RunState
from ..context.values import to_json_value
from ..errors import LimitError, LoopError, ReplayMismatchError, SetupError, TransferError
from ..events import Action, AgentFinished, AgentStarted, BreakLoop, ControlTransferred, Exit, Origin, Transfer
from ..handoffs import HandoffInputData, HandoffInputFilter, HandoffTarget
from ..handoffs.base import check_filter_result
from ..messages import AssistantMessage, Message, ToolMessage, UserMessage, text_of
from .history import FilterInput, FixedView, view_history
from .team import Team, TeamMember

_MOST_UNREAD = 32
"""The number of activations after which the loop detector reads their messages, so that what it keeps stays short."""


class LoopDetector(Struct):
    """Detects that the same cycle of transfers, of any length, is repeated without new content.

    Messages are read only when transfers repeat, so that a transfer to an agent that was not active before is cheap.

    Args:
        allowed: Maximum number of repetitions; None for no limit.
    """

    allowed: int | None
    _agents: list[str] = []
    """The agents since the last new content, the one that the next transfer starts from last."""
    _marks: list[int] = []
    """The positions in the history at which they began, except the last one's."""
    _count: int = 0
    """The number of transfers between them."""
    _read: int = 0
    """The number of agents whose messages were read."""
    _visited: dict[str, None] = {}
    _seen: set[tuple[str | None, str]] = set()

    def count(self, source: Origin, target: str, history: History, mark: int) -> None:
        """Count a transfer.

        Args:
            source: The activation that transfers.
            target: The agent it transfers to.
            history: The history of the flow.
            mark: The number of entries before the activation.

        Raises:
            LoopError: A cycle was repeated too often without progress.
        """
        allowed, agents, visited = self.allowed, self._agents, self._visited
        if allowed is None:
            return
        if not agents:
            agents += (source.agent,)
            visited[source.agent] = None
        agents += (target,)
        self._marks += (mark,)
        last = self._count = self._count + 1
        if target not in visited:
            visited[target] = None
            return
        length = 2
        while length <= last and (needed := length * allowed) <= last:
            start = last - needed
            if agents[last - length] == target and agents[start : last + 1 - length] == agents[start + length :]:
                cycle = agents[last - length :]
                if self._find_news(history) <= start:
                    raise LoopError(source.agent, target, allowed, source.path, cycle=cycle)
                return
            length += 1
        if last - self._read >= _MOST_UNREAD:
            self._find_news(history)

    def reset(self) -> None:
        """Start counting from zero, after another agent has taken over."""
        self._agents, self._marks, self._visited = [], [], {}
        self._count = self._read = 0

    def _find_news(self, history: History) -> int:
        """Forget the agents before the last one with new content; return its position, or 0."""
        last, marks = self._count, [*self._marks, len(history.entries)]
        found = 0
        for position in range(self._read, last):
            if self._has_new_content(history.entries[marks[position] : marks[position + 1]]):
                found = position
        self._agents, self._marks = self._agents[found:], self._marks[found:]
        self._count = self._read = last - found
        self._visited = dict.fromkeys(self._agents)
        return found

    def _has_new_content(self, entries: Sequence[HistoryEntry]) -> bool:
        before = len(self._seen)
        for entry in entries:
            message = entry.for_others(hide_transfers=True)
            if type(message) is ToolMessage:
                self._seen.add((message.name, text_of(message.content)))
            elif type(message) is AssistantMessage and message.content:
                self._seen.add((entry.author, text_of(message.content)))
            elif type(message) is UserMessage and entry.is_user_input:
                # In a realtime session the user speaks between transfers; repeated words count as new.
                self._seen.add((None, f"{len(self._seen)} {text_of(message.content)}"))
        return len(self._seen) > before


class FlowConfig(Struct, frozen=True):
    """Settings of every run of one team under one runner."""

    team: Team
    """The team."""
    options: RunConfig
    """Options that agents read."""
    limits: Limits
    """Limits of runs that have none of their own."""
    history: HistoryPolicy = "rewritten"
    """The history policy of agents and handoffs that have none of their own."""
    hide_transfers: bool = False
    """True to leave followed transfers out of the history that later agents read."""
    loop_fallback: str | None = None
    """The agent that takes over when agents transfer back and forth without progress."""
    input_filter: HandoffInputFilter | None = None
    """The input filter of handoffs that have none of their own."""
    live: LiveConversation | None = None
    """The realtime session, if the runner is bound to one."""


class TeamFlow(Struct, eq=False):
    """One flow of control through a team.

    Args:
        run: The run, or the part of a run, that it belongs to.
        history: Its history.
        config: The settings of the runner.
        team: The team, including dynamic agents.
    """

    run: RunState[Any]
    history: History
    config: FlowConfig
    team: Team
    used_fallback: bool = False

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
        projection: HistoryPolicy | None = None,
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


async def follow(
    flow: TeamFlow, start: TeamMember, *, prefix: str = "", after: Origin | None = None, edge: "_EdgeView | None" = None
) -> FlowOutcome:
    """Run an agent and each agent that it transfers to, until one ends without a transfer.

    Args:
        flow: The flow of control.
        start: The first agent.
        prefix: The prefix of keys.
        after: The activation that the path continues.
        edge: The view of the first agent on the history.
    """
    run, log, history, member, origin = flow.run, flow.run.log, flow.history, start, after
    returns: list[str] = []
    loops: LoopDetector | None = None
    edge = edge or _DIRECT
    first: Origin | None = None
    answer: Any = None
    breaks_loop, hop = False, 0
    while True:
        if stop := run.signals.stop:
            # An agent may have swallowed the cancellation; no other agent starts.
            raise asyncio.CancelledError if stop == "now" else SuspendRun
        hop += 1
        origin = Origin(f"{prefix}{hop}", member.agent.name, origin)
        first, mark = first or origin, len(history.entries)
        ctx = _activate(flow, member, origin, edge)
        key = f"{ctx._scope}/start"
        is_past = log.has_past and log.find(key, AgentStarted) is not None
        if ctx._hooks is not None:
            await ctx._hooks.call(ctx, "start", is_past=is_past)
        if not is_past:
            log.write(AgentStarted(key, origin, time()))
        action = await member.agent.run(ctx)
        if run.suspended_by:
            run.check_suspended(f"`{origin.agent}`", origin.id)
        if ctx._breaks_loop:
            breaks_loop = True
        if ctx.output is not None:
            answer = ctx.output
        if type(action) is Transfer:
            transfer, reason = action, ""
            edge = _edge_view(flow, member, transfer, returns)
        elif action is None and returns:
            transfer, reason, edge = Transfer(returns.pop()), "returned", _DIRECT
        else:
            outcome = _outcome(ctx, BreakLoop() if breaks_loop and action is None else action, first)
            if ctx._hooks is not None:
                await ctx._hooks.call(ctx, "end", outcome.output, is_past=_is_recorded(ctx, "end"))
            _record_end(ctx)
            if log.sink is not None:
                await log.settle()
            if outcome.output is None and answer is not None:
                # The last agent said nothing; hooks are told so, but the flow still has an answer.
                return replace(outcome, output=answer)
            return outcome
        loops = loops or LoopDetector(run.meter.limits.idle_cycles)
        try:
            run.meter.start_transfer(origin)
            loops.count(origin, transfer.to, history, mark)
        except (LimitError, LoopError) as error:
            transfer, reason, edge = flow.fall_back(error), "loop", _DIRECT
            loops.reset()
            returns.clear()
        to = transfer.to
        source, member = member, flow.resolve(member, to) if run.dynamic_agents else flow.team.members[to]
        _record_transfer(ctx, transfer, reason)
        if ctx._hooks is not None or member.agent.hooks is not None:
            await _call_handoff_hooks(flow, ctx, source.agent, member.agent)
        _record_end(ctx)
        if log.sink is not None:
            await log.settle()
            if log.sink.has_subscribers and run.live is None:
                # A subscriber that has just read of the handoff can still cancel the run before the next agent starts.
                # A live session must not pause between two agents: the user may speak meanwhile.
                await asyncio.sleep(0)
        if edge is not _DIRECT:
            edge = await _apply_edge(flow, edge, transfer, ctx, source)


class _EdgeView(Struct, frozen=True):
    """The target's view on the history: a policy, a filter, or the filtered messages."""

    history: HistoryPolicy | None = None
    input_filter: HandoffInputFilter | None = None
    shows_payload: bool = False
    messages: list[Message] | None = None


_DIRECT = _EdgeView()


def _activate(flow: TeamFlow, member: TeamMember, origin: Origin, edge: _EdgeView) -> AgentContext[Any]:
    config, history = flow.config, flow.history
    foreign: Sequence[Message] = ()
    if edge.messages is not None:
        foreign, view = edge.messages, FixedView(history.entries, edge.messages, len(history.entries))
    else:
        policy = edge.history
        if policy is None:
            # Not `or`: a policy may be a falsy object that can be called.
            policy = member.agent.history if member.agent.history is not None else config.history
        view = view_history(history, origin, policy, hide_transfers=config.hide_transfers)
        if type(policy) is not str:
            foreign = view.messages()
    for message in foreign:
        # User code made these messages; the agent's own calls must not reuse their call ids.
        if type(message) is AssistantMessage:
            flow.run.call_ids.update([call.id for call in message.tool_calls])
    ctx: AgentContext[Any] = AgentContext(
        flow.run, origin, history, view, member.routes, config.options, len(history.entries), flow
    )
    if config.options.hooks is not None or member.agent.hooks is not None:
        ctx._hooks = HookDispatcher(member.agent, config.options.hooks)
    return ctx


def _edge_view(flow: TeamFlow, member: TeamMember, transfer: Transfer, returns: list[str]) -> _EdgeView:
    """Return the target's view for a transfer, and update the stack of agents to return to."""
    to, routes, common_filter = transfer.to, member.routes, flow.config.input_filter
    if returns and returns[-1] == to:
        returns.pop()
    route = routes.edge(to, transfer.via)
    if route is None:
        # A tool may have returned the agent; it does not run again after a resume, but the team knows the agent.
        is_dynamic = to in flow.run.dynamic_agents or (transfer.via and to in flow.team.members)
        if to not in routes.reachable and not is_dynamic:
            raise TransferError(member.agent.name, to, routes.reachable)
        return _DIRECT if common_filter is None else _EdgeView(input_filter=common_filter)
    if route.is_straight and common_filter is None and transfer.payload is None:
        return _DIRECT
    handoff = route.handoff
    if handoff.return_to is not None:
        returns.append(member.agent.name if handoff.return_to == "caller" else handoff.return_to)
    input_filter = handoff.input_filter if handoff.input_filter is not None else common_filter
    shows_payload = transfer.payload is not None and handoff.on_handoff is None
    if handoff.history is None and input_filter is None and not shows_payload:
        return _DIRECT
    return _EdgeView(handoff.history, input_filter, shows_payload)


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
    policy = edge.history if edge.history is not None else target.history
    policy = policy if policy is not None else config.history
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
    if action is not None and type(action) is not Exit and type(action) is not BreakLoop:
        valid = "Transfer(…), Exit(…), BreakLoop() or None"
        raise SetupError(f"`{ctx.agent}` returned {action!r} from run; return {valid}")
    output = action.result if type(action) is Exit and action.result is not None else ctx.output
    return FlowOutcome(action, ctx._origin, output, first)


def _is_recorded(ctx: AgentContext[Any], what: str) -> bool:
    log = ctx._run.log
    return log.has_past and log.has(f"{ctx._scope}/{what}")


def _record_transfer(ctx: AgentContext[Any], transfer: Transfer, reason: str) -> None:
    log, origin, key = ctx._run.log, ctx._origin, f"{ctx._scope}/to"
    recorded = log.find(key, ControlTransferred) if log.has_past else None
    if recorded is None:
        payload = transfer.payload
        # The payload of a tool call was parsed from JSON and needs no conversion.
        if payload is not None and not transfer.via:
            payload = to_json_value(f"the payload of the transfer to `{transfer.to}`", payload)
        log.write(ControlTransferred(key, origin, time(), origin.agent, transfer.to, transfer.call_id, payload, reason))
    elif recorded.target != transfer.to:
        raise ReplayMismatchError(key, f"a transfer to {recorded.target}", f"a transfer to {transfer.to}")


async def _call_handoff_hooks(
    flow: TeamFlow, ctx: AgentContext[Any], source: BaseAgent[Any, Any], target: BaseAgent[Any, Any]
) -> None:
    hooks, is_past = HookDispatcher(source, flow.config.options.hooks), _is_recorded(ctx, "end")
    await hooks.handoff(ctx, target, is_past=is_past)
    if ctx._hooks is not None:
        await ctx._hooks.call(ctx, "end", None, is_past=is_past)


def _record_end(ctx: AgentContext[Any]) -> None:
    log, key = ctx._run.log, f"{ctx._scope}/end"
    finished = log.find(key, AgentFinished) if log.has_past else None
    if finished is None:
        log.write(AgentFinished(key, ctx._origin, time(), ctx._take_changes()))
    else:
        ctx._apply_changes(finished.value_changes)
