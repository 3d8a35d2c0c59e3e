"""Wrong arguments by combination: every value of a pool for every parameter that does not accept it."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any


async def check(ctx: Any, value: Any) -> bool:
    """Accept everything."""
    return True


def _takes_five(a: int, b: int, c: int, d: int, e: int) -> None:
    """Take more arguments than any callback is given."""


DEEP: dict[str, Any] = {}
_inner = DEEP
for _ in range(5000):
    _inner["a"] = _inner = {}

POOL: Mapping[str, Any] = {
    "integer": 5,
    "minus": -1,
    "float": 2.5,
    "nan": float("nan"),
    "true": True,
    "none": None,
    "text": "wrong",
    "surrogate": "\ud800",
    "empty": "",
    "bytes": b"x",
    "list": [object()],
    "tuple": (1, None),
    "dict": {"a": 1},
    "deep": DEEP,
    "set": {1, "x"},
    "object": object(),
    "function": _takes_five,
    "class": int,
    "error": ValueError("x"),
    "coroutine function": check,
    "complex": 1j,
    "range": range(3),
}

_TEXTS = {"text", "empty", "surrogate"}
_NUMBERS = {"integer", "minus", "float"}
_FUNCTIONS = {"function", "class", "coroutine function"}
_DICTS = {"dict", "deep"}
_LISTS = {"list", "tuple", "set", "range"}

KINDS: Mapping[str, set[str]] = {
    "text": _TEXTS,
    "name": {"text", "surrogate"},
    "flag": {"true"},
    "integer": {"integer", "minus"},
    "count": {"integer"},
    "number": _NUMBERS,
    "seconds": {"integer", "float"},
    "callback": _FUNCTIONS,
    "strict callback": {"class"},
    "strict callback of two": {"class", "coroutine function"},
    "function of two": {"coroutine function"},
    "list": _LISTS,
    "list of texts": set(),
    "agents": set(),
    "dict": _DICTS,
    "object": set(),
    "choice": set(),
    "address": _TEXTS,
    "prompt": _TEXTS | {"class"},
    "model": _TEXTS,
    "history": _FUNCTIONS,
    "class only": {"class"},
    "fraction": set(),
    "nothing": set(),
    "number of steps": {"true", "integer"},
    "passwords": _DICTS | _FUNCTIONS,
    "function": {"function", "coroutine function"},
    "credentials": _TEXTS | _DICTS | _LISTS | _FUNCTIONS,
    "store": _TEXTS,
    "address or dict": _TEXTS | _DICTS,
    "approval or names": {"true", *_FUNCTIONS},
    "approval": {"true", "class", "coroutine function"},
    "error policy": _FUNCTIONS,
}
"""The values of the pool that a parameter of each kind accepts, or that are checked elsewhere."""


@dataclass(frozen=True)
class Target:
    """A callable, arguments that work, and the kinds of its parameters; `?` after a kind stands for "or None"."""

    call: Callable[..., Any]
    valid: Mapping[str, Any] = field(default_factory=dict[str, Any])
    kinds: Mapping[str, str] = field(default_factory=dict[str, str])
    first: tuple[Any, ...] = ()
    """Positional arguments."""
    label: str = ""

    @property
    def name(self) -> str:
        """The name of the callable."""
        return self.label or getattr(self.call, "__qualname__", repr(self.call))

    def cases(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield a label and the arguments of each case."""
        for parameter, kind in self.kinds.items():
            accepted = KINDS[kind.removesuffix("?")] | ({"none"} if kind.endswith("?") else set[str]())
            for label, value in POOL.items():
                if label not in accepted:
                    yield f"{self.name}({parameter}={label})", {**self.valid, parameter: value}
