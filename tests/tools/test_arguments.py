"""The schema a model sees, and what it is told when it does not keep to it."""

import json
from dataclasses import dataclass
from datetime import date
from enum import Enum
from typing import Annotated, Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field
from typing_extensions import TypedDict

from batonkit.context import RunContext
from batonkit.messages import text_of
from batonkit.tools import ToolResult, tool

Ctx = RunContext[Any]


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Address(BaseModel):
    title: str
    lines: list[str] = []


@dataclass
class Point:
    x: int
    y: int = 0


class Options(TypedDict, total=False):
    fast: bool


NOWHERE = object()


def everything(
    city: Annotated[str, Field(description="Where", min_length=2)],
    colour: Colour,
    address: Address,
    points: list[Point],
    unit: Literal["C", "F"] = "C",
    when: date | None = None,
    options: Options = {},  # noqa: B006 - defaults like this are common in tools
    limit: int = Field(default=3, ge=1, le=9),
    sentinel: Any = NOWHERE,
) -> str:
    return json.dumps(
        [city, colour.value, address.title, points[0].x, unit, str(when), options, limit, sentinel is NOWHERE]
    )


def test_the_whole_schema() -> None:
    assert tool(everything).spec.parameters == {
        "type": "object",
        "additionalProperties": False,
        "required": ["city", "colour", "address", "points"],
        "properties": {
            "city": {"type": "string", "description": "Where", "minLength": 2},
            "colour": {"$ref": "#/$defs/Colour"},
            "address": {"$ref": "#/$defs/Address"},
            "points": {"type": "array", "items": {"$ref": "#/$defs/Point"}},
            "unit": {"type": "string", "enum": ["C", "F"], "default": "C"},
            "when": {"anyOf": [{"type": "string", "format": "date"}, {"type": "null"}], "default": None},
            "options": {"$ref": "#/$defs/Options", "default": {}},
            "limit": {"type": "integer", "minimum": 1, "maximum": 9, "default": 3},
            "sentinel": {},
        },
        "$defs": {
            "Colour": {"type": "string", "enum": ["red", "blue"]},
            "Address": {
                "type": "object",
                "required": ["title"],
                "properties": {
                    "title": {"type": "string"},
                    "lines": {"type": "array", "items": {"type": "string"}, "default": []},
                },
            },
            "Point": {
                "type": "object",
                "additionalProperties": False,
                "required": ["x"],
                "properties": {"x": {"type": "integer"}, "y": {"type": "integer", "default": 0}},
            },
            "Options": {
                "type": "object",
                "additionalProperties": False,
                "properties": {"fast": {"type": "boolean"}},
            },
        },
    }


async def test_arguments_arrive_as_their_types_and_defaults_are_the_functions_own(ctx: Ctx) -> None:
    given_ones = {"city": "Rome", "colour": "red", "address": {"title": "t"}, "points": [{"x": 1}]}
    outcome = await tool(everything).call(ctx, json.dumps(given_ones))
    assert json.loads(text_of(outcome.content)) == ["Rome", "red", "t", 1, "C", "None", {}, 3, True]


async def test_names_that_a_model_class_could_not_have(ctx: Ctx) -> None:
    def odd(schema: int, copy: int, _x: int, model_config: int, title: int, self_: int, json: int = 0) -> list[int]:
        return [schema, copy, _x, model_config, title, self_, json]

    made = tool(odd)
    names = ["schema", "copy", "_x", "model_config", "title", "self_", "json"]
    assert list(made.spec.parameters["properties"]) == names
    assert await made.call(ctx, json.dumps(dict.fromkeys(names, 1))) == ToolResult("[1,1,1,1,1,1,1]")


async def test_a_tool_without_parameters(ctx: Ctx) -> None:
    made = tool(lambda: "pong", name="ping")
    assert made.spec.parameters == {"type": "object", "properties": {}, "additionalProperties": False}
    for nothing in ("", " \n", "{}"):
        assert await made.call(ctx, nothing) == ToolResult("pong")


async def test_an_alias_is_what_the_model_writes(ctx: Ctx) -> None:
    def between(from_: Annotated[int, Field(alias="from")], to: int) -> int:
        return to - from_

    made = tool(between)
    assert made.spec.parameters["required"] == ["from", "to"]
    assert await made.call(ctx, '{"from": 1, "to": 5}') == ToolResult("4")


