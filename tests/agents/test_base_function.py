"""Agents made from functions with `@agent`."""

import pytest

from batonkit import Agent, AgentContext, Runner, SetupError, Transfer, agent
from batonkit.messages import UserMessage
from batonkit.testing import ScriptedModel


async def test_a_function_with_a_name_is_an_agent() -> None:
    @agent("Greeter", description="greets")
    async def greet(ctx: AgentContext) -> None:
        await ctx.say("hello")

    assert (greet.name, greet.description) == ("Greeter", "greets")
    result = await Runner(greet).run("hi")
    assert (result.agent, result.output) == ("Greeter", "hello")


def test_name_and_description_default_to_those_of_the_function() -> None:
    @agent()
    async def greeter(ctx: AgentContext) -> None:
        """Greets people.

        At length.
        """

    assert (greeter.name, greeter.description) == ("greeter", "Greets people.")


async def test_a_function_agent_has_sub_agents_and_a_history_policy() -> None:
    message_counts: list[int] = []

    @agent(sub_agents=[Agent("Child", model=ScriptedModel(["from the child"]))], history="none")
    async def parent(ctx: AgentContext) -> Transfer:
        message_counts.append(len(ctx.messages()))
        return Transfer("Child")

    result = await Runner(parent).run([UserMessage("a"), UserMessage("b")])
    assert (result.agent, result.output, message_counts) == ("Child", "from the child", [2])
    assert parent.history == "none"


def test_a_function_that_is_not_async_is_refused() -> None:
    def sync(ctx: AgentContext) -> None: ...

    with pytest.raises(SetupError, match=r"@agent decorates `async def …\(ctx\)`, not <function"):
        agent()(sync)  # pyright: ignore[reportArgumentType]
