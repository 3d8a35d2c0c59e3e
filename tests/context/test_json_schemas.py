"""JSON schemas of strangers: what is refused, what can be used, and how much work a value may take."""

import re
import socket
from typing import Any, NoReturn
from urllib import request

import pytest
from tests.hostile_schemas import UNUSABLE, nested

from batonkit.context.json_schemas import JSONSchema, SchemaError

TOO_MUCH = "takes too much work to check"


@pytest.mark.parametrize("name", UNUSABLE)
def test_a_schema_that_is_unsafe_is_refused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: Any, **options: Any) -> NoReturn:
        pytest.fail(f"something was fetched: {arguments}")

    monkeypatch.setattr(socket, "socket", refuse)
    monkeypatch.setattr(request, "urlopen", refuse)
    schema, reason = UNUSABLE[name]
    with pytest.raises(SchemaError, match=reason):
        JSONSchema(schema)


TREE = {
    "$defs": {"node": {"type": "object", "properties": {"children": {"items": {"$ref": "#/$defs/node"}}}}},
    "$ref": "#/$defs/node",
}
FORM = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "$id": "https://example.com/form.json",
    "title": "A form",
    "type": "object",
    "properties": {"size": {"type": "integer", "title": "Size", "default": 4}, "a/b": {"const": None}},
    "patternProperties": {"^x-": {"type": "string"}},
    "additionalProperties": False,
}


VALUES: list[tuple[dict[str, Any], Any, list[str]]] = [
    ({}, "anything", []),
    (FORM, {"size": 4, "x-note": "hi", "a/b": None}, []),
    (FORM, {"size": "4"}, ["size: '4' is not of type 'integer'"]),
    (FORM, {"x-note": 4}, ["x-note: 4 is not of type 'string'"]),
    (FORM, {"y": 4}, ["it: Additional properties are not allowed ('y' was unexpected)"]),
    ({"properties": FORM["properties"], "additionalProperties": {"type": "null"}}, {"y": None}, []),
    ({"properties": {"a/b": {"type": "null"}, "c": {"$ref": "#/properties/a~1b"}}}, {"c": None}, []),
    ({"additionalProperties": {"type": "null"}}, {"y": 1}, ["y: 1 is not of type 'null'"]),
    (TREE, {"children": [{"children": []}]}, []),
    (TREE, {"children": [{"children": [5]}]}, ["children.0.children.0: 5 is not of type 'object'"]),
    ({"pattern": r"^\d{3}-\d{4}$"}, "555-0123", []),
    ({"pattern": r"^\d{3}-\d{4}$"}, "5550123", [r"it: '5550123' does not match '^\\d{3}-\\d{4}$'"]),
    ({"pattern": r"^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$"}, "0" * 8 + "-0000" * 3 + "-" + "0" * 12, []),
    ({"pattern": "a"}, 5, []),
    (
        {"$schema": "http://json-schema.org/draft-04/schema#", "maximum": 5},
        6,
        ["it: 6 is greater than the maximum"],
    ),
    ({"uniqueItems": True}, [1, 2, 1], ["it: [1, 2, 1] has non-unique elements"]),
    ({"enum": [[1], {"a": 2}]}, {"a": 2}, []),
    ({"oneOf": [{"type": "string"}, {"minimum": 5}]}, 7, []),
    (nested(30), {"a": {"a": {}}}, []),
]


@pytest.mark.parametrize(("schema", "value", "problems"), VALUES)
def test_a_value_is_checked_against_a_safe_schema(schema: dict[str, Any], value: Any, problems: list[str]) -> None:
    found = JSONSchema(schema).problems("it", value)
    assert len(found) == len(problems)
    for problem, expected in zip(found, problems, strict=True):
        assert problem.startswith(expected)


def test_only_a_few_problems_are_reported_and_none_is_long() -> None:
    problems = JSONSchema({"items": {"type": "integer"}}).problems("it", ["x" * 10_000] * 20)
    assert len(problems) == 5
    assert all(len(problem) < 400 for problem in problems)


@pytest.mark.parametrize("pattern", ["^(a+)+$", "(a|a)*b", "(.*)*x", "(x+x+)+y", "a*a*a*a*b"])
def test_a_pattern_that_backtracks_takes_no_longer_than_others(pattern: str) -> None:
    # Python's own engine would need longer than the universe exists.
    schema = JSONSchema({"properties": {"a": {"pattern": pattern}}})
    (problem,) = schema.problems("it", {"a": "a" * 5000 + "!"})
    assert "does not match" in problem


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {"a": {"$schema": "http://json-schema.org/draft-04/schema#", "pattern": "^(a+)+$"}}},
        {"patternProperties": {"^(a+)+$": {"type": "integer"}}},
        {"patternProperties": {"^(b+)+$": {"type": "integer"}}, "additionalProperties": {"type": "integer"}},
    ],
)
def test_no_pattern_reaches_the_engine_of_python(schema: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: Any) -> NoReturn:
        pytest.fail(f"Python matched {arguments[0]}")

    checked = JSONSchema(schema)
    checked.problems("it", {})
    monkeypatch.setattr(re, "search", refuse)
    assert len(checked.problems("it", {"a": "x"})) == 1


TOO_MUCH_WORK: list[tuple[dict[str, Any], Any]] = [
    ({"items": {"type": "integer"}}, [1] * 100_000),
    ({"items": {"not": {"anyOf": [{"type": "string"}] * 900}}}, [1] * 100),
    ({"anyOf": [{"type": "integer"}] * 900}, "x" * 1_000_000),
    ({"items": {"enum": [[n] for n in range(5000)]}}, [[5000]] * 1000),
    ({"uniqueItems": True}, [[n, {"a": n}] for n in range(5000)]),
    ({"pattern": "(?:a?){900}b"}, "a" * 1_000_000),
    ({"patternProperties": {f"{n}$": {} for n in range(900)}}, {str(n): 1 for n in range(1000)}),
]


@pytest.mark.parametrize(("schema", "value"), TOO_MUCH_WORK)
def test_a_value_that_takes_too_much_work_is_not_checked(schema: dict[str, Any], value: Any) -> None:
    with pytest.raises(SchemaError, match=TOO_MUCH):
        JSONSchema(schema).problems("it", value)


def test_a_value_that_is_nested_too_deeply_is_not_checked() -> None:
    value: Any = {}
    for _ in range(5000):
        value = {"children": [value]}
    with pytest.raises(SchemaError, match=TOO_MUCH):
        JSONSchema(TREE).problems("it", value)


def test_numbers_that_do_not_fit_are_no_failure() -> None:
    with pytest.raises(SchemaError, match=TOO_MUCH):
        JSONSchema({"multipleOf": 0.5}).problems("it", 10**400)
