"""Who has the floor next. The only reader of Transfer: a flat loop, however many transfers there are.

Notices when two agents pass control to and fro and nothing new happens.
"""

from collections.abc import Coroutine, Sequence
from time import time
from typing import Any

import msgspec
from msgspec import Struct

from ..agents import AgentContext, BaseAgent, HistoryPolicy
from ..agents.base import FlowOutcome, RunConfig
from ..agents.hooks import HookDispatcher, dispatcher_for
from ..context import HistoryEntry
from ..context.history import History
from ..context.run_state import LiveConversation, RunState
from ..context.values import to_json_value
from ..errors import LimitError, LoopError, ReplayMismatchError, SetupError, TransferError
from ..events import Action, AgentFinished, AgentStarted, BreakLoop, ControlTransferred, Exit, Origin, Transfer
from ..handoffs import HandoffInputData, HandoffInputFilter
from ..messages import AssistantMessage, Message, ToolMessage, UserMessage, text_of
from .history import excerpts_of, given_by, view_history, view_of
from .team import Team, TeamMember


class LoopDetector:
    """Counts transfers between the same two agents since anything new was said or found out."""

    __slots__ = ("_allowed", "_count", "_pair", "_said")

    def __init__(self, allowed: int | None) -> None:
        self._allowed = allowed
        self._pair = ("", "")
        self._count = 0
        self._said: set[tuple[str | None, str]] = set()

    def note(self, source: Origin, target: str, history: History, mark: int) -> None:
        """Take a transfer into account, and what was said since `mark`. Raises LoopError if it is one too many."""
        if self._allowed is None:
            return
        if (source.agent, target) != self._pair and (target, source.agent) != self._pair:
            self._pair = (source.agent, target)
            self._count = 0
        elif self._brings_news(history.entries[mark:]):
            self._count = 0
        self._count += 1
        if self._count >= 2 * self._allowed:
            raise LoopError(source.agent, target, self._allowed, source.path)

    def start_over(self) -> None:
        """Count anew, after somebody else has taken over."""
        self._count = 0

    def _brings_news(self, entries: Sequence[HistoryEntry]) -> bool:
        before = len(self._said)
        for entry in entries:
            message = entry.as_read_later(hides_transfers=True)
            if type(message) is ToolMessage:
                self._said.add((message.name, text_of(message.content)))
            elif type(message) is AssistantMessage and message.content:
                self._said.add((entry.author, text_of(message.content)))
            elif type(message) is UserMessage and entry.is_user_input:
                # In a live conversation the user speaks between transfers, and what they say again is new all the same.
                self._said.add((None, f"{len(self._said)} {text_of(message.content)}"))
        return len(self._said) > before


class FlowConfig(Struct, frozen=True):
    """What holds for every run of one team under one runner."""

    team: Team
    options: RunConfig
    projection: HistoryPolicy = "rewritten"
    hides_transfers: bool = False
    on_loop: str | None = None
    """Who takes over when agents go round in circles."""
    input_filter: HandoffInputFilter | None = None
    """What every transfer's target reads through, unless the edge has a filter of its own."""
    live: LiveConversation | None = None
    """The one conversation that is held under these rules, if it is a live one."""


class TeamFlow:
    """One flow of control: whose run it is, what has been said in it, and the rules it goes by."""

    __slots__ = ("history", "is_rescued", "rules", "run", "team")

    def __init__(self, run: RunState[Any], history: History, rules: FlowConfig, team: Team | None = None) -> None:
        self.run = run
        self.history = history
        self.rules = rules
        self.team = team or rules.team
        """The team, with the guests that functions brought in."""
        self.is_rescued = False

    def seat(self, source: TeamMember, to: str) -> TeamMember:
        """The seat of the agent a transfer goes to: a member of the team, or a guest that a function returned."""
        known = self.team.seats.get(to)
        if known is not None and not self.run.guests:
            return known
        guest = self.run.guests.get(to)
        if guest is None or (known is not None and known.agent is guest):
            if known is None:
                raise TransferError(source.agent.name, to, source.routes.reachable)
            return known
        self.team = self.team.joined_by(guest)
        return self.team.seats[to]

    def rescue(self, error: Exception) -> Transfer:
        """To whoever takes over when agents go round in circles. Raises the error if nobody does, or has before."""
        named = self.rules.on_loop
        if self.is_rescued or named is None or named not in self.team.seats:
            raise error
        self.is_rescued = True
        return Transfer(named)

    def run_agent(
        self,
        agent: BaseAgent[Any, Any],
        *,
        run: RunState[Any],
        history: History,
        prefix: str,
        after: Origin,
        projection: HistoryPolicy | None = None,
    ) -> Coroutine[Any, Any, FlowOutcome]:
        """Give the floor to an agent inside another, in the team that is its own."""
        team = self.team.inner.get(agent.name)
        if team is None or team.seats[team.root].agent is not agent:
            raise SetupError(f"`{after.agent}` gives the floor to {agent!r} inside it, which is not among its parts()")
        crossing = _STRAIGHT if projection is None else _EdgeView(projection=projection)
        course = TeamFlow(run, history, self.rules, team)
        return follow(course, team.seats[team.root], prefix=prefix, after=after, crossing=crossing)


