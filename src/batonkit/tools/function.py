"""Tools made of Python functions: `tool`, `FunctionTool` and `with_tool_guardrails`."""

from asyncio import CancelledError
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing
from copy import copy
from functools import cached_property, partial
from inspect import isfunction, ismethod, ismodule
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any, ClassVar, Concatenate, Generic, ParamSpec, Protocol, Self, cast, overload

from msgspec import Struct
from typing_extensions import TypeVar

from .._checks import check_arguments, check_choice, check_names, mark_coroutine_function
from .._wording import show
from ..context import RunContext
from ..context.cancellation import as_failure
from ..context.run_context import needs_await
from ..context.values import to_json_value
from ..errors import SetupError, ToolResultError
from ..messages import ToolSpec
from .base_tool import C, Final, Tool, ToolCondition, ToolFunction, ToolResult, check_condition
from .once import EarlierCallsTool, OnceTool, ToolEffect
from .plain_arguments import PlainArgumentParser, is_plain
from .results import FATAL_ERRORS, ErrorPolicy, check_error_policy, to_error_result, to_tool_result
from .signature import (
    FunctionSignature,
    Source,
    compile_signature,
    get_description,
    get_docstring,
    get_parameter_descriptions,
    required_context,
    resolve_annotations,
    unwrap_function,
)
from .tool_guardrails import GuardrailFunction, reject_duplicate_names, to_guardrails
from .worker_threads import in_thread
from .wrappers import (
    ApprovalTool,
    GuardedTool,
    NeedsApproval,
    TimeoutTool,
    TripPolicy,
    find_guardrails,
)

if TYPE_CHECKING:
    from .arguments import ArgumentParser

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


class _CompiledParameters(Struct, frozen=True):
    """The parser of arguments, and the sources of parameters that the model does not see."""

    parser: "ArgumentParser | PlainArgumentParser"
    injected: Mapping[str, Source]


class FunctionInvoker(Struct, dict=True, eq=False):
    """The bare call of a function; schema and validator are compiled at first use."""

    signature: FunctionSignature
    """The function's compiled signature."""
    description: str | None
    """Overrides the description from the docstring."""
    on_error: ErrorPolicy
    """The error policy."""
    return_directly: bool
    """True if results are final."""
    in_thread: bool
    """True if a sync function runs in a worker thread."""
    strict: bool
    """True if the provider is asked to enforce the schema."""

    @property
    def spec(self) -> ToolSpec:
        """The name, description and schema that the model sees."""
        return self._spec

    @cached_property
    def _spec(self) -> ToolSpec:
        description = self.description
        if description is None:
            description = get_description(get_docstring(self.signature))
        return ToolSpec(self.signature.tool, description, self._parameters.parser.schema, self.strict)

    @cached_property
    def _parameters(self) -> "_CompiledParameters":
        tool = self.signature.tool
        defaults = self.signature.defaults
        hints, sources = resolve_annotations(self.signature)
        descriptions = get_parameter_descriptions(get_docstring(self.signature))
        if is_plain(hints, defaults):
            parser = PlainArgumentParser(tool, hints, defaults=defaults, descriptions=descriptions)
        else:
            from .arguments import ArgumentParser

            parser = ArgumentParser(tool, hints, defaults=defaults, descriptions=descriptions)
        return _CompiledParameters(parser, sources)

    def check_arguments(self, arguments: str) -> dict[str, Any] | ToolResult:
        """Return the arguments including defaults, or an error result."""
        parsed = self._parameters.parser.parse(arguments)
        if isinstance(parsed, ToolResult):
            return parsed
        injected = self._parameters.injected
        defaults = {name: value for name, value in self.signature.defaults.items() if name not in injected}
        return defaults | parsed

    async def call(self, ctx: RunContext[Any], arguments: str) -> ToolResult:
        """Call the function."""
        signature = self.signature
        kwargs = self._parameters.parser.parse(arguments)
        if isinstance(kwargs, ToolResult):
            return kwargs
        for name, source in self._parameters.injected.items():
            kwargs[name] = source(ctx)
        try:
            if signature.is_async:
                value: Any = await signature.function(**kwargs)
            else:
                value = await (self._collect(ctx, kwargs) if signature.is_streaming else self._call_sync(kwargs))
        except FATAL_ERRORS:
            raise
        except CancelledError as error:
            return to_error_result(as_failure(ctx._run, error), self.signature.tool, policy=self.on_error)
        except Exception as error:  # noqa: BLE001 - here a failure becomes a result
            return to_error_result(error, self.signature.tool, policy=self.on_error)
        return to_tool_result(value, signature.tool, is_final=self.return_directly)

    async def _call_sync(self, kwargs: dict[str, Any]) -> Any:
        function = partial(self.signature.function, **kwargs)
        value: Any = await in_thread(function, self.signature.tool) if self.in_thread else function()
        # Lambdas and decorated functions may return the coroutine of an async function without being async themselves.
        return await cast(Awaitable[Any], value) if needs_await(value) else value

    async def _collect(self, ctx: RunContext[Any], kwargs: dict[str, Any]) -> Any:
        """Deliver the items of a streaming tool, and return the value of the last one."""
        name = self.signature.tool
        final = None
        # Closed also if the call is cancelled between two items.
        async with aclosing(self.signature.function(**kwargs)) as items:
            async for item in items:
                if final is not None:
                    raise ToolResultError(f"tool `{name}` yields after Final(…); make it the last item", tool=name)
                if type(item) is Final:
                    final = item
                elif isinstance(item, str):
                    await ctx.progress(item)
                else:
                    await ctx.emit(name, to_json_value(f"an item of tool `{name}`", item))
        if final is None:
            raise ToolResultError(f"tool `{name}` ended without a result; yield Final(result) last", tool=name)
        return final.value

    def __repr__(self) -> str:
        return f"tool({self.signature.tool!r})"