def test_a_field_without_default_is_required() -> None:
    def needs(size: int = Field(ge=1), tags: list[str] = Field(default_factory=list)) -> str:  # noqa: B008
        return f"{size}{tags}"

    assert tool(needs).spec.parameters["required"] == ["size"]
    assert tool(needs).check_arguments('{"size": 2}') == {"size": 2, "tags": []}


def weather(city: str, days: Annotated[int, Field(ge=1)] = 1, place: Address | None = None) -> str:
    """Never called with arguments that do not fit."""
    raise AssertionError


@pytest.mark.parametrize(
    ("arguments", "problems"),
    [
        ("{}", ["`city` is required"]),
        ('{"city": 3}', ["`city`: Input should be a valid string, but it is 3"]),
        ('{"city": "a", "days": 0}', ["`days`: Input should be greater than or equal to 1, but it is 0"]),
        ('{"city": "a", "town": 1}', ["`town` is not a parameter; the parameters are: `city`, `days`, `place`"]),
        ('{"city": "a", "place": {"title": "b", "lines": ["", 7]}}', ["`place.lines[1]`: Input should be a valid"]),
        ('{"days": "x", "z": 1}', ["`city` is required", "`days`: Input should be a valid integer", "`z` is not a"]),
        ('{"city": ', ["Invalid JSON: EOF while parsing", "write one JSON object"]),
        ("[1]", ["the input: Input should be an object, but it is [1]"]),
        ("null", ["the input: Input should be an object, but it is null"]),
        ('{"city": ["' + "x" * 500 + '"]}', ["but it is [" + '"' + "x" * 77 + "…"]),
    ],
)
async def test_the_model_is_told_which_arguments_are_invalid(arguments: str, problems: list[str], ctx: Ctx) -> None:
    outcome = await tool(weather).call(ctx, arguments)
    told = text_of(outcome.content)
    assert outcome.is_error
    assert told.startswith("The arguments of `weather` do not fit:\n- ")
    assert "pydantic" not in told
    for problem in problems:
        assert problem in told


async def test_a_long_list_of_problems_is_cut(ctx: Ctx) -> None:
    async def total(numbers: list[int]) -> int:
        return sum(numbers)

    told = text_of((await tool(total).call(ctx, json.dumps({"numbers": ["x"] * 50}))).content)
    assert told.count("\n- `numbers[") == 20
    assert "- and 30 more" in told


async def test_a_validation_error_of_the_function_itself_is_a_failure(ctx: Ctx) -> None:
    async def parse(text: str) -> str:
        return Address.model_validate_json(text).title

    told = text_of((await tool(parse).call(ctx, '{"text": "{}"}')).content)
    assert told.startswith("tool `parse` failed: ValidationError")


@given(st.text())
def test_no_text_at_all_makes_reading_raise(text: str) -> None:
    assert isinstance(tool(weather).check_arguments(text), ToolResult)


@given(
    st.fixed_dictionaries(
        {
            "number": st.integers(),
            "ratio": st.floats(allow_nan=False, allow_infinity=False),
            "text": st.text(),
            "is_on": st.booleans(),
            "colour": st.sampled_from(["red", "blue"]),
            "table": st.dictionaries(st.text(), st.lists(st.integers() | st.none())),
        },
        optional={
            "when": st.dates().map(str),
            "point": st.fixed_dictionaries({"x": st.integers(), "y": st.integers()}),
        },
    )
)
def test_arguments_survive_the_way_through_json(values: dict[str, Any]) -> None:
    expected = dict(values)
    expected["colour"] = Colour(values["colour"])
    if "when" in values:
        expected["when"] = date.fromisoformat(values["when"])
    expected["point"] = Point(**values["point"]) if "point" in values else None
    assert RECORDED.check_arguments(json.dumps(values)) == {"when": date(2000, 1, 1), **expected}


@tool
def recorded(
    number: int,
    ratio: float,
    text: str,
    is_on: bool,
    colour: Colour,
    table: dict[str, list[int | None]],
    when: date = date(2000, 1, 1),
    point: Point | None = None,
) -> None: ...


RECORDED = recorded
