"""Random teams and replies that both text runs and realtime sessions support.

Options that only text agents have are left out: turns that end with a tool's result, limits of turns, `return_to` and
`history`. Calls that a realtime provider never sends are left out as well: those whose arguments are not JSON, and
those with an empty or repeated id, which gets a new id in a text run and means the same call in a session.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from hypothesis import strategies as st
from tests.laws.plans import AgentPlan, CallKind, CallPlan, EdgePlan, Plan, ReplyPlan, TeamPlan, ToolKind, ToolPlan
from tests.laws.strategies import teams

Declines: TypeAlias = Literal["nothing", "tea", "everything"]

COMMON_TOOLS: tuple[ToolKind, ...] = ("ok", "slow", "writing", "failing", "refusing", "asking", "approved", "handing")
REALTIME_TOOLS: tuple[ToolKind, ...] = (*COMMON_TOOLS, "gated", "gated")
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
_TEXTS = ("well", "so be it. Or not", "one two three four")


@dataclass(frozen=True, repr=False)
class TeamSetup(Plan):
    """A team for both, the transfers that its agents decline, and options of the runner."""

    team: TeamPlan
    declines: tuple[Declines, ...] = ()
    multiple: Literal["first", "last", "error"] = "first"
    corrections: int = 2

    def declined_by(self, name: str) -> Declines:
        """Return which transfers the agent declines."""
        index = next(index for index, agent in enumerate(self.team.agents) if agent.name == name)
        return self.declines[index % len(self.declines)] if self.declines else "nothing"


@dataclass(frozen=True, repr=False)
class ConversationPlan(Plan):
    """The replies of the model to each user message."""

    setup: TeamSetup
    rounds: tuple[tuple[ReplyPlan, ...], ...]


def team_setups(kinds: Sequence[ToolKind] = COMMON_TOOLS) -> st.SearchStrategy[TeamSetup]:
    """Generate teams with all kinds of tools and edges that both support."""
    return st.builds(
        TeamSetup,
        team=teams(kinds=kinds).map(lambda team: _common_team(team, kinds)),
        declines=st.lists(st.sampled_from(["nothing", "nothing", "tea", "everything"]), max_size=3).map(tuple),
        multiple=st.sampled_from(["first", "last", "error"]),
        corrections=st.sampled_from([2, 0, 1]),
    )


def _common_team(team: TeamPlan, kinds: Sequence[ToolKind]) -> TeamPlan:
    return TeamPlan(tuple([_common_agent(agent, kinds) for agent in team.agents]))


def _common_agent(plan: AgentPlan, kinds: Sequence[ToolKind]) -> AgentPlan:
    tools = [_common_tool(tool, kinds) for tool in plan.tools]
    return AgentPlan(
        plan.name,
        tuple({tool.name: tool for tool in tools}.values()),
        plan.children,
        tuple([_common_edge(edge) for edge in plan.edges]),
        has_exit=plan.has_exit,
        stays_from_parent=plan.stays_from_parent,
        is_parallel=plan.is_parallel,
        max_turns=1000,
    )


def _common_tool(plan: ToolPlan, kinds: Sequence[ToolKind]) -> ToolPlan:
    return plan if plan.kind in kinds else ToolPlan("ok", "ok")


def _common_edge(plan: EdgePlan) -> EdgePlan:
    return replace(plan, returns=None, history=None)


_calls = st.builds(
    CallPlan, kind=st.sampled_from(_KINDS), pick=st.integers(0, 3), arguments=st.sampled_from(_ARGUMENTS)
)
_exit_calls = st.builds(CallPlan, kind=st.just("exit"), pick=st.integers(0, 3))


def replies(*, min_calls: int = 0) -> st.SearchStrategy[ReplyPlan]:
    """Generate replies with text or calls that both support."""
    calls = st.lists(st.one_of(*[_calls] * 12, _exit_calls), min_size=min_calls, max_size=4).map(tuple)
    any_replies = st.builds(ReplyPlan, content=st.sampled_from(["", "", *_TEXTS]), calls=calls)
    return any_replies.filter(lambda reply: bool(reply.calls) or bool(reply.content))


def conversation_plans() -> st.SearchStrategy[ConversationPlan]:
    """Generate one to three user messages, each with a few replies that make calls, followed by a text reply."""
    round_replies = st.lists(replies(min_calls=1), max_size=5).map(tuple)
    return st.builds(
        ConversationPlan, setup=team_setups(), rounds=st.lists(round_replies, min_size=1, max_size=3).map(tuple)
    )
