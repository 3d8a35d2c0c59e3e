"""Teams that cannot work: every mistake is a SetupError that says what is wrong and what would work."""

from typing import Any

import pytest

from batonkit import Agent, BatonError, Runner, SetupError, handoff, then_transfer, tool
from batonkit.runs import HandoffRules
from batonkit.testing import ScriptedModel


@tool
async def look_up(city: str) -> str:
    """Look up."""
    return city


def other_look_up(city: str) -> str:
    """Look up elsewhere."""
    return city


@pytest.mark.parametrize("name", ["", "   ", "\n", None, 7])
def test_an_agent_without_a_name(name: Any) -> None:
    with pytest.raises(SetupError, match="Agent needs a name that is a non-empty string, not ") as caught:
        Agent(name)
    assert repr(name) in str(caught.value)
    assert isinstance(caught.value, BatonError)


@pytest.mark.parametrize("turns", [0, -1])
def test_an_agent_without_turns(turns: int) -> None:
    with pytest.raises(SetupError, match=f"`A` has max_turns={turns}; an agent needs at least one turn"):
        Agent("A", max_turns=turns)


@pytest.mark.parametrize("wrong", [42, None, "B", object(), Agent])
def test_a_sub_agent_that_is_not_an_agent_is_refused(wrong: Any) -> None:
    with pytest.raises(SetupError) as caught:
        Agent("A", sub_agents=[wrong])
    assert str(caught.value) == f"`A` has {wrong!r} in sub_agents; give agents only"


@pytest.mark.parametrize("wrong", [42, None, object(), Agent, look_up])
def test_a_handoff_that_is_not_an_agent_is_refused(wrong: Any) -> None:
    with pytest.raises(SetupError) as caught:
        Agent("A", handoffs=[wrong])
    assert str(caught.value) == (f"`A` has {wrong!r} in handoffs; give an agent, handoff(agent, …) or an agent's name")


@pytest.mark.parametrize("wrong", [42, None, "look_up", object()])
def test_a_tool_that_is_not_a_tool_is_refused(wrong: Any) -> None:
    with pytest.raises(SetupError) as caught:
        Agent("A", tools=[wrong])
    assert str(caught.value) == f"`A` has {wrong!r} in tools; give a function, a tool or a toolset"


def test_an_agent_among_tools() -> None:
    with pytest.raises(
        SetupError, match=r"`A` has the agent Agent\('B'\) in tools; put it into sub_agents or handoffs"
    ):
        Agent("A", tools=[Agent("B")])  # pyright: ignore[reportArgumentType]


def test_two_tools_with_one_name() -> None:
    agent = Agent("A", tools=[look_up, tool(other_look_up, name="look_up")])
    with pytest.raises(SetupError) as caught:
        Runner(agent)
    assert str(caught.value) == "`A` has two tools called `look_up`; give one of them another name"


def test_a_tool_called_like_the_exit_tool() -> None:
    agent = Agent("A", tools=[tool(other_look_up, name="exit")], exit_tool=True)
    with pytest.raises(SetupError, match="`A` has two tools called `exit`"):
        Runner(agent)


def test_a_handoff_called_like_a_tool() -> None:
    agent = Agent("A", tools=[look_up], handoffs=[handoff(Agent("B"), tool_name_override="look_up")])
    with pytest.raises(SetupError) as caught:
        Runner(agent)
    assert str(caught.value) == (
        "`A` has two tools called `look_up`: its tool `look_up` and the handoff to `B`; "
        "rename one of them, for instance with handoff(agent, tool_name_override=…)"
    )


def test_a_handoff_called_like_the_exit_tool() -> None:
    agent = Agent("A", exit_tool=True, handoffs=[handoff(Agent("B"), tool_name_override="exit")])
    with pytest.raises(SetupError, match="its tool `exit` and the handoff to `B`"):
        Runner(agent)


def test_two_agents_of_one_name_anywhere_in_the_team() -> None:
    deep = Agent("Deep", sub_agents=[Agent("Root", description="an impostor")])
    with pytest.raises(SetupError, match=r"two different agents are called `Root`.*give each a name of its own"):
        Runner(Agent("Root", handoffs=[handoff(deep)]))


