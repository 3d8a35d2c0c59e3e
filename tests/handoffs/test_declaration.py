"""`handoff()` and `Handoff`."""

from dataclasses import FrozenInstanceError

import pytest

from batonkit import Agent, Handoff, Runner, SetupError, handoff
from batonkit.testing import ScriptedModel, call


def test_a_handoff_takes_an_agent_or_its_name() -> None:
    assert handoff(Agent("B")).target == "B"
    assert handoff("B").target == "B"


def test_a_handoff_is_frozen_and_can_be_cloned() -> None:
    transfer = handoff("B", return_to="caller", tool_name_override="go")
    with pytest.raises(FrozenInstanceError):
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
