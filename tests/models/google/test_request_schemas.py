"""Conversion of JSON schemas to Google's subset."""

from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field

from batonkit.models.google.google_request import to_google_schema


class Cat(BaseModel):
    kind: Literal["cat"]
    lives: Annotated[int, Field(ge=1, lt=10)] = 9


class Dog(BaseModel):
    kind: Literal["dog"]
    name: Annotated[str, Field(min_length=1, pattern="^[A-Z]")]


class Home(BaseModel):
    pet: Cat | Dog = Field(discriminator="kind", description="The pet that lives here.")
    first: Cat = Field(description="The first pet.")
    by_name: dict[str, Dog] = {}
    title: str


@pytest.mark.parametrize(
    ("given", "converted"),
    [
        ({"const": 3}, {"enum": [3]}),
        ({"oneOf": [{"type": "string"}, {"const": 1}]}, {"anyOf": [{"type": "string"}, {"enum": [1]}]}),
        ({"allOf": [{"$ref": "#/$defs/A"}]}, {"$ref": "#/$defs/A"}),
        ({"$ref": "#/$defs/A", "default": None}, {"$ref": "#/$defs/A"}),
        (
            {"$ref": "#/$defs/A", "description": "One."},
            {"anyOf": [{"$ref": "#/$defs/A"}], "description": "One."},
        ),
        ({"type": "string", "pattern": "^a"}, {"type": "string", "description": '(pattern: "^a")'}),
        ({"type": "string", "format": "email"}, {"type": "string", "description": '(format: "email")'}),
        ({"type": "string", "format": "date-time"}, {"type": "string", "format": "date-time"}),
        (
            {"type": "object", "properties": {"pattern": {"type": "string", "title": "Pattern"}}},
            {"type": "object", "properties": {"pattern": {"type": "string"}}},
        ),
        (
            {"type": "object", "additionalProperties": {"type": "integer", "multipleOf": 2}},
            {"type": "object", "additionalProperties": {"type": "integer", "description": "(multipleOf: 2)"}},
        ),
        (True, True),
    ],
)
def test_a_schema_is_converted_to_the_subset(given: Any, converted: Any) -> None:
    assert to_google_schema(given) == converted


def test_a_pydantic_model_is_converted() -> None:
    converted = to_google_schema(Home.model_json_schema())
    assert set(converted["properties"]) == {"pet", "first", "by_name", "title"}
    assert converted["properties"]["pet"] == {
        "anyOf": [{"$ref": "#/$defs/Cat"}, {"$ref": "#/$defs/Dog"}],
        "description": "The pet that lives here.",
    }
    assert converted["$defs"]["Cat"]["properties"]["lives"] == {
        "type": "integer",
        "minimum": 1,
        "description": "(exclusiveMaximum: 10)",
    }
    assert converted["required"] == ["pet", "first", "title"]
