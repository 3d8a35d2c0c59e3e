"""The fingerprint of a team: what of it a run under way depends on, in words."""

from inline_snapshot import snapshot

from baton import Agent, ParallelAgent, Runner, SequentialAgent, handoff, tool
from baton.flow.team import diff_fingerprints, team_fingerprint
from baton.testing import ScriptedModel


@tool
async def look(word: str) -> str:
    """Look."""
    return word


def prints(agent: Agent | SequentialAgent) -> dict[str, str]:
    return team_fingerprint(Runner(agent, model=ScriptedModel([])).team)


def test_it_tells_of_agents_tools_edges_and_parts() -> None:
    # DESIGN §6
    helper = Agent("Helper", description="h", tools=[look])
    both = ParallelAgent("Both", sub_agents=[Agent("L", description="l"), Agent("R", description="r")])
    front = Agent("Front", description="f", tools=[look, helper.as_tool()], handoffs=[Agent("Desk", description="d")])
    assert prints(SequentialAgent("All", sub_agents=[front, both])) == snapshot(
        {
            "All": "SequentialAgent; parts Front, Both",
            "Front": "Agent; tools look, helper; to Desk; parts Helper",
            "Desk": "Agent",
            "Both": "ParallelAgent; parts L, R",
            "L": "Agent",
            "R": "Agent",
            "Helper": "Agent; tools look",
        }
    )


def test_what_agents_are_told_is_no_part_of_it() -> None:
    # DESIGN §6: a wording may be mended while runs wait.
    before = Agent("A", description="a", instructions="Be brief.", tools=[look])
    after = Agent("A", description="an a", instructions="Be kind.", tools=[look], max_turns=3)
    assert prints(before) == prints(after)


def test_differences_are_a_line_for_each_agent() -> None:
    # DESIGN §6
    b, c = Agent("B", description="b"), Agent("C", description="c")
    before, after = prints(Agent("A", handoffs=[handoff(b)], tools=[look])), prints(Agent("A", sub_agents=[c]))
    assert diff_fingerprints(before, after) == snapshot(
        ["~ `A` was (Agent; tools look; to B), is (Agent; to C)", "- `B` is gone", "+ `C` is new"]
    )
    assert diff_fingerprints(before, before) == []
