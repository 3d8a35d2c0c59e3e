"""Strategies for random teams, runs and replies. Failing examples shrink to the first item of a choice."""

from collections.abc import Sequence
from typing import Any, get_args

from hypothesis import strategies as st
from tests.laws.plans import (
    ALL_KINDS,
    AUTOMATIC_KINDS,
    AgentPlan,
    Behavior,
    CallKind,
    CallPlan,
    EdgePlan,
    PolicyName,
    ReplyPlan,
    RunPlan,
    Scenario,
    TeamPlan,
    ToolKind,
    ToolPlan,
)

from batonkit.messages import Content, Image, Text

_NAMES = ("A", "B", "Night Desk", "D", "E", "F")
_policies: st.SearchStrategy[PolicyName | None] = st.none() | st.sampled_from(get_args(PolicyName))
_WORDS = ("{}", '{"word": "tea"}', '{"word": "twice"}', "")
_GARBAGE = ("{", "null", "[]", '{"word": 3}', '{"worm": "tea"}')
_arguments = st.sampled_from([*_WORDS * 7, *_GARBAGE])
_ids = st.sampled_from([None, None, None, "", "dup", "call_1_m1_1", "call_2_m1_0"])
_texts: st.SearchStrategy[Content] = st.sampled_from(
    ["", "well", "so be it. Or not", (Text("look"), Image(url="https://example.org/b.png")), (Text(""),)]
)
_FREQUENT_KINDS: tuple[ToolKind, ...] = ("direct", "asking")
_call_kinds: tuple[CallKind, ...] = (
    *("tool", "tool", "tool", "tool", "tool", "tool", "tool", "tool", "tree", "edge", "tree", "edge"),
    *("unknown agent", "tree garbage", "exit", "exit garbage", "unknown"),
)


@st.composite
def _tool_plans(draw: st.DrawFn, names: Sequence[str], kinds: Sequence[ToolKind]) -> ToolPlan:
    kind = draw(st.sampled_from((*kinds, *_FREQUENT_KINDS)))
    is_enabled = draw(st.sampled_from([True, True, True, True, False]))
    if kind != "handing":
        return ToolPlan(kind, kind, is_enabled=is_enabled)
    target, is_looked_up = draw(st.sampled_from(names)), draw(st.booleans())
    prefix = "fetch" if is_looked_up else "give"
    return ToolPlan(f"{prefix}_{_slug(target)}", kind, target, is_looked_up, is_enabled=is_enabled)


@st.composite
def teams(draw: st.DrawFn, *, kinds: Sequence[ToolKind] = ALL_KINDS) -> TeamPlan:
    """Generate teams of two to six agents, all reachable from the root, with all kinds of edges and cycles."""
    names = _NAMES[: draw(st.integers(2, len(_NAMES)))]
    children: dict[str, list[str]] = {name: [] for name in names}
    edges: dict[str, dict[str, EdgePlan]] = {name: {} for name in names}
    for index, name in enumerate(names[1:], start=1):
        parent = draw(st.sampled_from(names[:index]))
        if draw(st.booleans()):
            children[parent].append(name)
        else:
            edges[parent][name] = draw(_edge_plans(parent, name, names))
    pairs = st.tuples(st.sampled_from(names), st.sampled_from(names))
    for source, target in draw(st.lists(pairs, max_size=4)):
        edges[source][target] = draw(_edge_plans(source, target, names))
    for source, target in draw(st.lists(pairs, max_size=2)):
        if names.index(source) < names.index(target) and target not in children[source]:
            children[source].append(target)
    agents = [draw(_agent_plans(name, names, children[name], [*edges[name].values()], kinds)) for name in names]
    return TeamPlan(tuple(agents))


