"""The run's shared key-value state. A change is recorded in the event of the step that made it."""

from collections.abc import Iterable, Iterator, Mapping, MutableMapping
from math import isfinite
from typing import Any, TypeVar, cast

import msgspec

from ..errors import NotEncodableError
from ..log import ValueChanges
from ..messages.valid_text import valid_text, with_valid_text
from .read_only import freeze, freeze_items

T = TypeVar("T")

_PLAIN = (bool, type(None))

THREAD_PREFIX = "thread:"
"""Values whose keys begin with this are passed on to the next run of the thread."""


def to_json_value(what: str, value: Any, *, is_strict: bool = False) -> Any:
    """Convert a value to JSON data, as it will be read back from the log.

    Halves of surrogate pairs, such as in file names, are replaced.

    Args:
        what: The value in error messages.
        value: The value.
        is_strict: Whether halves of surrogate pairs are refused: a caller can correct them, code that has acted cannot.

    Raises:
        NotEncodableError: JSON cannot represent it.
    """
    if type(value) in _PLAIN or (type(value) is str and value.isascii()):
        return value
    try:
        return _as_read_back(msgspec.to_builtins(value, str_keys=True, enc_hook=_dump), is_strict=is_strict)
    except (TypeError, NotImplementedError, ValueError, RecursionError, msgspec.MsgspecError) as error:
        raise NotEncodableError(what, value, str(error) or type(error).__name__) from None


def require_encodable(what: str, value: T) -> T:
    """Return what a caller gives; raise NotEncodableError if its text is not valid."""
    if with_valid_text(value) is not value:
        raise NotEncodableError(what, value, "it has half of a surrogate pair, which is not valid text")
    return value


def _as_read_back(value: Any, *, is_strict: bool) -> Any:
    if isinstance(value, list | tuple):
        return [_as_read_back(item, is_strict=is_strict) for item in cast("list[Any]", value)]
    if isinstance(value, dict):
        items = cast("dict[str, Any]", value).items()
        read = {
            _as_read_back(key, is_strict=is_strict): _as_read_back(item, is_strict=is_strict) for key, item in items
        }
        if len(read) < len(items):
            raise ValueError("keys are equal once the halves of surrogate pairs in them are replaced")
        return read
    if isinstance(value, str):
        if not is_strict:
            return valid_text(value)
        value.encode()  # Raises for half of a surrogate pair.
    if isinstance(value, float) and not isfinite(value):
        raise ValueError(f"JSON has no {value}")
    return value


def _dump(value: Any) -> Any:
    dump = getattr(value, "model_dump", None)
    if dump is None:
        raise NotImplementedError(f"{type(value).__name__} is not JSON")
    return dump(mode="json")


class _ReadableValues(Mapping[str, Any]):
    """A read-only mapping over the run's values."""

    __slots__ = ("_data",)

    def __init__(self, data: MutableMapping[str, Any]) -> None:
        self._data = data

    def __getitem__(self, key: str) -> Any:
        return self._data[valid_text(key)]

    def __iter__(self) -> Iterator[str]:
        return iter(self._data)

    def __len__(self) -> int:
        return len(self._data)

    def _present(self, keys: Iterable[str]) -> ValueChanges | None:
        """Return the changes that lead to the present values of these keys; None without keys."""
        written = {key: self._data[key] for key in keys if key in self._data}
        removed = tuple(sorted(key for key in keys if key not in self._data))
        return ValueChanges(written, removed) if written or removed else None


class Values(_ReadableValues):
    """The run's values: a read-only mapping with methods to change them.

    Changes are recorded and survive a resume. Lists and dicts among the values cannot be changed in place, because that
    would not be recorded: change a copy and `set` it. Get it as `ctx.values`.

    Args:
        data: The run's state, shared by all contexts of the run.
    """

    __slots__ = ("_all", "_removed", "_written")

    def __init__(self, data: MutableMapping[str, Any]) -> None:
        self._data = data
        self._written: dict[str, Any] = {}
        self._removed: set[str] = set()
        self._all: dict[str, None] = {}
        """Every key changed in this context: a tool call is recorded with all of them."""

    def set(self, key: str, value: Any) -> None:
        """Set one value.

        Args:
            key: The key.
            value: JSON data, a dataclass or a pydantic model; it is stored as JSON data.

        Raises:
            NotEncodableError: JSON cannot represent the value.
        """
        key = valid_text(key)
        plain = freeze(to_json_value(f"value `{key}`", value))
        self._data[key] = plain
        self._written[key] = plain
        self._all[key] = None
        self._removed.discard(key)

    def update(self, values: Mapping[str, Any]) -> None:
        """Set several values, all or none.

        Args:
            values: The values by key.

        Raises:
            NotEncodableError: JSON cannot represent a value.
        """
        plain = {key: to_json_value(f"value `{key}`", value) for key, value in values.items()}
        for key, value in plain.items():
            self.set(key, value)

    def delete(self, key: str) -> None:
        """Delete one value, if it exists.

        Args:
            key: The key.
        """
        key = valid_text(key)
        self._data.pop(key, None)
        self._written.pop(key, None)
        self._all[key] = None
        self._removed.add(key)

    def _take_changes(self) -> ValueChanges | None:
        """Return and reset the changes since the previous recorded step."""
        if not self._written and not self._removed:
            return None
        changes = ValueChanges(self._written, tuple(sorted(self._removed)))
        self._written = {}
        self._removed = set()
        return changes

    def _all_changes(self) -> ValueChanges | None:
        """Return all changes made in this context, including those that a step inside has recorded."""
        # The present values: parallel changes came later, and must do so on a replay.
        return self._present(self._all)

    def _apply(self, changes: ValueChanges) -> None:
        """Apply recorded changes; they include the pending ones."""
        for key in changes.removed:
            self._data.pop(key, None)
            self._all[key] = None
        self._data.update(freeze_items(changes.written))
        self._all.update(dict.fromkeys(changes.written))
        self._written = {}
        self._removed = set()


class TrackedValues(_ReadableValues, MutableMapping[str, Any]):
    """The values of a part of a run, with a record of the keys it changed."""

    __slots__ = ("touched",)

    def __init__(self, data: MutableMapping[str, Any]) -> None:
        self._data = data
        self.touched: dict[str, None] = {}
        """The changed keys, in order."""

    def __setitem__(self, key: str, value: Any) -> None:
        self.touched[key] = None
        self._data[key] = value

    def __delitem__(self, key: str) -> None:
        self.touched[key] = None
        del self._data[key]

    def pop(self, key: str, default: Any = None) -> Any:
        """Remove one value. A missing key counts as changed: a parallel branch may have set it."""
        self.touched[key] = None
        return self._data.pop(key, default)

    def changes(self) -> ValueChanges | None:
        """Return all changes of the part."""
        return self._present(self.touched)
