"""The run's shared key-value state. A write is recorded together with the effect that made it."""

from collections.abc import Iterator, Mapping, MutableMapping
from math import isfinite
from typing import Any, cast

import msgspec

from ..errors import NotEncodableError
from ..events import ValueChanges

_PLAIN = (bool, type(None))


def to_json_value(what: str, value: Any) -> Any:
    """The value as it will be read back from the log, so that a first run and a resumed one see the same."""
    if type(value) in _PLAIN or (type(value) is str and value.isascii()):
        return value
    try:
        return _as_read_back(msgspec.to_builtins(value, str_keys=True, enc_hook=_dump))
    except (TypeError, NotImplementedError, ValueError, RecursionError, msgspec.MsgspecError) as error:
        raise NotEncodableError(what, value, str(error) or type(error).__name__) from None


def _as_read_back(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_as_read_back(item) for item in cast("list[Any]", value)]
    if isinstance(value, dict):
        return {_as_read_back(key): _as_read_back(item) for key, item in cast("dict[str, Any]", value).items()}
    if isinstance(value, str):
        value.encode()  # Half of a surrogate pair, from a careless slice for instance, is not text.
    if isinstance(value, float) and not isfinite(value):
        raise ValueError(f"JSON has no {value}")
    return value


def _dump(value: Any) -> Any:
    dump = getattr(value, "model_dump", None)
    if dump is None:
        raise NotImplementedError(f"{type(value).__name__} is not JSON")
    return dump(mode="json")


class Values(Mapping[str, Any]):
    """The values as one activation or tool call sees and changes them."""

    __slots__ = ("_all", "_data", "_removed", "_written")

    def __init__(self, data: MutableMapping[str, Any]) -> None:
        self._data = data
        self._written: dict[str, Any] = {}
        self._removed: set[str] = set()
        self._all: dict[str, None] = {}
        """Every key ever written or removed through this: a call is recorded with all of them."""

    def __getitem__(self, key: str) -> Any:
        return self._data[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._data)

    def __len__(self) -> int:
        return len(self._data)

    def set(self, key: str, value: Any) -> None:
        """Write one value; it must be something JSON can hold."""
        plain = to_json_value(f"value `{key}`", value)
        self._data[key] = plain
        self._written[key] = plain
        self._all[key] = None
        self._removed.discard(key)

    def update(self, values: Mapping[str, Any]) -> None:
        """Write several values, all or none."""
        plain = {key: to_json_value(f"value `{key}`", value) for key, value in values.items()}
        for key, value in plain.items():
            self.set(key, value)

    def delete(self, key: str) -> None:
        """Forget one value; it need not be there."""
        self._data.pop(key, None)
        self._written.pop(key, None)
        self._all[key] = None
        self._removed.add(key)

    def take_changes(self) -> ValueChanges | None:
        """What was written since the last call, to be recorded with the effect that did it."""
        if not self._written and not self._removed:
            return None
        changes = ValueChanges(self._written, tuple(sorted(self._removed)))
        self._written, self._removed = {}, set()
        return changes

    def all_changes(self) -> ValueChanges | None:
        """What was written in all, whether or not a step inside has recorded some of it."""
        if not self._all:
            return None
        # As they are now: what was done beside this meanwhile came later, and must do so on a replay.
        written = {key: self._data[key] for key in self._all if key in self._data}
        return ValueChanges(written, tuple(sorted(key for key in self._all if key not in self._data)))

    def apply(self, changes: ValueChanges) -> None:
        """Do again what a recorded effect did; what the code wrote meanwhile is part of it."""
        for key in changes.removed:
            self._data.pop(key, None)
            self._all[key] = None
        self._data.update(changes.written)
        self._all.update(dict.fromkeys(changes.written))
        self._written, self._removed = {}, set()


class TrackedValues(MutableMapping[str, Any]):
    """The values for a part of a run, with note of what it wrote and removed, in order.

    Over a copy it is a branch's own state; over the run's values themselves it is the shared one, watched.
    """

    __slots__ = ("_data", "touched")

    def __init__(self, data: MutableMapping[str, Any]) -> None:
        self._data = data
        self.touched: dict[str, None] = {}

    def __getitem__(self, key: str) -> Any:
        return self._data[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._data)

    def __len__(self) -> int:
        return len(self._data)

    def __setitem__(self, key: str, value: Any) -> None:
        self.touched[key] = None
        self._data[key] = value

    def __delitem__(self, key: str) -> None:
        self.touched[key] = None
        del self._data[key]

    def pop(self, key: str, default: Any = None) -> Any:
        """Remove one value. That it was not there is noted too: a branch beside may have written it."""
        self.touched[key] = None
        return self._data.pop(key, default)

    def changes(self) -> ValueChanges | None:
        """What the part did to the values in all."""
        if not self.touched:
            return None
        written = {key: self._data[key] for key in self.touched if key in self._data}
        return ValueChanges(written, tuple(sorted(key for key in self.touched if key not in self._data)))
