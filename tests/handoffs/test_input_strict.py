"""Schemas as strict providers want them."""

import re
from copy import deepcopy
from datetime import date
from enum import Enum
from typing import Annotated, Any, Literal, NamedTuple, cast

import pytest
from pydantic import BaseModel, Field, TypeAdapter, create_model

from baton import Agent, Runner, SetupError, handoff
from baton.handoffs.input import strict_schema


class Address(BaseModel):
    """Where somebody lives."""

    street: str
    zip: str | None = None


class Cat(BaseModel):
    kind: Literal["cat"]
    lives: int = 9


class Dog(BaseModel):
    kind: Literal["dog"]


class Order(BaseModel):
    """Everything that needs care."""

    number: int = 7
    home: Address
    work: Address | None = Field(default=None, description="where they work")
    pet: Annotated[Cat | Dog, Field(discriminator="kind")]
    tags: list[Address] = []


class Node(BaseModel):
    """A thing made of such things."""

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


class Wordy(BaseModel):
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
    """What the model is shown."""
    runner = Runner(Agent("A", handoffs=[handoff(Agent("B"), input_type=input_type)]))
    (spec,) = runner.team.members["A"].routes.specs
    return spec.parameters


def dicts_in(node: object) -> list[dict[str, Any]]:
    """Every object in a schema, at any depth."""
    if isinstance(node, list):
        return [found for child in cast("list[object]", node) for found in dicts_in(child)]
    if not isinstance(node, dict):
        return []
    mine = cast("dict[str, Any]", node)
    return [mine, *[found for child in mine.values() for found in dicts_in(child)]]


def test_every_property_is_required_and_nothing_else_is_allowed() -> None:
    # handoffs.md H4
    found = [each for each in dicts_in(schema_of(Order)) if isinstance(each.get("properties"), dict)]
    assert len(found) >= 4
    for each in found:
        assert each["required"] == list(each["properties"])
        assert each["additionalProperties"] is False


def test_unions_are_any_of_and_defaults_are_gone() -> None:
    # handoffs.md H4
    shown = str(schema_of(Order))
    assert "oneOf" not in shown
    assert "discriminator" not in shown
    assert "'default'" not in shown
    assert "anyOf" in shown


def test_a_reference_never_has_anything_beside_it() -> None:
    # handoffs.md H4
    references = [each for each in dicts_in(schema_of(Order)) if "$ref" in each]
    assert references
    assert all(list(each) == ["$ref"] for each in references)


def test_a_type_that_refers_to_itself_is_fine() -> None:
    # handoffs.md H4: a reference that stands alone may go round in a circle.
    node = {
        "description": "A thing made of such things.",
        "type": "object",
        "properties": {"children": {"type": "array", "items": {"$ref": "#/$defs/Node"}}},
        "required": ["children"],
        "additionalProperties": False,
    }
    assert schema_of(Node) == {**node, "$defs": {"Node": node}}


def test_a_description_of_a_part_that_contains_itself_is_given_up() -> None:
    # handoffs.md H4: it cannot be inlined for ever, and nothing may stand beside a reference.
    schema = schema_of(Tree)
    reference = {"$ref": "#/$defs/Tree"}
    assert schema["properties"]["left"] == {"anyOf": [reference, {"type": "null"}], "description": "smaller"}
    assert schema["properties"]["parent"] == reference
    assert schema["$defs"]["Tree"]["properties"]["parent"] == reference


def test_types_that_refer_to_one_another_are_fine() -> None:
    # handoffs.md H4
    schema = schema_of(Chicken)
    assert schema["properties"] == {"laid": {"type": "array", "items": {"$ref": "#/$defs/Egg"}}}
    assert schema["$defs"]["Egg"]["properties"] == {"hatched": {"$ref": "#/$defs/Chicken"}}
    assert schema["$defs"]["Chicken"]["required"] == ["laid"]


def test_what_is_described_is_inlined_and_nothing_is_defined_for_nobody() -> None:
    # handoffs.md H4
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


def test_properties_may_be_called_like_words_of_a_schema() -> None:
    # handoffs.md H4: what goes is the word, not the property.
    schema = schema_of(Wordy)
    assert list(schema["properties"]) == ["title", "default", "properties", "discriminator"]
    assert schema["required"] == list(schema["properties"])
    assert "'title':" not in str(schema["properties"]["title"])


