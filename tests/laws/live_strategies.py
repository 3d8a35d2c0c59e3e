"""Random teams and replies that can be had both in writing and live: nothing in them that only one of the two knows.

What only a text agent has is left out: turns that end with a tool's result, limits of turns, control that returns,
projections. What a realtime provider never sends is left out too: calls whose arguments are not JSON, and call ids that
are empty or used twice, which in writing get a new one and live are repeats.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from hypothesis import strategies as st
from tests.laws.plans import AgentPlan, CallKind, CallPlan, EdgePlan, Plan, ReplyPlan, TeamPlan, ToolKind, ToolPlan
from tests.laws.strategies import teams

Declines: TypeAlias = Literal["nothing", "tea", "everything"]

BOTH_WAYS: tuple[ToolKind, ...] = ("ok", "slow", "writing", "failing", "refusing", "asking", "approved", "handing")
LIVE: tuple[ToolKind, ...] = (*BOTH_WAYS, "gated", "gated")
_ARGUMENTS = (
    '{"word": "tea"}',
    "{}",
    '{"word": "twice"}',
    '{"word": "milk"}',
    '{"word": 3}',
    "null",
    '{"worm": "tea"}',
)
_KINDS: tuple[CallKind, ...] = (
    *("tool", "tool", "tool", "tool", "edge", "tree", "edge", "tree"),
    *("unknown agent", "tree garbage", "exit garbage", "unknown"),
)
_SHOWN = ("well", "so be it. Or not", "one two three four")


@dataclass(frozen=True, repr=False)
class Desk(Plan):
    """A team for both, which agents decline whom, and what the runner decides."""

    team: TeamPlan
    declines: tuple[Declines, ...] = ()
    multiple: Literal["first", "last", "error"] = "first"
    corrections: int = 2

    def declined_by(self, name: str) -> Declines:
        """What the agent will not take."""
        place = next(place for place, agent in enumerate(self.team.agents) if agent.name == name)
        return self.declines[place % len(self.declines)] if self.declines else "nothing"


@dataclass(frozen=True, repr=False)
class Visit(Plan):
    """What models say one after the other, after each thing that the user says."""

    desk: Desk
    rounds: tuple[tuple[ReplyPlan, ...], ...]


def desks(kinds: Sequence[ToolKind] = BOTH_WAYS) -> st.SearchStrategy[Desk]:
    """Random teams, with edges of all kinds that both know."""
    return st.builds(
        Desk,
        team=teams(kinds=kinds).map(lambda team: _for_both(team, kinds)),
        declines=st.lists(st.sampled_from(["nothing", "nothing", "tea", "everything"]), max_size=3).map(tuple),
        multiple=st.sampled_from(["first", "last", "error"]),
        corrections=st.sampled_from([2, 0, 1]),
    )


def _for_both(team: TeamPlan, kinds: Sequence[ToolKind]) -> TeamPlan:
    return TeamPlan(tuple([_agent_for_both(agent, kinds) for agent in team.agents]))


def _agent_for_both(plan: AgentPlan, kinds: Sequence[ToolKind]) -> AgentPlan:
    tools = [_tool_for_both(tool, kinds) for tool in plan.tools]
    return AgentPlan(
        plan.name,
        tuple({tool.name: tool for tool in tools}.values()),
        plan.children,
        tuple([_edge_for_both(edge) for edge in plan.edges]),
        has_exit=plan.has_exit,
        stays_from_parent=plan.stays_from_parent,
        is_parallel=plan.is_parallel,
        max_turns=1000,
    )


def _tool_for_both(plan: ToolPlan, kinds: Sequence[ToolKind]) -> ToolPlan:
    return plan if plan.kind in kinds else ToolPlan("ok", "ok")


def _edge_for_both(plan: EdgePlan) -> EdgePlan:
    return replace(plan, returns=None, history=None)


_calls = st.builds(
    CallPlan, kind=st.sampled_from(_KINDS), pick=st.integers(0, 3), arguments=st.sampled_from(_ARGUMENTS)
)
_ends = st.builds(CallPlan, kind=st.just("exit"), pick=st.integers(0, 3))


def replies(*, fewest: int = 0) -> st.SearchStrategy[ReplyPlan]:
    """What a model may say in both; it says something, or calls something."""
    calls = st.lists(st.one_of(*[_calls] * 12, _ends), min_size=fewest, max_size=4).map(tuple)
    some = st.builds(ReplyPlan, content=st.sampled_from(["", "", *_SHOWN]), calls=calls)
    return some.filter(lambda reply: bool(reply.calls) or bool(reply.content))


def visits() -> st.SearchStrategy[Visit]:
    """One to three things that the user says, each with a few replies that make calls; then there is an answer."""
    a_round = st.lists(replies(fewest=1), max_size=5).map(tuple)
    return st.builds(Visit, desk=desks(), rounds=st.lists(a_round, min_size=1, max_size=3).map(tuple))
