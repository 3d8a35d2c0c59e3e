"""Teams and runs as plain plans: what the laws know of a team without asking Baton about it."""

from dataclasses import dataclass, fields
from typing import Any, Literal, TypeAlias, cast, get_args

from baton.messages import Content

ToolKind: TypeAlias = Literal[
    "ok",
    "slow",
    "parts",
    "writing",
    "failing",
    "refusing",
    "raising",
    "direct",
    "asking",
    "stepping",
    "approved",
    "gated",
    "handing",
]
"""`gated` waits until a test lets it go on; `stepping` does its work in a step and asks afterwards; `handing` returns
an agent; `raising` ends the run."""

ALL_KINDS: tuple[ToolKind, ...] = get_args(ToolKind)
UNATTENDED: tuple[ToolKind, ...] = tuple(kind for kind in ALL_KINDS if kind not in ("gated", "raising"))
"""Tools of runs that nobody steers while they are under way."""

PolicyName: TypeAlias = Literal["rewritten", "verbatim", "lineage", "answers", "none"]
DEFAULT_WORD = "it"


class Plan:
    """Shows only what is not the default: a failing example is read by people."""

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(repr(self))

    def __repr__(self) -> str:
        mine = cast(Any, self)
        told = [
            f"{each.name}={value!r}" for each in fields(mine) if (value := getattr(mine, each.name)) != each.default
        ]
        return f"{type(self).__name__}({', '.join(told)})"


@dataclass(frozen=True, repr=False)
class ToolPlan(Plan):
    """One tool of an agent. A `handing` one returns `target`, looked up in a register or named in its code."""

    name: str
    kind: ToolKind
    target: str = ""
    is_looked_up: bool = False
    is_once: bool = False


@dataclass(frozen=True, repr=False)
class EdgePlan(Plan):
    """One entry of an agent's `handoffs`."""

    target: str
    tool: str
    by_name: bool = False
    returns: str | None = None
    history: PolicyName | None = None
    is_enabled: bool = True
    needs_approval: bool = False
    has_input: bool = False
    """Whether the model must give a word with it."""
    calls_back: bool = False


@dataclass(frozen=True, repr=False)
class AgentPlan(Plan):
    """One agent that asks a model; with `then`, wrapped in `then_transfer`."""

    name: str
    tools: tuple[ToolPlan, ...] = ()
    children: tuple[str, ...] = ()
    edges: tuple[EdgePlan, ...] = ()
    has_exit: bool = False
    stays_from_parent: bool = False
    history: PolicyName | None = None
    is_parallel: bool = True
    max_turns: int = 20
    on_limit: Literal["answer", "error"] = "answer"
    output_key: str | None = None
    then: str | None = None

    def tool(self, name: str) -> ToolPlan | None:
        """The tool with this name."""
        return next((tool for tool in self.tools if tool.name == name), None)

    def edge(self, tool: str) -> EdgePlan | None:
        """The handoff that is asked for with this tool."""
        return next((edge for edge in self.edges if edge.tool == tool), None)


@dataclass(frozen=True, repr=False)
class TeamPlan(Plan):
    """Agents; the first is the root. Children and edges by object only lead to later ones."""

    agents: tuple[AgentPlan, ...]

    def __getitem__(self, name: str) -> AgentPlan:
        return next(agent for agent in self.agents if agent.name == name)

    def tree_of(self, name: str) -> list[str]:
        """Whom the agent may transfer to with the one tool: its children, then its parents."""
        agent = self[name]
        parents = [other.name for other in self.agents if name in other.children]
        return list(dict.fromkeys([*agent.children, *([] if agent.stays_from_parent else parents)]))

    def tool_names(self, name: str) -> set[str]:
        """Everything the agent's model is offered."""
        agent = self[name]
        names = {tool.name for tool in agent.tools} | {edge.tool for edge in agent.edges if edge.is_enabled}
        names |= {"exit"} if agent.has_exit else set()
        return names | ({"transfer_to_agent"} if self.tree_of(name) else set())


@dataclass(frozen=True, repr=False)
class RunPlan(Plan):
    """What the runner decides."""

    multiple: Literal["first", "last", "error"] = "first"
    history: PolicyName = "rewritten"
    show_transfers: bool = True
    corrections: int = 2
    most_transfers: int = 32
    most_model_calls: int = 100
    round_trips: int | None = None


CallKind: TypeAlias = Literal["tool", "tree", "stranger", "tree garbage", "edge", "exit", "exit garbage", "unknown"]


@dataclass(frozen=True, repr=False)
class CallPlan(Plan):
    """A call as a model might make it; `pick` chooses among what its agent has, whatever that is."""

    kind: CallKind
    pick: int = 0
    arguments: str = "{}"
    id: str | None = None
    """None: an id like no other."""


@dataclass(frozen=True, repr=False)
class ReplyPlan(Plan):
    """What a model says when it is asked."""

    content: Content = ""
    calls: tuple[CallPlan, ...] = ()
    reasoning: str = ""


@dataclass(frozen=True, repr=False)
class Scenario(Plan):
    """A run from beginning to end: what the models say one after the other, and what the outside answers.

    When the replies are used up, models say one more thing and no more.
    """

    team: TeamPlan
    run: RunPlan
    replies: tuple[ReplyPlan, ...]
    approvals: tuple[object, ...] = (True,)
    answers: tuple[object, ...] = ("yes",)
    one_at_a_time: bool = False
