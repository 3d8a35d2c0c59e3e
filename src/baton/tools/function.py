"""Tools made of Python functions."""

from collections.abc import Callable, Mapping
from copy import copy
from typing import Any, Generic, ParamSpec, Self, TypedDict, TypeVar, overload

from typing_extensions import Unpack

from ..context import RunContext
from ..errors import SetupError, check_choice
from ..messages import ToolSpec
from .approval import ApprovalTool, NeedsApproval
from .base import Tool, ToolResult
from .failures import ErrorPolicy, checked_policy
from .invocation import FunctionInvoker
from .mentions import mentioned_by
from .once import OnceTool, ToolEffect
from .signature import Source, compile_signature
from .timeouts import TimeoutTool

P = ParamSpec("P")
R = TypeVar("R")


class ToolOptions(TypedDict, total=False):
    """What can be said about a tool beyond its function."""

    name: str | None
    """What the model calls it; the function's own name by default."""
    description: str | None
    """What the model is told about it; the docstring up to its sections by default."""
    timeout: float | None
    """Seconds a call may take; no limit by default. Waiting for approval does not count."""
    on_error: ErrorPolicy
    """"return" the model (default), "raise" and end the run, or a function (error) -> text for the model."""
    return_directly: bool
    """Whether its result is the agent's answer."""
    needs_approval: NeedsApproval
    """Whether a person must allow a call: True, False (default), or a function (ctx, arguments) -> bool."""
    in_thread: bool
    """Whether a function that is not async runs in a worker thread (default), where it may block."""
    effect: ToolEffect
    """What a call does outside: "read" nothing, "idempotent" (default) may happen twice, "once" must not."""
    strict: bool
    """Whether the provider is asked to keep the model strictly to the schema."""


class FunctionTool(Generic[P, R]):
    """A tool made of a function. Called like the function it is the function; a model calls it through `call`."""

    def __init__(
        self,
        function: Callable[P, R],
        *,
        name: str | None = None,
        description: str | None = None,
        timeout: float | None = None,
        on_error: ErrorPolicy = "return",
        return_directly: bool = False,
        needs_approval: NeedsApproval = False,
        in_thread: bool = True,
        effect: ToolEffect = "idempotent",
        strict: bool = False,
        _untyped: Any = None,
        _inject: Mapping[str, Source] | None = None,
    ) -> None:
        """`untyped` is the type of parameters without annotation; `inject` gives hidden ones their values."""
        if isinstance(function, FunctionTool):
            raise SetupError(f"`{function.name}` is a tool already; give its options where it is made")
        self.function = function
        self._signature = compile_signature(function, name, untyped=_untyped, inject=_inject)
        self._invocation = FunctionInvoker(
            self._signature,
            description=description,
            on_error=checked_policy(on_error, self.name),
            return_directly=return_directly,
            thread=in_thread,
            strict=strict,
        )
        check_choice(f"effect of tool `{self.name}`", effect, ("read", "idempotent", "once"))
        self.effect: ToolEffect = effect

        def assembled(whole: Tool) -> Tool:
            if timeout is not None:
                whole = TimeoutTool(whole, timeout, on_error=on_error)
            if effect == "once":
                whole = OnceTool(whole, is_final=return_directly)
            # Outside the timeout: a person may take days.
            return ApprovalTool(whole, needs_approval) if needs_approval is not False else whole

        self._assembled = assembled
        self._call = assembled(self._invocation).call
        self.__name__ = self.name
        self.__doc__ = function.__doc__
        self.__wrapped__ = function

    @property
    def name(self) -> str:
        """What the model calls it."""
        return self._signature.tool

    @property
    def spec(self) -> ToolSpec:
        """What the model is told."""
        return self._invocation.spec

    async def call(self, ctx: RunContext[Any], arguments: str) -> ToolResult:
        """Do it, with arguments as the model wrote them: approved, in time, and its errors turned into results."""
        return await self._call(ctx, arguments)

    def around(self, wrap: Callable[[Tool], Tool]) -> Self:
        """The same tool with something around the bare call of its function, inside its approval, record and time."""
        twin = copy(self)
        twin._call = self._assembled(wrap(self._invocation)).call
        return twin

    def checked(self, arguments: str) -> dict[str, Any] | ToolResult:
        """What the function would be called with; or an outcome that tells the model what does not fit."""
        return self._invocation.checked(arguments)

    def mentioned(self) -> tuple[object, ...]:
        """The objects the function's code refers to by name: agents it may return are among them."""
        return mentioned_by(self.function)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"FunctionTool({self.name!r})"


@overload
def tool(function: Callable[P, R], /, **options: Unpack[ToolOptions]) -> FunctionTool[P, R]: ...
@overload
def tool(**options: Unpack[ToolOptions]) -> Callable[[Callable[P, R]], FunctionTool[P, R]]: ...
def tool(
    function: Callable[P, R] | None = None, /, **options: Unpack[ToolOptions]
) -> FunctionTool[P, R] | Callable[[Callable[P, R]], FunctionTool[P, R]]:
    """A tool made of a function: `@tool`, `@tool(timeout=3)` or `tool(function, name="…")`."""
    if function is not None:
        return FunctionTool(function, **options)
    return lambda function: FunctionTool(function, **options)
