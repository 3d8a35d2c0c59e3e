"""Input, values and callers that are wrong."""

from typing import Any

import pytest

from batonkit import Agent, Runner, SetupError
from batonkit.errors import NotEncodableError
from batonkit.testing import ScriptedModel


def runner() -> Runner[Any, str]:
    """A runner that would answer."""
    return Runner(Agent("A", model=ScriptedModel(["hello"])))


@pytest.mark.parametrize(
    "wrong",
    [
        {"role": "robot", "content": "x"},
        {"content": "no role"},
        {"role": "user", "content": 5},
        {"role": "user", "content": [{"type": "hologram"}]},
        {"role": "tool", "content": "a result of nothing"},
        {},
    ],
)
async def test_a_dict_that_is_no_message(wrong: dict[str, Any]) -> None:
    with pytest.raises(SetupError, match=r"not a message: .*; give role and content") as caught:
        await runner().run(wrong)
    assert repr(wrong) in str(caught.value)
    with pytest.raises(SetupError):
        await runner().run([{"role": "user", "content": "fine"}, wrong])


@pytest.mark.parametrize(
    "calls",
    [
        [{"id": "x"}],
        [{"id": "x", "function": {"name": "t"}}],
        [{"function": {"name": "t", "arguments": "{}"}}],
        ["x"],
        "x",
    ],
)
async def test_tool_calls_of_the_wrong_form(calls: Any) -> None:
    with pytest.raises(SetupError, match="not a message"):
        await runner().run({"role": "assistant", "content": "", "tool_calls": calls})


async def test_a_tool_call_with_a_field_of_the_wrong_type() -> None:
    wrong = {"id": "x", "function": {"name": "t", "arguments": None}}
    with pytest.raises(SetupError, match="not a message"):
        await runner().run({"role": "assistant", "content": "", "tool_calls": [wrong]})


@pytest.mark.parametrize("wrong", [42, None, [42], [None], object(), 2.5])
async def test_input_that_is_nothing_of_the_kind(wrong: Any) -> None:
    with pytest.raises(SetupError):
        await runner().run(wrong)


async def test_text_in_a_list() -> None:
    # A likely mistake: it should be told what to give instead.
    given: Any = ["hello"]
    with pytest.raises(SetupError, match="hello"):
        await runner().run(given)


async def test_values_that_cannot_be_stored() -> None:
    with pytest.raises(NotEncodableError, match="the run's values is a dict, which cannot be written to the log"):
        await runner().run("hi", values={"x": object()})


async def test_run_sync_inside_a_loop() -> None:
    with pytest.raises(SetupError, match="run_sync\\(\\) was called inside a running event loop"):
        runner().run_sync("hi")
