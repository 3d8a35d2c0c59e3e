"""Middleware: code around the model calls, tool calls and activations of agents."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Generic, TypeAlias, cast, overload

from msgspec import Struct
from typing_extensions import TypeVar

from .._checks import check_callback
from .._wording import show
from ..context import RunContext
from ..errors import SetupError
from ..log import Action
from ..messages import ToolCall
from ..models import ModelRequest, ModelResponse
from ..tools import ToolResult
from .agent_context import AgentContext
from .seam import Layer

C = TypeVar("C", default=Any, contravariant=True)

NextModelCall: TypeAlias = Callable[[ModelRequest], Awaitable[ModelResponse]]
"""Calls the model, through the middleware inside this one."""
NextToolCall: TypeAlias = Callable[[ToolCall], Awaitable[ToolResult]]
"""Calls the tool, through the middleware inside this one."""
NextActivation: TypeAlias = Callable[[], Awaitable[Action | None]]
"""Runs the agent, through the middleware inside this one."""


class Middleware(Generic[C]):
    """Code around the model calls, tool calls and activations of agents.

    Override the methods you need. Each receives `next`, which does what the middleware is around: change what you pass
    to it, change what it returns, call it again, or answer without it. What middleware returns is recorded; a resumed
    run does not call it again for recorded model and tool calls.

    The context may be used as in a tool: steps and interrupts are recorded, and values can be changed. If middleware
    uses `ctx.step` or `ctx.interrupt` after `next`, the result of `next` is recorded first.
    """

    name: str = ""
    """Identifies it in the log; by default the name of the class."""
    holds_deltas: bool = False
    """True to withhold the deltas of a response from subscribers until `model_call` has returned."""

    async def model_call(self, ctx: RunContext[C], request: ModelRequest, next: NextModelCall) -> ModelResponse:
        """Wrap one model call.

        An error of the model, also one in the middle of its response, is raised by `next`. Every `next` counts as a
        model call of the run.

        Args:
            ctx: The context of the call.
            request: The whole request. `request.model` is the model that will be called; replace it to call another.
            next: Calls the model.

        Returns:
            The response that the agent continues with.
        """
        return await next(request)

    async def tool_call(self, ctx: RunContext[C], call: ToolCall, next: NextToolCall) -> ToolResult:
        """Wrap one tool call, including its approval. Handoffs and the exit tool are no tool calls.

        Args:
            ctx: The context of the call.
            call: The call; its arguments can be replaced.
            next: Calls the tool. A tool with `effect="once"` can be called once.

        Returns:
            The result that the model reads.
        """
        return await next(call)

    async def activation(self, ctx: AgentContext[C], next: NextActivation) -> Action | None:
        """Wrap one activation of an agent. A resumed run calls it again.

        If `next` raises an exception that you handle, the messages of the failed attempt are removed from the history.
        The agent starts from its beginning if you call `next` again.

        Args:
            ctx: The context of the activation; `ctx.output` is the agent's output.
            next: Runs the agent.

        Returns:
            The action of the agent, or one of your own.
        """
        return await next()


ModelFunction: TypeAlias = Callable[[RunContext[Any], ModelRequest, NextModelCall], Awaitable[ModelResponse]]
ToolCallFunction: TypeAlias = Callable[[RunContext[Any], ToolCall, NextToolCall], Awaitable[ToolResult]]


class _ModelFunctionMiddleware(Middleware[Any]):
    def __init__(self, function: ModelFunction, name: str, holds_deltas: bool) -> None:
        self.function = function
        self.name = name
        self.holds_deltas = holds_deltas

    async def model_call(self, ctx: RunContext[Any], request: ModelRequest, next: NextModelCall) -> ModelResponse:
        return await self.function(ctx, request, next)


class _ToolFunctionMiddleware(Middleware[Any]):
    def __init__(self, function: ToolCallFunction, name: str) -> None:
        self.function = function
        self.name = name

    async def tool_call(self, ctx: RunContext[Any], call: ToolCall, next: NextToolCall) -> ToolResult:
        return await self.function(ctx, call, next)


@overload
def model_middleware(function: ModelFunction, /) -> Middleware[Any]: ...
@overload
def model_middleware(*, name: str = "", holds_deltas: bool = False) -> Callable[[ModelFunction], Middleware[Any]]: ...
def model_middleware(function: ModelFunction | None = None, /, *, name: str = "", holds_deltas: bool = False) -> Any:
    """Make middleware around model calls of an async function `(ctx, request, next)`.

    Args:
        function: The function; see `Middleware.model_call`.
        name: Identifies it in the log; by default the name of the function.
        holds_deltas: Whether to withhold the deltas of a response until the function has returned.
    """

    def decorate(function: ModelFunction) -> Middleware[Any]:
        check_callback("@model_middleware", function, "ctx", "request", "next")
        return _ModelFunctionMiddleware(function, name or _name_of(function), holds_deltas)

    return decorate if function is None else decorate(function)


@overload
def tool_middleware(function: ToolCallFunction, /) -> Middleware[Any]: ...
@overload
def tool_middleware(*, name: str = "") -> Callable[[ToolCallFunction], Middleware[Any]]: ...
def tool_middleware(function: ToolCallFunction | None = None, /, *, name: str = "") -> Any:
    """Make middleware around tool calls of an async function `(ctx, call, next)`.

    Args:
        function: The function; see `Middleware.tool_call`.
        name: Identifies it in the log; by default the name of the function.
    """

    def decorate(function: ToolCallFunction) -> Middleware[Any]:
        check_callback("@tool_middleware", function, "ctx", "call", "next")
        return _ToolFunctionMiddleware(function, name or _name_of(function))

    return decorate if function is None else decorate(function)


def _name_of(function: Any) -> str:
    return getattr(function, "__name__", type(function).__name__)


class MiddlewareStack(Struct, frozen=True):
    """The middleware around one agent, outermost first."""

    model: tuple[Layer, ...] = ()
    """The methods around model calls."""
    tool: tuple[Layer, ...] = ()
    """The methods around tool calls."""
    activation: tuple[Layer, ...] = ()
    """The methods around activations."""

    holds_deltas: bool = False
    """True if the deltas of responses are withheld until the middleware has returned."""


def build_stack(middleware: Sequence[Middleware[Any]]) -> MiddlewareStack:
    """Sort the methods of middleware by the calls they wrap.

    Of two with the same name, the second is called `name#2`.
    """
    used: dict[str, int] = {}
    layers: dict[str, list[Layer]] = {"model_call": [], "tool_call": [], "activation": []}
    for each in middleware:
        base = each.name or type(each).__name__
        used[base] = used.get(base, 0) + 1
        name = base if used[base] == 1 else f"{base}#{used[base]}"
        for method, found in layers.items():
            if overrides(each, method):
                # The function itself: calling it through the method would be one more coroutine per call.
                is_function = isinstance(each, _ModelFunctionMiddleware | _ToolFunctionMiddleware)
                called = each.function if is_function else getattr(each, method)
                found.append(Layer(name, called, each.holds_deltas))
    is_held = any(layer.holds_deltas for layer in layers["model_call"])
    return MiddlewareStack(
        tuple(layers["model_call"]), tuple(layers["tool_call"]), tuple(layers["activation"]), is_held
    )


def overrides(middleware: Middleware[Any], method: str) -> bool:
    """Return whether middleware has its own version of a method."""
    return getattr(type(middleware), method) is not getattr(Middleware, method)


def check_middleware(owner: str, middleware: Any) -> tuple[Middleware[Any], ...]:
    """Return the middleware as a tuple.

    Raises:
        SetupError: It is not a list of middleware.
    """
    if isinstance(middleware, Middleware) or not isinstance(middleware, Sequence):
        raise SetupError(f"{owner} has middleware={show(cast(object, middleware))}; give a list")
    for each in cast("Sequence[object]", middleware):
        if isinstance(each, type) and issubclass(each, Middleware):
            raise SetupError(f"{owner} has the class {each.__name__} in middleware; give an object: {each.__name__}(…)")
        if not isinstance(each, Middleware):
            each = cast("object", each)
            hint = "give objects of Middleware classes, or decorate a function with @model_middleware"
            raise SetupError(f"{owner} has {show(each)} in middleware; {hint} or @tool_middleware")
    return tuple(cast("Sequence[Middleware[Any]]", middleware))
