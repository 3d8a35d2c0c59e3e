"""How a value that several branches wrote becomes one."""

from collections.abc import Callable
from typing import Any, TypeAlias

Reducer: TypeAlias = Callable[[Any, Any], Any]
"""`(current, written) -> merged`, called for each branch that wrote the value, in the order of declaration.

`current` is None if there was nothing before.
"""


def append(current: Any, written: Any) -> list[Any]:
    """A list of what the branches wrote, after what was there."""
    return [*(current or []), written]


def extend(current: Any, written: Any) -> list[Any]:
    """One list of all the lists that branches wrote, after what was there."""
    return [*(current or []), *written]


def add(current: Any, written: Any) -> Any:
    """The sum of what was there and what each branch wrote."""
    return written if current is None else current + written
