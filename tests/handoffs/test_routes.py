"""The edges out of one agent, compiled: what a model is shown, and what becomes of a call."""

import pytest

from baton import Agent
from baton.flow import Team
from baton.handoffs import Handoff
from baton.handoffs.routes import Route, Routes, TransferRefusal
from baton.messages import ToolCall


@pytest.fixture
def routes() -> Routes:
    """An agent with a child, a parent, a handoff, and an edge only code follows."""
    child, desk = Agent("Child", description="c"), Agent("Desk", description="d")
    middle = Agent("Middle", sub_agents=[child], handoffs=[desk, Handoff(agent="Hidden", offered_to_model=False)])
    team = Team.compile(Agent("Parent", description="p", sub_agents=[middle]), extra=[Agent("Hidden")])
    return team.members["Middle"].routes


def test_what_is_reachable_and_what_is_shown(routes: Routes) -> None:
    # T12, T13
    assert routes.owner == "Middle"
    assert routes.reachable == ("Child", "Parent", "Desk", "Hidden")
    assert [spec.name for spec in routes.specs] == ["transfer_to_agent", "transfer_to_desk"]
    assert "- Child: c\n- Parent: p\n" in routes.section
    assert "Desk" not in routes.section


def test_a_call_leads_along_its_edge(routes: Routes) -> None:
    # T16
    by_name = routes.match(ToolCall("x", "transfer_to_agent", '{"agent_name": "Parent"}'))
    assert isinstance(by_name, Route)
    assert (by_name.target, by_name.result) == ("Parent", "successfully transferred to agent [Parent]")
    by_tool = routes.match(ToolCall("x", "transfer_to_desk", "anything at all"))
    assert isinstance(by_tool, Route)
    assert (by_tool.target, by_tool.result) == ("Desk", '{"assistant":"Desk"}')


def test_a_call_that_leads_nowhere_is_refused_with_what_would_work(routes: Routes) -> None:
    # T14, T19
    for name in ("Kitchen", "Desk", "Hidden", "Middle", "child"):
        refusal = routes.match(ToolCall("x", "transfer_to_agent", f'{{"agent_name": "{name}"}}'))
        assert refusal == TransferRefusal(
            name, f"Not transferred: there is no `{name}`; you can transfer to: `Child`, `Parent`."
        )


def test_a_call_of_anything_else_asks_for_no_transfer(routes: Routes) -> None:
    # T10
    assert routes.match(ToolCall("x", "look_up", "{}")) is None
    assert routes.match(ToolCall("x", "transfer_to_hidden", "{}")) is None
    assert Routes("A", []).match(ToolCall("x", "transfer_to_agent", '{"agent_name": "B"}')) is None


def test_code_finds_every_edge_and_a_call_its_own(routes: Routes) -> None:
    # T21
    hidden = routes.edge("Hidden", "")
    assert hidden is not None
    assert hidden.tool == ""
    by_tree, by_tool = routes.edge("Child", "transfer_to_agent"), routes.edge("Desk", "transfer_to_desk")
    assert by_tree is not None
    assert by_tool is not None
    assert (by_tree.target, by_tool.target) == ("Child", "Desk")
    assert routes.edge("Kitchen", "") is None
    assert routes.edge("Desk", "a_function") is None
