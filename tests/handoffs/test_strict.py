"""Schemas as strict providers want them."""

from typing import Annotated, Any, Literal, cast

import pytest
from pydantic import BaseModel, Field

from baton import Agent, Runner, SetupError, handoff


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


def schema_of(input_type: Any) -> dict[str, Any]:
    """What the model is shown."""
    runner = Runner(Agent("A", handoffs=[handoff(Agent("B"), input_type=input_type)]))
    (spec,) = runner.team.seats["A"].routes.specs
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
    # handoffs.md H4
    assert schema_of(Node)["type"] == "object" or "$ref" in schema_of(Node)


@pytest.mark.parametrize("kind", [int, list[str], Literal["a", "b"], str | None])
def test_a_root_that_is_no_object_is_wrapped(kind: Any) -> None:
    # handoffs.md H4: never sent as it is.
    schema = schema_of(kind)
    assert schema["type"] == "object"
    assert schema["required"] == ["input"]


def test_an_object_with_arbitrary_keys_is_refused() -> None:
    # handoffs.md H4
    class Loose(BaseModel):
        extra: dict[str, int]

    with pytest.raises(SetupError, match="the input_type of the handoff to `B` has an object with arbitrary keys"):
        schema_of(Loose)


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
