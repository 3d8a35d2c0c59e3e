"""What a function takes, read once: which parameters the model fills in, and which the run does.

What can be seen without evaluating annotations is checked when the tool is made. Annotations are evaluated at first
use, because they may name what is defined further down in the module. Nothing here needs pydantic.

What a docstring tells a model: what the tool does, and what each parameter means.

Google, NumPy and Sphinx style. Finding out that there is nothing to parse costs one search and loads no parser.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from inspect import (
    Parameter,
    cleandoc,
    isasyncgenfunction,
    isclass,
    iscoroutinefunction,
    isfunction,
    isgeneratorfunction,
    ismethod,
    signature,
)
from types import NoneType, SimpleNamespace, UnionType
from typing import Annotated, Any, Literal, TypeAlias, Union, cast, get_args, get_origin, get_type_hints

from msgspec import Struct

from ..context import RunContext
from ..errors import SetupError

Source: TypeAlias = Callable[[RunContext[Any]], Any]
"""Where the value of a parameter comes from that the model does not see."""

# What every provider accepts as the name of a function.
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")


class FunctionSignature(Struct, frozen=True):
    """A function that a model can call. Annotations are as they were written; `resolved` evaluates them."""

    tool: str
    function: Callable[..., Any]
    definition: Any
    """Where its docstring, code and globals are: the `def` under partials, methods and decorators."""
    is_async: bool
    annotations: dict[str, Any]
    defaults: dict[str, Any]
    injected: dict[str, Source]


def compile_signature(
    function: Callable[..., Any],
    name: str | None = None,
    *,
    untyped: Any = None,
    inject: Mapping[str, Source] | None = None,
) -> FunctionSignature:
    """What the function takes. Raises SetupError for what a model could never fill in.

    Parameters without annotation are taken to be `untyped`, if that is given. Those named in `inject` get their
    value from the run and are hidden from the model.
    """
    bare: Any = function
    while isinstance(bare, partial):
        bare = bare.func
    tool = _name_for(bare, name)
    called = _called(bare, tool)
    try:
        parameters = signature(function).parameters
    except (TypeError, ValueError):
        raise _unfit(tool, "its signature cannot be read; wrap it in a function with annotated parameters") from None
    bound: dict[str, Any] = getattr(function, "keywords", {}) if bare is not function else {}
    sources = {parameter: source for parameter, source in (inject or {}).items() if parameter in parameters}
    annotations: dict[str, Any] = {}
    defaults: dict[str, Any] = {}
    for parameter in parameters.values():
        # What a partial has filled in is settled, and may be a secret: the model neither sees nor changes it.
        if parameter.name in sources or parameter.name in bound:
            continue
        annotations[parameter.name] = _annotation_of(parameter, tool, untyped)
        if parameter.default is not Parameter.empty:
            defaults[parameter.name] = parameter.default
    *_, definition = layers_of(function)
    return FunctionSignature(tool, function, definition, iscoroutinefunction(called), annotations, defaults, sources)


def resolved(compiled: FunctionSignature) -> tuple[dict[str, Any], dict[str, Source]]:
    """The types of the parameters the model fills in, and the sources of those it does not see."""
    hints: dict[str, Any] = {}
    sources = dict(compiled.injected)
    for name, annotation in compiled.annotations.items():
        hint = _evaluated(name, annotation, compiled)
        if _is_context(hint):
            sources[name] = _the_context
        else:
            hints[name] = hint
    return hints, sources


def layers_of(function: Any) -> Iterator[Any]:
    """The function and what it is made of: through partials, methods, decorators, callable objects, to the `def`."""
    layer: Any = function
    while layer is not None:
        yield layer
        if isinstance(layer, partial):
            layer = layer.func
        elif ismethod(layer):
            layer = layer.__func__
        elif hasattr(layer, "__wrapped__"):
            layer = layer.__wrapped__
        else:
            layer = call_method_of(layer)


def call_method_of(thing: Any) -> Any:
    """The `def __call__` of a callable object; None for a function, or whatever else is not written in Python."""
    method = type(thing).__call__ if callable(thing) else None
    return method if isfunction(method) else None


def _name_for(function: Any, name: str | None) -> str:
    chosen = str(name or getattr(function, "__name__", None) or type(function).__name__)
    if not _NAME.fullmatch(chosen):
        raise SetupError(
            f"a tool cannot be called `{chosen}`; give it a name of up to 64 letters, digits, `_` and `-`: "
            "write a def, or tool(function, name=…)"
        )
    return chosen


def _called(function: Any, tool: str) -> Any:
    if isclass(function) or not callable(function):
        kind = "a class" if isclass(function) else f"a {type(function).__name__}"
        raise _unfit(tool, f"{function!r} is {kind}; give a function, a bound method or a callable object")
    called = call_method_of(function) or function
    if isgeneratorfunction(called) or isasyncgenfunction(called):
        reason = "it is a generator; return the whole result, and report on the way with `await ctx.progress(…)`"
        raise _unfit(tool, reason)
    return called


def _annotation_of(parameter: Parameter, tool: str, untyped: Any) -> Any:
    name = parameter.name
    if parameter.kind in (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD):
        raise _unfit(tool, f"`{parameter}` takes anything, and a model must know what; name each parameter")
    if parameter.kind is Parameter.POSITIONAL_ONLY:
        raise _unfit(tool, f"parameter `{name}` is positional-only, and arguments come by name; move it behind the `/`")
    if parameter.annotation is not Parameter.empty:
        return parameter.annotation
    if untyped is not None:
        return untyped
    if name in ("self", "cls"):
        raise _unfit(tool, f"it is a method without its object; make the tool of a bound method: tool(thing.{tool})")
    hint = f"`{name}: str` or the like, or `{name}: RunContext` to be given the run's context"
    raise _unfit(tool, f"parameter `{name}` has no annotation, so its schema is unknown; write {hint}")


def _unfit(tool: str, reason: str) -> SetupError:
    return SetupError(f"`{tool}` cannot be a tool: {reason}")


def _evaluated(name: str, annotation: Any, compiled: FunctionSignature) -> Any:
    holder = SimpleNamespace(__annotations__={name: annotation})
    known = getattr(compiled.definition, "__globals__", {})
    try:
        return get_type_hints(holder, known, include_extras=True)[name]
    except (NameError, AttributeError, SyntaxError, TypeError) as error:
        where = getattr(compiled.definition, "__module__", "?")
        raise _unfit(
            compiled.tool,
            f"the annotation `{annotation}` of parameter `{name}` means nothing in module `{where}` ({error}); "
            "define or import what it names at the top of that module, not in a function or under TYPE_CHECKING",
        )


def _is_context(hint: Any) -> bool:
    origin = get_origin(hint)
    if origin is Annotated:
        return _is_context(get_args(hint)[0])
    if origin in (Union, UnionType):
        wanted = [choice for choice in get_args(hint) if choice is not NoneType]
        return len(wanted) == 1 and _is_context(wanted[0])
    kind = origin or hint
    return isinstance(kind, type) and issubclass(kind, RunContext)


def _the_context(ctx: RunContext[Any]) -> RunContext[Any]:
    return ctx


_Style: TypeAlias = Literal["google", "numpy", "sphinx"]

_FURTHER = r"Returns?|Yields?|Receives?|Raises|Exceptions?|Warns|Examples?|Attributes"
_PARAMETERS: dict[_Style, re.Pattern[str]] = {
    "numpy": re.compile(r"^(?:Other )?Parameters[ ]*\n-{3,}[ ]*$", re.MULTILINE),
    "google": re.compile(
        r"^(?:Args|Arguments|Params|Parameters|(?:Keyword|Other) (?:Args|Arguments|Parameters)):[ ]*$", re.MULTILINE
    ),
    "sphinx": re.compile(r"^:(?:param|parameter|arg|argument|key|keyword)\b[^:\n]*:", re.MULTILINE),
}
_OTHER_SECTIONS = re.compile(
    rf"^(?:{_FURTHER}):[ ]*$"
    rf"|^(?:{_FURTHER}|See Also|Notes|References)[ ]*\n-{{3,}}[ ]*$"
    r"|^:(?:type|raises?|except|exception|returns?|rtype|var|ivar|cvar|vartype)\b[^:\n]*:",
    re.MULTILINE,
)


def docstring_of(compiled: FunctionSignature) -> str:
    """The docstring of the function, without its indentation; "" if it has none."""
    text = getattr(compiled.definition, "__doc__", None)
    if not text and call_method_of(compiled.function):
        text = type(compiled.function).__doc__
    return cleandoc(text) if text else ""


def description_in(docstring: str) -> str:
    """The text before the sections."""
    sections = (pattern.search(docstring) for pattern in (*_PARAMETERS.values(), _OTHER_SECTIONS))
    return docstring[: min((found.start() for found in sections if found), default=None)].strip()


def parameters_in(docstring: str) -> dict[str, str]:
    """What the docstring says about each parameter it mentions."""
    styles: list[_Style] = [style for style, pattern in _PARAMETERS.items() if pattern.search(docstring)]
    if not styles:
        return {}
    import griffe

    told: dict[str, str] = {}
    for section in griffe.parse(griffe.Docstring(docstring), styles[0], warnings=False):
        if section.kind.value in ("parameters", "other parameters"):
            for parameter in cast(list[griffe.DocstringParameter], section.value):
                told[parameter.name] = " ".join(parameter.description.split())
    return told
