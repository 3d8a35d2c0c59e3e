"""Strict JSON schemas of handoff inputs."""

import re
from copy import deepcopy
from datetime import date
from enum import Enum
from typing import Annotated, Any, Literal, NamedTuple, cast

import pytest
from pydantic import BaseModel, Field, TypeAdapter, create_model

from batonkit import Agent, Runner, SetupError, handoff
from batonkit.handoffs.input_type import strict_schema


class Address(BaseModel):
    """A postal address."""

    street: str
    zip: str | None = None


class Cat(BaseModel):
    kind: Literal["cat"]
    lives: int = 9


class Dog(BaseModel):
    kind: Literal["dog"]


class Order(BaseModel):
    """A model with nested models, a union, defaults and a list."""

    number: int = 7
    home: Address
    work: Address | None = Field(default=None, description="where they work")
    pet: Annotated[Cat | Dog, Field(discriminator="kind")]
    tags: list[Address] = []


class Node(BaseModel):
    """A recursive model."""

    children: list["Node"] = []


class Tree(BaseModel):
    left: "Tree | None" = Field(default=None, description="smaller")
    parent: "Tree" = Field(description="above")


class Chicken(BaseModel):
    laid: list["Egg"]


class Egg(BaseModel):
    hatched: Chicken


class Described(BaseModel):
    home: Address = Field(description="where they live")


class KeywordNames(BaseModel):
    title: str
    default: int = 3
    properties: list[str]
    discriminator: Address


class Colour(Enum):
    RED = "red"
    GREEN = "green"


class Point(NamedTuple):
    x: int
    y: int


def schema_of(input_type: Any) -> dict[str, Any]:
    """Return the parameters of the handoff tool with this input type."""
    runner = Runner(Agent("A", handoffs=[handoff(Agent("B"), input_type=input_type)]))
    (spec,) = runner.team.members["A"].routes.specs
    return spec.parameters


def find_dicts(node: object) -> list[dict[str, Any]]:
    """Return all dicts in a schema, at any depth."""
    if isinstance(node, list):
        return [found for child in cast("list[object]", node) for found in find_dicts(child)]
    if not isinstance(node, dict):
        return []
    current = cast("dict[str, Any]", node)
    return [current, *[found for child in current.values() for found in find_dicts(child)]]


def test_every_property_is_required_and_nothing_else_is_allowed() -> None:
    objects = [each for each in find_dicts(schema_of(Order)) if isinstance(each.get("properties"), dict)]
    assert len(objects) >= 4
    for each in objects:
        assert each["required"] == list(each["properties"])
        assert each["additionalProperties"] is False


def test_unions_are_any_of_and_defaults_are_gone() -> None:
    shown = str(schema_of(Order))
    assert "oneOf" not in shown
    assert "discriminator" not in shown
    assert "'default'" not in shown
    assert "anyOf" in shown


def test_references_have_no_siblings() -> None:
    references = [each for each in find_dicts(schema_of(Order)) if "$ref" in each]
    assert references
    assert all(list(each) == ["$ref"] for each in references)


def test_a_recursive_type_is_allowed() -> None:
    # References may be circular if they have no siblings.
    node = {
        "description": "A recursive model.",
        "type": "object",
        "properties": {"children": {"type": "array", "items": {"$ref": "#/$defs/Node"}}},
        "required": ["children"],
        "additionalProperties": False,
    }
    assert schema_of(Node) == {**node, "$defs": {"Node": node}}


def test_the_description_of_a_recursive_field_is_dropped() -> None:
    # It cannot be inlined without end, and a reference may not have siblings.
    schema = schema_of(Tree)
    reference = {"$ref": "#/$defs/Tree"}
    assert schema["properties"]["left"] == {"anyOf": [reference, {"type": "null"}], "description": "smaller"}
    assert schema["properties"]["parent"] == reference
    assert schema["$defs"]["Tree"]["properties"]["parent"] == reference


def test_mutually_recursive_types_are_allowed() -> None:
    schema = schema_of(Chicken)
    assert schema["properties"] == {"laid": {"type": "array", "items": {"$ref": "#/$defs/Egg"}}}
    assert schema["$defs"]["Egg"]["properties"] == {"hatched": {"$ref": "#/$defs/Chicken"}}
    assert schema["$defs"]["Chicken"]["required"] == ["laid"]


