"""Checks of arguments against names, choices and annotations, with messages that say what would work."""

import sys
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence, Set
from dataclasses import FrozenInstanceError
from functools import cache, wraps
from importlib.util import find_spec
from inspect import get_annotations, iscoroutinefunction, signature
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Any, Literal, TypeVar, Union, cast, get_args, get_origin

from msgspec import Struct, StructMeta, UnsetType

from ._wording import show, with_article
from .errors import MissingExtraError, SetupError, nearest, quote_names

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")


def require_extra(what: str, extra: str, *modules: str, packages: str = "") -> None:
    """Raise MissingExtraError unless all modules are installed; they are not imported.

    Args:
        what: The feature that needs them.
        extra: The extra of `batonkit` that contains them; "" if none does.
        *modules: A package before its modules.
        packages: What to install instead of an extra.
    """
    for module in modules:
        if find_spec(module) is None:
            raise MissingExtraError(what, extra, module, packages=packages)


_SYNONYMS = {
    "functions": "tools",
    "prompt": "instructions",
    "system_prompt": "instructions",
    "response_format": "output_type",
    "output_schema": "output_type",
    "context_variables": "values",
    "session": "thread",
    "session_id": "thread",
    "input_json_schema": "input_type",
}
"""Arguments of other kits, and what they are called here."""
_GUARDRAILS = "use Agent(input_guardrails=…, output_guardrails=…), or with_guardrails(agent, …) for any other agent"
_ELSEWHERE = {
    "max_turns": "use Agent(max_turns=…) for each agent, or limits=Limits(model_calls=…) for a run",
    "mcp_servers": "put an MCPToolset(…) into tools",
    "input_guardrails": _GUARDRAILS,
    "output_guardrails": _GUARDRAILS,
    "run_config": "its options are arguments of Runner(…) and of run(…)",
    "tool_use_behavior": "use Agent(tool_use_behavior=…)",
}
"""Arguments of other kits, and what to write instead."""


def check_choice(what: str, given: object, choices: Sequence[str]) -> None:
    """Raise SetupError unless a value is one of the choices."""
    if given not in choices:
        raise SetupError(f"{what} is {show(given)}; it can be: {quote_names(choices)}{nearest(given, choices)}")


def check_positive(what: str, given: float | None) -> None:
    """Raise SetupError unless a number is above 0, or None."""
    if given is not None and not given > 0:
        raise SetupError(f"{what} is {show(given)}; give more than 0")


def check_keywords(function: str, given: Iterable[str], valid: Collection[str]) -> None:
    """Raise SetupError for the first unknown keyword, with the nearest valid one."""
    for name in given:
        if name not in valid:
            raise unknown_argument(function, name, valid)


def unknown_argument(callee: str, argument: str, known: Iterable[str]) -> SetupError:
    """Build the error for an unknown keyword argument, with the nearest valid name."""
    from difflib import get_close_matches

    names = [name for name in known if not name.startswith("_") and name != "self"]
    if argument in _ELSEWHERE:
        return SetupError(f"{callee} has no argument `{argument}`; {_ELSEWHERE[argument]}")
    near = [_SYNONYMS.get(argument, "")] if _SYNONYMS.get(argument) in names else []
    near = near or [name for name in names if argument in name] or get_close_matches(argument, names, 1)
    hint = f"did you mean `{near[0]}`?" if near else f"its arguments are: {quote_names(names)}"
    return SetupError(f"{callee} has no argument `{argument}`; {hint}")


class _Expected(Struct, frozen=True):
    """The values that an annotation accepts, and their description in messages."""

    accepts: Callable[[Any], bool]
    words: str
    choices: tuple[str, ...] = ()
    """The valid texts, if only some are valid; functions check them with `check_choice`."""


def check_arguments(function: F) -> F:
    """Make a function, an `__init__` or a dataclass raise SetupError for a wrong argument.

    An unknown keyword, or a value that does not fit its annotation, is named with what would work. The function's own
    checks come first, because their messages say more.
    """
    if isinstance(function, type):
        function.__init__ = check_arguments(function.__init__)
        return function  # pyright: ignore[reportReturnType]

    @wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        is_init = function.__name__ == "__init__"
        callee = type(args[0]).__name__ if is_init else function.__name__
        owner = _name_given(function, args, kwargs) if is_init else ""
        return _call_checked(function, callee, owner or f"{callee}()", args, kwargs)

    return wrapper  # pyright: ignore[reportReturnType]


