"""The options of an agent: a frozen value with defaults that concurrent runs can share."""

import asyncio
import threading
from dataclasses import FrozenInstanceError, fields
from typing import Any, get_type_hints

import pytest
from pydantic import BaseModel

from batonkit import Agent, AgentContext, Limits, ModelSettings, Runner, SetupError, tool
from batonkit.handoffs import Handoff
from batonkit.models import ModelRequest, register_model
from batonkit.testing import ScriptedModel, call


@tool
def look_up(city: str) -> str:
    """Look something up."""
    return f"sunny in {city}"


def test_an_agent_needs_only_a_name() -> None:
    plain = Agent("Plain")
    assert plain.name == "Plain"
    assert plain.description == ""
    assert plain.instructions == ""
    assert plain.model is None
    assert plain.model_settings is None
    assert plain.tools == ()
    assert plain.sub_agents == ()
    assert plain.handoffs == ()
    assert plain.output_type is str
    assert plain.output_key is None
    assert plain.max_turns == 20
    assert plain.exit_tool is False
    assert plain.disallow_transfer_to_parent is False
    assert plain.history is None
    assert plain.tool_choice == "auto"


def test_an_agent_is_frozen() -> None:
    agent = Agent("A")
    with pytest.raises(FrozenInstanceError, match=r"^Agent cannot be changed; .* clone\(name=…\)$"):
        agent.name = "B"  # pyright: ignore[reportAttributeAccessIssue]
    assert agent.name == "A"


def test_changing_a_list_afterwards_does_not_change_the_agent() -> None:
    # The agent keeps copies of its lists.
    tools = [look_up]
    children = [Agent("B")]
    agent = Agent("A", tools=tools, sub_agents=children, handoffs=children)
    tools.clear()
    children.clear()
    assert agent.tools == (look_up,)
    assert [child.name for child in agent.sub_agents] == ["B"]
    assert [edge.target for edge in agent._edges()] == ["B"]


def test_clone_changes_only_the_given_options() -> None:
    agent = Agent("A", description="does things", instructions="Do.", tools=[look_up], max_turns=3)
    other = agent.clone(name="B", max_turns=4)
    assert (other.name, other.max_turns) == ("B", 4)
    assert (other.description, other.instructions, other.tools) == ("does things", "Do.", (look_up,))
    assert (agent.name, agent.max_turns) == ("A", 3)


def test_a_clone_is_validated() -> None:
    with pytest.raises(SetupError, match="at least one turn"):
        Agent("A").clone(max_turns=0)


async def test_a_clone_has_its_own_tools() -> None:
    # The compiled agent is not shared with its clones.
    model = ScriptedModel(["hello", "hello"])
    agent = Agent("A", model=model, tools=[look_up])
    await Runner(agent).run("hi")
    await Runner(agent.clone(tools=[])).run("hi")
    assert [[spec.name for spec in request.tools] for request in model.requests] == [["look_up"], []]


async def test_a_plain_function_can_be_a_tool() -> None:
    def uppercase(text: str) -> str:
        return text.upper()

    model = ScriptedModel([call("uppercase", text="hey"), "done"])
    result = await Runner(Agent("A", model=model, tools=[uppercase])).run("hi")
    assert result.messages[2].content == "HEY"


async def test_instructions_can_be_text_or_a_sync_or_async_function() -> None:
    def by_function(ctx: AgentContext) -> str:
        return f"You are {ctx.agent} of {ctx.values['company']}."

    async def by_coroutine(ctx: AgentContext) -> str:
        await asyncio.sleep(0)
        return f"Path: {'/'.join(ctx.path)}"

    for instructions, expected in [
        ("Be kind.", "Be kind."),
        (by_function, "You are A of Baton."),
        (by_coroutine, "Path: A"),
    ]:
        model = ScriptedModel(["hello"])
        await Runner(Agent("A", model=model, instructions=instructions)).run("hi", values={"company": "Baton"})
        assert model.requests[0].instructions == expected


