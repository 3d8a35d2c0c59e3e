"""The contract of an agent, and what it is given while it has the floor.

Agents made of a function.
"""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from inspect import getdoc, iscoroutinefunction
from time import time
from typing import Any, ClassVar, Generic, Literal, Protocol, TypeAlias, cast

import msgspec
from msgspec import Struct
from typing_extensions import TypeVar

from ..context import HistoryEntry, Limits, RunContext
from ..context.history import History, HistoryView
from ..context.run_state import RunState
from ..context.values import to_json_value
from ..errors import SetupError
from ..events import Action, AgentResponded, Origin, TextDelta
from ..handoffs import Handoff, HandoffTarget
from ..handoffs.routes import Routes
from ..messages import AssistantMessage, Content, Message, ToolSpec, is_empty, text_of
from ..models import Model, ModelSettings
from ..tools import NeedsApproval, Tool, ToolResult
from .hooks import AgentHooks, HookDispatcher, RunHooks

C = TypeVar("C", default=Any)
Out = TypeVar("Out", default=str, covariant=True)

HistoryPolicy: TypeAlias = (
    Literal["rewritten", "verbatim", "lineage", "answers", "none"]
    | Callable[[Sequence[HistoryEntry]], Sequence[Message]]
)
"""How an agent reads what others said before it."""

Accepts: TypeAlias = Callable[[RunContext[Any], Any], bool | str | Awaitable[bool | str]]
MultipleTransfers: TypeAlias = Literal["first", "last", "error"]


@dataclass(frozen=True, slots=True)
class RunConfig:
    """What the runner decides for all agents of a run."""

    model: Model | None = None
    model_settings: ModelSettings | None = None
    multiple_transfers: MultipleTransfers = "first"
    max_corrections: int = 2
    hooks: RunHooks | None = None
    compiled_agents: dict[str, Any] = field(default_factory=dict[str, Any])
    """What agents worked out once for all their activations under these options, by agent."""


class FlowOutcome(Struct, frozen=True):
    """How a flow of control ended: with which action, by whom, and with what output. `first` had the floor at first."""

    action: Action | None
    origin: Origin
    output: Any
    first: Origin


class Flow(Protocol):
    """The flow of control that an activation is part of; it can give the floor to agents inside another."""

    def inside(
        self,
        agent: "BaseAgent[Any, Any]",
        *,
        run: RunState[Any],
        history: History,
        prefix: str,
        after: Origin,
        projection: HistoryPolicy | None,
    ) -> Coroutine[Any, Any, FlowOutcome]:
        """Give the floor to an agent; keys begin with `prefix`, paths go on from `after`."""
        ...


class AgentContext(RunContext[C]):
    """What an agent is given when it gets the floor: all a tool has, and the conversation."""

    __slots__ = (
        "_breaks_loop",
        "_flow",
        "_history",
        "_hooks",
        "_options",
        "_routes",
        "_said",
        "_turn_start",
        "messages",
        "output",
    )
    # An activation is no call and has no caller; said once here instead of once for every transfer.
    tool_call: ClassVar[None] = None
    _caller: ClassVar[None] = None

    def __init__(
        self,
        run: RunState[C],
        origin: Origin,
        history: History,
        view: HistoryView,
        routes: Routes,
        options: RunConfig,
        turn_start: int,
        flow: Flow,
    ) -> None:
        # Written out instead of super().__init__: this runs once for every transfer.
        self._run = run
        self._origin = origin
        self._scope = origin.id
        self._values = None
        self._steps = None
        self._asked = 0
        self._history = history
        self._routes = routes
        self._options = options
        self.output: Any = None
        """What this activation comes to: by default the text it said last."""
        self.messages: Callable[[], Sequence[Message]] = view.messages
        """Call it for the conversation so far, as this agent reads it."""
        self._turn_start = turn_start
        """Where in the history the present turn begins."""
        self._flow = flow
        self._breaks_loop = False
        """Whether a tool has asked that the loop around this agent end."""
        self._hooks: HookDispatcher | None = None
        """The hooks that are told of what happens here, if there are any."""
        self._said = 0

    def inside(
        self,
        agent: "BaseAgent[Any, Any]",
        place: str,
        *,
        run: RunState[Any] | None = None,
        history: History | None = None,
        after: Origin | None = None,
        projection: HistoryPolicy | None = None,
    ) -> Coroutine[Any, Any, FlowOutcome]:
        """Give the floor to one of this agent's `parts`, and come back when it and whomever it transfers to are done.

        `place` is unique in this activation and the same on every replay. Without a history of its own, the part goes
        on with this one.
        """
        return self._flow.inside(
            agent,
            run=run or self._run,
            history=history or self._history,
            prefix=f"{self._scope}/{place}/",
            after=after or self._origin,
            projection=projection,
        )

    async def stream_text(self, text: str) -> None:
        """Tell whoever listens a piece of what comes next, while it is made. Not recorded: `say` records the whole."""
        log = self._run.log
        if log.sink is not None and not log.has(f"{self._scope}/say{self._said + 1}"):
            log.deliver(TextDelta(self._origin, text))
            await log.settle()

    async def say(self, content: Content) -> None:
        """Say something in the agent's name, once."""
        self._said += 1
        key = f"{self._scope}/say{self._said}"
        log = self._run.log
        said = log.find(key, AgentResponded)
        if said is None:
            if not isinstance(content, str):
                to_json_value(f"what `{self.agent}` says", content)
            log.announce(key, AgentResponded)
            said = AgentResponded(
                key, self._origin, time(), AssistantMessage(content), value_changes=self._take_changes()
            )
            log.write(said)
            await log.settle()
        else:
            self._apply_changes(said.value_changes)
        if not is_empty(said.message):
            self._history.add(said.message, self._origin, is_answer=True)
        self.output = text_of(said.message.content)


