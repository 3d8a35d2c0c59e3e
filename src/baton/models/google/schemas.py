"""The part of JSON schema that Google takes, and how the rest is said in it."""

from typing import Any, cast

import msgspec

# What the documentation of the API lists; anything else may be refused.
_TAKEN = frozenset(
    (
        *("$ref", "$defs", "$id", "$anchor", "type", "format", "title", "description", "enum", "items", "prefixItems"),
        *("minItems", "maxItems", "minimum", "maximum", "anyOf", "properties", "additionalProperties", "required"),
        "propertyOrdering",
    )
)
_SILENT = frozenset(("$schema", "default", "examples", "discriminator", "const", "oneOf", "allOf", "title"))
_FORMATS = {"string": ("date-time", "date", "time"), "integer": ("int32", "int64"), "number": ("float", "double")}


def taken_by_google(schema: Any) -> Any:
    """The same schema in what Google takes. A bound that it cannot check is told in the description."""
    if not isinstance(schema, dict):
        return schema
    given = cast("dict[str, Any]", schema)
    if "$ref" in given and len(given) > 1:
        return _reference_with_more(given)
    written = {key: _converted(key, value) for key, value in given.items() if key in _TAKEN and key != "title"}
    if "const" in given:
        written["enum"] = [given["const"]]
    if "oneOf" in given:
        written["anyOf"] = [*written.get("anyOf", []), *_converted("anyOf", given["oneOf"])]
    for part in given.get("allOf", []):
        written |= taken_by_google(part)
    unsaid = {key: value for key, value in given.items() if key not in _TAKEN and key not in _SILENT}
    shape = written.get("format")
    if shape is not None and shape not in _FORMATS.get(str(written.get("type")), ()):
        unsaid["format"] = written.pop("format")
    if unsaid:
        bounds = ", ".join(f"{key}: {msgspec.json.encode(value).decode()}" for key, value in unsaid.items())
        written["description"] = f"{written.get('description', '')} ({bounds})".strip()
    return written


def _converted(key: str, value: Any) -> Any:
    if key in ("properties", "$defs"):
        # The keys in here are names, not words of the schema.
        return {name: taken_by_google(each) for name, each in value.items()}
    if key in ("anyOf", "prefixItems"):
        return [taken_by_google(each) for each in value]
    if key in ("items", "additionalProperties"):
        return taken_by_google(value)
    return value


def _reference_with_more(given: dict[str, Any]) -> dict[str, Any]:
    """Beside a reference nothing else may stand, so it goes one level down."""
    beside = {key: value for key, value in given.items() if key not in ("$ref", "$defs")}
    around: dict[str, Any] = {"$defs": _converted("$defs", given["$defs"])} if "$defs" in given else {}
    more = taken_by_google(beside)
    return {**around, "$ref": given["$ref"]} if not more else {**around, "anyOf": [{"$ref": given["$ref"]}], **more}
