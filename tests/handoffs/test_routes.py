"""Compiled handoffs of one agent: the tools that the model gets, and the route of a call."""

import pytest

from batonkit import Agent
from batonkit.handoffs import Handoff
from batonkit.handoffs.routes import Route, Routes, TransferRefusal
from batonkit.messages import ToolCall
from batonkit.team import Team


@pytest.fixture
def routes() -> Routes:
    """Return the routes of an agent with a child, a parent, a handoff, and an edge that only code follows."""
    child, desk = Agent("Child", description="c"), Agent("Desk", description="d")
    middle = Agent("Middle", sub_agents=[child], handoffs=[desk, Handoff(agent="Hidden", offered_to_model=False)])
    team = Team.compile(Agent("Parent", description="p", sub_agents=[middle]), extra=[Agent("Hidden")])
    return team.members["Middle"].routes


def test_reachable_agents_and_tools(routes: Routes) -> None:
    assert routes.owner == "Middle"
    assert routes.reachable == ("Child", "Parent", "Desk", "Hidden")
    assert [spec.name for spec in routes.specs] == ["transfer_to_agent", "transfer_to_desk"]
    assert "- Child: c\n- Parent: p\n" in routes.section
    assert "Desk" not in routes.section


def test_a_call_matches_its_route(routes: Routes) -> None:
    by_name = routes.match(ToolCall("x", "transfer_to_agent", '{"agent_name": "Parent"}'))
    assert isinstance(by_name, Route)
    assert (by_name.target, by_name.result) == ("Parent", "successfully transferred to agent [Parent]")
    by_tool = routes.match(ToolCall("x", "transfer_to_desk", "anything at all"))
    assert isinstance(by_tool, Route)
    assert (by_tool.target, by_tool.result) == ("Desk", '{"assistant":"Desk"}')


def test_an_unknown_target_is_refused_with_the_valid_ones(routes: Routes) -> None:
    for name in ("Unknown", "Desk", "Hidden", "Middle", "child"):
        refusal = routes.match(ToolCall("x", "transfer_to_agent", f'{{"agent_name": "{name}"}}'))
        assert refusal == TransferRefusal(
            name, f"Not transferred: there is no `{name}`; you can transfer to: `Child`, `Parent`."
        )


def test_other_calls_match_no_route(routes: Routes) -> None:
    assert routes.match(ToolCall("x", "look_up", "{}")) is None
    assert routes.match(ToolCall("x", "transfer_to_hidden", "{}")) is None
    assert Routes("A", []).match(ToolCall("x", "transfer_to_agent", '{"agent_name": "B"}')) is None


def test_edges_are_found_by_target_and_by_tool(routes: Routes) -> None:
    hidden = routes.edge("Hidden", "")
    assert hidden is not None
    assert hidden.tool == ""
    by_tree, by_tool = routes.edge("Child", "transfer_to_agent"), routes.edge("Desk", "transfer_to_desk")
    assert by_tree is not None
    assert by_tool is not None
    assert (by_tree.target, by_tool.target) == ("Child", "Desk")
    assert routes.edge("Unknown", "") is None
    assert routes.edge("Desk", "a_function") is None
