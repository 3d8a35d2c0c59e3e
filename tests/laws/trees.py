"""Strategies for random workflows: trees of sequences, loops and branches with custom and model agents as leaves."""

from dataclasses import dataclass
from typing import Literal, TypeAlias

from hypothesis import strategies as st

Ending: TypeAlias = Literal["none", "exit", "exit empty", "break", "transfer"]
"""No action; exit with a result; exit without a result; break the loop; transfer to the partner."""
OperationKind: TypeAlias = Literal["say", "read", "step", "ask", "write", "note", "delete", "fail"]
Operation: TypeAlias = tuple[OperationKind, int]
Call: TypeAlias = Literal["ask", "break"]
WorkflowKind: TypeAlias = Literal["sequence", "loop", "parallel"]
Policy: TypeAlias = Literal["collect", "ignore"]

KEYS = ("k0", "k1")
NOTES = "notes"
"""A value that every parallel agent merges with a reducer."""


@dataclass(frozen=True)
class CustomAgent:
    """A custom agent: its operations in each activation, and the action it ends with."""

    name: str
    operations: tuple[Operation, ...] = ()
    ending: Ending = "none"
    partner: "CustomAgent | None" = None


@dataclass(frozen=True)
class ModelAgent:
    """An agent with a model: its call in each turn, and the action it ends with.

    A call asks a question, breaks the loop, or runs another tree as a tool.
    """

    name: str
    calls: "tuple[Call | Tree, ...]" = ()
    ending: Ending = "none"
    partner: "CustomAgent | None" = None


@dataclass(frozen=True)
class Workflow:
    """A sequence, a loop or parallel branches."""

    name: str
    kind: WorkflowKind
    steps: "tuple[Tree, ...]"
    rounds: int = 1
    on_error: Policy = "collect"


Tree: TypeAlias = CustomAgent | ModelAgent | Workflow

_KINDS: tuple[OperationKind, ...] = ("say", "read", "ask", "write", "note", "step", "delete")
_operations: st.SearchStrategy[Operation] = st.tuples(st.sampled_from(_KINDS), st.integers(0, 1))
_WITH_FAILURE: tuple[OperationKind, ...] = (*_KINDS, *_KINDS, "fail")
_sometimes_failing: st.SearchStrategy[Operation] = st.tuples(st.sampled_from(_WITH_FAILURE), st.integers(0, 1))
_ENDINGS: tuple[Ending, ...] = ("none", "none", "none", "none", "transfer", "break", "exit", "exit empty")
_PARTNERS_ENDINGS: tuple[Ending, ...] = ("none", "none", "break", "exit")
_CHATS_ENDINGS: tuple[Ending, ...] = ("none", "none", "none", "transfer", "exit")
_CALLS: tuple[Call | None, ...] = ("ask", "break", None, None)
_WORKFLOWS: tuple[WorkflowKind, ...] = ("sequence", "loop", "parallel", "parallel")
_POLICIES: tuple[Policy, ...] = ("collect", "ignore")


class _Names:
    def __init__(self) -> None:
        self._count = 0

    def new(self) -> str:
        self._count += 1
        return f"n{self._count}"


@st.composite
def trees(draw: st.DrawFn, *, max_agents: int = 9) -> Tree:
    """Generate workflows of a few agents with at most three levels."""
    return _tree(draw, _Names(), [max_agents], 3, is_root=True)


def _tree(draw: st.DrawFn, names: _Names, remaining: list[int], depth: int, *, is_root: bool = False) -> Tree:
    remaining[0] -= 1
    if not (depth and remaining[0] > 0) or (not is_root and draw(st.booleans())):
        return _custom_agent(draw, names) if draw(st.integers(0, 2)) else _model_agent(draw, names, remaining, depth)
    kind, name = draw(st.sampled_from(_WORKFLOWS)), names.new()
    steps = [_tree(draw, names, remaining, depth - 1) for _ in range(draw(st.integers(1, 3))) if remaining[0] > 0]
    return Workflow(name, kind, tuple(steps), draw(st.integers(1, 2)), draw(st.sampled_from(_POLICIES)))


def _custom_agent(draw: st.DrawFn, names: _Names) -> CustomAgent:
    operations, ending = tuple(draw(st.lists(_sometimes_failing, max_size=3))), draw(st.sampled_from(_ENDINGS))
    return CustomAgent(names.new(), operations, ending, _partner(draw, names) if ending == "transfer" else None)


def _partner(draw: st.DrawFn, names: _Names) -> CustomAgent:
    operations = tuple(draw(st.lists(_operations, max_size=2)))
    return CustomAgent(names.new(), operations, draw(st.sampled_from(_PARTNERS_ENDINGS)))


def _model_agent(draw: st.DrawFn, names: _Names, remaining: list[int], depth: int) -> ModelAgent:
    name, calls = names.new(), list[Call | Tree]()
    for kind in draw(st.lists(st.sampled_from(_CALLS), max_size=2)):
        if kind is not None:
            calls.append(kind)
        elif depth and remaining[0] > 0:
            calls.append(_tree(draw, names, remaining, depth - 1))
    ending = draw(st.sampled_from(_CHATS_ENDINGS))
    return ModelAgent(name, tuple(calls), ending, _partner(draw, names) if ending == "transfer" else None)