def test_fields_with_a_description_are_inlined_and_unused_definitions_removed() -> None:
    schema = schema_of(Order)
    work, nothing = schema["properties"]["work"]["anyOf"]
    assert (work, nothing) == ({"$ref": "#/$defs/Address"}, {"type": "null"})
    assert schema_of(Described) == {
        "type": "object",
        "properties": {
            "home": {
                "description": "where they live",
                "type": "object",
                "properties": {
                    "street": {"type": "string"},
                    "zip": {"anyOf": [{"type": "string"}, {"type": "null"}]},
                },
                "required": ["street", "zip"],
                "additionalProperties": False,
            }
        },
        "required": ["home"],
        "additionalProperties": False,
    }


def test_properties_may_have_the_names_of_schema_keywords() -> None:
    # Only schema keywords are removed.
    schema = schema_of(KeywordNames)
    assert list(schema["properties"]) == ["title", "default", "properties", "discriminator"]
    assert schema["required"] == list(schema["properties"])
    assert "'title':" not in str(schema["properties"]["title"])


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (str | None, {"anyOf": [{"type": "string"}, {"type": "null"}]}),
        (Colour, {"type": "string", "enum": ["red", "green"]}),
        (Literal["a"], {"type": "string", "const": "a"}),
        (list[list[int]], {"type": "array", "items": {"type": "array", "items": {"type": "integer"}}}),
        (tuple[int, ...], {"type": "array", "items": {"type": "integer"}}),
        # Strict schemas have no types of single positions; the parser checks them.
        (tuple[int, int], {"type": "array", "items": {"type": "integer"}, "minItems": 2, "maxItems": 2}),
        (
            tuple[int, str, int],
            {"type": "array", "items": {"anyOf": [{"type": "integer"}, {"type": "string"}]}}
            | {"minItems": 3}
            | {"maxItems": 3},
        ),
        (Point, {"type": "array", "items": {"type": "integer"}, "minItems": 2, "maxItems": 2}),
        (
            Annotated[int, Field(ge=1, description="how many")],
            {"type": "integer", "minimum": 1, "description": "how many"},
        ),
        (date, {"type": "string", "format": "date"}),
    ],
)
def test_schemas_of_types(kind: Any, expected: dict[str, Any]) -> None:
    assert schema_of(kind)["properties"]["input"] == expected


def test_objects_in_tuples_and_unions_are_strict() -> None:
    schema = schema_of(tuple[Cat, Dog | None])
    assert set(schema["$defs"]) == {"Cat", "Dog"}
    assert all(each["additionalProperties"] is False for each in schema["$defs"].values())
    assert schema["$defs"]["Cat"]["required"] == ["kind", "lives"]


def test_the_input_schema_is_not_changed() -> None:
    schema = TypeAdapter(tuple[Order, Colour]).json_schema()
    wrapped = {"$defs": schema.pop("$defs"), "type": "object", "properties": {"a": schema}}
    before = deepcopy(wrapped)
    strict = strict_schema(wrapped, "it")
    assert wrapped == before
    strict["$defs"]["Colour"]["enum"].append("blue")
    for each in find_dicts(strict):
        each.clear()
    assert wrapped == before


def test_a_strict_schema_is_not_changed() -> None:
    for kind in (Order, Node, Tree, Chicken, Described, KeywordNames):
        strict = schema_of(kind)
        assert strict_schema(strict, "it") == strict


def test_all_of_with_one_element_is_replaced_by_the_element() -> None:
    # Older versions of pydantic write references with a description like this.
    schema = {
        "$defs": {"A": {"type": "object", "properties": {"x": {"type": "integer"}}}},
        "type": "object",
        "properties": {"a": {"allOf": [{"$ref": "#/$defs/A"}], "description": "an A", "default": None}},
    }
    a = strict_schema(schema, "it")["properties"]["a"]
    assert (a["description"], a["required"], a["additionalProperties"]) == ("an A", ["x"], False)


@pytest.mark.parametrize("kind", [int, list[str], Literal["a", "b"], str | None])
def test_a_root_that_is_not_an_object_is_wrapped(kind: Any) -> None:
    # Providers accept only objects.
    schema = schema_of(kind)
    assert schema["type"] == "object"
    assert schema["required"] == ["input"]


