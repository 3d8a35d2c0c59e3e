"""Conversion of return values to tool results."""

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from enum import Enum, StrEnum
from typing import Any
from uuid import UUID

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from batonkit.errors import ToolResultError
from batonkit.messages import Audio, Data, File, Image, Text, text_of
from batonkit.tools import ToolResult
from batonkit.tools.results import to_tool_result


class Size(Enum):
    BIG = 2


class Mood(StrEnum):
    GOOD = "good"


class OldMood(str, Enum):  # noqa: UP042 - the old spelling must work
    GOOD = "good"


class Loud(str):
    def __str__(self) -> str:
        return "LOUD"


class City(BaseModel):
    name: str
    founded: datetime | None = None


@dataclass
class Trip:
    to: City
    days: int


class Bill(msgspec.Struct):
    total: Decimal


class Waiter:
    """Says itself what it means."""

    def _as_tool_result(self) -> ToolResult:
        return ToolResult("Waiter takes over", transfer_to=self)


@pytest.mark.parametrize(
    ("value", "content"),
    [
        ("text", "text"),
        ("", ""),
        (None, "done"),
        (Mood.GOOD, "good"),
        (OldMood.GOOD, "good"),
        (Loud("quiet"), "quiet"),
        (3, "3"),
        (True, "true"),
        (1.5, "1.5"),
        (2**80, str(2**80)),
        ([], "[]"),
        ((), "[]"),
        (["a", "b"], '["a","b"]'),
        ({"a": [1, None]}, '{"a":[1,null]}'),
        ({1: "x"}, '{"1":"x"}'),
        ("é", "é"),
        (["é"], '["é"]'),
        (Size.BIG, "2"),
        (datetime(2024, 5, 1, tzinfo=UTC), '"2024-05-01T00:00:00Z"'),
        (UUID(int=1), '"00000000-0000-0000-0000-000000000001"'),
        (Decimal("1.10"), '"1.10"'),
        (City(name="Rome"), '{"name":"Rome","founded":null}'),
        ([City(name="Rome")], '[{"name":"Rome","founded":null}]'),
        (Trip(City(name="Rome"), 2), '{"to":{"name":"Rome","founded":null},"days":2}'),
        (Bill(Decimal(3)), '{"total":"3"}'),
        (Text("t"), (Text("t"),)),
        (Data({"a": City(name="Rome")}), (Data({"a": {"name": "Rome", "founded": None}}),)),
        ([Image(url="u"), "a cat", Audio(url="a")], (Image(url="u"), Text("a cat"), Audio(url="a"))),
        ((File(url="f"),), (File(url="f"),)),
        ([Image(url="u"), {"cats": 2}], (Image(url="u"), Data({"cats": 2}))),
    ],
)
def test_return_values_are_converted_to_content(value: Any, content: Any) -> None:
    outcome = to_tool_result(value, "t")
    assert outcome == ToolResult(content)
    assert to_tool_result(value, "t", is_final=True) == ToolResult(content, is_final=True)
    if isinstance(content, str):
        assert type(outcome.content) is str


def test_an_outcome_says_it_all_itself() -> None:
    for said in (ToolResult("x", is_error=True), ToolResult("x", is_final=True), ToolResult("x", transfer_to="B")):
        assert to_tool_result(said, "t") is said
        assert to_tool_result(said, "t", is_final=True) is said
    # A tool that returns directly does so however its result is put.
    assert to_tool_result(ToolResult("x"), "t", is_final=True) == ToolResult("x", is_final=True)


def test_a_value_can_say_what_it_means() -> None:
    # This is how an agent is returned.
    waiter = Waiter()
    assert to_tool_result(waiter, "t") == ToolResult("Waiter takes over", transfer_to=waiter)
    assert not to_tool_result(waiter, "t", is_final=True).is_final


def endless() -> list[Any]:
    whole: list[Any] = []
    whole.append(whole)
    return whole


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (object(), r"tool `t` returned a object, which a model cannot read \(object is not JSON\); return text"),
        (Waiter, "tool `t` returned a type"),
        (City, "tool `t` returned a ModelMetaclass"),
        ([Waiter()], r"tool `t` returned a list, which a model cannot read \(Waiter is not JSON\)"),
        ([Image(url="u"), object()], "tool `t` returned a object"),
        ({object(): 1}, "tool `t` returned a dict"),
        ((n for n in range(3)), "tool `t` returned a generator"),
        (Data(object()), "tool `t` returned a object"),
        (endless(), "tool `t` returned a list"),
        (b"\x89PNG", r"tool `t` returned bytes.*Image\(data=…\)"),
    ],
)
def test_invalid_return_values_raise_a_tool_result_error(value: Any, told: str) -> None:
    with pytest.raises(ToolResultError, match=told) as raised:
        to_tool_result(value, "t")
    assert raised.value.tool == "t"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(st.lists(JSON) | st.dictionaries(st.text(), JSON))
def test_structures_survive_as_json(value: Any) -> None:
    assert json.loads(text_of(to_tool_result(value, "t").content)) == value
