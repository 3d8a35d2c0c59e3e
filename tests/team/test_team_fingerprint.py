"""The fingerprint of a team: the parts that a suspended run depends on."""

from inline_snapshot import snapshot

from batonkit import Agent, ParallelAgent, Runner, SequentialAgent, handoff, tool
from batonkit.team.team import diff_fingerprints, team_fingerprint
from batonkit.testing import ScriptedModel


@tool
async def look_up(word: str) -> str:
    """Look up a word."""
    return word


def fingerprint_of(agent: Agent | SequentialAgent) -> dict[str, str]:
    return team_fingerprint(Runner(agent, model=ScriptedModel([])).team)


def test_it_contains_agents_tools_handoffs_and_inner_agents() -> None:
    helper = Agent("Helper", description="h", tools=[look_up])
    both = ParallelAgent("Both", sub_agents=[Agent("L", description="l"), Agent("R", description="r")])
    front = Agent(
        "Front", description="f", tools=[look_up, helper.as_tool()], handoffs=[Agent("Desk", description="d")]
    )
    assert fingerprint_of(SequentialAgent("All", sub_agents=[front, both])) == snapshot(
        {
            "All": "SequentialAgent; parts Front, Both",
            "Front": "Agent; tools look_up, helper; to Desk; parts Helper",
            "Desk": "Agent",
            "Both": "ParallelAgent; parts L, R",
            "L": "Agent",
            "R": "Agent",
            "Helper": "Agent; tools look_up",
        }
    )


def test_it_does_not_depend_on_descriptions_and_instructions() -> None:
    # Prompts can be changed while runs are suspended.
    before = Agent("A", description="a", instructions="Be brief.", tools=[look_up])
    after = Agent("A", description="an a", instructions="Be kind.", tools=[look_up], max_turns=3)
    assert fingerprint_of(before) == fingerprint_of(after)


def test_the_difference_has_one_line_for_each_agent() -> None:
    b, c = Agent("B", description="b"), Agent("C", description="c")
    before, after = (
        fingerprint_of(Agent("A", handoffs=[handoff(b)], tools=[look_up])),
        fingerprint_of(Agent("A", sub_agents=[c])),
    )
    assert diff_fingerprints(before, after) == snapshot(
        ["~ `A` was (Agent; tools look_up; to B), is (Agent; to C)", "- `B` is gone", "+ `C` is new"]
    )
    assert diff_fingerprints(before, before) == []