def test_an_agent_and_its_clone_in_one_team() -> None:
    # The likeliest way to have two of one name: clone() keeps it.
    a = Agent("A")
    with pytest.raises(SetupError, match="two different agents are called `A`"):
        Runner(Agent("Root", sub_agents=[a, a.clone(instructions="be brief")]))


def test_an_agent_and_the_same_one_that_hands_on_in_one_team() -> None:
    a = Agent("A")
    with pytest.raises(SetupError, match="two different agents are called `A`"):
        Runner(Agent("Root", sub_agents=[a, then_transfer(a, to="Root")]))


@pytest.mark.parametrize("edge", ["Kitchen", handoff("Kitchen")])
def test_a_handoff_to_an_unknown_agent_is_refused(edge: Any) -> None:
    with pytest.raises(
        SetupError, match="`A` has a handoff to `Kitchen`, but the team has no agent of that name; the team has: `A`"
    ):
        Runner(Agent("A", handoffs=[edge]))


def test_agent_names_are_case_sensitive() -> None:
    with pytest.raises(SetupError, match=r"handoff to `b`.*the team has: `A`, `B`"):
        Runner(Agent("A", handoffs=["b"]), extra_agents=[Agent("B")])


def test_an_unknown_loop_fallback_is_refused() -> None:
    with pytest.raises(SetupError) as caught:
        Runner(Agent("A", sub_agents=[Agent("B")]), handoff_rules=HandoffRules(loop_fallback="Helper"))
    assert str(caught.value) == "HandoffRules(loop_fallback='Helper') is not an agent of the team, which has: `A`, `B`"


@pytest.mark.parametrize("policy", ["rewriten", "", 7, None])
def test_an_unknown_history_of_a_runner(policy: Any) -> None:
    with pytest.raises(
        SetupError, match=r"there is no history .*; use one of rewritten, verbatim, lineage, answers, none, or"
    ):
        Runner(Agent("A"), history=policy)


@pytest.mark.parametrize("policy", ["rewriten", 7])
def test_an_unknown_history_of_an_agent_or_an_edge(policy: Any) -> None:
    with pytest.raises(SetupError, match="there is no history "):
        Agent("A", history=policy)
    with pytest.raises(SetupError, match="there is no history "):
        Runner(Agent("A", handoffs=[handoff(Agent("B"), history=policy)]))


async def test_an_agent_without_a_model() -> None:
    with pytest.raises(SetupError) as caught:
        await Runner(Agent("A")).run("hi")
    assert str(caught.value) == (
        "`A` has no model: set Agent(model=…), Runner(model=…) for all agents, or BATON_MODEL in the environment"
    )


@pytest.mark.parametrize("model", [42, object(), ScriptedModel])
def test_a_model_that_is_none(model: Any) -> None:
    with pytest.raises(SetupError, match="a model is an object with `name` and `respond"):
        Runner(Agent("A"), model=model)


async def test_an_output_type_without_a_schema() -> None:
    class Mine:
        """Nothing that pydantic knows."""

    with pytest.raises(SetupError, match=r"the output_type of `A` is .*Mine.*, which has no JSON schema"):
        await Runner(Agent("A", model=ScriptedModel(["x"]), output_type=Mine)).run("hi")


@pytest.mark.parametrize("options", [{"prompt_language": "fr"}, {"history": "hiden"}])
def test_a_misspelt_option_of_a_runner(options: dict[str, Any]) -> None:
    agent = Agent("A", sub_agents=[Agent("B")])
    with pytest.raises(SetupError):
        Runner(agent, **options)


def test_a_misspelt_option_of_an_agent() -> None:
    on_limit: Any = "eror"
    with pytest.raises(SetupError):
        Agent("A", on_max_turns=on_limit)


def test_a_misspelt_option_of_then_transfer() -> None:
    on_error: Any = "reprot"
    with pytest.raises(SetupError):
        then_transfer(Agent("A"), to="B", on_error=on_error)
