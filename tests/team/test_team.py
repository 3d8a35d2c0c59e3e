"""Compiling a team: its members and edges, validation, and the transfer tools and prompts of its models."""

import logging
from typing import Any

import pytest

from batonkit import (
    Agent,
    AgentContext,
    BaseAgent,
    Runner,
    SequentialAgent,
    SetupError,
    Transfer,
    agent,
    handoff,
    then_transfer,
    tool,
)
from batonkit.errors import TransferError
from batonkit.log import Action
from batonkit.messages import ToolSpec
from batonkit.runs import HandoffRules
from batonkit.team import Team
from batonkit.testing import ScriptedModel, call, transfer_to


def handoffs_by_agent(team: Team) -> dict[str, list[str]]:
    """Return the targets of each agent."""
    return {name: [edge.target for edge in member.edges] for name, member in team.members.items()}


# --- compiled from the root


def test_every_agent_reachable_from_the_root_is_in_the_team() -> None:
    sales = Agent("Sales")

    def to_sales() -> Agent:
        return sales

    grandchild = Agent("Grandchild")
    child = Agent("Child", sub_agents=[grandchild])
    desk = Agent("Desk", handoffs=[handoff(Agent("Expert")), "Root"], tools=[to_sales])
    team = Team.compile(Agent("Root", sub_agents=[child], handoffs=[desk]))
    assert team.root == "Root"
    assert list(team.members) == ["Root", "Child", "Grandchild", "Desk", "Expert", "Sales"]
    assert handoffs_by_agent(team) == {
        "Root": ["Child", "Desk"],
        "Child": ["Grandchild", "Root"],
        "Grandchild": ["Child"],
        "Desk": ["Expert", "Root", "Sales"],
        "Expert": [],
        "Sales": [],
    }


def test_two_agents_with_the_same_name_are_refused() -> None:
    with pytest.raises(SetupError) as caught:
        Runner(Agent("A", sub_agents=[Agent("B", description="one")], handoffs=[Agent("B", description="other")]))
    assert str(caught.value) == (
        "two different agents are called `B`: Agent('B', description='one') and Agent('B', description='other'); "
        "give each a name of its own"
    )


def test_an_agent_that_occurs_twice_is_one_member() -> None:
    b = Agent("B")
    assert list(Runner(Agent("A", sub_agents=[b], handoffs=[b])).team.members) == ["A", "B"]


def test_a_child_with_its_parents_name_is_refused() -> None:
    with pytest.raises(SetupError, match="two different agents are called `A`"):
        Runner(Agent("A", sub_agents=[Agent("A")]))


def test_handoffs_by_name_are_resolved_and_can_form_cycles() -> None:
    c = Agent("C", handoffs=["A", "B", "C"])
    b = Agent("B", handoffs=[c])
    assert handoffs_by_agent(Runner(Agent("A", handoffs=[b])).team) == {"A": ["B"], "B": ["C"], "C": ["A", "B", "C"]}


def test_a_handoff_to_an_unknown_name_is_refused_with_the_known_names() -> None:
    with pytest.raises(SetupError) as caught:
        Runner(Agent("A", handoffs=[Agent("B"), "Kitchen"]))
    assert str(caught.value) == (
        "`A` has a handoff to `Kitchen`, but the team has no agent of that name; the team has: `A`, `B`"
    )


def test_an_unknown_return_to_is_refused() -> None:
    with pytest.raises(SetupError, match="`A` has a handoff with return_to='Kitchen', but the team has no agent of"):
        Runner(Agent("A", handoffs=[handoff(Agent("B"), return_to="Kitchen")]))


def test_a_misspelt_return_to_gets_a_suggestion() -> None:
    with pytest.raises(SetupError, match=r"return_to='callr', .*; did you mean `caller`\?"):
        Runner(Agent("A", handoffs=[handoff(Agent("B"), return_to="callr")]))