@pytest.mark.parametrize(
    ("kind", "wanted"),
    [
        (str | None, {"anyOf": [{"type": "string"}, {"type": "null"}]}),
        (Colour, {"type": "string", "enum": ["red", "green"]}),
        (Literal["a"], {"type": "string", "const": "a"}),
        (list[list[int]], {"type": "array", "items": {"type": "array", "items": {"type": "integer"}}}),
        (tuple[int, ...], {"type": "array", "items": {"type": "integer"}}),
        # No provider knows the types of single positions; reading checks them.
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
def test_types_as_they_are_shown(kind: Any, wanted: dict[str, Any]) -> None:
    # handoffs.md H4
    assert schema_of(kind)["properties"]["input"] == wanted


def test_objects_within_tuples_and_unions_are_strict() -> None:
    # handoffs.md H4
    schema = schema_of(tuple[Cat, Dog | None])
    assert set(schema["$defs"]) == {"Cat", "Dog"}
    assert all(each["additionalProperties"] is False for each in schema["$defs"].values())
    assert schema["$defs"]["Cat"]["required"] == ["kind", "lives"]


def test_the_schema_that_was_given_is_not_changed() -> None:
    # handoffs.md H4
    given = TypeAdapter(tuple[Order, Colour]).json_schema()
    wrapped = {"$defs": given.pop("$defs"), "type": "object", "properties": {"a": given}}
    before = deepcopy(wrapped)
    strict = strict_schema(wrapped, "it")
    assert wrapped == before
    strict["$defs"]["Colour"]["enum"].append("blue")
    for each in dicts_in(strict):
        each.clear()
    assert wrapped == before


def test_a_strict_schema_stays_as_it_is() -> None:
    # handoffs.md H4
    for kind in (Order, Node, Tree, Chicken, Described, Wordy):
        strict = schema_of(kind)
        assert strict_schema(strict, "it") == strict


def test_a_lone_all_of_is_what_is_in_it() -> None:
    # handoffs.md H4: older pydantic writes a described reference so.
    given = {
        "$defs": {"A": {"type": "object", "properties": {"x": {"type": "integer"}}}},
        "type": "object",
        "properties": {"a": {"allOf": [{"$ref": "#/$defs/A"}], "description": "an A", "default": None}},
    }
    a = strict_schema(given, "it")["properties"]["a"]
    assert (a["description"], a["required"], a["additionalProperties"]) == ("an A", ["x"], False)


@pytest.mark.parametrize("kind", [int, list[str], Literal["a", "b"], str | None])
def test_a_root_that_is_no_object_is_wrapped(kind: Any) -> None:
    # handoffs.md H4: never sent as it is.
    schema = schema_of(kind)
    assert schema["type"] == "object"
    assert schema["required"] == ["input"]


@pytest.mark.parametrize(
    "loose",
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
def test_an_object_with_arbitrary_keys_is_refused(loose: Any) -> None:
    # handoffs.md H4: a strict schema names every key.
    told = r"the input_type of the handoff to `B` has an object with arbitrary keys at `extra(\[\])?`, .*name the keys"
    with pytest.raises(SetupError, match=told):
        schema_of(create_model("Loose", extra=(loose, ...)))
    with pytest.raises(SetupError, match="an object with arbitrary keys"):
        schema_of(loose)


@pytest.mark.parametrize(
    ("loose", "told"),
    [
        (Any, "a value of any type at `extra`"),
        (object, "a value of any type at `extra`"),
        (list[Any], r"a value of any type at `extra\[\]`"),
        (list, r"a value of any type at `extra\[\]`"),
        (tuple[()], "a list of anything at `extra`"),
    ],
)
def test_what_may_be_anything_is_refused(loose: Any, told: str) -> None:
    # handoffs.md H4: strict providers want a type.
    with pytest.raises(
        SetupError, match=f"the input_type of the handoff to `B` has {told}, which strict schemas cannot"
    ):
        schema_of(create_model("Loose", extra=(loose, ...)))


def test_a_model_that_allows_more_is_shown_with_what_it_names() -> None:
    # handoffs.md H4
    class Generous(BaseModel, extra="allow"):
        name: str

    assert schema_of(Generous)["additionalProperties"] is False


def test_an_object_without_properties_is_fine() -> None:
    # handoffs.md H4
    class Nothing(BaseModel):
        pass

    assert schema_of(Nothing) == {"type": "object", "properties": {}, "required": [], "additionalProperties": False}


@pytest.mark.parametrize(
    ("part", "told"),
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
def test_schemas_of_your_own_are_held_to_the_same(part: Any, told: str) -> None:
    # handoffs.md H4: a type may bring a schema that pydantic did not write.
    with pytest.raises(SetupError, match=re.escape(told)):
        strict_schema({"type": "object", "properties": {"a": part}}, "it")


def test_what_has_no_schema_is_refused() -> None:
    # handoffs.md H4
    class Mine:
        """Nothing that pydantic knows."""

    with pytest.raises(SetupError, match=r"the input_type of the handoff to `B` is .*Mine.*, which has no JSON schema"):
        schema_of(Mine)


def test_a_schema_that_is_too_deep_is_refused() -> None:
    # handoffs.md H4: depth-bounded.
    kind: Any = int
    for _ in range(60):
        kind = list[kind]
    with pytest.raises(SetupError, match="nested too deeply"):
        schema_of(kind)


def nested(levels: int) -> Any:
    """A model in a model in a model, each with a description."""
    kind: Any = int
    for number in range(levels):
        kind = create_model(f"Level{number}", inner=(kind, Field(description="further in")))
    return kind


def test_ten_levels_of_objects_are_not_too_deep() -> None:
    # handoffs.md H4
    kind: Any = int
    for number in range(10):
        kind = create_model(f"Level{number}", inner=(cast("Any", list)[kind], ...))
    assert schema_of(kind)["type"] == "object"
    assert schema_of(nested(20))["type"] == "object"
    with pytest.raises(SetupError, match=r"nested too deeply: more than 20 .* at `inner\.inner\.inner` and below"):
        schema_of(nested(21))


def test_a_schema_that_is_too_large_is_refused_before_it_fills_the_memory() -> None:
    # handoffs.md H4: size-bounded. Each level is inlined twice, which makes a million of twenty.
    kind: Any = int
    for number in range(18):
        twice: Any = {name: (kind, Field(description=name)) for name in ("left", "right")}
        kind = create_model(f"Level{number}", **twice)
    with pytest.raises(SetupError, match=r"the input_type of the handoff to `B` is too large: .* more than 5000 nodes"):
        schema_of(kind)