def referenced_objects(function: object) -> tuple[object, ...]:
    """Find the objects that a function's code may refer to by name, without calling it.

    They come from globals, closures, defaults, bound arguments of partials, and the attributes that the code names of
    its own object or of a module. Names that are never used may be among them.
    """
    layers = list(unwrap_function(function))
    names = dict.fromkeys(name for layer in layers if isfunction(layer) for name in _names_in(layer.__code__))
    objects = [each for layer in layers for each in _direct_references(layer, names)]
    holders = [*(layer.__self__ if ismethod(layer) else layer for layer in layers), *filter(ismodule, objects)]
    objects.extend(each for holder in holders for each in _stored_attributes(holder, names))
    return tuple({id(each): each for each in objects}.values())


def _names_in(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    # Comprehensions and inner functions have code objects of their own.
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names_in(constant)


def _direct_references(layer: object, names: Iterable[str]) -> Iterator[object]:
    if isinstance(layer, partial):
        bound = cast(partial[Any], layer)
        yield from bound.args
        yield from bound.keywords.values()
    elif isfunction(layer):
        yield from (layer.__globals__[name] for name in names if name in layer.__globals__)
        yield from _closure_contents(layer)
        yield from layer.__defaults__ or ()
        yield from (layer.__kwdefaults__ or {}).values()


def _closure_contents(function: FunctionType) -> Iterator[object]:
    for cell in function.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:
            continue  # Not assigned yet: the function was defined before the object it refers to.


def _stored_attributes(holder: object, names: Iterable[str]) -> Iterator[object]:
    # Only stored attributes: reading a property would run user code.
    try:
        stored = object.__getattribute__(holder, "__dict__")
    except AttributeError:
        return
    yield from (stored[name] for name in names if name in stored)


class FunctionTool(Generic[P, R, C]):
    """A tool made of a function; calling it calls the function.

    Args:
        function: A function, bound method or callable object, sync, async or an async generator, with annotated
            parameters.
        name: The name that the model calls; by default the function's name.
        description: The description that the model reads; by default the docstring up to its first section.
        needs_approval: Whether a person must approve calls.
        timeout: Maximum seconds per call.
        on_error: The error policy.
        effect: Effect of a call outside.
        return_directly: Whether the result is the agent's answer.
        strict: Whether the provider is asked to enforce the schema.
        input_guardrails: Checks `(ctx, arguments)` that run before each call.
        output_guardrails: Checks `(ctx, result)` that run after each call.
        in_thread: Whether a sync function runs in a worker thread.
        is_enabled: Whether the model is offered the tool, or a function `(ctx, agent) -> bool` that decides each turn.
    """

    if TYPE_CHECKING:
        # See ToolFunction.
        __sizeof__: ClassVar[None]  # pyright: ignore[reportIncompatibleMethodOverride]

    _untyped: ClassVar[Any] = None
    """The type of parameters without an annotation; None if each needs one."""
    _injected: ClassVar[Mapping[str, Source] | None] = None
    """Sources of parameters that the model does not see, by name."""

    @check_arguments
    def __init__(
        self,
        function: Callable[P, R],
        *,
        name: str | None = None,
        description: str | None = None,
        needs_approval: NeedsApproval = False,
        timeout: float | None = None,
        on_error: ErrorPolicy = "return",
        effect: ToolEffect = "idempotent",
        return_directly: bool = False,
        strict: bool = False,
        input_guardrails: Sequence[GuardrailFunction] = (),
        output_guardrails: Sequence[GuardrailFunction] = (),
        in_thread: bool = True,
        is_enabled: ToolCondition = True,
    ) -> None:
        if isinstance(function, FunctionTool):
            raise SetupError(f"`{function.name}` is a tool already; give its options where it is made")
        self.function = function
        self._signature = compile_signature(function, name, untyped=self._untyped, inject=self._injected)
        policy = check_error_policy(on_error, self.name)
        self._invoker = FunctionInvoker(self._signature, description, policy, return_directly, in_thread, strict)
        check_choice(f"effect of tool `{self.name}`", effect, ("read", "idempotent", "once"))
        self.effect: ToolEffect = effect
        owner = f"tool `{self.name}`"
        self.is_enabled = check_condition(owner, is_enabled)
        before, after = to_guardrails(owner, input_guardrails=input_guardrails, output_guardrails=output_guardrails)
        self._guardrails = (*before, *after)
        reject_duplicate_names(owner, self._guardrails)

        def assemble(inner: Tool) -> Tool:
            if timeout is not None:
                inner = TimeoutTool(inner, timeout, on_error=on_error)
            if effect == "once":
                inner = OnceTool(inner, is_final=return_directly)
            if needs_approval is not False:
                # Outside the timeout: a person may take days.
                inner = ApprovalTool(inner, needs_approval)
            if effect == "once":
                inner = EarlierCallsTool(inner)
            return GuardedTool(inner, before, after, on_trip="return") if before or after else inner

        self._assemble = assemble
        self._call = assemble(self._invoker).call
        self.__name__ = self.name
        self.__doc__ = function.__doc__
        self.__wrapped__ = function
        if self._signature.is_async:
            mark_coroutine_function(self)

    @property
    def name(self) -> str:
        """The name that the model calls."""
        return self._signature.tool

    @property
    def spec(self) -> ToolSpec:
        """The name, description and schema that the model sees."""
        return self._invoker.spec

    @cached_property
    def _required_context(self) -> Any:
        """The type of the context object that the function needs; None if it can do without one."""
        return required_context(self._signature)

    async def call(self, ctx: RunContext[C], arguments: str) -> ToolResult:
        """Call the tool with approval, timeout and error policy.

        Args:
            ctx: The context of this call.
            arguments: A JSON object, as the model wrote it.
        """
        return await self._call(ctx, arguments)

    def check_arguments(self, arguments: str) -> dict[str, Any] | ToolResult:
        """Validate arguments without calling the function.

        Args:
            arguments: A JSON object.

        Returns:
            The arguments including defaults, or an error result that tells the model what to correct.
        """
        return self._invoker.check_arguments(arguments)

    def _wrap_function(self, wrap: Callable[[Tool], Tool]) -> Self:
        """Return a copy with a wrapper around the bare call, inside approval, record and timeout."""
        clone = copy(self)
        clone._call = self._assemble(wrap(self._invoker)).call
        return clone

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"FunctionTool({self.name!r})"


class _ToolDecorator(Protocol):
    @overload
    def __call__(
        self, function: Callable[Concatenate[RunContext[T], P], R], /
    ) -> FunctionTool[Concatenate[RunContext[T], P], R, T]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> FunctionTool[P, R, Any]: ...


@overload
def tool(
    function: Callable[Concatenate[RunContext[T], P], R],
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    needs_approval: NeedsApproval = False,
    timeout: float | None = None,
    on_error: ErrorPolicy = "return",
    effect: ToolEffect = "idempotent",
    return_directly: bool = False,
    strict: bool = False,
    input_guardrails: Sequence[GuardrailFunction] = (),
    output_guardrails: Sequence[GuardrailFunction] = (),
    in_thread: bool = True,
    is_enabled: ToolCondition = True,
) -> FunctionTool[Concatenate[RunContext[T], P], R, T]: ...
@overload
def tool(
    function: Callable[P, R],
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    needs_approval: NeedsApproval = False,
    timeout: float | None = None,
    on_error: ErrorPolicy = "return",
    effect: ToolEffect = "idempotent",
    return_directly: bool = False,
    strict: bool = False,
    input_guardrails: Sequence[GuardrailFunction] = (),
    output_guardrails: Sequence[GuardrailFunction] = (),
    in_thread: bool = True,
    is_enabled: ToolCondition = True,
) -> FunctionTool[P, R, Any]: ...
@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    needs_approval: NeedsApproval = False,
    timeout: float | None = None,
    on_error: ErrorPolicy = "return",
    effect: ToolEffect = "idempotent",
    return_directly: bool = False,
    strict: bool = False,
    input_guardrails: Sequence[GuardrailFunction] = (),
    output_guardrails: Sequence[GuardrailFunction] = (),
    in_thread: bool = True,
    is_enabled: ToolCondition = True,
) -> _ToolDecorator: ...
@check_names
def tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    needs_approval: NeedsApproval = False,
    timeout: float | None = None,
    on_error: ErrorPolicy = "return",
    effect: ToolEffect = "idempotent",
    return_directly: bool = False,
    strict: bool = False,
    input_guardrails: Sequence[GuardrailFunction] = (),
    output_guardrails: Sequence[GuardrailFunction] = (),
    in_thread: bool = True,
    is_enabled: ToolCondition = True,
) -> Any:
    """Make a tool of a function: `@tool`, `@tool(timeout=3)` or `tool(function, name="…")`.

    A parameter annotated as `RunContext` receives the context and is hidden from the model. Make it the first one:
    then type checkers compare its context type with the agent's.

    An async generator function is a streaming tool: what it yields is progress for the subscribers of the run, and
    the last item is `Final(result)`.

    Args:
        function: A function, bound method or callable object, sync, async or an async generator, with annotated
            parameters.
        name: The name that the model calls; by default the function's name.
        description: The description that the model reads; by default the docstring up to its first section.
        needs_approval: Whether a person must approve calls, or a function `(ctx, arguments) -> bool`.
        timeout: Maximum seconds per call; waiting for approval does not count.
        on_error: `"return"` errors to the model, `"raise"` to end the run, or a function `(error) -> text`.
        effect: Effect of a call outside: `"read"` (none), `"idempotent"` (may happen twice) or `"once"`.
        return_directly: Whether the result is the agent's answer.
        strict: Whether the provider is asked to enforce the schema.
        input_guardrails: Checks `(ctx, arguments)` that run before each call. If one does not pass, the model is told
            why.
        output_guardrails: Checks `(ctx, result)` that run after each call. If one does not pass, the result is
            withheld.
        in_thread: Whether a sync function runs in a worker thread, where it may block.
        is_enabled: Whether the model is offered the tool, or a function `(ctx, agent) -> bool` that decides each turn.

    Raises:
        SetupError: The function cannot be a tool, or an option is invalid.
    """
    make = partial(
        FunctionTool[..., Any, Any],
        name=name,
        description=description,
        needs_approval=needs_approval,
        timeout=timeout,
        on_error=on_error,
        effect=effect,
        return_directly=return_directly,
        strict=strict,
        input_guardrails=input_guardrails,
        output_guardrails=output_guardrails,
        in_thread=in_thread,
        is_enabled=is_enabled,
    )
    return make if function is None else make(function)