class BaseAgent(ABC, Generic[C, Out]):
    """Something with a name, a description and a way to run. A definition: it keeps no state of any run."""

    name: str
    description: str = ""
    examples: Sequence[str] = ()
    sub_agents: Sequence["BaseAgent[Any, Any]"] = ()
    handoffs: Sequence["BaseAgent[Any, Any] | Handoff | str"] = ()
    disallow_transfer_to_parent: bool = False
    history: HistoryPolicy | None = None
    accepts: Accepts | None = None
    """Has a say in whether the agent takes a conversation: True, or a reason why not."""
    hooks: AgentHooks | None = None

    def __init__(
        self,
        name: str = "",
        *,
        description: str = "",
        examples: Sequence[str] = (),
        sub_agents: Sequence["BaseAgent[Any, Any]"] = (),
        handoffs: Sequence["BaseAgent[Any, Any] | Handoff | str"] = (),
        disallow_transfer_to_parent: bool = False,
        history: HistoryPolicy | None = None,
        accepts: Accepts | None = None,
        hooks: AgentHooks | None = None,
    ) -> None:
        self.name = check_name(name or getattr(type(self), "name", ""), type(self).__name__)
        self.description = description or type(self).description
        self.examples = check_examples(self.name, examples or type(self).examples)
        self.sub_agents = check_agents(self.name, sub_agents or type(self).sub_agents)
        self.handoffs = to_handoffs(self.name, handoffs or type(self).handoffs)
        self.disallow_transfer_to_parent = disallow_transfer_to_parent or type(self).disallow_transfer_to_parent
        self.history = history if history is not None else type(self).history
        if accepts is not None:
            self.accepts = accepts
        self.hooks = hooks if hooks is not None else type(self).hooks

    @abstractmethod
    def run(self, ctx: AgentContext[C]) -> Coroutine[Any, Any, Action | None]:
        """Do what the agent does; return where control should go, or nothing to be done. Write it as `async def`."""

    def _edges(self) -> tuple[Handoff, ...]:
        """The agent's handoffs, each as an edge."""
        return to_handoffs(self.name, self.handoffs)

    def _transfer_children(self) -> Sequence["BaseAgent[Any, Any]"]:
        """The agents it can transfer to and that can transfer back: its sub-agents, unless they are parts."""
        return self.sub_agents

    def inner_agents(self) -> "tuple[BaseAgent[Any, Any], ...]":
        """Agents that run inside this one, each with a team of its own: steps of a workflow, agents that are tools."""
        return ()

    def _tool_specs(self) -> tuple[ToolSpec, ...]:
        """The agent's own tools, as a model sees them."""
        return ()

    def _referenced_agents(self) -> "tuple[BaseAgent[Any, Any], ...]":
        """Agents that the agent's functions may return: edges that nobody wrote down."""
        return ()

    def as_tool(
        self,
        name: str | None = None,
        description: str | None = None,
        *,
        input_type: Any = None,
        history: HistoryPolicy = "none",
        output_extractor: Callable[[Any], Any] | None = None,
        stream_events: bool = True,
        limits: Limits | None = None,
        needs_approval: NeedsApproval = False,
    ) -> Tool:
        """The agent as a tool: whoever calls it keeps the floor and gets the agent's answer as the result.

        It is told the call's `request`, or the arguments as JSON if there is an `input_type`; besides that it reads
        nothing of the caller's conversation, unless `history` says how. `output` makes the result of an `AgentToolResult`.
        `limits` are its share of the run's.
        """
        from .agent_tool import agent_tool

        return agent_tool(
            self,
            name=name,
            description=description,
            input_type=input_type,
            history=history,
            output_extractor=output_extractor,
            stream_events=stream_events,
            limits=limits,
            needs_approval=needs_approval,
        )

    def _as_tool_result(self) -> ToolResult:
        """A function that returns an agent asks for a transfer to it."""
        return ToolResult(msgspec.json.encode({"assistant": self.name}).decode(), transfer_to=self)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"