def suggest_clone(kind: type[T]) -> type[T]:
    """Make a frozen dataclass name its method `clone` when an attribute is set."""
    refuse: Callable[[Any, str, Any], None] = kind.__setattr__

    def set_attribute(self: Any, name: str, value: Any) -> None:
        try:
            refuse(self, name, value)
        except FrozenInstanceError:
            what = f"{type(self).__name__} cannot be changed"
            raise FrozenInstanceError(f"{what}; make a changed copy of it: clone({name}=…)") from None

    kind.__setattr__ = set_attribute
    return kind


def check_names(function: F) -> F:
    """Make a function raise SetupError for an unknown keyword. What it makes checks the values."""

    @wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        check_keywords(function.__name__, kwargs, _parameters_of(function))
        return function(*args, **kwargs)

    return wrapper  # pyright: ignore[reportReturnType]


def check_types(function: F) -> F:
    """Decorate a method so that an argument of a wrong type raises SetupError before the call."""

    def check(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        # The class of the object: a method may be inherited.
        owner = f"{type(args[0]).__name__}.{function.__name__}()" if args else f"{function.__qualname__}()"
        require(_find_problem(function, owner, args, kwargs, skip_choices=True))

    @wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        check(args, kwargs)
        return function(*args, **kwargs)

    # Web frameworks call a function that is not `async def` in a thread, and never await what it returns.
    @wraps(function)
    async def async_wrapper(*args: Any, **kwargs: Any) -> Any:
        check(args, kwargs)
        return await function(*args, **kwargs)

    return async_wrapper if iscoroutinefunction(function) else wrapper  # pyright: ignore[reportReturnType]


def check_values(owner: str, given: Mapping[str, Any], kind: type) -> None:
    """Raise SetupError for the first argument that does not fit its field of a TypedDict."""
    expected = _expected_by_field(kind)
    for name, value in given.items():
        wanted = expected.get(name)
        if wanted is not None and not wanted.choices and not wanted.accepts(value):
            raise SetupError(_describe(owner, name, value, wanted))


def check_callback(what: str, callback: Any, *parameters: str) -> None:
    """Raise SetupError if something is not a function that takes these positional arguments."""
    form = f"({', '.join(parameters)})"
    if not callable(callback):
        raise SetupError(f"{what} is {show(callback)}; give a function {form}")
    try:
        accepted = signature(callback)
    except (TypeError, ValueError):
        return  # Some callables in C have no signature.
    try:
        accepted.bind(*parameters)
    except TypeError:
        raise SetupError(f"{what} is called with {form}, but it takes {accepted}") from None


def _name_given(init: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str:
    """Return the name of the new object, quoted, if that is the first parameter; else ""."""
    if _parameters_of(init)[:1] != ("name",):
        return ""
    name = args[1] if len(args) > 1 else kwargs.get("name")
    return f"`{name}`" if isinstance(name, str) and name else ""


def _call_checked(
    function: Callable[..., Any], callee: str, owner: str, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    try:
        result = function(*args, **kwargs)
    except (TypeError, AttributeError, ValueError, LookupError, ArithmeticError, RecursionError) as error:
        known = _parameters_of(function)
        for name in kwargs if isinstance(error, TypeError) else ():
            if name not in known:
                raise unknown_argument(callee, name, known) from None
        problem = _find_problem(function, owner, args, kwargs)
        if not problem and isinstance(error, TypeError):
            problem = _find_binding_problem(function, callee, args, kwargs)
        if not problem and isinstance(error, RecursionError):
            problem = f"{callee}() has an argument that is nested too deeply; give a flatter one"
        if problem:
            raise SetupError(problem) from error
        raise
    require(_find_problem(function, owner, args, kwargs))
    return result


def _find_binding_problem(function: Callable[..., Any], callee: str, args: tuple[Any, ...], kwargs: Any) -> str:
    """Describe missing or too many arguments; "" if there are neither."""
    try:
        signature(function).bind(*args, **kwargs)
    except TypeError as error:
        parameters = signature(function).parameters.values()
        by_name = [f"{each.name}=…" for each in parameters if each.kind is each.KEYWORD_ONLY]
        if "too many" in str(error) and by_name:
            examples = ", ".join(by_name[:3])
            return f"{callee}() has too many positional arguments; give the others by name, such as {examples}"
        verb = "is" if str(error).startswith("missing") else "has"
        return f"{callee}() {verb} {error}"
    return ""


def require(problem: str) -> None:
    """Raise SetupError if there is a problem."""
    if problem:
        raise SetupError(problem)


class CheckedStructMeta(StructMeta):
    """The metaclass of structs that users create: wrong arguments raise SetupError.

    msgspec allows neither `__init__` nor `__new__`, and calls `__post_init__` only if all keywords are known.
    """

    if not TYPE_CHECKING:  # Type checkers derive the parameters from the fields.

        def __call__(cls, *args: Any, **kwargs: Any) -> Any:  # noqa: N805 - the object of a metaclass is a class
            check_keywords(cls.__name__, kwargs, cls.__struct_fields__)
            try:
                made = super().__call__(*args, **kwargs)
            except (TypeError, ValueError, AttributeError) as error:
                # The struct's own check may not expect a value of another type.
                cls._check_types(args, kwargs, cause=error)
                raise
            cls._check_types(args, kwargs)
            return made

        def _check_types(cls, args: tuple[Any, ...], kwargs: dict[str, Any], *, cause: Exception | None = None) -> None:  # noqa: N805
            expected = _expected_by_field(cls)
            for name, value in (*zip(cls.__struct_fields__, args, strict=False), *kwargs.items()):
                if name in expected and not expected[name].accepts(value):
                    raise SetupError(_describe(f"{cls.__name__}()", name, value, expected[name])) from cause


@cache
def _parameters_of(function: Callable[..., Any]) -> tuple[str, ...]:
    """List the parameters of a function that a caller can name."""
    parameters = signature(function).parameters.values()
    return tuple(each.name for each in parameters if not each.kind.name.startswith("VAR_") and each.name != "self")


def _find_problem(
    function: Any, owner: str, args: tuple[Any, ...], kwargs: Mapping[str, Any], *, skip_choices: bool = False
) -> str:
    """Describe the first argument that does not fit its annotation; "" if all fit."""
    positional, expected = _expected_by_parameter(function)
    for name, value in (*zip(positional, args, strict=False), *kwargs.items()):
        wanted = expected.get(name)
        if wanted is not None and not (skip_choices and wanted.choices) and not wanted.accepts(value):
            return _describe(owner, name, value, wanted)
    return ""


def _describe(owner: str, name: str, value: Any, wanted: _Expected) -> str:
    return f"{owner} has {name}={show(value)}; give {wanted.words}{nearest(value, wanted.choices)}"


@cache
def _expected_by_parameter(function: Any) -> tuple[tuple[str, ...], dict[str, _Expected]]:
    """Return the names of the positional parameters, and what each annotated parameter accepts."""
    while hasattr(function, "__wrapped__"):
        function = function.__wrapped__
    code = function.__code__
    names = {name: annotation for name, annotation in function.__annotations__.items() if name != "return"}
    return code.co_varnames[: code.co_argcount], _expected_values(names, function.__globals__)


@cache
def _expected_by_field(kind: type) -> dict[str, _Expected]:
    """Return what the fields of a TypedDict or struct accept."""
    expected: dict[str, _Expected] = {}
    for base in reversed(kind.__mro__):
        names = get_annotations(base)
        expected |= _expected_values(names, vars(sys.modules[base.__module__]))
    return expected


def _expected_values(annotations: Mapping[str, Any], names: dict[str, Any]) -> dict[str, _Expected]:
    found = {name: _to_expected(_resolve(each, names)) for name, each in annotations.items() if name[0] != "_"}
    return {name: wanted for name, wanted in found.items() if wanted is not None}


def _resolve(annotation: Any, names: dict[str, Any]) -> Any:
    annotation = getattr(annotation, "__forward_arg__", annotation)
    if not isinstance(annotation, str):
        return annotation
    try:
        return eval(annotation, names)
    except (NameError, AttributeError, TypeError):
        return Any  # It names a type that is only imported for type checkers.


def _instance_of(*kinds: type) -> Callable[[Any], bool]:
    def accepts(value: Any) -> bool:
        return isinstance(value, kinds)

    return accepts


def _is_flag(value: Any) -> bool:
    return isinstance(value, int) and value in (0, 1)


def _is_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value == value


_ANYTHING: tuple[Any, ...] = (Any, object)
_ITERABLES: tuple[Any, ...] = (Iterable, Collection)
_NONE = _Expected(_instance_of(NoneType), "None")
_PLAIN: dict[Any, _Expected] = {
    str: _Expected(_instance_of(str), "a string"),
    bytes: _Expected(_instance_of(bytes, bytearray, memoryview), "bytes"),
    bool: _Expected(_is_flag, "True or False"),
    int: _Expected(_is_integer, "an integer"),
    float: _Expected(_is_number, "a number"),
    None: _NONE,
    NoneType: _NONE,
}


def _to_expected(annotation: Any) -> _Expected | None:
    """Return what an annotation accepts; None if that is anything, or cannot be told."""
    plain = _PLAIN.get(annotation) if isinstance(annotation, Hashable) else None
    if plain is not None:
        return plain
    origin = get_origin(annotation)
    parts = get_args(annotation)
    if origin in (Union, UnionType):
        # An argument that is not given may be UNSET; no one passes it.
        return _any_of([_to_expected(part) for part in parts if part is not UnsetType])
    if origin is Literal:
        return _one_of(parts)
    kind: Any = origin or annotation
    if kind is Callable:
        return _Expected(callable, "a function")
    # A protocol would be slow to check, and classes pass for their objects.
    is_class = hasattr(kind, "__mro__") and kind not in _ANYTHING
    if not is_class or hasattr(kind, "__total__") or getattr(kind, "_is_protocol", False):
        return None
    if issubclass(kind, Mapping):
        return _Expected(_instance_of(Mapping), "a dict")
    if issubclass(kind, Sequence | Set) or kind in _ITERABLES:
        return _list_of(_to_expected(parts[0]) if parts else None)
    is_own = kind.__module__.startswith("batonkit.")
    return _Expected(_instance_of(kind), f"{kind.__name__}(…)" if is_own else with_article(kind.__name__))


def _any_of(parts: Sequence[_Expected | None]) -> _Expected | None:
    known = [part for part in parts if part is not None]
    if len(known) < len(parts):
        return None

    def accepts(value: Any) -> bool:
        return any(part.accepts(value) for part in known)

    words = " or ".join(dict.fromkeys(part.words for part in known))
    return _Expected(accepts, words, tuple(each for part in known for each in part.choices))


def _one_of(choices: tuple[Any, ...]) -> _Expected:
    def accepts(value: Any) -> bool:
        return any(value is choice or value == choice for choice in choices)

    return _Expected(accepts, " or ".join(map(repr, choices)), choices)


def _list_of(item: _Expected | None) -> _Expected:
    def accepts(value: Any) -> bool:
        if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable):
            return False
        is_read_once = not isinstance(value, Collection)
        return is_read_once or item is None or all(item.accepts(each) for each in cast("Collection[Any]", value))

    if item is None:
        return _Expected(accepts, "a list")
    article, _, noun = item.words.partition(" ")
    is_noun = article in ("a", "an") and noun.isalpha()
    return _Expected(accepts, f"a list of {noun}s" if is_noun else f"a list of {item.words}")


if sys.version_info >= (3, 12):
    from inspect import markcoroutinefunction as mark_coroutine_function
else:

    def mark_coroutine_function(function: Any) -> None:
        """Let `asyncio.iscoroutinefunction` recognise a callable; web frameworks ask it."""
        from asyncio import coroutines

        vars(function)["_is_coroutine"] = vars(coroutines)["_is_coroutine"]
