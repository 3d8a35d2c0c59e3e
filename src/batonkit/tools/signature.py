"""Signatures and docstrings of functions that become tools. Nothing here needs pydantic.

Whatever can be seen without evaluating annotations is checked when the tool is made. Annotations are evaluated at first
use, because they may name objects that are defined further down in the module.
"""

import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from types import NoneType, SimpleNamespace, UnionType
from typing import Annotated, Any, Literal, TypeAlias, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from msgspec import Struct

from .._wording import show, type_of
from ..context import RunContext
from ..errors import SetupError

Source: TypeAlias = Callable[[RunContext[Any]], Any]
"""Supplies the value of a parameter that the model does not see."""

# Every provider accepts these function names.
_NAME = r"[a-zA-Z0-9_-]{1,64}"


class FunctionSignature(Struct, frozen=True):
    """A function that a model can call, with annotations that are not evaluated yet."""

    tool: str
    """The tool's name."""
    function: Callable[..., Any]
    """The function to call."""
    definition: Any
    """The `def` under partials, methods and decorators, with docstring, code and globals."""
    is_async: bool
    """True if the function is a coroutine function."""
    is_streaming: bool
    """True if the function is an async generator function."""
    annotations: dict[str, Any]
    """Annotations by parameter, as they were written."""
    defaults: dict[str, Any]
    """Defaults by parameter."""
    injected: dict[str, Source]
    """Sources of parameters that are hidden from the model."""


def compile_signature(
    function: Callable[..., Any],
    name: str | None = None,
    *,
    untyped: Any = None,
    inject: Mapping[str, Source] | None = None,
) -> FunctionSignature:
    """Read the signature of a function.

    Raises:
        SetupError: A model could not call the function.
    """
    bare: Any = function
    while isinstance(bare, partial):
        bare = bare.func
    tool = _tool_name(bare, name)
    called = _called_function(bare, tool)
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):
        raise _not_a_tool(
            tool, "its signature cannot be read; wrap it in a function with annotated parameters"
        ) from None
    bound: dict[str, Any] = getattr(function, "keywords", {}) if bare is not function else {}
    sources = {parameter: source for parameter, source in (inject or {}).items() if parameter in parameters}
    annotations: dict[str, Any] = {}
    defaults: dict[str, Any] = {}
    for parameter in parameters.values():
        # An argument bound by a partial may be a secret: the model neither sees nor changes it.
        if parameter.name in sources or parameter.name in bound:
            continue
        annotations[parameter.name] = _get_annotation(parameter, tool, untyped)
        if parameter.default is not inspect.Parameter.empty:
            defaults[parameter.name] = parameter.default
    *_, definition = unwrap_function(function)
    return FunctionSignature(
        tool,
        function,
        definition,
        inspect.iscoroutinefunction(called),
        inspect.isasyncgenfunction(called),
        annotations,
        defaults,
        sources,
    )


def resolve_annotations(compiled: FunctionSignature) -> tuple[dict[str, Any], dict[str, Source]]:
    """Evaluate annotations: return types of visible parameters, and sources of hidden ones."""
    hints: dict[str, Any] = {}
    sources = dict(compiled.injected)
    for name, annotation in compiled.annotations.items():
        hint = _evaluate(name, annotation, compiled)
        if _is_context(hint):
            sources[name] = _get_context
        else:
            hints[name] = hint
    return hints, sources


def required_context(compiled: FunctionSignature) -> Any:
    """Return the type of the context that a function needs; None if it can do without one."""
    for name, annotation in compiled.annotations.items():
        hint = _evaluate(name, annotation, compiled)
        if not _is_context(hint):
            continue
        kinds = [kind for part in _parts_of(hint) for kind in get_args(part)]
        if kinds and not _accepts_none(kinds[0]):
            return kinds[0]
    return None


def _parts_of(hint: Any) -> tuple[Any, ...]:
    """Return the alternatives of an annotation, without what `Annotated` adds."""
    origin = get_origin(hint)
    if origin is Annotated:
        return _parts_of(get_args(hint)[0])
    if origin in (Union, UnionType):
        return tuple(part for choice in get_args(hint) for part in _parts_of(choice))
    return (hint,)


def _accepts_none(kind: Any) -> bool:
    is_open = kind is Any or kind is object or isinstance(kind, TypeVar)
    return is_open or any(part is None or part is NoneType or part is Any for part in _parts_of(kind))


def unwrap_function(function: Any) -> Iterator[Any]:
    """Yield a function and each layer below it, down to the `def`."""
    layer: Any = function
    while layer is not None:
        yield layer
        if isinstance(layer, partial):
            layer = layer.func
        elif inspect.ismethod(layer):
            layer = layer.__func__
        elif hasattr(layer, "__wrapped__"):
            layer = layer.__wrapped__
        else:
            layer = get_call_method(layer)


def get_call_method(thing: Any) -> Any:
    """Return the `def __call__` of a callable object; None for functions and builtins."""
    method = type(thing).__call__ if callable(thing) else None
    return method if inspect.isfunction(method) else None


def _tool_name(function: Any, name: str | None) -> str:
    chosen = str(name or getattr(function, "__name__", None) or type(function).__name__)
    if not re.fullmatch(_NAME, chosen):
        raise SetupError(
            f"a tool cannot be named `{chosen}`; give it a name of up to 64 letters, digits, `_` and `-`: "
            "write a def, or tool(function, name=…)"
        )
    return chosen