def check_name(name: object, kind: str) -> str:
    """The name, if it can be one."""
    if not isinstance(name, str) or not name.strip():
        raise SetupError(f"a {kind} needs a name, a string that is not empty; it has {name!r}")
    return name


def check_examples(owner: str, examples: object) -> tuple[str, ...]:
    """The example questions, if that is what they are."""
    given = cast("Sequence[object]", examples)
    if isinstance(examples, str) or not isinstance(examples, Sequence) or not all(isinstance(q, str) for q in given):
        raise SetupError(f"`{owner}` has examples={examples!r}; give a list of questions")
    return cast("tuple[str, ...]", tuple(given))


def check_agents(owner: str, agents: Sequence[Any]) -> tuple[BaseAgent[Any, Any], ...]:
    """The agents, if that is what they are."""
    if not isinstance(agents, Sequence):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise SetupError(f"`{owner}` has sub_agents={agents!r}; give a list")
    for agent in agents:
        if not isinstance(agent, BaseAgent):
            raise SetupError(f"`{owner}` has {agent!r} in sub_agents; only agents can stand there")
    return tuple(agents)


def to_handoffs(owner: str, entries: Sequence[Any]) -> tuple[Handoff, ...]:
    """The entries of `handoffs` as edges, if they are agents, handoffs or names."""
    edges: list[Handoff] = []
    for entry in entries:
        if isinstance(entry, Handoff):
            edges.append(entry)
        elif isinstance(entry, str | BaseAgent):
            edges.append(Handoff(agent=cast("HandoffTarget | str", entry)))
        else:
            raise SetupError(
                f"`{owner}` has {entry!r} in handoffs; give an agent, handoff(agent, …) or an agent's name"
            )
    return tuple(edges)


Body: TypeAlias = Callable[[AgentContext[Any]], Awaitable[Action | None]]


class FunctionAgent(BaseAgent[Any, Any]):
    """An agent whose `run` is a function."""

    def __init__(self, body: Body, name: str, **facts: Any) -> None:
        super().__init__(name, **facts)
        self._body = body

    async def run(self, ctx: AgentContext[Any]) -> Action | None:
        """Call the function."""
        return await self._body(ctx)


def agent(
    name: str = "",
    *,
    description: str = "",
    sub_agents: Sequence[BaseAgent[Any, Any]] = (),
    handoffs: Sequence[BaseAgent[Any, Any] | Handoff | str] = (),
    disallow_transfer_to_parent: bool = False,
    history: HistoryPolicy | None = None,
) -> Callable[[Body], FunctionAgent]:
    """Make an agent of an async function that takes the context: `@agent("Greeter", description="…")`.

    Without a name the function's is taken, without a description its docstring.
    """

    def make(body: Body) -> FunctionAgent:
        if not iscoroutinefunction(body):
            raise SetupError(f"@agent wants `async def …(ctx)`, not {body!r}")
        return FunctionAgent(
            body,
            name or body.__name__,
            description=description or (getdoc(body) or "").partition("\n")[0],
            sub_agents=sub_agents,
            handoffs=handoffs,
            disallow_transfer_to_parent=disallow_transfer_to_parent,
            history=history,
        )

    return make
