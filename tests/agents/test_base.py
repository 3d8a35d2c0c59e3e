"""The contract for agents of your own, and what they are given."""

import pytest

from baton import Agent, AgentContext, BaseAgent, Runner, SetupError, Transfer
from baton.errors import TaskDeclinedError
from baton.events import Action, AgentResponded, TextDelta
from baton.messages import Image, Text, UserMessage
from baton.runner import RunStream
from baton.testing import ScriptedModel, transcript, transfer_to


class Greeter(BaseAgent):
    """As in DESIGN §7."""

    name = "Greeter"
    description = "greets and hands on"
    handoffs = ("Chat",)

    async def run(self, ctx: AgentContext) -> Action | None:
        name = await ctx.step("lookup", lambda: "Ada")
        await ctx.say(f"hello {name}")
        return Transfer("Chat")


async def test_an_agent_of_your_own_takes_steps_speaks_and_transfers() -> None:
    # T17, DESIGN §7
    chat = Agent("Chat", model=ScriptedModel(["how are you?"]))
    result = await Runner(Greeter(), extra_agents=[chat]).run("hi")
    assert result.output == "how are you?"
    assert transcript(result.events) == [
        'run of Greeter started with "hi"',
        "Greeter started",
        'Greeter: step lookup -> "Ada"',
        'Greeter: said "hello Ada"',
        "Greeter → Chat",
        "Greeter finished",
        "Chat started",
        'Chat: said "how are you?"',
        "Chat finished",
        "run completed",
    ]


def test_facts_come_from_the_class_or_from_the_call() -> None:
    greeter = Greeter("Other", description="different", handoffs=["Boss"])
    assert (greeter.name, greeter.description) == ("Other", "different")
    assert [edge.target for edge in greeter._edges()] == ["Boss"]
    assert [edge.target for edge in Greeter()._edges()] == ["Chat"]
    assert (Greeter().name, Greeter().description) == ("Greeter", "greets and hands on")
    assert repr(greeter) == "Greeter('Other')"


def test_an_agent_without_a_way_to_run_cannot_be_made() -> None:
    class Lazy(BaseAgent):
        name = "Lazy"

    with pytest.raises(TypeError, match="abstract"):
        Lazy()  # pyright: ignore[reportAbstractUsage]


def test_an_agent_of_your_own_needs_a_name_too() -> None:
    class Nameless(BaseAgent):
        async def run(self, ctx: AgentContext) -> Action | None: ...

    with pytest.raises(SetupError, match="Nameless needs a name that is a non-empty string"):
        Nameless()


async def test_what_it_says_may_be_more_than_text() -> None:
    # T24: media survive.
    picture = Image(url="https://example.org/cat.png")

    class Painter(BaseAgent):
        name = "Painter"
        handoffs = ("Chat",)

        async def run(self, ctx: AgentContext) -> Action | None:
            await ctx.say((Text("look"), picture))
            return Transfer("Chat")

    model = ScriptedModel(["nice"])
    await Runner(Painter(), extra_agents=[Agent("Chat", model=model)]).run("hi")
    assert list(model.requests[0].messages) == [
        UserMessage("hi"),
        UserMessage((Text("For context: [Painter] said: look."), picture)),
    ]


async def test_it_reads_the_conversation_as_it_grows() -> None:
    # T23
    class Reader(BaseAgent):
        name = "Reader"

        async def run(self, ctx: AgentContext) -> Action | None:
            before = ctx.messages()
            await ctx.say("one")
            await ctx.say("two")
            ctx.output = (len(before), len(ctx.messages()))
            return None

    assert (await Runner(Reader()).run("hi")).output == (1, 3)


async def test_what_was_said_last_is_the_output_unless_it_sets_one() -> None:
    class Talker(BaseAgent):
        name = "Talker"

        async def run(self, ctx: AgentContext) -> Action | None:
            await ctx.say("one")
            await ctx.say("two")
            return None

    result = await Runner(Talker()).run("hi")
    assert result.output == "two"
    assert [event.text for event in result.events if isinstance(event, AgentResponded)] == ["one", "two"]


