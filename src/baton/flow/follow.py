"""Who has the floor next. The only reader of Transfer: a flat loop, however many transfers there are."""

from time import time
from typing import Any

from msgspec import Struct

from ..agents import AgentContext, Projection, RunOptions
from ..context import History, Run
from ..errors import LimitError, LoopError, ReplayMismatch, TransferError
from ..events import Action, Exit, Finished, Origin, Started, Transfer, Transferred
from .history import view_for
from .round_trips import RoundTrips
from .team import Seat, Team


class Outcome(Struct, frozen=True):
    """How a flow of control ended: with which action, by whom, and with what output."""

    action: Action | None
    origin: Origin
    output: Any


class Rules(Struct, frozen=True):
    """What holds for every run of one team under one runner."""

    team: Team
    options: RunOptions
    projection: Projection = "rewritten"
    hides_transfers: bool = False
    on_loop: str | None = None
    """Who takes over when agents go round in circles."""


class Course:
    """One flow of control: whose run it is, what has been said in it, and the rules it goes by."""

    __slots__ = ("history", "is_rescued", "rules", "run", "team")

    def __init__(self, run: Run[Any], history: History, rules: Rules) -> None:
        self.run = run
        self.history = history
        self.rules = rules
        self.team = rules.team
        """The team, with the guests that functions brought in."""
        self.is_rescued = False

    def seat(self, source: Seat, to: str) -> Seat:
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


async def follow(course: Course, start: Seat, *, prefix: str = "", after: Origin | None = None) -> Outcome:
    """Give the floor to `start`, and then to whomever transfers lead to, until somebody ends without one."""
    run, log, seat, origin = course.run, course.run.log, start, after
    frames: list[str] = []
    loops = RoundTrips(run.meter.limits.round_trips)
    projection: Projection | None = None
    hop = 0
    while True:
        hop += 1
        origin = Origin(f"{prefix}{hop}", seat.agent.name, origin)
        mark = len(course.history.entries)
        ctx = _activate(course, seat, origin, projection)
        action = await seat.agent.run(ctx)
        if type(action) is Transfer:
            transfer, reason = action, ""
            projection = _cross(course, seat, transfer, frames)
        elif action is None and frames:
            transfer, reason, projection = Transfer(frames.pop()), "returned", None
        else:
            _finish(ctx, None)
            if log.sink is not None:
                await log.settle()
            output = action.result if isinstance(action, Exit) and action.result is not None else ctx.output
            return Outcome(action, origin, output)
        try:
            run.meter.start_transfer(origin)
            loops.note(origin, transfer.to, course.history, mark)
        except (LimitError, LoopError):
            if course.rules.on_loop is None or course.is_rescued:
                raise
            course.is_rescued = True
            transfer, reason, projection = Transfer(course.rules.on_loop), "loop", None
            loops.start_over()
            frames.clear()
        _finish(ctx, transfer, reason)
        if log.sink is not None:
            await log.settle()
        seat = course.seat(seat, transfer.to) if run.guests else course.team.seats[transfer.to]


def _activate(course: Course, seat: Seat, origin: Origin, projection: Projection | None) -> AgentContext[Any]:
    log, key = course.run.log, f"{origin.id}/start"
    if not log.has_past or log.find(key, Started) is None:
        log.write(Started(key, origin, time()))
    rules, history = course.rules, course.history
    policy = projection or seat.agent.history or rules.projection
    view = view_for(history, origin, policy, hides_transfers=rules.hides_transfers)
    return AgentContext(course.run, origin, history, view, seat.routes, rules.options)


def _cross(course: Course, seat: Seat, transfer: Transfer, frames: list[str]) -> Projection | None:
    """Go along an edge. `frames` are the agents that wait for control; how the target reads, if the edge says so."""
    to, routes = transfer.to, seat.routes
    if frames and frames[-1] == to:
        frames.pop()
    route = routes.edge(to, transfer.via)
    if route is None:
        if to not in routes.reachable and to not in course.run.guests:
            raise TransferError(seat.agent.name, to, routes.reachable)
        return None
    returns = route.handoff.returns
    if returns != "stay":
        frames.append(seat.agent.name if returns == "caller" else returns)
    return route.handoff.history


def _finish(ctx: AgentContext[Any], transfer: Transfer | None, reason: str = "") -> None:
    """Record that an activation is over, and where control goes if it goes anywhere."""
    log, origin, now = ctx.run.log, ctx.origin, time()
    if transfer is not None:
        key = f"{ctx.scope}/to"
        recorded = log.find(key, Transferred) if log.has_past else None
        if recorded is None:
            log.write(
                Transferred(key, origin, now, origin.agent, transfer.to, transfer.call_id, transfer.payload, reason)
            )
        elif recorded.target != transfer.to:
            raise ReplayMismatch(key, f"a transfer to {recorded.target}", f"a transfer to {transfer.to}")
    key = f"{ctx.scope}/end"
    finished = log.find(key, Finished) if log.has_past else None
    if finished is None:
        log.write(Finished(key, origin, now, ctx.take_changes()))
    else:
        ctx.apply_changes(finished.changes)
