"""Checks of arguments, with messages that suggest the nearest valid name."""

from collections.abc import Callable, Collection, Iterable, Sequence
from functools import wraps
from typing import Any, TypeVar

from .errors import SetupError, nearest, quote_names

F = TypeVar("F", bound=Callable[..., Any])


def check_choice(what: str, given: object, choices: Sequence[str]) -> None:
    """Raise SetupError unless a value is one of the choices.

    Args:
        what: The option, as the message names it.
        given: The value to check.
        choices: The valid values.
    """
    if given not in choices:
        raise SetupError(f"{what} is {given!r}; it can be: {quote_names(choices)}{nearest(given, choices)}")


def check_keywords(function: str, given: Iterable[str], valid: Collection[str]) -> None:
    """Raise SetupError for the first unknown keyword, with the nearest valid one.

    Args:
        function: The called function as the user writes it, such as `Runner.run()`.
        given: The keywords that were passed.
        valid: The keywords that the function accepts.
    """
    for name in given:
        if name not in valid:
            raise unknown_argument(function, name, valid)


def unknown_argument(callee: str, argument: str, known: Iterable[str]) -> SetupError:
    """Build the error for an unknown keyword argument, with the nearest valid name.

    Args:
        callee: The class or function as the user writes it.
        argument: The unknown argument.
        known: The valid arguments; private ones are not shown.
    """
    from difflib import get_close_matches

    names = [name for name in known if not name.startswith("_") and name != "self"]
    near = [name for name in names if argument in name] or get_close_matches(argument, names, 1)
    hint = f"did you mean `{near[0]}`?" if near else f"its arguments are: {quote_names(names)}"
    return SetupError(f"{callee} has no argument `{argument}`; {hint}")


def check_arguments(function: F) -> F:
    """Decorate a function or `__init__` so that an unknown keyword argument raises SetupError."""

    @wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except TypeError:
            from inspect import signature

            known = signature(function).parameters
            callee = type(args[0]).__name__ if function.__name__ == "__init__" else function.__name__
            for name in kwargs:
                if name not in known:
                    raise unknown_argument(callee, name, known) from None
            raise

    return wrapper  # pyright: ignore[reportReturnType]
