"""Lists and dicts among the run's values: a change in place is refused, because it would not be recorded."""

import json
import pickle
from collections.abc import Callable
from copy import copy, deepcopy
from typing import Any

import pytest

from batonkit import Agent, AgentContext, RunContext, Runner, SetupError, agent, tool
from batonkit.context import Values
from batonkit.log import RunStarted, ValueChanges
from batonkit.stores import MemoryStore
from batonkit.testing import ScriptedModel, call

CHANGES_OF_A_LIST: dict[str, tuple[Any, ...]] = {
    "append": (2,),
    "extend": ([2],),
    "insert": (0, 2),
    "remove": (1,),
    "pop": (),
    "clear": (),
    "sort": (),
    "reverse": (),
    "__setitem__": (0, 2),
    "__delitem__": (0,),
    "__iadd__": ([2],),
    "__imul__": (2,),
}
CHANGES_OF_A_DICT: dict[str, tuple[Any, ...]] = {
    "update": ({"a": 2},),
    "setdefault": ("b", 2),
    "pop": ("a",),
    "popitem": (),
    "clear": (),
    "__setitem__": ("a", 2),
    "__delitem__": ("a",),
    "__ior__": ({"a": 2},),
}


@pytest.mark.parametrize("read", ["given", "nested", "set"])
@pytest.mark.parametrize(
    ("value", "name", "arguments"),
    [
        *[([1], name, arguments) for name, arguments in CHANGES_OF_A_LIST.items()],
        *[({"a": 1}, name, arguments) for name, arguments in CHANGES_OF_A_DICT.items()],
    ],
)
async def test_a_change_in_place_ends_the_run_with_an_error_that_says_what_works(
    value: Any, name: str, arguments: tuple[Any, ...], read: str
) -> None:
    @tool
    def change_it(ctx: RunContext) -> str:
        """Change a value."""
        ctx.values.set("set", value)
        found = {"given": ctx.values["value"], "nested": ctx.values["outer"]["inner"], "set": ctx.values["set"]}
        getattr(found[read], name)(*arguments)
        return "changed"

    desk = Agent("Desk", model=ScriptedModel([call("change_it"), "done"]), tools=[change_it])
    stream = Runner(desk).stream("go", values={"value": value, "outer": {"inner": value}})
    expected = rf"cannot be changed in place with `{name}`, .* ctx\.values\.set\(key, changed\)"
    with pytest.raises(SetupError, match=expected):
        await stream._drive()
    started = stream.result.events[0]
    assert isinstance(started, RunStarted)
    assert started.values == {"value": value, "outer": {"inner": value}}


async def test_values_that_come_from_a_log_cannot_be_changed_in_place_either() -> None:
    @agent("Collector")
    async def collector(ctx: AgentContext) -> None:
        ctx.values.set("found", [1])
        await ctx.say("half")
        await ctx.interrupt("Go on?")
        ctx.values["found"].append(2)

    store = MemoryStore()
    await Runner(collector, store=store).run("go", run_id="r")
    with pytest.raises(SetupError, match="`append`"):
        await Runner(collector, store=store).resume("r", "yes")


async def test_a_changed_copy_can_be_set_and_survives_a_resume() -> None:
    @tool
    def add_item(ctx: RunContext) -> str:
        """Change a copy."""
        cart = deepcopy(ctx.values["cart"])
        cart["items"].append("tea")
        ctx.values.set("cart", cart)
        ctx.values.set("seen", [*ctx.values["seen"], 2])
        return "added"

    @tool
    async def ask(ctx: RunContext) -> str:
        """Ask a person."""
        return str(await ctx.interrupt("Go on?"))

    store = MemoryStore()
    desk = Agent("Desk", model=ScriptedModel([call("add_item"), call("ask"), "done"]), tools=[add_item, ask])
    await Runner(desk, store=store).run("go", values={"cart": {"items": []}, "seen": [1]}, run_id="r")
    resumed = await Runner(desk, store=store).resume("r", "yes")
    assert resumed.values == {"cart": {"items": ["tea"]}, "seen": [1, 2]}


async def test_the_values_of_a_result_are_a_copy_that_can_be_changed() -> None:
    result = await Runner(Agent("Desk", model=ScriptedModel(["hi"]))).run("go", values={"cart": {"items": []}})
    values = result.values
    values["cart"]["items"].append("tea")
    assert result.values == {"cart": {"items": []}}


def test_a_value_reads_like_a_plain_list_or_dict() -> None:
    value: dict[str, Any] = {"list": [3, 1, {"deep": []}], "dict": {"a": [None]}}
    read = Values({})
    read.update(value)
    assert dict(read) == value
    assert json.loads(json.dumps(dict(read))) == value
    assert repr(read["list"]) == repr(value["list"])
    assert isinstance(read["list"], list)
    assert isinstance(read["dict"], dict)
    assert read._take_changes() == ValueChanges(value)


def own_copy(value: Any) -> Any:
    """Return the result of the method `copy`."""
    return value.copy()


def pickled(value: Any) -> Any:
    """Return a value that was sent to another process."""
    return pickle.loads(pickle.dumps(value))


@pytest.mark.parametrize("make", [copy, deepcopy, own_copy, pickled])
@pytest.mark.parametrize("value", [[1, [2]], {"a": [1]}])
def test_a_copy_of_a_value_can_be_changed(make: Callable[[Any], Any], value: Any) -> None:
    values = Values({})
    values.set("value", value)
    made = make(values["value"])
    assert made == value
    assert type(made) is type(value)
    made.clear()
    assert values["value"] == value