def test_agents_that_are_only_referenced_by_name_are_passed_as_extra_agents() -> None:
    runner = Runner(Agent("A", handoffs=["B"]), extra_agents=[Agent("B", handoffs=["A"])])
    assert handoffs_by_agent(runner.team) == {"A": ["B"], "B": ["A"]}


def test_a_target_without_a_description_causes_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger="baton.team"):
        Runner(Agent("A", description="a", sub_agents=[Agent("B"), Agent("C", description="c")]))
    assert caplog.messages == ["`B` has no description: a model must choose it by name alone"]


def test_a_root_that_is_not_a_target_needs_no_description(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger="baton.team"):
        Runner(Agent("A", handoffs=[Agent("B", description="b")]))
    assert caplog.messages == []


def test_an_unreachable_agent_causes_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger="baton.team"):
        Runner(Agent("A"), extra_agents=[Agent("Island", handoffs=["A"], description="i")])
    assert "`Island` cannot be reached from `A`" in caplog.messages


def test_findings_are_available_from_the_team() -> None:
    team = Runner(Agent("A", sub_agents=[Agent("B")]), extra_agents=[Agent("Island")]).team
    assert {(finding.kind, finding.agent) for finding in team.findings()} == {
        ("undescribed", "A"),
        ("undescribed", "B"),
        ("unreachable", "Island"),
    }


def test_the_target_of_then_transfer_is_reachable() -> None:
    runner = Runner(then_transfer(Agent("A"), to="B"), extra_agents=[Agent("B")])
    assert [finding for finding in runner.team.findings() if finding.kind == "unreachable"] == []


@pytest.mark.parametrize("option", ["return_to", "loop_fallback"])
def test_the_agents_of_return_to_and_loop_fallback_are_reachable(option: str, caplog: pytest.LogCaptureFixture) -> None:
    return_to, loop_fallback = ("C", None) if option == "return_to" else (None, "C")
    with caplog.at_level(logging.WARNING, logger="baton.team"):
        b = Agent("B", description="b")
        Runner(
            Agent("A", handoffs=[handoff(b, return_to=return_to)]),
            extra_agents=[Agent("C")],
            handoff_rules=HandoffRules(loop_fallback=loop_fallback),
        )
    assert "`C` cannot be reached from `A`" not in caplog.messages


async def test_a_team_is_compiled_once_per_runner() -> None:
    calls: list[str] = []

    class CountingAgent(BaseAgent):
        name = "Counted"

        def _tool_specs(self) -> tuple[ToolSpec, ...]:
            calls.append("specs")
            return ()

        async def run(self, ctx: AgentContext) -> Action | None:
            await ctx.say("hello")
            return None

    runner = Runner(CountingAgent())
    compiled, team = len(calls), runner.team
    assert compiled > 0
    for _ in range(5):
        await runner.run("hi")
    assert len(calls) == compiled
    assert runner.team is team


# --- sub-agents


async def first_requests(root: BaseAgent[Any, Any], *steps: Any, **options: Any) -> dict[str, Any]:
    """Run the team and return the first request of each agent."""
    model = ScriptedModel(list(steps))
    await Runner(root, model=model, **options).run("hi")
    first: dict[str, Any] = {}
    for request in model.requests:
        first.setdefault(request.agent, request)
    return first


async def test_the_transfer_tool_lists_the_reachable_agents() -> None:
    # Sub-agents in order, then the parent.
    leaf = Agent("Leaf", description="l")
    middle = Agent("Middle", description="m", sub_agents=[Agent("Zed", description="z"), leaf])
    root = Agent("Root", description="r", sub_agents=[middle])
    requests = await first_requests(root, transfer_to("Middle"), transfer_to("Leaf"), "done")
    (spec,) = requests["Middle"].tools
    assert spec.name == "transfer_to_agent"
    assert spec.strict
    schema = spec.parameters
    assert schema["required"] == ["agent_name"]
    assert schema["additionalProperties"] is False
    assert schema["properties"]["agent_name"]["type"] == "string"
    assert schema["properties"]["agent_name"]["enum"] == ["Zed", "Leaf", "Root"]
    enums = {
        name: request.tools[0].parameters["properties"]["agent_name"]["enum"] for name, request in requests.items()
    }
    assert enums == {"Root": ["Middle"], "Middle": ["Zed", "Leaf", "Root"], "Leaf": ["Middle"]}


