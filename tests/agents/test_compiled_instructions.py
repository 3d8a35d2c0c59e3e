"""Instructions as they are sent to the model: templates and the section about transfers."""

from typing import Any

import pytest

from batonkit import Agent, AgentContext, BatonError, RunContext, Runner, tool
from batonkit.stores import MemoryStore
from batonkit.testing import ScriptedModel, call

VALUES = {"user": "Ada", "n": 3, "empty": "", "list": [1, 2], "odd": "{user}"}


async def sent_instructions(agent: Agent, values: dict[str, Any] = VALUES) -> str:
    """Return the instructions that the agent's model receives."""
    model = ScriptedModel(["ok"])
    await Runner(agent, model=model).run("hi", values=values)
    return model.requests[0].instructions


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Hello {user}.", "Hello Ada."),
        ("{user} has {n}, {user}!", "Ada has 3, Ada!"),
        ("none of {those}", "none of {those}"),
        ('answer as {"json": true}', 'answer as {"json": true}'),
        ("{user} as {{user}}", "Ada as {Ada}"),
        ("{} { } {user } {", "{} { } {user } {"),
        ("f(x) = {x | x > 0}", "f(x) = {x | x > 0}"),
        ("[{empty}]", "[]"),
        ("{list}", "[1, 2]"),
        ("{odd}", "{user}"),
        ("{user.name} {user!r} {0}", "{user.name} {user!r} {0}"),
    ],
)
async def test_a_template_replaces_known_values_and_keeps_other_braces(text: str, expected: str) -> None:
    assert await sent_instructions(Agent("A", instructions=text, template=True)) == expected


@pytest.mark.parametrize("text", ["Hello {user}.", '{"user": {n}}', "{"])
async def test_instructions_without_template_are_unchanged(text: str) -> None:
    assert await sent_instructions(Agent("A", instructions=text)) == text


async def test_the_result_of_an_instructions_function_can_be_a_template() -> None:
    def instructions(ctx: AgentContext) -> str:
        return "I am {user}, not {missing}."

    assert await sent_instructions(Agent("A", instructions=instructions, template=True)) == "I am Ada, not {missing}."
    assert await sent_instructions(Agent("A", instructions=instructions)) == "I am {user}, not {missing}."


async def test_values_written_in_one_turn_are_used_in_the_next() -> None:
    @tool
    async def remember(ctx: RunContext, city: str) -> str:
        """Remember a city."""
        ctx.values.set("city", city)
        return "ok"

    model = ScriptedModel([call("remember", city="Rome"), "done"])
    await Runner(Agent("A", model=model, tools=[remember], instructions="City: {city}", template=True)).run("hi")
    assert [request.instructions for request in model.requests] == ["City: {city}", "City: Rome"]


async def test_the_transfer_section_follows_the_instructions_and_is_not_a_template() -> None:
    child = Agent("B", description="knows about {user}")
    text = await sent_instructions(Agent("A", instructions="Hello {user}.", template=True, sub_agents=[child]))
    assert text.startswith("Hello Ada.\n\nYou work in a team.")
    assert "- B: knows about {user}" in text


async def test_an_agent_without_instructions_has_only_the_transfer_section() -> None:
    assert (await sent_instructions(Agent("A", sub_agents=[Agent("B", description="b")]))).startswith("You work")
    assert await sent_instructions(Agent("A")) == ""


async def test_the_steps_of_an_instructions_function_belong_to_its_turn() -> None:
    # A resumed run does not call it again for the turns that are recorded.
    @tool
    def look() -> str:
        """Look."""
        return "seen"

    turns: list[int] = []

    def count() -> int:
        turns.append(len(turns) + 1)
        return turns[-1]

    async def instructions(ctx: RunContext) -> str:
        return f"turn {await ctx.step('turn', count)}"

    agent, store = Agent("A", instructions=instructions, tools=[look]), MemoryStore()
    first = ScriptedModel([call("look"), call("look"), RuntimeError("down")])
    with pytest.raises(BatonError, match="down"):
        await Runner(agent, model=first, store=store).run("hi", run_id="r")
    model = ScriptedModel([call("look"), "done"])
    runner = Runner(agent, model=model, store=store)
    assert (await runner.resume("r")).output == "done"
    assert [request.instructions for request in model.requests] == ["turn 3", "turn 4"]
    assert (await runner.runs.replay("r")).output == "done"
    assert turns == [1, 2, 3, 4]
