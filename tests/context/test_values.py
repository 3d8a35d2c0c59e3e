"""The run's shared key-value state, and that a first run and a resumed one see the same."""

import asyncio
import math
from dataclasses import dataclass
from datetime import date
from enum import Enum
from typing import Any

import pytest
from pydantic import BaseModel

from batonkit import Agent, AgentContext, RunContext, Runner, agent, tool
from batonkit.context import Values
from batonkit.context.values import TrackedValues, to_json_value
from batonkit.errors import NotEncodableError, RunError
from batonkit.log import StepCompleted, ValueChanges, decode_event, encode_event
from batonkit.log.event import RUN_ORIGIN as NOBODY_ORIGIN
from batonkit.testing import ScriptedModel, call


class Colour(Enum):
    RED = "red"


class Person(BaseModel):
    name: str
    born: date


@dataclass
class Point:
    x: int
    y: int


def test_values_are_a_mapping_that_can_be_written() -> None:
    data: dict[str, Any] = {"a": 1}
    values = Values(data)
    values.set("b", [1, 2])
    values.update({"c": None, "d": "x"})
    values.delete("a")
    values.delete("never there")
    assert dict(values) == {"b": [1, 2], "c": None, "d": "x"}
    assert (values.get("a"), values.get("b"), values["d"], "c" in values, len(values)) == (None, [1, 2], "x", True, 3)
    with pytest.raises(KeyError):
        values["a"]


def test_changes_are_taken_once() -> None:
    values = Values({"gone": 1})
    assert values._take_changes() is None
    values.set("a", 1)
    values.set("a", 2)
    values.delete("gone")
    values.set("b", 1)
    values.delete("b")
    assert values._take_changes() == ValueChanges({"a": 2}, ("b", "gone"))
    assert values._take_changes() is None


def test_a_value_can_be_set_after_it_was_deleted() -> None:
    values = Values({})
    values.delete("a")
    values.set("a", 1)
    assert values._take_changes() == ValueChanges({"a": 1})


def test_changes_can_be_done_again() -> None:
    first, second = Values({"x": 0, "y": 0}), Values({"x": 0, "y": 0})
    first.set("x", 1)
    first.delete("y")
    changes = first._take_changes()
    assert changes is not None
    second._apply(changes)
    assert dict(first) == dict(second) == {"x": 1}
    assert second._take_changes() is None


def test_several_are_written_all_or_none() -> None:
    values = Values({})
    with pytest.raises(NotEncodableError, match="value `b` is an object"):
        values.update({"a": 1, "b": object()})
    assert dict(values) == {}
    assert values._take_changes() is None


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        (1, 1),
        ("x", "x"),
        (None, None),
        (2.5, 2.5),
        (True, True),
        ([1, {"a": None}], [1, {"a": None}]),
        ({1: "a"}, {"1": "a"}),
        (Point(1, 2), {"x": 1, "y": 2}),
        (Person(name="Ada", born=date(1815, 12, 10)), {"name": "Ada", "born": "1815-12-10"}),
        ([Person(name="Ada", born=date(1815, 12, 10))], [{"name": "Ada", "born": "1815-12-10"}]),
        (Colour.RED, "red"),
        (date(2026, 2, 3), "2026-02-03"),
        (10**30, 10**30),
    ],
)
def test_values_are_kept_as_they_will_be_read_back(value: Any, wanted: Any) -> None:
    # A first run and a resumed one must see the same.
    kept = to_json_value("it", value)
    assert kept == wanted
    assert type(kept) is type(wanted)
    back = decode_event(encode_event(StepCompleted("k", NOBODY_ORIGIN, 1.0, "x", kept)))
    assert isinstance(back, StepCompleted)
    assert back.result == kept


@pytest.mark.parametrize("value", [(1, 2), {"a": (1,)}, [(1,)]])
def test_a_tuple_is_the_same_list_before_and_after(value: Any) -> None:
    kept = to_json_value("it", value)
    back = decode_event(encode_event(StepCompleted("k", NOBODY_ORIGIN, 1.0, "x", kept)))
    assert isinstance(back, StepCompleted)
    assert back.result == kept


@pytest.mark.parametrize("value", [math.nan, math.inf, [-math.inf]])
def test_a_number_that_json_does_not_have_is_refused(value: Any) -> None:
    with pytest.raises(NotEncodableError):
        to_json_value("it", value)


def a_function() -> None: ...


def a_circle() -> list[Any]:
    circle: list[Any] = []
    circle.append(circle)
    return circle


@pytest.mark.parametrize("value", [object(), a_function, [object()], {"a": {1, a_function}}, a_circle(), Point])
def test_a_value_that_json_cannot_encode_is_refused_with_the_valid_types(value: Any) -> None:
    values = Values({})
    with pytest.raises(NotEncodableError, match=r"value `x` is (an?|the class) ") as caught:
        values.set("x", value)
    assert caught.value.what == "value `x`"
    assert caught.value.value is value
    assert "and keep other objects in the run's context" in str(caught.value)
    assert isinstance(caught.value, RunError)
    assert "x" not in values


async def test_the_caller_starts_a_run_with_values_and_keeps_his_own() -> None:
    given = {"who": "Ada"}

    @agent()
    async def writer(ctx: AgentContext) -> None:
        ctx.values.set("who", "Bob")
        ctx.values.set("new", 1)

    result = await Runner(writer).run("hi", values=given)
    assert result.values == {"who": "Bob", "new": 1}
    assert given == {"who": "Ada"}


async def test_values_of_one_run_are_not_those_of_another() -> None:
    @agent()
    async def counter(ctx: AgentContext) -> None:
        ctx.values.set("count", ctx.values.get("count", 0) + 1)

    runner = Runner(counter)
    assert [(await runner.run("hi")).values for _ in range(2)] == [{"count": 1}, {"count": 1}]


async def test_a_value_of_one_tool_is_read_by_another() -> None:
    @tool
    async def write(ctx: RunContext, value: str) -> str:
        """Write."""
        ctx.values.set("x", value)
        return "ok"

    @tool
    async def read(ctx: RunContext) -> str:
        """Read."""
        return str(ctx.values["x"])

    model = ScriptedModel([call("write", value="hello"), call("read"), "done"])
    result = await Runner(Agent("A", model=model, tools=[write, read])).run("hi")
    assert result.messages[4].content == "hello"


async def test_calls_at_once_that_write_the_same_value_come_to_the_same_on_a_replay() -> None:
    # The first to write is the last to end; on a replay it must not win.
    written = asyncio.Event()

    @tool
    async def early(ctx: RunContext) -> str:
        """Write first, end last."""
        ctx.values.set("x", "early")
        await written.wait()
        return "early"

    @tool
    async def late(ctx: RunContext) -> str:
        """Write last, end first."""
        ctx.values.set("x", "late")
        written.set()
        return "late"

    runner = Runner(Agent("A", tools=[early, late]), model=ScriptedModel([[call("early"), call("late")], "done"]))
    result = await runner.run("go")
    assert result.values == {"x": "late"}
    assert (await runner.runs.replay(result.events)).values == {"x": "late"}


def test_watched_values_know_what_was_done_to_them() -> None:
    data: dict[str, Any] = {"a": 1, "b": 1}
    values = TrackedValues(data)
    assert (values.changes(), len(values), sorted(values)) == (None, 2, ["a", "b"])
    values["c"] = 2
    del values["a"]
    values.pop("never there")
    assert values.changes() == ValueChanges({"c": 2}, ("a", "never there"))
    assert data == {"b": 1, "c": 2}