def test_sub_agents_are_listed_before_parents_and_parents_in_team_order() -> None:
    shared = Agent("Shared", sub_agents=[Agent("Child")])
    left, right = Agent("Left", sub_agents=[shared]), Agent("Right", sub_agents=[shared])
    team = Team.compile(Agent("Root", sub_agents=[left, right]))
    assert handoffs_by_agent(team)["Shared"] == ["Child", "Left", "Right"]


async def test_the_instructions_list_the_targets_and_explain_transfers() -> None:
    child = Agent("Weather", description="Knows the weather.")
    requests = await first_requests(Agent("Router", sub_agents=[child, Agent("Chat")], instructions="Route."), "done")
    assert requests["Router"].instructions == (
        "Route.\n\n"
        "You work in a team. These agents can take over the conversation from you:\n"
        "- Weather: Knows the weather.\n"
        "- Chat\n\n"
        "Decide first who is best suited to deal with the request:\n"
        "- If it is you, answer it yourself.\n"
        "- If it is one of the agents above, call `transfer_to_agent` with that agent's name. When you transfer, "
        "output nothing but the call: the other agent sees the whole conversation."
    )
    (spec,) = requests["Router"].tools
    assert spec.description == "Give the conversation to another agent of your team, who then deals with it."
    assert spec.parameters["properties"]["agent_name"]["description"] == "The name of the agent that takes over."


async def test_prompt_language_zh_gives_chinese_prompts() -> None:
    child = Agent("天气", description="了解天气。")
    requests = await first_requests(
        Agent("Router", sub_agents=[child], instructions="分派。"), "done", prompt_language="zh"
    )
    instructions = requests["Router"].instructions
    assert instructions.startswith("分派。\n\n你是团队的一员。")
    assert "- 天气: 了解天气。" in instructions
    assert "请直接回答" in instructions
    assert "`transfer_to_agent`" in instructions
    assert "只输出该调用" in instructions
    (spec,) = requests["Router"].tools
    assert spec.description == "把对话移交给团队中的另一个智能体，由它继续处理。"
    assert spec.parameters["properties"]["agent_name"]["description"] == "接手对话的智能体的名称。"


async def test_prompt_language_also_applies_to_agents_returned_by_functions() -> None:
    def make() -> Agent:
        return Agent("Guest", sub_agents=[Agent("Helper")])

    requests = await first_requests(Agent("A", tools=[make]), call("make"), "done", prompt_language="zh")
    assert requests["Guest"].instructions.startswith("你是团队的一员。")


async def test_an_agent_without_targets_has_no_transfer_tool_or_instructions() -> None:
    requests = await first_requests(Agent("A", instructions="Alone."), "done")
    assert (requests["A"].instructions, requests["A"].tools) == ("Alone.", ())


def test_disallow_transfer_to_parent_removes_the_edge_to_the_parent() -> None:
    child = Agent("B", disallow_transfer_to_parent=True, sub_agents=[Agent("C")])
    assert handoffs_by_agent(Team.compile(Agent("A", sub_agents=[child]))) == {"A": ["B"], "B": ["C"], "C": ["B"]}


def test_a_custom_agent_has_an_edge_to_its_parent_unless_disallowed() -> None:
    @agent("B")
    async def child(ctx: AgentContext) -> None: ...

    @agent("C", disallow_transfer_to_parent=True)
    async def other(ctx: AgentContext) -> None: ...

    team = Team.compile(Agent("A", sub_agents=[child, other]))
    assert handoffs_by_agent(team) == {"A": ["B", "C"], "B": ["A"], "C": []}


# --- handoffs


