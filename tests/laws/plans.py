"""Plain descriptions of teams, runs and replies, independent of Baton's classes."""

from dataclasses import dataclass, fields
from typing import Any, Literal, TypeAlias, cast, get_args

from batonkit.messages import Content

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
    "streaming",
]
"""`gated` waits until the test unblocks it; `stepping` works in a step and then interrupts; `handing` returns an agent;
`raising` ends the run; `streaming` yields progress before its result."""

Behavior: TypeAlias = Literal["run_again", "stop_on_first", "stop_at", "function"]
"""`stop_at` stops at the agent's first tool; `function` stops after an odd number of results."""

ALL_KINDS: tuple[ToolKind, ...] = get_args(ToolKind)
AUTOMATIC_KINDS: tuple[ToolKind, ...] = tuple(kind for kind in ALL_KINDS if kind not in ("gated", "raising"))
"""Kinds of tools for runs that need no control by the test."""

PolicyName: TypeAlias = Literal["rewritten", "verbatim", "lineage", "answers", "none"]
DEFAULT_WORD = "it"


class Plan:
    """Base of the plans. Its repr omits defaults, so that failing examples are easy to read."""

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(repr(self))

    def __repr__(self) -> str:
        mine = cast(Any, self)
        arguments = [
            f"{each.name}={value!r}" for each in fields(mine) if (value := getattr(mine, each.name)) != each.default
        ]
        return f"{type(self).__name__}({', '.join(arguments)})"


@dataclass(frozen=True, repr=False)
class ToolPlan(Plan):
    """One tool of an agent. A `handing` tool returns `target`, looked up in a dict or referenced directly."""

    name: str
    kind: ToolKind
    target: str = ""
    is_looked_up: bool = False
    is_once: bool = False
    is_enabled: bool = True


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
    """The model must give a word as input."""
    calls_back: bool = False


@dataclass(frozen=True, repr=False)
class AgentPlan(Plan):
    """One agent with a model; with `then`, it is wrapped in `then_transfer`."""

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
    behavior: Behavior = "run_again"
    max_parallel: int | None = None

    def tool(self, name: str) -> ToolPlan | None:
        """Return the tool with this name."""
        return next((tool for tool in self.tools if tool.name == name), None)

    def edge(self, tool: str) -> EdgePlan | None:
        """Return the handoff that this tool requests."""
        return next((edge for edge in self.edges if edge.tool == tool), None)


@dataclass(frozen=True, repr=False)
class TeamPlan(Plan):
    """The agents of a team, the root first. Children and edges by object only refer to later agents."""

    agents: tuple[AgentPlan, ...]

    def __getitem__(self, name: str) -> AgentPlan:
        return next(agent for agent in self.agents if agent.name == name)

    def tree_of(self, name: str) -> list[str]:
        """Return the valid targets of the agent's `transfer_to_agent`: its children, then its parents."""
        agent = self[name]
        parents = [other.name for other in self.agents if name in other.children]
        return list(dict.fromkeys([*agent.children, *([] if agent.stays_from_parent else parents)]))

    def tool_names(self, name: str) -> set[str]:
        """Return the names of the tools that the agent's model is offered."""
        agent = self[name]
        names = {tool.name for tool in agent.tools if tool.is_enabled} | {
            edge.tool for edge in agent.edges if edge.is_enabled
        }
        names |= {"exit"} if agent.has_exit else set()
        return names | ({"transfer_to_agent"} if self.tree_of(name) else set())


@dataclass(frozen=True, repr=False)
class RunPlan(Plan):
    """The options of the runner."""

    multiple: Literal["first", "last", "error"] = "first"
    history: PolicyName = "rewritten"
    show_transfers: bool = True
    corrections: int = 2
    most_transfers: int = 32
    most_model_calls: int = 100
    round_trips: int | None = None


CallKind: TypeAlias = Literal[
    "tool", "tree", "unknown agent", "tree garbage", "edge", "exit", "exit garbage", "unknown"
]


@dataclass(frozen=True, repr=False)
class CallPlan(Plan):
    """A tool call of a model; `pick` selects one of the agent's tools, handoffs or targets."""

    kind: CallKind
    pick: int = 0
    arguments: str = "{}"
    id: str | None = None
    """None for a unique id."""


@dataclass(frozen=True, repr=False)
class ReplyPlan(Plan):
    """One response of a model."""

    content: Content = ""
    calls: tuple[CallPlan, ...] = ()
    reasoning: str = ""


@dataclass(frozen=True, repr=False)
class Scenario(Plan):
    """A whole run: the replies of the models in order, and the answers to interrupts.

    When the replies are used up, models answer without calling tools.
    """

    team: TeamPlan
    run: RunPlan
    replies: tuple[ReplyPlan, ...]
    approvals: tuple[object, ...] = (True,)
    answers: tuple[object, ...] = ("yes",)
    one_at_a_time: bool = False
