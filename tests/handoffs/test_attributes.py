"""Attributes of handoffs that programs for the OpenAI Agents SDK read, and its prompt for agents with handoffs."""

import pytest
from pydantic import BaseModel

from batonkit import Agent, Handoff, Runner, handoff
from batonkit.handoffs import RECOMMENDED_PROMPT_PREFIX, prompt_with_handoff_instructions
from batonkit.testing import ScriptedModel, call


class Reason(BaseModel):
    text: str


BILLING = Agent(
    "Billing Desk", description="Knows bills.", examples=["Why so much?"], model=ScriptedModel(["fine"], cycle=True)
)
HANDOFFS = [
    handoff(BILLING),
    handoff(BILLING, tool_name_override="to_billing", tool_description_override="Ask about bills."),
    handoff(BILLING, tool_name_override="explain", input_type=Reason),
]


@pytest.mark.parametrize("chosen", HANDOFFS)
async def test_the_attributes_of_a_handoff_are_the_tool_that_the_model_is_offered(chosen: Handoff) -> None:
    model = ScriptedModel([call(chosen.tool_name, **({"text": "x"} if chosen.input_type is not None else {}))])
    await Runner(Agent("A", handoffs=[chosen], model=model)).run("hi")
    (spec,) = model.requests[0].tools
    assert (spec.name, spec.description, spec.parameters, spec.strict) == (
        chosen.tool_name,
        chosen.tool_description,
        chosen.input_json_schema,
        chosen.strict_json_schema,
    )
    assert chosen.agent_name == chosen.target == "Billing Desk"


def test_the_defaults_of_a_handoff() -> None:
    edge = HANDOFFS[0]
    assert edge.tool_name == "transfer_to_billing_desk"
    assert edge.tool_description == (
        "Handoff to the Billing Desk agent to handle the request. Knows bills. For example: “Why so much?”"
    )
    assert (edge.is_enabled, edge.input_filter) == (True, None)


def test_a_handoff_to_a_name_knows_no_description() -> None:
    edge = handoff("Elsewhere")
    assert (edge.agent_name, edge.tool_name) == ("Elsewhere", "transfer_to_elsewhere")
    assert edge.tool_description == "Handoff to the Elsewhere agent to handle the request."


def test_the_schema_is_a_copy() -> None:
    edge = HANDOFFS[2]
    assert edge.input_json_schema["required"] == ["text"]
    edge.input_json_schema["properties"].clear()
    HANDOFFS[0].input_json_schema["properties"]["x"] = {}
    assert (list(edge.input_json_schema["properties"]), HANDOFFS[0].input_json_schema["properties"]) == (["text"], {})


async def test_the_prompt_for_agents_with_handoffs() -> None:
    model = ScriptedModel(["hi"])
    desk = Agent("Desk", instructions=prompt_with_handoff_instructions("Be kind."), handoffs=[BILLING], model=model)
    await Runner(desk).run("hi")
    assert model.requests[0].instructions == f"{RECOMMENDED_PROMPT_PREFIX}\n\nBe kind."
    assert "`transfer_to_<agent_name>`" in RECOMMENDED_PROMPT_PREFIX
    assert prompt_with_handoff_instructions("") == RECOMMENDED_PROMPT_PREFIX