async def test_each_handoff_has_its_own_tool_and_no_way_back() -> None:
    b = Agent("B", description="knows b")
    requests = await first_requests(Agent("A", handoffs=[b, handoff(Agent("C D"))]), call("transfer_to_b"), "done")
    assert [(spec.name, spec.description) for spec in requests["A"].tools] == [
        ("transfer_to_b", "Handoff to the B agent to handle the request. knows b"),
        ("transfer_to_c_d", "Handoff to the C D agent to handle the request."),
    ]
    assert requests["A"].tools[0].parameters == {"type": "object", "properties": {}, "additionalProperties": False}
    assert requests["A"].instructions == ""
    assert requests["B"].tools == ()


async def test_sub_agents_and_handoffs_can_be_combined() -> None:
    b, c = Agent("B", description="b"), Agent("C", description="c")
    requests = await first_requests(Agent("A", sub_agents=[b], handoffs=[c, b]), "done")
    assert [spec.name for spec in requests["A"].tools] == ["transfer_to_agent", "transfer_to_c", "transfer_to_b"]
    assert requests["A"].tools[0].parameters["properties"]["agent_name"]["enum"] == ["B"]


async def test_arguments_of_a_handoff_without_input_are_ignored() -> None:
    model = ScriptedModel({"A": [call("transfer_to_b", anything=1)], "B": ["ok"]})
    assert (await Runner(Agent("A", handoffs=[Agent("B")]), model=model).run("hi")).agent == "B"


async def test_a_function_that_returns_an_agent_is_an_edge_without_a_transfer_tool() -> None:
    sales = Agent("Sales", description="sells")

    @tool
    def to_sales() -> Agent:
        """Transfer to sales."""
        return sales

    runner = Runner(Agent("A", tools=[to_sales]))
    assert handoffs_by_agent(runner.team) == {"A": ["Sales"], "Sales": []}
    requests = await first_requests(Agent("A", tools=[to_sales]), call("to_sales"), "done")
    assert [spec.name for spec in requests["A"].tools] == ["to_sales"]
    assert requests["A"].instructions == ""


# --- checked when the tool is called


async def test_a_disallowed_transfer_to_the_parent_is_refused_when_called() -> None:
    child = Agent("B", disallow_transfer_to_parent=True, sub_agents=[Agent("C")])
    model = ScriptedModel({"A": [transfer_to("B"), "never"], "B": [transfer_to("A"), "I stay"]})
    result = await Runner(Agent("A", sub_agents=[child]), model=model).run("hi")
    assert (result.agent, result.output) == ("B", "I stay")
    assert model.requests[2].messages[-1].content == "Not transferred: there is no `A`; you can transfer to: `C`."


async def test_a_leaf_with_disallow_transfer_to_parent_has_no_transfer_tool() -> None:
    child = Agent("B", disallow_transfer_to_parent=True)
    model = ScriptedModel({"A": [transfer_to("B"), "never"], "B": [transfer_to("A"), "I stay"]})
    result = await Runner(Agent("A", sub_agents=[child]), model=model).run("hi")
    assert result.agent == "B"
    assert model.requests[1].tools == ()
    assert "There is no tool `transfer_to_agent`" in str(model.requests[2].messages[-1].content)


async def test_a_custom_agent_cannot_make_a_disallowed_transfer() -> None:
    @agent("B", disallow_transfer_to_parent=True)
    async def child(ctx: AgentContext) -> Action:
        return Transfer("A")

    model = ScriptedModel([transfer_to("B")])
    with pytest.raises(TransferError, match=r"`B` cannot transfer to `A`; it can reach: nothing\."):
        await Runner(Agent("A", model=model, sub_agents=[child])).run("hi")


async def test_sub_agents_and_handoffs_are_reachable_only_through_their_own_tools() -> None:
    b, c = Agent("B", description="b"), Agent("C", description="c")
    model = ScriptedModel({"A": [transfer_to("C"), call("transfer_to_b"), "I stay"]})
    result = await Runner(
        Agent("A", sub_agents=[b], handoffs=[c]), model=model, handoff_rules=HandoffRules(max_corrections=5)
    ).run("hi")
    assert result.agent == "A"