async def test_an_instructions_function_is_called_in_every_turn() -> None:
    message_counts: list[int] = []

    def instructions(ctx: AgentContext) -> str:
        message_counts.append(len(ctx.messages()))
        return f"turn {len(message_counts)}"

    model = ScriptedModel([call("look_up", city="Rome"), "done"])
    await Runner(Agent("A", model=model, instructions=instructions, tools=[look_up])).run("hi")
    assert message_counts == [1, 3]
    assert [request.instructions for request in model.requests] == ["turn 1", "turn 2"]


async def test_the_model_is_an_object_a_string_or_the_runners_default() -> None:
    by_name = ScriptedModel(["by name"], cycle=True)
    own, default = ScriptedModel(["own"]), ScriptedModel(["the runner's"])
    register_model("definition-test", lambda name: by_name)
    assert (await Runner(Agent("A", model=own), model=default).run("hi")).output == "own"
    assert (await Runner(Agent("A", model="definition-test:x"), model=default).run("hi")).output == "by name"
    assert (await Runner(Agent("A"), model=default).run("hi")).output == "the runner's"
    assert (await Runner(Agent("A"), model="definition-test:x").run("hi")).output == "by name"


async def test_an_agents_model_settings_override_the_runners() -> None:
    model = ScriptedModel(["hello"])
    agent = Agent("A", model=model, model_settings=ModelSettings(temperature=0.5))
    await Runner(agent, model_settings=ModelSettings(temperature=0.1, max_tokens=7)).run("hi")
    assert model.requests[0].settings == ModelSettings(temperature=0.5, max_tokens=7)


@pytest.mark.parametrize("tool_choice", ["required", "none", "look_up"])
async def test_tool_choice_applies_to_the_first_turn_only(tool_choice: str) -> None:
    model = ScriptedModel([call("look_up", city="Rome"), "done"])
    await Runner(Agent("A", model=model, tools=[look_up], tool_choice=tool_choice)).run("hi")
    assert [request.tool_choice for request in model.requests] == [tool_choice, None]


async def test_concurrent_runs_can_share_an_agent() -> None:
    # An agent keeps no state of any run.
    def answer(request: ModelRequest) -> str:
        return f"echo {request.messages[0].content}"

    runner = Runner(Agent("A", model=ScriptedModel([answer], cycle=True)))
    results = await asyncio.gather(*[runner.run(str(number)) for number in range(50)])
    assert [result.output for result in results] == [f"echo {number}" for number in range(50)]
    assert len({result.run_id for result in results}) == 50


async def test_limits_are_counted_for_each_run_separately() -> None:
    # Limits are per run.
    runner = Runner(Agent("A", model=ScriptedModel(["hello"], cycle=True)), limits=Limits(model_calls=1))
    assert [(await runner.run("hi")).output for _ in range(3)] == ["hello"] * 3


@pytest.mark.parametrize("kind", [Agent, AgentContext, Runner, Limits, Handoff])
def test_type_hints_are_available_at_run_time(kind: type) -> None:
    assert get_type_hints(kind) or get_type_hints(kind.__init__)


def test_an_agent_has_type_hints_for_all_options() -> None:
    hints = get_type_hints(Agent)
    assert {field.name for field in fields(Agent)} <= hints.keys()
    assert hints["max_turns"] is int


async def test_an_output_type_of_none_means_text() -> None:
    model = ScriptedModel(["just text"])
    result = await Runner(Agent("A", model=model, output_type=None)).run("hi")
    assert result.output == "just text"
    assert model.requests[0].output_schema is None


@pytest.mark.parametrize("kind", [3, threading.Lock])
def test_an_output_type_without_a_schema_is_refused_by_the_agent(kind: Any) -> None:
    with pytest.raises(SetupError, match=r"the output_type of `A` is .*, which has no JSON schema"):
        Agent("A", output_type=kind)


async def test_an_output_type_may_name_a_class_that_is_defined_later() -> None:
    class Trip(BaseModel):
        city: "City"

    desk = Agent("A", model=ScriptedModel(['{"city": {"name": "Rome"}}']), output_type=Trip)

    class City(BaseModel):
        name: str

    Trip.model_rebuild()
    assert (await Runner(desk).run("hi")).output == Trip(city=City(name="Rome"))