@st.composite
def _agent_plans(
    draw: st.DrawFn,
    name: str,
    names: Sequence[str],
    children: Sequence[str],
    edges: Sequence[EdgePlan],
    kinds: Sequence[ToolKind],
) -> AgentPlan:
    tools = draw(st.lists(_tool_plans(names, kinds), min_size=1, max_size=5, unique_by=lambda tool: tool.name))
    others = [other for other in names if other != name]
    return AgentPlan(
        name,
        tuple(tools),
        tuple(children),
        tuple(edges),
        has_exit=draw(st.booleans()),
        stays_from_parent=draw(st.booleans()),
        history=draw(_policies),
        is_parallel=draw(st.sampled_from([True, True, False])),
        max_turns=draw(st.sampled_from([20, 20, 3, 1])),
        on_limit=draw(st.sampled_from(["answer", "error"])),
        output_key=draw(st.sampled_from([None, "answer"])),
        then=draw(st.sampled_from([None, None, None, None, *others])),
        behavior=draw(st.sampled_from(["run_again", "run_again", *get_args(Behavior)])),
        max_parallel=draw(st.sampled_from([None, None, 2, 1])),
    )


@st.composite
def _edge_plans(draw: st.DrawFn, source: str, target: str, names: Sequence[str]) -> EdgePlan:
    is_backward = names.index(target) <= names.index(source)
    return EdgePlan(
        target,
        draw(st.sampled_from([f"transfer_to_{_slug(target)}", f"go_{_slug(target)}"])),
        by_name=is_backward or draw(st.booleans()),
        returns=draw(st.sampled_from([None, None, None, "caller", *names])),
        history=draw(_policies),
        is_enabled=draw(st.sampled_from([True, True, True, True, False])),
        needs_approval=draw(st.sampled_from([False, False, True])),
        has_input=draw(st.sampled_from([False, False, True])),
        calls_back=draw(st.booleans()),
    )


runs = st.builds(
    RunPlan,
    multiple=st.sampled_from(["first", "last", "error"]),
    history=st.sampled_from(get_args(PolicyName)),
    show_transfers=st.booleans(),
    corrections=st.sampled_from([2, 0, 1]),
    most_transfers=st.sampled_from([12, 12, 3]),
    most_model_calls=st.sampled_from([40, 40, 5]),
    round_trips=st.sampled_from([None, None, 1]),
)

_calls = st.builds(CallPlan, kind=st.sampled_from(_call_kinds), pick=st.integers(0, 3), arguments=_arguments, id=_ids)
_reasoning = st.sampled_from(["", "", "hm"])


@st.composite
def _replies(draw: st.DrawFn) -> ReplyPlan:
    min_calls = draw(st.sampled_from([0, 1, 1, 1, 1, 2, 3]))
    calls = draw(st.lists(_calls, min_size=min_calls, max_size=5 if min_calls else 0))
    return ReplyPlan(draw(_texts), tuple(calls), draw(_reasoning))


replies = _replies()
"""Any response of a model, including an empty one."""

approvals: st.SearchStrategy[Any] = st.sampled_from(
    [
        True,
        False,
        {"approved": False, "reason": "too dear"},
        {"approved": True, "arguments": {"word": "milk"}},
        {"approved": True, "arguments": {"word": 3}},
        {"approved": True, "always": True},
    ]
)
answers: st.SearchStrategy[Any] = st.sampled_from(["yes", None, False, 7, {"a": [1, "b"]}, ["x"]])


def _is_not_empty(reply: ReplyPlan) -> bool:
    return bool(reply.calls) or (bool(reply.content) and reply.content != (Text(""),))


def scenarios(*, kinds: Sequence[ToolKind] = AUTOMATIC_KINDS) -> st.SearchStrategy[Scenario]:
    """Generate scenarios without empty responses."""
    return st.builds(
        Scenario,
        team=teams(kinds=kinds),
        run=runs,
        replies=st.lists(replies.filter(_is_not_empty), min_size=1, max_size=10).map(tuple),
        approvals=st.lists(approvals, min_size=1, max_size=3).map(tuple),
        answers=st.lists(answers, min_size=1, max_size=3).map(tuple),
        one_at_a_time=st.booleans(),
    )


def _slug(name: str) -> str:
    return name.lower().replace(" ", "_")
