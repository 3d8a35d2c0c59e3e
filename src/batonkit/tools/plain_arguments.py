"""Tool arguments of plain types, validated without pydantic, whose import is most of the time of a short program."""

from collections.abc import Mapping
from functools import cached_property
from math import isfinite
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import UNSET

from .base_tool import ToolResult

if TYPE_CHECKING:
    from .arguments import ArgumentParser

_SCHEMAS: dict[Any, dict[str, Any]] = {
    str: {"type": "string"},
    int: {"type": "integer"},
    float: {"type": "number"},
    bool: {"type": "boolean"},
    list[str]: {"items": {"type": "string"}, "type": "array"},
    list[int]: {"items": {"type": "integer"}, "type": "array"},
    list[float]: {"items": {"type": "number"}, "type": "array"},
}
"""The JSON schema of each plain type, as pydantic writes it."""
_PLAIN_TYPES = tuple(_SCHEMAS)
_PLAIN_DEFAULTS = (str, int, float, bool, type(None))


def is_plain(hints: Mapping[str, Any], defaults: Mapping[str, Any]) -> bool:
    """Return whether parameters have only plain types and defaults."""
    return all(hint in _PLAIN_TYPES and not name.startswith("__") for name, hint in hints.items()) and all(
        type(defaults[name]) in _PLAIN_DEFAULTS and (type(defaults[name]) is not float or isfinite(defaults[name]))
        for name in hints
        if name in defaults
    )


class PlainArgumentParser:
    """The schema and validator of parameters that all have plain types; see `is_plain`.

    It accepts arguments of exactly these types. All others go to the `ArgumentParser`, which converts them with
    pydantic, or tells the model what is wrong.
    """

    def __init__(
        self, tool: str, hints: Mapping[str, Any], *, defaults: Mapping[str, Any], descriptions: Mapping[str, str]
    ) -> None:
        self._tool = tool
        self._hints = hints
        self._defaults = defaults
        self._descriptions = descriptions
        fields = [(name, hint, UNSET) if name in defaults else (name, hint) for name, hint in hints.items()]
        kind = msgspec.defstruct("Arguments", fields, kw_only=True, forbid_unknown_fields=True)
        self._decode = msgspec.json.Decoder(kind).decode
        self.schema = self._build_schema()

    def parse(self, text: str) -> dict[str, Any] | ToolResult:
        """Return the arguments in the text by parameter, or an error result for the model."""
        try:
            arguments = msgspec.structs.asdict(self._decode(text))
        except (msgspec.MsgspecError, UnicodeError):
            return self._lenient.parse(text)
        return {name: value for name, value in arguments.items() if value is not UNSET}

    @cached_property
    def _lenient(self) -> "ArgumentParser":
        from .arguments import ArgumentParser

        return ArgumentParser(self._tool, self._hints, defaults=self._defaults, descriptions=self._descriptions)

    def _build_schema(self) -> dict[str, Any]:
        properties: dict[str, Any] = {}
        for name, hint in self._hints.items():
            field: dict[str, Any] = {"default": self._defaults[name]} if name in self._defaults else {}
            if self._descriptions.get(name):
                field["description"] = self._descriptions[name]
            # The order of the keys is pydantic's.
            properties[name] = dict(sorted({**field, **_SCHEMAS[hint]}.items()))
        schema: dict[str, Any] = {"additionalProperties": False, "properties": properties}
        required = [name for name in self._hints if name not in self._defaults]
        if required:
            schema["required"] = required
        schema["type"] = "object"
        return schema
