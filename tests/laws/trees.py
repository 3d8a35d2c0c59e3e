"""Random workflows: trees of sequences, loops and branches, with agents of one's own and of a model at their ends."""

from dataclasses import dataclass
from typing import Literal, TypeAlias

from hypothesis import strategies as st

Ending: TypeAlias = Literal["none", "exit", "leave", "break", "pass"]
"""Nothing; exit with a result; exit without one; break the loop; transfer to the partner."""
Deeds: TypeAlias = Literal["say", "read", "step", "ask", "write", "note", "delete", "fail"]
Deed: TypeAlias = tuple[Deeds, int]
Call: TypeAlias = Literal["ask", "break"]
WorkflowKind: TypeAlias = Literal["sequence", "loop", "parallel"]
Policy: TypeAlias = Literal["collect", "ignore"]

KEYS = ("k0", "k1")
NOTES = "notes"
"""A value that every parallel agent joins with a reducer."""


@dataclass(frozen=True)
class Own:
    """An agent of one's own: what it does each time it has the floor, and how it gives it up."""

    name: str
    deeds: tuple[Deed, ...] = ()
    ending: Ending = "none"
    partner: "Own | None" = None


@dataclass(frozen=True)
class Chat:
    """An agent that asks a model: what it calls in each turn, and how it gives the floor up.

    A call is a question, a break of the loop, or another tree as a tool.
    """

    name: str
    calls: "tuple[Call | Tree, ...]" = ()
    ending: Ending = "none"
    partner: "Own | None" = None


@dataclass(frozen=True)
class Workflow:
    """Steps one after the other, again and again, or all at once."""

    name: str
    kind: WorkflowKind
    steps: "tuple[Tree, ...]"
    rounds: int = 1
    on_error: Policy = "collect"


Tree: TypeAlias = Own | Chat | Workflow

_KINDS: tuple[Deeds, ...] = ("say", "read", "ask", "write", "note", "step", "delete")
_deeds: st.SearchStrategy[Deed] = st.tuples(st.sampled_from(_KINDS), st.integers(0, 1))
_SOMETIMES: tuple[Deeds, ...] = (*_KINDS, *_KINDS, "fail")
_rarely_failing: st.SearchStrategy[Deed] = st.tuples(st.sampled_from(_SOMETIMES), st.integers(0, 1))
_ENDINGS: tuple[Ending, ...] = ("none", "none", "none", "none", "pass", "break", "exit", "leave")
_PARTNERS_ENDINGS: tuple[Ending, ...] = ("none", "none", "break", "exit")
_CHATS_ENDINGS: tuple[Ending, ...] = ("none", "none", "none", "pass", "exit")
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
def trees(draw: st.DrawFn, *, most_agents: int = 9) -> Tree:
    """A workflow of a few agents, three floors high at most."""
    return _tree(draw, _Names(), [most_agents], 3, is_root=True)


def _tree(draw: st.DrawFn, names: _Names, left: list[int], floors: int, *, is_root: bool = False) -> Tree:
    left[0] -= 1
    if not (floors and left[0] > 0) or (not is_root and draw(st.booleans())):
        return _own(draw, names) if draw(st.integers(0, 2)) else _chat(draw, names, left, floors)
    kind, name = draw(st.sampled_from(_WORKFLOWS)), names.new()
    steps = [_tree(draw, names, left, floors - 1) for _ in range(draw(st.integers(1, 3))) if left[0] > 0]
    return Workflow(name, kind, tuple(steps), draw(st.integers(1, 2)), draw(st.sampled_from(_POLICIES)))


def _own(draw: st.DrawFn, names: _Names) -> Own:
    deeds, ending = tuple(draw(st.lists(_rarely_failing, max_size=3))), draw(st.sampled_from(_ENDINGS))
    return Own(names.new(), deeds, ending, _partner(draw, names) if ending == "pass" else None)


def _partner(draw: st.DrawFn, names: _Names) -> Own:
    deeds = tuple(draw(st.lists(_deeds, max_size=2)))
    return Own(names.new(), deeds, draw(st.sampled_from(_PARTNERS_ENDINGS)))


def _chat(draw: st.DrawFn, names: _Names, left: list[int], floors: int) -> Chat:
    name, calls = names.new(), list[Call | Tree]()
    for kind in draw(st.lists(st.sampled_from(_CALLS), max_size=2)):
        if kind is not None:
            calls.append(kind)
        elif floors and left[0] > 0:
            calls.append(_tree(draw, names, left, floors - 1))
    ending = draw(st.sampled_from(_CHATS_ENDINGS))
    return Chat(name, tuple(calls), ending, _partner(draw, names) if ending == "pass" else None)
