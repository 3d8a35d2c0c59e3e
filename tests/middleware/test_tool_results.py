"""`ClearToolResults`."""

from typing import Any

import pytest

from batonkit import Agent, Runner, SetupError, tool
from batonkit.messages import ToolMessage, text_of
from batonkit.middleware import ClearToolResults
from batonkit.testing import ScriptedModel, call


@tool
async def read(page: int) -> str:
    """Read a page."""
    return f"page {page}: " + "x" * 400


def results_read(request: Any) -> list[str]:
    """Return the tool results in a request, shortened."""
    results = [message for message in request.messages if isinstance(message, ToolMessage)]
    return [text_of(message.content)[:6] for message in results]


async def run(model: ScriptedModel, **options: Any) -> Any:
    agent = Agent("A", model=model, tools=[read], middleware=[ClearToolResults(**options)])
    return await Runner(agent).run("Read.")


async def test_old_results_are_cleared_in_requests_and_kept_in_the_result() -> None:
    model = ScriptedModel([call("read", page=1), call("read", page=2), call("read", page=3), "done"])
    result = await run(model, keep_last=1)
    assert [results_read(request) for request in model.requests] == [
        [],
        ["page 1"],
        ["[This ", "page 2"],
        ["[This ", "[This ", "page 3"],
    ]
    assert results_read(result) == ["page 1", "page 2", "page 3"]


async def test_results_that_the_model_has_not_read_are_never_cleared() -> None:
    model = ScriptedModel([[call("read", page=1), call("read", page=2)], "done"])
    await run(model, keep_last=0)
    assert results_read(model.requests[1]) == ["page 1", "page 2"]


async def test_nothing_is_cleared_below_the_number_of_tokens() -> None:
    steps: list[Any] = [call("read", page=1), call("read", page=2), call("read", page=3), "done"]
    model = ScriptedModel(steps)
    await run(model, keep_last=1, over_tokens=260)
    assert [results_read(request) for request in model.requests][2:] == [
        ["page 1", "page 2"],
        ["[This ", "[This ", "page 3"],
    ]


async def test_results_of_some_tools_can_be_kept() -> None:
    model = ScriptedModel([call("read", page=1), call("read", page=2), "done"])
    await run(model, keep_last=0, keep_tools=["read"])
    assert results_read(model.requests[-1]) == ["page 1", "page 2"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"keep_last": -1}, r"ClearToolResults\(keep_last=-1\): give 0 or more"),
        ({"over_tokens": -5}, r"ClearToolResults\(over_tokens=-5\): give 0 or more"),
        ({"keep_tools": "read"}, "give a list of names"),
        ({"keep": 3}, "ClearToolResults has no argument `keep`; did you mean `keep_last`?"),
    ],
)
def test_wrong_arguments_say_what_to_give(options: dict[str, Any], message: str) -> None:
    with pytest.raises(SetupError, match=message):
        ClearToolResults(**options)
