"""Reducers: functions that merge a value that several parallel branches wrote."""

from collections.abc import Callable
from typing import Any, TypeAlias

Reducer: TypeAlias = Callable[[Any, Any], Any]
"""A function `(current, written) -> merged`, called for each branch that wrote the value, in order of declaration.

`current` is None if there was no value before.
"""


def append(current: Any, written: Any) -> list[Any]:
    """Append each written value to a list."""
    return [*(current or []), written]


def extend(current: Any, written: Any) -> list[Any]:
    """Concatenate written lists."""
    return [*(current or []), *written]


def add(current: Any, written: Any) -> Any:
    """Add written values up."""
    return written if current is None else current + written
