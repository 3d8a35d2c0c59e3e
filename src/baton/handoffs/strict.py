"""JSON schemas as strict providers want them: every property required, nothing else allowed, unions as `anyOf`."""

from copy import deepcopy
from typing import Any, cast

from ..errors import SetupError

_DEEPEST = 10
_MOST_PROPERTIES = 1000


def strict_schema(schema: dict[str, Any], what: str) -> dict[str, Any]:
    """A strict copy of the schema of an object. Raises SetupError if it is too deep, too large or never ends."""
    strict = deepcopy(schema)
    _Strictness(what, strict.get("$defs", {})).apply(strict, depth=0)
    return strict


class _Strictness:
    def __init__(self, what: str, definitions: dict[str, Any]) -> None:
        self._what = what
        self._definitions = definitions
        self._properties = 0
        self._are_definitions_done = False

    def apply(self, node: Any, *, depth: int) -> None:
        if not isinstance(node, dict):
            return
        if depth > 4 * _DEEPEST:
            raise SetupError(f"{self._what} is nested too deeply; providers take about {_DEEPEST} levels")
        schema = cast("dict[str, Any]", node)
        self._inline_reference(schema)
        if "oneOf" in schema:
            schema["anyOf"] = schema.pop("oneOf")
        schema.pop("discriminator", None)
        if len(schema.get("allOf", ())) == 1:
            only = schema.pop("allOf")[0]
            schema.update({**only, **schema})
            self._inline_reference(schema)
        self._close_object(schema)
        # A default would make a property optional, and every property is required here.
        schema.pop("default", None)
        self._go_deeper(schema, depth)

    def _inline_reference(self, schema: dict[str, Any]) -> None:
        """A reference with anything beside it is replaced by what it refers to: nothing may stand beside one."""
        for _ in range(_DEEPEST):
            if "$ref" not in schema or len(schema) == 1:
                return
            name = str(schema.pop("$ref")).rpartition("/")[2]
            schema.update({**deepcopy(self._definitions.get(name, {})), **schema})
        raise SetupError(f"{self._what} refers to itself in a way that never ends")

    def _close_object(self, schema: dict[str, Any]) -> None:
        if schema.get("type") != "object" and "properties" not in schema:
            return
        properties = schema.setdefault("properties", {})
        self._properties += len(properties)
        if self._properties > _MOST_PROPERTIES:
            raise SetupError(f"{self._what} has more than {_MOST_PROPERTIES} properties")
        extra = schema.get("additionalProperties")
        if isinstance(extra, dict) or (not properties and extra is True):
            raise SetupError(f"{self._what} has an object with arbitrary keys, which strict schemas cannot say")
        schema["additionalProperties"] = False
        schema["required"] = list(properties)

    def _go_deeper(self, schema: dict[str, Any], depth: int) -> None:
        for key in ("properties", "$defs"):
            for child in schema.get(key, {}).values():
                self.apply(child, depth=depth + 1)
        for key in ("anyOf", "allOf", "prefixItems"):
            for child in schema.get(key, ()):
                self.apply(child, depth=depth + 1)
        self.apply(schema.get("items"), depth=depth + 1)
