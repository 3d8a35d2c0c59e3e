"""`BaseAgent`, and agents made of a function."""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from inspect import getdoc, iscoroutinefunction
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, cast

import msgspec
from typing_extensions import TypeVar

from .._checks import check_arguments, check_callback, check_names
from .._wording import show
from ..context import Limits, RunContext
from ..errors import SetupError
from ..handoffs import Handoff, HandoffTarget
from ..log import Action
from ..messages import ToolSpec
from ..tools import NeedsApproval, Tool, ToolCondition, ToolResult
from ..tools.wrappers import ApprovalTool
from .agent_context import AgentContext, HistoryFunction, HistoryPolicy, compile_history
from .agent_tool import AgentTool, AgentToolResult
from .hooks import AgentHooks, C
from .middleware import Middleware, check_middleware

Ctx = TypeVar("Ctx", default=Any, covariant=True)
Out = TypeVar("Out", default=str, covariant=True)

Accepts: TypeAlias = Callable[[RunContext[Ctx], Any], bool | str | Awaitable[bool | str]]
"""Decides `(ctx, input)` whether an agent takes a conversation: True, or a reason why not."""


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
        middleware: Code around its model calls, tool calls and activations, outermost first.
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
    middleware: Sequence[Middleware[Any]] = ()
    _is_remote: bool = False
    """True if what it reads is sent to another service: filters get other agents' tool calls only if `history` does."""

    if TYPE_CHECKING:

        def _answers_with(self) -> Out:
            """Tell type checkers, through `HandoffTarget`, what a handoff to this agent can answer with."""
            ...

    @check_arguments
    def __init__(
        self,
        name: str = "",
        *,
        description: str = "",
        examples: Sequence[str] = (),
        sub_agents: Sequence["BaseAgent[C, Out]"] = (),
        handoffs: Sequence["BaseAgent[C, Out] | Handoff[C, Out] | str"] = (),
        disallow_transfer_to_parent: bool = False,
        history: HistoryPolicy | None = None,
        accepts: Accepts[C] | None = None,
        hooks: AgentHooks[C] | None = None,
        middleware: Sequence[Middleware[C]] = (),
    ) -> None:
        self.name = check_name(name or getattr(type(self), "name", ""), type(self).__name__)
        self.description = description or type(self).description
        self.examples = check_examples(self.name, examples or type(self).examples)
        self.sub_agents = check_agents(self.name, sub_agents or type(self).sub_agents)
        self.handoffs = to_handoffs(self.name, handoffs or type(self).handoffs)
        self.disallow_transfer_to_parent = disallow_transfer_to_parent or type(self).disallow_transfer_to_parent
        self.history = history if history is not None else type(self).history
        if self.history is not None:
            compile_history(self.history)
        if accepts is not None:
            check_callback(f"accepts of `{self.name}`", accepts, "ctx", "input")
            self.accepts = accepts
        self.hooks = hooks if hooks is not None else type(self).hooks
        self.middleware = check_middleware(f"`{self.name}`", middleware or type(self).middleware)

    @abstractmethod
    def run(self, ctx: AgentContext[C]) -> Coroutine[Any, Any, Action | None]:
        """Run one activation. Write it as `async def`.

        Args:
            ctx: The context of the activation.

        Returns:
            `Transfer`, `Exit`, `BreakLoop`, `Finish` or `CancelTask`; None if the agent has answered.
        """

    def _edges(self) -> tuple[Handoff, ...]:
        return to_handoffs(self.name, self.handoffs)

    def _transfer_children(self) -> Sequence["BaseAgent[Any, Any]"]:
        """Sub-agents that it can transfer to, and that can transfer back."""
        return self.sub_agents

    @property
    def _stays_active(self) -> bool:
        """True if an activation ends only with a transfer, a task or the session."""
        return False

    def inner_agents(self) -> "tuple[BaseAgent[Any, Any], ...]":
        """Return agents that run inside this one, such as workflow steps and agents as tools."""
        return ()

    def _tool_specs(self) -> tuple[ToolSpec, ...]:
        return ()

    def _required_contexts(self) -> dict[str, Any]:
        """The types of the context object that its tools need, by tool."""
        return {}

    def _guardrail_names(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The names of the guardrails that check what it reads, and of those that check its answer."""
        return (), ()

    def _inner_policies(self) -> "tuple[str | HistoryFunction, ...]":
        """The history policies of the agents that are its tools, if they read its history."""
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
        is_enabled: ToolCondition = True,
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
            is_enabled: Whether the model is offered the tool, or a function `(ctx, agent) -> bool` of the calling
                agent that decides each turn.

        Raises:
            SetupError: An argument is invalid.
        """
        tool = AgentTool(
            self, name, description, input_type, history, output_extractor, stream_events, limits, is_enabled
        )
        return tool if needs_approval is False else ApprovalTool(tool, needs_approval)

    def _as_tool_result(self) -> ToolResult:
        # A function that returns an agent asks for a transfer to it.
        return ToolResult(msgspec.json.encode({"assistant": self.name}).decode(), transfer_to=self)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"

    def __dir__(self) -> list[str]:
        return [name for name in super().__dir__() if not name.startswith("_")]


def check_name(name: object, kind: str) -> str:
    """Return the name; raise SetupError if it is not a non-empty string."""
    if not isinstance(name, str) or not name.strip():
        raise SetupError(f"{kind} needs a name that is a non-empty string, not {show(name)}")
    return name


def check_examples(owner: str, examples: object) -> tuple[str, ...]:
    """Return the example questions as a tuple; raise SetupError if they are not strings."""
    items = cast("Sequence[object]", examples)
    if (
        isinstance(examples, str)
        or not isinstance(examples, Sequence)
        or not all(isinstance(item, str) for item in items)
    ):
        raise SetupError(f"`{owner}` has examples={show(cast(object, examples))}; give a list of questions")
    return cast("tuple[str, ...]", tuple(items))


def check_agents(owner: str, agents: Sequence[Any]) -> tuple[BaseAgent[Any, Any], ...]:
    """Return the sub-agents as a tuple; raise SetupError if they are not agents."""
    if not isinstance(agents, Sequence):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise SetupError(f"`{owner}` has sub_agents={show(agents)}; give a list")
    for agent in agents:
        if not isinstance(agent, BaseAgent):
            raise SetupError(f"`{owner}` has {show(agent)} in sub_agents; give agents only")
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
                f"`{owner}` has {show(entry)} in handoffs; give an agent, handoff(agent, …) or an agent's name"
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


@check_names
def agent(
    name: str = "",
    *,
    description: str = "",
    examples: Sequence[str] = (),
    sub_agents: Sequence[BaseAgent[Any, Any]] = (),
    handoffs: Sequence[BaseAgent[Any, Any] | Handoff | str] = (),
    disallow_transfer_to_parent: bool = False,
    history: HistoryPolicy | None = None,
    accepts: Accepts[Any] | None = None,
    hooks: AgentHooks[Any] | None = None,
    middleware: Sequence[Middleware[Any]] = (),
) -> Callable[[Body], FunctionAgent]:
    """Make an agent of an async function: `@agent("Greeter", description="…")`.

    Args:
        name: The agent's name; by default the function's.
        description: Tells other agents when to transfer to this one; by default the first line of the docstring.
        examples: Example questions that other agents read with the description.
        sub_agents: Agents it can transfer to, and that can transfer back.
        handoffs: Agents, handoffs or names of agents it can transfer to.
        disallow_transfer_to_parent: Whether transfers to its parent are forbidden.
        history: How it reads the messages of agents that were active before it.
        accepts: Decides whether it takes a conversation: `(ctx, input) -> True`, or a reason why not.
        hooks: Lifecycle callbacks.
        middleware: Code around its model calls, tool calls and activations, outermost first.
    """

    def decorate(body: Body) -> FunctionAgent:
        if not iscoroutinefunction(body):
            raise SetupError(f"@agent decorates `async def …(ctx)`, not {show(body)}")
        return FunctionAgent(
            body,
            name or body.__name__,
            description=description or (getdoc(body) or "").partition("\n")[0],
            examples=examples,
            sub_agents=sub_agents,
            handoffs=handoffs,
            disallow_transfer_to_parent=disallow_transfer_to_parent,
            history=history,
            accepts=accepts,
            hooks=hooks,
            middleware=middleware,
        )

    return decorate
