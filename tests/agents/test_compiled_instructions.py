"""Instructions as a model reads them: filled in only where that was asked for, and never an error."""

from typing import Any

import pytest

from baton import Agent, AgentContext, RunContext, Runner, tool
from baton.testing import ScriptedModel, call

VALUES = {"user": "Ada", "n": 3, "empty": "", "list": [1, 2], "odd": "{user}"}


async def instructions_read(agent: Agent, values: dict[str, Any] = VALUES) -> str:
    """What the agent's model is told."""
    model = ScriptedModel(["ok"])
    await Runner(agent, model=model).run("hi", values=values)
    return model.requests[0].instructions


@pytest.mark.parametrize(
    ("text", "wanted"),
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
async def test_a_template_fills_in_values_that_exist_and_leaves_every_other_brace(text: str, wanted: str) -> None:
    # T4
    assert await instructions_read(Agent("A", instructions=text, template=True)) == wanted


@pytest.mark.parametrize("text", ["Hello {user}.", '{"user": {n}}', "{"])
async def test_without_template_nothing_is_filled_in(text: str) -> None:
    # T4
    assert await instructions_read(Agent("A", instructions=text)) == text


async def test_what_a_function_gives_is_a_template_too() -> None:
    # T4
    def instructions(ctx: AgentContext) -> str:
        return "I am {user}, not {nobody}."

    assert await instructions_read(Agent("A", instructions=instructions, template=True)) == "I am Ada, not {nobody}."
    assert await instructions_read(Agent("A", instructions=instructions)) == "I am {user}, not {nobody}."


async def test_values_written_in_one_turn_are_read_in_the_next() -> None:
    # T4
    @tool
    async def remember(ctx: RunContext, city: str) -> str:
        """Remember a city."""
        ctx.values.set("city", city)
        return "ok"

    model = ScriptedModel([call("remember", city="Rome"), "done"])
    await Runner(Agent("A", model=model, tools=[remember], instructions="City: {city}", template=True)).run("hi")
    assert [request.instructions for request in model.requests] == ["City: {city}", "City: Rome"]


async def test_the_section_about_transfers_follows_the_agents_own_words_and_is_no_template() -> None:
    # T4, T12
    child = Agent("B", description="knows about {user}")
    text = await instructions_read(Agent("A", instructions="Hello {user}.", template=True, sub_agents=[child]))
    assert text.startswith("Hello Ada.\n\nYou work in a team.")
    assert "- B: knows about {user}" in text


async def test_an_agent_without_instructions_has_only_the_section() -> None:
    # T12
    assert (await instructions_read(Agent("A", sub_agents=[Agent("B", description="b")]))).startswith("You work")
    assert await instructions_read(Agent("A")) == ""