async def test_an_agent_that_says_nothing_comes_to_nothing() -> None:
    class Silent(BaseAgent):
        name = "Silent"

        async def run(self, ctx: AgentContext) -> Action | None:
            return None

    result = await Runner(Silent()).run("hi")
    assert (result.status, result.output) == ("completed", None)


async def test_each_thing_it_says_has_a_key_of_its_own() -> None:
    # DESIGN §6: old logs are found again by these keys, so they must not change.
    class Talker(BaseAgent):
        name = "Talker"

        async def run(self, ctx: AgentContext) -> Action | None:
            await ctx.say("one")
            await ctx.say("two")
            await ctx.interrupt("a?")
            await ctx.interrupt("b?")
            return None

    runner = Runner(Talker())
    result = await runner.run("hi")
    for _ in range(2):
        result = await runner.resume(result.run_id, "yes")
    keys = [event.key for event in result.events if event.agent]
    assert keys == [
        "1/start",
        "1/say1",
        "1/say2",
        "1/ask1",
        "1/ask1!",
        "1/ask2",
        "1/ask2!",
        "1/end",
    ]


async def test_what_it_says_is_an_answer_to_those_who_read_only_answers() -> None:
    # T25
    class Talker(BaseAgent):
        name = "Talker"
        handoffs = ("Chat",)

        async def run(self, ctx: AgentContext) -> Action | None:
            await ctx.say("my answer")
            return Transfer("Chat")

    model = ScriptedModel(["ok"])
    await Runner(Talker(), extra_agents=[Agent("Chat", model=model, history="answers")]).run("hi")
    assert list(model.requests[0].messages) == [
        UserMessage("hi"),
        UserMessage("For context: [Talker] said: my answer."),
    ]


async def test_it_may_decline_a_conversation() -> None:
    # handoffs.md H15
    class Shy(BaseAgent):
        name = "Shy"
        description = "shy"

        async def run(self, ctx: AgentContext) -> Action | None:
            await ctx.say("hello")
            return None

    model = ScriptedModel([transfer_to("Shy"), "I stay"])
    shy = Shy(accepts=lambda ctx, payload: "not today")
    assert (await Runner(Agent("A", model=model, sub_agents=[shy])).run("hi")).output == "I stay"
    willing = ScriptedModel([transfer_to("Shy")])
    assert (await Runner(Agent("A", model=willing, sub_agents=[Shy()])).run("hi")).output == "hello"


class Writer(BaseAgent):
    """Says things piece by piece, and asks in between."""

    name = "Writer"

    async def run(self, ctx: AgentContext) -> None:
        await ctx.stream_text("one ")
        await ctx.stream_text("two")
        await ctx.say("one two")
        await ctx.interrupt("more?")
        await ctx.stream_text("three")
        await ctx.say("three")


async def test_what_it_writes_is_heard_while_it_is_made_and_not_again_on_a_resume() -> None:
    runner = Runner(Writer(), store="memory:")

    async def heard(live: RunStream[str]) -> list[str]:
        async with live as run:
            return [event.text async for event in run if isinstance(event, TextDelta)]

    assert await heard(runner.stream("hi", run_id="r")) == ["one ", "two"]
    assert await heard(runner.stream_resume("r", "yes")) == ["three"]
    assert [event.message.content for event in await runner.events("r") if isinstance(event, AgentResponded)] == [
        "one two",
        "three",
    ]


async def test_an_agent_that_declines_ends_the_run_with_its_reason() -> None:
    class Picky(BaseAgent):
        name = "Picky"

        async def run(self, ctx: AgentContext) -> None:
            raise TaskDeclinedError("not my field")

    runner = Runner(Picky(), store="memory:")
    with pytest.raises(TaskDeclinedError, match="not my field"):
        await runner.run("hi", run_id="r")
    assert transcript(await runner.events("r"))[-1] == "run failed with TaskDeclinedError: not my field"