async def follow(
    course: TeamFlow,
    start: TeamMember,
    *,
    prefix: str = "",
    after: Origin | None = None,
    crossing: "_EdgeView | None" = None,
) -> FlowOutcome:
    """Give the floor to `start`, and then to whomever transfers lead to, until somebody ends without one."""
    run, log, history, seat, origin = course.run, course.run.log, course.history, start, after
    frames: list[str] = []
    loops: LoopDetector | None = None
    crossing = crossing or _STRAIGHT
    first: Origin | None = None
    breaks_loop, hop = False, 0
    while True:
        hop += 1
        origin = Origin(f"{prefix}{hop}", seat.agent.name, origin)
        first, mark = first or origin, len(history.entries)
        ctx = _activate(course, seat, origin, crossing)
        key = f"{ctx._scope}/start"
        is_past = log.has_past and log.find(key, AgentStarted) is not None
        if ctx._hooks is not None:
            await ctx._hooks.start(ctx, is_past=is_past)
        if not is_past:
            log.write(AgentStarted(key, origin, time()))
        action = await seat.agent.run(ctx)
        if ctx._breaks_loop:
            breaks_loop = True
        if type(action) is Transfer:
            transfer, reason = action, ""
            crossing = _cross(course, seat, transfer, frames)
        elif action is None and frames:
            transfer, reason, crossing = Transfer(frames.pop()), "returned", _STRAIGHT
        else:
            outcome = _outcome(ctx, BreakLoop() if breaks_loop and action is None else action, first)
            if ctx._hooks is not None:
                await ctx._hooks.end(ctx, outcome.output, is_past=_is_recorded(ctx, "end"))
            _finish(ctx)
            if log.sink is not None:
                await log.settle()
            return outcome
        loops = loops or LoopDetector(run.meter.limits.idle_cycles)
        try:
            run.meter.start_transfer(origin)
            loops.note(origin, transfer.to, history, mark)
        except (LimitError, LoopError) as error:
            transfer, reason, crossing = course.rescue(error), "loop", _STRAIGHT
            loops.start_over()
            frames.clear()
        source, seat = seat, course.seat(seat, transfer.to) if run.guests else course.team.seats[transfer.to]
        _pass_on(ctx, transfer, reason)
        if ctx._hooks is not None or seat.agent.hooks is not None:
            await _tell_of_handoff(course, ctx, source.agent, seat.agent)
        _finish(ctx)
        if log.sink is not None:
            await log.settle()
        if crossing is not _STRAIGHT:
            crossing = await _carried_over(course, crossing, transfer, ctx, source)


class _EdgeView(Struct, frozen=True):
    """What an edge does to what its target reads: a projection, a filter, and at last the messages it comes to."""

    projection: HistoryPolicy | None = None
    input_filter: HandoffInputFilter | None = None
    tells_payload: bool = False
    chosen: list[Message] | None = None


_STRAIGHT = _EdgeView()


def _activate(course: TeamFlow, seat: TeamMember, origin: Origin, crossing: _EdgeView) -> AgentContext[Any]:
    rules, history = course.rules, course.history
    foreign: Sequence[Message] = ()
    if crossing.chosen is not None:
        foreign, view = crossing.chosen, view_of(history, crossing.chosen)
    else:
        policy = crossing.projection or seat.agent.history or rules.projection
        view = view_history(history, origin, policy, hides_transfers=rules.hides_transfers)
        if type(policy) is not str:
            foreign = view.messages()
    for message in foreign:
        # Somebody else has put this together, with call ids that the agent's own calls must not have.
        if type(message) is AssistantMessage:
            course.run.call_ids.update([call.id for call in message.tool_calls])
    ctx: AgentContext[Any] = AgentContext(
        course.run, origin, history, view, seat.routes, rules.options, len(history.entries), course
    )
    if rules.options.hooks is not None or seat.agent.hooks is not None:
        ctx._hooks = dispatcher_for(seat.agent, rules.options.hooks)
    return ctx


