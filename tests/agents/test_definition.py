"""What one can say about an agent: a frozen value, with sensible defaults, that many runs may share."""

import asyncio
from dataclasses import FrozenInstanceError, fields
from typing import get_type_hints

import pytest

from baton import Agent, AgentContext, Limits, ModelSettings, Runner, SetupError, tool
from baton.handoffs import Handoff
from baton.models import ModelRequest, register_model
from baton.testing import ScriptedModel, call


@tool
def look_up(city: str) -> str:
    """Look something up."""
    return f"sunny in {city}"


def test_an_agent_needs_nothing_but_a_name() -> None:
    # T1
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
    # T1
    agent = Agent("A")
    with pytest.raises(FrozenInstanceError):
        agent.name = "B"  # pyright: ignore[reportAttributeAccessIssue]
    assert agent.name == "A"


def test_lists_given_to_an_agent_stay_the_callers_own() -> None:
    # T1: frozen also means that a list changed afterwards changes no agent.
    tools = [look_up]
    children = [Agent("B")]
    agent = Agent("A", tools=tools, sub_agents=children, handoffs=children)
    tools.clear()
    children.clear()
    assert agent.tools == (look_up,)
    assert [child.name for child in agent.sub_agents] == ["B"]
    assert [edge.target for edge in agent._edges()] == ["B"]


def test_clone_changes_what_it_is_told_and_nothing_else() -> None:
    # T1
    agent = Agent("A", description="does things", instructions="Do.", tools=[look_up], max_turns=3)
    other = agent.clone(name="B", max_turns=4)
    assert (other.name, other.max_turns) == ("B", 4)
    assert (other.description, other.instructions, other.tools) == ("does things", "Do.", (look_up,))
    assert (agent.name, agent.max_turns) == ("A", 3)


def test_a_clone_is_checked_like_a_new_agent() -> None:
    # T1
    with pytest.raises(SetupError, match="at least one turn"):
        Agent("A").clone(max_turns=0)


async def test_a_clone_has_tools_of_its_own() -> None:
    # T1: what is compiled once per agent is not carried over to its clones.
    model = ScriptedModel(["hello", "hello"])
    agent = Agent("A", model=model, tools=[look_up])
    await Runner(agent).run("hi")
    await Runner(agent.clone(tools=[])).run("hi")
    assert [[spec.name for spec in request.tools] for request in model.requests] == [["look_up"], []]


async def test_a_plain_function_may_stand_among_the_tools() -> None:
    # T1
    def shout(text: str) -> str:
        return text.upper()

    model = ScriptedModel([call("shout", text="hey"), "done"])
    result = await Runner(Agent("A", model=model, tools=[shout])).run("hi")
    assert result.messages[2].content == "HEY"


async def test_instructions_may_be_text_or_a_function_sync_or_async() -> None:
    # T1
    def by_function(ctx: AgentContext) -> str:
        return f"You are {ctx.agent} of {ctx.values['company']}."

    async def by_coroutine(ctx: AgentContext) -> str:
        await asyncio.sleep(0)
        return f"Path: {'/'.join(ctx.path)}"

    for instructions, wanted in [
        ("Be kind.", "Be kind."),
        (by_function, "You are A of Baton."),
        (by_coroutine, "Path: A"),
    ]:
        model = ScriptedModel(["hello"])
        await Runner(Agent("A", model=model, instructions=instructions)).run("hi", values={"company": "Baton"})
        assert model.requests[0].instructions == wanted


async def test_a_function_of_instructions_is_asked_every_turn() -> None:
    # T1
    asked: list[int] = []

    def instructions(ctx: AgentContext) -> str:
        asked.append(len(ctx.messages()))
        return f"turn {len(asked)}"

    model = ScriptedModel([call("look_up", city="Rome"), "done"])
    await Runner(Agent("A", model=model, instructions=instructions, tools=[look_up])).run("hi")
    assert asked == [1, 3]
    assert [request.instructions for request in model.requests] == ["turn 1", "turn 2"]


async def test_the_model_may_be_an_object_a_string_or_the_runners() -> None:
    # T1
    by_name = ScriptedModel(["by name"], cycle=True)
    own, default = ScriptedModel(["own"]), ScriptedModel(["the runner's"])
    register_model("definition-test", lambda name: by_name)
    assert (await Runner(Agent("A", model=own), model=default).run("hi")).output == "own"
    assert (await Runner(Agent("A", model="definition-test:x"), model=default).run("hi")).output == "by name"
    assert (await Runner(Agent("A"), model=default).run("hi")).output == "the runner's"
    assert (await Runner(Agent("A"), model="definition-test:x").run("hi")).output == "by name"


async def test_an_agents_settings_go_before_the_runners() -> None:
    # T1
    model = ScriptedModel(["hello"])
    agent = Agent("A", model=model, model_settings=ModelSettings(temperature=0.5))
    await Runner(agent, model_settings=ModelSettings(temperature=0.1, max_tokens=7)).run("hi")
    assert model.requests[0].settings == ModelSettings(temperature=0.5, max_tokens=7)


@pytest.mark.parametrize("wanted", ["required", "none", "look_up"])
async def test_tool_use_binds_the_first_turn_only(wanted: str) -> None:
    # T1
    model = ScriptedModel([call("look_up", city="Rome"), "done"])
    await Runner(Agent("A", model=model, tools=[look_up], tool_choice=wanted)).run("hi")
    assert [request.tool_choice for request in model.requests] == [wanted, None]


async def test_one_agent_may_run_many_times_at_once() -> None:
    # T1, DESIGN §2: an agent keeps no state of any run.
    def answer(request: ModelRequest) -> str:
        return f"echo {request.messages[0].content}"

    runner = Runner(Agent("A", model=ScriptedModel([answer], cycle=True)))
    results = await asyncio.gather(*[runner.run(str(number)) for number in range(50)])
    assert [result.output for result in results] == [f"echo {number}" for number in range(50)]
    assert len({result.run_id for result in results}) == 50


async def test_one_runner_keeps_limits_of_one_run_from_the_next() -> None:
    # T1, T20: limits are per run.
    runner = Runner(Agent("A", model=ScriptedModel(["hello"], cycle=True)), limits=Limits(model_calls=1))
    assert [(await runner.run("hi")).output for _ in range(3)] == ["hello"] * 3


@pytest.mark.parametrize("kind", [Agent, AgentContext, Runner, Limits, Handoff])
def test_type_hints_can_be_read_at_run_time(kind: type) -> None:
    assert get_type_hints(kind) or get_type_hints(kind.__init__)


def test_the_type_hints_of_an_agent_name_all_its_options() -> None:
    hints = get_type_hints(Agent)
    assert {field.name for field in fields(Agent)} <= hints.keys()
    assert hints["max_turns"] is int
