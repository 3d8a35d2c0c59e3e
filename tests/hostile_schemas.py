"""JSON schemas that a hostile service might send with a question."""

from typing import Any


def nested(levels: int) -> dict[str, Any]:
    """Return a schema of this many levels."""
    schema: dict[str, Any] = {}
    for _ in range(levels):
        schema = {"properties": {"a": schema}}
    return schema


def doubled(levels: int) -> dict[str, Any]:
    """Return a small schema whose references make 2 ** levels schemas."""
    definitions: dict[str, Any] = {
        f"d{level}": {"allOf": [{"$ref": f"#/$defs/d{level + 1}"}, {"$ref": f"#/$defs/d{level + 1}"}]}
        for level in range(levels)
    }
    return {"$ref": "#/$defs/d0", "$defs": {**definitions, f"d{levels}": {}}}


NO_PART = "which is no part of it"
ENDLESS = "refers to itself without end"
UNUSABLE: dict[str, tuple[dict[str, Any], str]] = {
    "a web address": ({"$ref": "http://127.0.0.1:9/schema.json"}, NO_PART),
    "a file": ({"$ref": "file:///etc/passwd"}, NO_PART),
    "a relative address": ({"$id": "http://127.0.0.1:9/a", "$ref": "b"}, NO_PART),
    "an address in a part": ({"properties": {"a": {"items": {"$ref": "http://127.0.0.1:9/"}}}}, NO_PART),
    "an address in a part with a dialect": (
        {"properties": {"a": {"$schema": "http://json-schema.org/draft-04/schema#", "$ref": "http://127.0.0.1:9/"}}},
        NO_PART,
    ),
    "a dynamic address": ({"$dynamicRef": "http://127.0.0.1:9/"}, "`[$]dynamicRef`, which is not supported"),
    "data as a schema": ({"default": {"type": 5}, "$ref": "#/default"}, NO_PART),
    "a missing part": ({"$ref": "#/$defs/a"}, NO_PART),
    "a wrong type": ({"type": 5}, r"Expected `str \| array`, got `int` - at `[$].type`"),
    "an unknown type": ({"type": "text"}, "Invalid enum value 'text'"),
    "a wrong keyword": ({"properties": {"a": {"required": True}}}, "Expected `array`, got `bool`"),
    "null": ({"items": None}, "Expected `bool | object`, got `null`"),
    "itself": ({"$ref": "#"}, ENDLESS),
    "itself through another": ({"anyOf": [{"type": "string"}, {"not": {"$ref": "#"}}]}, ENDLESS),
    "a circle": ({"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}}, ENDLESS),
    "a circle of a part": ({"properties": {"a": {"$ref": "#/properties/a"}}}, ENDLESS),
    "a long chain": (doubled(40), ENDLESS),
    "doubled references": (doubled(12), "combines more than 1000 schemas"),
    "too many levels": (nested(200), "nested more deeply than 64 levels"),
    "endless levels": (nested(5000), "not JSON, or nested too deeply"),
    "too large": ({"enum": ["x" * 100] * 1000}, "larger than 64 KB"),
    "a lookahead": ({"pattern": "^(?=(a+)+$)b"}, "has a lookaround or a backreference"),
    "a backreference": ({"patternProperties": {r"^(a+)\1$": {}}}, "has a lookaround or a backreference"),
    "an invalid pattern": ({"pattern": "("}, "is invalid or too complex"),
    "an enormous pattern": ({"pattern": r"((\w{100}){100}){100}"}, "patterns of the schema are too complex"),
    "many large patterns": ({"anyOf": [{"pattern": rf"\w{{99}}{n}"} for n in range(99)]}, "are too complex"),
}
"""Schemas that no question can have, and a pattern of the reason."""
