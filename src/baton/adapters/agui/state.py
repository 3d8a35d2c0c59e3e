"""The run's values as the other side's state: a snapshot at the beginning, then changes."""

from collections.abc import Mapping
from typing import Any, cast

from ...events import ValueChanges
from ..http.problems import ServingError

HIDDEN = ("baton.", "agui.")
"""What keys begin with that are not for the other side: neither shown to it nor taken from it."""


class StateMirror:
    """The values as far as the other side sees them."""

    def __init__(self) -> None:
        self._values: dict[str, Any] = {}

    def begin(self, values: Mapping[str, Any]) -> None:
        """Take in what a run began with."""
        self._values.update({key: value for key, value in values.items() if not key.startswith(HIDDEN)})

    def shown(self) -> dict[str, Any]:
        """All of it."""
        return dict(self._values)

    def change(self, changes: ValueChanges | None) -> list[Any]:
        """Make changes; what they are as a JSON patch."""
        if changes is None:
            return []
        patch: list[Any] = []
        for key, value in changes.written.items():
            if not key.startswith(HIDDEN):
                self._values[key] = value
                patch.append({"op": "add", "path": _pointer(key), "value": value})
        for key in changes.removed:
            # A patch that removes what is not there is refused as a whole.
            if key in self._values:
                del self._values[key]
                patch.append({"op": "remove", "path": _pointer(key)})
        return patch


def values_in(state: Any) -> dict[str, Any]:
    """The state that a request brings, as values to begin a run with."""
    if state is None:
        return {}
    values = cast("dict[str, Any]", state) if isinstance(state, dict) else {HIDDEN[0]: state}
    if any(key.startswith(HIDDEN) for key in values):
        raise ServingError(
            422, "invalid", "`state` must be an object, with no key that begins with `baton.` or `agui.`"
        )
    return values


def _pointer(key: str) -> str:
    return "/" + key.replace("~", "~0").replace("/", "~1")