@check_arguments
def with_tool_guardrails(
    tool: Tool[C] | ToolFunction,
    *,
    input_guardrails: Sequence[GuardrailFunction] = (),
    output_guardrails: Sequence[GuardrailFunction] = (),
    on_trip: TripPolicy = "return",
) -> Tool[C]:
    """Add guardrails to any tool, also one that is not made of a function.

    For functions there is `tool(input_guardrails=…, output_guardrails=…)`.

    Args:
        tool: The tool, or a function to make one of.
        input_guardrails: Checks `(ctx, arguments)` that run before each call.
        output_guardrails: Checks `(ctx, result)` that run after each call.
        on_trip: `"return"` tells the model which guardrail failed and why; `"raise"` ends the run.

    Raises:
        SetupError: There is nothing to guard, or two guardrails have the same name.
    """
    inner: Tool = _to_tool(tool)
    owner = f"with_tool_guardrails({inner!r})"
    if on_trip not in ("return", "raise"):
        raise SetupError(f'{owner} has on_trip={show(on_trip)}; use "return" or "raise"')
    before, after = to_guardrails(owner, input_guardrails=input_guardrails, output_guardrails=output_guardrails)
    reject_duplicate_names(owner, [*before, *after, *find_guardrails(inner)])
    return GuardedTool(inner, before, after, on_trip=on_trip)


def _to_tool(candidate: Any) -> Tool:
    if callable(getattr(candidate, "call", None)):
        return candidate
    if not callable(candidate):
        raise SetupError(f"with_tool_guardrails({show(candidate)}) has nothing to guard; give a tool or a function")
    return tool(candidate)