async def test_an_edge_of_a_function_cannot_be_called_as_a_transfer_tool() -> None:
    sales = Agent("Sales")

    def to_sales() -> Agent:
        return sales

    model = ScriptedModel([call("transfer_to_sales"), transfer_to("Sales"), "I stay"])
    result = await Runner(Agent("A", model=model, tools=[to_sales]), handoff_rules=HandoffRules(max_corrections=5)).run(
        "hi"
    )
    assert result.agent == "A"


# --- tool names


def test_two_handoffs_with_the_same_tool_name_are_refused() -> None:
    with pytest.raises(SetupError) as caught:
        Runner(Agent("A", handoffs=[Agent("x y"), Agent("X  Y")]))
    assert str(caught.value) == (
        "`A` has two tools called `transfer_to_x_y`: the handoff to `x y` and the handoff to `X  Y`; "
        "rename one of them, for instance with handoff(agent, tool_name_override=…)"
    )


def test_a_handoff_and_a_tool_with_the_same_name_are_refused() -> None:
    @tool
    async def transfer_to_b() -> str:
        return ""

    with pytest.raises(SetupError, match="its tool `transfer_to_b` and the handoff to `B`"):
        Runner(Agent("A", tools=[transfer_to_b], handoffs=[Agent("B")]))


def test_a_tool_with_the_name_of_the_transfer_tool_is_refused() -> None:
    @tool
    async def transfer_to_agent() -> str:
        return ""

    with pytest.raises(SetupError, match="its tool `transfer_to_agent` and the transfer tool `transfer_to_agent`"):
        Runner(Agent("A", tools=[transfer_to_agent], sub_agents=[Agent("B")]))


def test_a_handoff_with_the_name_of_the_transfer_tool_is_refused() -> None:
    # The tool of an agent called `agent` has that name.
    with pytest.raises(SetupError, match="has two tools called `transfer_to_agent`"):
        Runner(Agent("A", handoffs=[Agent("agent")], sub_agents=[Agent("B")]))


async def test_an_agent_called_agent_can_be_the_target_of_a_handoff() -> None:
    # `transfer_to_agent` is then the tool of that handoff.
    model = ScriptedModel({"A": [call("transfer_to_agent")], "agent": ["hello"]})
    result = await Runner(Agent("A", handoffs=[Agent("agent")]), model=model).run("hi")
    assert result.agent == "agent"


def test_tool_name_override_avoids_a_name_conflict() -> None:
    edges = [Agent("x y"), handoff(Agent("X  Y"), tool_name_override="to_the_other")]
    runner = Runner(Agent("A", handoffs=edges))
    assert [spec.name for spec in runner.team.members["A"].routes.specs] == ["transfer_to_x_y", "to_the_other"]


def test_findings_in_nested_teams_are_reported_once_with_their_location(caplog: pytest.LogCaptureFixture) -> None:
    # The same helper is in two nested teams.
    helper = Agent("Helper")
    deep = Agent("Deep", handoffs=[Agent("Deeper")])
    inner = SequentialAgent("Inner", sub_agents=[deep])
    steps = [Agent("First", handoffs=[helper]), Agent("Second", handoffs=[helper], tools=[inner.as_tool()])]
    sequence = SequentialAgent("Line", sub_agents=steps, description="d")
    team = Runner(Agent("Root", handoffs=[sequence])).team
    assert [(owner, each.root) for owner, each in team.nested()] == [
        ("Line", "First"),
        ("Line", "Second"),
        ("Second", "Inner"),
        ("Inner", "Deep"),
    ]
    assert [(finding.agent, finding.inside) for finding in team.findings()] == [("Helper", "Line"), ("Deeper", "Inner")]
    assert caplog.messages == [
        "`Helper` has no description: a model must choose it by name alone (inside `Line`)",
        "`Deeper` has no description: a model must choose it by name alone (inside `Inner`)",
    ]
