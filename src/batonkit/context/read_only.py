"""Lists and dicts that cannot be changed in place, for the run's values: only `set` records a change."""

from collections.abc import Callable, Mapping
from typing import Any, NoReturn, cast

import msgspec

from ..errors import SetupError


class ReadOnlyList(list[Any]):
    """A list that refuses changes; a copy of it is a plain list."""

    __slots__ = ()

    def copy(self) -> list[Any]:
        """Return a plain list with the same items."""
        return list(self)

    __copy__ = copy

    def __deepcopy__(self, memo: object) -> list[Any]:
        return msgspec.to_builtins(self)

    def __reduce__(self) -> tuple[Any, ...]:
        return list, (msgspec.to_builtins(self),)


class ReadOnlyDict(dict[str, Any]):
    """A dict that refuses changes; a copy of it is a plain dict."""

    __slots__ = ()

    def copy(self) -> dict[str, Any]:
        """Return a plain dict with the same items."""
        return dict(self)

    __copy__ = copy

    def __deepcopy__(self, memo: object) -> dict[str, Any]:
        return msgspec.to_builtins(self)

    def __reduce__(self) -> tuple[Any, ...]:
        return dict, (msgspec.to_builtins(self),)


def _refuse(operation: str) -> Callable[..., NoReturn]:
    def refuse(self: object, *args: object, **kwargs: object) -> NoReturn:
        raise SetupError(
            f"a value of the run cannot be changed in place with `{operation}`, because the change would not be "
            "recorded; change a copy (copy.deepcopy) and set it: ctx.values.set(key, changed)"
        )

    return refuse


_CHANGES_OF_LISTS = "append clear extend insert pop remove reverse sort __setitem__ __delitem__ __iadd__ __imul__"
_CHANGES_OF_DICTS = "clear pop popitem setdefault update __setitem__ __delitem__ __ior__"
for _name in _CHANGES_OF_LISTS.split():
    setattr(ReadOnlyList, _name, _refuse(_name))
for _name in _CHANGES_OF_DICTS.split():
    setattr(ReadOnlyDict, _name, _refuse(_name))


def freeze(value: Any) -> Any:
    """Return JSON data whose lists and dicts, at every level, cannot be changed."""
    if type(value) is list:
        return ReadOnlyList([freeze(item) for item in cast("list[Any]", value)])
    if type(value) is dict:
        return ReadOnlyDict(freeze_items(cast("dict[str, Any]", value)))
    return value


def freeze_items(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return a new dict whose values cannot be changed in place."""
    return {key: freeze(value) for key, value in values.items()}