def _cross(course: TeamFlow, seat: TeamMember, transfer: Transfer, frames: list[str]) -> _EdgeView:
    """Go along an edge. `frames` are the agents that wait for control."""
    to, routes, common_filter = transfer.to, seat.routes, course.rules.input_filter
    if frames and frames[-1] == to:
        frames.pop()
    route = routes.edge(to, transfer.via)
    if route is None:
        # A function may have looked the agent up, and not be run again after a resume: then the team knows it.
        is_known = to in routes.reachable or to in course.run.guests or (transfer.via and to in course.team.seats)
        if not is_known:
            raise TransferError(seat.agent.name, to, routes.reachable)
        return _STRAIGHT if common_filter is None else _EdgeView(input_filter=common_filter)
    if route.is_straight and common_filter is None and transfer.payload is None:
        return _STRAIGHT
    handoff = route.handoff
    if handoff.return_to is not None:
        frames.append(seat.agent.name if handoff.return_to == "caller" else handoff.return_to)
    input_filter = handoff.input_filter if handoff.input_filter is not None else common_filter
    tells_payload = transfer.payload is not None and handoff.on_handoff is None
    if handoff.history is None and input_filter is None and not tells_payload:
        return _STRAIGHT
    return _EdgeView(handoff.history, input_filter, tells_payload)


async def _carried_over(
    course: TeamFlow, crossing: _EdgeView, transfer: Transfer, ctx: AgentContext[Any], source: TeamMember
) -> _EdgeView:
    """What goes along with a transfer: its payload as a message, and the history through a filter."""
    history = course.history
    if crossing.tells_payload:
        payload = msgspec.json.encode(transfer.payload).decode()
        history.add(UserMessage(f"For context: [{source.agent.name}] handed over with: {payload}."), ctx._origin)
    if crossing.input_filter is None:
        return crossing
    policy = crossing.projection or course.team.seats[transfer.to].agent.history or course.rules.projection
    excerpts = excerpts_of(history, hides_transfers=course.rules.hides_transfers)
    name, to = source.agent.name, transfer.to
    filtered = crossing.input_filter(excerpts.data(ctx))
    if type(filtered) is not HandoffInputData:
        filtered = await given_by(crossing.input_filter, filtered, name, to)
    chosen = excerpts.as_read(filtered, to, name, rewrites=policy != "verbatim")
    return _EdgeView(chosen=chosen)


def _outcome(ctx: AgentContext[Any], action: Action | None, first: Origin) -> FlowOutcome:
    """What a flow comes to when somebody is done and control goes nowhere else."""
    if action is not None and type(action) is not Exit and type(action) is not BreakLoop:
        wanted = "Transfer(…), Exit(…), BreakLoop() or nothing"
        raise SetupError(f"`{ctx.agent}` returned {action!r} from run; return {wanted}")
    output = action.result if type(action) is Exit and action.result is not None else ctx.output
    return FlowOutcome(action, ctx._origin, output, first)


def _is_recorded(ctx: AgentContext[Any], what: str) -> bool:
    """Whether the log has come past this point before: then hooks have been told."""
    log = ctx._run.log
    return log.has_past and log.has(f"{ctx._scope}/{what}")


def _pass_on(ctx: AgentContext[Any], transfer: Transfer, reason: str) -> None:
    """Record where control goes."""
    log, origin, key = ctx._run.log, ctx._origin, f"{ctx._scope}/to"
    recorded = log.find(key, ControlTransferred) if log.has_past else None
    if recorded is None:
        payload = transfer.payload
        # What came through a tool has been read from JSON and is plain.
        if payload is not None and not transfer.via:
            payload = to_json_value(f"the payload of the transfer to `{transfer.to}`", payload)
        log.write(ControlTransferred(key, origin, time(), origin.agent, transfer.to, transfer.call_id, payload, reason))
    elif recorded.target != transfer.to:
        raise ReplayMismatchError(key, f"a transfer to {recorded.target}", f"a transfer to {transfer.to}")


async def _tell_of_handoff(
    course: TeamFlow, ctx: AgentContext[Any], source: BaseAgent[Any, Any], target: BaseAgent[Any, Any]
) -> None:
    """Tell the hooks of the run, of the source and of the target that control has gone on."""
    told, is_past = dispatcher_for(source, course.rules.options.hooks), _is_recorded(ctx, "end")
    await (told or HookDispatcher(source, None, None)).handoff(ctx, target, is_past=is_past)
    if ctx._hooks is not None:
        await ctx._hooks.end(ctx, None, is_past=is_past)


def _finish(ctx: AgentContext[Any]) -> None:
    """Record that an activation is over."""
    log, key = ctx._run.log, f"{ctx._scope}/end"
    finished = log.find(key, AgentFinished) if log.has_past else None
    if finished is None:
        log.write(AgentFinished(key, ctx._origin, time(), ctx._take_changes()))
    else:
        ctx._apply_changes(finished.value_changes)
