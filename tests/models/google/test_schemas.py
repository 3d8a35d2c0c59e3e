"""JSON schemas in what Google takes of them."""

from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field

from baton.models.google.request import to_google_schema


class Cat(BaseModel):
    kind: Literal["cat"]
    lives: Annotated[int, Field(ge=1, lt=10)] = 9


class Dog(BaseModel):
    kind: Literal["dog"]
    name: Annotated[str, Field(min_length=1, pattern="^[A-Z]")]


class Home(BaseModel):
    pet: Cat | Dog = Field(discriminator="kind", description="Who lives here.")
    first: Cat = Field(description="Who came first.")
    by_name: dict[str, Dog] = {}
    title: str


@pytest.mark.parametrize(
    ("given", "taken"),
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
def test_what_is_made_of_it(given: Any, taken: Any) -> None:
    assert to_google_schema(given) == taken


def test_a_model_with_everything_in_it() -> None:
    taken = to_google_schema(Home.model_json_schema())
    assert set(taken["properties"]) == {"pet", "first", "by_name", "title"}
    assert taken["properties"]["pet"] == {
        "anyOf": [{"$ref": "#/$defs/Cat"}, {"$ref": "#/$defs/Dog"}],
        "description": "Who lives here.",
    }
    assert taken["$defs"]["Cat"]["properties"]["lives"] == {
        "type": "integer",
        "minimum": 1,
        "description": "(exclusiveMaximum: 10)",
    }
    assert taken["required"] == ["pet", "first", "title"]