@pytest.mark.parametrize(
    "kind",
    [
        dict[str, int],
        dict[str, Any],
        dict,
        dict[Annotated[str, Field(pattern="^a")], int],
        list[dict[str, str]],
        tuple[dict[str, int], str],
        dict[str, int] | None,
    ],
)
def test_objects_with_arbitrary_keys_are_refused(kind: Any) -> None:
    # A strict schema names every key.
    message = (
        r"the input_type of the handoff to `B` has an object with arbitrary keys at `extra(\[\])?`, .*name the keys"
    )
    with pytest.raises(SetupError, match=message):
        schema_of(create_model("Loose", extra=(kind, ...)))
    with pytest.raises(SetupError, match="an object with arbitrary keys"):
        schema_of(kind)


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (Any, "a value of any type at `extra`"),
        (object, "a value of any type at `extra`"),
        (list[Any], r"a value of any type at `extra\[\]`"),
        (list, r"a value of any type at `extra\[\]`"),
        (tuple[()], "a list of anything at `extra`"),
    ],
)
def test_values_of_any_type_are_refused(kind: Any, message: str) -> None:
    # Strict schemas need a type.
    with pytest.raises(
        SetupError, match=f"the input_type of the handoff to `B` has {message}, which strict schemas cannot"
    ):
        schema_of(create_model("Loose", extra=(kind, ...)))


def test_a_model_that_allows_extra_fields_has_a_closed_schema() -> None:
    class AllowsExtra(BaseModel, extra="allow"):
        name: str

    assert schema_of(AllowsExtra)["additionalProperties"] is False


def test_an_object_without_properties_is_allowed() -> None:
    class Empty(BaseModel):
        pass

    assert schema_of(Empty) == {"type": "object", "properties": {}, "required": [], "additionalProperties": False}


@pytest.mark.parametrize(
    ("part", "message"),
    [
        ({"$ref": "#/$defs/Gone"}, "it refers to `#/$defs/Gone`, which is not among the definitions"),
        ({"$ref": "#/$defs/Gone", "description": "x"}, "it refers to `#/$defs/Gone`"),
        ({"$ref": "#/properties/a"}, "it refers to `#/properties/a`"),
        ({"allOf": [{"type": "string"}, {"minLength": 3}]}, "it uses allOf"),
        (True, "it has a value of any type at `a`"),
        ({"type": ["object", "null"]}, "it has an object with arbitrary keys at `a`"),
        (
            {"type": "object", "properties": {"x": {"type": "null"}}, "patternProperties": {"^y": {"type": "null"}}},
            "it has an object with arbitrary keys at `a`",
        ),
    ],
)
def test_custom_schemas_must_follow_the_same_rules(part: Any, message: str) -> None:
    # A type may define its own schema.
    with pytest.raises(SetupError, match=re.escape(message)):
        strict_schema({"type": "object", "properties": {"a": part}}, "it")


def test_a_type_without_a_schema_is_refused() -> None:
    class NoSchema:
        """A class that pydantic cannot validate."""

    with pytest.raises(
        SetupError, match=r"the input_type of the handoff to `B` is .*NoSchema.*, which has no JSON schema"
    ):
        schema_of(NoSchema)


def test_a_schema_that_is_nested_too_deeply_is_refused() -> None:
    # The depth is limited.
    kind: Any = int
    for _ in range(60):
        kind = list[kind]
    with pytest.raises(SetupError, match="nested too deeply"):
        schema_of(kind)


def make_nested(levels: int) -> Any:
    """Create models nested this deep, each with a description."""
    kind: Any = int
    for number in range(levels):
        kind = create_model(f"Level{number}", inner=(kind, Field(description="further in")))
    return kind


def test_twenty_levels_of_objects_are_allowed() -> None:
    kind: Any = int
    for number in range(10):
        kind = create_model(f"Level{number}", inner=(cast("Any", list)[kind], ...))
    assert schema_of(kind)["type"] == "object"
    assert schema_of(make_nested(20))["type"] == "object"
    with pytest.raises(SetupError, match=r"nested too deeply: more than 20 .* at `inner\.inner\.inner` and below"):
        schema_of(make_nested(21))


def test_a_schema_that_is_too_large_is_refused() -> None:
    # The size is limited. Each level is inlined twice, which doubles the size.
    kind: Any = int
    for number in range(18):
        twice: Any = {name: (kind, Field(description=name)) for name in ("left", "right")}
        kind = create_model(f"Level{number}", **twice)
    with pytest.raises(SetupError, match=r"the input_type of the handoff to `B` is too large: .* more than 5000 nodes"):
        schema_of(kind)
