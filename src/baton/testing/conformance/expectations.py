"""How a check says what it expected."""

from collections.abc import Awaitable
from typing import TypeVar

E = TypeVar("E", bound=BaseException)


def expect(holds: bool, otherwise: str) -> None:
    """Raise AssertionError with these words unless it holds."""
    if not holds:
        raise AssertionError(otherwise)


def expect_same(found: object, wanted: object, what: str) -> None:
    """Raise AssertionError unless both are equal."""
    if found != wanted:
        raise AssertionError(f"{what}: wanted {_shown(wanted)}, found {_shown(found)}")


async def expect_error(attempt: Awaitable[object], kind: type[E], what: str) -> E:
    """The error of this kind that an attempt ends with; AssertionError if it ends otherwise."""
    try:
        result = await attempt
    except kind as error:
        return error
    except Exception as error:
        raise AssertionError(f"{what}: wanted {kind.__name__}, and {type(error).__name__} came: {error}") from error
    raise AssertionError(f"{what}: wanted {kind.__name__}, and it went well: {_shown(result)}")


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 200 else f"{text[:200]}… ({len(text)} characters)"
