"""Tools made of Python functions.

The bare call of a function: arguments in, outcome out. Nobody is asked, and no clock runs.

What a function's code refers to, without calling it: so that a team finds the agents a tool may return.
"""

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from functools import cached_property, partial
from inspect import isfunction, ismethod, ismodule
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, Self, TypedDict, TypeVar, cast, overload

from typing_extensions import Unpack

from ..context import RunContext
from ..errors import SetupError, check_choice
from ..messages import ToolSpec
from .base import Tool, ToolResult
from .guardrails import GuardrailFunction, as_guardrails, refuse_same_names
from .results import NOT_FOR_THE_MODEL, ErrorPolicy, checked_policy, outcome_of_error, to_tool_result
from .signature import (
    FunctionSignature,
    Source,
    compile_signature,
    description_in,
    docstring_of,
    layers_of,
    parameters_in,
    resolved,
)
from .worker_threads import in_thread
from .wrappers import (
    ApprovalTool,
    GuardedTool,
    NeedsApproval,
    OnceTool,
    TimeoutTool,
    ToolEffect,
    TripPolicy,
    guardrails_inside,
)

if TYPE_CHECKING:
    from .arguments import ArgumentParser


class FunctionInvoker:
    """A tool that calls a function. Its schema and validator are compiled at first use, then never again."""

    def __init__(
        self,
        signature: FunctionSignature,
        *,
        description: str | None,
        on_error: ErrorPolicy,
        return_directly: bool,
        thread: bool,
        strict: bool,
    ) -> None:
        self._signature = signature
        self._name = signature.tool
        self._function = signature.function
        self._is_async = signature.is_async
        self._description = description
        self._on_error: ErrorPolicy = on_error
        self._return_directly = return_directly
        self._thread = thread
        self._strict = strict

    @property
    def spec(self) -> ToolSpec:
        """What the model is told."""
        return self._spec

    @cached_property
    def _spec(self) -> ToolSpec:
        described = self._description
        if described is None:
            described = description_in(docstring_of(self._signature))
        arguments, _ = self._compiled
        return ToolSpec(self._name, described, arguments.schema, self._strict)

    @cached_property
    def _compiled(self) -> "tuple[ArgumentParser, tuple[tuple[str, Source], ...]]":
        from .arguments import ArgumentParser

        hints, sources = resolved(self._signature)
        arguments = ArgumentParser(
            self._name,
            hints,
            defaults=self._signature.defaults,
            descriptions=parameters_in(docstring_of(self._signature)),
        )
        return arguments, tuple(sources.items())

    def checked(self, arguments: str) -> dict[str, Any] | ToolResult:
        """What the function would be called with, defaults included; or an outcome that says what does not fit."""
        compiled, sources = self._compiled
        given = compiled.read(arguments)
        if isinstance(given, ToolResult):
            return given
        hidden = dict(sources)
        defaults = {name: value for name, value in self._signature.defaults.items() if name not in hidden}
        return defaults | given

    async def call(self, ctx: RunContext[Any], arguments: str) -> ToolResult:
        """Call the function with these arguments."""
        compiled, sources = self._compiled
        given = compiled.read(arguments)
        if type(given) is ToolResult:
            return given
        given = cast("dict[str, Any]", given)
        for name, source in sources:
            given[name] = source(ctx)
        try:
            value: Any = await (self._function(**given) if self._is_async else self._call_sync(given))
        except NOT_FOR_THE_MODEL:
            raise
        except Exception as error:  # noqa: BLE001 - here a failure becomes a result
            return outcome_of_error(error, self._name, policy=self._on_error)
        return to_tool_result(value, self._name, is_final=self._return_directly)

    async def _call_sync(self, given: dict[str, Any]) -> Any:
        function = partial(self._function, **given)
        value: Any = await in_thread(function, self._name) if self._thread else function()
        # Lambdas and decorated functions may hand on the coroutine of an async one without being async themselves.
        return await cast(Awaitable[Any], value) if isinstance(value, Awaitable) else value

    def __repr__(self) -> str:
        return f"Invocation({self._name!r})"


def mentioned_by(function: object) -> tuple[object, ...]:
    """The objects that a function may get hold of by name, each once. Names it never uses may be among them.

    They come from globals, closures, defaults, what a partial has filled in, and the attributes that the code names
    of its own object or of a module.
    """
    layers = list(layers_of(function))
    names = {name: None for layer in layers if isfunction(layer) for name in _names_in(layer.__code__)}
    found = [thing for layer in layers for thing in _near(layer, names)]
    owners = [*map(_owner, layers), *filter(ismodule, found)]
    found.extend(thing for owner in owners for thing in _attributes(owner, names))
    return tuple({id(thing): thing for thing in found}.values())


def _names_in(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    # Comprehensions and inner functions are code of their own.
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names_in(constant)


def _near(layer: object, names: Iterable[str]) -> Iterator[object]:
    if isinstance(layer, partial):
        bound = cast(partial[Any], layer)
        yield from bound.args
        yield from bound.keywords.values()
    elif isfunction(layer):
        yield from (layer.__globals__[name] for name in names if name in layer.__globals__)
        yield from _enclosed(layer)
        yield from layer.__defaults__ or ()
        yield from (layer.__kwdefaults__ or {}).values()


def _enclosed(function: FunctionType) -> Iterator[object]:
    for cell in function.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:
            continue  # Not assigned yet: the function was made before what it refers to.


def _owner(layer: object) -> object:
    return layer.__self__ if ismethod(layer) else layer


def _attributes(owner: object, names: Iterable[str]) -> Iterator[object]:
    # Only what is stored: reading a property would run somebody's code.
    try:
        stored = object.__getattribute__(owner, "__dict__")
    except AttributeError:
        return
    yield from (stored[name] for name in names if name in stored)


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


def with_tool_guardrails(
    tool: Tool | Callable[..., Any],
    *,
    input_guardrails: Sequence[GuardrailFunction] = (),
    output_guardrails: Sequence[GuardrailFunction] = (),
    on_trip: TripPolicy = "return",
) -> GuardedTool:
    """The tool, with guardrails `before` (ctx, arguments) and `after` (ctx, outcome) each call.

    A no is told to the model, which may try something else; with `on_trip="raise"` it ends the run.
    """
    given: Any = tool
    inner: Tool = given if callable(getattr(given, "call", None)) else _made_of(given)
    owner = f"guarded_tool({inner!r})"
    if on_trip not in ("return", "raise"):
        raise SetupError(f'{owner} has on_trip={on_trip!r}; use "return" or "raise"')
    first, then = as_guardrails(owner, input_guardrails=input_guardrails, output_guardrails=output_guardrails)
    refuse_same_names(owner, [*first, *then, *guardrails_inside(inner)])
    return GuardedTool(inner, first, then, on_trip=on_trip)


def _made_of(given: Any) -> Tool:
    if not callable(given):
        raise SetupError(f"guarded_tool({given!r}) has nothing to guard; give a tool or a function")
    return tool(given)
