"""`handoff()` and `Handoff`."""

import threading
from dataclasses import FrozenInstanceError
from typing import Any

import pytest
from pydantic import BaseModel

from batonkit import Agent, Handoff, Runner, SetupError, handoff
from batonkit.testing import ScriptedModel, call


def test_a_handoff_takes_an_agent_or_its_name() -> None:
    assert handoff(Agent("B")).target == "B"
    assert handoff("B").target == "B"


def test_a_handoff_is_frozen_and_can_be_cloned() -> None:
    transfer = handoff("B", return_to="caller", tool_name_override="go")
    with pytest.raises(FrozenInstanceError, match=r"^Handoff cannot be changed; .* clone\(return_to=…\)$"):
        transfer.return_to = None  # pyright: ignore[reportAttributeAccessIssue]
    clone = transfer.clone(return_to=None)
    assert (clone.target, clone.return_to, clone.tool_name_override) == ("B", None, "go")
    assert transfer.return_to == "caller"


@pytest.mark.parametrize("wrong", [42, None, ["B"], object()])
def test_a_target_that_is_not_an_agent_is_refused(wrong: object) -> None:
    with pytest.raises(SetupError, match="the target of a handoff must be an agent or the name of one, not ") as caught:
        handoff(wrong)  # pyright: ignore[reportArgumentType]
    assert repr(wrong) in str(caught.value)
    with pytest.raises(SetupError):
        Handoff(agent=wrong)  # pyright: ignore[reportArgumentType]


async def test_tool_name_and_description_can_be_overridden() -> None:
    edges = [
        handoff(Agent("B", description="b"), tool_name_override="escalate", tool_description_override="Call the boss."),
        handoff(Agent("C", description="c"), tool_description_override=""),
        handoff(Agent("D")),
    ]
    model = ScriptedModel({"A": [call("escalate")], "B": ["ok"]})
    result = await Runner(Agent("A", handoffs=edges), model=model).run("hi")
    assert result.agent == "B"
    assert [(spec.name, spec.description) for spec in model.requests[0].tools] == [
        ("escalate", "Call the boss."),
        ("transfer_to_c", "Handoff to the C agent to handle the request. c"),
        ("transfer_to_d", "Handoff to the D agent to handle the request."),
    ]


@pytest.mark.parametrize("option", [{"input_type": 3}, {"input_type": threading.Lock}, {"input_type": dict[str, str]}])
def test_an_input_type_without_a_strict_schema_is_refused_by_handoff(option: Any) -> None:
    with pytest.raises(SetupError, match="the input_type of the handoff to `B`"):
        handoff("B", **option)


def test_a_result_type_without_a_schema_is_refused_by_handoff() -> None:
    with pytest.raises(SetupError, match="result"):
        handoff("B", return_to="caller", until="finished", result_type=threading.Lock)


def test_an_input_type_may_name_a_class_that_is_defined_later() -> None:
    class Order(BaseModel):
        item: "Item"

    edge = handoff("B", input_type=Order)

    class Item(BaseModel):
        name: str

    Order.model_rebuild()
    assert "item" in edge.input_json_schema["properties"]
    assert Item(name="tea").name == "tea"
