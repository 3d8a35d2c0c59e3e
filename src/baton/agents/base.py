"""`BaseAgent`, the context it runs with, and agents made of a function."""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from functools import cache
from inspect import getdoc, iscoroutinefunction, signature
from time import time
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, Protocol, TypeAlias, cast

import msgspec
from msgspec import Struct
from typing_extensions import TypeVar

from ..arguments import check_arguments, unknown_argument
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

C = TypeVar("C", default=Any, contravariant=True)
Ctx = TypeVar("Ctx", default=Any, covariant=True)
Out = TypeVar("Out", default=str, covariant=True)

HistoryPolicy: TypeAlias = (
    Literal["rewritten", "verbatim", "lineage", "answers", "none"]
    | Callable[[Sequence[HistoryEntry]], Sequence[Message]]
)
"""The way an agent reads the messages of agents that were active before it."""

Accepts: TypeAlias = Callable[[RunContext[Ctx], Any], bool | str | Awaitable[bool | str]]
"""Decides `(ctx, input)` whether an agent takes a conversation: True, or a reason why not."""
MultipleTransfers: TypeAlias = Literal["first", "last", "error"]
"""Which of several transfers in one response is followed."""


@dataclass(frozen=True, slots=True)
class RunConfig:
    """Settings of the runner for all agents of a run."""

    model: Model | None = None
    model_settings: ModelSettings | None = None
    multiple_transfers: MultipleTransfers = "first"
    max_corrections: int = 2
    hooks: RunHooks | None = None
    compiled_agents: dict[str, Any] = field(default_factory=dict[str, Any])
    """Compiled agents by name, shared by all their activations."""


class AgentToolResult(Struct, Generic[Ctx], frozen=True):
    """The result of an agent that was called as a tool."""

    output: Ctx
    """The agent's output."""
    messages: tuple[Message, ...]
    """The messages of the call."""
    agent: str
    """The name of the agent that finished."""


class FlowOutcome(Struct, frozen=True):
    """The end of a flow of control."""

    action: Action | None
    """The last agent's action."""
    origin: Origin
    """The last agent's activation."""
    output: Any
    """The last agent's output."""
    first: Origin
    """The first agent's activation."""


class Flow(Protocol):
    """The flow of control that an activation is part of."""

    def run_agent(
        self,
        agent: "BaseAgent[Any, Any]",
        *,
        run: RunState[Any],
        history: History,
        prefix: str,
        after: Origin,
        projection: HistoryPolicy | None,
    ) -> Coroutine[Any, Any, FlowOutcome]:
        """Run an agent inside another; keys begin with `prefix`, paths continue from `after`."""
        ...