def _called_function(function: Any, tool: str) -> Any:
    if inspect.isclass(function) or not callable(function):
        kind = "a class" if inspect.isclass(function) else type_of(function)
        raise _not_a_tool(tool, f"{show(function)} is {kind}; give a function, a bound method or a callable object")
    called = get_call_method(function) or function
    if inspect.isgeneratorfunction(called):
        reason = "it is a generator; return the whole result and report progress with `await ctx.progress(…)`"
        raise _not_a_tool(tool, f"{reason}, or write `async def` and yield Final(result) last")
    return called


def _get_annotation(parameter: inspect.Parameter, tool: str, untyped: Any) -> Any:
    name = parameter.name
    if parameter.kind in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD):
        raise _not_a_tool(tool, f"`{parameter}` accepts anything, but a model must know the parameters; name each one")
    if parameter.kind is inspect.Parameter.POSITIONAL_ONLY:
        raise _not_a_tool(
            tool, f"parameter `{name}` is positional-only, but arguments are passed by name; move it behind the `/`"
        )
    if parameter.annotation is not inspect.Parameter.empty:
        return parameter.annotation
    if untyped is not None:
        return untyped
    if name in ("self", "cls"):
        raise _not_a_tool(tool, f"it is an unbound method; make the tool of a bound method: tool(thing.{tool})")
    hint = f"`{name}: str` or the like, or `{name}: RunContext` to receive the run's context"
    raise _not_a_tool(tool, f"parameter `{name}` has no annotation, so its schema is unknown; write {hint}")


def _not_a_tool(tool: str, reason: str) -> SetupError:
    return SetupError(f"`{tool}` cannot be a tool: {reason}")


def _evaluate(name: str, annotation: Any, compiled: FunctionSignature) -> Any:
    holder = SimpleNamespace(__annotations__={name: annotation})
    known = getattr(compiled.definition, "__globals__", {})
    try:
        return get_type_hints(holder, known, include_extras=True)[name]
    except (NameError, AttributeError, SyntaxError, TypeError) as error:
        where = getattr(compiled.definition, "__module__", "?")
        raise _not_a_tool(
            compiled.tool,
            f"the annotation `{annotation}` of parameter `{name}` cannot be evaluated in module `{where}` ({error}); "
            "define or import its names at the top of that module, not in a function or under TYPE_CHECKING",
        )


def _is_context(hint: Any) -> bool:
    origin = get_origin(hint)
    if origin is Annotated:
        return _is_context(get_args(hint)[0])
    if origin in (Union, UnionType):
        choices = [choice for choice in get_args(hint) if choice is not NoneType]
        return len(choices) == 1 and _is_context(choices[0])
    kind = origin or hint
    return isinstance(kind, type) and issubclass(kind, RunContext)


def _get_context(ctx: RunContext[Any]) -> RunContext[Any]:
    return ctx


_Style: TypeAlias = Literal["google", "numpy", "sphinx"]

_SECTIONS = r"Returns?|Yields?|Receives?|Raises|Exceptions?|Warns|Examples?|Attributes"
# Compiled at their first use; most tools have a docstring of one line.
_PARAMETERS: dict[_Style, str] = {
    "numpy": r"^(?:Other )?Parameters[ ]*\n-{3,}[ ]*$",
    "google": r"^(?:Args|Arguments|Params|Parameters|(?:Keyword|Other) (?:Args|Arguments|Parameters)):[ ]*$",
    "sphinx": r"^:(?:param|parameter|arg|argument|key|keyword)\b[^:\n]*:",
}
_OTHER_SECTIONS = (
    rf"^(?:{_SECTIONS}):[ ]*$"
    rf"|^(?:{_SECTIONS}|See Also|Notes|References)[ ]*\n-{{3,}}[ ]*$"
    r"|^:(?:type|raises?|except|exception|returns?|rtype|var|ivar|cvar|vartype)\b[^:\n]*:"
)


def get_docstring(compiled: FunctionSignature) -> str:
    """Return the cleaned docstring of a function; empty if it has none."""
    text = getattr(compiled.definition, "__doc__", None)
    if not text and get_call_method(compiled.function):
        text = type(compiled.function).__doc__
    return inspect.cleandoc(text) if text else ""


def _may_have_sections(docstring: str) -> bool:
    """Return whether a section is possible: its heading has a colon, or a line below it."""
    return ":" in docstring or "\n" in docstring


def get_description(docstring: str) -> str:
    """Return the text before the first section of a docstring."""
    if not _may_have_sections(docstring):
        return docstring.strip()
    patterns = (*_PARAMETERS.values(), _OTHER_SECTIONS)
    sections = (re.search(pattern, docstring, re.MULTILINE) for pattern in patterns)
    return docstring[: min((found.start() for found in sections if found), default=None)].strip()


def get_parameter_descriptions(docstring: str) -> dict[str, str]:
    """Parse the parameter descriptions of a docstring in Google, NumPy or Sphinx style."""
    if not _may_have_sections(docstring):
        return {}
    # Without a parameter section the parser is not even imported.
    styles: list[_Style] = [
        style for style, pattern in _PARAMETERS.items() if re.search(pattern, docstring, re.MULTILINE)
    ]
    if not styles:
        return {}
    import griffe

    descriptions: dict[str, str] = {}
    for section in griffe.parse(griffe.Docstring(docstring), styles[0], warnings=False):
        if section.kind.value in ("parameters", "other parameters"):
            for parameter in cast(list[griffe.DocstringParameter], section.value):
                descriptions[parameter.name] = " ".join(parameter.description.split())
    return descriptions