class AgentContext(RunContext[Ctx]):
    """The context of one activation of an agent: a `RunContext` with the conversation."""

    __slots__ = (
        "_breaks_loop",
        "_flow",
        "_history",
        "_hooks",
        "_options",
        "_routes",
        "_said",
        "_turn_start",
        "_view",
        "output",
    )
    # An activation is not a tool call; class attributes cost nothing per transfer.
    tool_call: ClassVar[None] = None
    _caller: ClassVar[None] = None

    def __init__(
        self,
        run: RunState[Ctx],
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
        """The output of this activation; by default the text it said last."""
        self._view = view
        self._turn_start = turn_start
        """The position in the history where the current turn begins."""
        self._flow = flow
        self._breaks_loop = False
        """True if a tool has asked to end the loop around this agent."""
        self._hooks: HookDispatcher | None = None
        self._said = 0

    def messages(self) -> Sequence[Message]:
        """Return the conversation so far, as this agent reads it."""
        return self._view.messages()

    def run_agent(
        self,
        agent: "BaseAgent[Any, Any]",
        key: str,
        *,
        history: History | None = None,
        _run: RunState[Any] | None = None,
        _after: Origin | None = None,
    ) -> Coroutine[Any, Any, FlowOutcome]:
        """Run one of this agent's `inner_agents()`, and the agents it transfers to.

        Args:
            agent: The agent to run.
            key: Identifies this step; unique in this activation and the same on every replay.
            history: The history to continue; by default this agent's own.
        """
        return self._flow.run_agent(
            agent,
            run=_run or self._run,
            history=history or self._history,
            prefix=f"{self._scope}/{key}/",
            after=_after or self._origin,
            projection=None,
        )

    async def stream_text(self, text: str) -> None:
        """Stream a piece of text to subscribers. It is not recorded; `say` records the whole text.

        Args:
            text: The piece of text.
        """
        log = self._run.log
        if log.sink is not None and not log.has(f"{self._scope}/say{self._said + 1}"):
            log.deliver(TextDelta(self._origin, text))
            await log.settle()

    async def say(self, content: Content) -> None:
        """Add a message of this agent to the conversation; a replay does not repeat it.

        Args:
            content: Text or message parts.
        """
        self._said += 1
        key = f"{self._scope}/say{self._said}"
        log = self._run.log
        said = log.find(key, AgentResponded)
        if said is None:
            if not isinstance(content, str):
                to_json_value(f"the message of `{self.agent}`", content)
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
    """The base class of all agents: a name, a description and an async method `run`.

    An agent is a definition; it keeps no state of any run. Subclasses may set these as class attributes.

    Args:
        name: The name, unique in the team.
        description: Tells other agents when to transfer to this one.
        examples: Example questions that other agents read with the description.
        sub_agents: Agents it can transfer to, and that can transfer back.
        handoffs: Agents, handoffs or names of agents it can transfer to.
        disallow_transfer_to_parent: Whether transfers to its parent are forbidden.
        history: How it reads the messages of agents that were active before it.
        accepts: Decides whether it takes a conversation: `(ctx, input) -> True`, or a reason why not.
        hooks: Lifecycle callbacks.
    """

    name: str
    description: str = ""
    examples: Sequence[str] = ()
    sub_agents: Sequence["BaseAgent[Any, Any]"] = ()
    handoffs: Sequence["BaseAgent[Any, Any] | Handoff[Any] | str"] = ()
    disallow_transfer_to_parent: bool = False
    history: HistoryPolicy | None = None
    accepts: Accepts[Any] | None = None
    hooks: AgentHooks[Any] | None = None

    if not TYPE_CHECKING:

        def __new__(cls, *args: Any, **kwargs: Any) -> Any:
            if kwargs and (known := _known_arguments(cls)) is not None:
                for name in kwargs:
                    if name not in known:
                        raise unknown_argument(cls.__name__, name, known)
            return super().__new__(cls)

    def __init__(
        self,
        name: str = "",
        *,
        description: str = "",
        examples: Sequence[str] = (),
        sub_agents: Sequence["BaseAgent[C, Any]"] = (),
        handoffs: Sequence["BaseAgent[C, Any] | Handoff[C] | str"] = (),
        disallow_transfer_to_parent: bool = False,
        history: HistoryPolicy | None = None,
        accepts: Accepts[C] | None = None,
        hooks: AgentHooks[C] | None = None,
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
        """Run one activation. Write it as `async def`.

        Args:
            ctx: The context of the activation.

        Returns:
            `Transfer`, `Exit` or `BreakLoop`; None if the agent has finished.
        """

    def _edges(self) -> tuple[Handoff, ...]:
        return to_handoffs(self.name, self.handoffs)

    def _transfer_children(self) -> Sequence["BaseAgent[Any, Any]"]:
        """Sub-agents that it can transfer to, and that can transfer back."""
        return self.sub_agents

    def inner_agents(self) -> "tuple[BaseAgent[Any, Any], ...]":
        """Return agents that run inside this one, such as workflow steps and agents as tools."""
        return ()

    def _tool_specs(self) -> tuple[ToolSpec, ...]:
        return ()

    def _referenced_agents(self) -> "tuple[BaseAgent[Any, Any], ...]":
        """Agents that the agent's functions may return: undeclared edges."""
        return ()

    @check_arguments
    def as_tool(
        self,
        name: str | None = None,
        description: str | None = None,
        *,
        input_type: Any = None,
        history: HistoryPolicy = "none",
        output_extractor: Callable[[AgentToolResult[Out]], Any] | None = None,
        stream_events: bool = True,
        limits: Limits | None = None,
        needs_approval: NeedsApproval = False,
    ) -> Tool[C]:
        """Make a tool of the agent; its answer is the result of the call.

        The calling agent stays active.

        Args:
            name: The tool's name; by default made of the agent's name.
            description: The tool's description; by default the agent's.
            input_type: The type of the arguments, which the agent reads as JSON; by default one text, `request`.
            history: How the agent reads the caller's conversation; by default it does not.
            output_extractor: Makes the result of the call of an `AgentToolResult`.
            stream_events: Whether the agent's events are delivered to subscribers of the run.
            limits: Limits of each call, within those of the run.
            needs_approval: Whether a person must approve calls.

        Raises:
            SetupError: An argument is invalid.
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
        # A function that returns an agent asks for a transfer to it.
        return ToolResult(msgspec.json.encode({"assistant": self.name}).decode(), transfer_to=self)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"

    def __dir__(self) -> list[str]:
        return [name for name in super().__dir__() if not name.startswith("_")]


@cache
def _known_arguments(kind: type) -> tuple[str, ...] | None:
    """List the keyword arguments of a class; None if it takes any."""
    parameters = signature(kind.__init__).parameters.values()
    if any(each.kind is each.VAR_KEYWORD for each in parameters):
        return None
    return tuple(each.name for each in parameters if each.name != "self")


def check_name(name: object, kind: str) -> str:
    """Return the name; raise SetupError if it is not a non-empty string."""
    if not isinstance(name, str) or not name.strip():
        raise SetupError(f"{kind} needs a name that is a non-empty string, not {name!r}")
    return name


def check_examples(owner: str, examples: object) -> tuple[str, ...]:
    """Return the example questions as a tuple; raise SetupError if they are not strings."""
    items = cast("Sequence[object]", examples)
    if (
        isinstance(examples, str)
        or not isinstance(examples, Sequence)
        or not all(isinstance(item, str) for item in items)
    ):
        raise SetupError(f"`{owner}` has examples={examples!r}; give a list of questions")
    return cast("tuple[str, ...]", tuple(items))


def check_agents(owner: str, agents: Sequence[Any]) -> tuple[BaseAgent[Any, Any], ...]:
    """Return the sub-agents as a tuple; raise SetupError if they are not agents."""
    if not isinstance(agents, Sequence):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise SetupError(f"`{owner}` has sub_agents={agents!r}; give a list")
    for agent in agents:
        if not isinstance(agent, BaseAgent):
            raise SetupError(f"`{owner}` has {agent!r} in sub_agents; give agents only")
    return tuple(agents)


def to_handoffs(owner: str, entries: Sequence[Any]) -> tuple[Handoff, ...]:
    """Convert the entries of `handoffs`: agents, handoffs or names."""
    edges: list[Handoff] = []
    for entry in entries:
        if isinstance(entry, Handoff):
            edges.append(cast("Handoff[Any]", entry))
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

    def __init__(self, body: Body, name: str, **options: Any) -> None:
        super().__init__(name, **options)
        self._body = body

    async def run(self, ctx: AgentContext[Any]) -> Action | None:
        """Call the function."""
        return await self._body(ctx)


@check_arguments
def agent(
    name: str = "",
    *,
    description: str = "",
    sub_agents: Sequence[BaseAgent[Any, Any]] = (),
    handoffs: Sequence[BaseAgent[Any, Any] | Handoff | str] = (),
    disallow_transfer_to_parent: bool = False,
    history: HistoryPolicy | None = None,
) -> Callable[[Body], FunctionAgent]:
    """Make an agent of an async function: `@agent("Greeter", description="…")`.

    Args:
        name: The agent's name; by default the function's.
        description: Tells other agents when to transfer to it; by default the first line of the docstring.
        sub_agents: Agents it can transfer to, and that can transfer back.
        handoffs: Agents, handoffs or names of agents it can transfer to.
        disallow_transfer_to_parent: Whether transfers to its parent are forbidden.
        history: How it reads the messages of agents that were active before it.
    """

    def decorate(body: Body) -> FunctionAgent:
        if not iscoroutinefunction(body):
            raise SetupError(f"@agent decorates `async def …(ctx)`, not {body!r}")
        return FunctionAgent(
            body,
            name or body.__name__,
            description=description or (getdoc(body) or "").partition("\n")[0],
            sub_agents=sub_agents,
            handoffs=handoffs,
            disallow_transfer_to_parent=disallow_transfer_to_parent,
            history=history,
        )

    return decorate
